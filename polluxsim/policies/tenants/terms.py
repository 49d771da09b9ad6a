"""Terms of queues with quotas, and rules of preemption among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.ledger import queue_of

ANY, LOWER_PRIORITY, NEVER = "any", "lower-priority", "never"  # jobs that may be preempted


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
        lent = self.quota - self.reserved  # part of its quota in the common pool
        from_pool = max(used - self.reserved, 0)
        return reserve_left + min(lent - from_pool + self.borrowing_limit, pool)


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
    mine = terms.get(queue, Terms())
    reserved = sum(terms_of_queue.reserved for name, terms_of_queue in terms.items() if name != queue)
    return min(mine.quota + mine.borrowing_limit, num_gpus - reserved)


class Kind(NamedTuple):
    """The properties of a job on which the room for it depends."""

    queue: str
    gpus: int  # number of GPUs that the job gets
    priority: float
    shape: Shape  # how the GPUs must be spread over nodes


def kind_of(job: JobView, view: ClusterView) -> Kind:
    """Return the kind of a job."""
    gpus = held_gpus(job)
    # After a fork from an elastic policy, a job may hold another number of GPUs than it requests.
    shape = view.shape_of(job) if gpus == job.num_replicas else Shape(gpus)
    return Kind(queue_of(job), gpus, job.priority, shape)


def held_gpus(job: JobView) -> int:
    """Return the GPUs of a running job, which differ from its request after a fork from an elastic policy."""
    return num_replicas(job.placement) or job.num_replicas


def jobs_within(quota: float, jobs: Iterable[JobView]) -> set[JobId]:
    """Return the jobs within a quota: in the given order, each job whose GPUs fit into the rest of the quota."""
    within = set[JobId]()
    for job in jobs:
        if held_gpus(job) <= quota:
            quota -= held_gpus(job)
            within.add(job.job_id)
    return within
