"""Read slurm.conf and gres.conf, and remember which lines are not used.

Keys on nodes and partitions are compared in small letters. A line with the name DEFAULT states defaults for the later
lines of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError, bad_line, reading
from polluxsim.logs.live.nodes import StatePartition, fields_of, minutes
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.node_files import GRES_GPU, SiteNode

OF_NODE = ("nodename", "gres", "state", "weight", "feature", "features", "cpus")
OF_PARTITION = ("partitionname", "nodes", "prioritytier", "default", "defaulttime", "maxtime", "state")
"""Keys of a node and of a partition that are used, in small letters."""

OUT = {"down": "down", "drain": "drained", "fail": "failing", "future": "not in use"}
"""States in slurm.conf of nodes that take no jobs."""


class Line(NamedTuple):
    """A line of a configuration file."""

    number: int  # of its first line
    text: str  # without comment, with the lines that continue it


class Unused(NamedTuple):
    """A line, or a part of it, that is not used."""

    file: str
    number: int
    text: str


@dataclass
class SlurmConf:
    """What configuration files state."""

    name: str = "cluster"  # `ClusterName`
    settings: dict[str, tuple[Line, str]] = field(default_factory=dict)  # line and value of each further key
    nodes: list[SiteNode] = field(default_factory=list)
    partitions: list[StatePartition] = field(default_factory=list)
    unused: list[Unused] = field(default_factory=list)


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a configuration file that are not empty. A backslash continues a line.

    Raise InvalidInputError if there is no such file, or it cannot be read.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    with reading(path):
        texts = path.read_bytes().decode(errors="replace").splitlines()
    parts: list[str] = []
    for number, text in enumerate(texts, start=1):
        plain = re.sub(r"(?<!\\)#.*", "", text).rstrip()
        parts.append(plain.removesuffix("\\").strip())
        # Nothing can continue the last line.
        if plain.endswith("\\") and number < len(texts):
            continue
        whole = " ".join(filter(None, parts))
        if whole:
            yield Line(number - len(parts) + 1, whole)
        parts = []


def read_conf(path: Path, gres: Path | None = None) -> SlurmConf:
    """Return what slurm.conf, and perhaps gres.conf, state.

    Raise InvalidInputError if a file cannot be read, a line of slurm.conf is neither KEY=VALUE nor an include, the list
    of nodes of a line cannot be read, or there are no nodes.
    """
    conf = SlurmConf()
    # Nodes and partitions refer to one another, so that they are made after all lines are read.
    nodes: list[tuple[str, dict[str, str]]] = []
    partitions: list[dict[str, str]] = []
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in lines_of(path):
        key, equals, value = line.text.partition("=")
        kind = key.strip().lower()
        if not equals:
            if kind.startswith("include "):
                conf.unused.append(Unused(path.name, *line))
                continue
            raise bad_line(path, line.number, f"{line.text!r} must be KEY=VALUE; give the configuration of Slurm")
        if kind not in defaults:
            conf.settings[key.strip()] = (line, value.strip())
            continue
        fields = _used_fields(line, kind, path, conf)
        if fields[kind].upper() == "DEFAULT":
            defaults[kind] |= fields
            continue
        fields = {**defaults[kind], **fields}
        if kind == "nodename":
            names = expanded(fields[kind])
            if names is None:
                raise bad_line(path, line.number, f"{fields[kind]!r} is no list of nodes, like n[1-4]; correct it")
            nodes += [(name, fields) for name in names]
        else:
            partitions.append(fields)
    if not nodes:
        raise InvalidInputError(f"{path}: no line has NodeName=; give the slurm.conf of a cluster")
    if "ClusterName" in conf.settings:
        conf.name = conf.settings["ClusterName"][1]
    conf.partitions = [_partition(fields, [name for name, _ in nodes]) for fields in partitions]
    types = _types_in_gres(gres, conf) if gres is not None else {}
    for name, fields in nodes:
        conf.nodes.append(_node(name, fields, conf.partitions, types.get(name, "")))
    return conf


def _used_fields(line: Line, kind: str, path: Path, conf: SlurmConf) -> dict[str, str]:
    """Return the values of a line on nodes or partitions by key in small letters, and note the keys that are not used.

    `kind` is the first key of the line in small letters.
    """
    used = OF_NODE if kind == "nodename" else OF_PARTITION
    fields = {}
    unused = []
    for key, value in fields_of(line.text).items():
        fields[key.lower()] = value.strip('"')
        if key.lower() not in used:
            unused.append(f"{key}={value}")
    if unused:
        conf.unused.append(Unused(path.name, line.number, " ".join(unused)))
    return fields


def _partition(fields: dict[str, str], all_nodes: Sequence[str]) -> StatePartition:
    """Return the partition that the values of a line state. Nodes that cannot be read are left out."""
    listed = fields.get("nodes", "")
    nodes = all_nodes if listed.upper() == "ALL" else expanded(listed) or ()
    tier = fields.get("prioritytier", "1")
    return StatePartition(
        fields["partitionname"],
        tuple(nodes),
        int(tier) if tier.isdecimal() else 1,
        fields.get("default", "").upper() == "YES",
        minutes(fields.get("defaulttime", "")),
        minutes(fields.get("maxtime", "")),
    )


def _node(name: str, fields: dict[str, str], partitions: Sequence[StatePartition], gpu_type: str) -> SiteNode:
    """Return a node of slurm.conf. `gpu_type` is the one in gres.conf, which a type in slurm.conf replaces."""
    gpus = 0
    for match in GRES_GPU.finditer(fields.get("gres", "")):
        gpus += int(match[2] or 1)
        gpu_type = match[1] or gpu_type
    names = tuple(partition.name for partition in partitions if name in partition.nodes)
    return SiteNode(name, gpus, gpu_type, names, OUT.get(fields.get("state", "").lower(), ""))


def _types_in_gres(path: Path, conf: SlurmConf) -> dict[str, str]:
    """Return the GPU type of each node that gres.conf names with one, and note the lines that are not used."""
    types: dict[str, str] = {}
    for line in lines_of(path):
        fields = {name.lower(): text for name, text in fields_of(line.text).items()}
        names = expanded(fields.get("nodename", "")) or []
        if fields.get("name") == "gpu" and "type" in fields and names:
            types |= dict.fromkeys(names, fields["type"])
        else:
            conf.unused.append(Unused(path.name, *line))
    return types
