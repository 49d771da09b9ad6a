"""The nodes and partitions of a cluster, as `sinfo --json` and `scontrol show` print them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from polluxsim.logs.live.loose_json import JsonObject, text, whole, words
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.node_files import GRES_GPU, OUT_STATES

MARKS = "*~#!%@^-+$"  # marks of sinfo after the state of a node


class StateNode(NamedTuple):
    """A node."""

    name: str
    gpus: int
    cpus: int
    weight: int
    gpu_type: str
    features: frozenset[str]
    partitions: tuple[str, ...]
    out: str  # why it takes no jobs, like "drained"; empty if it takes jobs
    is_completing: bool = False


class StatePartition(NamedTuple):
    """A partition of `scontrol show partitions`."""

    name: str
    nodes: tuple[str, ...]  # empty for all nodes of this partition in the list of nodes
    tier: int
    is_default: bool
    default_limit: int  # [s]; 0 for none
    largest_limit: int  # [s]; 0 for none


def nodes_of_json(values: JsonObject) -> Iterator[StateNode]:
    """Yield the nodes of an object of `sinfo --json`: one node, or since 23.02 a group of equal nodes."""
    group = values.get("nodes")
    if not isinstance(group, dict):
        name = text(values.get("name"))
        if name:
            states = [*words(values.get("state")), *words(values.get("state_flags"))]
            yield _node(
                name,
                gres=text(values.get("gres")),
                cpus=whole(values.get("cpus")),
                weight=whole(values.get("weight"), 1),
                features=text(values.get("active_features")) or text(values.get("features")),
                partitions=tuple(text(values.get("partitions")).split(",")),
                states=states,
            )
        return
    node = values.get("node")
    states = words(node.get("state")) if isinstance(node, dict) else []
    partition = values.get("partition")
    for name in group.get("nodes") or ():
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
    """Return a part of an object in an object."""
    inner = values.get(key)
    return inner.get(part) if isinstance(inner, dict) else None


def _part(values: JsonObject, key: str, part: str) -> str:
    """Return a text in an object in an object."""
    return text(_value(values, key, part))


def _node(
    name: str, *, gres: str, cpus: int, weight: int, features: str, partitions: tuple[str, ...], states: list[str]
) -> StateNode:
    """Return a node from the texts of Slurm."""
    gpus = 0
    gpu_type = ""
    for match in GRES_GPU.finditer(gres):
        gpus += int(match[2] or 1)
        gpu_type = match[1] or gpu_type
    plain_states = [state.rstrip(MARKS).lower() for state in states]
    out = next((OUT_STATES[state] for state in plain_states if state in OUT_STATES), "")
    if any(state.endswith("*") for state in states):
        out = out or "not responding"
    known_features = frozenset(filter(None, features.replace("(null)", "").split(",")))
    named_partitions = tuple(filter(None, partitions))
    is_completing = any(state in ("completing", "comp") for state in plain_states)
    return StateNode(name, gpus, max(cpus, 1), weight, gpu_type, known_features, named_partitions, out, is_completing)


def fields_of(line: str) -> dict[str, str]:
    """Return the values of a line of `scontrol show … -o` by key.

    >>> fields_of("NodeName=n1 Gres=gpu:4 Reason=not ok [root]")
    {'NodeName': 'n1', 'Gres': 'gpu:4', 'Reason': 'not ok [root]'}
    """
    return {match[1]: match[2].strip() for match in re.finditer(r"(\S+?)=(.*?)(?=\s+[\w/:]+=|$)", line)}


def node_of_line(line: str) -> StateNode | None:
    """Return the node of a line of `scontrol show nodes -o`; None if it has no name or no CPUs."""
    fields = fields_of(line)
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


def minutes(words_of_limit: str) -> int:
    """Return a time limit of Slurm [s]; 0 if there is none or it cannot be read.

    >>> minutes("1-00:00:00"), minutes("30"), minutes("02:00:00"), minutes("UNLIMITED")
    (86400, 1800, 7200, 0)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", words_of_limit.strip())
    if match is None:
        return 0
    days = int(match[1] or 0)
    first, second, third = int(match[2]), match[3], match[4]
    if third is not None:
        return days * 86_400 + first * 3600 + int(second) * 60 + int(third)
    if match[1] is not None:  # days-hours or days-hours:minutes
        return days * 86_400 + first * 3600 + int(second or 0) * 60
    return first * 60 + int(second or 0)
