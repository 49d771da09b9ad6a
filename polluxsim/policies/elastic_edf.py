"""Elastic earliest deadline first: each job gets as many GPUs as it can use, in order of deadline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.deadlines import due
from polluxsim.policies.elastic import dealt, powers_of_two
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


class _Share(NamedTuple):
    """What a job got when its turn came, and what was left."""

    job: JobView
    gpus: int
    left: int


@pool_per_type
@dataclass(frozen=True)
class ElasticEdf:
    """Give each job the most GPUs that it can use and that are left, a power of two, by deadline.

    Whether more GPUs make a job faster does not matter, as in the published baseline. Jobs without a deadline come
    last. GPUs change at arrivals and ends only.

    Source: EDF in ElasticFlow (ASPLOS '23) and its simulator.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Deal the GPUs out."""
        shares, left = list[_Share](), view.num_gpus
        for job in sorted(view.jobs, key=due):
            gpus = max((count for count in powers_of_two(job, view.num_gpus) if count <= left), default=0)
            shares.append(_Share(job, gpus, left))
            left -= gpus
        counts = {share.job.job_id: share.gpus for share in shares}
        return dealt(view, counts, lambda jobs: _reasons(shares, jobs))


def _reasons(shares: Sequence[_Share], asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Say of the jobs asked about what was left when their turn came. Kind: `most-it-can-use`."""
    wanted = set(asked)
    return {
        share.job.job_id: Reason("most-it-can-use", _numbers(position, share))
        for position, share in enumerate(shares, start=1)
        if share.job.job_id in wanted
    }


def _numbers(position: int, share: _Share) -> Mapping[str, float]:
    numbers = {
        "position": position,
        "gpus": share.gpus,
        "gpus_left": share.left,
        "max_replicas": share.job.max_replicas,
    }
    return numbers if share.job.deadline is None else {**numbers, "deadline": share.job.deadline}
