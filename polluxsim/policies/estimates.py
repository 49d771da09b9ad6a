"""Estimates from the log of a job: the time of a step on other GPUs, and the number of epochs left."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import floor, inf
from typing import TYPE_CHECKING

from polluxsim.errors import PolicyError
from polluxsim.models.convergence import LEAST_POINTS, fit_best, fit_hyperbola
from polluxsim.models.nonnegative import nonnegative_least_squares
from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polluxsim.policies.view import JobView, Report
    from polluxsim.types import JobId


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Time of an optimiser step on K GPUs at a constant batch size.

    Parameters
    ----------
    shared, constant, per_gpu
        Coefficients of shared/K + constant + per_gpu·K, each ≥ 0 [s; s; s/GPU].

    Source: Peng et al., "Optimus" (EuroSys '18), §3.2, synchronous training, with as many parameter servers as workers.
    """

    shared: float
    constant: float
    per_gpu: float

    def __call__(self, gpus: int) -> float:
        """Return the time [s]."""
        return self.shared / gpus + self.constant + self.per_gpu * gpus


def fit_step_times(observed: Mapping[int, float]) -> StepTimes:
    """Fit a curve to step times [s] by GPUs, by least squares of their ratios.

    A single step time is taken to shrink in proportion to the GPUs.

    >>> fit_step_times({2: 1.0})
    StepTimes(shared=2.0, constant=0.0, per_gpu=0.0)
    """
    rows = [(1.0 / gpus / time, 1.0 / time, gpus / time) for gpus, time in observed.items()]
    return StepTimes(*nonnegative_least_squares(rows, [1.0] * len(rows)))


@dataclass
class Speeds:
    """Step times of each job, measured while it runs or sampled before, and the curves fitted to them.

    The first measurement on each number of GPUs counts. It replaces a sample.
    """

    _seen: dict[JobId, dict[int, float]] = field(default_factory=dict)
    _sampled: dict[JobId, dict[int, float]] = field(default_factory=dict)
    _fits: dict[JobId, StepTimes] = field(default_factory=dict)

    def sample(self, job: JobView, measure: Callable[[], dict[int, float]]) -> None:
        """Measure step times by GPUs [s] before a job runs, once for each job."""
        if job.job_id not in self._sampled:
            self._sampled[job.job_id] = measure()

    def observe(self, job: JobView, report: Report) -> None:
        """Record the step time on the GPUs that a job holds, or the speed that its user measured before it has run."""
        seen = self._seen.setdefault(job.job_id, {})
        gpus = num_replicas(job.placement)
        if report.step_time is not None and gpus not in seen:
            seen[gpus] = report.step_time
        elif not seen and (speed := next(iter(job.speeds.values()), 0.0)):
            seen[job.num_replicas] = 1.0 / speed
        else:
            return
        self._fits.pop(job.job_id, None)

    def of(self, job: JobView) -> StepTimes | None:
        """Return the step time of a job as a function of its GPUs, or None if no step time is known."""
        if (known := self._fits.get(job.job_id)) is None:
            times = self._sampled.get(job.job_id, {}) | self._seen.get(job.job_id, {})
            if times:
                known = self._fits[job.job_id] = fit_step_times(times)
        return known

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            for known in (self._seen, self._sampled, self._fits):
                known.pop(job_id, None)


def report_of(job: JobView) -> Report:
    """Return the log of a job.

    Raises
    ------
    PolicyError
        If the losses of its application are unknown.
    """
    if (report := job.report) is None:
        raise PolicyError(
            f"job {job.job_id!r}: the profile of {job.application!r} says no losses, and this policy goes by them; "
            f"needed is 'losses' in its card, or 'best_metric' in applications.yaml beside measurements"
        )
    return report


def epochs_left(report: Report, assumed: float) -> float:
    """Return the number of epochs that a job has left, by its losses; at least the rest of the present epoch.

    A job with too few losses is taken to need `assumed` epochs in all.
    """
    known = len(report.losses) >= LEAST_POINTS
    whole = hyperbola(report.losses).flat_after(report.last_drop) if known else inf
    return max((assumed if whole == inf else whole) - report.epochs, floor(report.epochs) + 1 - report.epochs)


# Jobs that train alike log alike.
hyperbola = lru_cache(maxsize=4096)(fit_hyperbola)
best_curve = lru_cache(maxsize=4096)(fit_best)
