"""Show the cluster on the terminal while it is simulated: `polluxsim run --live`."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from math import ceil
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from polluxsim.cli.keyboard import KeyReader, no_key, pressed_keys
from polluxsim.common.durations import clock, length
from polluxsim.common.phrases import percent
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation, Gpu, Gpus, JobId
from polluxsim.look.colours import job_colour
from polluxsim.metrics.summary import shares
from polluxsim.records.results import RoundRecord
from polluxsim.run.interrupt import alternate_screen
from polluxsim.run.progress_line import num_expected, progress
from polluxsim.statistics.metric_lines import METRICS, OVER_TIME
from polluxsim.statistics.series import MOST_EFFICIENCY, Steps

if TYPE_CHECKING:
    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.workloads.workload import Workload

CELLS = ((6, True), (4, True), (2, True), (1, True), (1, False))
"""Characters for a GPU, and whether nodes show their numbers, from the largest form to the smallest."""

JOB_WIDTH = 28  # characters for a job in the list of running jobs
LEAST_FOR_LINES = 60  # least width of the terminal for sparklines [characters]

FREE = "·"  # a free GPU
DOWN = "×"  # a GPU of a node that is down
USED = "█"  # a GPU of a job
# Two jobs in one character: the second has the background colour.
UPPER_HALF = "▀"
LOWER_HALF = "▄"
LEFT_HALF = "▌"
LEVELS = " ▁▂▃▄▅▆▇█"  # characters of a sparkline, from 0 to the largest value
DIM = Style(dim=True)  # secondary text
BOLD = Style(bold=True)  # important text


class FrameState(NamedTuple):
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
        self._state: FrameState | None = None
        self._on: dict[Gpu, list[JobId]] = {}  # jobs on the numbered GPUs

    def show(self, run: Simulation) -> None:
        """Show the last round of a run in the next frame. Do nothing before the first round.

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
        self._state = FrameState(
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
        width = options.max_width
        height = options.height or console.height
        if self._state is None:
            yield Segment("starting; the first run ever compiles its kernels")
            return
        # A blank line follows each part. Each part leaves lines for the parts after it. The head has at most a third of
        # the height, because a narrow terminal would fill with its numbers.
        lines = list(islice(self._head(self._state, width), max(height // 3, 1)))
        lines.append([])
        lines += self._grid(self._state, width, height - len(lines) - 5)
        lines.append([])
        lines += self._jobs(self._state, width, height - len(lines) - 2)
        lines.append([])
        lines.append(self._queue(self._state, width))
        for index, line in enumerate(lines[:height]):
            if index:
                yield Segment.line()
            yield from Segment.adjust_line_length(line, width, pad=False)

    def _head(self, state: FrameState, width: int) -> Iterator[list[Segment]]:
        """Yield lines of numbers, the shares of GPU time, and the sparklines."""
        gap = "   "
        line = list[Segment]()
        free_width = width
        for index, fact in enumerate(self._facts(state)):
            if line and len(fact) + len(gap) > free_width:
                yield line
                line = []
                free_width = width
            line.append(Segment(gap if line else ""))
            line.append(Segment(fact, BOLD if index == 0 else None))
            free_width -= len(fact) + len(gap)
        yield line
        if state.gpu_time:
            shares = ", ".join(f"{name} {percent(share)}" for name, share in state.gpu_time.items())
            yield [Segment(f"GPU time: {shares}")]
        if width >= LEAST_FOR_LINES and self._history.times[-1] > self._history.times[0]:
            yield list(self._sparklines(width // 3 - 15))

    def _facts(self, state: FrameState) -> Iterator[str]:
        """Yield the numbers of the head as texts."""
        record = state.record
        spent = perf_counter() - self._started
        simulated = record.time - state.start
        yield f"{clock(simulated)} simulated"
        yield f"{percent(state.num_ended / max(state.num_jobs, 1))} done"
        yield f"{state.num_ended}/{state.num_jobs} jobs ended   {record.active_jobs} active"
        num_gpus = sum(self._cluster.gpus_per_node[: self._nodes_up(state)])
        yield f"{record.gpus_in_use}/{num_gpus} {OVER_TIME['gpus'].title}"
        if self._cluster.least_nodes is not None:
            yield f"{record.nodes} nodes, ${record.hourly_cost:,.2f} an hour"
        num_jobs_on = Counter[Gpu]()
        for gpus, _ in state.shares.values():
            num_jobs_on.update(gpus)
        num_shared = sum(count > 1 for count in num_jobs_on.values())
        if num_shared:
            yield f"{num_shared} of them shared"
        if state.down:
            yield f"{OVER_TIME['nodes_down'].title}: {len(state.down)}"
        # Without jobs that choose their batch size, it is always 1 and says nothing.
        if 0 < record.efficiency < MOST_EFFICIENCY:
            yield f"{OVER_TIME['efficiency'].title} {percent(record.efficiency)}"
        mean_jct = "–" if state.mean_jct is None else length(state.mean_jct)
        yield f"{METRICS['avg_jct'].title} so far {mean_jct}"
        # The first frame may come before the clock has moved.
        yield f"{length(simulated / max(spent, 1e-3))} a second"
        if 0 < state.num_ended < state.num_jobs:
            # As if the jobs that are left took as long as the jobs that have ended.
            seconds_left = spent * (state.num_jobs / state.num_ended - 1)
            yield f"about {length(seconds_left)} left"
        if self.keys:
            yield self.keys

    def _sparklines(self, width: int) -> Iterator[Segment]:
        """Yield GPUs in use, queue and efficiency over the time so far, averaged over `width` bins."""
        times = np.array(self._history.times)
        edges = np.linspace(times[0], times[-1], width + 1)
        largest = {"gpus": self._cluster.num_gpus, "queue": max(self._history.queue), "efficiency": 1.0}
        highest = len(LEVELS) - 1
        for name, top in largest.items():
            values = np.array(getattr(self._history, name), float)
            means = Steps(times, values).means(edges)
            # An empty queue has 0 as its largest value.
            levels = np.clip(means / max(top, 1e-9) * highest, 0, highest).round().astype(int)
            yield Segment(f"{OVER_TIME[name].title:>11} ", DIM)
            yield Segment("".join(LEVELS[level] for level in levels) + "  ")

    def _nodes_up(self, state: FrameState) -> int:
        if self._cluster.least_nodes is None:  # the number of nodes is fixed
            return self._cluster.num_nodes
        return state.record.nodes

    def _grid(self, state: FrameState, width: int, height: int) -> list[list[Segment]]:
        """Return the nodes with their GPUs in the largest form that fits. The last line counts the rest."""
        nodes = self._by_node(state)
        size = max(map(len, nodes))
        for gpu_width, has_labels in CELLS:
            label_width = len(str(len(nodes) - 1)) + 1 if has_labels else 0
            columns = width // (size * gpu_width + label_width + 2)
            # Wide GPUs may use half of the height, so that the list of jobs has room.
            most_rows = height // 2 if gpu_width > 1 else height
            if columns and ceil(len(nodes) / columns) <= most_rows:
                grid = []
                for row in _rows(len(nodes), columns):
                    parts = (self._node(node, nodes, gpu_width, size, label_width) for node in row)
                    grid.append(list(chain.from_iterable(parts)))
                return grid
        return self._folded(nodes, max(width // (size + 1), 1), max(height - 1, 1), size)

    def _node(
        self, node: int, nodes: Sequence[list[JobId | None]], gpu_width: int, size: int, label_width: int
    ) -> Iterator[Segment]:
        """Yield a node, with spaces up to the `size` of the largest node [GPUs]. Widths are in characters."""
        if label_width:
            yield Segment(f"{node:>{label_width - 1}} ", DIM)
        free = DOWN if self._state is not None and node in self._state.down else FREE
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
            for index in range(gpu_width):
                job = jobs[index * len(jobs) // gpu_width]
                yield Segment(USED, self._style(job))

    def _folded(self, nodes: list[list[JobId | None]], columns: int, lines: int, size: int) -> list[list[Segment]]:
        """Return lines of half blocks, each with two rows of nodes. `size` is that of the largest node [GPUs]."""
        num_drawn = min(len(nodes), 2 * lines * columns)
        grid = []
        for first in range(0, num_drawn, 2 * columns):
            line: list[Segment] = []
            for node in range(first, first + columns):
                # All nodes are as wide as the largest one. The last two rows may lack nodes.
                rows: list[list[JobId | None]] = []
                for number in (node, node + columns):
                    gpus = nodes[number] if number < num_drawn else []
                    rows.append(gpus + [None] * (size - len(gpus)))
                line += map(self._half_blocks, *rows)
                line.append(Segment(" "))
            grid.append(line)
        # The nodes that do not fit are counted in the last line, for which the caller left room.
        hidden = nodes[num_drawn:]
        if hidden:
            hidden_gpus = list(chain.from_iterable(hidden))
            num_used = len(hidden_gpus) - hidden_gpus.count(None)
            text = f"and {len(hidden)} nodes more: {num_used} of {len(hidden_gpus)} {OVER_TIME['gpus'].title}"
            grid.append([Segment(text, DIM)])
        return grid

    def _half_blocks(self, above: JobId | None, below: JobId | None) -> Segment:
        """Return one character for two GPUs."""
        if above is None and below is None:
            return Segment(FREE, DIM)
        if above is None or below is None:
            return Segment(LOWER_HALF if above is None else UPPER_HALF, self._style(above or below))
        return Segment(UPPER_HALF, self._style(above) + Style(bgcolor=self._style(below).color))

    def _by_node(self, state: FrameState) -> list[list[JobId | None]]:
        """Return the job on each GPU of each node; None for a free GPU.

        A cluster of a fixed size has all nodes, also those that are down; an elastic one has those that are up. The
        jobs of a node are in order of submission, with free GPUs last, except that a job that shares GPUs has GPUs with
        numbers. A shared GPU has the job that was submitted first.
        """
        # At least one node, because an elastic cluster may have none yet.
        sizes = self._cluster.gpus_per_node[: max(self._nodes_up(state), 1)]
        unnumbered: list[list[JobId]] = [[] for _ in sizes]  # jobs on each node, once for each of their GPUs
        self._on.clear()
        for job in sorted(state.allocation, key=self._order.__getitem__):
            if job in state.shares:
                numbered, _ = state.shares[job]
                for gpu in numbered:
                    self._on.setdefault(gpu, []).append(job)
                continue
            for node, gpus in state.allocation[job]:
                unnumbered[node] += [job] * gpus
        nodes = []
        for node, size in enumerate(sizes):
            unnumbered_jobs = iter(unnumbered[node])
            gpus_of_node: list[JobId | None] = []
            for number in range(size):
                jobs = self._on.get((node, number))
                if jobs:
                    gpus_of_node.append(jobs[0])
                else:
                    gpus_of_node.append(next(unnumbered_jobs, None))
            nodes.append(gpus_of_node)
        return nodes

    def _jobs(self, state: FrameState, width: int, lines: int) -> list[list[Segment]]:
        """Return the running jobs with their colours and GPUs, the largest first, in at most `lines` lines."""
        counts = {}
        for job, placement in state.allocation.items():
            if placement:
                counts[job] = sum(gpus for _, gpus in placement)
        # Ties by submission, so that a job keeps its place from frame to frame.
        largest = sorted(counts, key=lambda job: (-counts[job], self._order[job]))
        columns = max(width // JOB_WIDTH, 1)
        grid = []
        for row in islice(_rows(len(largest), columns), max(lines, 0)):
            line = []
            for index in row:
                job = largest[index]
                _, speed = state.shares.get(job, ((), 1.0))
                text = f" {counts[job]:>3} {job}"
                if speed != 1:
                    text += f" {percent(speed)}"
                text = text[: JOB_WIDTH - 3]
                line.append(Segment(USED * 2, self._style(job)))
                line.append(Segment(f"{text:<{JOB_WIDTH - 2}}"))
            grid.append(line)
        return grid

    def _queue(self, state: FrameState, width: int) -> list[Segment]:
        """Return the line with the number and the names of the waiting jobs."""
        waiting = state.waiting
        names = ", ".join(waiting[: max(width // 4, 1)])  # more names than fit in the width
        head = f"{OVER_TIME['queue'].title} {len(waiting)}"
        if waiting:
            head += ": "
        return [Segment(head, BOLD), Segment(names)]

    def _style(self, job: JobId | None) -> Style:
        """Return the colour of a job. All runs of a workload use this colour for the job."""
        if job not in self._styles:
            # `_styles` has the style of free GPUs, so the job is not None here.
            name = job or ""
            colour = job_colour(self._applications.get(name), self._order[name])
            self._styles[job] = Style(color=Color.parse(colour))
        return self._styles[job]


def _rows(count: int, columns: int) -> Iterator[range]:
    """Yield the indices of each row of a grid of `count` items."""
    for first in range(0, count, columns):
        yield range(first, min(first + columns, count))


# Keys
PAUSE = (" ", "p")
QUIT = ("q", "Q")
# Explanations of the keys
RUNNING = "space: pause, q: quit"
PAUSED = "paused; space: go on, q: quit"

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
        self._picture = picture
        self._live = live
        self._key = key
        self._pace = Pace()
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
        # Many rounds may pass between two frames, and each look at the keyboard is a call of the system.
        if not is_due:
            return
        key = self._key(False)
        if key:
            self._obey(key)

    def draw_last(self) -> None:
        """Let the next frame show the end of the run, without an explanation of the keys."""
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
            os.kill(os.getpid(), signal.SIGINT)  # the handler of Ctrl-C knows what may be interrupted


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
            # A slow terminal must not slow down the run.
            self._next = ended + max(FRAME_TIME, (ended - started) / MOST_DRAWING)
