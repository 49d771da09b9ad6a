"""EASY backfill: the first job that does not fit gets a reservation, and later jobs start if they do not delay it."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, takewhile
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.effects import overestimate_without_effect
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.srtf import remaining_time
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.gangs import Describe
    from polluxsim.policies.view import Changes, ClusterView, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job


class Release(NamedTuple):
    """The round at which a running job reaches its time limit [s], and the GPUs that it then releases."""

    time: float
    job_id: JobId
    gpus: int


@dataclass
class Limits:
    """Time limits of jobs, and the planned releases of the GPUs of running jobs.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.
    """

    overestimate: float = 1.0
    _limits: dict[JobId, float] = field(default_factory=dict)
    # In order of time.
    _releases: list[Release] = field(default_factory=list)
    _by_job: dict[JobId, Release] = field(default_factory=dict)

    def limit(self, view: ClusterView, job: JobView) -> float:
        """Return the longest time for which a waiting job will hold its GPUs, according to its limit [s]."""
        if job.job_id not in self._limits:
            run_time = view.delay_of(job) + remaining_time(job, view.node_size)
            self._limits[job.job_id] = job.time_limit or self.overestimate * run_time
        return self._limits[job.job_id]

    def start(self, view: ClusterView, job: JobView) -> None:
        """Plan the release of the GPUs that a job gets now."""
        end = view.round_at(view.time + self.limit(view, job))
        release = Release(end, job.job_id, job.num_replicas)
        self._by_job[job.job_id] = release
        insort(self._releases, release)

    def take_note(self, changes: Changes) -> None:
        """Remove the limits and planned releases of jobs that ended or were evicted.

        An evicted job gets a new limit, because it may have lost work.
        """
        for job_id in chain(changes.ended, changes.evicted):
            self._limits.pop(job_id, None)
            if (release := self._by_job.pop(job_id, None)) is not None:
                del self._releases[bisect_left(self._releases, release)]

    def all_ends_were_on_time(self, view: ClusterView) -> bool:
        """Return whether each job that ended was due, and no running job exceeds its limit.

        Call it before `take_note` removes the jobs that ended.
        """
        ended = view.changes.ended
        due = (self._by_job.get(job_id) for job_id in ended)
        if not all(release is not None and release.time <= view.time for release in due):
            return False
        overdue = takewhile(lambda release: release.time <= view.time, self._releases)
        return all(release.job_id in ended for release in overdue)

    def releases(self, view: ClusterView) -> Iterator[tuple[float, int]]:
        """Yield the planned releases as pairs (time [s], GPUs), in order of time.

        A job that exceeds its limit is expected to end before the next round, at each round again.
        """
        next_round = view.time + view.round_interval
        return ((max(release.time, next_round), release.gpus) for release in self._releases)

    def next_release(self, view: ClusterView) -> float:
        """Return the time of the next planned release, or ∞ [s]."""
        return next((time for time, _ in self.releases(view)), inf)


class BackfillStep(NamedTuple):
    """The decision about one waiting job.

    Attributes
    ----------
    job
        The job.
    starts
        Whether it gets its GPUs.
    free
        GPUs that were free before.
    head
        The job with the reservation, this one or one before it; None before there is one.
    reserved_time
        Latest start of the head [s].
    """

    job: JobView
    starts: bool
    free: int
    head: JobView | None
    reserved_time: float


def backfill_steps(
    view: ClusterView,
    order: Iterable[JobView],
    limits: Limits,
    reserve: Callable[[int, int], tuple[float, int]],
) -> Iterator[BackfillStep]:
    """Yield the decisions about the waiting jobs, in order.

    Jobs start until one does not fit; this one, the head, gets a reservation. A later job starts if it ends before the
    reservation, or if it needs only GPUs that the head leaves free. `reserve` has the arguments (GPUs needed, GPUs
    free now) and returns the reserved time and the GPUs that the head then leaves free.
    """
    free, spare = sum(view.free), 0
    head, reserved_time = None, inf
    for job in order:
        gpus = job.num_replicas
        fits = gpus <= free
        if head is None and not fits:
            head, (reserved_time, spare) = job, reserve(gpus, free)
            yield BackfillStep(job, starts=False, free=free, head=head, reserved_time=reserved_time)
            continue
        ends_in_time = fits and (head is None or view.time + limits.limit(view, job) <= reserved_time)
        starts = ends_in_time or (fits and gpus <= spare)
        yield BackfillStep(job, starts, free, head, reserved_time)
        if starts:
            free -= gpus
            if not ends_in_time:
                spare -= gpus


def earliest_start(gpus_needed: int, free: int, releases: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Return when enough GPUs are free according to the planned releases [s], and how many more are free then.

    >>> earliest_start(4, 1, [(60.0, 2), (120.0, 2), (120.0, 3)])
    (120.0, 4)
    """
    time = -inf
    for release_time, gpus in releases:
        if free >= gpus_needed and release_time > time:
            break
        time, free = release_time, free + gpus
    return (time, free - gpus_needed) if free >= gpus_needed else (inf, free)


