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
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation, Gpu, Gpus, JobId
from polluxsim.look.colours import job_colour
from polluxsim.look.why.phrases import percent
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

CELLS = ((6, True), (4, True), (2, True), (1, True), (1, False))
"""Characters for a GPU, and whether nodes show their numbers, from the largest form to the smallest."""

JOB_WIDTH = 28  # characters for a job in the list of running jobs
LEAST_FOR_LINES = 60  # least width of the terminal for sparklines [characters]

FREE, DOWN, USED, BOTH, LEFT = "·", "×", "█", "▀", "▌"
LEVELS = " ▁▂▃▄▅▆▇█"
DIM, BOLD = Style(dim=True), Style(bold=True)


class Shown(NamedTuple):
    """State of the run that a frame shows."""

    record: RoundRecord
    allocation: Allocation
    waiting: Sequence[JobId]
    num_ended: int
    num_jobs: int
    mean_jct: float | None
    down: Sequence[int] = ()
    gpu_time: Mapping[str, float] = {}
    shares: Mapping[JobId, tuple[Gpus, float]] = MappingProxyType({})


class History(NamedTuple):
    """Data of the sparklines at the rounds shown: times [s], GPUs in use, waiting jobs, efficiency."""

    times: list[float]
    gpus: list[float]
    queue: list[float]
    efficiency: list[float]


