"""Autoscaling: one large job on a cluster that grows while its GPUs are put to good use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, check_choice
from polluxsim.policies.packing import pack
from polluxsim.policies.view import Decision, NodeCounts, Traits

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.models.goodput import GoodputModel
    from polluxsim.policies.view import ClusterView, JobView

MEASURES = ("goodput", "throughput")


@dataclass(frozen=True)
class Autoscaler:
    """Give the first job all nodes, and change their number when it makes too good or too poor use of its GPUs.

    A number of nodes is put to use by its predicted measure per GPU, over that of one GPU alone.

    Parameters
    ----------
    measure
        What nodes and batch sizes are chosen by: `goodput`, or `throughput` as in the baseline.
    grow_above
        Use above which more nodes are asked for, U in (0, 1].
    aim
        Use that is aimed at, L in (0, U); below it nodes are given back.

    Source: Pollux (OSDI '21), §5.4.1; the baseline there is Or et al. (MLSys '20).
    """

    measure: str = "goodput"
    grow_above: float = 2 / 3
    aim: float = 0.5

    def __post_init__(self) -> None:
        check_choice("policy.measure", self.measure, MEASURES)
        if not 0 < self.aim < self.grow_above <= 1:
            raise InvalidConfigError(
                f"policy.aim is {self.aim}, policy.grow_above {self.grow_above}, allowed are 0 < aim < grow_above ≤ 1"
            )

    @property
    def traits(self) -> Traits:
        """Return what it is; where agents take throughput for goodput, the model that a policy sees says so too."""
        return Traits(
            adaptive=True,
            needs_profiles=True,
            maximises_throughput=self.measure == "throughput",
            one_type_as="it gives one job all nodes",
        )

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return all GPUs that are up and that the first job may have, and the number of nodes to have next."""
        if not view.jobs:
            return Decision({})
        job = view.jobs[0]
        num_nodes = None if view.nodes is None else self._num_nodes(job, view.nodes)
        up = view.gpus_per_node[:num_nodes]
        placement = pack(up, min(sum(up), job.max_replicas), keep=job.placement) or ()
        return Decision({job.job_id: placement}, num_nodes=num_nodes)

    def _num_nodes(self, job: JobView, nodes: NodeCounts) -> int:
        """Return the number of nodes to have, as many as before where their use is good."""
        if (model := job.goodput) is None:
            return nodes.requested
        now = self._use(model, nodes, nodes.requested)
        if self.aim <= now <= self.grow_above:
            return nodes.requested
        # A job may not have more GPUs than its agent can speak of, and no node is to be idle.
        most = [count for count in range(nodes.least, nodes.most + 1) if nodes.gpus(count) <= job.max_replicas]
        wanted = min(most or [nodes.least], key=lambda count: abs(self._use(model, nodes, count) - self.aim))
        return max(wanted, nodes.requested) if now > self.grow_above else min(wanted, nodes.requested)

    def _use(self, model: GoodputModel, nodes: NodeCounts, count: int) -> float:
        """Return the measure per GPU of so many full nodes, over that of one GPU."""
        gpus = nodes.gpus(count)
        return model.best(count, gpus)[0] / gpus / model.best(1, 1)[0]
