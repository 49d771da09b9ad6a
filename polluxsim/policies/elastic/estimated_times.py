"""Elastic policies that estimate from the logs of jobs: Optimus and SLAQ.

Both decide how many GPUs each job gets, from its losses and step times so far, and know nothing else of its future. The
module has three parts: the estimates of step times, the estimates of remaining epochs, and the two policies.

Invariants: each job that is served has its fewest GPUs at least. Each further GPU goes to the job that gains most.

Trap: fits must give the same last bits on all processors, because ties between gains decide. Hence the small solver
here in place of SciPy's.

Sources: Peng et al., "Optimus" (EuroSys '18); Zhang et al., "SLAQ" (SoCC '17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations, pairwise
from math import fsum, inf
from typing import Annotated, ClassVar, NamedTuple, cast

from polluxsim.common.errors import PolicyError
from polluxsim.common.instants import coincide, whole_number
from polluxsim.common.values import NonNegativeInt, PositiveFloat, PositiveShare, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.models.convergence import (
    LEAST_POINTS,
    Curve,
    Hyperbola,
    fit_best,
    fit_hyperbola,
)
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Report, Traits
from polluxsim.policies.elastic.reason_kinds import LOSS_REDUCTION
from polluxsim.policies.elastic.true_times import Remaining, reason_by_gain, true_step_time
from polluxsim.policies.tools.gpu_counts import (
    AtIntervals,
    Candidate,
    Dealt,
    deal,
    decision_by,
    fewest_gpus,
    most_gpus,
    reasons_of,
    served_first,
)

ENOUGH = 1e-12  # decrease of the sum of squares, of values near 1, that justifies another coefficient
SINGULAR = 1e-13  # pivot relative to the largest diagonal element, below which equations have no unique solution

# Assumed loss curve of a job that has logged too few losses. The loss starts at 1 and falls fastest at first.
ASSUMED_CURVE = Hyperbola(1.0, 1.0, 0.0)

# Jobs with equal training have equal logs.
hyperbola = lru_cache(maxsize=4096)(fit_hyperbola)
best_curve = lru_cache(maxsize=4096)(fit_best)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Time of an optimiser step on K GPUs at a constant batch size: shared/K + constant + per_gpu·K [s].

    Source: Peng et al., "Optimus" (EuroSys '18), §3.2, synchronous training, with equal numbers of parameter servers
    and workers.
    """

    shared: float  # ≥ 0 [s]
    constant: float  # ≥ 0 [s]
    per_gpu: float  # ≥ 0 [s/GPU]

    def __call__(self, gpus: int) -> float:
        """Return the time [s]."""
        return self.shared / gpus + self.constant + self.per_gpu * gpus


def fit_step_times(observed: Mapping[int, float]) -> StepTimes:
    """Fit a curve to step times [s] by GPUs, by least squares of their ratios.

    A single step time is taken to shrink in proportion to the GPUs.

    >>> fit_step_times({2: 1.0})
    StepTimes(shared=2.0, constant=0.0, per_gpu=0.0)
    """
    # Each row is divided by its step time, so that relative errors count.
    rows = [(1.0 / gpus / time, 1.0 / time, gpus / time) for gpus, time in observed.items()]
    shared, constant, per_gpu = nonnegative_least_squares(rows, [1.0] * len(rows))
    return StepTimes(shared, constant, per_gpu)


