"""EASY backfill: the first job that does not fit has a reservation, and others may start where they do not delay it."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
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
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job


@dataclass
class Limits:
    """How long each job may run, and when those that run end at the latest; `overestimate` is as of `Easy`."""

    overestimate: float = 1.0
    _limits: dict[JobId, float] = field(default_factory=dict)
    # The rounds at which running jobs have ended by their limits, in order, with their GPUs.
    _releases: list[tuple[float, JobId, int]] = field(default_factory=list)
    _of: dict[JobId, tuple[float, JobId, int]] = field(default_factory=dict)

    def of(self, view: ClusterView, job: JobView) -> float:
        """Return the longest time that a job which waits says to hold its GPUs [s]."""
        if job.job_id not in self._limits:
            size = view.node_size
            limit = job.time_limit or self.overestimate * (view.delay_of(job) + remaining_time(job, size))
            self._limits[job.job_id] = limit
        return self._limits[job.job_id]

    def started(self, view: ClusterView, job: JobView) -> None:
        """Take note of a job that gets its GPUs now."""
        release = view.round_at(view.time + self.of(view, job)), job.job_id, job.num_replicas
        self._of[job.job_id] = release
        insort(self._releases, release)

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._limits.pop(job_id, None)
            if (release := self._of.pop(job_id, None)) is not None:
                del self._releases[bisect_left(self._releases, release)]

    def as_promised(self, view: ClusterView) -> bool:
        """Return whether all that ended since the last round did so when it was due, and nobody outlives a limit.

        It is asked before jobs that have ended are forgotten.
        """
        ended = view.changes.ended
        due = (self._of.get(job_id) for job_id in ended)
        if not all(release is not None and release[0] <= view.time for release in due):
            return False
        over = takewhile(lambda each: each[0] <= view.time, self._releases)
        return all(job_id in ended for _, job_id, _ in over)

    def releases(self, view: ClusterView) -> Iterator[tuple[float, int]]:
        """Yield at which rounds GPUs of running jobs can be given anew at the latest [s], and how many, in order.

        A job that outlives its limit is expected to end before the next round, each time again.
        """
        soonest = view.time + view.round_interval
        return ((max(time, soonest), gpus) for time, _, gpus in self._releases)


class Turn(NamedTuple):
    """What one job that waits met when its turn came."""

    job: JobView
    starts: bool  # whether it gets its GPUs
    free: int  # GPUs that were free
    head: JobView | None  # the job that has the reservation, itself or before it; None before there is one
    reserved: float  # when that is to start at the latest [s]


def turns(
    view: ClusterView, order: Iterable[JobView], limits: Limits, reserve: Callable[[int, int], tuple[float, int]]
) -> Iterator[Turn]:
    """Yield what the jobs that wait meet: those that fit start, until one does not, which gets a reservation.

    From then on, one starts that ends before the reservation, or needs only GPUs that are free then, too. `reserve`
    says when a number of GPUs can be reserved where so many are free now, and how many are left then.
    """
    free, head, reserved, extra = sum(view.free), None, inf, 0
    for job in order:
        gpus = job.num_replicas
        if head is None and gpus > free:
            head, (reserved, extra) = job, reserve(gpus, free)
            yield Turn(job, starts=False, free=free, head=head, reserved=reserved)
            continue
        ends = gpus <= free and (head is None or view.time + limits.of(view, job) <= reserved)
        starts = ends or gpus <= min(free, extra)
        yield Turn(job, starts, free, head, reserved)
        if starts:
            free -= gpus
            extra -= 0 if ends else gpus


def shadow(gpus_needed: int, free: int, releases: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Return when so many GPUs are free, if running jobs end at their limits [s], and how many more are free then.

    >>> shadow(4, 1, [(60.0, 2), (120.0, 2), (120.0, 3)])
    (120.0, 4)
    """
    time = -inf
    for time_free, gpus in releases:
        if free >= gpus_needed and time_free > time:
            break
        time, free = time_free, free + gpus
    return (time, free - gpus_needed) if free >= gpus_needed else (inf, free)


def backfilled(view: ClusterView, order: Iterable[JobView], limits: Limits, describe: Describe) -> Decision:
    """Start the jobs whose turn it is, on the emptiest nodes; who runs keeps its GPUs."""
    limits.forget(view.changes.ended)

    @cache  # what is explained afterwards has the same one
    def reserve(gpus: int, free: int) -> tuple[float, int]:
        return shadow(gpus, free, limits.releases(view))

    free, placements = FreeGpus(view.free), {}
    for turn in turns(view, order, limits, reserve):
        if turn.starts:
            placements[turn.job.job_id] = free.pack(turn.job.num_replicas) or ()
            limits.started(view, turn.job)
        if turn.free <= turn.starts * turn.job.num_replicas:
            break
    some_wait = len(placements) < len(view.waiting)
    return Decision(
        placements,
        others_keep=True,
        # Who outlives a limit puts off the reservation.
        valid_until=next((time for time, _ in limits.releases(view)), inf) if some_wait else inf,
        outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: _reasons(view, turns(view, order, limits, reserve), describe, set(jobs)),
    )


def _reasons(
    view: ClusterView, met: Iterable[Turn], describe: Describe, asked: Collection[JobId]
) -> dict[JobId, Reason]:
    """Say of the jobs asked about what they met when their turn came.

    Kinds: `runs-on`; `gang-fits`; `reserved`, of the first that does not fit; of those behind it, the other of the
    reason, `backfilled`, `gang-does-not-fit` and `would-delay`.
    """
    reasons = {job.job_id: Reason("runs-on", {}) for job in view.running if job.job_id in asked}
    for position, turn in enumerate(met, start=1):
        if len(reasons) == len(asked):
            break
        if turn.job.job_id in asked:
            reasons[turn.job.job_id] = _reason(turn, {"position": position, **describe(turn.job)})
    return reasons


def _reason(turn: Turn, standing: Mapping[str, float]) -> Reason:
    numbers = {**standing, "gpus_needed": turn.job.num_replicas, "gpus_left": turn.free}
    if turn.head is None:
        return Reason("gang-fits", numbers)
    if turn.reserved < inf:
        numbers["reserved_time"] = turn.reserved
    if turn.head is turn.job:
        return Reason("reserved", numbers)
    if turn.starts:
        return Reason("backfilled", numbers, (turn.head.job_id,))
    fits = turn.job.num_replicas <= turn.free
    return Reason("would-delay" if fits else "gang-does-not-fit", numbers, (turn.head.job_id,))


@pool_per_type
@dataclass
class Easy:
    """Start whole jobs in order of submission, with backfill around a reservation for the first that does not fit.

    The reservation is at the earliest time at which enough GPUs are free if all that run end at their limits. A job
    promises what its user says (`time_limit`), or a multiple of the time that it truly takes.

    Parameters
    ----------
    overestimate
        Limit of a job whose user promised none, as a multiple of the time that it truly takes.

    Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP '95).
    """

    overestimate: float = 1.0
    _limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(overestimate=self.overestimate)
        self._limits = Limits(self.overestimate)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether `overestimate` decides nothing."""
        return overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose turn it is, in order of submission."""
        return backfilled(view, view.waiting, self._limits, lambda job: {})
