"""The runs of an experiment: planned from its arms, made by a sweep, and read back by whoever measures them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from polluxsim.analysis.figures.groups import Group, policy_name, settings_of
from polluxsim.app.reproduce.experiment import CONFIG_DIRS
from polluxsim.app.sweep import run_sweep
from polluxsim.app.sweep.plan import composer, entry_of
from polluxsim.storage import read_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from polluxsim.app.reproduce.experiment import Arm, Experiment
    from polluxsim.app.reproduce.inputs import Inputs
    from polluxsim.storage import Run


class Place(NamedTuple):
    """Where runs are made.

    Attributes
    ----------
    folder
        Where they are kept; finished ones are not made again.
    workers
        Processes on this machine; None for one a core.
    launcher
        Overrides that choose and set another launcher.
    """

    folder: Path
    workers: int | None = None
    launcher: tuple[str, ...] = ()


class Planned(NamedTuple):
    """One run to make."""

    arm: Arm
    workload: str
    seed: int
    overrides: tuple[str, ...]


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
    """The finished runs of an experiment.

    Parameters
    ----------
    experiment
        Which one.
    inputs
        What it ran on.
    made
        The runs, by arm, workload and seed.
    missing
        Arms that could not be run, as there are no workloads for them.
    """

    experiment: Experiment
    inputs: Inputs
    made: tuple[Made, ...]
    missing: tuple[Arm, ...] = ()

    def of(self, arm: str) -> Iterator[Made]:
        """Yield the runs of an arm."""
        return (run for run in self.made if run.arm.name == arm)

    def groups(self, workload: str | None = None, seed: int | None = None) -> list[Group]:
        """Return the runs of each arm as a line of a figure, all or those of one workload and seed."""
        chosen = [run for run in self.made if workload in (None, run.workload) and seed in (None, run.seed)]
        found = []
        for arm in dict.fromkeys(run.arm for run in chosen):
            read = tuple(run.read() for run in chosen if run.arm == arm)
            found.append(Group(arm.name, policy_name(settings_of(read[0])), read))
        return found

    @property
    def arms(self) -> list[Arm]:
        """Return the arms that ran, in order."""
        return list(dict.fromkeys(run.arm for run in self.made))


def planned(experiment: Experiment, inputs: Inputs, seeds: int, extra: Sequence[str] = ()) -> list[Planned]:
    """Return the runs of an experiment.

    Parameters
    ----------
    experiment
        Which one.
    inputs
        What it runs on.
    seeds
        As `Inputs.units` counts them.
    extra
        The user's overrides of every run; an arm's own go before them.
    """
    base = f"+experiment={experiment.name}"
    return [
        Planned(arm, unit.workload, unit.seed, (base, *unit.overrides, *extra, *arm.overrides))
        for arm in experiment.arms
        for unit in (inputs.own() if experiment.own_workload else inputs.units(arm, seeds, experiment.workloads))
    ]


def make(plan: Sequence[Planned], place: Place) -> dict[tuple[str, ...], Path]:
    """Make planned runs, each once, and return their folders by their overrides."""
    composing = composer(CONFIG_DIRS)
    keys = {run.overrides: entry_of((), composing.compose(run.overrides), place.folder).key for run in plan}
    distinct = {key: overrides for overrides, key in reversed(keys.items())}
    wanted = [distinct[key] for key in dict.fromkeys(keys.values())]
    if not wanted:
        return {}
    frame = run_sweep(
        wanted, place.folder, launcher=place.launcher or None, workers=place.workers, config_dirs=CONFIG_DIRS
    )
    folders = dict(zip(frame["key"], map(Path, frame["folder"]), strict=True))
    return {overrides: folders[key] for overrides, key in keys.items()}


def gathered(
    experiment: Experiment, inputs: Inputs, plan: Sequence[Planned], folders: Mapping[tuple[str, ...], Path]
) -> Runs:
    """Return the finished runs of an experiment."""
    made = tuple(Made(run.arm, run.workload, run.seed, folders[run.overrides]) for run in plan)
    ran = {run.arm for run in made}
    return Runs(experiment, inputs, made, tuple(arm for arm in experiment.arms if arm not in ran))