def nonnegative_least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return x ≥ 0 that minimises |rows·x − values|², by trying each set of coefficients above 0.

    SciPy's solver gives other last bits on other processors, and decisions would depend on them.

    `rows` has shape (n, k), k small, because 2^k problems are solved; `values` has shape (n,) and a size near 1. If
    several solutions are equally good, it is one with the fewest coefficients above 0, and among these the one whose
    coefficients come first.

    >>> nonnegative_least_squares([(1.0, 1.0), (0.5, 1.0)], [1.0, 0.75])
    [0.5, 0.5]
    """
    width = len(rows[0])
    best = [0.0] * width
    smallest_error = _dot(values, values)
    for count in range(1, min(width, len(rows)) + 1):
        for chosen in combinations(range(width), count):
            columns = [[row[column] for column in chosen] for row in rows]
            solution = _solved(columns, values)
            if solution is None or min(solution) < 0:
                continue
            residuals = [_dot(row, solution) - value for row, value in zip(columns, values, strict=True)]
            error = _dot(residuals, residuals)
            # A larger set must be better by more than rounding, so that the choice is the same everywhere.
            if error < smallest_error - ENOUGH:
                smallest_error = error
                best = [0.0] * width
                for column, coefficient in zip(chosen, solution, strict=True):
                    best[column] = coefficient
    return best


def _solved(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float] | None:
    """Return the least-squares solution by the normal equations; None if it is not unique."""
    columns = list(zip(*rows, strict=True))
    # Each row of the matrix is one equation, with its right side in the last element.
    matrix: list[list[float]] = []
    for one in columns:
        equation = [_dot(one, other) for other in columns]
        equation.append(_dot(one, values))
        matrix.append(equation)
    largest = max(row[diagonal] for diagonal, row in enumerate(matrix))
    # Gaussian elimination. Without pivoting, because the matrix is symmetric and positive semidefinite.
    for pivot, row in enumerate(matrix):
        if row[pivot] <= SINGULAR * largest:
            return None
        for lower in matrix[pivot + 1 :]:
            factor = lower[pivot] / row[pivot]
            lower[pivot:] = [a - factor * b for a, b in zip(lower[pivot:], row[pivot:], strict=True)]
    solution: list[float] = []
    for row in reversed(matrix):
        first_solved = len(columns) - len(solution)  # the coefficients from this column on are solved
        right_side = row[-1] - _dot(row[first_solved:-1], solution)
        solution.insert(0, right_side / row[first_solved - 1])
    return solution


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the inner product. Its sum is rounded once."""
    return fsum(a * b for a, b in zip(one, other, strict=True))


@dataclass
class Speeds:
    """Step times of each job, measured while it runs or sampled before, and the curves fitted to them.

    The first measurement on each number of GPUs counts. It replaces a sample.
    """

    # Step times by job and number of GPUs [s].
    _measured: dict[JobId, dict[int, float]] = field(default_factory=dict)
    _sampled: dict[JobId, dict[int, float]] = field(default_factory=dict)
    _fits: dict[JobId, StepTimes] = field(default_factory=dict)

    def sample(self, job: JobView, measure: Callable[[], dict[int, float]]) -> None:
        """Measure step times by GPUs [s] before a job runs, once for each job."""
        if job.job_id not in self._sampled:
            self._sampled[job.job_id] = measure()

    def observe(self, job: JobView, report: Report) -> None:
        """Record the step time on the GPUs that a job holds, or the speed that its user measured before it has run."""
        measured = self._measured.setdefault(job.job_id, {})
        gpus = num_replicas(job.placement)
        if report.step_time is not None and gpus not in measured:
            measured[gpus] = report.step_time
        elif not measured:
            speed_of_user = next(iter(job.speeds.values()), 0.0)
            if not speed_of_user:
                return
            measured[job.num_replicas] = 1.0 / speed_of_user
        else:
            return
        # The curve must be fitted again, with the new step time.
        self._fits.pop(job.job_id, None)

    def of(self, job: JobView) -> StepTimes | None:
        """Return the step time of a job as a function of its GPUs, or None if no step time is known."""
        fit = self._fits.get(job.job_id)
        if fit is None:
            # In this order, because a measurement replaces a sample.
            times = self._sampled.get(job.job_id, {}) | self._measured.get(job.job_id, {})
            if times:
                fit = fit_step_times(times)
                self._fits[job.job_id] = fit
        return fit

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._measured.pop(job_id, None)
            self._sampled.pop(job_id, None)
            self._fits.pop(job_id, None)


def report_of(job: JobView) -> Report:
    """Return the log of a job. Raise a `PolicyError` if the losses of its application are unknown."""
    report = job.report
    if report is None:
        raise PolicyError(
            f"job {job.job_id!r}: the profile of {job.application!r} has no losses, which this policy needs; "
            f"give 'losses' in its card, or 'best_metric' in applications.yaml beside measurements"
        )
    return report


def epochs_left(report: Report, assumed: float) -> float:
    """Return the remaining epochs of a job, estimated from its losses; at least the rest of the present epoch.

    A job with too few losses, or with losses that never become flat, is assumed to need `assumed` epochs in total.
    """
    total = inf
    if len(report.losses) >= LEAST_POINTS:
        total = hyperbola(report.losses).flat_after(report.last_drop)
    if total == inf:  # too few losses, or losses that never become flat
        total = assumed
    # A job ends at the end of an epoch, whatever the curve predicts.
    next_epoch = whole_number(report.epochs) + 1
    return max(total - report.epochs, next_epoch - report.epochs)


