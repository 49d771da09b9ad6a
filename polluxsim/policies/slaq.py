"""SLAQ: GPUs go one by one to the job whose loss they are expected to lower the most until the next decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from polluxsim.errors import check_number
from polluxsim.models.convergence import LEAST_POINTS, Hyperbola
from polluxsim.policies.elastic import AtIntervals, deal, dealt
from polluxsim.policies.estimates import Speeds, best_curve, report_of
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason, Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.models.convergence import Curve
    from polluxsim.policies.elastic import Dealt
    from polluxsim.policies.estimates import StepTimes
    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId

NEW = Hyperbola(1.0, 1.0, 0.0)
"""The loss of a job that has not logged enough: as all jobs are at first, it falls fastest at once, from 1."""


class Quality(NamedTuple):
    """What a job's loss is expected to do."""

    job: JobView
    limit: int  # the most GPUs that it may have
    curve: Curve  # its loss by epochs
    unit: float  # the largest that it ever fell in an epoch, which counts as 1
    epochs: float  # epochs done, from which the curve goes on
    per_second: float  # epochs until the next decision are this over the time of a step on its GPUs [s]
    step_time: StepTimes | None  # that time by GPUs; None if nothing is known of it

    def reduction(self, gpus: int) -> float:
        """Return by how much its loss falls on so many GPUs, over its unit."""
        if self.step_time is None or not gpus:
            return 0.0
        ahead = self.per_second / self.step_time(gpus)
        return (self.curve(self.epochs) - self.curve(self.epochs + ahead)) / self.unit

    def gain(self, replicas: int) -> float:
        """Return by how much more it falls on one GPU more, 0 at its limit."""
        return self.reduction(replicas + 1) - self.reduction(replicas) if replicas < self.limit else 0.0


@pool_per_type
@dataclass
class Slaq(AtIntervals):
    """Share GPUs for the largest sum of expected reductions of loss until the next decision.

    A job's reductions are over the largest that it ever had in an epoch, so that losses of any unit compare; the curve
    through its losses says what comes. Jobs near convergence get one GPU each.

    Parameters
    ----------
    interval
        Time between decisions, but for those at arrivals and ends, and for which reductions are expected [s].
    forgetting
        Weight of a loss over that of the next one, in (0, 1].

    Source: Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning" (SoCC '17).
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True)
    interval: float = 600.0
    forgetting: float = 0.9
    _speeds: Speeds = field(default_factory=Speeds, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(interval=self.interval)
        check_number("policy.forgetting", self.forgetting, 0 < self.forgetting <= 1, "a number > 0 and ≤ 1")

    def decide(self, view: ClusterView) -> Decision:
        """Predict, and deal the GPUs out."""
        self._speeds.forget(view.changes.ended)
        first = [self._quality(job) for job in islice(view.jobs, view.num_gpus)]
        outcome = deal(view.jobs, first, view.num_gpus)
        return dealt(view, outcome.counts, lambda asked: _reasons(view, first, outcome, asked))

    def _quality(self, job: JobView) -> Quality:
        report = report_of(job)
        self._speeds.observe(job, report)
        losses = report.losses
        known: tuple[Curve, float, float] = NEW, 1.0, 0.0
        if len(losses) >= LEAST_POINTS:
            largest = max(before - after for before, after in pairwise(losses))
            known = best_curve(losses, self.forgetting), largest if largest > 0 else losses[0], report.epochs
        return Quality(job, job.max_replicas, *known, self.interval / report.steps_per_epoch, self._speeds.of(job))


def _reasons(
    view: ClusterView, first: Sequence[Quality], outcome: Dealt, asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Say of some jobs what their GPUs are to bring. Kinds: `no-gpu-left`, and `loss-reduction`."""
    wanted = set(asked)
    reasons: dict[JobId, Reason] = {}
    for place, job in enumerate(view.jobs):
        if job.job_id in wanted and place >= len(first):
            reasons[job.job_id] = Reason("no-gpu-left", {"position": place + 1, "num_gpus": view.num_gpus})
        elif job.job_id in wanted:
            quality, gpus = first[place], outcome.counts[job.job_id]
            numbers = {"gpus": gpus, "reduction": quality.reduction(gpus), "reduction_more": quality.gain(gpus)}
            last = () if outcome.winner in (None, job.job_id) else (outcome.winner,)
            reasons[job.job_id] = Reason("loss-reduction", numbers, last)
    return reasons
