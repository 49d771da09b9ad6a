"""EASY backfill: the first job that does not fit has a reservation, and others may start where they do not delay it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.reservations import Limits, shadow
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import numpy as np

    from polluxsim.policies.gangs import Describe
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


class Turn(NamedTuple):
    """What one job that waits met when its turn came.

    Attributes
    ----------
    job
        The job.
    starts
        Whether it gets its GPUs.
    free
        GPUs that were free.
    head
        The job that has the reservation, itself or before it; None before there is one.
    reserved
        When that is to start at the latest [s].
    """

    job: JobView
    starts: bool
    free: int
    head: JobView | None
    reserved: float


def turns(
    view: ClusterView, order: Iterable[JobView], limits: Limits, reserve: Callable[[int, int], tuple[float, int]]
) -> Iterator[Turn]:
    """Yield what the jobs that wait meet: those that fit start, until one does not, which gets a reservation.

    From then on, one starts that ends before the reservation, or needs only GPUs that are free then, too.

    Parameters
    ----------
    view, order, limits
        The cluster, who waits, in order, and how long they may run.
    reserve
        Returns when a number of GPUs can be reserved where so many are free now, and how many are left then.
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


def backfilled(view: ClusterView, order: Iterable[JobView], limits: Limits, describe: Describe) -> Decision:
    """Start the jobs whose turn it is, on the emptiest nodes; who runs keeps its GPUs."""
    limits.forget(view.changes.ended)
    reservation: list[tuple[float, int]] = []

    def reserve(gpus: int, free: int) -> tuple[float, int]:
        if not reservation:
            reservation.append(shadow(gpus, free, limits.releases(view)))
        return reservation[0]

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

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose turn it is, in order of submission."""
        return backfilled(view, view.waiting, self._limits, lambda job: {})
