"""The nodes and partitions of a cluster, as `sinfo --json` and `scontrol show` print them.

All forms give the same `StateNode`, so that a state can be read from whichever output there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from polluxsim.logs.live.loose_json import JsonObject, text, whole, words
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.node_files import GRES_GPU, OUT_STATES

MARKS = "*~#!%@^-+$"  # marks of sinfo after the state of a node


class StateNode(NamedTuple):
    """A node of the cluster, with what it has in all, also while jobs hold it."""

    name: str
    gpus: int
    cpus: int
    weight: int  # nodes with a lower weight are taken first
    gpu_type: str  # empty if unknown
    features: frozenset[str]
    partitions: tuple[str, ...]
    out: str  # why it takes no jobs, like "drained"; empty if it takes jobs
    is_completing: bool = False  # whether a job that ended still holds it


class StatePartition(NamedTuple):
    """A partition of `scontrol show partitions`."""

    name: str
    nodes: tuple[str, ...]  # empty for all nodes of this partition in the list of nodes
    tier: int  # jobs of a higher tier are scheduled first
    is_default: bool  # whether jobs that name no partition are in it
    default_limit: int  # [s]; 0 for none
    largest_limit: int  # [s]; 0 for none


def nodes_of_json(values: JsonObject) -> Iterator[StateNode]:
    """Yield the nodes of an object of `sinfo --json`: one node, or since 23.02 a group of equal nodes."""
    if isinstance(values.get("nodes"), dict):
        yield from _nodes_of_group(values)
        return
    name = text(values.get("name"))
    if name:
        yield _node(
            name,
            gres=text(values.get("gres")),
            cpus=whole(values.get("cpus")),
            weight=whole(values.get("weight"), 1),
            features=text(values.get("active_features")) or text(values.get("features")),
            partitions=tuple(text(values.get("partitions")).split(",")),
            states=[*words(values.get("state")), *words(values.get("state_flags"))],
        )


def _nodes_of_group(values: JsonObject) -> Iterator[StateNode]:
    """Yield the nodes of a group, which is in one partition. A node of several partitions is in several groups."""
    node = values.get("node")
    states = words(node.get("state")) if isinstance(node, dict) else []
    partition = values.get("partition")
    for name in values["nodes"].get("nodes") or ():
        # The nodes of a group are equal, so that its largest numbers are those of each.
        yield _node(
            name,
            gres=_part(values, "gres", "total"),
            cpus=whole(_value(values, "cpus", "maximum")),
            weight=whole(_value(values, "weight", "maximum"), 1),
            features=_part(values, "features", "total"),
            partitions=(text(partition.get("name")),) if isinstance(partition, dict) else (),
            states=states,
        )


def _value(values: JsonObject, key: str, part: str) -> object:
    """Return a value of the inner object under a key; None without such an object or value."""
    inner = values.get(key)
    return inner.get(part) if isinstance(inner, dict) else None


def _part(values: JsonObject, key: str, part: str) -> str:
    """Return a text of the inner object under a key; empty without one."""
    return text(_value(values, key, part))


def _node(
    name: str, *, gres: str, cpus: int, weight: int, features: str, partitions: tuple[str, ...], states: list[str]
) -> StateNode:
    """Return a node from the texts of Slurm. The first state in which a node takes no jobs is the one that counts."""
    gpus = 0
    gpu_type = ""
    for match in GRES_GPU.finditer(gres):
        gpus += int(match[2] or 1)
        gpu_type = match[1] or gpu_type
    plain_states = [state.rstrip(MARKS).lower() for state in states]
    out = next((OUT_STATES[state] for state in plain_states if state in OUT_STATES), "")
    # The mark * stands at a node that does not answer, whatever its state.
    if any(state.endswith("*") for state in states):
        out = out or "not responding"
    return StateNode(
        name=name,
        gpus=gpus,
        cpus=max(cpus, 1),
        weight=weight,
        gpu_type=gpu_type,
        features=frozenset(filter(None, features.replace("(null)", "").split(","))),
        partitions=tuple(filter(None, partitions)),
        out=out,
        is_completing=any(state in ("completing", "comp") for state in plain_states),
    )


def fields_of(line: str) -> dict[str, str]:
    """Return the values of a line of `scontrol show … -o` by key.

    >>> fields_of("NodeName=n1 Gres=gpu:4 Reason=not ok [root]")
    {'NodeName': 'n1', 'Gres': 'gpu:4', 'Reason': 'not ok [root]'}
    """
    # A value may have spaces, so that it ends before the next key and not at a space.
    matches = re.finditer(r"(\S+?)=(.*?)(?=\s+[\w/:]+=|$)", line)
    return {match[1]: match[2].strip() for match in matches}


def node_of_line(line: str) -> StateNode | None:
    """Return the node of a line of `scontrol show nodes -o`; None if it has no name, or no number of CPUs."""
    fields = fields_of(line)
    # CPUs that Slurm's own services use are no part of CPUEfctv, which older versions do not print.
    cpus = fields.get("CPUEfctv") or fields.get("CPUTot") or ""
    if "NodeName" not in fields or not cpus.isdecimal():
        return None
    weight = fields.get("Weight", "1")
    return _node(
        fields["NodeName"],
        gres=fields.get("Gres", ""),
        cpus=int(cpus),
        weight=int(weight) if weight.isdecimal() else 1,
        features=fields.get("ActiveFeatures", ""),
        partitions=tuple(fields.get("Partitions", "").split(",")),
        states=words(fields.get("State", "")),
    )


def partition_of_line(line: str) -> StatePartition | None:
    """Return the partition of a line of `scontrol show partitions -o`; None if it has no name."""
    fields = fields_of(line)
    if "PartitionName" not in fields:
        return None
    tier = fields.get("PriorityTier", "1")
    nodes = expanded(fields.get("Nodes", "").replace("(null)", "")) or []
    return StatePartition(
        fields["PartitionName"],
        tuple(nodes),
        int(tier) if tier.isdecimal() else 1,
        fields.get("Default", "NO") == "YES",
        minutes(fields.get("DefaultTime", "")),
        minutes(fields.get("MaxTime", "")),
    )


def minutes(limit: str) -> int:
    """Return a time limit of Slurm in seconds; 0 if there is none or it cannot be read.

    Slurm takes a single number as minutes.

    >>> minutes("1-00:00:00"), minutes("30"), minutes("02:00:00"), minutes("UNLIMITED")
    (86400, 1800, 7200, 0)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit.strip())
    if match is None:
        return 0
    days = int(match[1] or 0)
    first = int(match[2])
    second = int(match[3] or 0)
    # What the first number counts depends on the form of the limit.
    if match[4] is not None:  # hours:minutes:seconds, perhaps after days
        return days * 86_400 + first * 3600 + second * 60 + int(match[4])
    if match[1] is not None:  # days-hours or days-hours:minutes
        return days * 86_400 + first * 3600 + second * 60
    return first * 60 + second  # minutes or minutes:seconds
