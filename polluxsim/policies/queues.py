"""Tiresias-L as Muri and its successors run it: least attained service in K queues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.gangs import schedule_gangs
from polluxsim.policies.orders import NEARLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


@dataclass
class TiresiasL:
    """Discretised least attained service in any number of queues; within one, jobs that run stay ahead of the others.

    So who is preempted stands behind everybody of its queue who runs. There is no promotion of starved jobs.

    Parameters
    ----------
    queue_limits
        Attained service at which a job moves from each queue but the last to the end of the next, rising [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19), §3.3; three queues with these limits from the simulator of Muri
    (SIGCOMM '22).
    """

    queue_limits: Sequence[float] = (3250.0, 7200.0)
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # The queue of every job, from 0; within a queue, jobs stand in order of precedence.
    _queue_of: dict[JobId, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._limits = _with_last(self.queue_limits)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs, queue by queue; a job that fits may overtake one that does not."""
        self._take_note(view)
        # Who had enough first goes first.
        for job in sorted(view.running, key=self._time_left):
            self._demote(job)
        order = sorted(self._queue_of, key=self._queue_of.__getitem__)
        decision = schedule_gangs(view, map(self._jobs.__getitem__, order), describe=self._describe)
        running = [job_id for job_id in self._queue_of if _runs(self._jobs[job_id], decision)]
        # They stay ahead of the others in their queues.
        self._queue_of = {job_id: self._queue_of[job_id] for job_id in running} | self._queue_of
        until = min((self._time_left(self._jobs[job_id]) for job_id in running), default=inf)
        return replace(decision, valid_until=view.time + NEARLY * until)

    def _take_note(self, view: ClusterView) -> None:
        for job in view.changes.arrived:
            self._jobs[job.job_id], self._queue_of[job.job_id] = job, 0
        for job_id in view.changes.ended:
            del self._jobs[job_id], self._queue_of[job_id]

    def _demote(self, job: JobView) -> None:
        """Move a job that has had enough to the end of a later queue."""
        queue, service = self._queue_of[job.job_id], job.attained_service
        if service >= self._limits[queue]:
            del self._queue_of[job.job_id]
            self._queue_of[job.job_id] = next(i for i, limit in enumerate(self._limits) if service < limit)

    def _time_left(self, job: JobView) -> float:
        """Return how long a job may run until it is demoted [s]."""
        return (self._limits[self._queue_of[job.job_id]] - job.attained_service) / job.num_replicas

    def _describe(self, job: JobView) -> dict[str, float]:
        queue = self._queue_of[job.job_id]
        limit = {} if self._limits[queue] == inf else {"queue_threshold": self._limits[queue]}
        return {"queue": queue + 1, "queues": len(self._limits), "attained_service": job.attained_service, **limit}


def _with_last(limits: Sequence[float]) -> list[float]:
    """Return the limits of all queues, checked, with that of the last."""
    every = [0, *limits, inf]
    if not all(isinstance(limit, int | float) for limit in every) or any(a >= b for a, b in pairwise(every)):
        raise InvalidConfigError(f"policy.queue_limits is {every[1:-1]}, allowed are rising numbers > 0")
    return every[1:]


def _runs(job: JobView, decision: Decision) -> bool:
    """Return whether a job has GPUs from now on."""
    kept = job.placement if decision.others_keep else ()
    return bool(decision.allocation.get(job.job_id, kept))
