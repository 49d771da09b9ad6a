"""Tables of settings by metrics, and comparisons of settings with a baseline over pairs of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from numbers import Real
from typing import NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidInputError, did_you_mean
from polluxsim.metrics.declared import Metric, declared_in
from polluxsim.metrics.outcomes import NEVER_STARTED, NEVER_SUBMITTED
from polluxsim.metrics.summary import of_run
from polluxsim.records.folders import policy_name
from polluxsim.records.results import Result
from polluxsim.records.storage import Run
from polluxsim.statistics.baselines import baselines
from polluxsim.statistics.common_jobs import InCommon, common_to_pairs
from polluxsim.statistics.estimates import Measured, Sample, Samples
from polluxsim.statistics.forks import FROM_FORK, fork_times, parts_from_fork
from polluxsim.statistics.frames import (
    Row,
    check_column,
    every_row_of,
    frame_of,
    is_setting,
    rows_of,
    settings_in,
)
from polluxsim.statistics.groups import REPLICATES, in_words, is_named, labels_of, names_of, settings_of
from polluxsim.statistics.metric_lines import is_lower_bound, metric_of, needs_completion

SHOWN = ("avg_jct", "p99_jct", "makespan", "max_fairness", "p99_fairness", "restarts")
"""Columns of a table by default, before the user's metrics."""


UNSERVED = {"cut_off": "cut off", "rejected": "rejected"}
"""Columns that count jobs that were not served, and what happened to these jobs."""


LEFT_OUT = {"cancelled": "cancelled", "failed": "failed", "not_submitted": NEVER_SUBMITTED}
"""Columns that count other jobs that the means leave out, and what happened to these jobs."""

UNEVEN = "left out in only one run of a pair"
"""What happened to jobs if the runs of a pair leave out other jobs."""


class Cell(NamedTuple):
    """A metric under a setting."""

    mean: Measured  # over all runs, in the unit that tables show
    # Ratio of geometric means over pairs of runs with the same workload and seed, minus 1. None for the baseline,
    # without pairs, and for times, ρ and GPU time if jobs were not served.
    change: Measured | None
    is_bound: bool  # whether the mean is a lower bound, because jobs were cut off


class SettingsTable(NamedTuple):
    """Settings side by side."""

    cells: Mapping[str, Mapping[str, Cell]]  # by setting and metric
    metrics: Mapping[str, Metric]  # declarations
    baselines: Mapping[str, str]  # by setting
    unserved: Mapping[str, str]  # settings with jobs that were not served, and what happened to the jobs
    # Jobs that did not complete, over all runs, by setting and by what happened to them; only settings with such jobs.
    incomplete: Mapping[str, Counter[str]] = {}


def settings_table(frame: pd.DataFrame, metrics: Sequence[str] = (), baseline: str | None = None) -> SettingsTable:
    """Return the mean of metrics under every setting, and their change against a baseline.

    Runs that differ only in `seed`, `workload.seed` or `workload.path` replicate a setting. `frame` has a row for each
    run: settings by their path, like `policy.p`, and metrics in the units of `Summary`. `metrics` are columns of it, by
    default those of `SHOWN` that a run has, and the metrics of the user. `baseline` is KEY=VALUE like `policy.p=-1`,
    the label of a setting, or the folder of a run. By default each setting is compared with the first setting whose
    other settings of the workload are equal.

    Raise InvalidInputError if a column is missing or not a number, or if no run is the baseline.
    """
    declared = declared_in(frame)
    names = list(metrics)
    if not metrics:
        for name in (*SHOWN, *declared):
            if name in frame and frame[name].notna().any():
                names.append(name)
    for name in names:
        check_column(frame, name, "metric")
    metrics_of_table = {name: metric_of(name, declared) for name in names}
    rows = rows_of(frame)
    return table_of(rows, distinct_labels(rows), metrics_of_table, baseline)