def backfilled(view: ClusterView, order: Iterable[JobView], limits: Limits, describe: Describe) -> Decision:
    """Start waiting jobs in an order, with EASY backfill, on the nodes with the most free GPUs.

    Running jobs keep their GPUs.
    """
    limits.take_note(view.changes)

    @cache  # the explanation repeats the steps
    def reserve(gpus: int, free: int) -> tuple[float, int]:
        return earliest_start(gpus, free, limits.releases(view))

    free, placements = FreeGpus(view.free), {}
    for step in backfill_steps(view, order, limits, reserve):
        gpus_left = step.free
        if step.starts:
            placements[step.job.job_id] = free.pack(step.job.num_replicas) or ()
            limits.start(view, step.job)
            gpus_left -= step.job.num_replicas
        if gpus_left <= 0:
            break
    some_wait = len(placements) < len(view.waiting)
    return Decision(
        placements,
        others_keep=True,
        # A job that exceeds its limit postpones the reservation.
        valid_until=limits.next_release(view) if some_wait else inf,
        outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: _reasons(view, backfill_steps(view, order, limits, reserve), describe, set(jobs)),
    )


def _reasons(
    view: ClusterView, steps: Iterable[BackfillStep], describe: Describe, asked: Collection[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons for the jobs in `asked`.

    Kinds: `runs-on` for running jobs; `gang-fits` for jobs before the head; `reserved` for the head; for jobs behind
    it, with the head as the other job, `backfilled`, `gang-does-not-fit` and `would-delay`.
    """
    reasons = {job.job_id: Reason("runs-on", {}) for job in view.running if job.job_id in asked}
    for position, step in enumerate(steps, start=1):
        if len(reasons) == len(asked):
            break
        if step.job.job_id in asked:
            reasons[step.job.job_id] = _reason(step, {"position": position, **describe(step.job)})
    return reasons


def _reason(step: BackfillStep, standing: Mapping[str, float]) -> Reason:
    numbers = {**standing, "gpus_needed": step.job.num_replicas, "gpus_left": step.free}
    if step.head is None:
        return Reason("gang-fits", numbers)
    if step.reserved_time < inf:
        numbers["reserved_time"] = step.reserved_time
    if step.head is step.job:
        return Reason("reserved", numbers)
    if step.starts:
        return Reason("backfilled", numbers, (step.head.job_id,))
    fits = step.job.num_replicas <= step.free
    return Reason("would-delay" if fits else "gang-does-not-fit", numbers, (step.head.job_id,))


@pool_per_type
@dataclass
class Easy:
    """Start whole jobs in order of submission, with EASY backfill and without preemption.

    The first job that does not fit gets a reservation at the earliest time at which enough GPUs are free if all running
    jobs end at their limits. The limit of a job is its `time_limit`, or a multiple of its true run time.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP '95).
    """

    overestimate: float = 1.0
    _limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(overestimate=self.overestimate)
        self._limits = Limits(self.overestimate)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if `overestimate` has no effect."""
        return overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs in order of submission."""
        return backfilled(view, view.waiting, self._limits, lambda job: {})
