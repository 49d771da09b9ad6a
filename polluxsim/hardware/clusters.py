"""Clusters: nodes with GPUs, times when nodes are down, and clusters read from a list of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from polluxsim.common.errors import InvalidConfigError, bad_line, check_range, invalid_setting, short
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.gpu_types import ANY, UNKNOWN_TYPES, GpuType, NodeTypes, gpu_settings, gpu_type, types_in
from polluxsim.hardware.hosts import MIB, Host, host_settings, read_host, shares_of

MOST_NODES = MOST_GPUS = 1_000_000  # limits that catch errors in configurations; no real cluster is larger


class Outage(NamedTuple):
    """A time in which nodes are down."""

    nodes: tuple[int, ...]  # numbers of the nodes
    start: float  # [s on the clock of the workload]
    duration: float  # [s]; ∞ if the nodes do not come up again
    kind: str  # cause, one word
    warning: float = 0.0  # time between the announcement and the start [s]
    is_repair: bool = False  # whether a repair crew is needed, and a spare node can replace a node
    drain: float = 0.0  # time before the start in which the nodes start no jobs [s]


class Outages(Protocol):
    """Source of outages. A unit is a node, or a group of nodes that fail together, and has a number.

    A source with a last outage has an attribute `recurs`, which is False.
    """

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return the units of a cluster with this number of nodes.

        A larger cluster has the same units and additional ones.

        Raise InvalidInputError if the cluster has fewer nodes than the source.
        """

    def outage(self, unit: int, number: int, since: float, draw: Callable[[int], Sequence[float]]) -> Outage | None:
        """Return the next outage of a unit, or None.

        `number` is the number of its outages so far. `since` is the end of the last outage, and 0 before the first [s].
        `draw` returns a given number of random numbers in (0, 1), which are always the same for an outage.
        """


@dataclass(frozen=True)
class Repairs:
    """Repair crews and spare nodes, for nodes with drawn failures.

    A spare node replaces a failed node at once, under the number of that node. The repaired node then becomes a spare
    node.

    Raise InvalidConfigError if a number is invalid.
    """

    crews: int | None = None  # largest number of repairs at the same time, in order of failure; None for no limit
    spare_nodes: int = 0  # number of spare nodes at the start

    def __post_init__(self) -> None:
        check_range("cluster.repairs.crews", self.crews, least=1, whole=True, or_null=True)
        check_range("cluster.repairs.spare_nodes", self.spare_nodes, least=0, most=MOST_NODES, whole=True)