class Picture:
    """Picture of the cluster after a round, for a terminal of any size.

    `keys` explains the keys. The text is empty if there is no keyboard.
    """

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workload = workload
        self._order = {job.job_id: number for number, job in enumerate(workload.jobs)}
        self._applications = {job.job_id: job.application for job in workload.jobs}
        self._history = History([], [], [], [])
        self._started = perf_counter()
        self.keys = ""
        self._styles: dict[JobId | None, Style] = {None: DIM}
        self._shown: Shown | None = None
        self._on: dict[Gpu, list[JobId]] = {}

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
        self._shown = Shown(
            last,
            {} if is_over else run.allocation,
            run.waiting,
            run.num_ended,
            total,
            run.mean_jct,
            run.down,
            gpu_time,
            run.shares,
        )
        for job in (*self._shown.allocation, *self._shown.waiting):
            self._order.setdefault(job, len(self._order))
        now = (last.time, last.gpus_in_use, len(run.waiting), last.efficiency)
        for column, value in zip(self._history, now, strict=True):
            column.append(value)

    def paused(self, seconds: float) -> None:
        """Do not count a pause in the time that the run has taken [s]."""
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
        for number, line in enumerate(lines[:height]):
            if number:
                yield Segment.line()
            yield from Segment.adjust_line_length(line, width, pad=False)

    def _head(self, shown: Shown, width: int) -> Iterator[list[Segment]]:
        """Yield lines of numbers, the shares of GPU time, and the sparklines."""
        line, room = list[Segment](), width
        for number, fact in enumerate(self._facts(shown)):
            if line and len(fact) + 3 > room:
                yield line
                line, room = [], width
            line += [Segment("   " if line else ""), Segment(fact, BOLD if number == 0 else None)]
            room -= len(fact) + 3
        yield line
        if shown.gpu_time:
            shares = ", ".join(f"{name} {percent(share)}" for name, share in shown.gpu_time.items())
            yield [Segment(f"GPU time: {shares}")]
        if width >= LEAST_FOR_LINES and self._history.times[-1] > self._history.times[0]:
            yield list(self._sparklines(width // 3 - 15))

    def _facts(self, shown: Shown) -> Iterator[str]:
        record, spent = shown.record, perf_counter() - self._started
        yield f"{clock(record.time)} simulated"
        yield f"{percent(shown.num_ended / max(shown.num_jobs, 1))} done"
        yield f"{shown.num_ended}/{shown.num_jobs} jobs complete   {record.active_jobs} active"
        there = sum(self._cluster.gpus_per_node[: self._nodes_up(shown)])
        yield f"{record.gpus_in_use}/{there} {OVER_TIME['gpus'].title}"
        if self._cluster.least_nodes is not None:
            yield f"{record.nodes} nodes, ${record.hourly_cost:,.2f} an hour"
        if shared := sum(count > 1 for count in Counter(chain(*(gpus for gpus, _ in shown.shares.values()))).values()):
            yield f"{shared} of them shared"
        if shown.down:
            yield f"{OVER_TIME['nodes_down'].title}: {len(shown.down)}"
        if 0 < record.efficiency < MOST_EFFICIENCY:
            yield f"{OVER_TIME['efficiency'].title} {percent(record.efficiency)}"
        yield f"{METRICS['avg_jct'].title} so far {'–' if shown.mean_jct is None else length(shown.mean_jct)}"
        yield f"{length(record.time / max(spent, 1e-3))} a second"
        if 0 < shown.num_ended < shown.num_jobs:
            yield f"about {length(spent * (shown.num_jobs / shown.num_ended - 1))} left"
        if self.keys:
            yield self.keys

    def _sparklines(self, width: int) -> Iterator[Segment]:
        """Yield GPUs in use, queue and efficiency over the time so far, averaged over `width` bins."""
        times = np.array(self._history.times)
        edges = np.linspace(times[0], times[-1], width + 1)
        tops = {"gpus": self._cluster.num_gpus, "queue": max(self._history.queue), "efficiency": 1.0}
        for name, top in tops.items():
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
        label = len(str(len(nodes) - 1)) + 1
        for wide, labelled in CELLS:
            cell = size * wide + labelled * label + 2
            columns = width // cell
            rows = -(-len(nodes) // columns) if columns else height + 1
            if rows <= (height // 2 if wide > 1 else height):
                return [
                    [part for node in row for part in self._node(node, nodes, wide, size, label * labelled)]
                    for row in _rows(len(nodes), columns)
                ]
        return self._folded(nodes, max(width // (size + 1), 1), max(height - 1, 1), size)

    def _node(
        self, node: int, nodes: Sequence[list[JobId | None]], wide: int, size: int, label: int
    ) -> Iterator[Segment]:
        if label:
            yield Segment(f"{node:>{label - 1}} ", DIM)
        free = DOWN if self._shown is not None and node in self._shown.down else FREE
        for number, job in enumerate(nodes[node]):
            if len(there := self._on.get((node, number), ())) > 1:
                yield from self._split(there, wide)
            else:
                yield Segment((free if job is None else USED) * wide, self._style(job))
        yield Segment(" " * (wide * (size - len(nodes[node])) + 2))

    def _split(self, jobs: Sequence[JobId], wide: int) -> Iterator[Segment]:
        """Yield a shared GPU with a part for each job; for the first two jobs if it is one character wide."""
        if wide == 1:
            yield Segment(LEFT, self._style(jobs[0]) + Style(bgcolor=self._style(jobs[1]).color))
        else:
            yield from (Segment(USED, self._style(jobs[place * len(jobs) // wide])) for place in range(wide))

    def _folded(self, nodes: list[list[JobId | None]], columns: int, lines: int, size: int) -> list[list[Segment]]:
        """Return lines of half blocks, each with two rows of nodes."""
        shown = min(len(nodes), 2 * lines * columns)
        grid = []
        for first in range(0, shown, 2 * columns):
            line = []
            for column in range(columns):
                pair = [nodes[n] if n < shown else [] for n in (first + column, first + columns + column)]
                line += [self._half_blocks(*(gpus[i] if i < len(gpus) else None for gpus in pair)) for i in range(size)]
                line.append(Segment(" "))
            grid.append(line)
        if hidden := nodes[shown:]:
            used = sum(job is not None for gpus in hidden for job in gpus)
            text = f"and {len(hidden)} nodes more: {used} of {sum(map(len, hidden))} {OVER_TIME['gpus'].title}"
            grid.append([Segment(text, DIM)])
        return grid

    def _half_blocks(self, above: JobId | None, below: JobId | None) -> Segment:
        if above is None and below is None:
            return Segment(FREE, DIM)
        if above is None or below is None:
            return Segment("▄" if above is None else BOTH, self._style(above or below))
        return Segment(BOTH, self._style(above) + Style(bgcolor=self._style(below).color))

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
        left = list(map(iter, whole))
        return [
            [self._on[node, i][0] if (node, i) in self._on else next(left[node], None) for i in range(gpus)]
            for node, gpus in enumerate(sizes)
        ]

    def _jobs(self, shown: Shown, width: int, lines: int) -> list[list[Segment]]:
        """Return the running jobs with their colours and GPUs, the largest first, in at most `lines` lines."""
        counts = {job: sum(gpus for _, gpus in placement) for job, placement in shown.allocation.items() if placement}
        largest = sorted(counts, key=lambda job: (-counts[job], self._order[job]))
        columns = max(width // JOB_WIDTH, 1)
        found = []
        for row in islice(_rows(len(largest), columns), max(lines, 0)):
            line = []
            for job in (largest[number] for number in row):
                speed = shown.shares.get(job, ((), 1.0))[1]
                name = f" {counts[job]:>3} {job}{'' if speed == 1 else f' {percent(speed)}'}"[: JOB_WIDTH - 3]
                line += [Segment(USED * 2, self._style(job)), Segment(f"{name:<{JOB_WIDTH - 2}}")]
            found.append(line)
        return found

    def _queue(self, shown: Shown, width: int) -> list[Segment]:
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
    for first in range(0, count, columns):
        yield range(first, min(first + columns, count))


PAUSE, QUIT = (" ", "p"), ("q", "Q")
RUNNING, PAUSED = "space: pause, q: quit", "paused; space: go on, q: quit"

FRAME_TIME = 0.1  # least time between two frames [s]
SHARE = 0.04  # largest share of the time that drawing frames may take


@contextmanager
def live_view(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Yield a watcher that draws the cluster on standard error.

    If standard error is not a terminal, print this message instead.
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
    """Watcher that draws the cluster after a round, if a frame is due, and reacts to keys.

    `key` returns the last pressed key, or "". Its argument says whether it waits for a key.
    """

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


@contextmanager
def pressed_keys() -> Iterator[KeyReader]:
    """Yield a function that reads keys from standard input if it is the terminal of this process."""
    if not (in_main_thread() and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()):
        yield no_key
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read(wait: bool) -> str:
        is_there = select.select([file], [], [], None if wait else 0)[0]
        return os.read(file, 64).decode("utf-8", "replace")[-1:] if is_there else ""

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
            self._next = ended + max(FRAME_TIME, (ended - started) / SHARE)
