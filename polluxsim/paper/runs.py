"""The runs of an experiment: planned from its arms, made by a sweep, and read back by whoever measures them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from polluxsim.folders import policy_name
from polluxsim.look.groups import Group, settings_of
from polluxsim.paper.experiment import CONFIG_DIRS
from polluxsim.storage import read_run
from polluxsim.sweeps.complete import run_entries
from polluxsim.sweeps.plan import Entry, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from polluxsim.models.profile import Profile
    from polluxsim.paper.experiment import Arm, Experiment
    from polluxsim.paper.inputs import Inputs
    from polluxsim.paper.planning import Planned
    from polluxsim.storage import Run


class Place(NamedTuple):
    """Where runs are made."""

    folder: Path  # where they are kept; finished ones are not made again
    workers: int | None = None  # processes on this machine; None for one a core
    launcher: tuple[str, ...] = ()  # overrides that choose and set another launcher


class Made(NamedTuple):
    """One finished run."""

    arm: Arm
    workload: str
    seed: int
    folder: Path

    def jobs(self) -> pd.DataFrame:
        """Return its table of jobs."""
        table: pd.DataFrame = pq.read_table(self.folder / "jobs.parquet").to_pandas()
        return table

    def read(self) -> Run:
        """Return all of it."""
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
        """Return the arms that were not run, as there are no workloads for them."""
        ran = {run.arm for run in self.made}
        return [arm.name for arm in self.experiment.arms if arm not in ran]

    def groups(self, workload: str | None = None, seed: int | None = None) -> list[Group]:
        """Return the runs of each arm as a line of a figure, all or those of one workload and seed."""
        chosen = [run for run in self.made if workload in (None, run.workload) and seed in (None, run.seed)]
        found = []
        for arm in dict.fromkeys(run.arm for run in chosen):
            read = tuple(run.read() for run in chosen if run.arm == arm)
            found.append(Group(arm.name, policy_name(settings_of(read[0])), read))
        return found


def make(plan: Sequence[Planned], place: Place) -> dict[str, Path]:
    """Make planned runs, each once, and return the folders of all by their keys."""
    if not plan:
        return {}
    entries = [
        Entry(run.overrides, run.config, run.key, place.folder / name_of(run.overrides, run.key)) for run in plan
    ]
    frame = run_entries(entries, place.folder, launcher=place.launcher, workers=place.workers, config_dirs=CONFIG_DIRS)
    return dict(zip(frame["key"], map(Path, frame["folder"]), strict=True))


def gathered(experiment: Experiment, inputs: Inputs, plan: Sequence[Planned], folders: Mapping[str, Path]) -> Runs:
    """Return the finished runs of an experiment."""
    made = tuple(Made(run.arm, run.workload, run.seed, folders[run.key]) for run in plan)
    return Runs(experiment, inputs, inputs.load_profiles(), made)
