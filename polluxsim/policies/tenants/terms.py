"""Terms of queues with quotas, and rules of preemption among them.

A queue owns its quota. It may lend a part of it, and borrow GPUs beyond it. The part that it lends to no other queue is
reserved. GPUs that are lent, and GPUs without an owner, are in a common pool.

Trap: a job can hold another number of GPUs than it requests, if a fork changed the policy. `held_gpus` counts these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.ledger import queue_of

ANY = "any"  # jobs that may be preempted
LOWER_PRIORITY = "lower-priority"
NEVER = "never"


class Terms(NamedTuple):
    """Terms of a queue in the cohort."""

    quota: int = 0  # GPUs that the queue owns
    borrowing_limit: float = inf  # most GPUs that the queue may hold beyond its quota
    lending_limit: float = inf  # most GPUs of the quota that other queues may borrow
    weight: float = 1.0  # for fair sharing

    @property
    def reserved(self) -> float:
        """Return the GPUs of the quota that other queues cannot borrow."""
        return max(self.quota - self.lending_limit, 0)

    def share(self, used: int) -> float:
        """Return the GPUs beyond the quota, over the weight, of a queue that uses a number of GPUs."""
        return max(used - self.quota, 0) / self.weight

    def available(self, used: int, pool: float) -> float:
        """Return the GPUs that a queue that uses a number of GPUs may still get; `pool` GPUs may be borrowed by all."""
        reserve_left = max(self.reserved - used, 0)
        quota_in_pool = self.quota - self.reserved
        used_of_pool = max(used - self.reserved, 0)
        may_take_of_pool = quota_in_pool - used_of_pool + self.borrowing_limit
        return reserve_left + min(may_take_of_pool, pool)


class Rules(NamedTuple):
    """Rules of preemption. The parameters of `Quotas` describe them."""

    within_queue: str = LOWER_PRIORITY
    reclaim: str = ANY
    fair_sharing: bool = False

    def turn_numbers(self, job: JobView) -> dict[str, float]:
        """Return the numbers that decide the turn of a job among those that borrow, as numbers of a reason."""
        return {"priority": job.priority, "submitted": job.submit_time, "fair_sharing": float(self.fair_sharing)}


def most_gpus(terms: Mapping[str, Terms], queue: str, num_gpus: float) -> float:
    """Return the most of `num_gpus` GPUs that a queue can hold if all other queues are idle."""
    terms_of_queue = terms.get(queue, Terms())
    reserved_by_others = sum(other_terms.reserved for name, other_terms in terms.items() if name != queue)
    return min(terms_of_queue.quota + terms_of_queue.borrowing_limit, num_gpus - reserved_by_others)


class Need(NamedTuple):
    """The properties of a job on which the room for it depends. If one job finds no room, no job with its need does."""

    queue: str
    gpus: int  # number of GPUs that the job gets
    priority: float
    shape: Shape  # how the GPUs must be spread over nodes


def need_of(job: JobView, view: ClusterView) -> Need:
    """Return the need of a job."""
    gpus = held_gpus(job)
    # After a fork from an elastic policy, a job may hold another number of GPUs than it requests.
    shape = view.shape_of(job) if gpus == job.num_replicas else Shape(gpus)
    return Need(queue_of(job), gpus, job.priority, shape)


def held_gpus(job: JobView) -> int:
    """Return the GPUs of a running job, which differ from its request after a fork from an elastic policy."""
    return num_replicas(job.placement) or job.num_replicas


def jobs_within(quota: float, jobs: Iterable[JobView]) -> set[JobId]:
    """Return the jobs within a quota: in the given order, each job whose GPUs fit into the rest of the quota."""
    within: set[JobId] = set()
    quota_left = quota
    for job in jobs:
        gpus = held_gpus(job)
        if gpus <= quota_left:
            quota_left -= gpus
            within.add(job.job_id)
    return within
