"""Tables of the metrics of runs side by side, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from polluxsim.common.durations import HOUR
from polluxsim.look.console import UNBOUNDED
from polluxsim.look.tables import NOTE, boxed, html
from polluxsim.metrics.declared import UserValues
from polluxsim.metrics.outcomes import NEVER_SUBMITTED, counts_in_words, number_of
from polluxsim.metrics.summary import Summary
from polluxsim.records.results import RoundRecord
from polluxsim.statistics.metric_lines import Line, baseline_note, difference, metric_lines

MOST_NAMES = 3  # largest number of jobs that a cell names
LEAST_BESIDE_NAMES = 20  # least room for values and borders beside the names of the metrics [characters]
MOST_COLUMNS = 4  # most runs side by side; more runs are shown by their settings

MOST_POINTS = 400  # largest number of points in the drawing of active jobs
WIDTH, HEIGHT = 600, 60  # size of this drawing [px]

COLOURS = {"better": "green", "worse": "red"}  # of differences


class SideBySide:
    """A table of runs side by side, in blocks that fit the width of the screen.

    `gpus` contains the number of GPUs of each run's cluster, or None if it is unknown. `bases` contains, for each run,
    the index of the run that it is compared with, in per cent; by default runs are not compared. `user_values` contains
    the values of the user's metrics.
    """

    def __init__(
        self,
        summaries: Mapping[str, Summary],
        gpus: Sequence[int | None] = (),
        bases: Sequence[int] = (),
        user_values: Sequence[UserValues] = (),
    ) -> None:
        cells = compared_cells(list(summaries.values()), gpus, bases, user_values)
        self._labels = list(cells)
        self._columns = [(name, [texts[run] for texts in cells.values()]) for run, name in enumerate(summaries)]
        self._notes = list(_notes(summaries, bases))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the blocks."""
        block: list[tuple[str, list[Text]]] = []
        unbounded = options.update(width=UNBOUNDED)
        for column in self._columns:
            width = console.measure(self._block([*block, column], UNBOUNDED), options=unbounded).maximum
            if block and (len(block) == MOST_COLUMNS or width > options.max_width):
                yield self._block(block, options.max_width)
                block = []
            block.append(column)
        yield self._block(block, options.max_width)
        for note in self._notes:
            yield Text(note)

    def html(self) -> str:
        """Return the table as HTML for a notebook. Many runs have a row each."""
        lines = [["", *self._labels], *([name, *(cell.plain for cell in cells)] for name, cells in self._columns)]
        if len(self._columns) <= MOST_COLUMNS:
            lines = [list(line) for line in zip(*lines, strict=True)]
        return html(lines, self._notes, "left; white-space: pre")

    def _block(self, columns: Sequence[tuple[str, list[Text]]], width: int) -> Table:
        """Return a table of some runs. The names of the metrics are wrapped if a screen of `width` is very narrow."""
        head = ["", *(name for name, _ in columns)]
        table = boxed([head, *zip(self._labels, *(cells for _, cells in columns), strict=True)])
        table.columns[0].no_wrap = width >= max(map(len, self._labels)) + LEAST_BESIDE_NAMES
        return table


def _notes(summaries: Mapping[str, Summary], bases: Sequence[int]) -> Iterator[str]:
    """Yield notes on the baselines, on the jobs that the means leave out, and on runs that leave out other jobs."""
    if note := baseline_note(list(summaries), bases):
        yield note
    runs = list(summaries.values())
    for name, run in summaries.items():
        if run.left_out:
            where = f" of {name}" if len(runs) > 1 else ""
            number = f"{len(run.left_out):,} of {number_of(run.num_jobs, 'job')}"
            yield f"Means{where} leave out {number}: {_why_left_out(run)}."
    if any(runs[base].left_out != run.left_out for run, base in zip(runs, bases, strict=False)):
        yield "Times over different jobs are not compared; 'polluxsim compare' compares the jobs that complete in both."


def _why_left_out(run: Summary) -> str:
    """Return the numbers of jobs that the means of a run leave out, by reason."""
    counts = {NEVER_SUBMITTED: len(run.not_submitted)}
    for reason, names in (("cancelled", run.cancelled), ("rejected", run.rejected), ("failed", run.failed)):
        counts[reason] = len(set(names) - set(run.not_submitted))
    return counts_in_words(counts)


def compared_cells(
    runs: Sequence[Summary],
    gpus: Sequence[int | None] = (),
    bases: Sequence[int] = (),
    user_values: Sequence[UserValues] = (),
) -> dict[str, list[Text]]:
    """Return the cells of each metric for all runs, by the label of the metric. Parameters are as for `SideBySide`.

    A cell has the value, the names of the jobs that it counts, and the difference from the run of `bases`.
    """
    found = {}
    for line in metric_lines(runs, gpus, user_values):
        cells = []
        for index, (run, text) in enumerate(zip(runs, line.texts, strict=True)):
            change, verdict = difference(line, index, bases[index]) if bases else ("", "")
            coloured = (f" {change:>8}", COLOURS.get(verdict, "")) if change else ""
            cells.append(Text.assemble(text, _job_names(run, line), coloured))
        found[f"{'  ' * line.metric.is_part}{line.title}"] = cells
    return found


def _job_names(run: Summary, line: Line) -> str:
    """Return the names of the jobs that a metric counts, like jobs that were cut off; "" for other metrics."""
    names = getattr(run, line.field, None)
    if not isinstance(names, tuple) or not names:
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f": {', '.join(names[:MOST_NAMES])}{more}"


def crowd_html(rounds: Sequence[RoundRecord]) -> str:
    """Return a drawing of the jobs submitted and not complete over time, from the rounds of a run in order.

    The text is empty for fewer than two rounds.
    """
    if len(rounds) < 2:
        return ""
    thinned = rounds[:: -(-len(rounds) // MOST_POINTS)]
    start, end = rounds[0].time, rounds[-1].time
    most = max(record.active_jobs for record in rounds)
    points = "".join(
        f"H{(record.time - start) / (end - start) * WIDTH:.1f}V{HEIGHT * (1 - record.active_jobs / most):.1f}"
        for record in thinned
    )
    path = f'<path d="M0,{HEIGHT}{points}H{WIDTH}V{HEIGHT}Z" fill="#7986cb"/>'
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    style = f"width: 100%; max-width: {WIDTH}px; height: {HEIGHT}px; display: block; margin-top: 6px"
    what = f"active jobs, up to {most}, from {start / HOUR:.1f} to {end / HOUR:.1f} h"
    return f'<svg {view} style="{style}" role="img" aria-label="{what}">{path}</svg><div style="{NOTE}">{what}</div>'
