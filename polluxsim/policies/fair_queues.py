"""Weighted fair queues: whose queue has had least for its weight goes next."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.effects import check_owners, unless_jobs_differ
from polluxsim.policies.gangs import schedule_gangs
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.quotas import NO_QUEUE, queue_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job


@dataclass
class FairQueues:
    """Start whole jobs of the queue with the least GPU time for its weight, without preemption.

    A queue that comes back begins where the least of the others is, so that it cannot make up for its absence. A job
    that fits may overtake one that does not.

    Parameters
    ----------
    weights
        By queue; one for a queue that is not named. Jobs without a queue are in `none`.
    lookahead
        Jobs that run count as if they had run for so much longer, lest a queue gets all GPUs at once [s].

    Source: start-time fair queueing, Goyal et al. (SIGCOMM '96), with GPUs for links.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    lookahead: float = 3600.0
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # GPU time over weight of ended jobs, with what a queue that came back was given on top.
    _served: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float), init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(lookahead=self.lookahead, **{f"weights.{name}": value for name, value in self.weights.items()})

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether queues decide nothing; each weight must be of a queue that jobs are in."""
        check_owners("policy.weights", self.weights, jobs, "queue", NO_QUEUE)
        return unless_jobs_differ(jobs, "queue", "its jobs start in order of submission, wherever they fit")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep what runs, then start jobs of the queues that have had least."""
        self._take_note(view)
        usage = self._usage()
        ahead = in_turn(view, usage, lambda job: self._per_weight(job, job.num_replicas * self.lookahead))
        order = chain(view.running, ahead)
        return schedule_gangs(
            view, order, order_lasts_until=inf, describe=lambda job: {"virtual_usage": usage[queue_of(job)]}
        )

    def _take_note(self, view: ClusterView) -> None:
        for job_id in view.changes.ended:
            job = self._jobs.pop(job_id)
            self._served[queue_of(job)] += self._per_weight(job, job.attained_service)
        before = self._usage()
        least = min(before.values(), default=0.0)
        for job in view.changes.arrived:
            if (queue := queue_of(job)) not in before:
                self._served[queue] = max(self._served[queue], least)
            self._jobs[job.job_id] = job

    def _per_weight(self, job: JobView, service: float) -> float:
        return service / self.weights.get(queue_of(job), 1.0)

    def _usage(self) -> dict[str, float]:
        """Return what every queue with jobs here has had for its weight [GPU s]."""
        usage = {queue_of(job): self._served[queue_of(job)] for job in self._jobs.values()}
        for job in self._jobs.values():
            usage[queue_of(job)] += self._per_weight(job, job.attained_service)
        return usage


def in_turn(view: ClusterView, usage: Mapping[str, float], cost: Callable[[JobView], float]) -> Iterator[JobView]:
    """Yield who waits, each time the first of the queue that has had least for its weight [GPU s].

    Jobs that run, and those that get their turn, count for their `cost` on top [GPU s].
    """
    queues: dict[str, deque[JobView]] = {}
    for job in view.waiting:
        queues.setdefault(queue_of(job), deque()).append(job)
    had = {queue: usage[queue] for queue in queues}
    for job in view.running:
        if (queue := queue_of(job)) in had:
            had[queue] += cost(job)
    while queues:
        queue = min(queues, key=had.__getitem__)
        job = queues[queue].popleft()
        had[queue] += cost(job)
        if not queues[queue]:
            del queues[queue]
        yield job
