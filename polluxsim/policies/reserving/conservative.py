"""Conservative backfill: each waiting job has a reservation, and no job delays the reservation of another job.

The policy decides when each job starts as soon as the job arrives. At a decision, the jobs start whose reservations
begin now. `Reservations` contains the reservations, and the GPUs that are free beside them.

Invariants: reservations never need more GPUs than are free at their times. A reservation moves to a later time only if
a job exceeds its limit or is evicted, if nodes go down, or by a fork.

Trap: `Reservations.free` has only what is free *beside* reservations. A job whose reservation begins must therefore not
be taken from it once more.

Source: Mu'alem and Feitelson (TPDS '01).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.instants import has_come
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.reserving.easy import Backfill
from polluxsim.policies.reserving.limits import Limits
from polluxsim.policies.reserving.node_timetable import NodeTimetable
from polluxsim.policies.reserving.reason_kinds import STARTS_BY, STARTS_NOW
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gang_places import gpus_up, node_numbers
from polluxsim.policies.tools.gangs import may_all_fit, start_all
from polluxsim.policies.tools.held_by_limit import HeldByLimit, Stop
from polluxsim.policies.tools.reason_kinds import RUNS_ON
from polluxsim.policies.tools.timetable import Timetable


class Reservation(NamedTuple):
    """A reservation of GPUs."""

    start: float  # [s]
    order: int  # position of the job in the order of submission
    job: JobView
    placement: Placement  # reserved GPUs by node; empty if the GPUs of jobs may be anywhere


class Reservations:
    """The reservations of all waiting jobs, and the GPUs outside reservations.

    If the GPUs of jobs may be anywhere, their number in all is planned, otherwise those of each node.
    """

    def __init__(self, free: Timetable | NodeTimetable) -> None:
        self.free = free  # GPUs that are free apart from reservations
        self.of: dict[JobId, Reservation] = {}
        self.stopped: dict[JobId, Stop] = {}  # jobs that have no reservation, because a limit stops them
        self.ends: dict[float, JobId] = {}  # a job whose reservation ends at each of these times [s]
        self._queue: list[Reservation] = []  # a heap
        self._num_made = 0  # number of reservations made so far

    def add(self, view: ClusterView, job: JobView, length: float, order: int | None = None) -> None:
        """Reserve GPUs for a length of time [s] at the earliest time that delays no other reservation.

        The time is ∞ if the job never fits. `order` is the position of the job in the order of submission, by default
        after all jobs with reservations.
        """
        start, placement = self._reserved(view, job, length)
        self._num_made += 1  # larger than the position of each earlier job
        if order is None:
            order = self._num_made
        reservation = Reservation(start, order, job, placement)
        self.of[job.job_id] = reservation
        heappush(self._queue, reservation)

    def _reserved(self, view: ClusterView, job: JobView, length: float) -> tuple[float, Placement]:
        """Take GPUs for a job, and return the start [s] and the placement of its reservation."""
        placement: Placement = ()
        if isinstance(self.free, Timetable):
            start = self.free.earliest(job.num_replicas, length)
        else:
            start, placement = self.free.reserve(view.shape_of(job), length)
        if start == inf:
            return start, placement
        # A job holds its GPUs for one round at least, and releases them at a round.
        end = view.round_at(start + max(length, view.round_interval))
        self.ends[end] = job.job_id
        if isinstance(self.free, Timetable):
            self.free.take(job.num_replicas, start, end)
        else:
            self.free.take(placement, start, end)
        return start, placement

    @classmethod
    def anew(cls, view: ClusterView, before: Reservations | None, limits: Limits) -> Reservations:
        """Return new reservations for the waiting jobs that no limit stops, in the order of their present reservations.

        A job whose reservation begins now counts as running for the limits of later jobs.
        """
        starts_before: dict[JobId, float] = {}
        if before is not None:
            starts_before = {job_id: reservation.start for job_id, reservation in before.of.items()}
        releases = limits.releases(view)
        if view.shape_rule.anywhere:
            numbers = ((time, num_replicas(placement)) for time, placement in releases)
            reservations = cls(Timetable(view.time, sum(view.free), numbers))
        else:
            reservations = cls(NodeTimetable(view.time, view.free, releases))
        at_limits = HeldByLimit(view)
        at_limits.add(view.running)

        def start_before(order_and_job: tuple[int, JobView]) -> float:
            # Jobs without a reservation come last, in order of submission.
            _, job = order_and_job
            return starts_before.get(job.job_id, inf)

        for order, job in sorted(enumerate(view.waiting), key=start_before):
            stop = at_limits.stop(job)
            if stop is not None:
                reservations.stopped[job.job_id] = stop
                continue
            reservations.add(view, job, limits.limit(view, job), order)
            # Later reservations may begin after jobs have ended, so they do not count yet.
            if has_come(reservations.of[job.job_id].start, view.time):
                at_limits.add([job])
        return reservations

    def pop_due(self, now: float) -> list[Reservation]:
        """Remove the reservations that begin now, and return them in order of submission of their jobs."""
        due: list[Reservation] = []
        while has_come(self.next, now):
            reservation = heappop(self._queue)
            del self.of[reservation.job.job_id]
            due.append(reservation)
        return sorted(due, key=lambda reservation: reservation.order)

    @property
    def next(self) -> float:
        """Return the time of the first reservation, or ∞ [s]."""
        return self._queue[0].start if self._queue else inf


@dataclass
class Conservative(Backfill):
    """Reserve GPUs for each job when it is submitted, at the earliest time that delays no earlier reservation.

    If a job ends early, exceeds its limit or is evicted, or if nodes change, all reservations are made again, in the
    order of their times. After an early end, they only move to earlier times. Limits are as in `Easy`.

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
        if reserved is None:
            starting = list(view.waiting)
            started = start_all(view, starting) or {}
        else:
            due = reserved.pop_due(view.time)
            starting = [reservation.job for reservation in due]
            started = _placements(view, due)
        self._reserved = None
        valid_until = inf
        if reserved is not None and reserved.of:
            self._reserved = reserved
            # A job that exceeds its limit postpones reservations.
            valid_until = min(self._limits.next_release(view), reserved.next)
        for job in starting:
            if started[job.job_id]:
                self._limits.start(view, job, started[job.job_id])
            else:  # jobs shared GPUs before a fork, and one of them still has the GPUs that another one gave back
                self._reserved = None
                valid_until = view.time
        some_wait = len(started) < len(view.waiting)
        is_waiting_for_ends = self._reserved is not None or some_wait
        view.limits.take_note(view.jobs, started, others_keep=True)
        return Decision(
            started,
            others_keep=True,
            valid_until=valid_until,
            outdated_by=Change.JOBS_OR_NODES if is_waiting_for_ends else Change.ARRIVAL,
            explain=partial(_reasons, view, started, reserved, self._limits),
        )

    def _up_to_date(self, view: ClusterView) -> Reservations | None:
        """Return the reservations of the waiting jobs, or None if all of them can start now.

        Under limits, the reservations are made again at each decision, because each end may let other jobs start.
        """
        changes = view.changes
        previous = self._reserved
        limits = self._limits
        has_other_nodes_or_jobs = bool(changes.nodes or changes.evicted or changes.altered)
        # Before `take_note`, which forgets the plans of jobs that have ended.
        is_as_planned = limits.all_ends_were_on_time(view) and not has_other_nodes_or_jobs
        limits.take_note(view)
        # Nodes may be too full for a job, and running jobs hold more GPUs than they request if an elastic policy ran
        # before a fork.
        if may_all_fit(view) and start_all(view, view.waiting) is not None:
            return None
        is_limited = bool(view.limits.limits)
        if changes.altered:
            previous = None  # a fork may have placed a job ahead of others, so their order does not count
        has_missed_one = previous is not None and previous.next < view.time  # both are times of rounds
        if previous is None or is_limited or not is_as_planned or has_missed_one:
            return Reservations.anew(view, previous, limits)
        previous.free.forward(view.time)
        for job in changes.arrived:
            previous.add(view, job, limits.limit(view, job))
        return previous


