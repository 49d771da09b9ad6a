"""The nodes of a site, from `sinfo`, `scontrol show nodes` or `kubectl get nodes`, as the groups of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.hardware.gpu_types import gpu_settings, types_in
from polluxsim.logs.formats.base import CPU, GPU
from polluxsim.logs.site.node_files import SiteNode, nodes_in

NO_GPUS = "without GPUs"


class NodeGroup(NamedTuple):
    """Equal nodes."""

    nodes: tuple[str, ...]  # names
    gpus: int  # of each node
    gpu_type: str  # name of a GPU type of polluxsim; "" if it is not stated
    partitions: tuple[str, ...]

    def as_setting(self) -> dict[str, Any]:
        """Return the group in the form of `cluster.groups`."""
        setting: dict[str, Any] = {"nodes": len(self.nodes), "gpus": self.gpus}
        if self.gpu_type:
            (gpu,) = types_in(self.gpu_type)
            setting["type"] = gpu_settings(gpu)
            if not isinstance(setting["type"], str):  # figures are unknown, so the name has to suffice
                setting["type"] = {"name": gpu.name}
        if self.partitions:
            setting["partitions"] = list(self.partitions)
        return setting


class NodeList(NamedTuple):
    """The nodes of a site that take jobs, in groups, and those that do not."""

    source: str  # name of the file
    unit: str  # what counts: GPUs or CPUs
    groups: tuple[NodeGroup, ...]
    left_out: Mapping[str, Sequence[str]]  # names of the other nodes, by the reason
    notes: tuple[str, ...] = ()  # sentences on what was left out of the groups

    @property
    def numbers(self) -> dict[str, int]:
        """Return the number of each node in the cluster, by its name."""
        names = chain.from_iterable(group.nodes for group in self.groups)
        return {name: number for number, name in enumerate(names)}

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes that take jobs."""
        return sum(len(group.nodes) for group in self.groups)

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs, or of CPUs if they count, on nodes that take jobs."""
        return sum(len(group.nodes) * group.gpus for group in self.groups)

    def partitions(self) -> dict[str, tuple[int, int]]:
        """Return the number of nodes and of GPUs of each partition, by its name."""
        nodes = Counter[str]()
        gpus = Counter[str]()
        for group in self.groups:
            for partition in group.partitions:
                nodes[partition] += len(group.nodes)
                gpus[partition] += len(group.nodes) * group.gpus
        return {name: (nodes[name], gpus[name]) for name in nodes}


def read_nodes(path: Path, unit: str = GPU) -> NodeList:
    """Return the nodes of a site.

    `unit` is `gpus`, or `cpus` to count CPUs in place of GPUs. The file is the output of `sinfo`, `scontrol show nodes`
    or `kubectl get nodes`, as text or JSON.

    Raise InvalidConfigError if the unit is another one, and InvalidInputError if the file is none of these, a value is
    invalid, or no node takes jobs.
    """
    if unit not in (GPU, CPU):
        raise InvalidConfigError(f"--unit is {unit!r}, must be {GPU} or {CPU} for nodes; write one of them")
    nodes = list(nodes_in(path, unit))
    if not nodes:
        raise InvalidInputError(f"{path}: the list has no node; give the output for all nodes")
    return node_list(path.name, nodes, unit)


def node_list(source: str, nodes: Iterable[SiteNode], unit: str = GPU) -> NodeList:
    """Return nodes as groups of equal nodes, in the order of their first nodes.

    Raise InvalidInputError if no node takes jobs.
    """
    word = "GPUs"
    without_any = NO_GPUS
    if unit == CPU:
        word = "CPUs"
        without_any = "without CPUs"
    taking = list[SiteNode]()  # nodes that take jobs
    left_out = dict[str, list[str]]()
    nodes = list(nodes)
    # Where a site has partitions, jobs are submitted to one of them, so a node in none takes no jobs.
    has_partitions = any(node.partitions for node in nodes)
    for node in nodes:
        if not node.gpus:
            left_out.setdefault(without_any, []).append(node.name)
        elif has_partitions and not node.partitions:
            left_out.setdefault("in no partition", []).append(node.name)
        elif node.out:
            left_out.setdefault(node.out, []).append(node.name)
        else:
            taking.append(node)
    if not taking:
        reasons = "; ".join(f"{len(names)} {reason}" for reason, names in left_out.items())
        advice = "give the list of other nodes"
        if list(left_out) == [NO_GPUS]:
            advice += ", or count CPUs with --unit cpus"
        raise InvalidInputError(f"{source}: no node with {word} takes jobs ({reasons}); {advice}")
    notes = []
    typeless = [node.name for node in taking if not _type_of(node)]
    # All nodes have types or none: a cluster cannot have a type for some of its nodes only.
    has_types = not typeless and unit == GPU
    if typeless and len(typeless) < len(taking):
        notes.append(f"types left out: {len(typeless)} of {len(taking)} nodes state no GPU type, like {typeless[0]}")
    names_by_kind = dict[tuple[int, str, tuple[str, ...]], list[str]]()
    for node in taking:
        gpu_type = ""
        if has_types:
            gpu_type = _type_of(node)
        kind = (node.gpus, gpu_type, node.partitions)
        names_by_kind.setdefault(kind, []).append(node.name)
    groups = []
    for (gpus, gpu_type, partitions), names in names_by_kind.items():
        groups.append(NodeGroup(tuple(names), gpus, gpu_type, partitions))
    return NodeList(source, word, tuple(groups), left_out, tuple(notes))


def _type_of(node: SiteNode) -> str:
    """Return the name of the GPU type of a node; "" if it is not stated, or the node has several."""
    types = types_in(node.gpu_type)
    if len(types) != 1:
        return ""
    return types[0].name


def cluster_setting(nodes: NodeList) -> dict[str, Any]:
    """Return the settings of the group `cluster` for the nodes of a site."""
    return {
        "_target_": "polluxsim.hardware.clusters.Cluster.of_groups",
        "groups": [group.as_setting() for group in nodes.groups],
        "failures": None,
        "spot": None,
        "repairs": None,
    }


MOST_COMMENTED = 8  # names of nodes in a comment


def cluster_yaml(nodes: NodeList) -> str:
    """Return a file of the group `cluster` for the nodes of a site."""
    setting = cluster_setting(nodes)
    lines = [f"# Nodes of {nodes.source} that take jobs. Written by 'polluxsim log nodes'."]
    for reason, names in nodes.left_out.items():
        lines.append(f"# Left out: {len(names)} {reason} ({_names(names)})")
    lines += [f"_target_: {setting['_target_']}", "groups:"]
    for group in nodes.groups:
        pairs = ", ".join(f"{key}: {_flow(value)}" for key, value in group.as_setting().items())
        lines.append(f"  - {{{pairs}}} # {_names(group.nodes)}")
    lines += [f"{name}: null" for name in ("failures", "spot", "repairs")]
    return "\n".join(lines) + "\n"


def _names(names: Sequence[str]) -> str:
    """Return the first names of nodes, and the number of the others."""
    words = ", ".join(names[:MOST_COMMENTED])
    if len(names) > MOST_COMMENTED:
        words += f" and {len(names) - MOST_COMMENTED} more"
    return words


def _flow(value: object) -> str:
    """Return a value in YAML's flow style."""
    import yaml  # noqa: PLC0415  (slow to load, and only this file needs it)

    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
