"""Experiments of papers, read from their files, and the workloads and profiles that they use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, did_you_mean
from polluxsim.common.shipped import shipped
from polluxsim.models.profile import Profile
from polluxsim.run.composing import Composer
from polluxsim.run.configurations import quoted
from polluxsim.run.spec import REPRODUCE_KEY
from polluxsim.studies.paper.published import Published, read_published

OTHERS = "conformance"
"""Configuration group of other systems. The experiments of the Pollux paper are in the group `experiment`."""

DATA = "{data}"  # placeholder for the folder of other systems' data in the overrides of an arm

SETTINGS = ("title", "system", "measure", "draw", "arms", "axis", "workloads", "own_workload", "published_runs", "note")
"""Settings in the file of an experiment."""

JOBS = 160  # jobs of a workload at load 1. Source: Pollux (OSDI '21), §5.1


@dataclass(frozen=True)
class Arm:
    """One configuration of an experiment, like a policy. It runs on each workload."""

    name: str  # name in the published values
    load: float = 1.0  # number of jobs, as a multiple of `Inputs.jobs`
    request: str = "tuned"  # GPUs and batch sizes that jobs request: "tuned" or "realistic"
    largest_request: int | None = None  # most GPUs that a job of a generated workload requests, None for no limit
    is_long: bool = False  # whether its runs take minutes
    overrides: tuple[str, ...] = ()  # overrides of Hydra for its runs

    @property
    def data(self) -> list[str]:
        """Return the paths that the experiment needs in the folder of other systems' data."""
        paths = []
        for override in self.overrides:
            path = override.partition(f"={DATA}/")[2]
            if path:
                paths.append(path)
        return paths


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: the runs that it needs, and the numbers to compare with."""

    name: str
    title: str
    measure: tuple[str, ...]  # names in `MEASURES`
    draw: tuple[str, ...]  # names in `DRAWINGS`
    published: tuple[Published, ...]
    arms: tuple[Arm, ...] = ()
    axis: str = ""  # the setting that takes several values, "" for none
    workloads: tuple[str, ...] | None = None  # numbers of the published workloads, None for all
    own_workload: bool = False  # whether its file chooses the workload
    # By arm: the published run, as a folder of the artifact, as a name in published_runs.csv, or as `{data}/FILE`, a
    # file of completion times, with `#POLICY` after it if the file has several policies.
    published_runs: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # explanation of its table
    system: str = "Pollux"  # the system that the numbers are from

    @property
    def group(self) -> str:
        """Return the configuration group of its file."""
        return group_of(self.name)

    @property
    def needs_data(self) -> bool:
        """Return whether the experiment uses the data of another system."""
        return any(arm.data for arm in self.arms)

    @property
    def has_seeds(self) -> bool:
        """Return whether the experiment can use more workloads or seeds."""
        return bool(self.arms) and not self.own_workload


def experiment_names() -> list[str]:
    """Return the names of the experiments on the Pollux paper: tables first, then figures, then the others."""
    names = _in_group("experiment")
    # False sorts before True.
    return sorted(names, key=lambda name: (not name.startswith("table"), not name.startswith("fig"), name))


def other_systems() -> list[str]:
    """Return the names of the experiments on other systems' published numbers."""
    return sorted(_in_group(OTHERS))


def group_of(name: str) -> str:
    """Return the configuration group of an experiment's file."""
    if name in other_systems():
        return OTHERS
    return "experiment"


def _in_group(group: str) -> list[str]:
    """Return the experiments of a group: files that have a CSV file of published values beside them."""
    paths = (shipped("experiments") / group).glob("*.yaml")
    return [path.stem for path in paths if path.with_suffix(".csv").is_file()]