def _placements(view: ClusterView, due: Sequence[Reservation]) -> dict[JobId, Placement]:
    """Return the placements of jobs whose reservations begin now; () if the GPUs are not free."""
    if not due:
        return {}
    free = FreeGpus(view.free)
    placements: dict[JobId, Placement] = {}
    for reservation in due:
        placement = reservation.placement
        if view.shape_rule.anywhere:
            placement = free.pack(reservation.job.num_replicas) or ()
        elif free.has(placement):
            free.take(placement)
        else:
            placement = ()
        placements[reservation.job.job_id] = placement
    return placements


def _reasons(
    view: ClusterView,
    started: Mapping[JobId, Placement],
    reservations: Reservations | None,
    limits: Limits,
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return the reasons for the jobs in `asked`. That of a waiting job names a job that makes room for it, if any."""
    if reservations is None:  # no job waits, so a job either starts now or runs on
        reservations = Reservations(Timetable(view.time, 0))
    reserved = reservations.of
    stopped = reservations.stopped
    stopped_jobs: dict[JobId, JobView] = {}
    if stopped:
        stopped_jobs = {job.job_id: job for job in view.waiting}
    free = FreeGpus(view.free)
    for placement in started.values():
        free.take(placement)
    gpus_left = free.total
    reasons = _reasons_of_started(view, started, asked)
    for job_id in asked:
        if job_id in reasons:
            continue
        if job_id in stopped:
            reasons[job_id] = stopped[job_id].reason(stopped_jobs[job_id])
        elif job_id in reserved:
            start = reserved[job_id].start
            job = reserved[job_id].job
            numbers: dict[str, float] = {
                "submitted": job.submit_time,
                "gpus_needed": job.num_replicas,
                "gpus_left": gpus_left,
                **node_numbers(view.shape_of(job), free.gpus),
            }
            if start < inf:
                numbers["reserved_time"] = start
            numbers |= gpus_up(view)
            # A job that makes room: one that runs, or else one whose reservation ends at the start of this one.
            maker = limits.releases_at(start) or reservations.ends.get(start)
            if maker is None:
                reasons[job_id] = Reason(STARTS_BY, numbers)
                continue
            if maker in started:
                numbers["first_start"] = view.time
            elif maker in reserved:
                numbers["first_start"] = reserved[maker].start
            reasons[job_id] = Reason(STARTS_BY, numbers, (maker,))
        else:
            reasons[job_id] = Reason(RUNS_ON, {})
    return reasons


def _reasons_of_started(
    view: ClusterView, started: Mapping[JobId, Placement], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of the jobs in `asked` that start now. `started` is in the order of the starts."""
    asked_starts = {job_id for job_id in asked if job_id in started}
    reasons: dict[JobId, Reason] = {}
    if not asked_starts:
        return reasons
    submit_times = {job.job_id: job.submit_time for job in view.waiting if job.job_id in asked_starts}
    gpus_left = sum(view.free)
    for position, (job_id, placement) in enumerate(started.items(), start=1):
        gpus = num_replicas(placement)
        if job_id in asked_starts:
            numbers = {
                "submitted": submit_times[job_id],
                "position": position,
                "starters": len(started),
                "gpus_at_turn": gpus_left,
                "gpus_needed": gpus,
            }
            reasons[job_id] = Reason(STARTS_NOW, numbers)
        gpus_left -= gpus
    return reasons
