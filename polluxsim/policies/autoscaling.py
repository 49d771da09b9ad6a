"""Autoscaling: one large job on a cluster that grows while its GPUs are put to good use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, check_choice
from polluxsim.policies.elastic import fewest_gpus, most_gpus
from polluxsim.policies.packing import pack
from polluxsim.policies.scaling import nodes_for
from polluxsim.policies.view import Decision, NodeCounts, Reason, Traits

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.models.goodput import GoodputModel
    from polluxsim.policies.view import ClusterView, JobView

MEASURES = ("goodput", "throughput")


@dataclass(frozen=True)
class Autoscaler:
    """Give the first job all nodes, and change their number if it uses its GPUs too well or too badly.

    The use of a number of nodes is the predicted measure per GPU, over the measure of one GPU alone.

    Parameters
    ----------
    measure
        Measure that decides on nodes and batch sizes: `goodput`, or `throughput` as in the baseline.
    grow_above
        Use above which more nodes are requested, U in (0, 1].
    aim
        Target use, L in (0, U); below it nodes are released.

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
        """Return its traits. If agents maximise throughput, the models that a policy sees do, too."""
        return Traits(
            adaptive=True,
            needs_profiles=True,
            maximises_throughput=self.measure == "throughput",
            one_type_as="it gives one job all nodes",
        )

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the GPUs for the first job, and the number of nodes to request."""
        if not view.jobs:
            return Decision({})
        job = view.jobs[0]
        num_nodes = None if view.nodes is None else self._num_nodes(job, view.nodes)
        up = view.gpus_per_node[:num_nodes]
        gpus = min(sum(up), most_gpus(job))
        placement = pack(up, gpus, keep=job.placement) if gpus >= fewest_gpus(job) else None
        return Decision(
            {job.job_id: placement or ()},
            num_nodes=num_nodes,
            explain=lambda asked: {
                name: Reason("behind-only-job", {}, (job.job_id,)) for name in asked if name != job.job_id
            },
        )

    def _num_nodes(self, job: JobView, nodes: NodeCounts) -> int:
        """Return the number of nodes to request. It stays if the nodes are used well and suffice for the job."""
        fewest = max(nodes_for(nodes, fewest_gpus(job)), nodes.least)
        if (model := job.goodput) is None:
            return max(nodes.requested, fewest)
        now = self._use(model, nodes, nodes.requested)
        if self.aim <= now <= self.grow_above:
            return max(nodes.requested, fewest)
        # The job cannot use more GPUs than its agent allows, and no node should be idle.
        counts = [count for count in range(fewest, nodes.most + 1) if nodes.gpus(count) <= most_gpus(job)]
        wanted = min(counts or [fewest], key=lambda count: abs(self._use(model, nodes, count) - self.aim))
        return max(wanted, nodes.requested) if now > self.grow_above else min(wanted, max(nodes.requested, fewest))

    def _use(self, model: GoodputModel, nodes: NodeCounts, count: int) -> float:
        """Return the measure per GPU of `count` full nodes, over the measure of one GPU."""
        gpus = nodes.gpus(count)
        return model.best(count, gpus)[0] / gpus / model.best(1, 1)[0]
