"""The runs of an experiment: planned, made and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.parquet import read_parquet
from polluxsim.models.profile import Profile
from polluxsim.records.folders import policy_name
from polluxsim.records.storage import Run, read_run
from polluxsim.run.building import build
from polluxsim.run.spec import RunSpec
from polluxsim.statistics.groups import RunGroup, settings_of
from polluxsim.studies.driver import frame_of_entries
from polluxsim.studies.paper.experiments import Arm, Experiment, Inputs
from polluxsim.studies.plan import Entry, composer, name_of

GROUPS = ("cluster", "engine", "policy", "profiles", "workload")  # parts that are checked before the runs of an arm


class Planned(NamedTuple):
    """One planned run."""

    arm: Arm
    workload: str
    seed: int
    overrides: tuple[str, ...]
    spec: RunSpec
    key: str  # of the run, from its settings, data and code


class ExperimentPlan(NamedTuple):
    """The runs that an experiment needs."""

    experiment: Experiment
    runs: Sequence[Planned]


def planned(experiment: Experiment, inputs: Inputs, seeds: int, extra: Sequence[str] = ()) -> ExperimentPlan:
    """Return the runs of an experiment. `seeds` is a number as for `Inputs.units`.

    An override in `extra` applies to the arms that have its setting, unless the arm itself overrides the setting. Raise
    InvalidConfigError if an override is invalid, and InvalidInputError if an input is missing or unreadable.
    """
    composing = composer()
    name = f"+{experiment.group}={experiment.name}"
    runs = list[Planned]()
    for arm in experiment.arms:
        if experiment.own_workload:
            units = inputs.own(arm)
        else:
            units = inputs.units(arm, seeds, experiment.workloads)
        overrides_of_arm = inputs.placed(arm)
        applicable = list[str]()
        if units:
            first = composing.compose([name, *units[0].overrides, *overrides_of_arm])
            # All units of an arm have the same settings, so the first one tells which overrides apply.
            applicable = [override for override in extra if reaches(override, first.config)]
        for index, unit in enumerate(units):
            # The user's overrides are before those of the arm, which distinguish it from the other arms.
            overrides = (name, *unit.overrides, *applicable, *overrides_of_arm)
            spec = composing.compose(overrides)
            if index == 0:  # the other units differ in workload and seed only
                for group in GROUPS:
                    build(spec.config, group)
            runs.append(Planned(arm, unit.workload, unit.seed, overrides, spec, str(spec.key)))
    return ExperimentPlan(experiment, runs)


def reaches(override: str, config: Mapping[str, Any]) -> bool:
    """Return whether a run has the setting of an override. An override with + or ~ applies to all.

    >>> config = {"policy": {"p": -1.0, "seed": None}}
    >>> [reaches(text, config) for text in ("policy.p=1", "policy.seed=1", "policy.search=exact", "+policy.x=1")]
    [True, True, False, True]
    """
    name = override.partition("=")[0]
    if name.startswith(("+", "~")):  # it adds or removes a setting, so a run need not have it
        return True
    part: object = config
    for word in name.split("."):
        if not isinstance(part, Mapping) or word not in part:
            return False
        part = part[word]
    return True


def check_reached(extra: Sequence[str], plans: Iterable[ExperimentPlan]) -> None:
    """Raise `InvalidConfigError` if an override of the user applies to no run."""
    reached = set[str]()
    for plan in plans:
        for run in plan.runs:
            reached.update(run.overrides)
    for override in extra:
        if override not in reached:
            setting = override.partition("=")[0]
            raise InvalidConfigError(f"{override}: no run has the setting {setting!r}; leave it out, or add it with +")


class RunPlace(NamedTuple):
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
        table: pd.DataFrame = read_parquet(self.folder / "jobs.parquet").to_pandas()
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
        first_runs: dict[tuple[str, str], Made] = {}
        for run in self.made:
            first_runs.setdefault((run.arm.name, run.workload), run)
        return list(first_runs.values())

    @property
    def missing(self) -> list[str]:
        """Return the arms that did not run, because there are no workloads for them."""
        ran = {run.arm for run in self.made}
        return [arm.name for arm in self.experiment.arms if arm not in ran]

    def groups(self, workload: str | None = None, seed: int | None = None) -> list[RunGroup]:
        """Return the runs of each arm as a line of a figure: those of one workload and seed, if these are given."""
        chosen = []
        for run in self.made:
            if workload in (None, run.workload) and seed in (None, run.seed):
                chosen.append(run)
        groups = []
        for arm in dict.fromkeys(run.arm for run in chosen):
            of_arm = tuple(run.read() for run in chosen if run.arm == arm)
            groups.append(RunGroup(arm.name, policy_name(settings_of(of_arm[0])), of_arm))
        return groups


def make_runs(plan: Sequence[Planned], place: RunPlace) -> dict[str, Path]:
    """Make the planned runs that are not finished; return the folders of all runs by their keys."""
    if not plan:
        return {}
    entries = []
    for run in plan:
        folder = place.folder / name_of(run.overrides, run.key)
        entries.append(Entry(run.overrides, run.spec, run.key, folder))
    frame = frame_of_entries(entries, place.folder, launcher=place.launcher, workers=place.workers)
    return dict(zip(frame["key"], map(Path, frame["folder"]), strict=True))


def gathered(experiment: Experiment, inputs: Inputs, plan: Sequence[Planned], folders: Mapping[str, Path]) -> Runs:
    """Return the finished runs of an experiment."""
    made_runs = tuple(Made(run.arm, run.workload, run.seed, folders[run.key]) for run in plan)
    return Runs(experiment, inputs, inputs.load_profiles(), made_runs)
