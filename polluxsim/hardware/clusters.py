"""Clusters: nodes with GPUs, times when nodes are down, and clusters read from a list of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise, repeat
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from polluxsim.common.errors import InvalidConfigError, bad_line, invalid_setting, short
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.values import NonNegativeFloat, PositiveInt, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.gpu_types import ANY, UNKNOWN_TYPES, GpuType, NodeTypes, gpu_settings, gpu_type, types_in
from polluxsim.hardware.hosts import HOST_COLUMNS, Host, host_of_row, host_settings, read_host, shares_of
from polluxsim.hardware.placements import partitions_of_queue

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


@takes_settings("cluster.repairs")
@dataclass(frozen=True)
class Repairs:
    """Repair crews and spare nodes, for nodes with drawn failures.

    A spare node replaces a failed node at once, under the number of that node. The repaired node then becomes a spare
    node.

    Raise InvalidConfigError if a number is invalid.
    """

    # Largest number of repairs at the same time, in order of failure; None for no limit.
    crews: PositiveInt | None = None
    spare_nodes: Annotated[int, Range(least=0, most=MOST_NODES)] = 0  # number of spare nodes at the start


class PartitionGroup(NamedTuple):
    """Partitions that have common nodes, directly or through others. Their jobs form one queue for all these nodes."""

    names: tuple[str, ...]
    nodes: tuple[int, ...]  # numbers, in ascending order


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
    startup_time: Annotated[Seconds, Range(least=0)] = 0.0  # time from the request of a node until it can be used [s]
    node_price: NonNegativeFloat = 0.0  # price of a node from its request to its release [$/h]
    # Failures of nodes, or None. On a cluster that can change its number of nodes, a node with a drawn failure is
    # replaced within the start-up time, whatever its repair time.
    failures: Outages | None = None
    spot: Outages | None = None  # times when the provider takes nodes away, or None
    repairs: Repairs | None = None  # repair crews and spare nodes; None if there are none
    # GPU type of each node, by node number. Empty if all GPUs are equal and their type is not stated.
    node_types: NodeTypes = UNKNOWN_TYPES
    # CPUs and memory of each node, by node number. Empty if they do not limit jobs.
    hosts: tuple[Host, ...] = ()
    # Numbers of the nodes of each partition, in ascending order, by its name. The queue of a job is its partition. It
    # gets only nodes of the group of its partition (`partition_groups`). Empty if all jobs can use all nodes.
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.gpus_per_node:
            raise InvalidConfigError("the cluster has 0 nodes, must have at least one; set cluster.num_nodes=1 or more")
        for node, gpus in enumerate(self.gpus_per_node):
            if type(gpus) is not int or not 1 <= gpus <= MOST_GPUS:
                raise InvalidConfigError(
                    f"node {node} has {short(gpus)} GPUs, must have a whole number of GPUs from 1 to {MOST_GPUS}"
                )
        for name, values in (("types", self.node_types), ("CPUs", self.hosts)):
            if values and len(values) != self.num_nodes:
                raise InvalidConfigError(
                    f"the cluster states the {name} of {len(values)} nodes, must state those of all {self.num_nodes} "
                    "nodes, or none"
                )
        for gpu in dict.fromkeys(self.node_types):
            first = self.types[gpu.name]
            if gpu != first:
                figures = f"{gpu_settings(first)} and {gpu_settings(gpu)}"
                raise InvalidConfigError(f"GPU type {gpu.name!r} has two sets of figures, {figures}; rename one type")
        self._check_partitions()
        least = self.least_nodes
        if least is not None and not (type(least) is int and 1 <= least <= self.num_nodes):
            raise invalid_setting("cluster.least_nodes", least, f"1 to {self.num_nodes}, the number of nodes")
        for source in self.outages:
            if not callable(getattr(source, "units", None)):
                raise invalid_setting("cluster.failures", source, "null or a choice", "set cluster/failures=drawn")
            source.units(self.num_nodes)  # for its error about a cluster that is too small
        if self.is_elastic and self.repairs is not None:
            raise InvalidConfigError(
                "cluster.repairs cannot be set, because the policy may change the number of nodes "
                f"(least_nodes={self.least_nodes}, num_nodes={self.num_nodes}): remove it"
            )

    def _check_partitions(self) -> None:
        """Raise InvalidConfigError if a partition has no or invalid nodes, or the number of nodes can change."""
        for name, nodes in self.partitions.items():
            if not nodes:
                raise InvalidConfigError(f"partition {name!r} of the cluster has no node; remove it, or give it nodes")
            is_ascending = all(before < after for before, after in pairwise(nodes))
            if not is_ascending or nodes[0] < 0 or nodes[-1] >= self.num_nodes:
                raise InvalidConfigError(
                    f"partition {name!r} has the nodes {short(nodes)}, must have ascending numbers from 0 to "
                    f"{self.num_nodes - 1}"
                )
        if self.partitions and self.is_elastic:
            raise InvalidConfigError(
                f"the cluster has partitions ({', '.join(self.partitions)}) and a number of nodes that the policy may "
                "change; leave out one of both"
            )

    def first_nodes(self, count: int) -> Cluster:
        """Return the cluster with only its first `count` nodes. Partitions without a node are left out.

        Raise the errors of the class, for example if `least_nodes` is larger.
        """
        partitions = {}
        for name, nodes in self.partitions.items():
            first_nodes = tuple(node for node in nodes if node < count)
            if first_nodes:
                partitions[name] = first_nodes
        return replace(
            self,
            gpus_per_node=self.gpus_per_node[:count],
            node_types=NodeTypes(self.node_types[:count]),
            hosts=self.hosts[:count],
            partitions=partitions,
        )

    @classmethod
    @takes_settings("cluster")
    def uniform(
        cls,
        num_nodes: Annotated[int, Range(least=1, most=MOST_NODES)],
        gpus_per_node: Annotated[int, Range(least=1, most=MOST_GPUS)],
        failures: Outages | None = None,
        spot: Outages | None = None,
        repairs: Repairs | None = None,
    ) -> Cluster:
        """Return a cluster of equal nodes."""
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
            …, partitions: [NAME, …]}. A type is a name of `GPU_TYPES`, {name: …, memory: …, price: …} [GB; $/h per
            GPU], or None if it is not stated. cpus and memory are cores and GB of each node. Either all kinds state the
            type, or none does. The same holds for cpus and memory, and for partitions.
        failures, spot, repairs
            The parameters of `Cluster`.
        """
        if not isinstance(groups, Sequence) or isinstance(groups, str):
            raise invalid_setting("cluster.groups", groups, "a list of groups of nodes")
        kinds = [_group(group) for group in groups]
        sizes: list[int] = []
        types: list[GpuType] = []
        hosts: list[Host] = []
        for kind in kinds:
            sizes += [kind.gpus] * kind.nodes
            if kind.gpu is not None:
                types += [kind.gpu] * kind.nodes
            if kind.host is not None:
                hosts += [kind.host] * kind.nodes
        return cls(
            tuple(sizes),
            failures=failures,
            spot=spot,
            repairs=repairs,
            node_types=NodeTypes(types),
            hosts=tuple(hosts),
            partitions=_partitions_of(kinds),
        )

    @property
    def groups(self) -> list[list[Any]]:
        """Return the groups of equal neighbouring nodes, in the form of `of_groups`, without partitions.

        >>> Cluster((4, 4, 8)).groups
        [[2, 4], [1, 8]]
        """
        nodes = zip(self.gpus_per_node, self.node_types or repeat(None), self.hosts or repeat(None), strict=False)
        groups = []
        for (gpus, gpu, host), equal_nodes in groupby(nodes):
            group: list[Any] = [len(list(equal_nodes)), gpus]
            if self.node_types or self.hosts:
                group.append(None if gpu is None else gpu_settings(gpu))
            if self.hosts:
                group.append(None if host is None else host_settings(host))
            groups.append(group)
        return groups

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
        by_type = {}
        for name, nodes in self.node_types.nodes.items():
            by_type[name] = tuple(self.gpus_per_node[node] for node in nodes)
        return by_type

    @cached_property
    def host_shares(self) -> tuple[Host, ...]:
        """Return the CPUs and memory for each GPU, by node number. Empty if they do not limit jobs."""
        return shares_of(self.hosts, self.gpus_per_node) if self.hosts else ()

    @cached_property
    def gpu_price(self) -> float:
        """Return the rent of all GPUs by their types [$/h]; GPUs without a stated type or price cost 0."""
        return sum(gpus * gpu.price for gpus, gpu in zip(self.gpus_per_node, self.node_types, strict=False))

    @cached_property
    def partition_groups(self) -> tuple[PartitionGroup, ...]:
        """Return the groups of partitions that have common nodes.

        >>> Cluster((8, 4, 4), partitions={"gpu": (0,), "long": (0,), "t4": (1, 2)}).partition_groups
        (PartitionGroup(names=('gpu', 'long'), nodes=(0,)), PartitionGroup(names=('t4',), nodes=(1, 2)))
        """
        groups: list[PartitionGroup] = []
        for name, nodes in self.partitions.items():
            # The partition joins all groups that have a node of it.
            names: list[str] = []
            all_nodes = set(nodes)
            others = []
            for group in groups:
                if set(group.nodes).isdisjoint(nodes):
                    others.append(group)
                else:
                    names += group.names
                    all_nodes.update(group.nodes)
            names.append(name)
            groups = [*others, PartitionGroup(tuple(names), tuple(sorted(all_nodes)))]
        return tuple(sorted(groups, key=lambda group: group.nodes))

    @cached_property
    def group_of_partition(self) -> Mapping[str, PartitionGroup]:
        """Return the group of each partition, by the name of the partition."""
        groups = {}
        for group in self.partition_groups:
            for name in group.names:
                groups[name] = group
        return groups

    def group_of_queue(self, queue: str | None) -> PartitionGroup:
        """Return the group of the partitions that a queue names; several names have commas between them.

        >>> cluster = Cluster((8, 4), partitions={"gpu": (0, 1), "short": (1,)})
        >>> cluster.group_of_queue("gpu,short").nodes
        (0, 1)
        """
        return self.group_of_partition[partitions_of_queue(queue)[0]]

    def for_queue(self, queue: str | None) -> Cluster:
        """Return the nodes that jobs of a queue can use, as a cluster.

        They are those of the group of its partitions, or the whole cluster without partitions. Raise KeyError if the
        cluster has partitions, and none with the name of the queue.
        """
        return self._cluster_of_partition[partitions_of_queue(queue)[0]] if self.partitions else self

    @cached_property
    def _cluster_of_partition(self) -> Mapping[str, Cluster]:
        """Return the nodes of the group of each partition as a cluster without outages, by the name of the partition.

        Nodes have new numbers, from 0.
        """
        clusters: dict[str, Cluster] = {}
        for group in self.partition_groups:
            sizes = tuple(self.gpus_per_node[node] for node in group.nodes)
            types = UNKNOWN_TYPES
            if self.node_types:
                types = NodeTypes(self.node_types[node] for node in group.nodes)
            hosts: tuple[Host, ...] = ()
            if self.hosts:
                hosts = tuple(self.hosts[node] for node in group.nodes)
            clusters |= dict.fromkeys(group.names, Cluster(sizes, node_types=types, hosts=hosts))
        return clusters

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


