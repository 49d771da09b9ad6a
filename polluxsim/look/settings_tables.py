"""Tables of settings and comparisons as text, Markdown, LaTeX, CSV, JSON, HTML and a DataFrame, with a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import floor, isfinite, log10
from textwrap import fill
from typing import TYPE_CHECKING

from polluxsim.common.durations import clock, length
from polluxsim.common.phrases import count_range
from polluxsim.look.settings_frames import as_csv, as_json
from polluxsim.look.tables import html, latex, markdown, text_blocks
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.outcomes import counts_in_words, number_of
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, LEAST_UNITS, Measured
from polluxsim.statistics.number_texts import change_text, with_interval

if TYPE_CHECKING:
    from polluxsim.statistics.comparisons import Against, Cell, FromFork, SettingsTable

Lines = list[list[str]]

LEAST_WIDTH = 40  # tables as text are at least this wide [characters]
MOST_JOBS = 3  # number of jobs named in a comparison: the jobs that lose most
NOT_COMPARED = "times, finish-time fairness and GPU time"  # metrics that are not compared if jobs were not served
ONE_UNIT = "runs of a workload whose seeds change nothing count as one"
OTHER_WORKLOADS = "No changes: each setting has another workload. A baseline compares them all the same."
QUANTITY = "ratio of geometric means over pairs, minus 1"  # the change that is reported


def as_text(table: SettingsTable, width: int = 80) -> str:
    """Return the table in blocks that fit the width [characters]: the means, then the changes, then the notes."""
    width = max(width, LEAST_WIDTH)
    parts = [fill(" ".join(_mean_notes(table)), width), *text_blocks(_means(table), width)]
    changes = _changes(table)
    if changes:
        parts.append(fill(f"Change {_against(table)}, {QUANTITY}:", width))
        parts += text_blocks(changes, width)
    for note in _last_notes(table):
        parts.append(fill(note, width))
    return "\n\n".join(parts)


def as_markdown(table: SettingsTable) -> str:
    """Return the table as Markdown, with means and changes side by side."""
    return "\n".join([markdown(_all_columns(table)), "", *notes(table)])


def as_latex(table: SettingsTable) -> str:
    """Return the table as LaTeX, for the package booktabs."""
    comments = [f"% {note}" for note in notes(table)]
    return "\n".join([*comments, latex(_all_columns(table))])


def as_html(table: SettingsTable) -> str:
    """Return the table for a notebook."""
    return html(_all_columns(table), notes(table))


FORMS = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv, "json": as_json}
"""Ways to write a table for other programs."""


def notes(table: SettingsTable) -> list[str]:
    """Return notes on the table: the number of runs, the baseline, the intervals and the verdict."""
    means = list(_mean_notes(table))
    last = _last_notes(table)
    if not _changes(table):
        return [*means, *last]
    if _has_one_run_each(table):
        return [f"{' '.join(means)} Changes are {_against(table)}.", *last]
    return [*means, f"Changes are {_against(table)}: {QUANTITY}.", *last]


def _last_notes(table: SettingsTable) -> list[str]:
    """Return the notes on the changes, and the verdict or what a verdict needs. One setting has nothing to judge."""
    last_notes: list[str] = []
    if _changes(table):
        last_notes += _change_notes(table)
    elif _have_own_baselines(table):
        last_notes.append(OTHER_WORKLOADS)
        return last_notes
    has_one_run_each = _has_one_run_each(table)
    if len(table.cells) == 1:
        if has_one_run_each:
            last_notes.append(f"An interval needs {LEAST_UNITS} runs with other seeds or workloads.")
        return last_notes
    if not has_one_run_each:
        return [*last_notes, verdict(table)]
    needed = f"Intervals need {LEAST_UNITS} pairs of runs with the same workload and seed, and a verdict on differences"
    return [*last_notes, f"{needed} needs {LEAST_FOR_VERDICT}."]


def _have_own_baselines(table: SettingsTable) -> bool:
    """Return whether there are several settings, and none of them is compared with another."""
    return len(table.baselines) > 1 and all(label == other for label, other in table.baselines.items())


def _all_cells(table: SettingsTable) -> list[Cell]:
    """Return the cells of all rows."""
    cells: list[Cell] = []
    for row in table.cells.values():
        cells += row.values()
    return cells


def _has_one_run_each(table: SettingsTable) -> bool:
    """Return whether no setting has several runs."""
    return all(cell.mean.num_runs == 1 for cell in _all_cells(table))


def _mean_notes(table: SettingsTable) -> Iterator[str]:
    """Yield the notes on the number of runs and on the intervals of the means."""
    if _has_one_run_each(table):
        yield "One run each." if len(table.cells) > 1 else "One run."
        yield from _unserved_notes(table)
        return
    means = [cell.mean for cell in _all_cells(table)]
    # Metrics can have different numbers of units, because seeds may change only some of them.
    counts = sorted({mean.num_units for mean in means})
    kinds = sorted({mean.units for mean in means})
    over = f"{count_range(counts)} {' or '.join(kinds)}"
    largest_count = counts[-1]
    if largest_count == 1:
        over = over.removesuffix("s")
    if largest_count >= LEAST_UNITS:
        yield f"Means over {over}, [95 % interval]."
    else:
        yield f"Means over {over}."
    yield from interval_notes(means, "runs", "values")
    yield from _unserved_notes(table)


def _unserved_notes(table: SettingsTable) -> Iterator[str]:
    """Yield a note on settings with jobs that were not served, by what happened to the jobs."""
    for participle in dict.fromkeys(table.unserved.values()):
        names = [label for label in table.cells if table.unserved.get(label) == participle]
        yield f"Jobs were {participle} in runs of {', '.join(names)}, so {NOT_COMPARED} are not compared."
    if table.incomplete:
        phrases = [f"{label}: {counts_in_words(counts)}" for label, counts in table.incomplete.items()]
        yield f"Jobs that did not complete, over all runs: {'; '.join(phrases)}."


def _change_notes(table: SettingsTable) -> Iterator[str]:
    """Yield the notes on the intervals of the changes, and on changes without a ratio."""
    changes = {}
    for label, row in table.cells.items():
        for metric, cell in row.items():
            if cell.change is not None:
                changes[label, metric] = cell.change
    if not _has_one_run_each(table):
        yield from interval_notes(changes.values(), "pairs", "log ratios")
    for (label, metric), change in changes.items():
        if change.zeros:
            yield _zeros_note(label, table.metrics[metric], change)


def interval_notes(measures: Iterable[Measured], units: str, values: str) -> Iterator[str]:
    """Yield notes on intervals: the assumption with few units, and the number of units that an interval lacks.

    `units` and `values` are words, like "pairs" and "log ratios".
    """
    measures = list(measures)
    counts = sorted({measured.num_units for measured in measures})
    counts_with_assumption = []
    missing = []
    for count in counts:
        if count < LEAST_UNITS:
            missing.append(LEAST_UNITS - count)
        elif count < LEAST_FOR_VERDICT:
            counts_with_assumption.append(count)
    if counts_with_assumption:
        yield f"The intervals of {count_range(counts_with_assumption)} {units} assume normal {values}."
    if missing:
        are = "is" if missing == [1] else "are"
        # Without this reason, a reader who made enough runs does not understand why some are missing.
        independent = ""
        why = ""
        if _are_counted_as_one(measures):
            independent = "independent "
            why = f"; {ONE_UNIT}"
        yield f"An interval needs {LEAST_UNITS} {independent}{units}: {count_range(missing)} {are} missing{why}."


def _are_counted_as_one(measures: Iterable[Measured]) -> bool:
    """Return whether a measure has too few units for a verdict, and more runs, because seeds change nothing."""
    # More units than a verdict needs are enough, even if there are more runs.
    return any(measured.num_units < min(measured.num_runs, LEAST_FOR_VERDICT) for measured in measures)


def _zeros_note(setting: str, metric: Metric, change: Measured) -> str:
    """Return the note on a change between values of which some are 0."""
    if change.is_known:
        return f"{setting}: {metric.title} is 0 in every run, so its change is −100 %."
    return f"{setting}: {metric.title} has no ratio: {_why_no_ratio(change)}."


def _why_no_ratio(change: Measured) -> str:
    pairs = "1 pair" if change.zeros == 1 else f"{change.zeros} pairs"
    return f"the values differ and one is 0, negative or infinite in {pairs}"


def verdict(table: SettingsTable) -> str:
    """Return a sentence that lists the differences whose 95 % interval excludes 0."""
    changes: list[Measured] = []
    num_judged = 0
    differences: dict[str, list[str]] = {}  # settings with their changes, by title of the metric
    for name, metric in table.metrics.items():
        for label, row in table.cells.items():
            cell = row.get(name)
            if cell is None or cell.change is None:
                continue
            change = cell.change
            changes.append(change)
            if not change.is_judged:
                continue
            num_judged += 1
            text = change_text(change.estimate.value)
            # A change below the printed digits is no difference that a reader can see.
            if change.is_real and not text.startswith("±"):
                differences.setdefault(metric.title, []).append(f"{label} ({text})")
    if not num_judged:
        return _what_a_verdict_needs(changes)
    if not differences:
        return f"No difference {_against(table)} is real by the 95 % intervals."
    # Each interval leaves out its true value in 5 % of all cases. Many comparisons thus have some false differences.
    chance = f"of {number_of(num_judged, 'comparison')}, about {0.05 * num_judged:.2g} would look real by chance"
    words = "; ".join(f"{title}: {', '.join(labels)}" for title, labels in differences.items())
    return f"Real by the 95 % intervals, {_against(table)}: {words} ({chance})."


def _what_a_verdict_needs(changes: Sequence[Measured]) -> str:
    """Return a sentence on the number of pairs that a verdict needs in addition."""
    most_units = max((change.num_units for change in changes), default=0)
    missing = ""
    # With enough pairs, there is still no verdict where a change has no ratio.
    if most_units < LEAST_FOR_VERDICT:
        missing = f", {LEAST_FOR_VERDICT - most_units} more than there are"
    kind = "independent pairs" if _are_counted_as_one(changes) else "pairs"
    return f"No verdict on differences: it needs {LEAST_FOR_VERDICT} {kind} with the same workload and seed{missing}."


def _against(table: SettingsTable) -> str:
    """Return the baselines of the table, after "against"."""
    names = list(dict.fromkeys(table.baselines.values()))
    if len(names) == 1:
        return f"against {names[0]} (baseline)"
    return f"against the most similar of the baselines {'; '.join(names)}"


def measured_change(change: Measured | None) -> str:
    """Return a change and its interval as text, "–" if it is unknown."""
    if change is None or not change.is_known:
        return "–"
    return change_text(*change.estimate)


def comparison_text(comparisons: Sequence[Against], from_forks: Sequence[FromFork] = ()) -> str:
    """Return comparisons as lines of text, with notes on the quantity and its intervals.

    Where runs are forks, the comparisons over the whole runs come first, and those from each fork on follow.
    """
    over = ", over the whole run" if from_forks else ""
    parts = []
    changes: list[Measured] = []
    for comparison in comparisons:
        parts.append("\n".join(_comparison_lines(comparison, over)))
        changes += comparison.changes.values()
    for fork in from_forks:
        over = f", from the fork at {clock(fork.time)} on"
        note = f"  metrics of jobs are over the {count_range(fork.num_jobs)} jobs not complete at the fork"
        for comparison in fork.comparisons:
            parts.append("\n".join(_comparison_lines(comparison, over, note)))
    # The parts from forks on have the same pairs of runs, and so the same notes.
    below = [f"Changes: {QUANTITY}, with 95 % intervals.", *interval_notes(changes, "pairs", "log ratios")]
    if not any(change.is_judged for change in changes):
        below.append(f"A verdict needs {LEAST_FOR_VERDICT} pairs.")
    return "\n\n".join([*parts, "\n".join(below)])


def _comparison_lines(comparison: Against, over: str, note: str = "") -> Iterator[str]:
    """Yield the lines about a setting; `over` names the part of the runs, and a note stands below the headline."""
    yield f"{comparison.setting} against {comparison.baseline} (baseline){over}"
    if note:
        yield note
    if comparison.unserved:
        yield f"  {NOT_COMPARED} are not compared, because jobs were {comparison.unserved}"
    yield from _lines_in_common(comparison)
    if not comparison.changes:
        yield "  no two runs have the same workload and seed"
        return
    titles = {}
    for name in comparison.changes:
        metric = comparison.metrics[name]
        titles[name] = f"{metric.title}{metric.arrow}"
    width = max(map(len, titles.values()))
    for name, change in comparison.changes.items():
        line = f"  {titles[name]:<{width}}  {measured_change(change):>9}, {number_of(change.num_units, 'pair')}"
        if not change.is_known:
            line += f" (no ratio: {_why_no_ratio(change)})"
        yield line
    if not note:
        yield from _job_lines(comparison)


COMMON_TITLES = {
    "avg_jct": "mean JCT", "p50_jct": "JCT, median", "p99_jct": "JCT, 99th percentile",
    "avg_waiting_time": "mean wait in total", "p90_waiting_time": "90th percentile wait",
}  # fmt: skip
"""Titles of metrics over the jobs that complete in both runs of a pair."""


def _lines_in_common(comparison: Against) -> Iterator[str]:
    """Yield lines on the jobs that complete in both runs of a pair, and on the other jobs."""
    common = comparison.in_common
    if common is None:
        return
    # Each setting counts the same left-out jobs, by what happened to them under it.
    number = next(iter(common.left_out.values())).total()
    yield f"  jobs that complete in both runs of a pair: {common.num_jobs:,}; {number_of(number, 'other job')}:"
    for label, counts in common.left_out.items():
        yield f"    {label}: {counts_in_words(counts)}"
    if not common.changes:
        return
    if not comparison.unserved:
        yield "  metrics of jobs are over the jobs that complete in both"
        return
    yield "  over the jobs that complete in both:"
    width = max(map(len, COMMON_TITLES.values()))
    for name, change in common.changes.items():
        if name not in COMMON_TITLES:
            continue
        pairs = number_of(change.num_units, "pair")
        yield f"    {COMMON_TITLES[name]:<{width}} ↓  {measured_change(change):>9}, {pairs}"


def _job_lines(comparison: Against) -> Iterator[str]:
    """Yield lines on the jobs that take longer than under the baseline."""
    if not comparison.jobs:
        return
    longer = [gain for gain in comparison.jobs if gain.seconds > 0]
    headline = f"  {len(comparison.jobs) - len(longer)} of {len(comparison.jobs)} jobs take no longer"
    if longer:
        headline += ", these lose most:"
    yield headline
    # The runs of a workload have jobs of the same names.
    has_several_runs = len({gain.run for gain in comparison.jobs}) > 1
    # The jobs are in rising order.
    for gain in reversed(longer[-MOST_JOBS:]):
        run = f", in {gain.run}" if has_several_runs else ""
        yield f"    {gain.job} by {length(gain.seconds)}{run}"


def _means(table: SettingsTable) -> Lines:
    """Return the table of means: a line for each setting, after the line of the metrics."""
    headings = [f"{metric.heading}{metric.arrow}" for metric in table.metrics.values()]
    lines = [["", *headings]]
    for label, row in table.cells.items():
        line = [label]
        for metric in table.metrics:
            if metric in row:
                line.append(_mean(row[metric].mean, table.metrics[metric], is_bound=row[metric].is_bound))
            else:
                line.append("–")
        lines.append(line)
    return lines


def _changes(table: SettingsTable) -> Lines:
    """Return the table of changes, without the baselines; empty if there are only baselines."""
    headings = [f"{metric.title}{metric.arrow}" for metric in table.metrics.values()]
    lines = [["", *headings]]
    for label, row in table.cells.items():
        if table.baselines[label] == label:
            continue
        line = [label]
        for metric in table.metrics:
            if metric in row:
                line.append(measured_change(row[metric].change))
            else:
                line.append("–")
        lines.append(line)
    has_only_the_head = len(lines) == 1
    return [] if has_only_the_head else lines


def _all_columns(table: SettingsTable) -> Lines:
    """Return the table of means, with a column of changes beside each metric."""
    means = _means(table)
    changes = {line[0]: line[1:] for line in _changes(table)}
    if not changes:
        return means
    num_metrics = len(table.metrics)
    # The first line of the means is the head.
    headings = ["change"] * num_metrics
    lines = [["", *_alternating(means[0][1:], headings)]]
    for label, *cells in means[1:]:
        lines.append([label, *_alternating(cells, changes.get(label, ["baseline"] * num_metrics))])
    return lines


def _alternating(means: Sequence[str], changes: Sequence[str]) -> Iterator[str]:
    """Yield the first mean, the first change, the second mean, and so on."""
    for mean, change in zip(means, changes, strict=True):
        yield mean
        yield change


def _mean(measured: Measured, metric: Metric, *, is_bound: bool) -> str:
    """Return a mean with three significant digits, and its interval; `is_bound` marks a lower bound.

    A count of a single run has no digits after the point.
    """
    value, low, high = measured.estimate
    if not isfinite(value):
        return "∞"
    is_count = not metric.unit and value.is_integer() and low is None
    num_digits = 0
    if value and not is_count:  # 0 has no logarithm
        num_digits = max(0, 2 - floor(log10(abs(value))))
    # The ends of the interval have the digits of the mean, so that they can be compared with it.
    text = with_interval(value, low, high, lambda number: f"{number:.{num_digits}f}".replace("-", "−"))
    return f"≥ {text}" if is_bound else text
