"""Descriptions of runs and sweeps: plain settings, objects that replace parts of them, and launchers of sweeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isnan
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from polluxsim.common.errors import InvalidConfigError, did_you_mean, short
from polluxsim.common.shipped import shipped
from polluxsim.common.values import OneOf, PositiveInt, check
from polluxsim.common.written import settings_as_declared
from polluxsim.hardware.clusters import Outage
from polluxsim.hardware.placements import JobId
from polluxsim.records.storage import flat
from polluxsim.run.building import MISSING, missing
from polluxsim.run.configurations import config_files, known_settings
from polluxsim.run.identity import key_of
from polluxsim.workloads.job import Job

GROUPS = ("cluster", "engine", "policy", "profiles", "workload")
TOP_LEVEL = ("agent", *GROUPS, "metrics", "seed")
REPRODUCE_KEY = "reproduce"  # part of experiment files that describes the comparison, not the runs


@dataclass(frozen=True)
class Edit:
    """One change of a run from a time on. A fork is a run with an edit."""

    time: float  # of the round from which on the edit applies [s]
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of the groups that change, by group
    lost_nodes: tuple[int, ...] = ()  # nodes that go down for good, with those that a smaller cluster lacks
    without: tuple[JobId, ...] = ()  # jobs that are cancelled, or do not arrive
    added: tuple[Job, ...] = ()  # additional jobs, in the order in which they were given
    seed: int | None = None  # new seed of the policy's random generator; None continues the generator
    new_policy: bool = False  # whether a new policy takes over; the settings of both may be equal
    down_nodes: tuple[int, ...] = ()  # nodes that go down for a time
    down_for: float = 0.0  # this time [s]; 0 without such nodes

    @property
    def outage(self) -> Outage | None:
        """Return the outage of the nodes that go down for a time; None without such nodes."""
        if not self.down_nodes:
            return None
        return Outage(self.down_nodes, self.time, self.down_for, "outage")

    def config_after(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a run after the edit, given those before it."""
        settings = {**config, **self.settings}
        if self.seed is not None:
            settings["seed"] = self.seed
        return settings


@dataclass(frozen=True)
class RunSpec:
    """Everything that one run depends on. Equal descriptions have equal results.

    `objects` contains objects by configuration group. They replace the objects that the settings would build. The
    settings describe one of these objects by `_target_` and parameters if these would make an equal object; otherwise
    the run has no key.
    """

    config: Mapping[str, Any]  # resolved settings as plain values, by group, as run.json states them
    objects: Mapping[str, Any] = field(default_factory=dict)  # by group
    metrics: Mapping[str, Any] = field(default_factory=dict)  # further metrics of the user by name, as `Metric` objects
    policy_entry: str | None = None  # name of the configuration that was chosen for the policy
    edits: tuple[Edit, ...] = ()  # in order of time; `config` has the settings before the first one

    @property
    def key(self) -> str | None:
        """Return the key of the run from the present files; None if the settings do not describe each object.

        Raise InvalidConfigError if a class or a metric of the user is in no file.
        """
        for name, part in self.config.items():
            # Metrics are names of functions, and have no `_target_`.
            if isinstance(part, dict) and name != "metrics" and "_target_" not in part:
                return None
        return key_of(self.config)

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        seed: int = self.config["seed"]
        return seed

    def with_settings(self, group: str, part: object) -> RunSpec:
        """Return the description with other settings of a group."""
        return replace(self, config={**self.config, group: part})

    def with_values(self, group: str, values: Mapping[str, object]) -> RunSpec:
        """Return the description with other values in a group by setting, like `inner.backfill`.

        A mapping is added to the present mapping. Raise InvalidConfigError for a value that a configuration cannot
        state.
        """
        # A description never changes, because several runs share its settings.
        part = deepcopy(self.config[group])
        for name, value in values.items():
            *above, last = name.split(".")
            place = part
            for word in above:
                if place.get(word) is None:
                    place[word] = {}
                place = place[word]
                if not isinstance(place, dict):
                    raise InvalidConfigError(f"{group}.{name}: {group}.{'.'.join(above)} is {short(place)}, no mapping")
            place[last] = _merged(place.get(last), plain_value(f"{group}.{name}", value))
        return self.with_settings(group, part)


def plain_value(name: str, value: object) -> object:
    """Return the value of a setting with NumPy's numbers as Python's, tuples as lists, and paths as text.

    Raise InvalidConfigError for a value that a configuration cannot state.
    """
    plain = as_plain(value)
    if _is_plain(plain):
        return plain
    raise InvalidConfigError(f"{name} is {value!r}, must be a number, text, true, false, or a list of these")


