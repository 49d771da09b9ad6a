"""`polluxsim run --live`: the cluster on the terminal while it is simulated."""

from __future__ import annotations

import sys
from colorsys import hsv_to_rgb
from contextlib import contextmanager
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from rich.color import Color
from rich.console import Console
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from polluxsim.durations import clock
from polluxsim.run.interrupt import on_a_screen_of_its_own
from polluxsim.run.progress_line import num_expected, progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import ConsoleOptions, RenderResult

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.records import RoundRecord
    from polluxsim.types import Allocation, Cluster, JobId
    from polluxsim.workloads.workload import Workload

LONGEST_RATE = 0.1
"""Least time between two frames [s]."""

SHARE = 0.04
"""Most of the time that frames may take."""

GOLDEN_RATIO = 0.618033988749895
"""Hues of consecutive jobs are this far apart, so that those of one time are unlike each other."""

SQRT_2 = 1.41421356

CELLS = ((6, True), (4, True), (2, True), (1, True), (1, False))
"""Characters for a GPU, and whether nodes have their numbers, from the largest that may be to the smallest."""

JOB_WIDTH = 28
"""Characters for a job in the list of those that run."""

FREE, DOWN, USED, BOTH = "·", "×", "█", "▀"
DIM, BOLD = Style(dim=True), Style(bold=True)


