"""Optimus as published: GPUs go one by one to the job whose remaining time, as estimated, they shorten the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.policies.elastic import AtIntervals, deal, dealt
from polluxsim.policies.estimates import Speeds, epochs_left, report_of
from polluxsim.policies.optimus import Remaining, reasons
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polluxsim.policies.view import ClusterView, Decision, JobView, Reason
    from polluxsim.types import JobId


@dataclass
class Estimates:
    """What a job still needs, by what it has logged; `assumed_epochs` are as of `OnlineOptimus`."""

    assumed_epochs: float
    speeds: Speeds = field(default_factory=Speeds)

    def take_note(self, view: ClusterView) -> None:
        """Look at what all jobs have logged."""
        self.speeds.forget(view.changes.ended)
        for job in view.jobs:
            self.speeds.observe(job, report_of(job))

    def steps_left(self, job: JobView) -> float:
        """Return the optimiser steps to completion."""
        report = report_of(job)
        return epochs_left(report, self.assumed_epochs) * report.steps_per_epoch

    def step_time(self, job: JobView, node_size: int) -> Callable[[int], float] | None:
        """Return the time of an optimiser step by GPUs [s]; None if nothing is known of it."""
        return self.speeds.of(job)


@pool_per_type
@dataclass
class OnlineOptimus(AtIntervals):
    """Greedy marginal gains as under Optimus+Oracle, by estimates: a job's own losses and the times of its steps.

    The losses say after how many epochs one brings less than the user asks for, by a hyperbola fitted to them; the
    times, what a step takes on other GPUs. Both are wrong at first, which costs restarts and GPU time.

    Parameters
    ----------
    interval
        Time between decisions, but for those at arrivals and ends [s].
    assumed_epochs
        Epochs that a job is taken to need until it has logged three losses.

    Source: Peng et al., "Optimus" (EuroSys '18), with all-reduce in place of parameter servers.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True)
    interval: float = 600.0
    assumed_epochs: float = 50.0
    estimates: Estimates = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(interval=self.interval, assumed_epochs=self.assumed_epochs)
        self.estimates = Estimates(self.assumed_epochs)

    def decide(self, view: ClusterView) -> Decision:
        """Estimate, and deal the GPUs out."""
        self.estimates.take_note(view)
        first = [self._candidate(view, job) for job in islice(view.jobs, view.num_gpus)]
        outcome = deal(view.jobs, first, view.num_gpus)
        return dealt(view, outcome.counts, lambda asked: _estimated(reasons(view, outcome, asked), first))

    def _candidate(self, view: ClusterView, job: JobView) -> Remaining:
        if (step_time := self.estimates.step_time(job, view.node_size)) is None:  # not before it has run
            return Remaining(job, min(job.max_replicas, 1), 0.0, [inf], lambda gpus: inf)
        return Remaining(job, job.max_replicas, self.estimates.steps_left(job), [inf], step_time)


def _estimated(reasons: Mapping[JobId, Reason], jobs: Iterable[Remaining]) -> dict[JobId, Reason]:
    """Return reasons with the steps that each job was taken to have left, which tell them from those of an oracle."""
    steps = {each.job.job_id: {"steps_left": each.steps} for each in jobs}
    return {
        name: reason._replace(numbers={**reason.numbers, **steps.get(name, {})}) for name, reason in reasons.items()
    }
