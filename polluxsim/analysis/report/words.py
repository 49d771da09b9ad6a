"""What was run, in words: names of policies, workloads and clusters out of a run's configuration."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TARGET = "_target_"

IRRELEVANT = {"profiles", "workload.seed", "policy." + TARGET}
"""What says nothing in a run's label: the policy's name stands there anyway, and a workload's seed is the run's."""


def policy_name(info: Mapping[str, Any]) -> str:
    """Return the name of the policy's class, "run" where the run does not say.

    >>> policy_name({"config": {"policy": {"_target_": "polluxsim.policies.fifo.Fifo"}}})
    'Fifo'
    """
    return _class_name(_part(info, "policy")) or "run"


def labels(names: Sequence[str], infos: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a label for each run: its policy and the settings in which the runs differ.

    Parameters
    ----------
    names
        The runs' own names, for those that nothing else tells apart.
    infos
        What their run.json says.
    """
    settings = [{key: value for key, value in _flat(info.get("config", {}))} for info in infos]
    policies = [policy_name(info) for info in infos]
    found = []
    for policy, setting in zip(policies, settings, strict=True):
        like = [other for name, other in zip(policies, settings, strict=True) if name == policy]
        differ = [key for key in setting if any(other.get(key) != setting[key] for other in like)]
        told = [f"{_short(key)} = {_value(setting[key])}" for key in differ if not _is_irrelevant(key)]
        found.append(" · ".join([policy, *told]))
    return [
        label if found.count(label) == 1 else f"{label} ({name})" for label, name in zip(found, names, strict=True)
    ]


def workload_words(info: Mapping[str, Any]) -> str:
    """Return what was run, like `PhillyLike, hours 8` or the name of a file."""
    workload = _part(info, "workload")
    name = _class_name(workload)
    if "path" in workload:
        path = workload["path"]
        return "the shipped workload" if path is None else f"workload {PurePath(str(path)).name}"
    told = [f"{key} {_value(value)}" for key, value in workload.items() if key not in {TARGET, "seed", "num_jobs"}]
    return ", ".join([re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) or "a workload", *told])


def cluster_words(gpus_per_node: Sequence[int]) -> str:
    """Return the nodes by kind.

    >>> cluster_words([4, 4, 8])
    '2 nodes × 4 GPUs + 1 node × 8 GPUs'
    """
    counts = {gpus: list(gpus_per_node).count(gpus) for gpus in gpus_per_node}
    return " + ".join(
        f"{count} node{'s' * (count > 1)} × {gpus} GPU{'s' * (gpus > 1)}" for gpus, count in counts.items()
    )


def configured_nodes(info: Mapping[str, Any]) -> list[int]:
    """Return the GPUs of each node as far as the configuration says in one of our own ways, else nothing."""
    cluster = _part(info, "cluster")
    groups = cluster.get("groups") or [[cluster.get("num_nodes", 0), cluster.get("gpus_per_node", 0)]]
    return [int(gpus) for count, gpus in groups for _ in range(int(count))]


def setting(info: Mapping[str, Any], group: str, name: str) -> str:
    """Return one setting in words, an en dash where there is none."""
    part = _part(info, group)
    return _value(part[name]) if part.get(name) is not None else "–"


def _part(info: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    part = info.get("config", {}).get(group, {})
    return part if isinstance(part, dict) else {}


def _class_name(part: Mapping[str, Any]) -> str:
    return str(part.get(TARGET, "")).rsplit(".", 1)[-1]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _is_irrelevant(key: str) -> bool:
    return key in IRRELEVANT or key.startswith("profiles.") or key.endswith("." + TARGET)


def _short(key: str) -> str:
    return key.removeprefix("policy.").removeprefix("engine.")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}".replace("-", "−")
    return str(value)
