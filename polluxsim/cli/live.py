"""Show the cluster on the terminal while it is simulated: `polluxsim run --live`."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from polluxsim.common.durations import clock, length
from polluxsim.common.phrases import percent
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation, Gpu, Gpus, JobId
from polluxsim.look.colours import job_colour
from polluxsim.metrics.summary import shares
from polluxsim.records.results import RoundRecord
from polluxsim.run.interrupt import alternate_screen, ending_with, in_main_thread
from polluxsim.run.progress_line import num_expected, progress
from polluxsim.statistics.metric_lines import METRICS, OVER_TIME
from polluxsim.statistics.series import MOST_EFFICIENCY, Steps

if TYPE_CHECKING:
    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.workloads.workload import Workload

KeyReader = Callable[[bool], str]
"""Function that returns the last pressed key, or "". Its argument is whether it waits for a key."""

CELLS = ((6, True), (4, True), (2, True), (1, True), (1, False))
"""Characters for a GPU, and whether nodes show their numbers, from the largest form to the smallest."""

JOB_WIDTH = 28  # characters for a job in the list of running jobs
LEAST_FOR_LINES = 60  # least width of the terminal for sparklines [characters]

FREE, DOWN, USED = "·", "×", "█"  # characters for a free GPU, for a GPU of a node that is down, and for a job
UPPER_HALF, LOWER_HALF, LEFT_HALF = "▀", "▄", "▌"  # two jobs in one character: the second has the background colour
LEVELS = " ▁▂▃▄▅▆▇█"  # characters of a sparkline, from 0 to the largest value
DIM, BOLD = Style(dim=True), Style(bold=True)  # of secondary and of important text


class Shown(NamedTuple):
    """State of the run that a frame shows."""

    record: RoundRecord  # of the last round
    start: float  # time of the first submission [s]
    allocation: Allocation
    waiting: Sequence[JobId]
    num_ended: int
    num_jobs: int
    mean_jct: float | None  # of the complete jobs [s]; None without any
    down: Sequence[int] = ()  # nodes that are down
    gpu_time: Mapping[str, float] = {}  # shares of the GPU time, by its use [1]
    shares: Mapping[JobId, tuple[Gpus, float]] = MappingProxyType({})  # numbered GPUs and relative speed, by job


class LiveHistory(NamedTuple):
    """Data of the sparklines at the rounds shown. All lists have one entry for each round."""

    times: list[float]  # [s]
    gpus: list[float]  # that jobs hold
    queue: list[float]  # waiting jobs
    efficiency: list[float]  # statistical [1]


class Picture:
    """Picture of the cluster after a round, for a terminal of any size.

    `keys` explains the keys. The text is empty if there is no keyboard.
    """

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workload = workload
        self._order = {job.job_id: index for index, job in enumerate(workload.jobs)}  # order of submission
        self._applications = {job.job_id: job.application for job in workload.jobs}
        self._history = LiveHistory([], [], [], [])
        self._started = perf_counter()
        self.keys = ""
        self._styles: dict[JobId | None, Style] = {None: DIM}  # of free GPUs, and of jobs that were drawn
        self._shown: Shown | None = None
        self._on: dict[Gpu, list[JobId]] = {}  # jobs on the numbered GPUs

    def show(self, run: Simulation) -> None:
        """Show the last round of a run in the next frame.

        Jobs of workloads that grow during the run get colours when they arrive.
        """
        if run.last_round is None:
            return
        total = num_expected(self._workload, run)
        gpu_time = shares(run.gpu_seconds) if run.scenario.can_fail else {}
        # After the last job, the record of the last round still contains its GPUs.
        is_over = run.num_ended == total
        last = run.last_round._replace(active_jobs=0, gpus_in_use=0) if is_over else run.last_round
        allocation = {} if is_over else run.allocation
        self._shown = Shown(
            last, run.start_time, allocation, run.waiting, run.num_ended, total, run.mean_jct, run.down, gpu_time,
            run.shares,
        )  # fmt: skip
        for job in (*allocation, *run.waiting):
            self._order.setdefault(job, len(self._order))
        now = (last.time, last.gpus_in_use, len(run.waiting), last.efficiency)
        for column, value in zip(self._history, now, strict=True):
            column.append(value)

    def paused(self, seconds: float) -> None:
        """Leave a pause [s] out of the wall-clock time of the run."""
        self._started += seconds

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of a frame, at most the height of the terminal."""
        width, height = options.max_width, options.height or console.height
        if self._shown is None:
            yield Segment("starting; the first run ever compiles its kernels")
            return
        lines = [*islice(self._head(self._shown, width), max(height // 3, 1)), []]
        lines += [*self._grid(self._shown, width, height - len(lines) - 5), []]
        lines += [*self._jobs(self._shown, width, height - len(lines) - 2), []]
        lines.append(self._queue(self._shown, width))
        for index, line in enumerate(lines[:height]):
            if index:
                yield Segment.line()
            yield from Segment.adjust_line_length(line, width, pad=False)

    def _head(self, shown: Shown, width: int) -> Iterator[list[Segment]]:
        """Yield lines of numbers, the shares of GPU time, and the sparklines."""
        line, free_width = list[Segment](), width
        for index, fact in enumerate(self._facts(shown)):
            if line and len(fact) + 3 > free_width:
                yield line
                line, free_width = [], width
            line += [Segment("   " if line else ""), Segment(fact, BOLD if index == 0 else None)]
            free_width -= len(fact) + 3
        yield line
        if shown.gpu_time:
            shares = ", ".join(f"{name} {percent(share)}" for name, share in shown.gpu_time.items())
            yield [Segment(f"GPU time: {shares}")]
        if width >= LEAST_FOR_LINES and self._history.times[-1] > self._history.times[0]:
            yield list(self._sparklines(width // 3 - 15))

    def _facts(self, shown: Shown) -> Iterator[str]:
        """Yield the numbers of the head as texts."""
        record, spent = shown.record, perf_counter() - self._started
        simulated = record.time - shown.start
        yield f"{clock(simulated)} simulated"
        yield f"{percent(shown.num_ended / max(shown.num_jobs, 1))} done"
        yield f"{shown.num_ended}/{shown.num_jobs} jobs ended   {record.active_jobs} active"
        num_gpus = sum(self._cluster.gpus_per_node[: self._nodes_up(shown)])
        yield f"{record.gpus_in_use}/{num_gpus} {OVER_TIME['gpus'].title}"
        if self._cluster.least_nodes is not None:
            yield f"{record.nodes} nodes, ${record.hourly_cost:,.2f} an hour"
        jobs_on = Counter(chain(*(gpus for gpus, _ in shown.shares.values())))
        if num_shared := sum(count > 1 for count in jobs_on.values()):
            yield f"{num_shared} of them shared"
        if shown.down:
            yield f"{OVER_TIME['nodes_down'].title}: {len(shown.down)}"
        if 0 < record.efficiency < MOST_EFFICIENCY:
            yield f"{OVER_TIME['efficiency'].title} {percent(record.efficiency)}"
        yield f"{METRICS['avg_jct'].title} so far {'–' if shown.mean_jct is None else length(shown.mean_jct)}"
        yield f"{length(simulated / max(spent, 1e-3))} a second"
        if 0 < shown.num_ended < shown.num_jobs:
            yield f"about {length(spent * (shown.num_jobs / shown.num_ended - 1))} left"
        if self.keys:
            yield self.keys

    def _sparklines(self, width: int) -> Iterator[Segment]:
        """Yield GPUs in use, queue and efficiency over the time so far, averaged over `width` bins."""
        times = np.array(self._history.times)
        edges = np.linspace(times[0], times[-1], width + 1)
        largest = {"gpus": self._cluster.num_gpus, "queue": max(self._history.queue), "efficiency": 1.0}
        for name, top in largest.items():
            means = Steps(times, np.array(getattr(self._history, name), float)).means(edges)
            levels = np.clip(means / max(top, 1e-9) * (len(LEVELS) - 1), 0, len(LEVELS) - 1).round().astype(int)
            yield Segment(f"{OVER_TIME[name].title:>11} ", DIM)
            yield Segment("".join(LEVELS[level] for level in levels) + "  ")

    def _nodes_up(self, shown: Shown) -> int:
        return self._cluster.num_nodes if self._cluster.least_nodes is None else shown.record.nodes

    def _grid(self, shown: Shown, width: int, height: int) -> list[list[Segment]]:
        """Return the nodes with their GPUs in the largest form that fits. The last line counts the rest."""
        nodes = self._by_node(shown)
        size = max(map(len, nodes))
        for gpu_width, has_labels in CELLS:
            label_width = has_labels * (len(str(len(nodes) - 1)) + 1)
            columns = width // (size * gpu_width + label_width + 2)
            if columns and -(-len(nodes) // columns) <= (height // 2 if gpu_width > 1 else height):
                return [
                    [part for node in row for part in self._node(node, nodes, gpu_width, size, label_width)]
                    for row in _rows(len(nodes), columns)
                ]
        return self._folded(nodes, max(width // (size + 1), 1), max(height - 1, 1), size)

    def _node(
        self, node: int, nodes: Sequence[list[JobId | None]], gpu_width: int, size: int, label_width: int
    ) -> Iterator[Segment]:
        """Yield a node, with spaces up to the `size` of the largest node [GPUs]. Widths are in characters."""
        if label_width:
            yield Segment(f"{node:>{label_width - 1}} ", DIM)
        free = DOWN if self._shown is not None and node in self._shown.down else FREE
        for gpu, job in enumerate(nodes[node]):
            jobs = self._on.get((node, gpu), ())
            if len(jobs) > 1:
                yield from self._split(jobs, gpu_width)
            else:
                yield Segment((free if job is None else USED) * gpu_width, self._style(job))
        yield Segment(" " * (gpu_width * (size - len(nodes[node])) + 2))

    def _split(self, jobs: Sequence[JobId], gpu_width: int) -> Iterator[Segment]:
        """Yield a shared GPU with a part for each job; for the first two jobs if it is one character wide."""
        if gpu_width == 1:
            yield Segment(LEFT_HALF, self._style(jobs[0]) + Style(bgcolor=self._style(jobs[1]).color))
        else:
            parts = (jobs[index * len(jobs) // gpu_width] for index in range(gpu_width))
            yield from (Segment(USED, self._style(job)) for job in parts)

    def _folded(self, nodes: list[list[JobId | None]], columns: int, lines: int, size: int) -> list[list[Segment]]:
        """Return lines of half blocks, each with two rows of nodes. `size` is that of the largest node [GPUs]."""
        shown = min(len(nodes), 2 * lines * columns)
        grid = []
        for first in range(0, shown, 2 * columns):
            line = []
            for column in range(first, first + columns):
                pair = [nodes[node] if node < shown else [] for node in (column, column + columns)]
                above, below = ([*gpus, *[None] * (size - len(gpus))] for gpus in pair)
                line += [*map(self._half_blocks, above, below), Segment(" ")]
            grid.append(line)
        if hidden := nodes[shown:]:
            used = sum(job is not None for gpus in hidden for job in gpus)
            text = f"and {len(hidden)} nodes more: {used} of {sum(map(len, hidden))} {OVER_TIME['gpus'].title}"
            grid.append([Segment(text, DIM)])
        return grid

    def _half_blocks(self, above: JobId | None, below: JobId | None) -> Segment:
        """Return one character for two GPUs."""
        if above is None and below is None:
            return Segment(FREE, DIM)
        if above is None or below is None:
            return Segment(LOWER_HALF if above is None else UPPER_HALF, self._style(above or below))
        return Segment(UPPER_HALF, self._style(above) + Style(bgcolor=self._style(below).color))

    def _by_node(self, shown: Shown) -> list[list[JobId | None]]:
        """Return the job on each GPU of the nodes that are up, in order of submission, free GPUs last.

        A job that shares GPUs has GPUs with numbers. A shared GPU shows the job that was submitted first.
        """
        sizes = self._cluster.gpus_per_node[: max(self._nodes_up(shown), 1)]
        whole: list[list[JobId]] = [[] for _ in sizes]
        self._on.clear()
        for job in sorted(shown.allocation, key=self._order.__getitem__):
            for gpu in shown.shares.get(job, ((), 1.0))[0]:
                self._on.setdefault(gpu, []).append(job)
            for node, gpus in shown.allocation[job] if job not in shown.shares else ():
                whole[node] += [job] * gpus
        unnumbered = list(map(iter, whole))
        return [
            [self._on[node, i][0] if (node, i) in self._on else next(unnumbered[node], None) for i in range(gpus)]
            for node, gpus in enumerate(sizes)
        ]

    def _jobs(self, shown: Shown, width: int, lines: int) -> list[list[Segment]]:
        """Return the running jobs with their colours and GPUs, the largest first, in at most `lines` lines."""
        counts = {job: sum(gpus for _, gpus in placement) for job, placement in shown.allocation.items() if placement}
        largest = sorted(counts, key=lambda job: (-counts[job], self._order[job]))
        columns = max(width // JOB_WIDTH, 1)
        grid = []
        for row in islice(_rows(len(largest), columns), max(lines, 0)):
            line = []
            for job in (largest[index] for index in row):
                speed = shown.shares.get(job, ((), 1.0))[1]
                name = f" {counts[job]:>3} {job}{'' if speed == 1 else f' {percent(speed)}'}"[: JOB_WIDTH - 3]
                line += [Segment(USED * 2, self._style(job)), Segment(f"{name:<{JOB_WIDTH - 2}}")]
            grid.append(line)
        return grid

    def _queue(self, shown: Shown, width: int) -> list[Segment]:
        """Return the line with the number and the names of the waiting jobs."""
        waiting = shown.waiting
        names = ", ".join(waiting[: max(width // 4, 1)])
        return [Segment(f"{OVER_TIME['queue'].title} {len(waiting)}{': ' if waiting else ''}", BOLD), Segment(names)]

    def _style(self, job: JobId | None) -> Style:
        """Return the colour of a job. All runs of a workload use this colour for the job."""
        if (style := self._styles.get(job)) is None:
            colour = job_colour(self._applications.get(job or ""), self._order[job or ""])
            style = self._styles[job] = Style(color=Color.parse(colour))
        return style


def _rows(count: int, columns: int) -> Iterator[range]:
    """Yield the indices of each row of a grid of `count` items."""
    for first in range(0, count, columns):
        yield range(first, min(first + columns, count))


PAUSE, QUIT = (" ", "p"), ("q", "Q")  # keys
RUNNING, PAUSED = "space: pause, q: quit", "paused; space: go on, q: quit"  # explanations of the keys

FRAME_TIME = 0.1  # least time between two frames [s]
MOST_DRAWING = 0.04  # largest share of the wall-clock time in which frames are drawn [1]


@contextmanager
def live_view(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Yield a watcher that draws the cluster on standard error.

    If standard error is not a terminal, print a message, and yield a watcher without a picture.
    """
    screen = Console(stderr=True)
    if not screen.is_terminal:
        message = "--live shows nothing, because standard error is no terminal; run the command in a terminal"
        print(f"polluxsim: {message}", file=sys.stderr)
        with progress(workload, cluster) as quiet:
            yield quiet
        return
    picture = Picture(workload, cluster)
    live_picture = Live(
        picture, console=screen, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    with alternate_screen(), pressed_keys() as key, live_picture as live:
        watch = Watch(picture, live, key)
        yield watch
        watch.draw_last()
    # The last frame stays on the normal screen of the terminal.
    screen.print(picture, height=screen.height - 1)
    screen.print()


class Watch:
    """Watcher that draws the cluster after a round, if a frame is due, and reacts to keys."""

    def __init__(self, picture: Picture, live: Live, key: KeyReader) -> None:
        self._picture, self._live, self._key, self._pace = picture, live, key, Pace()
        self._last: Simulation | None = None
        picture.keys = RUNNING if key is not no_key else ""
        live.refresh()

    def __call__(self, run: Simulation) -> None:
        """Draw a round if a frame is due, and react to keys."""
        self._last = run
        with self._pace.frame() as is_due:
            if is_due:
                self._picture.show(run)
                self._live.refresh()
        if is_due and (key := self._key(False)):
            self._obey(key)

    def draw_last(self) -> None:
        """Show the end of the run."""
        self._picture.keys = ""
        if self._last is not None:
            self._picture.show(self._last)

    def _obey(self, key: str) -> None:
        """Pause until the next key, or end the run like Ctrl-C."""
        began = perf_counter()
        if key in PAUSE:
            self._picture.keys = PAUSED
            self._live.refresh()
            key = self._key(True)
            self._picture.keys = RUNNING
            self._picture.paused(perf_counter() - began)
        if key in QUIT:
            os.kill(os.getpid(), signal.SIGINT)


def no_key(wait: bool) -> str:
    """Return no key, because there is no keyboard."""
    return ""


def _has_keyboard() -> bool:
    """Return whether standard input is the controlling terminal of this process, which runs in the foreground."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal, but not the controlling terminal of this process
        return False


@contextmanager
def pressed_keys() -> Iterator[KeyReader]:
    """Yield a function that reads keys from standard input if it is the terminal of this process."""
    if not (in_main_thread() and _has_keyboard()):
        yield no_key
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read(wait: bool) -> str:
        has_input = select.select([file], [], [], None if wait else 0)[0]
        return os.read(file, 64).decode("utf-8", "replace")[-1:] if has_input else ""

    with ending_with(lambda: termios.tcsetattr(file, termios.TCSADRAIN, before)):
        tty.setcbreak(file)
        yield read


class Pace:
    """Clock of the frames: ten frames a second, or fewer if frames take long."""

    def __init__(self) -> None:
        self._next = 0.0

    @contextmanager
    def frame(self) -> Iterator[bool]:
        """Yield whether a frame is due. The `with` block draws the frame; its duration sets the pace."""
        started = perf_counter()
        yield started >= self._next
        if started >= self._next:
            ended = perf_counter()
            self._next = ended + max(FRAME_TIME, (ended - started) / MOST_DRAWING)