class _Kind(NamedTuple):
    """A group of equal nodes."""

    nodes: int  # number of nodes
    gpus: int  # GPUs of each node
    gpu: GpuType | None
    host: Host | None  # CPUs and memory of each node
    partitions: tuple[str, ...]


_GROUP_KEYS = frozenset({"nodes", "gpus", "type", "partitions", *Host._fields})


def _group(group: Any) -> _Kind:
    """Return a group of equal nodes from its settings. Raise InvalidConfigError if they have another form."""
    values = group
    partitions: Any = ()
    if isinstance(group, Mapping) and group.keys() <= _GROUP_KEYS:
        amounts = {name: group[name] for name in Host._fields if name in group}
        values = [group.get("nodes"), group.get("gpus"), group.get("type"), amounts or None]
        partitions = group.get("partitions", ())
    parts: list[Any] = []
    if isinstance(values, Sequence) and len(values) in (2, 3, 4):
        parts = list(values)
    # Values that are left out are None. Without a list, the number of nodes is None too, which is an error below.
    parts += [None] * (4 - len(parts))
    nodes, gpus, gpu, host = parts
    if type(nodes) is not int or not 0 <= nodes <= MOST_NODES or not isinstance(host, Mapping | None):
        raise InvalidConfigError(
            f"a group of nodes is {short(group)}, must be [nodes, GPUs per node] or [nodes, GPUs per node, type] with "
            f"0 to {MOST_NODES} nodes, or {{nodes: …, gpus: …, type: …, cpus: …, memory: …, partitions: […]}}"
        )
    are_listed = isinstance(partitions, Sequence) and not isinstance(partitions, str)
    if not are_listed or not all(isinstance(name, str) and name.strip() for name in partitions):
        raise InvalidConfigError(
            f"partitions of a group of nodes are {short(partitions)}, must be a list of names, like [gpu, long]"
        )
    known_type = None
    if gpu is not None:
        known_type = gpu_type(gpu)
    amounts_of_node = None
    if host is not None:
        amounts_of_node = read_host(host)
    return _Kind(nodes, gpus, known_type, amounts_of_node, tuple(dict.fromkeys(partitions)))


