"""The best possible values of metrics beside the values of runs, as a table and as sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from rich.table import Table

from polluxsim.common.durations import HOUR, unit_of
from polluxsim.look.tables import boxed
from polluxsim.records.bounds import PART_WORDS, MetricBound, RunBound, stored_bound
from polluxsim.records.storage import Run
from polluxsim.statistics.metric_lines import METRICS, metric_of
from polluxsim.statistics.number_texts import number_text

TITLE = "best possible"
AT_ROUNDS = ", starts at rounds only"
NO_GAP = "–"


def stored_bounds(runs: Sequence[Run]) -> list[RunBound | None]:
    """Return the bounds that the folders of runs store; None for a run without bounds.

    Raise InvalidInputError if a file of bounds is damaged.
    """
    return [stored_bound(run.folder, run.info) for run in runs]


def stored_table(runs: Mapping[str, Sequence[Run]], metrics: Collection[str] = ()) -> Table | None:
    """Return the table of the bounds that folders of runs store, by label; None if there is nothing to show.

    A label is shown if all its runs have bounds. `metrics` are the metrics to show, by default all. Raise
    InvalidInputError if a file of bounds is damaged.
    """
    bounds = {}
    for label, of_label in runs.items():
        stored = [bound for bound in stored_bounds(of_label) if bound is not None]
        if stored and len(stored) == len(of_label):
            bounds[label] = stored
    return bounds_table(bounds, metrics, is_named=len(runs) > 1)


def bounds_table(
    bounds: Mapping[str, Sequence[RunBound]], metrics: Collection[str] = (), *, is_named: bool
) -> Table | None:
    """Return a table of metrics with their best possible values; None if no metric to show has a bound.

    `bounds` has the bounds of the runs by label, and `metrics` are the metrics to show, by default all. Values of
    several runs are means, and the gap is that of the means. `is_named` says whether the lines begin with the labels.
    """
    lines = [["", "metric", "here", TITLE, "gap", "sharpest part"]]
    for label, of_runs in bounds.items():
        for metric, suffix in _metrics(of_runs):
            if metrics and metric not in metrics:
                continue
            lines.append([label, f"{metric_of(metric).title}{suffix}", *_cells(metric, suffix, of_runs)])
    if len(lines) == 1:
        return None
    if is_named:
        return boxed(lines, names=2)
    return boxed([line[1:] for line in lines])


def bound_sentences(label: str, bound: RunBound) -> Iterator[str]:
    """Yield a sentence for each metric of a run with a bound, and one for its bound at rounds if there is one."""
    for metric, suffix in _metrics([bound]):
        value, best, gap, part = _cells(metric, suffix, [bound])
        yield f"{label}: {metric_of(metric).title}{suffix} {value}, {TITLE} {best} ({part}), gap {gap}"


def _metrics(bounds: Sequence[RunBound]) -> Iterator[tuple[str, str]]:
    """Yield the metrics with a bound in all runs, and the words behind their titles."""
    for metric in METRICS:
        if not all(metric in bound.metrics and metric in bound.values for bound in bounds):
            continue
        yield metric, ""
        if all(metric in bound.at_rounds for bound in bounds):
            yield metric, AT_ROUNDS


def _cells(metric: str, suffix: str, bounds: Sequence[RunBound]) -> tuple[str, str, str, str]:
    """Return the mean value, the mean bound, the gap and the sharpest parts of a metric, as texts."""
    of_metric = [bound.at_rounds[metric] if suffix else bound.metrics[metric] for bound in bounds]
    value = fmean(bound.values[metric] for bound in bounds)
    best = fmean(bound.value for bound in of_metric)
    gap = replace(of_metric[0], parts={"mean": best}).gap(value)
    parts = dict.fromkeys(PART_WORDS.get(bound.part, bound.part) for bound in of_metric)
    gap_text = NO_GAP if gap is None else gap_in_words(gap)
    return *_texts(metric, value, best, of_metric[0]), gap_text, ", ".join(parts)


def gap_in_words(gap: float) -> str:
    """Return a gap in per cent.

    >>> gap_in_words(0.0086)
    '0.9 %'
    """
    return f"{100 * gap:,.1f} %".replace("-", "−")


def _number(value: float) -> str:
    """Return a number of jobs as text. Means over runs need not be whole."""
    return number_text(int(value) if value.is_integer() else value)


def _texts(metric: str, value: float, best: float, bound: MetricBound) -> tuple[str, str]:
    """Return a value and its bound in one unit, with a sign before the bound."""
    sign = "≤" if bound.is_upper else "≥"
    if metric_of(metric).unit != "h":
        return _number(value), f"{sign} {_number(best)}"
    unit, size = unit_of(max(value, best) or HOUR)
    return f"{number_text(value / size)} {unit}", f"{sign} {number_text(best / size)} {unit}"
