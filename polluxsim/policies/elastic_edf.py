"""Elastic earliest deadline first: each job gets as many GPUs as it can use, in order of deadline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.policies.deadlines import due
from polluxsim.policies.effects import unless_jobs_differ
from polluxsim.policies.elastic import dealt, powers_of_two
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job

    # A job, what it got when its turn came, and what was left then.
    Share = tuple[JobView, int, int]


@pool_per_type
@dataclass(frozen=True)
class ElasticEdf:
    """Give each job the most GPUs that it can use and that are left, a power of two, by deadline.

    Whether more GPUs make a job faster does not matter, as in the published baseline. Jobs without a deadline come
    last. GPUs change at arrivals and ends only.

    Source: EDF in ElasticFlow (ASPLOS '23) and its simulator.
    """

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether deadlines decide nothing."""
        return unless_jobs_differ(jobs, "deadline", "its jobs get GPUs in order of submission")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Deal the GPUs out."""
        shares: list[Share] = []
        left = view.num_gpus
        for job in sorted(view.jobs, key=due):
            gpus = max((count for count in powers_of_two(job, view.num_gpus) if count <= left), default=0)
            shares.append((job, gpus, left))
            left -= gpus
        counts = {job.job_id: gpus for job, gpus, _ in shares}
        return dealt(view, counts, lambda jobs: _reasons(shares, jobs))


def _reasons(shares: Sequence[Share], asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Say of the jobs asked about what was left when their turn came. Kind: `most-it-can-use`."""
    wanted = set(asked)
    reasons: dict[JobId, Reason] = {}
    for position, (job, gpus, left) in enumerate(shares, start=1):
        if job.job_id in wanted:
            numbers = {"position": position, "gpus": gpus, "gpus_left": left, "max_replicas": job.max_replicas}
            deadline = {} if job.deadline is None else {"deadline": job.deadline}
            reasons[job.job_id] = Reason("most-it-can-use", {**numbers, **deadline})
    return reasons
