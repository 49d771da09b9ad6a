"""The part of a cluster that keeps its nodes while the number of nodes shrinks.

It decides what the inner policy of `polluxsim.policies.elastic.cluster_size.Scaled` sees. The first nodes are those
that stay. Of these, the first `num_open` take new jobs, and the others only keep the jobs that they have.

Trap: the inner policy is not asked while there are no jobs, so events since its last decision are collected (`miss`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import Changes, ClusterView, Decision, JobView
from polluxsim.policies.tools.parts import JobInPart, Partition


@dataclass
class FirstNodes(Partition):
    """The first nodes of a cluster, as one part. Nodes at their end take no new jobs.

    A job on nodes after the first ones must move; the policy of the part sees it without GPUs.
    """

    # Numbers of the first nodes that take new jobs, and of all first nodes. Set both before `parts`.
    num_open: int = 0
    num_nodes: int = 0
    _open_nodes: tuple[int, ...] = ()  # GPUs of each node that takes new jobs
    _jobs: dict[JobId, JobInPart] = field(default_factory=dict)  # the jobs as the policy of the part sees them
    # Events since the policy of the part last decided. It does not decide while there are no jobs.
    _missed: list[Changes] = field(default_factory=list)

    def miss(self, changes: Changes) -> None:
        """Keep events for the next view of the part."""
        self._missed.append(changes)

    def parts(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return a view of the first nodes. Those that take no new jobs show no free GPUs.

        The view says that nodes have changed if the nodes that take new jobs have changed, or if a job must leave its
        node, and that this job is evicted. Otherwise a policy that repeats its last decision would use released nodes.
        """
        arrived: dict[JobId, JobInPart] = {}
        ended: dict[JobId, float] = {}
        for missed in self._missed:
            for job in missed.arrived:
                arrived[job.job_id] = JobInPart(job, "first nodes")
            ended |= missed.ended
        self._jobs |= arrived
        staying: list[JobView] = []
        leaving: list[JobId] = []
        for job in view.running:
            previous = self._jobs[job.job_id]
            previous.values["must_move"] = any(node >= self.num_nodes for node, _ in job.placement)
            if previous.must_move:
                leaving.append(job.job_id)
            else:
                staying.append(job)
        gpus_in_use = view.sharing.in_use(staying)
        first_nodes = view.gpus_per_node[: max(self.num_nodes, 0)]
        sizes: list[int] = []  # GPUs of each node that the policy sees
        for node, size in enumerate(first_nodes):
            is_open = node < self.num_open
            sizes.append(size if is_open else gpus_in_use[node])
        open_nodes = first_nodes[: max(self.num_open, 0)]
        nodes_have_changed = any(missed.nodes for missed in self._missed) or open_nodes != self._open_nodes
        changes = view.changes.among(
            self._jobs,
            arrived=list(arrived.values()),
            ended=ended,
            nodes=nodes_have_changed or bool(leaving),
            evicted=[*view.changes.evicted, *leaving],
        )
        self._missed = []
        self._open_nodes = open_nodes
        part = view.part(sizes, self._jobs, changes, nodes=range(self.num_nodes))
        # Only now, because the changes may name jobs that have ended.
        for job_id in ended:
            del self._jobs[job_id]
        return {"first nodes": part}

    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return the decision about the first nodes. A job that must leave its nodes loses its GPUs there."""
        (decision,) = decisions.values()
        if not decision.others_keep:
            return decision
        placed = decision.allocation.keys() | decision.shared.keys()
        allocation = dict(decision.allocation)
        for job_id, job in self._jobs.items():
            if job.must_move and job_id not in placed:
                allocation[job_id] = ()
        # The usual case: no job has to leave.
        if len(allocation) == len(decision.allocation):
            return decision
        return replace(decision, allocation=allocation)