def table_of(
    rows: Sequence[Row],
    labels: Sequence[str],
    metrics: Mapping[str, Metric],
    baseline: str | None = None,
    pooled: Sequence[str] = REPLICATES,
) -> SettingsTable:
    """Return the table of runs whose settings have these labels. Runs with equal `pooled` settings are pairs.

    `baseline` is as for `settings_table`. Raise InvalidInputError if no run is the baseline.
    """
    pairs = baselines(rows, labels, baseline, pooled)
    samples = samples_of(rows, labels, metrics, pooled)
    unserved = with_unserved_jobs(rows, labels)
    cells = {}
    for label, other in pairs.items():
        is_served = label not in unserved and other not in unserved
        if is_served and _leave_out_other_jobs(rows, labels, label, other):
            unserved[label] = UNEVEN
    # A baseline can be marked after a setting that is compared with it. So the cells follow when all are marked.
    for label, other in pairs.items():
        cells[label] = _cells(samples, metrics, (label, other), unserved)
    return SettingsTable(cells, metrics, pairs, unserved, _incomplete(rows, labels))


def _count(cell: object) -> int:
    """Return the number of jobs in a cell. A dataset has an array of names, other tables a tuple or a number."""
    if isinstance(cell, Sized):
        return len(cell)
    if isinstance(cell, Real) and float(cell) > 0:  # an empty cell is None or nan, which is not above 0
        return int(float(cell))
    return 0


