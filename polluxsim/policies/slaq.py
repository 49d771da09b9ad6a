"""SLAQ: each next GPU goes to the job whose loss it is expected to lower the most until the next decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from polluxsim.errors import check_number
from polluxsim.models.convergence import LEAST_POINTS, Hyperbola
from polluxsim.policies.elastic import AtIntervals, deal, dealt, most_gpus, reasons_of, served_first
from polluxsim.policies.estimates import Speeds, best_curve, report_of
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason, Traits

if TYPE_CHECKING:
    from polluxsim.models.convergence import Curve
    from polluxsim.policies.elastic import Candidate, Dealt
    from polluxsim.policies.estimates import StepTimes
    from polluxsim.policies.view import ClusterView, Decision, JobView

NEW = Hyperbola(1.0, 1.0, 0.0)
"""Assumed loss curve of a job that has logged too few losses. It falls from 1, and fastest at first."""


class Quality(NamedTuple):
    """Expected loss of a job."""

    job: JobView
    limit: int  # most GPUs of the job
    curve: Curve  # loss by epochs
    unit: float  # largest fall of the loss in one epoch so far
    epochs: float  # epochs done
    per_second: float  # epochs until the next decision, times the step time [s]
    step_time: StepTimes | None  # step time by GPUs, or None if unknown

    def reduction(self, gpus: int) -> float:
        """Return the expected fall of the loss on `gpus` GPUs until the next decision, over its unit."""
        if self.step_time is None or not gpus:
            return 0.0
        ahead = self.per_second / self.step_time(gpus)
        return (self.curve(self.epochs) - self.curve(self.epochs + ahead)) / self.unit

    def gain(self, replicas: int) -> float:
        """Return the further fall with one GPU more than `replicas`, 0 at the limit."""
        return self.reduction(replicas + 1) - self.reduction(replicas) if replicas < self.limit else 0.0


@pool_per_type
@dataclass
class Slaq(AtIntervals):
    """Share GPUs for the largest sum of expected loss reductions until the next decision.

    A reduction is relative to the largest reduction of the job in one epoch, so losses of any unit compare. A curve
    through the losses of a job predicts its next reductions. Jobs near convergence get their fewest GPUs.

    Parameters
    ----------
    interval
        Time between decisions without arrivals and completions, and horizon of the predictions [s].
    forgetting
        Weight of a loss relative to the weight of the next one, in (0, 1].

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
        """Predict loss reductions, and deal the GPUs out."""
        self._speeds.forget(view.changes.ended)
        first = [self._quality(job) for job in served_first(view.jobs, view.num_gpus)]
        outcome = deal(view.jobs, first, view.num_gpus)
        return dealt(view, outcome.counts, lambda asked: reasons_of(view, outcome, asked, _reason))

    def _quality(self, job: JobView) -> Quality:
        report = report_of(job)
        self._speeds.observe(job, report)
        losses = report.losses
        known: tuple[Curve, float, float] = NEW, 1.0, 0.0
        if len(losses) >= LEAST_POINTS:
            largest = max(before - after for before, after in pairwise(losses))
            known = best_curve(losses, self.forgetting), largest if largest > 0 else losses[0], report.epochs
        return Quality(job, most_gpus(job), *known, self.interval / report.steps_per_epoch, self._speeds.of(job))


def _reason(candidate: Candidate, outcome: Dealt) -> Reason:
    """Return the loss reduction that a job is expected to reach on its GPUs. Kind: `loss-reduction`."""
    job_id = candidate.job.job_id
    gpus = outcome.counts[job_id]
    reduction = cast("Quality", candidate).reduction(gpus)
    last = () if outcome.winner in (None, job_id) else (outcome.winner,)
    numbers = {"gpus": gpus, "reduction": reduction, "reduction_more": candidate.gain(gpus)}
    return Reason("loss-reduction", numbers, last)