@takes_settings("cluster")
@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster and their GPUs.

    Raise InvalidConfigError if a parameter is invalid or contradicts another one, and InvalidInputError if the cluster
    has fewer nodes than a source of outages.
    """

    gpus_per_node: tuple[int, ...]  # GPUs of each node, by node number
    # Smallest number of nodes if the policy may change the number; the largest is the length of `gpus_per_node`. The
    # cluster starts with the smallest number. None if the number of nodes is fixed.
    least_nodes: int | None = None
    startup_time: Seconds = 0.0  # time from the request of a node until it can be used [s]
    node_price: float = 0.0  # price of a node from its request to its release [$/h]
    # Failures of nodes, or None. On a cluster that can change its number of nodes, a node with a drawn failure is
    # replaced within the start-up time, whatever its repair time.
    failures: Outages | None = None
    spot: Outages | None = None  # times when the provider takes nodes away, or None
    repairs: Repairs | None = None  # repair crews and spare nodes; None if there are none
    # GPU type of each node, by node number. Empty if all GPUs are equal and their type is not stated.
    node_types: NodeTypes = UNKNOWN_TYPES
    # CPUs and memory of each node, by node number. Empty if they do not limit jobs.
    hosts: tuple[Host, ...] = ()

    def __post_init__(self) -> None:
        if not self.gpus_per_node:
            raise InvalidConfigError("the cluster has 0 nodes, must have at least one; set cluster.num_nodes=1 or more")
        for node, gpus in enumerate(self.gpus_per_node):
            if type(gpus) is not int or not 1 <= gpus <= MOST_GPUS:
                raise InvalidConfigError(
                    f"node {node} has {short(gpus)} GPUs, must have a whole number of GPUs from 1 to {MOST_GPUS}"
                )
        for what, values in (("types", self.node_types), ("CPUs", self.hosts)):
            if values and len(values) != self.num_nodes:
                raise InvalidConfigError(
                    f"the cluster states the {what} of {len(values)} nodes, must state those of all {self.num_nodes} "
                    "nodes, or none"
                )
        for gpu in dict.fromkeys(self.node_types):
            if gpu != (first := self.types[gpu.name]):
                figures = f"{gpu_settings(first)} and {gpu_settings(gpu)}"
                raise InvalidConfigError(f"GPU type {gpu.name!r} has two sets of figures, {figures}; rename one type")
        least = self.least_nodes
        if least is not None and not (type(least) is int and 1 <= least <= self.num_nodes):
            raise invalid_setting("cluster.least_nodes", least, f"1 to {self.num_nodes}, the number of nodes")
        check_range("cluster.startup_time", self.startup_time, least=0)
        check_range("cluster.node_price", self.node_price, least=0)
        for source in self.outages:
            if not callable(getattr(source, "units", None)):
                raise invalid_setting("cluster.failures", source, "null or a choice", "set cluster/failures=drawn")
            source.units(self.num_nodes)
        if self.is_elastic and self.repairs is not None:
            raise InvalidConfigError(
                "cluster.repairs cannot be set, because the policy may change the number of nodes "
                f"(least_nodes={self.least_nodes}, num_nodes={self.num_nodes}): remove it"
            )

    def first_nodes(self, count: int) -> Cluster:
        """Return the cluster with only its first `count` nodes."""
        types, hosts = NodeTypes(self.node_types[:count]), self.hosts[:count]
        return replace(self, gpus_per_node=self.gpus_per_node[:count], node_types=types, hosts=hosts)

    @classmethod
    def uniform(
        cls,
        num_nodes: int,
        gpus_per_node: int,
        failures: Outages | None = None,
        spot: Outages | None = None,
        repairs: Repairs | None = None,
    ) -> Cluster:
        """Return a cluster of equal nodes."""
        check_range("cluster.num_nodes", num_nodes, least=1, most=MOST_NODES, whole=True)
        check_range("cluster.gpus_per_node", gpus_per_node, least=1, most=MOST_GPUS, whole=True)
        return cls.of_groups([[num_nodes, gpus_per_node]], failures, spot, repairs)

    @classmethod
    def elastic(
        cls,
        num_nodes: int,
        least_nodes: int,
        gpus_per_node: int,
        startup_time: Seconds,
        node_price: float,
        failures: Outages | None = None,
        spot: Outages | None = None,
    ) -> Cluster:
        """Return a cluster of equal nodes whose number a policy may change between `least_nodes` and `num_nodes`."""
        nodes = cls.uniform(num_nodes, gpus_per_node).gpus_per_node
        return cls(nodes, least_nodes, startup_time, node_price, failures, spot)

    @classmethod
    def of_groups(
        cls,
        groups: Sequence[Sequence[Any] | Mapping[str, Any]],
        failures: Outages | None = None,
        spot: Outages | None = None,
        repairs: Repairs | None = None,
    ) -> Cluster:
        """Return a cluster of several kinds of nodes.

        Parameters
        ----------
        groups
            For each kind, [nodes, GPUs per node], [nodes, GPUs, type], or {nodes: …, gpus: …, type: …, cpus: …, memory:
            …}. A type is a name of `GPU_TYPES`, {name: …, memory: …, price: …} [GB; $/h per GPU], or None if it is not
            stated. cpus and memory are cores and GB of each node. Either all kinds state the type, or none does. The
            same holds for cpus and memory.
        failures, spot, repairs
            The parameters of `Cluster`.
        """
        if not isinstance(groups, Sequence) or isinstance(groups, str):
            raise invalid_setting("cluster.groups", groups, "a list of groups of nodes")
        kinds = [_group(group) for group in groups]
        types = tuple(gpu for count, _, gpu, _ in kinds for _ in range(count) if gpu is not None)
        hosts = tuple(host for count, *_, host in kinds for _ in range(count) if host is not None)
        sizes = tuple(gpus for count, gpus, *_ in kinds for _ in range(count))
        return cls(sizes, failures=failures, spot=spot, repairs=repairs, node_types=NodeTypes(types), hosts=hosts)

    @property
    def groups(self) -> list[list[Any]]:
        """Return the groups of equal nodes, in the form of `of_groups`.

        >>> Cluster((4, 4, 8)).groups
        [[2, 4], [1, 8]]
        """
        nodes = zip(self.gpus_per_node, self.node_types or repeat(None), self.hosts or repeat(None), strict=False)
        width = 4 if self.hosts else 3 if self.node_types else 2
        return [
            [len(list(alike)), gpus, gpu and gpu_settings(gpu), host and host_settings(host)][:width]
            for (gpus, gpu, host), alike in groupby(nodes)
        ]

    @property
    def types(self) -> Mapping[str, GpuType]:
        """Return the GPU types by name, in the order of their first nodes.

        A cluster that states no types has one type, `ANY`.
        """
        return self.node_types.types

    @cached_property
    def by_type(self) -> Mapping[str, tuple[int, ...]]:
        """Return the GPUs of each node of a type, by its name, in the order of `types`.

        >>> Cluster.of_groups([[1, 8, "a100-40"], [2, 4, "t4"]]).by_type
        {'a100-40': (8,), 't4': (4, 4)}
        """
        if not self.node_types:
            return {ANY.name: self.gpus_per_node}
        return {
            name: tuple(self.gpus_per_node[node] for node in nodes) for name, nodes in self.node_types.nodes.items()
        }

    @cached_property
    def host_shares(self) -> tuple[Host, ...]:
        """Return the CPUs and memory for each GPU, by node number. Empty if they do not limit jobs."""
        return shares_of(self.hosts, self.gpus_per_node) if self.hosts else ()

    @cached_property
    def gpu_price(self) -> float:
        """Return the rent of all GPUs by their types [$/h]."""
        return sum(gpus * gpu.price for gpus, gpu in zip(self.gpus_per_node, self.node_types, strict=False))

    @property
    def outages(self) -> tuple[Outages, ...]:
        """Return all sources of outages."""
        return tuple(source for source in (self.failures, self.spot) if source is not None)

    @property
    def is_elastic(self) -> bool:
        """Return whether a policy may change the number of nodes."""
        return self.least_nodes not in (None, self.num_nodes)

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.gpus_per_node)

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs on all nodes."""
        return sum(self.gpus_per_node)


