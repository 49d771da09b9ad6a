"""The nodes of a cluster over time: which are up, which are still coming, and what they have cost."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING

from polluxsim.durations import HOUR
from polluxsim.policies.view import NodeCounts
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from polluxsim.types import Placement


class Nodes:
    """Nodes that are requested and released one by one; the last requested is the first released.

    A node is paid for from its request to its release, and can be used once its start-up time is over. So the nodes
    that are up are always the first ones. At time 0 the least number of nodes is up.

    Parameters
    ----------
    cluster
        All the nodes there can be.

    Attributes
    ----------
    free
        GPUs of each node that nobody holds, of nodes too that are not up.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.free = list(cluster.gpus_per_node)
        self._cluster = cluster
        self._least = cluster.num_nodes if cluster.least_nodes is None else cluster.least_nodes
        self._up_at = [0.0] * self._least
        self._present = Cluster(cluster.gpus_per_node[: self._least])
        self._since = 0.0
        self._node_seconds = self._gpu_seconds = 0.0

    def take(self, placement: Placement) -> None:
        """Take note that somebody holds GPUs from now on."""
        for node, gpus in placement:
            self.free[node] -= gpus

    def give_back(self, placement: Placement) -> None:
        """Take note that somebody holds GPUs no longer."""
        for node, gpus in placement:
            self.free[node] += gpus

    @property
    def counts(self) -> NodeCounts | None:
        """Return how many nodes are requested and allowed, None where their number cannot change."""
        if self._least == self._cluster.num_nodes:
            return None
        return NodeCounts(len(self._up_at), self._least, self._cluster.num_nodes, self._cluster.gpus_per_node)

    @property
    def hourly_cost(self) -> float:
        """Return the price of all requested nodes for an hour."""
        return len(self._up_at) * self._cluster.node_price

    def are_coming(self, now: float) -> bool:
        """Return whether requested nodes are not up yet."""
        return self._up_at[-1] > now

    def present(self, now: float, at_most: int | None = None) -> Cluster:
        """Return the nodes that are up, the first `at_most` of them."""
        if at_most is None and self._least == len(self._cluster.gpus_per_node):
            return self._present
        # Nodes come up in the order in which they were requested.
        up = bisect_right(self._up_at, now)
        if at_most is not None:
            up = min(up, at_most)
        if up != self._present.num_nodes:
            self._present = Cluster(self._cluster.gpus_per_node[:up])
        return self._present

    def request(self, num_nodes: int, now: float) -> float:
        """Ask for another number of nodes, and give back what is beyond it.

        Returns
        -------
        float
            When new ones will be up [s]; ∞ if there are none.
        """
        self._node_seconds, self._gpu_seconds = self._paid_for(now)
        self._since = now
        more = num_nodes - len(self._up_at)
        del self._up_at[num_nodes:]
        if more <= 0:
            return inf
        self._up_at += [now + self._cluster.startup_time] * more
        return self._up_at[-1]

    def cost(self, now: float) -> float:
        """Return what all nodes have cost up to now."""
        return self._paid_for(now)[0] / HOUR * self._cluster.node_price

    def mean_gpus(self, now: float) -> float:
        """Return the GPUs that were paid for, on average since time 0."""
        if self.counts is None or not now:
            return float(self._cluster.num_gpus)
        return self._paid_for(now)[1] / now

    def _paid_for(self, now: float) -> tuple[float, float]:
        """Return node-seconds and GPU-seconds up to now."""
        passed, requested = now - self._since, len(self._up_at)
        gpus = self._cluster.num_gpus if self.counts is None else sum(self._cluster.gpus_per_node[:requested])
        return self._node_seconds + passed * requested, self._gpu_seconds + passed * gpus
