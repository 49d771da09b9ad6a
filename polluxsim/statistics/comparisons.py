"""Tables of settings by metrics, and comparisons of settings with a baseline over pairs of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidInputError, did_you_mean
from polluxsim.metrics.declared import Metric, declared_in
from polluxsim.metrics.outcomes import NEVER_STARTED, NEVER_SUBMITTED, outcome
from polluxsim.metrics.summary import counted, of_run, summarise
from polluxsim.records.folders import policy_name
from polluxsim.records.results import Result, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.estimates import Measured, Sample, Samples
from polluxsim.statistics.forks import FROM_FORK, fork_times, parts_from_fork
from polluxsim.statistics.frames import (
    Row,
    check_column,
    columns_of,
    every_row_of,
    frame_of,
    is_setting,
    rows_of,
    settings_in,
)
from polluxsim.statistics.groups import REPLICATES, in_words, is_named, labels_of, names_of, no_baseline, settings_of
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

    Runs that differ only in seed or workload replicate a setting. `frame` has a row for each run: settings by their
    path, like `policy.p`, and metrics in the units of `Summary`. `metrics` are columns of it, by default those of
    `SHOWN` that a run has, and the metrics of the user. `baseline` is KEY=VALUE like `policy.p=-1`, the label of a
    setting, or the folder of a run, by default the setting of the first run.

    Raise InvalidInputError if a column is missing or not a number, or if no run is the baseline.
    """
    declared = declared_in(frame)
    names = metrics or [name for name in (*SHOWN, *declared) if name in frame and frame[name].notna().any()]
    for name in names:
        check_column(frame, name, "metric")
    shown = {name: metric_of(name, declared) for name in names}
    rows = rows_of(frame)
    labels = distinct_labels(rows)
    pairs = baselines(rows, labels, baseline)
    samples = samples_of(rows, labels, shown)
    unserved = with_unserved_jobs(rows, labels)
    for label, other in pairs.items():
        if not {label, other} & unserved.keys() and _leave_out_other_jobs(rows, labels, label, other):
            unserved[label] = UNEVEN
    cells = {label: _cells(samples, shown, (label, pairs[label]), unserved) for label in pairs}
    return SettingsTable(cells, shown, pairs, unserved, _incomplete(rows, labels))


def _count(cell: object) -> int:
    """Return the number of jobs in a cell. A dataset has an array of names, other tables a tuple or a number."""
    if isinstance(cell, Sized):
        return len(cell)
    return int(float(cell)) if isinstance(cell, Real) and float(cell) > 0 else 0


