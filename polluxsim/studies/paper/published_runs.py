"""The published values of single runs: their means over the workloads that ran, and completion times of single jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import isnan, log
from pathlib import Path

import pandas as pd

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import read_rows
from polluxsim.studies.paper.experiments import DATA, Experiment, Inputs
from polluxsim.studies.paper.published import UNITS, Published, RuleKind, VerdictRule
from polluxsim.studies.paper.runs import Runs

VALUES = "published_runs.csv"
"""File of the published values of single workloads, for users with only some of the workloads."""

METRICS = ("average JCT", "99th percentile JCT", "mean JCT imagenet", "last completion")  # columns of this file [s]

# Metrics that compare each job's completion time with the published one.
CORRELATION = "correlation of log JCTs"
MEDIAN_DIFFERENCE = "median difference of JCTs"
P90_DIFFERENCE = "90th percentile difference of JCTs"
SAME_JOBS = "jobs completed as published"

PER_JOB = (CORRELATION, MEDIAN_DIFFERENCE, P90_DIFFERENCE, SAME_JOBS)


def over_the_same_workloads(runs: Runs) -> list[Published]:
    """Return the published values over the workloads that ran.

    On published workloads, a value over other workloads is replaced by the mean over the workloads that ran. The number
    is not judged if this mean is unknown. On generated workloads the values do not change.
    """
    if not runs.inputs.is_measured or runs.experiment.own_workload:
        return list(runs.experiment.published)
    return [_over(runs, row) for row in runs.experiment.published]


def _over(runs: Runs, row: Published) -> Published:
    """Return a published value over the workloads that ran; not judged if the value over them is unknown."""
    arms = [row.arm]
    if row.against:
        arms.append(row.against)
    ran = [runs.workloads(arm) for arm in arms]
    if not row.workloads or not all(ran):
        return row
    are_published_workloads = all(workload_numbers(row.workloads) == set(workloads) for workloads in ran)
    if are_published_workloads:
        return row
    means = list[float]()
    for arm, workloads in zip(arms, ran, strict=True):
        name = runs.experiment.published_runs.get(arm, "")
        values = [_values().get((name, workload, row.metric)) for workload in workloads]
        known_values = [value for value in values if value is not None]
        # A mean over some of the workloads that ran would be over other workloads than ours.
        if len(known_values) == len(values):
            means.append(sum(known_values) / len(known_values))
    are_equal_workloads = len(set(map(frozenset, ran))) == 1
    # Values of the paper are over its own workloads only, and a change needs both arms on the same ones.
    if not row.by_simulator or len(means) < len(arms) or not are_equal_workloads:
        return replace(row, measured=VerdictRule(RuleKind.NONE), embedded=VerdictRule(RuleKind.NONE))
    value = means[0]
    if row.against:
        value = means[0] / means[1] - 1
    # The mean has more digits than the published value, so no digit is its last one.
    return replace(row, value=value / UNITS[row.unit], step=0.0, workloads=",".join(ran[0]))


def workload_numbers(text: str) -> set[str]:
    """Return the workloads in a text like "6" or "1-8".

    >>> sorted(workload_numbers("1-3"))
    ['1', '2', '3']
    """
    first, _, last = text.partition("-")
    return set(map(str, range(int(first), int(last or first) + 1)))


@cache
def _values() -> Mapping[tuple[str, str, str], float]:
    """Return the published values of single workloads [s], by run, workload and metric."""
    values = {}
    for row in read_rows(shipped("experiments") / VALUES, ("run", "workload", *METRICS)):
        for metric in METRICS:
            if row.values[metric]:
                values[row.text("run"), str(row.values["workload"]), metric] = row.number(metric, above=0)
    return values


def published_times(artifact: Path, run: str, workload: str) -> Mapping[str, float]:
    """Return the completion time [s] of every job of a run of Pollux's artifact; {} if the artifact lacks the run.

    Raise InvalidInputError if the file of the run is unreadable.
    """
    path = artifact / run / "summary.json"
    if not run or not path.is_file():
        return {}
    try:
        times = json.loads(path.read_text(encoding="utf-8"))["jcts"].get(f"workload-{workload}", {})
        return {str(job): float(seconds) for job, seconds in times.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path}: not a summary of the artifact's, {error!r}") from None


def job_times_file(experiment: Experiment, inputs: Inputs, arm: str) -> tuple[Path, str] | None:
    """Return the file with the published completion times of an arm's jobs, and the policy to look up in it.

    None if the experiment names no file in the data folder, or if the file does not exist.
    """
    text = experiment.published_runs.get(arm, "")
    if inputs.data is None or not text.startswith(f"{DATA}/"):
        return None
    name, _, policy = text.removeprefix(f"{DATA}/").partition("#")
    path = inputs.data / name
    if not path.is_file():
        return None
    return path, policy


def read_job_times(path: Path, policy: str = "") -> dict[str, float]:
    """Read the completion time of each completed job [s].

    A CSV file has `job_id` and `jct_s` or `listed_jct_s`, empty for jobs that did not complete. A JSON file has a list
    `jct_s` in order of job numbers, or one under `policies` for each policy. Raise InvalidInputError for other content.
    """
    if path.suffix == ".csv":
        times_of_jobs = {}
        for row in read_rows(path, ("job_id",)):
            # The later column counts if a row has both.
            for column in ("jct_s", "listed_jct_s"):
                if row.has(column):
                    times_of_jobs[row.text("job_id")] = row.number(column, above=0)
        return times_of_jobs
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if policy:
            content = content["policies"][policy]
        times = content["jct_s"]
        return {str(number): float(seconds) for number, seconds in enumerate(times)}
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path}: cannot be read as completion times of jobs ({error!r})") from None


def compare_job_times(ours: Mapping[str, float], published: Mapping[str, float]) -> dict[str, float]:
    """Return the `PER_JOB` metrics of two runs, given the completion time of each job [s], NaN if it did not complete.

    Differences are |ours / published − 1| over the jobs that completed in both. With fewer than three of
    these jobs, there are no differences and no correlation.

    >>> found = compare_job_times({"a": 10, "b": 110, "c": 1050}, {"a": 10, "b": 100, "c": 1000})
    >>> {metric: round(value, 4) for metric, value in found.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'jobs completed as published': 1.0, 'correlation of log JCTs': 0.9998,
     'median difference of JCTs': 0.05, '90th percentile difference of JCTs': 0.09}
    """
    series = [pd.Series(times, dtype=float) for times in (ours, published)]
    times = pd.concat(series, axis=1, keys=["ours", "theirs"]).dropna(how="all")
    both = times.dropna()
    values = {}
    if len(times):
        values[SAME_JOBS] = len(both) / len(times)
    if len(both) < 3:
        return values
    differences = (both["ours"] / both["theirs"] - 1).abs()
    logs = both.map(log)
    correlation = float(logs["ours"].corr(logs["theirs"]))
    if isnan(correlation):  # all times of a run are equal, so they do not follow the published ones
        correlation = 0.0
    return values | {
        CORRELATION: correlation,
        MEDIAN_DIFFERENCE: float(differences.median()),
        P90_DIFFERENCE: float(differences.quantile(0.9)),
    }
