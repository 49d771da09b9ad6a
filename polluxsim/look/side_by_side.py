"""Tables of the metrics of runs side by side, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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
from polluxsim.statistics.metric_lines import FAILURE, MetricLine, baseline_note, difference, metric_lines

MOST_NAMES = 3  # largest number of jobs that a cell names
LEAST_BESIDE_NAMES = 20  # least room for values and borders beside the names of the metrics [characters]
MOST_COLUMNS = 4  # most runs side by side; more runs are shown by their settings

MOST_POINTS = 400  # largest number of points in the drawing of active jobs
# Size of this drawing [px]
WIDTH = 600
HEIGHT = 60

COLOURS = {"better": "green", "worse": "red"}  # of differences


class SideBySide:
    """A table of runs side by side, in blocks that fit the width of the screen.

    `gpus` contains the number of GPUs of each run's cluster, or None if it is unknown. `bases` contains, for each run,
    the index of the run that it is compared with, in per cent; by default runs are not compared. `user_values` contains
    the values of the user's metrics, and `is_shown` tells which shipped metrics are shown, by name. `losses` is the
    word for what took GPUs.
    """

    def __init__(
        self,
        summaries: Mapping[str, Summary],
        gpus: Sequence[int | None] = (),
        bases: Sequence[int] = (),
        user_values: Sequence[UserValues] = (),
        is_shown: Callable[[str], bool] = lambda field: True,
        losses: str = FAILURE,
    ) -> None:
        cells = compared_cells(list(summaries.values()), gpus, bases, user_values, is_shown, losses)
        self._labels = list(cells)
        self._columns = []
        for run, name in enumerate(summaries):
            self._columns.append((name, [texts[run] for texts in cells.values()]))
        self._notes = list(_notes(summaries, bases))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the blocks."""
        block: list[tuple[str, list[Text]]] = []
        unbounded = options.update(width=UNBOUNDED)  # otherwise the measured width is at most that of the screen
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
        rows = [["", *self._labels]]
        for name, cells in self._columns:
            texts = [cell.plain for cell in cells]
            rows.append([name, *texts])
        if len(self._columns) <= MOST_COLUMNS:
            rows = [list(column) for column in zip(*rows, strict=True)]
        return html(rows, self._notes, "left; white-space: pre")

    def _block(self, columns: Sequence[tuple[str, list[Text]]], width: int) -> Table:
        """Return a table of some runs. The names of the metrics are wrapped if a screen of `width` is very narrow."""
        head = [""]
        cells_of_runs = []
        for name, cells in columns:
            head.append(name)
            cells_of_runs.append(cells)
        rows = zip(self._labels, *cells_of_runs, strict=True)
        table = boxed([head, *rows])
        longest = max(map(len, self._labels))
        table.columns[0].no_wrap = width >= longest + LEAST_BESIDE_NAMES
        return table


def _notes(summaries: Mapping[str, Summary], bases: Sequence[int]) -> Iterator[str]:
    """Yield notes on the baselines, on the jobs that the means leave out, and on runs that leave out other jobs."""
    note = baseline_note(list(summaries), bases)
    if note:
        yield note
    runs = list(summaries.values())
    for name, run in summaries.items():
        if run.left_out:
            where = f" of {name}" if len(runs) > 1 else ""
            number = f"{len(run.left_out):,} of {number_of(run.num_jobs, 'job')}"
            yield f"Means{where} leave out {number}: {_why_left_out(run)}."
    # `bases` is empty if the runs are not compared.
    for run, base in zip(runs, bases, strict=False):
        if runs[base].left_out != run.left_out:
            yield (
                "Times over different jobs are not compared; "
                "'polluxsim compare' compares the jobs that complete in both."
            )
            return


def _why_left_out(run: Summary) -> str:
    """Return the numbers of jobs that the means of a run leave out, by reason."""
    names_by_reason = {"cancelled": run.cancelled, "rejected": run.rejected, "failed": run.failed}
    counts = {NEVER_SUBMITTED: len(run.not_submitted)}
    for reason, names in names_by_reason.items():
        # A job that was never submitted can be cancelled. It counts once.
        counts[reason] = len(set(names) - set(run.not_submitted))
    return counts_in_words(counts)


def compared_cells(
    runs: Sequence[Summary],
    gpus: Sequence[int | None] = (),
    bases: Sequence[int] = (),
    user_values: Sequence[UserValues] = (),
    is_shown: Callable[[str], bool] = lambda field: True,
    losses: str = FAILURE,
) -> dict[str, list[Text]]:
    """Return the cells of each metric for all runs, by the label of the metric. Parameters are as for `SideBySide`.

    A cell has the value, the names of the jobs that it counts, and the difference from the run of `bases`.
    """
    cells_by_label = {}
    for line in metric_lines(runs, gpus, user_values, is_shown, losses):
        cells = []
        for index, (run, text) in enumerate(zip(runs, line.texts, strict=True)):
            cell = Text.assemble(text, _job_names(run, line))
            if bases:
                change, verdict = difference(line, index, bases[index])
                if change:
                    cell.append(f" {change:>8}", COLOURS.get(verdict, ""))
            cells.append(cell)
        indent = "  " if line.metric.is_part else ""
        cells_by_label[indent + line.title] = cells
    return cells_by_label


def _job_names(run: Summary, line: MetricLine) -> str:
    """Return the names of the jobs that a metric counts, like jobs that were cut off; "" for other metrics."""
    # The fields of a `Summary` that name jobs are tuples. A metric of the user, or a part of one, is no field of it.
    names = getattr(run, line.field, None)
    if not isinstance(names, tuple) or not names:
        return ""
    text = f": {', '.join(names[:MOST_NAMES])}"
    if len(names) > MOST_NAMES:
        text += f" and {len(names) - MOST_NAMES} more"
    return text


def crowd_html(rounds: Sequence[RoundRecord]) -> str:
    """Return a drawing of the jobs submitted and not complete over time, from the rounds of a run in order.

    The text is empty for fewer than two rounds.
    """
    if len(rounds) < 2:
        return ""
    # Every nth round, rounded up so that there are never more points than the limit
    step = -(-len(rounds) // MOST_POINTS)
    start = rounds[0].time
    end = rounds[-1].time
    most_jobs = max(record.active_jobs for record in rounds)
    points = ""
    for record in rounds[::step]:
        x = (record.time - start) / (end - start) * WIDTH
        y = HEIGHT * (1 - record.active_jobs / most_jobs)  # y points down in SVG
        # Across and then up or down, because the number of jobs jumps
        points += f"H{x:.1f}V{y:.1f}"
    path = f'<path d="M0,{HEIGHT}{points}H{WIDTH}V{HEIGHT}Z" fill="#7986cb"/>'
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    style = f"width: 100%; max-width: {WIDTH}px; height: {HEIGHT}px; display: block; margin-top: 6px"
    label = f"active jobs, up to {most_jobs}, from {start / HOUR:.1f} to {end / HOUR:.1f} h"
    return f'<svg {view} style="{style}" role="img" aria-label="{label}">{path}</svg><div style="{NOTE}">{label}</div>'
