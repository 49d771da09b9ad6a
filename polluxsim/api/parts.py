"""The parts of a run as a caller passes them: names from the configuration, or objects.

A caller may pass a policy, a cluster, a workload, profiles and the settings of the engine in several forms. The
functions `policy_part`, `cluster_part` and the like turn each of these forms into one of two: a `Choice` of a
configuration file, or a `Given` object with its description for run.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from polluxsim.agent.rules import BatchRule
from polluxsim.common.errors import InvalidConfigError, allowed_among
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Allocates
from polluxsim.run.configurations import entries, report_replaced, searched_first
from polluxsim.run.spec import as_plain
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload, workload_from_frame

# Names of functions of this module that differ from those of their groups. The texts of choices are calls of them.
_FUNCTIONS = {"engine": "settings"}

TABLES = (".csv", ".parquet")  # ends of the names of workload files

MOST_SHOWN = 80  # longest text of a value in an error [characters]


@dataclass(frozen=True, repr=False)
class Choice:
    """A configuration file of a group, with changed settings. Raise InvalidConfigError if the file does not exist."""

    group: str  # policy, agent, cluster, workload, profiles or engine
    name: str | None = None  # name of the YAML file; None for the default
    settings: Mapping[str, object] = field(default_factory=dict)  # values by the name of the setting

    def __post_init__(self) -> None:
        # The name is checked here, and not first when the run is composed, so that the traceback shows the user's line.
        if self.name is not None and self.name not in entries(self.group):
            allowed = allowed_among(self.name, entries(self.group))
            raise InvalidConfigError(f"{self.group}={self.name} is unknown, {allowed}")

    def __repr__(self) -> str:
        words = []
        if self.name is not None:
            words.append(repr(self.name))
        for name, value in self.settings.items():
            words.append(f"{name}={value!r}")
        return f"{_FUNCTIONS.get(self.group, self.group)}({', '.join(words)})"


@contextmanager
def config_dirs(*folders: str | PathLike[str]) -> Iterator[None]:
    """Use your own folders of configuration files inside the block, like `--config-dir`.

    Your files replace shipped files of the same names, and a line on standard error names them. Threads that the block
    starts do not use the folders.

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


AgentLike: TypeAlias = "Choice | str | BatchRule"
PolicyLike: TypeAlias = "Choice | str | Allocates"
ClusterLike: TypeAlias = "Choice | str | Cluster | tuple[int, int]"
WorkloadLike: TypeAlias = "Choice | str | Path | Workload | pd.DataFrame"
ProfilesLike: TypeAlias = "Choice | str | Path | Mapping[str, Profile]"
SettingsLike: TypeAlias = "Choice | str | EngineSettings"


@dataclass(frozen=True)
class Given:
    """A part that the caller made: an object."""

    value: Any
    # What run.json states in place of a configuration: `_target_` and parameters from which the object can be made
    # again, or under `object` the name of its class.
    description: Mapping[str, object]


Part: TypeAlias = Choice | Given

# The following functions raise InvalidConfigError if a value is neither a choice of their group nor an object that
# fits. None chooses the default.


def policy_part(policy: PolicyLike | None) -> Part:
    """Return the policy as a part of a run."""
    return _part_with("allocate", "policy", policy, "a name, polluxsim.policy(...)")


def agent_part(agent: AgentLike) -> Part:
    """Return the rule by which jobs choose batch sizes, as a part of a run."""
    return _part_with("batch_size", "agent", agent, "a name")


def _part_with(method: str, group: str, value: object, kinds: str) -> Part:
    """Return a choice, or an object that has a method. Errors list the allowed `kinds` of values."""
    if value is None or isinstance(value, str | Choice):
        return _choice(group, value)
    # A class has the method too, and the forgotten parentheses are a common mistake.
    if isinstance(value, type):
        raise InvalidConfigError(f"{group} is the class {value.__name__}, must be an object: {value.__name__}()")
    if not callable(getattr(value, method, None)):
        raise _invalid(group, value, f"{kinds} or an object with a method {method}")
    return Given(value, described(value))


def cluster_part(cluster: ClusterLike | None) -> Part:
    """Return the cluster as a part of a run."""
    if cluster is None or isinstance(cluster, str | Choice):
        return _choice("cluster", cluster)
    if isinstance(cluster, tuple) and len(cluster) == 2:
        num_nodes, gpus_per_node = cluster
        # Settings of the default entry, so that their values are checked like those of `polluxsim run`.
        return Choice("cluster", None, {"num_nodes": num_nodes, "gpus_per_node": gpus_per_node})
    if not isinstance(cluster, Cluster):
        raise _invalid("cluster", cluster, "a name, polluxsim.cluster(...), a Cluster or (nodes, GPUs per node)")
    return Given(cluster, _described_cluster(cluster))


def workload_part(workload: WorkloadLike | None) -> Part:
    """Return the workload as a part of a run. Text that ends like the name of a table is the name of a file."""
    if isinstance(workload, str | Path) and Path(workload).suffix in TABLES:
        return Choice("workload", "file", {"path": str(workload)})
    # `Choice` reports unknown names too, but without the names of files.
    is_unknown_name = isinstance(workload, str) and workload not in entries("workload")
    if is_unknown_name or isinstance(workload, Path):
        choices = f"choose from {', '.join(entries('workload'))} and files that end in {' or '.join(TABLES)}"
        raise InvalidConfigError(f"workload={workload} is unknown; {choices}")
    if workload is None or isinstance(workload, str | Choice):
        return _choice("workload", workload)
    if isinstance(workload, pd.DataFrame):
        workload = workload_from_frame(workload)
    if not isinstance(workload, Workload):
        raise _invalid("workload", workload, "a name, polluxsim.workload(...), a file, a table or a Workload")
    # Equal jobs have one digest, whichever line of which file they come from.
    jobs = repr([replace(job, line=0) for job in workload.jobs])
    digest = sha256(jobs.encode()).hexdigest()
    return Given(workload, {"object": _name_of(workload), "num_jobs": len(workload.jobs), "sha256": digest})


