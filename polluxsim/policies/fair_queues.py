"""Weighted fair queues: the queue with the least GPU time for its weight starts the next job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.effects import check_owners, unless_jobs_differ
from polluxsim.policies.gangs import schedule_gangs
from polluxsim.policies.ledger import NO_QUEUE, Ledger, queue_of
from polluxsim.policies.orders import check_above_zero

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster
    from polluxsim.workloads.job import Job


@dataclass
class FairQueues:
    """Start whole jobs of the queue with the least GPU time for its weight, without preemption.

    A queue whose first job arrives after a time without jobs starts at the least usage of the other queues. Thus it
    cannot make up for its absence. A job that fits may overtake a job that does not fit.

    Parameters
    ----------
    weights
        Weights of queues; other queues have weight 1. Jobs without a queue are in `none`.
    lookahead
        Time that is added to the run time of running jobs, so that one queue does not get all GPUs at once [s].

    Source: start-time fair queueing, Goyal et al. (SIGCOMM '96), with GPUs in place of links.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    lookahead: float = 3600.0
    _usage: Ledger[str] = field(default_factory=Ledger, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(lookahead=self.lookahead, **{f"weights.{name}": value for name, value in self.weights.items()})

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if queues have no effect; each weight must be of a queue of a job."""
        check_owners("policy.weights", self.weights, jobs, "queue", NO_QUEUE)
        return unless_jobs_differ(jobs, "queue", "its jobs start in order of submission, wherever they fit")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep the running jobs, then start jobs of the queues with the least usage."""
        self._usage.settle(view)
        self._raise_new_queues(view)
        usage = {queue: self._virtual_usage(queue, view.time) for queue in dict.fromkeys(map(queue_of, view.jobs))}

        def cost(job: JobView) -> float:
            return job.num_replicas * self.lookahead / self._weight(queue_of(job))

        decision = schedule_gangs(
            view,
            chain(view.running, in_turn(view, usage, cost)),
            order_lasts_until=inf,
            describe=lambda job: {"virtual_usage": usage[queue_of(job)]},
        )
        self._usage.follow(view, decision, queue_of)
        return decision

    def _raise_new_queues(self, view: ClusterView) -> None:
        """Raise the usage of queues that had no jobs to the least usage of the queues that had jobs."""
        arrived = {job.job_id for job in view.changes.arrived}
        if not arrived:
            return
        before = {queue_of(job) for job in view.jobs if job.job_id not in arrived}
        least = min((self._virtual_usage(queue, view.time) for queue in before), default=0.0)
        for queue in dict.fromkeys(map(queue_of, view.changes.arrived)):
            if queue not in before and self._virtual_usage(queue, view.time) < least:
                self._usage.set_balance(queue, least * self._weight(queue), view.time)

    def _weight(self, queue: str) -> float:
        return self.weights.get(queue, 1.0)

    def _virtual_usage(self, queue: str, now: float) -> float:
        """Return the GPU time of a queue over its weight [GPU s]."""
        return self._usage.balance(queue, now) / self._weight(queue)


def in_turn(view: ClusterView, usage: Mapping[str, float], cost: Callable[[JobView], float]) -> Iterator[JobView]:
    """Yield the waiting jobs, each time the first job of the queue with the least usage for its weight [GPU s].

    The `cost` of running jobs, and of jobs that were yielded before, is added to the usage of their queues [GPU s].
    """
    queues: dict[str, deque[JobView]] = {}
    for job in view.waiting:
        queues.setdefault(queue_of(job), deque()).append(job)
    used = {queue: usage[queue] for queue in queues}
    for job in view.running:
        if (queue := queue_of(job)) in used:
            used[queue] += cost(job)
    while queues:
        queue = min(queues, key=used.__getitem__)
        job = queues[queue].popleft()
        used[queue] += cost(job)
        if not queues[queue]:
            del queues[queue]
        yield job
