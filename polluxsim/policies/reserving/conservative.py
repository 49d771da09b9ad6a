"""Conservative backfill: each waiting job has a reservation, and no job delays the reservation of another job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.instants import has_come
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.reserving.easy import Backfill, Limits
from polluxsim.policies.tools.free_gpus import FreeGpus, Timetable
from polluxsim.policies.tools.pools import pool_per_type


class Reservation(NamedTuple):
    """A reservation of GPUs."""

    start: float  # [s]
    order: int  # position of the job in the order of submission
    job: JobView


class Reservations:
    """The reservations of all waiting jobs, and the GPUs outside reservations."""

    def __init__(self, free: Timetable) -> None:
        self.free = free  # GPUs that are free apart from reservations
        self.of: dict[JobId, Reservation] = {}
        self._queue: list[Reservation] = []  # a heap
        self._made = 0  # number of reservations made so far

    def add(self, view: ClusterView, job: JobView, length: float, order: int | None = None) -> None:
        """Reserve GPUs for a length of time [s] at the earliest time that delays no other reservation.

        `order` is the position of the job in the order of submission, by default after all jobs with reservations.
        """
        start = self.free.earliest(job.num_replicas, length)
        if start < inf:
            self.free.take(job.num_replicas, start, view.round_at(start + max(length, view.round_interval)))
        self._made += 1  # larger than the position of each earlier job
        made = self.of[job.job_id] = Reservation(start, self._made if order is None else order, job)
        heappush(self._queue, made)

    @classmethod
    def anew(cls, view: ClusterView, before: Reservations | None, limits: Limits) -> Reservations:
        """Return new reservations for all waiting jobs, made in the order of their present reservations."""
        starts = {job_id: reservation.start for job_id, reservation in before.of.items()} if before else {}
        made = cls(Timetable(view.time, sum(view.free), limits.releases(view)))
        for order, job in sorted(enumerate(view.waiting), key=lambda each: starts.get(each[1].job_id, inf)):
            made.add(view, job, limits.limit(view, job), order)
        return made

    def pop_due(self, now: float) -> list[JobView]:
        """Remove the reservations that begin now; return their jobs in order of submission."""
        due = []
        while has_come(self.next, now):
            due.append(heappop(self._queue))
            del self.of[due[-1].job.job_id]
        return [each.job for each in sorted(due, key=lambda each: each.order)]

    @property
    def next(self) -> float:
        """Return the time of the first reservation, or ∞ [s]."""
        return self._queue[0].start if self._queue else inf


@pool_per_type
@dataclass
class Conservative(Backfill):
    """Reserve GPUs for each job when it is submitted, at the earliest time that delays no earlier reservation.

    If a job ends early, exceeds its limit or is evicted, all reservations are made again, in the order of their times.
    Then reservations only move to earlier times, unless a job exceeds its limit or is evicted. Limits are as in `Easy`.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates" (TPDS '01).
    """

    # None while no job waits.
    _reserved: Reservations | None = field(default=None, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose reservations begin now."""
        reserved = self._up_to_date(view)
        starting = list(view.waiting) if reserved is None else reserved.pop_due(view.time)
        free = FreeGpus(view.free if starting else ())
        started = {job.job_id: free.pack(job.num_replicas) or () for job in starting}
        self._reserved = reserved if reserved and reserved.of else None
        # A job that exceeds its limit postpones reservations.
        until = min(self._limits.next_release(view), self._reserved.next) if self._reserved else inf
        for job in starting:
            if started[job.job_id]:
                self._limits.start(view, job)
            else:  # jobs shared GPUs before a fork, and one of them still has the GPUs that another one gave back
                self._reserved, until = None, view.time
        return Decision(
            started,
            others_keep=True,
            valid_until=until,
            outdated_by=Change.JOBS_OR_NODES if self._reserved else Change.ARRIVAL,
            explain=lambda jobs: _reasons(view, starting, reserved.of if reserved else {}, jobs),
        )

    def _up_to_date(self, view: ClusterView) -> Reservations | None:
        """Return the reservations of all waiting jobs, or None if all of them can start now."""
        changes, kept, limits = view.changes, self._reserved, self._limits
        is_as_planned = limits.all_ends_were_on_time(view) and not (changes.nodes or changes.evicted or changes.altered)
        limits.take_note(view)
        # Running jobs may hold more GPUs than they request, if an elastic policy ran before a fork.
        if view.demand <= view.num_gpus and sum(job.num_replicas for job in view.waiting) <= sum(view.free):
            return None
        if kept is None or not is_as_planned or kept.next < view.time:  # both are times of rounds
            # A fork may have placed a job ahead of others.
            return Reservations.anew(view, None if changes.altered else kept, limits)
        kept.free.forward(view.time)
        for job in changes.arrived:
            kept.add(view, job, limits.limit(view, job))
        return kept


def _reasons(
    view: ClusterView, starting: Sequence[JobView], reserved: Mapping[JobId, Reservation], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons for the jobs in `asked`. Kinds: `runs-on`, `starts-now` and `starts-by`."""
    needed = {job.job_id: job.num_replicas for job in starting}
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
