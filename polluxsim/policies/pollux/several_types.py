"""Pollux on a cluster of several GPU types, of which it knows nothing: nodes of one size, and jobs cut to one type."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from polluxsim.gpu_types import NOBODY_SAYS
from polluxsim.policies.elastic import fewest_gpus
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.view import JobSnapshot
from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Allocation, JobId, Placement


def with_like_nodes(view: ClusterView) -> tuple[ClusterView, Sequence[int]]:
    """Return a view in which nodes are cut to the size of the smallest, and the node that each part is of.

    Source: Sia (SOSP '23), §5, and its published simulator.
    """
    size = min(gpus for gpus in view.gpus_per_node if gpus)
    parts: list[int] = []
    owners: list[int] = []
    for node, gpus in enumerate(view.gpus_per_node):
        sizes = [size] * (gpus // size) + ([gpus % size] if gpus % size or not gpus else [])
        parts += sizes
        owners += [node] * len(sizes)
    free = list(parts)
    jobs = [JobSnapshot.of(job)._replace(placement=_on_parts(job.placement, owners, free)) for job in view.jobs]
    return replace(view, gpus_per_node=tuple(parts), jobs=jobs, standing=None, node_types=NOBODY_SAYS), owners


def _on_parts(placement: Placement, owners: Sequence[int], free: list[int]) -> Placement:
    """Return a placement on the parts of its nodes, and take their GPUs."""
    found = []
    for node, gpus in placement:
        left = gpus
        for part in range(owners.index(node), len(owners)):
            if (taken := min(left, free[part]) if owners[part] == node else 0) > 0:
                found.append((part, taken))
                free[part] -= taken
                left -= taken
    return tuple(found)


def cut_to_one_type(view: ClusterView, allocation: Allocation, owners: Sequence[int]) -> dict[JobId, Placement]:
    """Return placements on whole nodes, each of the type that the job has most GPUs of; the fastest at a tie.

    A job can lose all GPUs in this way, if its user named types or a minimum of GPUs. It then takes idle GPUs of a
    type that it can use, no more than it got. Otherwise it would wait until the search, which knows no types, happens
    to choose nodes of one type.
    """
    jobs: Mapping[JobId, JobView] = {job.job_id: job for job in view.jobs}
    made = {job: _cut(view, jobs[job], placement, owners) for job, placement in allocation.items()}
    missed = [
        job
        for job, given in allocation.items()
        if given and not made[job] and (jobs[job].gpu_types or jobs[job].min_replicas)
    ]
    if missed:
        free = FreeGpus(view.gpus_per_node)
        for placement in made.values():
            free.take(placement)
        made |= {job: _idle(view, jobs[job], num_replicas(allocation[job]), free) for job in missed}
    return made


def _idle(view: ClusterView, job: JobView, most: int, free: FreeGpus) -> Placement:
    """Return idle GPUs for a job, and take them: those it holds, else of the fastest type that has some."""
    if job.placement and free.has(job.placement):
        free.take(job.placement)
        return job.placement
    for name in sorted(job.speeds, key=lambda name: -job.speeds[name]):
        nodes = view.nodes_of(name)
        if (gpus := min(most, free.on(nodes))) >= fewest_gpus(job):
            return free.pack(gpus, nodes) or ()
    return ()


def _cut(view: ClusterView, job: JobView, placement: Placement, owners: Sequence[int]) -> Placement:
    by_type: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for part, gpus in placement:
        by_type[view.node_types[owners[part]].name][owners[part]] += gpus
    usable = [name for name in by_type if name in job.speeds]
    most = max(usable, key=lambda name: (sum(by_type[name].values()), job.speeds[name]), default=None)
    if most is None or sum(by_type[most].values()) < fewest_gpus(job):
        return ()
    return tuple(by_type[most].items())