def read_experiment(name: str) -> Experiment:
    """Compose the configuration of an experiment and read its published values.

    Raise InvalidConfigError if there is no such experiment, or if its file has an unknown setting.
    """
    choices = [*experiment_names(), *other_systems()]
    if name not in choices:
        meant = did_you_mean(name, choices)
        raise InvalidConfigError(f"there is no experiment {name!r}; choose from {', '.join(choices)} and all{meant}")
    # Composed by Hydra, because the file is also a part of the configuration of its runs.
    section: dict[str, Any] = Composer().reproduced([f"+{group_of(name)}={name}"])
    # A misspelt setting would otherwise have no effect.
    unknown = sorted(set(section) - set(SETTINGS))
    if unknown:
        raise InvalidConfigError(
            f"{name}.yaml: {REPRODUCE_KEY}.{unknown[0]} is unknown; choose from {', '.join(SETTINGS)}"
        )
    workloads = section.get("workloads")
    if workloads is not None:
        workloads = tuple(map(str, workloads))
    axis = section.get("axis") or {}
    return Experiment(
        name,
        title=section["title"],
        measure=tuple(section["measure"]),
        draw=tuple(section["draw"]),
        published=tuple(read_published(shipped("experiments") / group_of(name) / f"{name}.csv")),
        arms=tuple(_arms(section.get("arms") or {}, axis)),
        axis=next(iter(axis), ""),
        workloads=workloads,
        own_workload=bool(section.get("own_workload", False)),
        published_runs=section.get("published_runs") or {},
        note=section.get("note", ""),
        system=section.get("system", "Pollux"),
    )


def _arms(arms: Mapping[str, Mapping[str, Any]], axis: Mapping[str, Sequence[Any]]) -> Iterable[Arm]:
    """Yield every arm at every value of the axis, with the name "ARM VALUE" if there is an axis."""
    points: list[tuple[str, Any]] = []
    for key, values in axis.items():
        points += [(key, value) for value in values]
    if not points:
        points = [("", None)]
    for (name, settings), (key, value) in product(arms.items(), points):
        chosen = dict(settings)
        label = name
        if key:
            chosen[key] = value
            label = f"{name} {value:g}"
        # The first settings are of the experiment; all others are overrides of the runs.
        load = float(chosen.pop("load", 1.0))
        request = str(chosen.pop("request", "tuned"))
        largest = chosen.pop("largest_request", None)
        is_long = bool(chosen.pop("long", False))
        overrides = tuple(f"{setting}={value_of_setting}" for setting, value_of_setting in chosen.items())
        yield Arm(label, load, request, largest, is_long, overrides)


