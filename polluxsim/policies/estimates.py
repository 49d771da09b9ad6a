"""What can be told of a job by its own log alone: how long a step takes on other GPUs, and how it converges."""

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
    from collections.abc import Iterable, Mapping

    from polluxsim.policies.view import JobView, Report
    from polluxsim.types import JobId


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Time of an optimiser step on K GPUs at a constant batch size: computing, what stays, and what grows with K.

    Parameters
    ----------
    shared, constant, per_gpu
        Figures of shared/K + constant + per_gpu·K, each ≥ 0 [s; s; s/GPU].

    Source: Peng et al., "Optimus" (EuroSys '18), §3.2, synchronous training, with as many parameter servers as workers.
    """

    shared: float
    constant: float
    per_gpu: float

    def __call__(self, gpus: int) -> float:
        """Return the time [s]."""
        return self.shared / gpus + self.constant + self.per_gpu * gpus


def fit_step_times(observed: Mapping[int, float]) -> StepTimes:
    """Fit the time of a step [s] to those seen on some numbers of GPUs, by least squares of their ratios.

    One time alone is taken to be all computing, so that twice the GPUs are expected to take half of it.

    >>> fit_step_times({2: 1.0})
    StepTimes(shared=2.0, constant=0.0, per_gpu=0.0)
    """
    rows = [(1.0 / gpus / time, 1.0 / time, gpus / time) for gpus, time in observed.items()]
    return StepTimes(*nonnegative_least_squares(rows, [1.0] * len(rows)))


@dataclass
class Speeds:
    """The times of a step that were seen of each job, the first on each number of GPUs, and what they say of others."""

    _seen: dict[JobId, dict[int, float]] = field(default_factory=dict)
    _fits: dict[JobId, StepTimes] = field(default_factory=dict)

    def observe(self, job: JobView, report: Report) -> None:
        """Take note of how fast a job is where it runs; before it ran, of how fast its user measured it to be."""
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
        """Return the time of a step of a job by its GPUs; None while nothing is known."""
        if (known := self._fits.get(job.job_id)) is None and (seen := self._seen.get(job.job_id)):
            known = self._fits[job.job_id] = fit_step_times(seen)
        return known

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._seen.pop(job_id, None)
            self._fits.pop(job_id, None)


def report_of(job: JobView) -> Report:
    """Return what a job logged.

    Raises
    ------
    PolicyError
        If nobody knows its losses.
    """
    if (report := job.report) is None:
        raise PolicyError(
            f"job {job.job_id!r}: the profile of {job.application!r} says no losses, and this policy goes by them; "
            f"needed is 'losses' in its card, or 'best_metric' in applications.yaml beside measurements"
        )
    return report


def epochs_left(report: Report, assumed: float) -> float:
    """Return how many epochs a job still needs, by the losses that it has logged: at least the rest of this one.

    Until its losses tell, it is taken to need so many as are `assumed` in all.
    """
    known = len(report.losses) >= LEAST_POINTS
    whole = hyperbola(report.losses).flat_after(report.last_drop) if known else inf
    return max((assumed if whole == inf else whole) - report.epochs, floor(report.epochs) + 1 - report.epochs)


# Jobs that train alike log alike.
hyperbola = lru_cache(maxsize=4096)(fit_hyperbola)
best_curve = lru_cache(maxsize=4096)(fit_best)