def sample_counts(fewest: int, most: int, samples: int) -> list[int]:
    """Return numbers of GPUs for a pre-run, from the fewest to the most, at about equal ratios.

    >>> sample_counts(1, 16, 5), sample_counts(1, 3, 5), sample_counts(4, 4, 5)
    ([1, 2, 4, 8, 16], [1, 2, 3], [4])
    """
    steps = max(samples - 1, 1)
    ratio = most / fewest
    # A set, because small numbers round to the same one.
    counts = {round(fewest * ratio ** (step / steps)) for step in range(samples)}
    return sorted(counts)


def pre_run(job: JobView, num_gpus: int, node_size: int, samples: int) -> dict[int, float]:
    """Return the measured step times of a job on up to `samples` numbers of GPUs [s].

    A pre-run trains a job for a few steps before it is scheduled. It measures true step times, which this function
    reads from the oracle, and it measures nothing else. Sampling takes no simulated time and no GPUs here.
    """
    times = {}
    fewest = fewest_gpus(job)
    largest = max(min(most_gpus(job), num_gpus), fewest)
    for gpus in sample_counts(fewest, largest, samples):
        try:
            times[gpus] = true_step_time(job, gpus, node_size)
        except ProfileRangeError:  # the job cannot run on this number of GPUs
            continue
    return times


@takes_settings("policy")
@dataclass
class OnlineOptimus(AtIntervals):
    """Greedy marginal gains as in `Optimus`, estimated from the losses of a job and the times of its steps.

    A hyperbola through the losses predicts the epoch after which the loss falls by less than the user requires. A curve
    through the step times predicts the step time on other numbers of GPUs. The estimate starts from the samples of a
    pre-run. Both estimates are inexact at first, which costs restarts and GPU time.

    Parameters
    ----------
    interval
        Time between decisions without arrivals and completions [s].
    assumed_epochs
        Number of epochs of a job that has logged fewer than three losses.
    samples
        Number of different numbers of GPUs in the pre-run. 0 uses only the speed that the user measured on the GPUs
        that the job requests.
    young_factor
        Factor on the gains of a job that has logged fewer than three losses, as its estimate is inexact; in (0, 1].

    Source: Peng et al., "Optimus" (EuroSys '18), §3.2 and §4.1, with all-reduce in place of parameter servers.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True, per_type=True)
    interval: Annotated[Seconds, Range(above=0)] = 600.0
    assumed_epochs: PositiveFloat = 50.0
    samples: NonNegativeInt = 5
    young_factor: PositiveShare = 0.95
    _speeds: Speeds = field(default_factory=Speeds, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Estimate, and give the GPUs out."""
        self._take_note(view)
        candidates = [self._candidate(job) for job in served_first(view.jobs, view.num_gpus)]
        dealt = deal(view.jobs, candidates, view.num_gpus)
        return decision_by(view, dealt.counts, lambda asked: reasons_of(view, dealt, asked, _reason_with_steps))

    def _take_note(self, view: ClusterView) -> None:
        """Sample the step times of new jobs, and read the logs of all jobs."""
        self._speeds.forget(view.changes.ended)
        num_gpus = view.num_gpus
        node_size = view.node_size
        for job in view.jobs:
            if self.samples:
                self._speeds.sample(job, partial(pre_run, job, num_gpus, node_size, self.samples))
            self._speeds.observe(job, report_of(job))

    def _candidate(self, job: JobView) -> Remaining:
        """Return a job with the time that further GPUs are estimated to save."""
        step_time = self._speeds.of(job)
        if step_time is None:  # no step was measured, so the job gets its fewest GPUs
            return Remaining(job, fewest_gpus(job), 0.0, [inf], lambda gpus: inf)
        weight = self.young_factor if len(report_of(job).losses) < LEAST_POINTS else 1.0
        # The time that the first GPU saves is never used, so it may be ∞.
        return Remaining(job, most_gpus(job), self._steps_left(job), [inf], step_time, weight)

    def _steps_left(self, job: JobView) -> float:
        """Return the estimated optimiser steps to completion."""
        report = report_of(job)
        return epochs_left(report, self.assumed_epochs) * report.steps_per_epoch


def _reason_with_steps(candidate: Candidate, dealt: Dealt) -> Reason:
    """Return the reason of `Optimus`, with the estimated remaining steps."""
    reason = reason_by_gain(candidate, dealt)
    remaining = cast("Remaining", candidate)
    return reason._replace(numbers={**reason.numbers, "steps_left": remaining.steps, "weight": remaining.weight})


