"""The runs of an experiment: planned, made and read back, with the published values of single runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isnan, log
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from omegaconf import DictConfig, OmegaConf

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import read_rows
from polluxsim.models.profile import Profile
from polluxsim.records.folders import policy_name
from polluxsim.records.storage import Run, read_run
from polluxsim.run.building import build
from polluxsim.run.composing import without_hydra
from polluxsim.run.execution import resolved
from polluxsim.run.identity import key_of
from polluxsim.statistics.groups import Group, settings_of
from polluxsim.studies.driver import run_entries
from polluxsim.studies.paper.experiments import DATA, Arm, Experiment, Inputs
from polluxsim.studies.paper.published import UNITS, Kind, Published, Rule
from polluxsim.studies.plan import Entry, composer, name_of

GROUPS = ("cluster", "engine", "policy", "profiles", "workload")  # parts that are checked before the runs of an arm


class Planned(NamedTuple):
    """One planned run."""

    arm: Arm
    workload: str
    seed: int
    overrides: tuple[str, ...]
    config: Mapping[str, Any]  # resolved
    key: str  # see `key_of`


class Plan(NamedTuple):
    """The runs that an experiment needs."""

    experiment: Experiment
    runs: Sequence[Planned]


def planned(experiment: Experiment, inputs: Inputs, seeds: int, extra: Sequence[str] = ()) -> Plan:
    """Return the runs of an experiment. `seeds` is a number as for `Inputs.units`.

    An override in `extra` applies to the arms that have its setting, unless the arm itself overrides the setting. Raise
    InvalidConfigError if an override is invalid, and InvalidInputError if an input is missing or unreadable.
    """
    composing, name = composer(), f"+{experiment.group}={experiment.name}"
    units = {
        arm: inputs.own(arm) if experiment.own_workload else inputs.units(arm, seeds, experiment.workloads)
        for arm in experiment.arms
    }
    runs = list[Planned]()
    for arm, own_units in units.items():
        own, applicable = inputs.placed(arm), list[str]()
        if own_units:
            config = composing.compose([name, *own_units[0].overrides, *own])
            applicable = [text for text in extra if reaches(text, config)]
        for index, unit in enumerate(own_units):
            overrides = (name, *unit.overrides, *applicable, *own)
            config = composing.compose(overrides)
            if index == 0:
                for group in GROUPS:
                    build(config, group)
            values = resolved(without_hydra(config))
            runs.append(Planned(arm, unit.workload, unit.seed, overrides, values, key_of(values)))
    return Plan(experiment, runs)


def reaches(override: str, config: DictConfig) -> bool:
    """Return whether a configuration has the setting of an override. An override with + or ~ applies to all.

    >>> config = OmegaConf.create({"policy": {"p": -1.0, "seed": None}})
    >>> [reaches(text, config) for text in ("policy.p=1", "policy.seed=1", "policy.search=exact", "+policy.x=1")]
    [True, True, False, True]
    """
    name = override.partition("=")[0]
    if name.startswith(("+", "~")):
        return True
    *groups, last = name.split(".")
    for group in groups:
        if not OmegaConf.is_dict(config) or group not in config:
            return False
        config = config[group]
    return OmegaConf.is_dict(config) and last in config


def check_reached(extra: Sequence[str], plans: Iterable[Plan]) -> None:
    """Raise `InvalidConfigError` if an override of the user applies to no run."""
    reached = {text for plan in plans for run in plan.runs for text in run.overrides}
    if lost := [text for text in extra if text not in reached]:
        setting = lost[0].partition("=")[0]
        raise InvalidConfigError(f"{lost[0]}: no run has the setting {setting!r}; leave it out, or add it with +")


class Place(NamedTuple):
    """The folder of runs, and how to make them."""

    folder: Path  # for the runs; finished runs in it are reused
    workers: int | None = None  # number of processes on this machine; None for one for each core
    launcher: tuple[str, ...] = ()  # overrides that choose and set another launcher


class Made(NamedTuple):
    """One finished run."""

    arm: Arm
    workload: str
    seed: int
    folder: Path

    def jobs(self) -> pd.DataFrame:
        """Return the table of jobs."""
        table: pd.DataFrame = pq.read_table(self.folder / "jobs.parquet").to_pandas()
        return table

    def jcts(self) -> dict[str, float]:
        """Return the completion time of each job [s], NaN if it did not complete."""
        jobs = self.jobs()
        return dict(zip(jobs["job"], jobs["jct"], strict=True))

    def read(self) -> Run:
        """Return the run with all its records."""
        return read_run(self.folder)


@dataclass(frozen=True)
class Runs:
    """The finished runs of an experiment."""

    experiment: Experiment
    inputs: Inputs
    profiles: Mapping[str, Profile]
    made: tuple[Made, ...]  # by arm, workload and seed

    def workloads(self, arm: str) -> tuple[str, ...]:
        """Return the workloads that an arm ran on."""
        return tuple(dict.fromkeys(run.workload for run in self.made if run.arm.name == arm))

    @property
    def first_seeds(self) -> list[Made]:
        """Return one run of each arm and workload."""
        return list({(run.arm.name, run.workload): run for run in reversed(self.made)}.values())[::-1]

    @property
    def missing(self) -> list[str]:
        """Return the arms that did not run, because there are no workloads for them."""
        ran = {run.arm for run in self.made}
        return [arm.name for arm in self.experiment.arms if arm not in ran]

    def groups(self, workload: str | None = None, seed: int | None = None) -> list[Group]:
        """Return the runs of each arm as a line of a figure: all runs, or the runs of one workload or seed."""
        chosen = [run for run in self.made if workload in (None, run.workload) and seed in (None, run.seed)]
        found = []
        for arm in dict.fromkeys(run.arm for run in chosen):
            of_arm = tuple(run.read() for run in chosen if run.arm == arm)
            found.append(Group(arm.name, policy_name(settings_of(of_arm[0])), of_arm))
        return found


def make_runs(plan: Sequence[Planned], place: Place) -> dict[str, Path]:
    """Make the planned runs that are not finished; return the folders of all runs by their keys."""
    if not plan:
        return {}
    entries = [
        Entry(run.overrides, run.config, run.key, place.folder / name_of(run.overrides, run.key)) for run in plan
    ]
    frame = run_entries(entries, place.folder, launcher=place.launcher, workers=place.workers)
    return dict(zip(frame["key"], map(Path, frame["folder"]), strict=True))


def gathered(experiment: Experiment, inputs: Inputs, plan: Sequence[Planned], folders: Mapping[str, Path]) -> Runs:
    """Return the finished runs of an experiment."""
    made = tuple(Made(run.arm, run.workload, run.seed, folders[run.key]) for run in plan)
    return Runs(experiment, inputs, inputs.load_profiles(), made)


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
    arms = [row.arm, *([row.against] if row.against else [])]
    ran = [runs.workloads(arm) for arm in arms]
    if not row.workloads or not all(ran) or all(workload_numbers(row.workloads) == set(workloads) for workloads in ran):
        return row
    names = [runs.experiment.published_runs.get(arm, "") for arm in arms]
    means = list[float]()
    for name, workloads in zip(names, ran, strict=True):
        values = [_values().get((name, workload, row.metric)) for workload in workloads]
        known = [value for value in values if value is not None]
        means += [sum(known) / len(known)] if len(known) == len(values) else []
    if not row.by_simulator or len(means) < len(arms) or len(set(map(frozenset, ran))) > 1:
        return replace(row, measured=Rule(Kind.NONE), embedded=Rule(Kind.NONE))
    value = means[0] / means[1] - 1 if row.against else means[0]
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
    rows = read_rows(shipped("experiments") / VALUES, ("run", "workload", *METRICS))
    return {
        (row.text("run"), str(row.values["workload"]), metric): row.number(metric, above=0)
        for row in rows
        for metric in METRICS
        if row.values[metric]
    }


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
    return (path, policy) if path.is_file() else None


def read_job_times(path: Path, policy: str = "") -> dict[str, float]:
    """Read the completion time of each completed job [s].

    A CSV file has `job_id` and `jct_s` or `listed_jct_s`, empty for jobs that did not complete. A JSON file has a list
    `jct_s` in order of job numbers, or one under `policies` for each policy. Raise InvalidInputError for other content.
    """
    if path.suffix == ".csv":
        columns = ("jct_s", "listed_jct_s")
        return {
            row.text("job_id"): row.number(column, above=0)
            for row in read_rows(path, ("job_id",))
            for column in columns
            if row.has(column)
        }
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        times = (content["policies"][policy] if policy else content)["jct_s"]
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
    found = {SAME_JOBS: len(both) / len(times)} if len(times) else {}
    if len(both) < 3:
        return found
    differences = (both["ours"] / both["theirs"] - 1).abs()
    logs = both.map(log)
    correlation = float(logs["ours"].corr(logs["theirs"]))
    return found | {
        CORRELATION: 0.0 if isnan(correlation) else correlation,  # NaN where all times are equal
        MEDIAN_DIFFERENCE: float(differences.median()),
        P90_DIFFERENCE: float(differences.quantile(0.9)),
    }