def _incomplete(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the jobs that did not complete, by setting and by what happened to them. A job counts once."""
    found: dict[str, Counter[str]] = {}
    for row, label in zip(rows, labels, strict=True):
        counts = Counter({words: _count(row.get(column)) for column, words in (UNSERVED | LEFT_OUT).items()})
        counts[NEVER_STARTED] = _count(row.get("never_started"))
        # Jobs that were cut off are stated as such, as never started, or as never submitted.
        cut_off = counts[UNSERVED["cut_off"]]
        counts[UNSERVED["cut_off"]] = max(cut_off - counts[NEVER_STARTED] - counts[NEVER_SUBMITTED], 0)
        if any(counts.values()):
            found[label] = found.get(label, Counter()) + counts
    return found


def _leave_out_other_jobs(rows: Sequence[Row], labels: Sequence[str], label: str, other: str) -> bool:
    """Return whether two settings leave out other jobs in a pair of runs, by the names of the jobs or their numbers."""
    by_setting: dict[str, dict[str, list[object]]] = {label: {}, other: {}}
    for row, own in zip(rows, labels, strict=True):
        if own in by_setting:
            cells = [row.get(column) for column in LEFT_OUT]
            names = [sorted(map(str, cell)) if isinstance(cell, Iterable) else _count(cell) for cell in cells]
            by_setting[own][repr([row.get(name) for name in REPLICATES])] = [name or 0 for name in names]
    ours, theirs = by_setting[label], by_setting[other]
    return any(ours[key] != theirs[key] for key in ours if key in theirs)


def with_unserved_jobs(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, str]:
    """Return the settings with jobs that were not served, and what happened to the jobs: a participle of `UNSERVED`.

    Times, ρ and GPU time of these settings are not comparable: they are lower bounds, or leave out jobs.
    """
    found: dict[str, str] = {}
    for column, participle in UNSERVED.items():
        counts = [_count(row.get(column)) for row in rows]
        for label, count in zip(labels, counts, strict=True):
            if count and participle not in found.get(label, ""):
                found[label] = f"{found[label]} or {participle}" if label in found else participle
    return found


def _cells(
    samples: Samples, metrics: Mapping[str, Metric], pair: tuple[str, str], unserved: Mapping[str, str]
) -> dict[str, Cell]:
    """Return the cells of a row by metric. `pair` contains the label of the setting and of its baseline."""
    label, baseline = pair
    cells = {}
    for metric, declared in metrics.items():
        if (mean := samples.mean(metric, label, *declared.limits)) is None:
            continue
        is_incomplete = needs_completion(metric, declared) and bool({label, baseline} & unserved.keys())
        is_compared = label != baseline and not is_incomplete
        change = samples.change(metric, label, baseline) if is_compared else None
        is_bound = UNSERVED["cut_off"] in unserved.get(label, "") and is_lower_bound(metric, declared)
        cells[metric] = Cell(mean, change, is_bound)
    return cells


def samples_of(
    rows: Sequence[Row], labels: Sequence[str], metrics: Mapping[str, Metric], pooled: Sequence[str] = REPLICATES
) -> Samples:
    """Return metrics of runs by setting, in the units in which they are shown.

    Runs with equal values of the `pooled` settings are pairs.
    """
    kept = [name for name in pooled if name != "seed"]
    workloads = [" ".join(str(row.get(name)) for name in kept) for row in rows]
    samples = [
        Sample(
            metric,
            label,
            float(row[metric]) / declared.factor,
            workload,
            row.get("seed", 0) if "seed" in pooled else 0,
        )
        for label, workload, row in zip(labels, workloads, rows, strict=True)
        for metric, declared in metrics.items()
        if metric in row
    ]
    return Samples(samples, _random_labels(rows, labels, workloads))


def _random_labels(rows: Sequence[Row], labels: Sequence[str], workloads: Sequence[str]) -> set[str]:
    """Return the labels with two runs of one workload that differ in some metric, also in one that is not shown."""
    first_of: dict[tuple[str, str], dict[str, Real]] = {}
    random_labels = set[str]()
    for label, workload, row in zip(labels, workloads, rows, strict=True):
        metrics = {key: value for key, value in row.items() if isinstance(value, Real) and not is_setting(key)}
        if first_of.setdefault((label, workload), metrics) != metrics:
            random_labels.add(label)
    return random_labels


def distinct_labels(rows: Sequence[Row]) -> list[str]:
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

    By default the baseline is the first label. `baseline` is a label, KEY=VALUE, or the folder of a run. If it matches
    several labels, the baseline of a label is the most similar of these. Raise InvalidInputError if it matches none.
    """
    settings = dict(zip(reversed(labels), reversed(rows), strict=True))
    order = list(dict.fromkeys(labels))
    chosen = order[:1]
    if baseline is not None:
        named = zip(labels, rows, strict=True)
        chosen = [label for label, row in named if is_named(row, (label, *names_of(row.get("folder"), row)), baseline)]
    if baseline is not None and not chosen:
        raise no_baseline(baseline, order)

    def distance(label: str, other: str) -> int:
        mine, its = settings_in(settings[label]), settings_in(settings[other])
        return sum(mine.get(key) != its.get(key) for key in {*mine, *its} - set(REPLICATES))

    return {label: min(chosen, key=partial(distance, label)) for label in order}


COMPARED = (
    "avg_jct", "p50_jct", "p99_jct", "avg_queueing_delay", "avg_waiting_time", "makespan", "restarts", "gpu_hours",
    "max_fairness",
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


class InCommon(NamedTuple):
    """A setting against its baseline over the jobs that complete in both runs of a pair."""

    num_jobs: int  # over all pairs
    others: Mapping[str, Counter[str]]  # jobs that the comparison leaves out, by setting and by what happened to them
    changes: Mapping[str, Measured]  # by metric; empty if the means over all jobs are comparable


class FromFork(NamedTuple):
    """Comparisons of runs from a fork on."""

    time: float  # of the fork [s]
    num_jobs: tuple[int, int]  # smallest and largest number of jobs not complete at the fork
    found: Sequence[Against]


def compared_from_forks(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[FromFork]:
    """Return the comparisons of runs from each of their forks on. `by` and `baseline` are as for `compared`."""
    found = []
    for time in fork_times(runs):
        parts = parts_from_fork(runs, time)
        has_baseline = baseline is None or any(
            is_named(settings_of(run), names_of(run.name, run.info), baseline) for run in parts
        )
        if has_baseline and len({repr(settings_of(run)) for run in parts}) > 1:
            counts = [len(of_run(run.result)) for run in parts]
            of_part = []
            for each in compared(parts, by, baseline):
                changes = {name: each.changes[name] for name in each.changes if name.partition(".")[0] in FROM_FORK}
                of_part.append(each._replace(changes=changes))
            found.append(FromFork(time, (min(counts), max(counts)), of_part))
    return found


def compared(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[Against]:
    """Return each setting of some runs against the baseline; runs with the same workload and seed are pairs.

    `by` is the setting to compare, like `policy` or `policy.p`: runs that agree in all other settings are pairs. By
    default all settings but the seed and the workload's file are compared. `baseline` names a setting, as for
    `settings_table`; by default it is the setting of the first run. Raise InvalidInputError if the runs have only one
    setting, or not the setting `by`, or if no run is the baseline.
    """
    runs, rows, declared = _distinct_runs(runs)
    labels, pooled = _labels_and_pooled(rows, by)
    if len(set(labels)) < 2:
        what = f"all runs have the same {by}" if by else "all runs have the same settings"
        raise InvalidInputError(f"nothing to compare: {what}; give runs of two settings")
    applications = sorted({key for row in rows for key in row if key.startswith("jct_by_application.")})
    metrics = {name: metric_of(name, declared) for name in (*COMPARED, *declared, *applications)}
    samples = samples_of(rows, labels, metrics, pooled)
    keyed: dict[str, dict[str, Run]] = {label: {} for label in labels}
    for run, row, label in zip(runs, rows, labels, strict=True):
        keyed[label][repr([row.get(key) for key in pooled])] = run
    found = []
    unserved = with_unserved_jobs(rows, labels)
    for label, other in baselines(rows, labels, baseline).items():
        if label != other:
            in_common = _in_common((label, keyed[label]), (other, keyed[other]), metrics)
            words = " or ".join(dict.fromkeys(unserved[each] for each in (label, other) if each in unserved))
            shown = [name for name, metric in metrics.items() if not (words and needs_completion(name, metric))]
            of_pairs = {name: samples.change(name, label, other) for name in shown}
            changes = {name: change for name, change in of_pairs.items() if change is not None}
            if in_common is not None and in_common.changes and not words:
                own = {name: change for name, change in changes.items() if not needs_completion(name, metrics[name])}
                changes = own | dict(in_common.changes)
            gains = _gains(keyed[label], keyed[other])
            found.append(Against(label, other, metrics, changes, gains, words, in_common))
    return found


def _in_common(
    ours: tuple[str, Mapping[str, Run]], baseline: tuple[str, Mapping[str, Run]], metrics: Mapping[str, Metric]
) -> InCommon | None:
    """Compare a setting with its baseline over the jobs that complete in both runs of a pair.

    The settings are a label and its runs by key of the pair. `metrics` are the declarations of the metrics to compare;
    metrics of the user are left out. Return None if all jobs complete in both runs of each pair, or if runs of a pair
    have other jobs of the same names. The changes are empty if the runs leave out the same jobs, because the means over
    all jobs are then comparable.
    """
    label, other = ours[0], baseline[0]
    others = {label: Counter[str](), other: Counter[str]()}
    samples = list[Sample]()
    num_jobs = 0
    are_comparable = True
    for number, key in enumerate(key for key in ours[1] if key in baseline[1]):
        results = {label: ours[1][key].result, other: baseline[1][key].result}
        if not _have_the_same_jobs(results[label], results[other]):
            return None
        outcomes = {name: _outcomes(result) for name, result in results.items()}
        common = _completed(outcomes[label]) & _completed(outcomes[other])
        num_jobs += len(common)
        left_out = (outcomes[label].keys() | outcomes[other].keys()) - common
        for name, result in results.items():
            others[name].update(outcomes[name].get(job, ABSENT) for job in left_out)
            samples += _samples_over(common, result, name, number, metrics)
            if {job.job for job in counted(result)} != common:
                are_comparable = False
    if not others[label]:
        return None
    changes: dict[str, Measured] = {}
    if not are_comparable:
        for metric in metrics:
            change = Samples(samples).change(metric, label, other)
            if change is not None:
                changes[metric] = change
    return InCommon(num_jobs, others, changes)


def _samples_over(
    jobs: Container[str], result: Result, label: str, pair: int, metrics: Iterable[str]
) -> Iterator[Sample]:
    """Yield the metrics of a run over some of its jobs. `pair` is the number of the pair of runs."""
    part = replace(result, job_records=tuple(job for job in result.job_records if job.job in jobs))
    summary = summarise(part)
    if summary is None:
        return
    values = columns_of(summary)
    for metric in metrics:
        if values.get(metric) is not None:
            yield Sample(metric, label, float(values[metric]), "", pair)


ABSENT = "not in the run"  # what happened to a job of the other run of a pair


def _outcomes(result: Result) -> dict[str, str]:
    """Return what happened to each job of a run, by name."""
    return {job.job: outcome(job, result.end_time) for job in of_run(result)}


def _completed(outcomes: Mapping[str, str]) -> set[str]:
    """Return the jobs that completed, given what happened to each job."""
    return {job for job, end in outcomes.items() if end == Status.COMPLETED}


def _have_the_same_jobs(one: Result, other: Result) -> bool:
    """Return whether jobs of two runs with equal names are the same jobs. Draws at another rate have other jobs."""
    jobs = {job.job: job for job in one.job_records}
    pairs = [(jobs[job.job], job) for job in other.job_records if job.job in jobs]
    return all(a.application == b.application and (a.submit_time == b.submit_time or bool(a.after)) for a, b in pairs)


def by_setting(runs: Sequence[Run], by: str | None = None) -> dict[str, list[Result]]:
    """Return the runs of each setting, with the settings that `compared` uses."""
    runs, rows, _ = _distinct_runs(runs)
    labels, _ = _labels_and_pooled(rows, by)
    return {label: [run.result for run, own in zip(runs, labels, strict=True) if own == label] for label in labels}


def _distinct_runs(runs: Sequence[Run]) -> tuple[list[Run], list[Row], dict[str, Metric]]:
    """Return the runs without repetitions, their rows in tables, and the declarations of the user's metrics."""
    frame = frame_of(runs)
    found = {repr(row): (run, row) for run, row in zip(runs, every_row_of(frame), strict=True)}
    return [run for run, _ in found.values()], [row for _, row in found.values()], declared_in(frame)


def _labels_and_pooled(rows: Sequence[Row], by: str | None) -> tuple[list[str], list[str]]:
    """Return the label of each run by the compared setting, and the settings in which pairs of runs agree."""
    if not by:
        return distinct_labels(rows), list(REPLICATES)
    keys = list(dict.fromkeys(key for row in rows for key in settings_in(row)))
    if by == "policy":
        return [policy_name(row) for row in rows], [key for key in keys if not key.startswith("policy.")]
    if by not in keys:
        known, meant = ", ".join(sorted(keys)), did_you_mean(by, ["policy", *keys])
        raise InvalidInputError(f"the runs have no setting {by!r}; give policy or one of {known}{meant}")
    left_out = {by}
    if by.endswith("._target_"):  # a part of another class has other settings too
        left_out |= {key for key in keys if key.startswith(by.removesuffix("_target_"))}
    return [in_words(by, row.get(by)) for row in rows], [key for key in keys if key not in left_out]


def _gains(ours: Mapping[str, Run], baseline: Mapping[str, Run]) -> list[Gain]:
    """Return the gains of jobs over pairs of runs with equal keys, in rising order."""
    found = []
    for key, run in ours.items():
        records = of_run(baseline[key].result) if key in baseline else ()
        before = {(job.job, job.submit_time): job.jct for job in records}
        for job in of_run(run.result):
            jct = before.get((job.job, job.submit_time))
            if jct is not None and job.jct is not None:
                seconds = job.jct - jct
                if abs(seconds) <= LEAST_CHANGE * jct:  # rounding, or too little to matter
                    seconds = 0.0
                found.append(Gain(job.job, run.name, seconds))
    return sorted(found, key=lambda gain: gain.seconds)


def frame_of_comparisons(found: Sequence[Against]) -> pd.DataFrame:
    """Return a row for each setting and metric: the baseline, the change as a share of it, its interval and the pairs.

    The change is nan if a metric is 0 in only one run of a pair. `pairs` counts the independent pairs.
    """
    rows = [
        (each.setting, metric, each.baseline, *change.estimate, change.num_units)
        for each in found
        for metric, change in each.changes.items()
    ]
    columns = ["setting", "metric", "baseline", "change", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns).set_index(["setting", "metric"])
