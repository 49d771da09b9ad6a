"""Entries of config groups with their settings: in Python what `policy=pollux policy.p=-10` is on the command line."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from polluxsim.errors import InvalidConfigError, allowed_among
from polluxsim.run.config_folders import config_files, report_replaced, searched_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

# What a config group is called in Python, where that is another word.
_SPOKEN = {"engine": "settings"}


@dataclass(frozen=True, repr=False)
class Choice:
    """A configuration file of a group, with changed settings.

    Parameters
    ----------
    group
        The group: policy, agent, cluster, workload, profiles, engine.
    name
        Name of the YAML file; None for the default.
    settings
        Values by the name of the setting.

    Raises
    ------
    InvalidConfigError
        If the group has no entry of that name.
    """

    group: str
    name: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None and self.name not in (names := entries(self.group)):
            raise InvalidConfigError(f"{self.group}={self.name} is unknown, {allowed_among(self.name, names)}")

    def __repr__(self) -> str:
        words = [] if self.name is None else [repr(self.name)]
        words += [f"{name}={value!r}" for name, value in self.settings.items()]
        return f"{_SPOKEN.get(self.group, self.group)}({', '.join(words)})"


@contextmanager
def config_dirs(*folders: str | PathLike[str]) -> Iterator[None]:
    """Use your own folders of configuration files inside the block, like `--config-dir`.

    Your files replace shipped files of the same names. Threads that the block starts do not use the folders.

    Parameters
    ----------
    *folders
        Folders like `conf` in `conf/policy/mine.yaml`. They are searched in order.

    Raises
    ------
    InvalidConfigError
        If a folder does not exist.

    Examples
    --------
    `with polluxsim.config_dirs("conf"): polluxsim.simulate(policy="mine")`
    """
    paths = [Path(folder) for folder in folders]
    with searched_first(paths):
        report_replaced(paths)
        yield


def entries(group: str) -> list[str]:
    """Return the names that a config group offers.

    >>> entries("engine")
    ['exact', 'log', 'osdi21']
    """
    return sorted(path.stem for path in config_files(f"{group}/*.yaml").values())


def default_entry(group: str) -> str:
    """Return the name that a config group takes where none is given.

    >>> default_entry("policy")
    'pollux'
    """
    defaults = yaml.safe_load(config_files("run.yaml")["run.yaml"].read_text(encoding="utf-8"))["defaults"]
    return next(str(entry[group]) for entry in defaults if isinstance(entry, dict) and group in entry)


def policy(name: str | None = None, /, **settings: object) -> Choice:
    """Choose a policy by name.

    Parameters
    ----------
    name
        Name of a file in `configs/policy`. The default is `pollux`.
    **settings
        Settings of `configs/policy/NAME.yaml`.

    Examples
    --------
    >>> policy("pollux", p=-10)
    policy('pollux', p=-10)
    """
    return Choice("policy", name, settings)


def cluster(name: str | None = None, /, **settings: object) -> Choice:
    """Choose a cluster by name.

    Parameters
    ----------
    name
        Name of a file in `configs/cluster`. The default is `t4-16x4`.
    **settings
        Settings of `configs/cluster/NAME.yaml`.
    """
    return Choice("cluster", name, settings)


def workload(name: str | None = None, /, **settings: object) -> Choice:
    """Choose the source of the jobs.

    Parameters
    ----------
    name
        Name of a file in `configs/workload`, like `philly-like`. The default is `file`.
    **settings
        Settings of `configs/workload/NAME.yaml`.
    """
    return Choice("workload", name, settings)


def profiles(name: str | None = None, /, **settings: object) -> Choice:
    """Choose the source of the profiles.

    Parameters
    ----------
    name
        `folder` (the default).
    **settings
        Settings of `configs/profiles/NAME.yaml`; `path` is a folder of cards or measurements.
    """
    return Choice("profiles", name, settings)


def settings(name: str | None = None, /, **settings: object) -> Choice:
    """Choose the settings of the engine.

    Parameters
    ----------
    name
        `exact` (the default), `log` (the default of `workload=trace`), or `osdi21`, the rules of the published
        results.
    **settings
        Settings of `configs/engine/NAME.yaml`, like round_interval and restart_delay.
    """
    return Choice("engine", name, settings)