class Quality(NamedTuple):
    """Expected loss of a job."""

    job: JobView
    limit: int  # most GPUs of the job
    curve: Curve  # loss by epochs
    unit: float  # largest fall of the loss in one epoch so far, in the unit of the loss
    epochs: float  # epochs done
    interval_over_steps: float  # time until the next decision, over the optimiser steps of an epoch [s]
    step_time: StepTimes | None  # step time by GPUs, or None if unknown

    def reduction(self, gpus: int) -> float:
        """Return the expected fall of the loss on `gpus` GPUs until the next decision, over its unit."""
        if self.step_time is None or not gpus:
            return 0.0
        epochs_ahead = self.interval_over_steps / self.step_time(gpus)
        fall = self.curve(self.epochs) - self.curve(self.epochs + epochs_ahead)
        return fall / self.unit

    def gain(self, replicas: int) -> float:
        """Return the further fall with one GPU more than `replicas`, 0 at the limit."""
        if replicas >= self.limit:
            return 0.0
        less = self.reduction(replicas)
        more = self.reduction(replicas + 1)
        return 0.0 if coincide(less, more) else more - less


@takes_settings("policy")
@dataclass
class Slaq(AtIntervals):
    """Share GPUs for the largest sum of expected loss reductions until the next decision.

    A reduction is relative to the largest reduction of the job in one epoch, so losses in any unit can be compared. A
    curve through the losses of a job predicts its next reductions. Jobs near convergence get their fewest GPUs.

    Parameters
    ----------
    interval
        Time between decisions without arrivals and completions, and horizon of the predictions [s].
    forgetting
        Weight of a loss relative to the weight of the next one, in (0, 1].

    Source: Zhang et al., "SLAQ: Quality-Driven Scheduling for Distributed Machine Learning" (SoCC '17).
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True, per_type=True)
    interval: Annotated[Seconds, Range(above=0)] = 600.0
    forgetting: PositiveShare = 0.9
    _speeds: Speeds = field(default_factory=Speeds, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Predict loss reductions, and give the GPUs out."""
        self._speeds.forget(view.changes.ended)
        candidates = [self._quality(job) for job in served_first(view.jobs, view.num_gpus)]
        dealt = deal(view.jobs, candidates, view.num_gpus)
        reason = partial(_reason_by_loss, num_gpus=view.num_gpus)
        return decision_by(view, dealt.counts, lambda asked: reasons_of(view, dealt, asked, reason))

    def _quality(self, job: JobView) -> Quality:
        """Return the expected loss of a job, by the assumed curve while it has logged too few losses."""
        report = report_of(job)
        self._speeds.observe(job, report)
        losses = report.losses
        curve: Curve = ASSUMED_CURVE
        unit = 1.0
        epochs = 0.0
        if len(losses) >= LEAST_POINTS:
            largest_fall = max(before - after for before, after in pairwise(losses))
            curve = best_curve(losses, self.forgetting)
            # A loss that never fell has no such unit.
            unit = largest_fall if largest_fall > 0 else losses[0]
            epochs = report.epochs
        return Quality(
            job,
            most_gpus(job),
            curve,
            unit,
            epochs,
            interval_over_steps=self.interval / report.steps_per_epoch,
            step_time=self._speeds.of(job),
        )


def _reason_by_loss(candidate: Candidate, dealt: Dealt, num_gpus: int) -> Reason:
    """Return the expected loss reduction of a job on its GPUs, on a cluster of a number of GPUs."""
    job_id = candidate.job.job_id
    gpus = dealt.counts[job_id]
    quality = cast("Quality", candidate)
    gpus_left = num_gpus - sum(dealt.counts.values())
    numbers: dict[str, float] = {
        "gpus": gpus,
        "max_replicas": candidate.limit,
        "gpus_left": gpus_left,
        "num_gpus": num_gpus,
    }
    if quality.step_time is not None:
        numbers |= {"reduction": quality.reduction(gpus), "reduction_more": candidate.gain(gpus)}
        if quality.curve is ASSUMED_CURVE:
            numbers["assumed"] = 1
    if dealt.winner is None:
        return Reason(LOSS_REDUCTION, numbers)
    numbers |= {"winning_gain": dealt.winning_gain, "won_last": float(dealt.winner == job_id)}
    return Reason(LOSS_REDUCTION, numbers, (dealt.winner,))