def profiles_part(profiles: ProfilesLike | None) -> Part:
    """Return the profiles as a part of a run. Text is the name of a folder."""
    if profiles is None or isinstance(profiles, Choice):
        return _choice("profiles", profiles)
    # There is one entry, `folder`, so that text means the folder and not the entry.
    if isinstance(profiles, str | Path):
        return Choice("profiles", "folder", {"path": str(profiles)})
    if not isinstance(profiles, Mapping):
        raise _invalid("profiles", profiles, "a folder, polluxsim.profiles(...), or profiles by application")
    return Given(profiles, {"object": _name_of(profiles), "applications": sorted(profiles)})


def settings_part(settings: SettingsLike | None) -> Part:
    """Return the settings of the engine as a part of a run."""
    if settings is None or isinstance(settings, str | Choice):
        return _choice("engine", settings)
    if not isinstance(settings, EngineSettings):
        raise _invalid("settings", settings, "a name, polluxsim.settings(...) or EngineSettings")
    return Given(settings, described(settings))


def described(value: object) -> dict[str, object]:
    """Return the `_target_` and the parameters of an importable dataclass of plain values.

    For each other object return only the name of its class, as `object`.

    >>> described(EngineSettings(round_interval=30.0))["round_interval"]
    30.0
    """
    name = _name_of(value)
    # A class of a notebook, a script or a function cannot be imported by another process.
    is_importable = not name.startswith("__main__.") and "<locals>" not in name
    if is_dataclass(value) and is_importable:
        values = {}
        for parameter in fields(value):
            if parameter.init:
                values[parameter.name] = _plain(getattr(value, parameter.name))
        if all(map(_is_plain, values.values())):
            return {"_target_": name, **values}
    return {"object": name}


def _plain(value: object) -> object:
    """Return a value as a configuration states it, where it can; other values are returned unchanged."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    # A dataclass that is not frozen may have state besides its parameters, so that these do not describe it.
    is_frozen = is_dataclass(value) and getattr(value, "__dataclass_params__").frozen  # noqa: B009
    return described(value) if is_frozen else as_plain(value)


def _is_plain(value: object) -> bool:
    """Return whether a configuration can state a value that `_plain` returned; False for lists."""
    if isinstance(value, Mapping):
        # The key `object` is that of an object inside the value, of which only the class is known.
        return "object" not in value and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)


def _choice(group: str, choice: Choice | str | None) -> Choice:
    """Return the choice of a configuration file by its name, or a given choice of this group."""
    if not isinstance(choice, Choice):
        return Choice(group, choice)
    # `polluxsim.cluster(...)` in the place of a policy would have no effect there.
    if choice.group != group:
        raise _invalid(group, choice, f"a choice of {group}")
    return choice


def _described_cluster(cluster: Cluster) -> dict[str, object]:
    """Return the call that makes an equal cluster if a configuration can state it; otherwise the name of the class."""
    parts = {name: getattr(cluster, name) for name in ("failures", "spot", "repairs")}
    stated = {name: _plain(part) for name, part in parts.items()}
    if not _is_plain(stated):
        return {"object": _name_of(cluster)}
    # The attributes of a cluster are not its parameters. So the calls are tried, the most common one first.
    if Cluster.of_groups(cluster.groups, **parts) == cluster:
        return {"_target_": "polluxsim.hardware.clusters.Cluster.of_groups", "groups": cluster.groups, **stated}
    # `Cluster.elastic` makes clusters whose number of nodes can change, of equal nodes.
    if cluster.least_nodes is None or len(cluster.groups) > 1:
        return described(cluster)
    return {
        "_target_": "polluxsim.hardware.clusters.Cluster.elastic",
        "num_nodes": cluster.num_nodes,
        "least_nodes": cluster.least_nodes,
        "gpus_per_node": cluster.gpus_per_node[0],
        "startup_time": cluster.startup_time,
        "node_price": cluster.node_price,
        "failures": stated["failures"],
        "spot": stated["spot"],
    }


def _name_of(value: object) -> str:
    """Return the dotted name of the class of an object."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _invalid(name: str, value: object, kinds: str) -> InvalidConfigError:
    """Return the error about a part that is none of the allowed `kinds` of values, with advice about a list."""
    text = " ".join(repr(value).split())  # on one line, because the texts of tables have several
    if len(text) > MOST_SHOWN:
        text = f"{text[: MOST_SHOWN - 3]}..."
    advice = ""
    if isinstance(value, list):
        is_cluster = name == "cluster" and len(value) == 2
        are_jobs = name == "workload" and all(isinstance(item, Job) for item in value)
        if is_cluster:
            advice = f"; write {tuple(value)!r}"
        elif are_jobs:
            advice = "; write polluxsim.Workload(tuple(jobs))"
        else:
            advice = "; polluxsim.sweep takes a list of values"
    return InvalidConfigError(f"{name} is {text}, must be {kinds}{advice}")
