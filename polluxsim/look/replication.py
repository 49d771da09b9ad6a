"""What varies between runs, told apart from what replicates, and the pairs that follow: settings by metrics."""

from __future__ import annotations

from collections.abc import Sized
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from polluxsim.errors import InvalidInputError
from polluxsim.look.frames import check_column, rows_of, settings_in
from polluxsim.look.groups import REPLICATES, labels_of, policy_name
from polluxsim.look.metric_names import factor_of, unit_of
from polluxsim.look.samples import Measured, Sample, Samples
from polluxsim.shipped import shipped
from polluxsim.storage import flat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from polluxsim.look.frames import Row

SHOWN = ("avg_jct", "p99_jct", "makespan", "max_fairness", "p99_fairness", "restarts")
"""The columns of a table where none are asked for."""


class Cell(NamedTuple):
    """A metric under a setting: a lower bound where jobs were cut off.

    The mean is over all runs, with the interval of independent ones, in the unit the metric is shown in. The change is
    against the baseline, by pairs of runs alike in workload and seed, as a share of it; None for the baseline, where
    there are no pairs, and where jobs were cut off.
    """

    mean: Measured
    change: Measured | None
    is_bound: bool


class SettingsTable(NamedTuple):
    """Settings side by side: cells by setting and metric where any run has it, and what each is compared with."""

    cells: Mapping[str, Mapping[str, Cell]]
    metrics: Sequence[str]
    against: Mapping[str, str]


def settings_table(frame: pd.DataFrame, metrics: Sequence[str] = (), against: str | None = None) -> SettingsTable:
    """Return the mean of metrics under every setting, and their change against one of them.

    Runs that differ in seed or workload alone replicate a setting; all else sets runs apart.

    Parameters
    ----------
    frame
        A row for each run: settings by their path, like `policy.p`, and metrics [s].
    metrics
        Columns of it; by default those of `SHOWN` that any run has.
    against
        The setting to compare with, as `policy.p=-1` or by its label; by default the nearest to polluxsim's defaults.

    Raises
    ------
    InvalidInputError
        If no run has a metric, or none the setting to compare with.
    """
    shown = metrics or [name for name in SHOWN if name in frame and frame[name].notna().any()]
    for name in shown:
        check_column(frame, name, "metric")
    rows = rows_of(frame)
    labels = told_apart(rows)
    pairs = baselines(dict(zip(reversed(labels), reversed(rows), strict=True)), labels, against)
    samples = samples_of(rows, labels, shown)
    cut_off = {label for label, row in zip(labels, rows, strict=True) if _has_any(row.get("cut_off"))}
    cells = {label: _cells(samples, shown, (label, pairs[label]), cut_off) for label in pairs}
    return SettingsTable(cells, shown, pairs)


def _has_any(cell: object) -> bool:
    """Return whether a cell has names: Parquet gives an array, other tables a tuple, a number, or nothing."""
    return len(cell) > 0 if isinstance(cell, Sized) else isinstance(cell, int) and cell > 0


def _cells(samples: Samples, metrics: Sequence[str], pair: tuple[str, str], cut_off: Iterable[str]) -> dict[str, Cell]:
    label, against = pair
    found = {}
    for metric in metrics:
        if (mean := samples.measured((metric, label, ""))) is None:
            continue
        bound = label in cut_off and unit_of(metric)[1] == "h"
        is_known = label != against and not (unit_of(metric)[1] == "h" and {label, against} & set(cut_off))
        found[metric] = Cell(mean, change_of(samples, metric, pair) if is_known else None, bound)
    return found


def change_of(samples: Samples, metric: str, pair: tuple[str, str]) -> Measured | None:
    """Return the change of the first setting against the second; None without pairs, or against a mean of 0."""
    baseline = samples.measured((metric, pair[1], ""))
    return samples.measured((metric, *pair)) if baseline is not None and baseline.estimate.value else None


def samples_of(
    rows: Sequence[Row], labels: Sequence[str], metrics: Sequence[str], pooled: Sequence[str] = REPLICATES
) -> Samples:
    """Return metrics of runs by setting, in the units they are shown in; runs alike in what is pooled are pairs."""
    kept = [name for name in pooled if name != "seed"]
    return Samples(
        Sample(
            metric,
            label,
            float(row[metric]) / factor_of(metric),
            " ".join(str(row.get(name)) for name in kept),
            row.get("seed", 0) if "seed" in pooled else 0,
        )
        for label, row in zip(labels, rows, strict=True)
        for metric in metrics
        if metric in row
    )


def told_apart(rows: Sequence[Row]) -> list[str]:
    """Return a label for each run, of what sets it apart; by their folders too where runs are alike in all settings."""
    settings = [settings_in(row) for row in rows]
    labels = labels_of(settings)
    keys = [repr(sorted(row.items(), key=str)) for row in settings]
    if len(set(keys)) == len(keys):
        return labels
    return [
        f"{label} ({row.get('folder', number)})" for number, (label, row) in enumerate(zip(labels, rows, strict=True))
    ]


def baselines(settings: Mapping[str, Row], order: Iterable[str], against: str | None) -> dict[str, str]:
    """Return the label that each label is compared with, in order: of several that match, the one most alike.

    Raises
    ------
    InvalidInputError
        If none matches.
    """
    labels = list(dict.fromkeys(order))
    if against is None:
        chosen = [_nearest_to_defaults(settings, labels)]
    else:
        chosen = [label for label in labels if label == against or _matches(settings[label], against)]
    if not chosen:
        raise InvalidInputError(f"no setting is {against!r}, allowed are KEY=VALUE and {'; '.join(labels)}")
    return {label: min(chosen, key=lambda other: _distance(settings[label], settings[other])) for label in labels}


def _nearest_to_defaults(settings: Mapping[str, Row], labels: Sequence[str]) -> str:
    keys = {key for row in settings.values() for key in settings_in(row)} - set(REPLICATES)
    varying = {key for key in keys if len({repr(row.get(key)) for row in settings.values()}) > 1}
    defaults = _defaults()
    return min(labels, key=lambda label: sum(settings[label].get(key) != defaults.get(key) for key in varying))


@cache
def _defaults() -> dict[str, Any]:
    """Return the settings of a run where nothing is chosen."""
    configs = shipped("configs")
    chosen = yaml.safe_load((configs / "run.yaml").read_text(encoding="utf-8"))["defaults"]
    entries = [item for entry in chosen if isinstance(entry, dict) for item in entry.items()]
    files = {name: configs / name / f"{file}.yaml" for name, file in entries if file is not None and " " not in name}
    return flat({name: yaml.safe_load(file.read_text(encoding="utf-8")) for name, file in files.items()})


def _distance(row: Row, other: Row) -> int:
    return sum(row.get(key) != other.get(key) for key in {*settings_in(row), *settings_in(other)} - set(REPLICATES))


def _matches(row: Row, wanted: str) -> bool:
    key, _, text = wanted.partition("=")
    if key == "policy":
        return policy_name(row).lower() == text.lower()
    return key in row and row[key] == yaml.safe_load(text)