def _partitions_of(kinds: Sequence[_Kind]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the nodes of each partition. Raise InvalidConfigError if some nodes are in none."""
    nodes_of = defaultdict[str, list[int]](list)
    first = 0
    for kind in kinds:
        for name in kind.partitions:
            nodes_of[name] += range(first, first + kind.nodes)
        first += kind.nodes
    outside = [kind for kind in kinds if kind.nodes and not kind.partitions]
    if nodes_of and outside:
        raise InvalidConfigError(
            f"a group of {outside[0].nodes} nodes with {outside[0].gpus} GPUs is in no partition, but other groups are "
            f"({', '.join(nodes_of)}); give each group its partitions"
        )
    return {name: tuple(nodes) for name, nodes in nodes_of.items() if nodes}


NODE_COLUMNS = ("gpu", "model")


def cluster_of_file(
    path: str,
    failures: Outages | None = None,
    spot: Outages | None = None,
    repairs: Repairs | None = None,
    *,
    hosts: bool = False,
) -> Cluster:
    """Return the cluster of a list of nodes, with the nodes of each GPU type one after the other.

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
    columns = NODE_COLUMNS + HOST_COLUMNS if hosts else NODE_COLUMNS
    rows = list(read_rows(Path(path), columns))
    nodes = defaultdict[GpuType, list[Row]](list)
    for row in rows:
        if row.integer("gpu", at_least=0):
            types = types_in(row.text("model"))
            # Several types, or a word that means any type.
            if len(types) != 1:
                raise row.error("model", "one type of GPU")
            nodes[types[0]].append(row)
    if not nodes:
        raise bad_line(path, 1, f"none of {len(rows)} nodes has a GPU; the list must have a node with a GPU")
    ordered_rows: list[Row] = []
    node_types: list[GpuType] = []
    for gpu, rows_of_type in nodes.items():
        ordered_rows += rows_of_type
        node_types += [gpu] * len(rows_of_type)
    return Cluster(
        gpus_per_node=tuple(row.integer("gpu") for row in ordered_rows),
        failures=failures,
        spot=spot,
        repairs=repairs,
        node_types=NodeTypes(node_types),
        hosts=tuple(map(host_of_row, ordered_rows)) if hosts else (),
    )
