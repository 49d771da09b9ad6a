"""Pollux on several GPU types: like nodes for its search, and the cut of its answer to one type for each job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polluxsim.hardware.gpu_types import UNKNOWN_TYPES
from polluxsim.hardware.placements import Allocation, JobId, Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, Decision, JobProxy, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gpu_counts import fewest_gpus, most_gpus
from polluxsim.policies.tools.parts import Partition


class LikeNodes(Partition):
    """All nodes and jobs as one part, in which nodes are cut to the size of the smallest node and have no types.

    Source: Sia (SOSP '23), §5, and its published simulator.
    """

    def __init__(self) -> None:
        self.owners: Sequence[int] = ()  # the original node of each node of the part

    def parts(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return a view in which nodes are cut to the size of the smallest node."""
        size = min(gpus for gpus in view.gpus_per_node if gpus)
        parts: list[int] = []
        owners: list[int] = []
        for node, gpus in enumerate(view.gpus_per_node):
            sizes = [size] * (gpus // size) + ([gpus % size] if gpus % size or not gpus else [])
            parts += sizes
            owners += [node] * len(sizes)
        self.owners = owners
        free = list(parts)
        jobs = [JobProxy(job, placement=_on_parts(job.placement, owners, free)) for job in view.jobs]
        like = replace(view, gpus_per_node=tuple(parts), jobs=jobs, standing=None, node_types=UNKNOWN_TYPES)
        return {"like nodes": like}

    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return the decision on whole nodes, in which each job has GPUs of one type."""
        (decision,) = decisions.values()
        return replace(decision, allocation=cut_to_one_type(view, decision.allocation, self.owners))


def _on_parts(placement: Placement, owners: Sequence[int], free: list[int]) -> Placement:
    """Return a placement on the parts of its nodes, and take their GPUs."""
    on_parts = []
    for node, gpus in placement:
        gpus_left = gpus
        for part in range(owners.index(node), len(owners)):
            if owners[part] == node and (taken := min(gpus_left, free[part])) > 0:
                on_parts.append((part, taken))
                free[part] -= taken
                gpus_left -= taken
    return tuple(on_parts)


def cut_to_one_type(view: ClusterView, allocation: Allocation, owners: Sequence[int]) -> dict[JobId, Placement]:
    """Return placements on whole nodes, without the GPUs that are not of the type of most of the job's GPUs.

    At a tie, the fastest type counts. `owners` contains the node of each part. A job whose user named types, or a
    minimum of GPUs, can lose all GPUs in this way. It then keeps its present GPUs if they are free. Otherwise it takes
    idle GPUs of a type that it can use, at most the number that it got, because it would else wait until the search,
    which knows no types, happens to choose nodes of one type. Then all other jobs without GPUs do the same.
    """
    jobs: Mapping[JobId, JobView] = {job.job_id: job for job in view.jobs}
    cut = {job: _cut(view, jobs[job], placement, owners) for job, placement in allocation.items()}
    missed = {
        job: num_replicas(allocated)
        for job, allocated in allocation.items()
        if allocated and not cut[job] and (jobs[job].gpu_types or jobs[job].min_replicas)
    }
    without = [job for job in allocation if not cut[job]]
    if without:
        free = FreeGpus(view.gpus_per_node)
        for placement in cut.values():
            free.take(placement)
        for job in sorted(without, key=lambda job: job not in missed):
            cut[job] = _idle(view, jobs[job], missed.get(job) or most_gpus(jobs[job]), free)
    return cut


def _idle(view: ClusterView, job: JobView, most: int, free: FreeGpus) -> Placement:
    """Return idle GPUs for a job, and take them: the held ones, or else GPUs of the fastest type that has some."""
    if job.placement and free.has(job.placement):
        free.take(job.placement)
        return job.placement
    for name in sorted(job.speeds, key=lambda name: -job.speeds[name]):
        nodes = view.nodes_of(name)
        gpus = min(most, free.on(nodes))
        if gpus >= fewest_gpus(job):
            return free.pack(gpus, nodes) or ()
    return ()


def _cut(view: ClusterView, job: JobView, placement: Placement, owners: Sequence[int]) -> Placement:
    """Return the GPUs of one type, by whole nodes.

    The type is the one with most GPUs among those that the job can use, at a tie the fastest. Return no GPUs if they
    are fewer than the job needs.
    """
    by_type: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for part, gpus in placement:
        by_type[view.node_types[owners[part]].name][owners[part]] += gpus
    usable = [name for name in by_type if name in job.speeds]
    largest_type = max(usable, key=lambda name: (sum(by_type[name].values()), job.speeds[name]), default=None)
    if largest_type is None or sum(by_type[largest_type].values()) < fewest_gpus(job):
        return ()
    return tuple(by_type[largest_type].items())
