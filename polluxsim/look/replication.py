"""Settings by metrics: means over the runs that replicate a setting, and changes against a baseline over pairs."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.look.frames import check_column, rows_of, settings_in
from polluxsim.look.groups import REPLICATES, is_named, labels_of, no_baseline
from polluxsim.look.metric_names import metric_of
from polluxsim.look.samples import Sample, Samples
from polluxsim.metrics.declared import declared_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from polluxsim.look.frames import Row
    from polluxsim.look.samples import Measured
    from polluxsim.metrics.declared import Metric

SHOWN = ("avg_jct", "p99_jct", "makespan", "max_fairness", "p99_fairness", "restarts")
"""Columns of a table by default, before the user's metrics."""


class Cell(NamedTuple):
    """A metric under a setting, which is a lower bound if jobs were cut off.

    The mean is over all runs, in the unit in which the metric is shown. The change is the ratio of geometric means
    over pairs of runs with the same workload and seed, minus 1. It is None for the baseline, without pairs, and if jobs
    were cut off.
    """

    mean: Measured
    change: Measured | None
    is_bound: bool


class SettingsTable(NamedTuple):
    """Settings side by side: cells by setting and metric, the metrics' declarations, and each setting's baseline."""

    cells: Mapping[str, Mapping[str, Cell]]
    metrics: Mapping[str, Metric]
    baselines: Mapping[str, str]


def settings_table(frame: pd.DataFrame, metrics: Sequence[str] = (), baseline: str | None = None) -> SettingsTable:
    """Return the mean of metrics under every setting, and their change against a baseline.

    Runs that differ only in seed or workload replicate a setting.

    Parameters
    ----------
    frame
        A row for each run: settings by their path, like `policy.p`, and metrics [s].
    metrics
        Columns of the frame; by default those of `SHOWN` that a run has, and the user's metrics.
    baseline
        The baseline: KEY=VALUE like `policy.p=-1`, the label of a setting, or the folder of a run. By default it is
        the setting of the first run.

    Raises
    ------
    InvalidInputError
        If no run has a metric, or no run is the baseline.
    """
    declared = declared_in(frame)
    names = metrics or [name for name in (*SHOWN, *declared) if name in frame and frame[name].notna().any()]
    for name in names:
        check_column(frame, name, "metric")
    shown = {name: metric_of(name, declared) for name in names}
    rows = rows_of(frame)
    labels = told_apart(rows)
    pairs = baselines(rows, labels, baseline)
    samples = samples_of(rows, labels, shown)
    cut_off = with_jobs_cut_off(rows, labels)
    cells = {label: _cells(samples, shown, (label, pairs[label]), cut_off) for label in pairs}
    return SettingsTable(cells, shown, pairs)


def with_jobs_cut_off(rows: Sequence[Row], labels: Sequence[str]) -> set[str]:
    """Return the labels of runs in which jobs were cut off, so that times are lower bounds."""
    return {label for label, row in zip(labels, rows, strict=True) if _has_any(row.get("cut_off"))}


def _has_any(cell: object) -> bool:
    """Return whether a cell has names: Parquet gives an array, other tables a tuple, a number, or nothing."""
    return len(cell) > 0 if isinstance(cell, Sized) else isinstance(cell, int) and cell > 0


def _cells(
    samples: Samples, metrics: Mapping[str, Metric], pair: tuple[str, str], cut_off: Iterable[str]
) -> dict[str, Cell]:
    label, baseline = pair
    cells = {}
    for metric, declared in metrics.items():
        if (mean := samples.mean(metric, label, *declared.limits)) is None:
            continue
        is_time = declared.unit == "h"
        is_compared = label != baseline and not (is_time and {label, baseline} & set(cut_off))
        change = samples.change(metric, label, baseline) if is_compared else None
        cells[metric] = Cell(mean, change, is_bound=label in cut_off and is_time)
    return cells


def samples_of(
    rows: Sequence[Row], labels: Sequence[str], metrics: Mapping[str, Metric], pooled: Sequence[str] = REPLICATES
) -> Samples:
    """Return metrics of runs by setting, in the units in which they are shown.

    Runs with equal values of the `pooled` settings are pairs.
    """
    kept = [name for name in pooled if name != "seed"]
    return Samples(
        Sample(
            metric,
            label,
            float(row[metric]) / declared.factor,
            " ".join(str(row.get(name)) for name in kept),
            row.get("seed", 0) if "seed" in pooled else 0,
        )
        for label, row in zip(labels, rows, strict=True)
        for metric, declared in metrics.items()
        if metric in row
    )


def told_apart(rows: Sequence[Row]) -> list[str]:
    """Return a label for each run from the settings that differ, with its folder if runs have equal settings."""
    settings = [settings_in(row) for row in rows]
    labels = labels_of(settings)
    keys = [repr(sorted(row.items(), key=str)) for row in settings]
    if len(set(keys)) == len(keys):
        return labels
    return [
        f"{label} ({row.get('folder', number)})" for number, (label, row) in enumerate(zip(labels, rows, strict=True))
    ]


def baselines(rows: Sequence[Row], labels: Sequence[str], baseline: str | None = None) -> dict[str, str]:
    """Return the label of the baseline of each label, in order of first appearance.

    By default the baseline is the first label. `baseline` names another one, as a label, KEY=VALUE, or the folder of a
    run. If it names several labels, the baseline of a label is the most similar of these.

    Raises
    ------
    InvalidInputError
        If no run is the baseline.
    """
    settings = dict(zip(reversed(labels), reversed(rows), strict=True))
    order = list(dict.fromkeys(labels))
    chosen = order[:1]
    if baseline is not None:
        named = zip(labels, rows, strict=True)
        chosen = [label for label, row in named if is_named(row, (label, row.get("folder")), baseline)]
    if baseline is not None and not chosen:
        raise no_baseline(baseline, order)
    return {label: min(chosen, key=lambda other: _distance(settings[label], settings[other])) for label in order}


def _distance(row: Row, other: Row) -> int:
    return sum(row.get(key) != other.get(key) for key in {*settings_in(row), *settings_in(other)} - set(REPLICATES))
