"""The nodes of a cluster over time: outages, free GPUs, requests and costs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from polluxsim.common.durations import HOUR
from polluxsim.common.instants import has_come, slack
from polluxsim.engine.sharing import NumberedGpus
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.hosts import NO_GRANTS, Host
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import Health, NodeCounts
from polluxsim.records.columns import Records
from polluxsim.records.results import OutageRecord


class Account(NamedTuple):
    """Requested nodes and GPUs: the sums from the start of the run up to a time, and the numbers after it."""

    time: float  # [s]
    node_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpu_cost: float = 0.0  # rent of GPUs by their types [$]
    nodes: int = 0
    gpus: int = 0
    gpu_price: float = 0.0  # rent of the requested GPUs [$/h]

    def at(self, now: float) -> Account:
        """Return the account at a later time [s], at which the same nodes are requested.

        Before the start of the run, the sums are 0.
        """
        passed = max(now - self.time, 0.0)
        return self._replace(
            time=max(now, self.time),
            node_seconds=self.node_seconds + passed * self.nodes,
            gpu_seconds=self.gpu_seconds + passed * self.gpus,
            gpu_cost=self.gpu_cost + passed / HOUR * self.gpu_price,
        )


class Nodes:
    """Nodes that are requested and released one by one. The last requested node is released first.

    A node costs its price from its request to its release. It can be used after its start-up time, so that the nodes
    that are up are always the first ones. The smallest number of nodes is up from the beginning. GPU time, costs and
    failures count from the start of the run, its first submission. Only `State` changes nodes.

    Attributes
    ----------
    start
        Start of the run [s].
    """

    def __init__(self, cluster: Cluster, start: float = 0.0) -> None:
        self.start = start
        self.free = list(cluster.gpus_per_node)  # also of nodes that are not up yet
        self.shared = NumberedGpus(self.free)
        self.down: dict[int, OutageRecord] = {}
        self.coming: dict[int, float] = {}  # announced outages: node and time [s]
        self.draining: dict[int, float] = {}  # nodes that start no jobs until they go down, and that time [s]
        self.num_failures = [0] * cluster.num_nodes  # since the start of the run
        self.outages = Records(OutageRecord)  # of past outages
        self.granted: Mapping[JobId, Host] = NO_GRANTS  # CPUs and memory per GPU; replaced, never changed
        self._health: Health | None = None
        self._cluster = cluster
        self._least = cluster.num_nodes
        if cluster.least_nodes is not None:
            self._least = cluster.least_nodes
        self._is_fixed = self._least == cluster.num_nodes
        self._up_at = [0.0] * self._least
        self._present = cluster.gpus_per_node[: self._least]
        # Each request, release and growth begins a new account.
        self._accounts: list[Account] = []
        self._begin_account(start)

    @property
    def counts(self) -> NodeCounts | None:
        """Return the requested and the allowed numbers of nodes; None if the number is fixed."""
        if self._is_fixed:
            return None
        return NodeCounts(len(self._up_at), self._least, self._cluster.num_nodes, self._cluster.gpus_per_node)

    @property
    def node_types(self) -> NodeTypes:
        """Return the GPU type of each node; empty if the cluster does not state types."""
        return self._cluster.node_types

    @property
    def hourly_cost(self) -> float:
        """Return the price of all requested nodes and of their GPUs [$/h]."""
        return len(self._up_at) * self._cluster.node_price + self._accounts[-1].gpu_price

    def are_starting(self, now: float) -> bool:
        """Return whether requested nodes are not up yet."""
        return not has_come(self._up_at[-1], now)

    def present(self, now: float, at_most: int | None = None) -> tuple[int, ...]:
        """Return the GPUs of each node that has started, of the first `at_most` nodes.

        A node that is down has no GPUs. A draining node has the GPUs that jobs hold.
        """
        started = self._started(now, at_most)
        if not self.draining:
            return started
        present = list(started)
        for node in self.draining:
            if node < len(present):
                present[node] -= self.free[node]
        return tuple(present)

    def idle(self, num_nodes: int) -> list[int]:
        """Return the free GPUs of each of the first nodes; 0 for a draining node, on which no job may start."""
        free = self.free[:num_nodes]
        for node in self.draining:
            if node < num_nodes:
                free[node] = 0
        return free

    def is_there(self, node: int, now: float) -> bool:
        """Return whether a node is requested and has started. The node may be down."""
        return node < len(self._up_at) and has_come(self._up_at[node], now)

    def num_up(self, now: float) -> int:
        """Return the number of nodes that have started and are not down."""
        return len(self._started(now, None)) - len(self.down)

    def all_outages(self) -> Records[OutageRecord]:
        """Return the records of all outages so far, in order of time, then of node."""
        outages = sorted([*self.outages, *self.down.values()], key=lambda outage: (outage.time, outage.node))
        return Records(OutageRecord, outages)

    @property
    def health(self) -> Health:
        """Return the present and past outages of nodes, for policies."""
        if self._health is None:
            coming = tuple(sorted(self.coming.items()))
            nodes = tuple(sorted(self.down))
            gpus = tuple(self.down[node].gpus for node in nodes)
            self._health = Health(nodes, tuple(self.num_failures), coming, gpus)
        return self._health

    def cost(self, now: float) -> float:
        """Return the cost of all nodes and GPUs up to a time [$]."""
        total = self._accounts[-1].at(now)
        return total.node_seconds / HOUR * self._cluster.node_price + total.gpu_cost

    def gpu_seconds(self, now: float) -> float:
        """Return the GPU time of all requested nodes up to a time [s], also while they were down [GPU s]."""
        return self._accounts[-1].at(now).gpu_seconds

    def mean_gpus(self, start: float, end: float) -> float:
        """Return the mean number of requested GPUs from one time to another [s]; that at `end` if no time passes."""
        first = self._account_at(start)
        last = self._account_at(end)
        # One account has one number, which a quotient would round.
        if first is last or end <= start:
            return float(last.gpus)
        return (last.at(end).gpu_seconds - first.at(start).gpu_seconds) / (end - start)

    def begin_at(self, start: float) -> None:
        """Let the run start earlier than before, at a time that is not past [s]: a fork adds a job before the others.

        No account has sums yet, because they count from the start.
        """
        self.start = start
        self._accounts = [account._replace(time=start) for account in self._accounts]

    def add(self, cluster: Cluster, now: float) -> None:
        """Extend the cluster from now on to a larger one that begins with the present nodes [s]."""
        # In place: `NumberedGpus` has the same list.
        new = cluster.gpus_per_node[self._cluster.num_nodes :]
        self.free += new
        self.num_failures += [0] * len(new)
        self._up_at += [now] * len(new)
        self._present += new
        self._least += len(new)
        self._cluster = cluster
        self._health = None
        self._begin_account(now)

    def take(self, placement: Placement) -> None:
        """Mark GPUs as used."""
        for node, gpus in placement:
            self.free[node] -= gpus

    def give_back(self, placement: Placement, job_id: JobId) -> None:
        """Mark the GPUs of a job as free."""
        if job_id in self.shared.held:
            self.shared.leave(job_id)
            return
        for node, gpus in placement:
            self.free[node] += gpus

    def fall(self, node: int, now: float, until: float, kind: str) -> None:
        """Take down a node without jobs until a time [s], or until the end of its present outage if that is later."""
        # A node that is down since before the run did not fail in it.
        if now >= self.start:
            self.num_failures[node] += 1
        for announced in (self.coming, self.draining):
            # A later announcement is about another outage, and stays.
            if has_come(announced.get(node, inf), now):
                del announced[node]
        gpus = self._cluster.gpus_per_node[node]
        # An outage within another one extends it, and is no record of its own.
        down = self.down.get(node, OutageRecord(now, until, node, gpus, kind))
        self.down[node] = down._replace(until=max(until, down.until))
        self._resize(node, 0)

    def rise(self, node: int, now: float) -> None:
        """Bring up a node, unless another outage of it ends later."""
        if has_come(self.down[node].until, now):
            outage = self.down.pop(node)
            self.outages.append(outage)
            self._resize(node, outage.gpus)

    def announce(self, node: int, time: float, *, drains: bool) -> None:
        """Announce that a node goes down at a time [s]. A draining node starts no jobs until then."""
        if drains:
            self.draining[node] = time
        else:
            self.coming[node] = time
            self._health = None

    def request(self, num_nodes: int, now: float) -> float:
        """Request this number of nodes, and release all beyond it. Return when new nodes are up [s]; ∞ without any."""
        more = num_nodes - len(self._up_at)
        del self._up_at[num_nodes:]
        # The outages of a released node are not those of a node that is requested later in its place.
        for nodes in (self.coming, self.draining, self.down):
            for node in [node for node in nodes if node >= num_nodes]:
                self._release(node, now)
        if more > 0:
            self._up_at += [now + self._cluster.startup_time] * more
        self._begin_account(now)
        if more <= 0:
            return inf
        return self._up_at[-1]

    def _started(self, now: float, at_most: int | None) -> tuple[int, ...]:
        if at_most is None and self._is_fixed:
            return self._present
        # Nodes come up in the order of their requests, so their times are sorted.
        num_up = bisect_right(self._up_at, now + slack(now))
        if at_most is not None:
            num_up = min(num_up, at_most)
        # `_resize` empties the tuple after a change of sizes, so its length alone tells whether it is current.
        if num_up != len(self._present):
            sizes = list(self._cluster.gpus_per_node[:num_up])
            for node in self.down:
                if node < num_up:
                    sizes[node] = 0
            self._present = tuple(sizes)
        return self._present

    def _resize(self, node: int, gpus: int) -> None:
        self.free[node] = gpus
        self._health = None
        if self._is_fixed:
            present = list(self._present)
            present[node] = gpus
            self._present = tuple(present)
        else:
            self._present = ()  # `_started` computes it again, because it may have other nodes by then

    def _release(self, node: int, now: float) -> None:
        """End all outages of a node. A node that is requested later in this place has no announced failure."""
        self.coming.pop(node, None)
        self.draining.pop(node, None)
        if node in self.down:
            self.down[node] = self.down[node]._replace(until=now)
            self.rise(node, now)
        self._health = None

    def _begin_account(self, now: float) -> None:
        sizes = self._cluster.gpus_per_node[: len(self._up_at)]
        price = sum(gpus * gpu.price for gpus, gpu in zip(sizes, self._cluster.node_types, strict=False))
        past = Account(now)
        if self._accounts:
            past = self._accounts[-1].at(now)
        self._accounts.append(past._replace(nodes=len(sizes), gpus=sum(sizes), gpu_price=price))

    def _account_at(self, time: float) -> Account:
        """Return the account that was current at a time [s]; the first one before the start."""
        num_begun = bisect_right(self._accounts, time, key=lambda account: account.time)
        return self._accounts[max(num_begun - 1, 0)]