def _incomplete(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the jobs that did not complete, by setting and by what happened to them. A job counts once."""
    counts_by_setting: dict[str, Counter[str]] = {}
    for row, label in zip(rows, labels, strict=True):
        counts = Counter[str]()
        for column, words in (UNSERVED | LEFT_OUT).items():
            counts[words] = _count(row.get(column))
        counts[NEVER_STARTED] = _count(row.get("never_started"))
        # Jobs that were cut off are stated as such, as never started, or as never submitted.
        cut_off = counts[UNSERVED["cut_off"]]
        counts[UNSERVED["cut_off"]] = max(cut_off - counts[NEVER_STARTED] - counts[NEVER_SUBMITTED], 0)
        if any(counts.values()):
            # The plus of counters leaves out numbers of 0.
            counts_by_setting[label] = counts_by_setting.get(label, Counter()) + counts
    return counts_by_setting


def _leave_out_other_jobs(rows: Sequence[Row], labels: Sequence[str], label: str, other: str) -> bool:
    """Return whether the two runs of some pair, one of each setting, leave out different jobs.

    The jobs differ by name or, if only counts are known, by count.
    """
    by_setting: dict[str, dict[str, list[object]]] = {label: {}, other: {}}  # left-out jobs by replicate
    for row, label_of_row in zip(rows, labels, strict=True):
        if label_of_row not in by_setting:
            continue
        jobs: list[object] = []
        for column in LEFT_OUT:
            cell = row.get(column)
            names: list[str] | int
            if isinstance(cell, Iterable):
                names = sorted(map(str, cell))
            else:
                names = _count(cell)
            jobs.append(names or 0)  # no names are as good as a number of 0
        replicate = repr([row.get(name) for name in REPLICATES])
        by_setting[label_of_row][replicate] = jobs
    for replicate, jobs in by_setting[label].items():
        if replicate in by_setting[other] and by_setting[other][replicate] != jobs:
            return True
    return False


def with_unserved_jobs(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, str]:
    """Return the settings with jobs that were not served, and what happened to the jobs: a participle of `UNSERVED`.

    Times, ρ and GPU time of these settings are not comparable: they are lower bounds, or leave out jobs.
    """
    participles: dict[str, list[str]] = {}
    for column, participle in UNSERVED.items():
        for label, row in zip(labels, rows, strict=True):
            if _count(row.get(column)) and participle not in participles.get(label, ()):
                participles.setdefault(label, []).append(participle)
    return {label: " or ".join(participles_of_label) for label, participles_of_label in participles.items()}


def _cells(
    samples: Samples, metrics: Mapping[str, Metric], pair: tuple[str, str], unserved: Mapping[str, str]
) -> dict[str, Cell]:
    """Return the cells of a row by metric. `pair` contains the label of the setting and of its baseline."""
    label, baseline = pair
    cells = {}
    for metric, declared in metrics.items():
        mean = samples.mean(metric, label, *declared.limits)
        if mean is None:
            continue
        has_unserved_jobs = label in unserved or baseline in unserved
        is_incomplete = needs_completion(metric, declared) and has_unserved_jobs
        is_compared = label != baseline and not is_incomplete
        change = None
        if is_compared:
            change = samples.change(metric, label, baseline)
        is_bound = UNSERVED["cut_off"] in unserved.get(label, "") and is_lower_bound(metric, declared)
        cells[metric] = Cell(mean, change, is_bound)
    return cells


def samples_of(
    rows: Sequence[Row], labels: Sequence[str], metrics: Mapping[str, Metric], pooled: Sequence[str] = REPLICATES
) -> Samples:
    """Return metrics of runs by setting, in the units in which they are shown.

    Runs with equal values of the `pooled` settings are pairs.
    """
    workload_settings = [name for name in pooled if name != "seed"]
    workloads = []
    for row in rows:
        values = [str(row.get(name)) for name in workload_settings]
        workloads.append(" ".join(values))
    samples = []
    for label, workload, row in zip(labels, workloads, rows, strict=True):
        # If seeds are compared, runs of two seeds are a pair, and must not differ in the seed of their samples.
        seed = row.get("seed", 0) if "seed" in pooled else 0
        for metric, declared in metrics.items():
            if metric in row:
                samples.append(Sample(metric, label, float(row[metric]) / declared.factor, workload, seed))
    return Samples(samples, _random_labels(rows, labels, workloads))


def _random_labels(rows: Sequence[Row], labels: Sequence[str], workloads: Sequence[str]) -> set[str]:
    """Return the labels with two runs of one workload that differ in some metric, also in one that is not shown."""
    metrics_of_first_run: dict[tuple[str, str], dict[str, Real]] = {}
    random_labels = set[str]()
    for label, workload, row in zip(labels, workloads, rows, strict=True):
        metrics = _numbers_in(row)
        if metrics_of_first_run.setdefault((label, workload), metrics) != metrics:
            random_labels.add(label)
    return random_labels


def _numbers_in(row: Row) -> dict[str, Real]:
    """Return the metrics of a run that are numbers, by column."""
    numbers = {}
    for key, value in row.items():
        if isinstance(value, Real) and not is_setting(key):
            numbers[key] = value
    return numbers


def distinct_labels(rows: Sequence[Row]) -> list[str]:
    """Return a label for each run from the settings that differ.

    If some runs have equal settings, each label also has the folder of its run, or the number of a row without one.
    """
    settings = [settings_in(row) for row in rows]
    labels = labels_of(settings)
    keys = [repr(sorted(row.items(), key=str)) for row in settings]
    if len(set(keys)) == len(keys):
        return labels
    names = [row.get("folder", number) for number, row in enumerate(rows)]
    return [f"{label} ({name})" for label, name in zip(labels, names, strict=True)]


COMPARED = (
    "avg_jct", "p50_jct", "p99_jct", "avg_queueing_delay", "avg_waiting_time", "p50_waiting_time",
    "p90_waiting_time", "p95_waiting_time", "p99_waiting_time", "makespan", "restarts", "gpu_hours", "max_fairness",
)  # fmt: skip
"""Metrics that `compared` compares, besides those of the user and the JCT of each application."""


LEAST_CHANGE = 1e-9  # smaller changes of a JCT, as a share of it, count as none


class Gain(NamedTuple):
    """The additional time that a job takes compared with the baseline."""

    job: str
    run: str
    seconds: float  # JCT minus JCT in the baseline [s]


class Against(NamedTuple):
    """A setting against its baseline."""

    setting: str  # label
    baseline: str  # label
    metrics: Mapping[str, Metric]  # declarations
    # By metric that a pair of runs has. Without times, ρ and GPU time if jobs were not served. If the runs of a pair
    # leave out other jobs, the metrics are over the jobs that complete in both.
    changes: dict[str, Measured]
    jobs: list[Gain]  # every job that completes in both runs of a pair, by rising `seconds`
    unserved: str  # what happened to jobs that were not served in a run, like "rejected"; "" if all were served
    in_common: InCommon | None = None  # the jobs that complete in both runs of a pair; None if these are all jobs


class FromFork(NamedTuple):
    """Comparisons of runs from a fork on."""

    time: float  # of the fork [s]
    num_jobs: tuple[int, int]  # smallest and largest number of jobs not complete at the fork
    comparisons: Sequence[Against]


def compared_from_forks(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[FromFork]:
    """Return the comparisons of runs from each of their forks on. `by` and `baseline` are as for `compared`."""
    from_forks = []
    for time in fork_times(runs):
        parts = parts_from_fork(runs, time)
        if baseline is not None and not _have_baseline(parts, baseline):
            continue
        # Parts of runs of one setting leave nothing to compare, which `compared` would report as an error.
        if len({repr(settings_of(run)) for run in parts}) < 2:
            continue
        comparisons = []
        for comparison in compared(parts, by, baseline):
            changes = {}
            for name, change in comparison.changes.items():
                if name.partition(".")[0] in FROM_FORK:
                    changes[name] = change
            comparisons.append(comparison._replace(changes=changes))
        counts = [len(of_run(run.result)) for run in parts]
        from_forks.append(FromFork(time, (min(counts), max(counts)), comparisons))
    return from_forks


def _have_baseline(runs: Sequence[Run], baseline: str) -> bool:
    """Return whether a baseline names one of the runs."""
    return any(is_named(settings_of(run), names_of(run.name, run.info), baseline) for run in runs)


def compared(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[Against]:
    """Return each setting of some runs against the baseline; runs with the same workload and seed are pairs.

    `by` is the setting to compare, like `policy` or `policy.p`: runs that agree in all other settings are pairs. By
    default all settings but the seed and the workload's file are compared. `baseline` names a setting, as for
    `settings_table`. By default it is the first value of `by`, or without `by` the first setting with the same
    workload. Raise InvalidInputError if the runs have only one setting, each another workload, or not the setting
    `by`, or if no run is the baseline.
    """
    runs, rows, declared = _distinct_runs(runs)
    labels, pooled = _labels_and_pooled(rows, by)
    if len(set(labels)) < 2:
        raise InvalidInputError(
            f"nothing to compare: all runs have the same {by or 'settings'}; give runs of two settings"
        )
    applications: set[str] = set()
    for row in rows:
        applications.update(key for key in row if key.startswith("jct_by_application."))
    metrics = {name: metric_of(name, declared) for name in (*COMPARED, *declared, *sorted(applications))}
    samples = samples_of(rows, labels, metrics, pooled)
    runs_by_key: dict[str, dict[str, Run]] = {label: {} for label in labels}
    for run, row, label in zip(runs, rows, labels, strict=True):
        key_of_pair = repr([row.get(key) for key in pooled])
        runs_by_key[label][key_of_pair] = run
    unserved = with_unserved_jobs(rows, labels)
    if by and baseline is None:
        # The user chose the setting to compare, which may be one of the workload.
        pairs = dict.fromkeys(labels, labels[0])
    else:
        pairs = baselines(rows, labels, baseline)
    if all(label == other for label, other in pairs.items()):
        raise InvalidInputError(
            "nothing to compare: each setting has another workload; give --by SETTING or --baseline NAME to compare "
            "different workloads"
        )
    comparisons = []
    for label, other in pairs.items():
        if label == other:
            continue
        pair = ((label, runs_by_key[label]), (other, runs_by_key[other]))
        comparisons.append(_against(pair, metrics, samples, unserved))
    return comparisons


def _against(
    pair: tuple[tuple[str, Mapping[str, Run]], tuple[str, Mapping[str, Run]]],
    metrics: Mapping[str, Metric],
    samples: Samples,
    unserved: Mapping[str, str],
) -> Against:
    """Return the comparison of a setting with its baseline.

    `pair` contains the setting, then the baseline: the label of each, and its runs. Two runs that are compared have the
    same key.
    """
    (label, our_runs), (other, baseline_runs) = pair
    in_common = common_to_pairs(*pair, metrics)
    # A dict keeps the order, and each participle once.
    participles: dict[str, None] = {}
    for name in (label, other):
        if name in unserved:
            participles[unserved[name]] = None
    changes = {}
    for name, metric in metrics.items():
        if participles and needs_completion(name, metric):
            continue
        change = samples.change(name, label, other)
        if change is not None:
            changes[name] = change
    if in_common is not None and in_common.changes and not participles:
        # The means over all jobs are not comparable, those over the common jobs are.
        for name, metric in metrics.items():
            if needs_completion(name, metric):
                changes.pop(name, None)
        changes |= in_common.changes
    gains = _gains(our_runs, baseline_runs)
    return Against(label, other, metrics, changes, gains, " or ".join(participles), in_common)


def by_setting(runs: Sequence[Run], by: str | None = None) -> dict[str, list[Result]]:
    """Return the results of each setting, with the settings that `compared` uses."""
    results = {}
    for label, runs_of_setting in runs_by_setting(runs, by).items():
        results[label] = [run.result for run in runs_of_setting]
    return results


def runs_by_setting(runs: Sequence[Run], by: str | None = None) -> dict[str, list[Run]]:
    """Return the runs of each setting, with the settings that `compared` uses."""
    runs, rows, _ = _distinct_runs(runs)
    labels, _ = _labels_and_pooled(rows, by)
    runs_of_labels: dict[str, list[Run]] = {}
    for run, label in zip(runs, labels, strict=True):
        runs_of_labels.setdefault(label, []).append(run)
    return runs_of_labels


def _distinct_runs(runs: Sequence[Run]) -> tuple[list[Run], list[Row], dict[str, Metric]]:
    """Return the runs without repetitions, their rows in tables, and the declarations of the user's metrics."""
    frame = frame_of(runs)
    # A user can name a run twice, by its own folder and by that of its sweep. It is one pair, not two.
    distinct = {repr(row): (run, row) for run, row in zip(runs, every_row_of(frame), strict=True)}
    distinct_runs: list[Run] = []
    distinct_rows: list[Row] = []
    for run, row in distinct.values():
        distinct_runs.append(run)
        distinct_rows.append(row)
    return distinct_runs, distinct_rows, declared_in(frame)


def _labels_and_pooled(rows: Sequence[Row], by: str | None) -> tuple[list[str], list[str]]:
    """Return the label of each run by the compared setting, and the settings in which pairs of runs agree.

    Raise InvalidInputError if no run has the setting `by`.
    """
    if not by:
        return distinct_labels(rows), list(REPLICATES)
    keys_of_all: dict[str, None] = {}
    for row in rows:
        keys_of_all |= dict.fromkeys(settings_in(row))
    keys = list(keys_of_all)
    if by == "policy":
        # The settings of a policy belong to it. Those of two policies need not agree.
        labels = list(map(policy_name, rows))
        return labels, [key for key in keys if not key.startswith("policy.")]
    if by not in keys:
        choices = ", ".join(sorted(keys))
        meant = did_you_mean(by, ["policy", *keys])
        raise InvalidInputError(f"the runs have no setting {by!r}; give policy or one of {choices}{meant}")
    left_out = {by}
    if by.endswith("._target_"):  # a part of another class has other settings too
        part = by.removesuffix("_target_")
        left_out |= {key for key in keys if key.startswith(part)}
    labels = [in_words(by, row.get(by)) for row in rows]
    return labels, [key for key in keys if key not in left_out]


def _gains(ours: Mapping[str, Run], baseline: Mapping[str, Run]) -> list[Gain]:
    """Return the gains of jobs over pairs of runs with equal keys, in rising order."""
    gains = []
    for key, run in ours.items():
        if key not in baseline:
            continue
        # Draws at another rate have other jobs of the same names, with other submissions.
        baseline_jcts = {(job.job, job.submit_time): job.jct for job in of_run(baseline[key].result)}
        for job in of_run(run.result):
            baseline_jct = baseline_jcts.get((job.job, job.submit_time))
            if baseline_jct is None or job.jct is None:
                continue
            seconds = job.jct - baseline_jct
            # Rounding, or too little to matter
            if abs(seconds) <= LEAST_CHANGE * baseline_jct:
                seconds = 0.0
            gains.append(Gain(job.job, run.name, seconds))
    return sorted(gains, key=lambda gain: gain.seconds)


def frame_of_comparisons(comparisons: Sequence[Against]) -> pd.DataFrame:
    """Return a row for each setting and metric: the baseline, the change as a share of it, its interval and the pairs.

    The change is nan if a metric is 0 in only one run of a pair. `pairs` counts the independent pairs.
    """
    rows = []
    for comparison in comparisons:
        for metric, change in comparison.changes.items():
            rows.append((comparison.setting, metric, comparison.baseline, *change.estimate, change.num_units))
    columns = ["setting", "metric", "baseline", "change", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns).set_index(["setting", "metric"])