def as_plain(value: object) -> object:
    """Return NumPy's numbers as Python's, tuples as lists and paths as text, also within mappings and lists.

    Other values are returned unchanged.
    """
    if isinstance(value, Mapping):
        return {as_plain(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PurePath):
        return str(value)
    return value


def _is_plain(value: object) -> bool:
    """Return whether a configuration can state a value of `as_plain`."""
    if isinstance(value, dict):
        has_plain_keys = all(isinstance(key, str | int | float | bool) for key in value)
        return has_plain_keys and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _merged(present: object, value: object) -> object:
    """Return a value; if it and the present value are mappings, with the entries of the present one that it lacks."""
    if not isinstance(present, dict) or not isinstance(value, dict):
        return value
    merged = dict(present)
    for key, item in value.items():
        merged[key] = _merged(present.get(key), item)
    return merged


def settled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, in which each duration is a number of its unit, given resolved plain values.

    Raise InvalidConfigError if a value is nan or no duration where one is declared, or a mapping has keys of several
    types.
    """
    plain = {str(name): value for name, value in values.items() if name != REPRODUCE_KEY}
    for name, value in flat(plain).items():
        # nan differs from itself, so two equal runs would seem to have other settings.
        if isinstance(value, float) and isnan(value):
            raise InvalidConfigError(f"{name} is nan, must be a value that is known; use null for no value")
    settings: dict[str, Any] = settings_as_declared("", plain)
    for name, value in settings.items():
        _check_keys(name, value)
    return settings


def check_parts(config: Mapping[str, Any]) -> None:
    """Raise InvalidConfigError if a group is unknown, missing or not a mapping, or the seed is invalid."""
    check_names(config, config.get("seed"))
    seed = config["seed"]
    # In Python, true is the whole number 1.
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InvalidConfigError(f"seed is {short(seed)}, must be a whole number of at least 0")
    for group in GROUPS:
        if not isinstance(config.get(group), dict):
            problem = f"{group} is {short(config.get(group))}, must be a mapping with _target_ and parameters"
            raise InvalidConfigError(f"{problem}; {group}=NAME chooses one")


def check_names(names: Collection[str], seed: object) -> None:
    """Raise InvalidConfigError if a group is unknown or missing, or the seed has no value.

    `names` are the names of all groups of a configuration, and `seed` is its seed.
    """
    unknown = sorted(set(names) - {*TOP_LEVEL, REPRODUCE_KEY})
    if unknown:
        meant = did_you_mean(unknown[0], known_settings())
        raise InvalidConfigError(f"there is no setting {unknown[0]!r}; choose from {', '.join(TOP_LEVEL)}{meant}")
    if seed == MISSING:
        raise InvalidConfigError(missing("seed"))
    lacking = [name for name in (*GROUPS, "seed") if name not in names]
    if not lacking:
        return
    problem = f"there is no {lacking[0]} in the configuration, and each run needs one"
    shipped_file = shipped("configs") / "run.yaml"
    if config_files("run.yaml")["run.yaml"] == shipped_file and lacking[0] in GROUPS:
        raise InvalidConfigError(f"{problem}; choose one with {lacking[0]}=NAME")
    raise InvalidConfigError(
        f"{problem}; a run.yaml of your own replaces polluxsim's as a whole, so begin with a copy of {shipped_file}"
    )


def _check_keys(name: str, value: object) -> None:
    """Raise an `InvalidConfigError` for a mapping with keys of several types. JSON cannot sort such keys."""
    if not isinstance(value, dict):
        return
    try:
        sorted(value)
    except TypeError:
        keys = ", ".join(map(short, value))
        raise InvalidConfigError(f"{name} has keys of different kinds ({keys}), must be of one kind") from None
    for key, item in value.items():
        _check_keys(f"{name}.{key}", item)


_OF_SUBMITIT: Mapping[str, Any] = {
    "submitit_folder": "${hydra.sweep.dir}/.submitit/%j",
    "timeout_min": 60,
    "cpus_per_task": None,
    "gpus_per_node": None,
    "tasks_per_node": 1,
    "mem_gb": None,
    "nodes": 1,
    "name": "${hydra.job.name}",
    "stderr_to_stdout": False,
}

_OF_SLURM: Mapping[str, Any] = {
    "partition": None,
    "qos": None,
    "comment": None,
    "constraint": None,
    "exclude": None,
    "gres": None,
    "cpus_per_gpu": None,
    "gpus_per_task": None,
    "mem_per_gpu": None,
    "mem_per_cpu": None,
    "account": None,
    "signal_delay_s": 120,
    "max_num_timeout": 0,
    "additional_parameters": {},
    "array_parallelism": 256,
    "setup": None,
}

LAUNCHERS: Mapping[str, Mapping[str, Any]] = {
    "submitit_local": _OF_SUBMITIT,
    "submitit_slurm": {**_OF_SUBMITIT, **_OF_SLURM},
    # Without an address, Ray looks for a cluster, and fails if an old cluster has left its address.
    "ray": {
        "ray": {
            "init": {"address": "local", "object_store_memory": None, "logging_level": "error", "log_to_driver": False},
            "remote": {},
        }
    },
}
"""Settings by launcher: settings of `submitit.AutoExecutor`, and arguments of `ray.init` and `ray.remote`."""

EXTRAS: Mapping[str, str] = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray"}
"""The extra of polluxsim that installs the package of each launcher."""


@dataclass(frozen=True)
class Launcher:
    """The choice of where the runs of a sweep are made, with its settings."""

    name: str = "basic"
    settings: Mapping[str, Any] = field(default_factory=dict)


NOW = re.compile(r"\$\{now:([^}]*)\}")
"""The start time of a run in the name of its folder, as Hydra's configurations state it."""


@dataclass(frozen=True)
class OneRun:
    """A command line that describes one run."""

    spec: RunSpec
    folder_pattern: str  # the folder, with `${now:FORMAT}` for the start time
    without_effect: tuple[str, ...]  # settings of Hydra that have no effect

    @property
    def is_named_by_time(self) -> bool:
        """Return whether the name of the folder contains the start time."""
        return NOW.search(self.folder_pattern) is not None

    def folder(self, start: datetime) -> Path:
        """Return the folder of a run that starts at a time."""
        return Path(NOW.sub(lambda pattern: start.strftime(pattern[1]), self.folder_pattern))


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    overrides: tuple[str, ...]
    spec: RunSpec
    subfolder: str


@dataclass(frozen=True)
class SweepPlace:
    """Where the runs of a sweep are made and written."""

    folder: Path
    launcher: Launcher
    workers: int | None  # number of processes on this machine
    cache: str | None  # folder of finished runs that are copied instead of made
    text: str  # the configuration of the sweep in YAML


@dataclass(frozen=True)
class SweptRuns:
    """A command line that describes a sweep over all combinations of values."""

    place: SweepPlace
    runs: Sequence[SweepRun]
    without_effect: tuple[str, ...]  # settings of Hydra that have no effect


@dataclass(frozen=True)
class Choices:
    """Values, as overrides write them, of which a search chooses one."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included, of which a search chooses one."""

    low: float
    high: float
    is_whole: bool = False
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Search:
    """How a search chooses its trials, and what it looks for."""

    metric: str  # column of the table of the sweep
    direction: Literal["minimize", "maximize"]
    num_trials: int
    num_at_once: int  # trials that the sampler proposes before it learns their metrics
    sampler: Mapping[str, Any]  # `_target_`, a class of `optuna.samplers`, and its parameters

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Search:
        """Return a search from the settings of `hydra/sweeper=optuna`. Raise InvalidConfigError if one is invalid."""
        check("hydra.sweeper.n_trials", settings["n_trials"], PositiveInt)
        check("hydra.sweeper.n_jobs", settings["n_jobs"], PositiveInt)
        check("hydra.sweeper.direction", settings["direction"], Annotated[str, OneOf("minimize", "maximize")])
        return cls(
            metric=str(settings["metric"]),
            direction=settings["direction"],
            num_trials=settings["n_trials"],
            num_at_once=settings["n_jobs"],
            sampler=settings["sampler"],
        )


@dataclass(frozen=True)
class SearchedRuns:
    """A command line that describes a search for the best values."""

    place: SweepPlace
    search: Search
    fixed: Sequence[str]  # overrides of all trials
    space: Mapping[str, Choices | Interval]  # what the search chooses among, by setting
    plan: Callable[[Iterable[Sequence[str]]], list[SweepRun]]  # composes runs from their overrides
    without_effect: tuple[str, ...]  # settings of Hydra that have no effect


Described: TypeAlias = OneRun | SweptRuns | SearchedRuns
"""What a command line describes."""
