"""Proportional shares: GPUs are dealt out in proportion to what users asked for, the simplest elastic baseline."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from polluxsim.policies.elastic import counts_of, dealt
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision
    from polluxsim.types import JobId


@pool_per_type
@dataclass(frozen=True)
class Proportional:
    """Deal GPUs one by one to the job that has the smallest part of what its user asked for, as far as it can use them.

    A job that needs several at once gets all of them or none. GPUs change at arrivals and ends only.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Deal the GPUs out."""
        jobs = list(view.jobs)
        ladders = [counts_of(job, view.num_gpus) for job in jobs]
        counts, rungs, left = [0] * len(jobs), [0] * len(jobs), view.num_gpus
        queue = [(0.0, order) for order, ladder in enumerate(ladders) if ladder]  # a heap, as it is sorted
        while queue:
            _, order = heappop(queue)
            more = ladders[order][rungs[order]]
            if more - counts[order] > left:
                continue
            left -= more - counts[order]
            counts[order] = more
            rungs[order] += 1
            if rungs[order] < len(ladders[order]):
                heappush(queue, (more / jobs[order].num_replicas, order))
        given = {job.job_id: count for job, count in zip(jobs, counts, strict=True)}
        return dealt(view, given, lambda asked: _reasons(view, given, asked))


def _reasons(view: ClusterView, given: Mapping[JobId, int], asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Say of the jobs asked about what they get. Kind: `proportional-share`."""
    wanted, demand = set(asked), view.demand
    reasons: dict[JobId, Reason] = {}
    for job in view.jobs:
        if job.job_id in wanted:
            share = {"gpus": given[job.job_id], "gpus_needed": job.num_replicas}
            fair_share = view.num_gpus * job.num_replicas / demand
            numbers = {**share, "fair_share": fair_share, "max_replicas": job.max_replicas}
            reasons[job.job_id] = Reason("proportional-share", numbers)
    return reasons