@contextmanager
def live_view(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Give a watcher that draws the cluster on standard error; where that is no terminal, say so and stay quiet."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        print("polluxsim: --live needs a terminal on standard error, there is none: running quietly", file=sys.stderr)
        with progress(workload, cluster) as quiet:
            yield quiet
        return
    picture = Picture(workload, cluster)
    with (
        on_a_screen_of_its_own(),
        Live(
            picture, console=screen, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live,
    ):
        live.refresh()
        pace = Pace()

        def watch(run: Simulation) -> None:
            with pace.frame() as is_due:
                if is_due:
                    picture.show(run)
                    live.refresh()

        yield watch


class Pace:
    """Says when the next frame is due: ten times a second, or less often where frames take long."""

    def __init__(self) -> None:
        self._next = 0.0

    @contextmanager
    def frame(self) -> Iterator[bool]:
        """Give whether a frame is due, and take note of what it takes."""
        started = perf_counter()
        yield started >= self._next
        if started >= self._next:
            ended = perf_counter()
            self._next = ended + max(LONGEST_RATE, (ended - started) / SHARE)


class Shown(NamedTuple):
    """What a frame is of."""

    record: RoundRecord
    allocation: Allocation
    waiting: Sequence[JobId]
    num_ended: int
    num_jobs: int
    mean_jct: float | None
    down: Sequence[int] = ()


class Picture:
    """The cluster after the last round shown, for a terminal of any size.

    Parameters
    ----------
    workload, cluster
        What is simulated.
    """

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workload = workload
        self._order = {job.job_id: number for number, job in enumerate(workload.jobs)}
        self._styles: dict[JobId | None, Style] = {None: DIM}
        self._shown: Shown | None = None

    def show(self, run: Simulation) -> None:
        """Let the next frame show the last round of a run; jobs that were not named get their colours as they come."""
        if run.last_round is None:
            return
        total = num_expected(self._workload, run)
        self._shown = Shown(run.last_round, run.allocation, run.waiting, run.num_ended, total, run.mean_jct, run.down)
        for job in (*self._shown.allocation, *self._shown.waiting):
            self._order.setdefault(job, len(self._order))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of a frame, no more than the terminal has."""
        width, height = options.max_width, options.height or console.height
        if self._shown is None:
            yield Segment("starting; the first run ever compiles its kernels")
            return
        lines = [*self._head(self._shown), [], *self._grid(self._shown, width, height - 7), []]
        lines += [*self._jobs(self._shown, width, height - len(lines) - 2), []]
        lines.append(self._queue(self._shown, width))
        for number, line in enumerate(lines[:height]):
            if number:
                yield Segment.line()
            yield from Segment.adjust_line_length(line, width, pad=False)

    def _head(self, shown: Shown) -> Iterator[list[Segment]]:
        record = shown.record
        yield [
            Segment(f"{clock(record.time)} simulated", BOLD),
            Segment(f"   {shown.num_ended}/{shown.num_jobs} jobs complete   {record.active_jobs} active"),
        ]
        mean = "–" if shown.mean_jct is None else clock(shown.mean_jct)
        down = f"   nodes down: {len(shown.down)}" if shown.down else ""
        in_use = f"{record.gpus_in_use}/{self._cluster.num_gpus} GPUs in use{down}"
        goodput = f"goodput {record.goodput:,.0f} examples/s   efficiency {record.efficiency:.0%}"
        yield [Segment(f"{in_use}   mean JCT so far {mean}   {goodput}")]

    def _grid(self, shown: Shown, width: int, height: int) -> list[list[Segment]]:
        """Return the nodes with their GPUs, as large as they fit; what does not fit is counted in the last line."""
        nodes = self._by_node(shown.allocation)
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
        for job in nodes[node]:
            yield Segment((free if job is None else USED) * wide, self._style(job))
        yield Segment(" " * (wide * (size - len(nodes[node])) + 2))

    def _folded(self, nodes: list[list[JobId | None]], columns: int, lines: int, size: int) -> list[list[Segment]]:
        """Return two nodes one above the other in each line, by half blocks."""
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
            text = f"and {len(hidden)} nodes more: {used} of {sum(map(len, hidden))} GPUs in use"
            grid.append([Segment(text, DIM)])
        return grid

    def _half_blocks(self, above: JobId | None, below: JobId | None) -> Segment:
        if above is None and below is None:
            return Segment(FREE, DIM)
        if above is None or below is None:
            return Segment("▄" if above is None else BOTH, self._style(above or below))
        return Segment(BOTH, self._style(above) + Style(bgcolor=self._style(below).color))

    def _by_node(self, allocation: Allocation) -> list[list[JobId | None]]:
        """Return who holds each GPU, by node; within one, in order of submission, free ones last."""
        nodes: list[list[JobId | None]] = [[] for _ in self._cluster.gpus_per_node]
        for job in sorted(allocation, key=self._order.__getitem__):
            for node, gpus in allocation[job]:
                nodes[node] += [job] * gpus
        for held, gpus in zip(nodes, self._cluster.gpus_per_node, strict=True):
            held.extend([None] * (gpus - len(held)))
        return nodes

    def _jobs(self, shown: Shown, width: int, lines: int) -> list[list[Segment]]:
        """Return the running jobs with their colours and GPUs, the largest first, as many as there is room for."""
        counts = {job: sum(gpus for _, gpus in placement) for job, placement in shown.allocation.items() if placement}
        largest = sorted(counts, key=lambda job: (-counts[job], self._order[job]))
        columns = max(width // JOB_WIDTH, 1)
        found = []
        for row in islice(_rows(len(largest), columns), max(lines, 0)):
            line = []
            for job in (largest[number] for number in row):
                name = f" {counts[job]:>3} {job}"[: JOB_WIDTH - 3]
                line += [Segment(USED * 2, self._style(job)), Segment(f"{name:<{JOB_WIDTH - 2}}")]
            found.append(line)
        return found

    def _queue(self, shown: Shown, width: int) -> list[Segment]:
        waiting = shown.waiting
        names = ", ".join(waiting[: max(width // 4, 1)])
        return [Segment(f"queue {len(waiting)}{': ' if waiting else ''}", BOLD), Segment(names)]

    def _style(self, job: JobId | None) -> Style:
        """Return a job's colour, the same throughout the run and in every run of the workload."""
        if (style := self._styles.get(job)) is None:
            number = self._order[job or ""]
            # Brightness differs too, for those that come round to nearly the same hue.
            colour = hsv_to_rgb(number * GOLDEN_RATIO % 1, 0.65, 0.95 - 0.3 * (number * SQRT_2 % 1))
            red, green, blue = (255 * part for part in colour)
            style = self._styles[job] = Style(color=Color.from_rgb(red, green, blue))
        return style


def _rows(count: int, columns: int) -> Iterator[range]:
    for first in range(0, count, columns):
        yield range(first, min(first + columns, count))
