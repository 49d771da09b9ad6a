"""Optimus: each next GPU goes to the job whose estimated remaining time it shortens the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.errors import check_number
from polluxsim.models.convergence import LEAST_POINTS
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.elastic import AtIntervals, deal, dealt, fewest_gpus, most_gpus, served_first
from polluxsim.policies.estimates import Speeds, epochs_left, report_of
from polluxsim.policies.optimus import Remaining, reasons, true_step_time
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polluxsim.policies.view import ClusterView, Decision, JobView, Reason
    from polluxsim.types import JobId


def sample_counts(fewest: int, most: int, samples: int) -> list[int]:
    """Return numbers of GPUs for a pre-run, from the fewest to the most, at about equal ratios.

    >>> sample_counts(1, 16, 5), sample_counts(1, 3, 5), sample_counts(4, 4, 5)
    ([1, 2, 4, 8, 16], [1, 2, 3], [4])
    """
    steps = max(samples - 1, 1)
    return sorted({round(fewest * (most / fewest) ** (step / steps)) for step in range(samples)})


def pre_run(job: JobView, num_gpus: int, node_size: int, samples: int) -> dict[int, float]:
    """Return the measured step times of a job on some numbers of GPUs [s].

    A pre-run trains a job for a few steps before it is scheduled. It measures true step times, which this function
    reads from the oracle, and it measures nothing else. It takes no simulated time and no GPUs here.
    """
    times = {}
    for gpus in sample_counts(fewest_gpus(job), max(min(most_gpus(job), num_gpus), fewest_gpus(job)), samples):
        try:
            times[gpus] = true_step_time(job, gpus, node_size)
        except ProfileRangeError:  # the job cannot run on this number of GPUs
            continue
    return times


@dataclass
class Estimates:
    """Estimates of the optimiser steps that jobs have left, and of their step times.

    Parameters
    ----------
    assumed_epochs, samples
        As in `OnlineOptimus`.
    """

    assumed_epochs: float
    samples: int = 0
    speeds: Speeds = field(default_factory=Speeds)

    def take_note(self, view: ClusterView) -> None:
        """Sample the step times of new jobs, and read the logs of all jobs."""
        self.speeds.forget(view.changes.ended)
        num_gpus, node_size = view.num_gpus, view.node_size
        for job in view.jobs:
            if self.samples:
                self.speeds.sample(job, partial(pre_run, job, num_gpus, node_size, self.samples))
            self.speeds.observe(job, report_of(job))

    def steps_left(self, job: JobView) -> float:
        """Return the optimiser steps to completion."""
        report = report_of(job)
        return epochs_left(report, self.assumed_epochs) * report.steps_per_epoch

    def step_time(self, job: JobView, node_size: int) -> Callable[[int], float] | None:
        """Return the time of an optimiser step as a function of the GPUs [s], or None if nothing is known."""
        return self.speeds.of(job)


@pool_per_type
@dataclass
class OnlineOptimus(AtIntervals):
    """Greedy marginal gains as in `Optimus`, by estimates from the losses of a job and the times of its steps.

    A hyperbola through the losses tells after how many epochs an epoch brings less than the user asks for. A curve
    through the step times tells the step time on other numbers of GPUs. It starts from the samples of a pre-run. Both
    are inexact at first, which costs restarts and GPU time.

    Parameters
    ----------
    interval
        Time between decisions without arrivals and completions [s].
    assumed_epochs
        Number of epochs of a job that has logged fewer than three losses.
    samples
        Numbers of GPUs of the pre-run. 0 uses only the speed that the user measured on the GPUs that the job requests.
    young_factor
        Factor on the gains of a job that has logged fewer than three losses, as its estimate is inexact; in (0, 1].

    Source: Peng et al., "Optimus" (EuroSys '18), §3.2 and §4.1, with all-reduce in place of parameter servers.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True)
    interval: float = 600.0
    assumed_epochs: float = 50.0
    samples: int = 5
    young_factor: float = 0.95
    estimates: Estimates = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(interval=self.interval, assumed_epochs=self.assumed_epochs)
        check_number("policy.samples", self.samples, self.samples >= 0, "a whole number ≥ 0")
        check_number("policy.young_factor", self.young_factor, 0 < self.young_factor <= 1, "a number > 0 and ≤ 1")
        self.estimates = Estimates(self.assumed_epochs, self.samples)

    def decide(self, view: ClusterView) -> Decision:
        """Estimate, and deal the GPUs out."""
        self.estimates.take_note(view)
        first = [self._candidate(view, job) for job in served_first(view.jobs, view.num_gpus)]
        outcome = deal(view.jobs, first, view.num_gpus)
        return dealt(view, outcome.counts, lambda asked: _estimated(reasons(view, outcome, asked), first))

    def _candidate(self, view: ClusterView, job: JobView) -> Remaining:
        if (step_time := self.estimates.step_time(job, view.node_size)) is None:  # it has never run
            return Remaining(job, fewest_gpus(job), 0.0, [inf], lambda gpus: inf)
        weight = self.young_factor if len(report_of(job).losses) < LEAST_POINTS else 1.0
        return Remaining(job, most_gpus(job), self.estimates.steps_left(job), [inf], step_time, weight)


def _estimated(reasons: Mapping[JobId, Reason], jobs: Iterable[Remaining]) -> dict[JobId, Reason]:
    """Return reasons with the estimated steps of each job, which tell them from the reasons of the oracle."""
    steps = {each.job.job_id: {"steps_left": each.steps} for each in jobs}
    return {
        name: reason._replace(numbers={**reason.numbers, **steps.get(name, {})}) for name, reason in reasons.items()
    }