def _group(group: Any) -> tuple[int, int, GpuType | None, Host | None]:
    """Return the number of nodes of a group, and the GPUs, GPU type, and CPUs and memory of each node."""
    values = group
    if isinstance(group, Mapping) and group.keys() <= {"nodes", "gpus", "type", *Host._fields}:
        amounts = {name: group[name] for name in Host._fields if name in group}
        values = [group.get("nodes"), group.get("gpus"), group.get("type"), amounts or None]
    is_list = isinstance(values, Sequence) and len(values) in (2, 3, 4)
    parts: list[Any] = [*values, None, None][:4] if is_list else [None] * 4
    nodes, gpus, gpu, host = parts
    if type(nodes) is not int or not 0 <= nodes <= MOST_NODES or not isinstance(host, Mapping | None):
        raise InvalidConfigError(
            f"a group of nodes is {short(group)}, must be [nodes, GPUs per node] or [nodes, GPUs per node, type] with "
            f"0 to {MOST_NODES} nodes, or {{nodes: …, gpus: …, type: …, cpus: …, memory: …}}"
        )
    return nodes, gpus, None if gpu is None else gpu_type(gpu), None if host is None else read_host(host)


NODE_COLUMNS = ("gpu", "model")
HOST_COLUMNS = ("cpu_milli", "memory_mib")


def cluster_of_file(
    path: str,
    failures: Outages | None = None,
    spot: Outages | None = None,
    repairs: Repairs | None = None,
    *,
    hosts: bool = False,
) -> Cluster:
    """Return the cluster of a list of nodes, grouped by GPU type.

    Raise InvalidInputError if the file cannot be read, a row is invalid, or no node has a GPU.

    Parameters
    ----------
    path
        CSV or Parquet with a row for each node: its GPUs in `gpu`, and their type in `model`. Nodes without a GPU are
        left out. An unknown type has no memory and no price.
    failures, spot, repairs
        The parameters of `Cluster`.
    hosts
        Whether CPUs and memory of nodes count: `cpu_milli` [thousandths of a core] and `memory_mib` [MiB].
    """
    rows = list(read_rows(Path(path), (*NODE_COLUMNS, *(HOST_COLUMNS if hosts else ()))))
    nodes = defaultdict[GpuType, list[Row]](list)
    for row in rows:
        if row.integer("gpu", at_least=0):
            types = types_in(row.text("model"))
            if len(types) != 1:
                raise row.error("model", "one type of GPU")
            nodes[types[0]].append(row)
    if not nodes:
        raise bad_line(path, 1, f"none of {len(rows)} nodes has a GPU; the list must have a node with a GPU")
    ordered = list(chain.from_iterable(nodes.values()))
    return Cluster(
        gpus_per_node=tuple(row.integer("gpu") for row in ordered),
        failures=failures,
        spot=spot,
        repairs=repairs,
        node_types=NodeTypes(gpu for gpu, rows_of_type in nodes.items() for _ in rows_of_type),
        hosts=tuple(map(_host_of_row, ordered)) if hosts else (),
    )


def _host_of_row(row: Row) -> Host:
    return Host(row.number("cpu_milli", above=0) / 1000, row.number("memory_mib", above=0) * MIB)
