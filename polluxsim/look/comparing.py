"""Settings against a baseline over pairs of runs: changes with intervals, and the jobs that lose most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from polluxsim.errors import InvalidInputError
from polluxsim.folders import policy_name
from polluxsim.look.frames import every_row_of, frame_of, settings_in
from polluxsim.look.groups import REPLICATES, in_words
from polluxsim.look.metric_names import metric_of
from polluxsim.look.replication import baselines, samples_of, told_apart, with_jobs_cut_off
from polluxsim.metrics.declared import declared_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.look.frames import Row
    from polluxsim.look.samples import Measured
    from polluxsim.metrics.declared import Metric
    from polluxsim.records import Result
    from polluxsim.storage import Run

METRICS = ("avg_jct", "p50_jct", "p99_jct", "avg_queueing_delay", "makespan", "restarts", "gpu_hours", "max_fairness")


class Gain(NamedTuple):
    """A job of a run, and how much longer it takes than in the baseline [s]."""

    job: str
    run: str
    seconds: float


class Against(NamedTuple):
    """A setting against its baseline, both by their labels; without changes of times if jobs were cut off in a run.

    Changes are by metric, without the metrics that no pair of runs has; `metrics` has their declarations. The list of
    jobs has every job that completes in both runs of a pair, the largest gains first.
    """

    setting: str
    baseline: str
    metrics: Mapping[str, Metric]
    changes: dict[str, Measured]
    jobs: list[Gain]
    is_cut_off: bool


def compared(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[Against]:
    """Return each setting of some runs against the baseline; runs with the same workload and seed are pairs.

    `by` is the setting to compare, like `policy` or `policy.p`: runs that agree in all other settings are pairs. By
    default all settings but the seed and the workload's file are compared. `baseline` names a setting, as for
    `settings_table`; by default it is the setting of the first run.

    Raises
    ------
    InvalidInputError
        If no run has the setting or is the baseline, or all runs have the same settings.
    """
    runs, rows, declared = _unlike(runs)
    labels, pooled = _settings(rows, by)
    if len(set(labels)) < 2:
        what = f"all runs have the same {by}" if by else "all runs have the same settings"
        raise InvalidInputError(f"nothing to compare: {what}; give runs of two settings")
    applications = sorted({key for row in rows for key in row if key.startswith("jct_by_application.")})
    metrics = {name: metric_of(name, declared) for name in (*METRICS, *declared, *applications)}
    samples = samples_of(rows, labels, metrics, pooled)
    keyed: dict[str, dict[str, Run]] = {label: {} for label in labels}
    for run, row, label in zip(runs, rows, labels, strict=True):
        keyed[label][repr([row.get(key) for key in pooled])] = run
    found = []
    cut_off = with_jobs_cut_off(rows, labels)
    for label, other in baselines(rows, labels, baseline).items():
        if label != other:
            is_cut_off = bool({label, other} & cut_off)
            known = [name for name, metric in metrics.items() if not (is_cut_off and metric.unit == "h")]
            changes = {name: change for name in known if (change := samples.change(name, label, other)) is not None}
            gains = _gains(keyed[label], keyed[other])
            found.append(Against(label, other, metrics, changes, gains, is_cut_off))
    return found


def by_setting(runs: Sequence[Run], by: str | None = None) -> dict[str, list[Result]]:
    """Return the runs of each setting, with the settings that `compared` would have."""
    runs, rows, _ = _unlike(runs)
    labels, _ = _settings(rows, by)
    return {label: [run.result for run, own in zip(runs, labels, strict=True) if own == label] for label in labels}


def _unlike(runs: Sequence[Run]) -> tuple[list[Run], list[Row], dict[str, Metric]]:
    """Return runs without duplicates, their rows of a table, and the declarations of the user's metrics."""
    frame = frame_of(runs)
    found = {repr(row): (run, row) for run, row in zip(runs, every_row_of(frame), strict=True)}
    return [run for run, _ in found.values()], [row for _, row in found.values()], declared_in(frame)


def _settings(rows: Sequence[Row], by: str | None) -> tuple[list[str], list[str]]:
    """Return the label of each run, and the settings in which the runs of a pair agree."""
    if not by:
        return told_apart(rows), list(REPLICATES)
    keys = list(dict.fromkeys(key for row in rows for key in settings_in(row)))
    if by == "policy":
        return [policy_name(row) for row in rows], [key for key in keys if not key.startswith("policy.")]
    if by not in keys:
        raise InvalidInputError(f"the runs have no setting {by!r}; give policy or one of {', '.join(sorted(keys))}")
    left_out = {by}
    if by.endswith("._target_"):  # a part of another class has other settings too
        left_out |= {key for key in keys if key.startswith(by.removesuffix("_target_"))}
    return [in_words(by, row.get(by)) for row in rows], [key for key in keys if key not in left_out]


def _gains(ours: Mapping[str, Run], baseline: Mapping[str, Run]) -> list[Gain]:
    """Return how much longer each job takes than in the baseline, over the pairs of runs."""
    found = [gain for key in ours if key in baseline for gain in _by_job(ours[key], baseline[key])]
    return sorted(found, key=lambda gain: gain.seconds)


def _by_job(ours: Run, baseline: Run) -> Iterator[Gain]:
    before = {(job.job, job.submit_time): job.jct for job in baseline.result.job_records}
    for job in ours.result.job_records:
        jct = before.get((job.job, job.submit_time))
        if jct is not None and job.jct is not None:
            yield Gain(job.job, ours.name, job.jct - jct)


def as_frame(found: Sequence[Against]) -> pd.DataFrame:
    """Return a row for each setting and metric: the baseline, the change as a share of it, its interval and the pairs.

    The change is nan where a metric is 0 in one run of a pair only. `pairs` counts the independent pairs.
    """
    rows = [
        (each.setting, metric, each.baseline, *change.estimate, change.num_units)
        for each in found
        for metric, change in each.changes.items()
    ]
    columns = ["setting", "metric", "baseline", "change", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns).set_index(["setting", "metric"])
