"""What a user may give for each part of a run: a choice from the configuration, or an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from polluxsim.api.choices import Choice, entries
from polluxsim.engine.settings import EngineSettings
from polluxsim.errors import InvalidConfigError
from polluxsim.types import Cluster
from polluxsim.workloads.workload import Workload, workload_from_frame

if TYPE_CHECKING:
    from polluxsim.agent.rules import BatchRule
    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy

TABLES = (".csv", ".parquet")

AgentLike: TypeAlias = "Choice | str | BatchRule"
PolicyLike: TypeAlias = "Choice | str | Policy"
ClusterLike: TypeAlias = "Choice | str | Cluster | tuple[int, int]"
WorkloadLike: TypeAlias = "Choice | str | Path | Workload | pd.DataFrame"
ProfilesLike: TypeAlias = "Choice | str | Path | Mapping[str, Profile]"
SettingsLike: TypeAlias = "Choice | str | EngineSettings"


@dataclass(frozen=True)
class Given:
    """A part that is an object already."""

    value: Any
    description: Mapping[str, object]  # what run.json says of it


Part: TypeAlias = Choice | Given


def policy_part(policy: PolicyLike | None) -> Part:
    """Return the policy."""
    return _guest("policy", policy, "allocate", "a name, polluxsim.policy(...)")


def agent_part(agent: AgentLike) -> Part:
    """Return what agents go by."""
    return _guest("agent", agent, "batch_size", "a name")


def _guest(group: str, guest: object, method: str, also_allowed: str) -> Part:
    """Return a choice, or an object that has the method that its group is for."""
    if guest is None or isinstance(guest, str | Choice):
        return _choice(group, guest)
    if isinstance(guest, type):
        raise InvalidConfigError(f"{group} is the class {guest.__name__}, allowed is an object: {guest.__name__}()")
    if not callable(getattr(guest, method, None)):
        raise _not_allowed(group, guest, f"{also_allowed} or an object with a method {method}")
    return Given(guest, described(guest))


def cluster_part(cluster: ClusterLike | None) -> Part:
    """Return the cluster."""
    if cluster is None or isinstance(cluster, str | Choice):
        return _choice("cluster", cluster)
    if isinstance(cluster, tuple) and len(cluster) == 2:
        return Choice("cluster", None, {"num_nodes": cluster[0], "gpus_per_node": cluster[1]})
    if not isinstance(cluster, Cluster):
        raise _not_allowed("cluster", cluster, "a name, polluxsim.cluster(...), a Cluster or (nodes, GPUs per node)")
    return Given(cluster, _described_cluster(cluster))


def workload_part(workload: WorkloadLike | None) -> Part:
    """Return the workload, or where it comes from; text is a file if it ends like one."""
    if isinstance(workload, str | Path) and Path(workload).suffix in TABLES:
        return Choice("workload", "file", {"path": str(workload)})
    if isinstance(workload, Path) or (isinstance(workload, str) and workload not in entries("workload")):
        allowed = f"allowed are {', '.join(entries('workload'))} and files that end in {' or '.join(TABLES)}"
        raise InvalidConfigError(f"workload={workload} is unknown, {allowed}")
    if workload is None or isinstance(workload, str | Choice):
        return _choice("workload", workload)
    if isinstance(workload, pd.DataFrame):
        workload = workload_from_frame(workload)
    if not isinstance(workload, Workload):
        raise _not_allowed("workload", workload, "a name, polluxsim.workload(...), a file, a table or a Workload")
    jobs = repr([replace(job, line=0) for job in workload.jobs])
    digest = sha256(jobs.encode()).hexdigest()
    return Given(workload, {"object": _name_of(workload), "num_jobs": len(workload.jobs), "sha256": digest})


def profiles_part(profiles: ProfilesLike | None) -> Part:
    """Return the profiles, or where they come from; text is a folder."""
    if profiles is None or isinstance(profiles, Choice):
        return _choice("profiles", profiles)
    if isinstance(profiles, str | Path):
        return Choice("profiles", "folder", {"path": str(profiles)})
    if not isinstance(profiles, Mapping):
        raise _not_allowed("profiles", profiles, "a folder, polluxsim.profiles(...), or profiles by application")
    return Given(profiles, {"object": _name_of(profiles), "applications": sorted(profiles)})


def settings_part(settings: SettingsLike | None) -> Part:
    """Return the rules of time and what changes cost."""
    if settings is None or isinstance(settings, str | Choice):
        return _choice("engine", settings)
    if not isinstance(settings, EngineSettings):
        raise _not_allowed("settings", settings, "a name, polluxsim.settings(...) or EngineSettings")
    return Given(settings, described(settings))


def described(value: object) -> dict[str, object]:
    """Return what makes an object again, where it is a dataclass of plain values that can be imported, else its name.

    >>> described(EngineSettings(round_interval=30.0))["round_interval"]
    30.0
    """
    name = _name_of(value)
    if is_dataclass(value) and not name.startswith("__main__.") and "<locals>" not in name:
        values = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}
        if all(map(_is_plain, values.values())):
            return {"_target_": name, **values}
    return {"object": name}


def _plain(value: object) -> object:
    """Return what a configuration says of a value; a dataclass that can change may remember more than it says."""
    frozen = is_dataclass(value) and getattr(value, "__dataclass_params__").frozen  # noqa: B009
    return described(value) if frozen else value


def _is_plain(value: object) -> bool:
    """Return whether a configuration can say this."""
    if isinstance(value, Mapping):
        return "object" not in value and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str)


def _choice(group: str, choice: Choice | str | None) -> Choice:
    if not isinstance(choice, Choice):
        return Choice(group, choice)
    if choice.group != group:
        raise _not_allowed(group, choice, f"a choice of {group}")
    return choice


def _described_cluster(cluster: Cluster) -> dict[str, object]:
    """Return the call that makes an equal cluster again, where there is one in the configuration."""
    parts = {name: getattr(cluster, name) for name in ("failures", "spot", "repairs")}
    said = {name: _plain(part) for name, part in parts.items()}
    if not _is_plain(said):
        return {"object": _name_of(cluster)}
    if Cluster.of_groups(cluster.groups, **parts) == cluster:
        return {"_target_": "polluxsim.types.Cluster.of_groups", "groups": cluster.groups, **said}
    if cluster.least_nodes is None or len(cluster.groups) > 1:
        return described(cluster)
    return {
        "_target_": "polluxsim.types.Cluster.elastic",
        "num_nodes": cluster.num_nodes,
        "least_nodes": cluster.least_nodes,
        "gpus_per_node": cluster.gpus_per_node[0],
        "startup_time": cluster.startup_time,
        "node_price": cluster.node_price,
        "failures": said["failures"],
        "spot": said["spot"],
    }


def _name_of(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _not_allowed(name: str, value: object, allowed: str) -> InvalidConfigError:
    shown = " ".join(repr(value).split())
    return InvalidConfigError(f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}, allowed is {allowed}")
