"""The reasons of the policy `slurm` for its decision about each job.

A waiting job that does not start has the first reason that applies: its preemption, a limit of the simulator, a begin
time, a limit of an account or a QOS, a scheduler that has not looked at it, the first place in the queue, or a job
before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Reason, ReasonKind
from polluxsim.policies.slurm.reason_kinds import (
    BEGIN_TIME,
    CANCELLED,
    NOT_LOOKED_AT,
    PREEMPTED,
    PRIORITY,
    RESOURCES,
    RESUMED,
    STARTED_BY_BACKFILL,
    STARTED_IN_ORDER,
    SUSPENDED,
    reason_of_limit,
)
from polluxsim.policies.slurm.values import LimitStop, PendingJob, SlurmStart
from polluxsim.policies.slurm.view_state import held_after
from polluxsim.policies.tools.reason_kinds import RUNS_ON


class Passes(NamedTuple):
    """What the schedulers did in a round."""

    queue: Sequence[PendingJob] = ()  # empty if no scheduler ran
    num_considered: int = 0  # first jobs of the queue at which a scheduler looked
    by_main: Sequence[SlurmStart] = ()
    by_backfill: Sequence[SlurmStart] = ()
    stopped: Mapping[JobId, LimitStop] = MappingProxyType({})  # limits of accounts and QOS that stop jobs

    @property
    def starts(self) -> Sequence[SlurmStart]:
        """Return all jobs that start."""
        return (*self.by_main, *self.by_backfill)


class Preempted(NamedTuple):
    """Jobs that were preempted before this decision."""

    begin_times: Mapping[JobId, int]  # times from which requeued jobs may start again [s]
    suspended: frozenset[JobId]
    resumed: frozenset[JobId]  # suspended jobs that resume now
    cancelled: frozenset[JobId]  # jobs that end now

    def kind_of(self, name: JobId) -> ReasonKind | None:
        """Return the kind of the reason of a job that ends, resumes or is suspended; None for other jobs."""
        if name in self.cancelled:
            return CANCELLED
        if name in self.resumed:
            return RESUMED
        if name in self.suspended:
            return SUSPENDED
        return None


def reasons(
    view: ClusterView,
    passes: Passes,
    plans: Mapping[JobId, int],
    preempted: Preempted,
    next_run: float,
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return the reasons for the jobs in `asked`.

    Parameters
    ----------
    plans
        Starts that the last cycle of the backfill plans [s].
    next_run
        Time of the next run of a scheduler if nothing happens [s]; ∞ without one.
    """
    by_main = {start.job.name for start in passes.by_main}
    started = {start.job.name for start in passes.starts}
    places = _places_in(passes.queue)
    # squeue gives the reason Resources to the first job that waits, and Priority to those behind it.
    first = next((job.name for job in passes.queue if job.name not in started), None)
    waiting = {job.job_id: job for job in view.waiting}
    get_gpus = [waiting[name] for name in (*started, *preempted.resumed)]
    held = held_after(view, get_gpus)
    gpus_left = sum(view.free) - sum(job.num_replicas for job in get_gpus)
    preemptors = {name: start.job.name for start in passes.starts for name in start.preempts}
    gpus_left += sum(job.num_replicas for job in view.running if job.job_id in preemptors)
    by_job: dict[JobId, Reason] = {}
    for name in asked:
        if name not in waiting:
            by_job[name] = Reason(RUNS_ON, {})
            if name in preemptors:
                by_job[name] = Reason(PREEMPTED, {}, (preemptors[name],))
            continue
        numbers: dict[str, float] = {"gpus_needed": waiting[name].num_replicas}
        numbers |= places.get(name, {})
        if name in by_main:
            by_job[name] = Reason(STARTED_IN_ORDER, numbers)
            continue
        if name in started:
            by_job[name] = _backfilled(view, passes, plans, name, numbers)
            continue
        kind = preempted.kind_of(name)
        if kind is not None:
            by_job[name] = Reason(kind, numbers)
            continue
        stop = held.stop(waiting[name])
        if stop is not None:
            by_job[name] = stop.reason(waiting[name])
            continue
        if name in preempted.begin_times:
            by_job[name] = Reason(BEGIN_TIME, {**numbers, "next_run": preempted.begin_times[name]})
            continue
        if name in passes.stopped:
            by_job[name] = reason_of_limit(passes.stopped[name])
            continue
        numbers |= _times(name, plans, next_run)
        numbers["gpus_left"] = gpus_left
        # A job without a position is not in the queue, because no scheduler ran.
        if numbers.get("position", inf) > passes.num_considered:
            by_job[name] = Reason(NOT_LOOKED_AT, numbers)
        elif name == first or first is None:
            by_job[name] = Reason(RESOURCES, numbers)
        else:
            by_job[name] = Reason(PRIORITY, numbers, (first,))
    return by_job


def _backfilled(
    view: ClusterView, passes: Passes, plans: Mapping[JobId, int], name: JobId, numbers: Mapping[str, float]
) -> Reason:
    """Return the reason of a job that the backfill starts, with the earliest plan of a job before it in the queue."""
    ahead: list[JobId] = []
    limit = 0
    for job in passes.queue:
        if job.name == name:
            limit = job.limit
            break
        ahead.append(job.name)
    numbers = {**numbers, "planned_end": view.time + limit}
    planned = [job_id for job_id in ahead if job_id in plans]
    if not planned:
        return Reason(STARTED_BY_BACKFILL, numbers)
    first = min(planned, key=plans.__getitem__)
    return Reason(STARTED_BY_BACKFILL, {**numbers, "first_plan": plans[first]}, (first,))


def _places_in(queue: Sequence[PendingJob]) -> dict[JobId, dict[str, float]]:
    """Return the numbers of a reason that state the place of each job in the queue."""
    # With tiers of partitions, the queue goes by tier first, and the priority does not state the order.
    is_by_priority = all(one.priority >= other.priority for one, other in pairwise(queue))
    places: dict[JobId, dict[str, float]] = {}
    ahead: PendingJob | None = None
    for number, job in enumerate(queue, start=1):
        # A job that names several partitions is in the queue several times. Its first place counts.
        if job.name in places:
            continue
        places[job.name] = {"position": number}
        if is_by_priority:
            places[job.name]["queue_priority"] = job.priority
            if ahead is not None:
                places[job.name][f"queue_ahead {ahead.name}"] = ahead.priority
        ahead = job
    return places


def _times(name: JobId, plans: Mapping[JobId, int], next_run: float) -> dict[str, float]:
    """Return the plan of a job, and the time of the next run of a scheduler, as far as there are some."""
    times: dict[str, float] = {}
    if name in plans:
        times["planned_start"] = plans[name]
    if next_run < inf:
        times["next_run"] = next_run
    return times
