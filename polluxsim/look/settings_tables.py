"""Tables of settings and comparisons as text, Markdown, LaTeX, CSV, JSON, HTML and a DataFrame, with a verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, isfinite, log10
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from polluxsim.common.durations import HOUR, clock, length
from polluxsim.look.tables import boxed, html, latex, markdown, text_blocks
from polluxsim.look.why.phrases import count_range
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.outcomes import counts_in_words, incomplete, number_of
from polluxsim.records.results import Result
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, LEAST_UNITS, Measured
from polluxsim.statistics.job_values import Rank, ranks
from polluxsim.statistics.metric_lines import change_text, with_interval

if TYPE_CHECKING:
    from polluxsim.statistics.comparisons import Against, Cell, FromFork, SettingsTable

Lines = list[list[str]]

LEAST_WIDTH = 40  # tables as text are at least this wide [characters]
PARTS = ("mean", "low", "high", "runs", "change", "change low", "change high", "pairs")
"""Parts of a cell in tables of numbers; `frame_of_settings` explains them."""

MOST_RANKS = 40  # largest number of users or queues in a table of ranks
RANK_COLUMNS = ("rank", "to first GPU [h]", "waiting [h]", "JCT [h]", "GPU h")

MOST_JOBS = 3  # number of jobs named in a comparison: the jobs that lose most
NOT_COMPARED = "times, finish-time fairness and GPU time"  # metrics that are not compared if jobs were not served
ONE_UNIT = "runs of a workload whose seeds change nothing count as one"
QUANTITY = "ratio of geometric means over pairs, minus 1"  # the change that is reported


def as_text(table: SettingsTable, width: int = 80) -> str:
    """Return the table in blocks that fit the width [characters]: the means, then the changes, then the notes."""
    width = max(width, LEAST_WIDTH)
    parts = [fill(" ".join(_mean_notes(table)), width), *text_blocks(_means(table), width)]
    if changes := _changes(table):
        parts += [fill(f"Change {_against(table)}, {QUANTITY}:", width), *text_blocks(changes, width)]
    return "\n\n".join([*parts, *(fill(note, width) for note in _last_notes(table))])


def as_markdown(table: SettingsTable) -> str:
    """Return the table as Markdown, with means and changes side by side."""
    return "\n".join([markdown(_all_columns(table)), "", *notes(table)])


def as_latex(table: SettingsTable) -> str:
    """Return the table as LaTeX, for the package booktabs."""
    return "\n".join([*(f"% {note}" for note in notes(table)), latex(_all_columns(table))])


def as_csv(table: SettingsTable) -> str:
    """Return `frame_of_settings` as CSV, a column for each number, and the baseline of each setting."""
    frame = frame_of_settings(table)
    frame.columns = [" ".join(column).removesuffix(" mean") for column in frame.columns]
    frame.insert(0, "baseline", list(table.baselines.values()))
    return str(frame.to_csv()).rstrip("\n")


def as_json(table: SettingsTable) -> str:
    """Return `frame_of_settings` as JSON: by setting, its baseline, and the known numbers by metric."""
    rows = {
        label: {"baseline": table.baselines[str(label)]}
        | {metric: parts.droplevel(0).dropna().to_dict() for metric, parts in row.groupby(level=0, sort=False)}
        for label, row in frame_of_settings(table).iterrows()
    }
    return json.dumps(rows, indent=2, ensure_ascii=False)


def as_html(table: SettingsTable) -> str:
    """Return the table for a notebook."""
    return html(_all_columns(table), notes(table))


def frame_of_settings(table: SettingsTable) -> pd.DataFrame:
    """Return the table's numbers: a row per setting, columns (metric, part), in the units that the metric names.

    The parts of a metric are the mean, the ends of its 95 % interval (low, high) and the number of independent runs;
    the change as a share of the baseline, the ends of its interval (change low, change high) and the number of
    independent pairs. Unknown numbers are nan. `attrs["baselines"]` contains the baseline of each setting.
    """
    rows = {label: dict(_parts(table, row)) for label, row in table.cells.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    columns = pd.MultiIndex.from_tuples(keys, names=["metric", "part"])
    values = [[row.get(key) for key in keys] for row in rows.values()]
    frame = pd.DataFrame(values, index=list(rows), columns=columns, dtype=float).rename_axis("setting")
    frame.attrs["baselines"] = dict(table.baselines)
    return frame


def _parts(table: SettingsTable, row: Mapping[str, Cell]) -> Iterator[tuple[tuple[str, str], float | None]]:
    """Yield the numbers of a row of the table, each after its metric and part."""
    for name, cell in row.items():
        changes = (None,) * 4 if cell.change is None else (*cell.change.estimate, cell.change.num_units)
        numbers = (*cell.mean.estimate, cell.mean.num_units, *changes)
        for part, number in zip(PARTS, numbers, strict=True):
            yield (table.metrics[name].heading, part), number


FORMS = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv, "json": as_json}
"""Ways to write a table for other programs."""


def notes(table: SettingsTable) -> list[str]:
    """Return notes on the table: the number of runs, the baseline, the intervals and the verdict."""
    means, last = list(_mean_notes(table)), _last_notes(table)
    if not _changes(table):
        return [*means, *last]
    if _has_one_run_each(table):
        return [f"{' '.join(means)} Changes are {_against(table)}.", *last]
    return [*means, f"Changes are {_against(table)}: {QUANTITY}.", *last]


def _last_notes(table: SettingsTable) -> list[str]:
    """Return the notes on the changes, and the verdict or what a verdict needs. One setting has nothing to judge."""
    found = list(_change_notes(table)) if _changes(table) else []
    if len(table.cells) == 1:
        if _has_one_run_each(table):
            found.append(f"An interval needs {LEAST_UNITS} runs with other seeds or workloads.")
        return found
    if not _has_one_run_each(table):
        return [*found, verdict(table)]
    needed = f"Intervals need {LEAST_UNITS} pairs of runs with the same workload and seed, and a verdict on differences"
    return [*found, f"{needed} needs {LEAST_FOR_VERDICT}."]


def _has_one_run_each(table: SettingsTable) -> bool:
    return max((cell.mean.num_runs for row in table.cells.values() for cell in row.values()), default=1) == 1


def _mean_notes(table: SettingsTable) -> Iterator[str]:
    """Yield the notes on the number of runs and on the intervals of the means."""
    means = [cell.mean for row in table.cells.values() for cell in row.values()]
    counts, kinds = sorted({mean.num_units for mean in means}), {mean.units for mean in means}
    if _has_one_run_each(table):
        yield "One run each." if len(table.cells) > 1 else "One run."
        yield from _unserved_notes(table)
        return
    over = f"{count_range(counts)} {' or '.join(sorted(kinds))}".removesuffix("s" * (counts[-1] == 1))
    yield f"Means over {over}{', [95 % interval]' * (counts[-1] >= LEAST_UNITS)}."
    yield from interval_notes(means, "runs", "values")
    yield from _unserved_notes(table)


def _unserved_notes(table: SettingsTable) -> Iterator[str]:
    """Yield a note on settings with jobs that were not served, by what happened to the jobs."""
    for participle in dict.fromkeys(table.unserved.values()):
        names = [label for label in table.cells if table.unserved.get(label) == participle]
        yield f"Jobs were {participle} in runs of {', '.join(names)}, so {NOT_COMPARED} are not compared."
    if table.incomplete:
        counts = [f"{label}: {counts_in_words(found)}" for label, found in table.incomplete.items()]
        yield f"Jobs that did not complete, over all runs: {'; '.join(counts)}."


def _change_notes(table: SettingsTable) -> Iterator[str]:
    """Yield the notes on the intervals of the changes, and on changes without a ratio."""
    changes = {
        (label, metric): cell.change
        for label, row in table.cells.items()
        for metric, cell in row.items()
        if cell.change is not None
    }
    if not _has_one_run_each(table):
        yield from interval_notes(changes.values(), "pairs", "log ratios")
    for (label, metric), change in changes.items():
        if change.zeros:
            yield _zeros_note(label, table.metrics[metric], change)


def interval_notes(found: Iterable[Measured], units: str, values: str) -> Iterator[str]:
    """Yield notes on intervals: the assumption with few units, and the number of units that an interval lacks.

    `units` and `values` are words, like "pairs" and "log ratios".
    """
    measures = list(found)
    counts = sorted({measured.num_units for measured in measures})
    if few := [count for count in counts if LEAST_UNITS <= count < LEAST_FOR_VERDICT]:
        yield f"The intervals of {count_range(few)} {units} assume normal {values}."
    if missing := [LEAST_UNITS - count for count in reversed(counts) if count < LEAST_UNITS]:
        are = "is" if missing == [1] else "are"
        independent, why = ("independent ", f"; {ONE_UNIT}") if _are_counted_as_one(measures) else ("", "")
        yield f"An interval needs {LEAST_UNITS} {independent}{units}: {count_range(missing)} {are} missing{why}."


def _are_counted_as_one(found: Iterable[Measured]) -> bool:
    """Return whether there are runs, but too few units, because seeds change nothing."""
    return any(measured.num_units < min(measured.num_runs, LEAST_FOR_VERDICT) for measured in found)


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
    changes = [
        (metric.title, label, row[name].change)
        for name, metric in table.metrics.items()
        for label, row in table.cells.items()
        if name in row
    ]
    known = [(title, label, change) for title, label, change in changes if change is not None]
    judged = [(title, label, change) for title, label, change in known if change.is_judged]
    if not judged:
        most = max((change.num_units for _, _, change in known), default=0)
        missing = max(LEAST_FOR_VERDICT - most, 0)
        words = f", {missing} more than there are" if missing else ""
        kind = "independent pairs" if _are_counted_as_one(change for _, _, change in known) else "pairs"
        return f"No verdict on differences: it needs {LEAST_FOR_VERDICT} {kind} with the same workload and seed{words}."
    real: dict[str, list[str]] = {}
    for title, label, change in judged:
        text = change_text(change.estimate.value)
        if change.is_real and not text.startswith("±"):  # a change below the printed digits is no difference
            real.setdefault(title, []).append(f"{label} ({text})")
    if not real:
        return f"No difference {_against(table)} is real by the 95 % intervals."
    plural = "s" * (len(judged) > 1)
    chance = f"of {len(judged)} comparison{plural}, about {0.05 * len(judged):.2g} would look real by chance"
    words = "; ".join(f"{metric}: {', '.join(labels)}" for metric, labels in real.items())
    return f"Real by the 95 % intervals, {_against(table)}: {words} ({chance})."


def _against(table: SettingsTable) -> str:
    """Return the baselines of the table, after "against"."""
    names = list(dict.fromkeys(table.baselines.values()))
    if len(names) == 1:
        return f"against {names[0]} (baseline)"
    return f"against the most similar baseline of {', '.join(names)}"


def measured_change(change: Measured | None) -> str:
    """Return a change and its interval as text, "–" if it is unknown."""
    return "–" if change is None or not change.is_known else change_text(*change.estimate)


def comparison_text(found: Sequence[Against], from_forks: Sequence[FromFork] = ()) -> str:
    """Return comparisons as lines of text, with notes on the quantity and its intervals.

    Where runs are forks, the comparisons over the whole runs come first, and those from each fork on follow.
    """
    over = ", over the whole run" if from_forks else ""
    parts = ["\n".join(_comparison_lines(each, over)) for each in found]
    for part in from_forks:
        over = f", from the fork at {clock(part.time)} on"
        note = f"  metrics of jobs are over the {count_range(part.num_jobs)} jobs not complete at the fork"
        parts += ["\n".join(_comparison_lines(each, over, note)) for each in part.found]
    changes = [change for each in found for change in each.changes.values()]
    below = [f"Changes: {QUANTITY}, with 95 % intervals.", *interval_notes(changes, "pairs", "log ratios")]
    if not any(change.is_judged for change in changes):
        below.append(f"A verdict needs {LEAST_FOR_VERDICT} pairs.")
    return "\n\n".join([*parts, "\n".join(below)])


def _comparison_lines(found: Against, over: str, note: str = "") -> Iterator[str]:
    """Yield the lines about a setting; `over` names the part of the runs, and a note stands below the headline."""
    yield f"{found.setting} against {found.baseline} (baseline){over}"
    if note:
        yield note
    if found.unserved:
        yield f"  {NOT_COMPARED} are not compared, because jobs were {found.unserved}"
    yield from _lines_in_common(found)
    if not found.changes:
        yield "  no two runs have the same workload and seed"
        return
    titles = {name: f"{metric.title}{metric.arrow}" for name, metric in found.metrics.items()}
    width = max(len(titles[name]) for name in found.changes)
    for metric, change in found.changes.items():
        pairs = f"{change.num_units} pair{'s' * (change.num_units > 1)}"
        zeros = "" if change.is_known else f" (no ratio: {_why_no_ratio(change)})"
        yield f"  {titles[metric]:<{width}}  {measured_change(change):>9}, {pairs}{zeros}"
    if not note:
        yield from _job_lines(found)


COMMON_TITLES = {
    "avg_jct": "mean JCT", "p50_jct": "JCT, median", "p99_jct": "JCT, 99th percentile",
    "avg_waiting_time": "mean wait in total",
}  # fmt: skip
"""Titles of metrics over the jobs that complete in both runs of a pair."""


def _lines_in_common(found: Against) -> Iterator[str]:
    """Yield lines on the jobs that complete in both runs of a pair, and on the other jobs."""
    if (common := found.in_common) is None:
        return
    number = sum(next(iter(common.others.values())).values())
    yield f"  jobs that complete in both runs of a pair: {common.num_jobs:,}; {number_of(number, 'other job')}:"
    for label, counts in common.others.items():
        yield f"    {label}: {counts_in_words(counts)}"
    if not common.changes:
        return
    if not found.unserved:
        yield "  metrics of jobs are over the jobs that complete in both"
        return
    yield "  over the jobs that complete in both:"
    width = max(map(len, COMMON_TITLES.values()))
    for name, change in common.changes.items():
        if name not in COMMON_TITLES:
            continue
        pairs = number_of(change.num_units, "pair")
        yield f"    {COMMON_TITLES[name]:<{width}} ↓  {measured_change(change):>9}, {pairs}"


def _job_lines(found: Against) -> Iterator[str]:
    """Yield lines on the jobs that take longer than under the baseline."""
    longer = sum(gain.seconds > 0 for gain in found.jobs)
    if found.jobs:
        shorter = f"  {len(found.jobs) - longer} of {len(found.jobs)} jobs take no longer"
        yield f"{shorter}, these lose most:" if longer else shorter
    several = len({gain.run for gain in found.jobs}) > 1
    for gain in found.jobs[: -MOST_JOBS - 1 : -1]:
        if gain.seconds > 0:
            yield f"    {gain.job} by {length(gain.seconds)}{f', in {gain.run}' if several else ''}"


def _means(table: SettingsTable) -> Lines:
    """Return the table of means: a line for each setting, after the line of the metrics."""
    lines = [["", *(f"{metric.heading}{metric.arrow}" for metric in table.metrics.values())]]
    for label, row in table.cells.items():
        cells = [row.get(metric) for metric in table.metrics]
        lines.append([label, *("–" if cell is None else _mean(cell.mean, is_bound=cell.is_bound) for cell in cells)])
    return lines


def _changes(table: SettingsTable) -> Lines:
    """Return the table of changes, without the baselines; empty if there are only baselines."""
    lines = [["", *(f"{metric.title}{metric.arrow}" for metric in table.metrics.values())]]
    for label, row in table.cells.items():
        if table.baselines[label] != label:
            cells = [row.get(metric) for metric in table.metrics]
            lines.append([label, *("–" if cell is None else measured_change(cell.change) for cell in cells)])
    return lines if len(lines) > 1 else []


def _all_columns(table: SettingsTable) -> Lines:
    """Return the table of means, with a column of changes beside each metric."""
    means, changes = _means(table), {line[0]: line[1:] for line in _changes(table)}
    if not changes:
        return means
    lines = [["", *(cell for name in means[0][1:] for cell in (name, "change"))]]
    for label, *cells in means[1:]:
        other = changes.get(label, ["baseline"] * len(cells))
        lines.append([label, *(cell for pair in zip(cells, other, strict=True) for cell in pair)])
    return lines


def _mean(measured: Measured, *, is_bound: bool) -> str:
    """Return a mean with three significant digits, and its interval; `is_bound` marks a lower bound."""
    value, low, high = measured.estimate
    if not isfinite(value):
        return "∞"
    digits = max(0, 2 - floor(log10(abs(value)))) if value else 0
    text = with_interval(value, low, high, lambda number: f"{number:.{digits}f}".replace("-", "−"))
    return f"≥ {text}" if is_bound else text


def rank_table(settings: Mapping[str, Sequence[Result]], by: str) -> Table:
    """Return the ranks of users or queues (`by`: "user" or "queue") under settings side by side.

    The rows have the order of the first setting. Raise InvalidInputError if no job has a user or queue.
    """
    found = {name: ranks(results, by) for name, results in settings.items()}
    names = list(dict.fromkeys(name for ranked in found.values() for name in ranked))
    lines = [[by, "jobs", *(f"{setting}\n{column}" for setting in found for column in RANK_COLUMNS)]]
    for name in names[:MOST_RANKS]:
        of_settings = [ranked.get(name) for ranked in found.values()]
        jobs = max(rank.jobs for rank in of_settings if rank is not None)
        lines.append([name, str(jobs), *(cell for rank in of_settings for cell in _rank_cells(rank))])
    more = len(names) - MOST_RANKS
    title = f"By {by}, longest mean time to the first GPU first"
    notes = [f"and {more} more"] if more > 0 else []
    for setting, results in settings.items():
        lost = Counter[str]()
        for result in results:
            lost += incomplete(result)
        if lost:
            notes.append(f"JCTs of {setting} leave out {number_of(lost.total(), 'job')}: {counts_in_words(lost)}")
    return boxed(lines, title, caption="\n".join(notes))


def _rank_cells(rank: Rank | None) -> list[str]:
    if rank is None:
        return ["–"] * len(RANK_COLUMNS)
    times = (rank.wait, rank.total_wait, rank.jct)
    cells = ["–" if time is None else f"{time / HOUR:.2f}" for time in times]
    return [str(rank.place), *cells, f"{rank.gpu_seconds / HOUR:.1f}"]
