"""Growth: jobs get idle GPUs of their node beyond their requests, as in Gandiva.

A job may grow if its user allows it, it is on one node and shares no GPU. GPUs that are idle for some time go to such
jobs of the node. As soon as a job waits, all jobs give them back.

Invariants: the additional GPUs of a job come after its requested GPUs, so that its first GPUs are those that it keeps.

The trap: GPUs are given by the time since which they are idle, and not by number. `_idle` therefore has a time for each
idle GPU of a node, the GPU that has been idle longest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from polluxsim.common.instants import has_come
from polluxsim.hardware.placements import Gpus, JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView


@dataclass
class Growth:
    """Additional GPUs of jobs beyond their requests, on the node where they run.

    Source: Xiao et al., Gandiva (OSDI '18). Jobs grow, if their users allow it, on GPUs of their node that are idle for
    some time. They shrink at once if other jobs need the GPUs.
    """

    after: float  # time for which GPUs of a node must be idle before jobs on the node get them [s]
    extra: dict[JobId, int] = field(default_factory=dict)  # GPUs of each job beyond its request
    due: float = inf  # time at which jobs grow next without an event [s]
    # Times since which the idle GPUs of each node are idle, in rising order [s].
    _idle: dict[int, list[float]] = field(default_factory=dict)

    def grown(
        self,
        view: ClusterView,
        alone: Sequence[JobView],
        shared: Mapping[JobId, Gpus],
        placed: Mapping[JobId, Placement],
        *,
        waits: bool,
    ) -> tuple[dict[JobId, Gpus], dict[JobId, Placement]]:
        """Return the numbered GPUs and the placements of jobs, with the additional GPUs of jobs that grow.

        `alone` contains the jobs that share no GPU, in the order of growth. `waits` says whether a job waits; then no
        job grows.
        """
        if self.after == inf:
            return dict(shared), dict(placed)
        taken = set(chain.from_iterable(shared.values()))
        idle = dict(enumerate(view.gpus_per_node))
        for node, _ in taken:
            idle[node] -= 1
        for placement in placed.values():
            for node, gpus in placement:
                idle[node] -= gpus
        if waits:
            # Jobs that have grown give their GPUs back at once.
            idle = dict.fromkeys(idle, 0)
        node_of = _only_nodes({**shared, **placed})
        jobs_on_one_node = [(job, node_of[job.job_id]) for job in alone if job.job_id in node_of]
        self._share(view.time, jobs_on_one_node, idle)
        numbered = dict(shared)
        counted = dict(placed)
        for name, num_more in self.extra.items():
            node = node_of[name]
            if name in placed:
                num_requested = placed[name][0][1]
                counted[name] = ((node, num_requested + num_more),)
            else:
                all_of_node = [(node, number) for number in range(view.gpus_per_node[node])]
                free = [gpu for gpu in all_of_node if gpu not in taken]
                more_gpus = free[:num_more]
                numbered[name] = (*shared[name], *more_gpus)
                taken.update(more_gpus)
        return numbered, counted

    def _share(self, now: float, jobs: Sequence[tuple[JobView, int]], idle: dict[int, int]) -> None:
        """Give idle GPUs to the jobs that had them before, then long idle GPUs to jobs that may grow.

        `jobs` are pairs of a job and its node, and `idle` are the idle GPUs of each node.
        """
        extra_before = self.extra
        self.extra = {}
        # All jobs keep what they had before a job gets more.
        for job, node in jobs:
            self._give(job, min(_most_extra(job), extra_before.get(job.job_id, 0)), idle, node)
        idle_since: dict[int, list[float]] = {}
        for node, num_idle in idle.items():
            # If fewer GPUs are idle now, those that became idle last are in use again.
            still_idle = self._idle.get(node, [])[:num_idle]
            num_newly_idle = num_idle - len(still_idle)
            idle_since[node] = still_idle + [now] * num_newly_idle
        self._idle = idle_since
        self.due = inf
        for job, node in jobs:
            since = self._idle[node]
            num_wanted = max(_most_extra(job) - self.extra.get(job.job_id, 0), 0)
            num_granted = sum(has_come(time + self.after, now) for time in since[:num_wanted])
            self._give(job, num_granted, idle, node)
            del since[:num_granted]
            if num_wanted > num_granted and since:
                self.due = min(self.due, since[0] + self.after)

    def _give(self, job: JobView, wanted: int, idle: dict[int, int], node: int) -> None:
        """Give a job up to `wanted` of the idle GPUs of a node."""
        gpus = min(wanted, idle[node])
        if gpus:
            self.extra[job.job_id] = self.extra.get(job.job_id, 0) + gpus
            idle[node] -= gpus


def _only_nodes(pairs_of_job: Mapping[JobId, Gpus | Placement]) -> dict[JobId, int]:
    """Return the node of each job that is on one node only. Pairs begin with a node in GPUs and in placements."""
    node_of: dict[JobId, int] = {}
    for name, pairs in pairs_of_job.items():
        nodes = {node for node, _ in pairs}
        if len(nodes) == 1:
            node_of[name] = nodes.pop()
    return node_of


def _most_extra(job: JobView) -> int:
    """Return the most GPUs that a job may get beyond its request; 0 unless its user allows it to grow."""
    if not job.may_grow:
        return 0
    return max(job.max_replicas - job.num_replicas, 0)
