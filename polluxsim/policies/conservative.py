"""Conservative backfill: every job that waits has a reservation, and nobody who starts early delays one."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.backfill import Limits
from polluxsim.policies.effects import overestimate_without_effect
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.timetable import Timetable
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job


class Reservation(NamedTuple):
    """When a job is to start [s], which of those that wait was submitted before it, and the job."""

    start: float
    order: int
    job: JobView


class Reservations:
    """When each job that waits is to start, and what that leaves free."""

    def __init__(self, free: Timetable) -> None:
        self.free = free
        self.of: dict[JobId, Reservation] = {}
        self._queue: list[Reservation] = []
        self._made = 0

    def add(self, view: ClusterView, job: JobView, length: float, order: int | None = None) -> None:
        """Reserve GPUs for a job at the earliest time that delays nobody; by default it was submitted last."""
        start = self.free.earliest(job.num_replicas, length)
        if start < inf:
            self.free.take(job.num_replicas, start, max(view.round_at(start + length), start + view.round_interval))
        self._made += 1  # more than the order of any that was submitted before
        made = self.of[job.job_id] = Reservation(start, self._made if order is None else order, job)
        heappush(self._queue, made)

    @classmethod
    def anew(cls, view: ClusterView, before: Reservations | None, limits: Limits) -> Reservations:
        """Return reservations for all jobs that wait, made in the order of those that they had."""
        had = before.of if before else {}
        made = cls(Timetable(view.time, sum(view.free), limits.releases(view)))
        waiting = [(had[job.job_id].start if job.job_id in had else inf, job) for job in view.waiting]
        for order, (_, job) in sorted(enumerate(waiting), key=lambda each: each[1][0]):
            made.add(view, job, limits.of(view, job), order)
        return made

    def begun(self, now: float) -> list[JobView]:
        """Take out the jobs whose reservations begin now, in order of submission."""
        due = []
        while self.next <= now:
            due.append(heappop(self._queue))
            del self.of[due[-1].job.job_id]
        return [each.job for each in sorted(due, key=lambda each: each.order)]

    @property
    def next(self) -> float:
        """Return when the first reservation begins, ∞ if there is none [s]."""
        return self._queue[0].start if self._queue else inf


@pool_per_type
@dataclass
class Conservative:
    """Reserve GPUs for every job as it comes, at the earliest time that delays nobody before it.

    Where somebody ended early or outlived a limit, reservations are made anew in their own order, so that they only
    move ahead while nobody outlives one; at other times that would give the same. Limits are as those of `Easy`.

    Parameters
    ----------
    overestimate
        Limit of a job whose user promised none, as a multiple of the time that it truly takes.

    Source: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates" (TPDS '01).
    """

    overestimate: float = 1.0
    _limits: Limits = field(init=False, repr=False)
    # None while nobody waits.
    _reserved: Reservations | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(overestimate=self.overestimate)
        self._limits = Limits(self.overestimate)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether `overestimate` decides nothing."""
        return overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose reservations begin now."""
        reserved = self._up_to_date(view)
        begun = list(view.waiting) if reserved is None else reserved.begun(view.time)
        free = FreeGpus(view.free if begun else ())
        for job in begun:
            self._limits.started(view, job)
        self._reserved = reserved if reserved and reserved.of else None
        next_release = next((time for time, _ in self._limits.releases(view)), inf)
        return Decision(
            {job.job_id: free.pack(job.num_replicas) or () for job in begun},
            others_keep=True,
            # Who outlives a limit puts off reservations.
            valid_until=min(next_release, self._reserved.next) if self._reserved else inf,
            outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES if self._reserved else Change.ARRIVAL,
            explain=lambda jobs: _reasons(view, begun, reserved.of if reserved else {}, jobs),
        )

    def _up_to_date(self, view: ClusterView) -> Reservations | None:
        """Return the reservations, with those of jobs that came; None where all that wait can start."""
        changes, kept, limits = view.changes, self._reserved, self._limits
        is_as_planned = limits.as_promised(view) and not (changes.nodes or changes.evicted)
        limits.forget(changes.ended)
        if view.demand <= view.num_gpus:
            return None
        if kept is None or not is_as_planned or kept.next < view.time:
            return Reservations.anew(view, self._reserved, limits)
        kept.free.forward(view.time)
        for job in changes.arrived:
            kept.add(view, job, limits.of(view, job))
        return kept


def _reasons(
    view: ClusterView, begun: Sequence[JobView], reserved: Mapping[JobId, Reservation], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Say of the jobs asked about when they are to start. Kinds: `runs-on`, `starts-now`, and `starts-by`."""
    needed = {job.job_id: job.num_replicas for job in begun}
    left = sum(view.free) - sum(needed.values())
    reasons = {}
    for job_id in asked:
        if job_id in needed:
            reasons[job_id] = Reason("starts-now", {"gpus_needed": needed[job_id], "gpus_left": left})
        elif job_id in reserved:
            start, _, job = reserved[job_id]
            due = {"reserved_time": start} if start < inf else {}
            reasons[job_id] = Reason("starts-by", {"gpus_needed": job.num_replicas, "gpus_left": left, **due})
        else:
            reasons[job_id] = Reason("runs-on", {})
    return reasons