class WorkloadSeed(NamedTuple):
    """One workload with one seed. Runs of two arms on the same unit are a pair."""

    workload: str
    seed: int
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Inputs:
    """Folders and sizes that the user chose. Raise InvalidInputError for an invalid one."""

    profiles: Path | None = None  # folder of profiles; None for the cards that come with polluxsim
    workloads: Path | None = None  # folder of published workloads/, workloads-0.5/, …; None generates workloads
    jobs: int = JOBS  # number of jobs of a generated workload at load 1
    data: Path | None = None  # folder of other systems' data (rigid/, hetero/, …)

    def __post_init__(self) -> None:
        if self.workloads is not None and not (self.workloads / "workloads").is_dir():
            raise InvalidInputError(f"{self.workloads}: has no folder workloads/; give the folder that contains it")
        if self.jobs < 1:
            raise InvalidInputError(f"--num-jobs is {self.jobs}, must be a whole number of at least 1")

    @property
    def is_measured(self) -> bool:
        """Return whether the workloads are published workloads."""
        return self.workloads is not None

    def must_match(self, *, needs_workloads: bool) -> bool:
        """Return whether the results must match published numbers, because profiles and workloads are measured."""
        return self.profiles is not None and (self.is_measured or not needs_workloads)

    def __str__(self) -> str:
        profiles = self.profiles or "profile cards"
        workloads = self.workloads or "generated workloads"
        return f"{profiles}, {workloads}"

    def load_profiles(self) -> Mapping[str, Profile]:
        """Return the profiles by application, read once."""
        return _profiles_in(self.profiles)

    def units(self, arm: Arm, seeds: int, only: Sequence[str] | None) -> list[WorkloadSeed]:
        """Return the workloads of an arm with their seeds.

        `seeds` is the number of generated workloads, each with another seed, or the number of runs of each published
        workload: 1 to `seeds` for generated workloads, 0 to `seeds` - 1 for each published workload. `only` contains
        the numbers of the published workloads to take, if they are in the folder; None takes all in the folder.
        """
        common = self._profiles()
        units = []
        if self.workloads is None:
            generated = self._generated(arm)
            for seed in range(1, seeds + 1):
                units.append(WorkloadSeed(str(seed), seed, (*common, *generated, f"seed={seed}")))
            return units
        for number, path in self.files(arm).items():
            if only is not None and number not in only:
                continue
            for seed in range(seeds):
                overrides = (*common, "workload=file", f"workload.path={_quoted(path)}", f"seed={seed}")
                units.append(WorkloadSeed(number, seed, overrides))
        return units

    def _generated(self, arm: Arm) -> list[str]:
        """Return the overrides of an arm that choose a generated workload, without its seed."""
        num_jobs = max(round(arm.load * self.jobs), 1)  # a workload without jobs has no completion times
        is_tuned = str(arm.request == "tuned").lower()
        overrides = ["workload=philly-like", f"workload.num_jobs={num_jobs}", f"workload.tuned={is_tuned}"]
        if arm.largest_request:
            overrides.append(f"workload.largest_request={arm.largest_request}")
        return overrides

    def own(self, arm: Arm) -> list[WorkloadSeed]:
        """Return the unit of an experiment that chooses its own workload; an empty list if its data are missing.

        Data of other systems contain the speeds of their jobs, so profiles of the user do not apply to them. Raise
        InvalidConfigError if it needs data and the user gave no folder.
        """
        if not arm.data:
            return [WorkloadSeed("", 0, (*self._profiles(), "seed=0"))]
        if not all(self._in_data(path).exists() for path in arm.data):
            return []
        return [WorkloadSeed("", 0, ("seed=0",))]

    def placed(self, arm: Arm) -> list[str]:
        """Return the overrides of an arm, with the folder of data in place of its placeholder.

        Raise InvalidConfigError if it needs data and the user gave no folder.
        """
        overrides = []
        for override in arm.overrides:
            setting, mark, path = override.partition(f"={DATA}/")
            if mark:
                overrides.append(f"{setting}={_quoted(self._in_data(path))}")
            else:
                overrides.append(override)
        return overrides

    def _in_data(self, path: str) -> Path:
        if self.data is None:
            problem = f"{path} is missing, because no folder of data is given"
            raise InvalidConfigError(f"{problem}; give it with --data DIR or the variable POLLUXSIM_DATA")
        return self.data / path

    def _profiles(self) -> tuple[str, ...]:
        """Return the override that chooses the user's profiles, if there are any."""
        if self.profiles is None:
            return ()
        return (f"profiles.path={_quoted(self.profiles)}",)

    def files(self, arm: Arm) -> dict[str, Path]:
        """Return the published workloads of an arm by number; none without their folder or if it limits requests."""
        if self.workloads is None or arm.largest_request:
            return {}
        name = "workloads"
        if arm.request != "tuned":
            name = f"workloads-{arm.request}"
        elif arm.load != 1:
            name = f"workloads-{arm.load:.1f}"
        path_by_number = {}
        for path in (self.workloads / name).glob("workload-*.csv"):
            number = path.stem.removeprefix("workload-")
            if number.isdecimal():
                path_by_number[number] = path
        # In order of the numbers: 10 is after 2, and the order of a folder's files is any.
        return {number: path_by_number[number] for number in sorted(path_by_number, key=int)}


def _quoted(path: Path) -> str:
    return quoted(str(path.resolve()))


@cache
def _profiles_in(folder: Path | None) -> Mapping[str, Profile]:
    return ProfileFolder(None if folder is None else str(folder)).load()
