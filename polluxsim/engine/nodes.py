"""The nodes of a cluster over time: which are up, which are still coming, and what they have cost."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING

from polluxsim.columns import Records
from polluxsim.durations import HOUR
from polluxsim.engine.sharing import Board
from polluxsim.hosts import NOBODY
from polluxsim.policies.view import Health, NodeCounts
from polluxsim.records import OutageRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.gpu_types import NodeTypes
    from polluxsim.hosts import Host
    from polluxsim.types import Cluster, JobId, Placement


class Nodes:
    """Nodes that are requested and released one by one; the last requested is the first released.

    A node is paid for from its request to its release, and can be used once its start-up time is over. So the nodes
    that are up are always the first ones. At time 0 the least number of nodes is up.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.free = list(cluster.gpus_per_node)  # GPUs that nobody holds, of nodes too that are not there yet
        self.board = Board(self.free)
        # Nodes that are down: since when, what befell them, and when they come up again [s]; ∞ is never.
        self.down: dict[int, OutageRecord] = {}
        self.coming: dict[int, float] = {}  # when nodes go down, as far as that is known before [s]
        self.draining: dict[int, float] = {}  # nodes that take no further jobs until they go down, and when that is [s]
        self.num_failures = [0] * cluster.num_nodes  # how often each has gone down
        self.outages = Records(OutageRecord)  # those that are over
        # CPUs and memory by GPU of the jobs that have others than go with their GPUs; never changed, but replaced.
        self.granted: Mapping[JobId, Host] = NOBODY
        self._health: Health | None = None
        self._cluster = cluster
        self._least = cluster.num_nodes if cluster.least_nodes is None else cluster.least_nodes
        self._is_fixed = self._least == cluster.num_nodes
        self._up_at = [0.0] * self._least
        self._present = cluster.gpus_per_node[: self._least]
        self._since, self._paid = 0.0, (0.0, 0.0)

    def grow(self, cluster: Cluster, now: float) -> None:
        """Have more nodes from now on [s], all those of a cluster; those there are come first and stay as they are."""
        self._paid, self._since = self._paid_for(now), now
        new = cluster.gpus_per_node[self._cluster.num_nodes :]
        self.free += new
        self.num_failures += [0] * len(new)
        self._up_at += [now] * len(new)
        self._present += new
        self._least += len(new)
        self._cluster = cluster

    def take(self, placement: Placement) -> None:
        """Take note that somebody holds GPUs from now on."""
        for node, gpus in placement:
            self.free[node] -= gpus

    def give_back(self, placement: Placement, job_id: JobId) -> None:
        """Take note that a job holds its GPUs no longer."""
        if job_id in self.board.held:
            self.board.leave(job_id)
            return
        for node, gpus in placement:
            self.free[node] += gpus

    @property
    def counts(self) -> NodeCounts | None:
        """Return how many nodes are requested and allowed, None where their number cannot change."""
        if self._is_fixed:
            return None
        return NodeCounts(len(self._up_at), self._least, self._cluster.num_nodes, self._cluster.gpus_per_node)

    @property
    def types(self) -> NodeTypes:
        """Return the GPU type of each node, empty where nobody says."""
        return self._cluster.node_types

    @property
    def hourly_cost(self) -> float:
        """Return the price of all requested nodes for an hour, and of their GPUs where their types have one."""
        return len(self._up_at) * self._cluster.node_price + self._cluster.gpu_price

    def are_coming(self, now: float) -> bool:
        """Return whether nodes that were requested, or are down, will be up later."""
        return self._up_at[-1] > now or any(down.until < inf for down in self.down.values())

    def present(self, now: float, at_most: int | None = None) -> tuple[int, ...]:
        """Return the GPUs of each node that is there, the first `at_most` of them.

        A node that is down has none, and one that drains those that are held.
        """
        there = self._there(now, at_most)
        if not self.draining:
            return there
        return tuple(gpus - self.free[node] if node in self.draining else gpus for node, gpus in enumerate(there))

    def idle(self, num_nodes: int) -> list[int]:
        """Return the GPUs of each of the first nodes that nobody holds, and that may be given."""
        free = self.free[:num_nodes]
        for node in self.draining:
            if node < num_nodes:
                free[node] = 0
        return free

    def _there(self, now: float, at_most: int | None) -> tuple[int, ...]:
        if at_most is None and self._is_fixed:
            return self._present
        # Nodes come up in the order in which they were requested.
        up = min(bisect_right(self._up_at, now), len(self._up_at) if at_most is None else at_most)
        if up != len(self._present):
            sizes = self._cluster.gpus_per_node[:up]
            self._present = tuple(0 if node in self.down else gpus for node, gpus in enumerate(sizes))
        return self._present

    def is_there(self, node: int, now: float) -> bool:
        """Return whether a node is rented and has started, be it down."""
        return node < len(self._up_at) and self._up_at[node] <= now

    def num_up(self, now: float) -> int:
        """Return how many nodes are there and not down."""
        return len(self._there(now, None)) - len(self.down)

    def fall(self, node: int, now: float, until: float, kind: str) -> None:
        """Let a node, of which nobody holds GPUs, have none until a time [s], or until it comes up anyway if later."""
        self.num_failures[node] += 1
        for announced in (self.coming, self.draining):
            if announced.get(node, inf) <= now:
                del announced[node]
        gpus = self._cluster.gpus_per_node[node]
        down = self.down.get(node, OutageRecord(now, until, node, gpus, kind))
        self.down[node] = down._replace(until=max(until, down.until))
        self._resize(node, 0)

    def warn(self, node: int, time: float) -> None:
        """Let it be known that a node goes down at a time [s]."""
        self.coming[node] = time
        self._health = None

    def drain(self, node: int, time: float) -> None:
        """Let a node take no further jobs until it goes down at a time [s]."""
        self.draining[node] = time

    def rise(self, node: int, now: float) -> None:
        """Let a node have its GPUs again, unless it is down for longer."""
        if self.down[node].until <= now:
            self.outages.append(down := self.down.pop(node))
            self._resize(node, down.gpus)

    def all_outages(self) -> Records[OutageRecord]:
        """Return the records of all outages up to now, in order of time."""
        outages = sorted([*self.outages, *self.down.values()], key=lambda outage: (outage.time, outage.node))
        return Records(OutageRecord, outages)

    @property
    def health(self) -> Health:
        """Return how nodes are and were."""
        if self._health is None:
            coming = tuple(sorted(self.coming.items()))
            down = sorted(self.down.items())
            nodes, gpus = tuple(node for node, _ in down), tuple(outage.gpus for _, outage in down)
            self._health = Health(nodes, tuple(self.num_failures), coming, gpus)
        return self._health

    def _resize(self, node: int, gpus: int) -> None:
        self.free[node] = gpus
        self._health = None
        # Of nodes that come and go, it is made anew when it is asked for.
        self._present = () if not self._is_fixed else (*self._present[:node], gpus, *self._present[node + 1 :])

    def request(self, num_nodes: int, now: float) -> float:
        """Ask for another number of nodes, and give back what is beyond it; return when new ones are up [s], or ∞."""
        self._paid, self._since = self._paid_for(now), now
        more = num_nodes - len(self._up_at)
        del self._up_at[num_nodes:]
        for known in (self.coming, self.draining, self.down):
            for node in [node for node in known if node >= num_nodes]:
                self._forget(node, now)
        if more <= 0:
            return inf
        self._up_at += [now + self._cluster.startup_time] * more
        return self._up_at[-1]

    def _forget(self, node: int, now: float) -> None:
        """Give back a node whatever befell it, or is to; what is rented in its place is another one."""
        self.coming.pop(node, None)
        self.draining.pop(node, None)
        if node in self.down:
            self.down[node] = self.down[node]._replace(until=now)
            self.rise(node, now)
        self._health = None

    def cost(self, now: float) -> float:
        """Return what all nodes have cost up to now."""
        return self._paid_for(now)[0] / HOUR * self._cluster.node_price + now / HOUR * self._cluster.gpu_price

    def mean_gpus(self, now: float) -> float:
        """Return the GPUs that were paid for, on average since time 0."""
        if not now or (self._is_fixed and not self._since):
            return float(self._cluster.num_gpus)
        return self._paid_for(now)[1] / now

    def _paid_for(self, now: float) -> tuple[float, float]:
        """Return node-seconds and GPU-seconds up to now."""
        passed, requested = now - self._since, len(self._up_at)
        gpus = self._cluster.num_gpus if self._is_fixed else sum(self._cluster.gpus_per_node[:requested])
        return self._paid[0] + passed * requested, self._paid[1] + passed * gpus
