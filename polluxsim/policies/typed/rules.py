"""Shares of time by the rules of papers: each rule is a pure function of jobs and GPU types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.values import PositiveShare, Range, check
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.typed.linear_programmes import NEARLY_OPTIMAL, Array, Solver, TypedDemand


class Rule(ABC):
    """Returns the share of time of each job on each GPU type."""

    agnostic: bool = False  # whether the rule ignores GPU types: then no type is filled before another
    scales_with_time: ClassVar[bool] = True
    """Whether the shares do not depend on the unit of time."""

    @abstractmethod
    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        """Return the shares, of shape (jobs, types)."""

    def shares(self, view: ClusterView, solver: str) -> dict[JobId, dict[str, float]]:
        """Return the shares by job and type: of a job at most 1 in sum, of a type at most its GPUs.

        A job that can run nowhere now has no share. If there are several optima, `solver`, one of `SOLVERS`, chooses.
        """
        demand = TypedDemand.of(view)
        return demand.named(self.of(demand, Solver(demand, solver))) if demand.jobs else {}


def _at_most_one(shares: Array) -> Array:
    """Return shares, shape (jobs, types), with the sum of each job reduced to 1 if it is larger."""
    scaled: Array = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    return scaled


@dataclass(frozen=True)
class MaxMin(Rule):
    """Maximise the least effective throughput of all jobs, relative to the throughput with an equal share.

    In the long run this equals least attained service: a gang with more GPUs gets proportionally less time.

    Parameters
    ----------
    agnostic
        Whether the rule assumes that all GPU types are equally fast.

    Source: Narayanan et al., Gavel (OSDI '20), §4.1.
    """

    agnostic: bool = False

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        return solve.greatest_least(max_min_rows(demand, agnostic=self.agnostic))


def max_min_rows(demand: TypedDemand, *, agnostic: bool) -> Array:
    """Return the value of a share: GPUs × speed relative to the speed with an equal share, of shape (jobs, types)."""
    values = (demand.speeds > 0).astype(float) if agnostic else demand.speeds
    return demand.widths[:, None] * values / (values @ (demand.gpus / float(demand.gpus.sum())))[:, None]


@dataclass(frozen=True)
class MaxSum(Rule):
    """Maximise the sum of all effective throughputs [optimiser steps/s].

    Parameters
    ----------
    by_cost
        Whether to maximise throughput per dollar of rent. An `InvalidConfigError` is raised at the first decision if
        a GPU type then has no price.

    Source: as `MaxMin`.
    """

    by_cost: bool = False
    scales_with_time: ClassVar[bool] = False
    """False, because a job without a profile makes one step per second, whatever the unit of time is."""

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        if not self.by_cost:
            return solve.greatest_sum(demand.speeds)
        if not demand.prices.all():
            free = demand.types[int(demand.prices.argmin())]
            raise InvalidConfigError(f"policy.shares.by_cost needs a price of every GPU type, {free} has none")
        return solve.greatest_sum(demand.speeds / demand.prices)


@takes_settings("policy.shares")
@dataclass(frozen=True)
class MinMakespan(Rule):
    """Give each job the throughput to complete by a common time, about the earliest possible one.

    Parameters
    ----------
    shortest, longest
        Bounds of the time, which bisection finds to 5 % [s]. The upper bound grows tenfold if necessary.

    Source: as `MaxMin`, §4.2.
    """

    shortest: Annotated[Seconds, Range(above=0)] = 100.0
    longest: Seconds = 1e6

    def __post_init__(self) -> None:
        check("policy.shares.longest", self.longest, Annotated[float, Range(least=self.shortest)])

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        time = self._found(1 / solve.least(demand.speeds / demand.left[:, None]))
        return solve.with_at_least(demand.speeds, demand.left / time)

    def _found(self, fastest: float) -> float:
        """Return the end of the bisection, at least the earliest possible time [s]."""
        low = self.shortest
        high = self.longest
        while high < fastest:
            low = low * 10
            high = high * 10
        while 1.05 * low < high:
            middle = (low + high) / 2
            low, high = (low, middle) if middle >= fastest else (middle, high)
        return high


@dataclass
class FinishTimeFairness(Rule):
    """Minimise the worst finish-time fairness: the time to completion, divided by the time on an equal share alone.

    The progress that a job would have made alone is summed over the computations of shares.

    Source: Themis' metric (NSDI '20), as Gavel (OSDI '20), §4.2, optimises it.
    """

    # Time that the work of each job so far would have taken alone [s].
    _done_alone: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    # Remaining steps of each job, and its speed alone [steps/s], at the last computation.
    _before: dict[JobId, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)

    def shares(self, view: ClusterView, solver: str) -> dict[JobId, dict[str, float]]:
        present = {job.job_id for job in view.jobs}
        self._done_alone = {job: time for job, time in self._done_alone.items() if job in present}
        self._before = {job: work for job, work in self._before.items() if job in present}
        return super().shares(view, solver)

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        alone = (demand.speeds * isolated(demand)).sum(axis=1)
        times_alone = self._added_up(demand, alone) + demand.left / alone
        low = 0.0
        high = 1.0
        while not self._needs(solve, demand, times_alone, high)[1]:
            low = high
            high = 2 * high
        while high - low > 1e-4 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._needs(solve, demand, times_alone, middle)[1] else (middle, high)
        # Slightly less than the need, so that the interior is not empty if all jobs have exactly their need.
        needs = self._needs(solve, demand, times_alone, high)[0] * (1 - NEARLY_OPTIMAL)
        return solve.with_at_least(demand.speeds, needs)

    @staticmethod
    def _needs(solve: Solver, demand: TypedDemand, times_alone: Array, rho: float) -> tuple[Array, bool]:
        """Return the throughput for a fairness of at most ρ [steps/s], and whether all jobs can have it."""
        times = rho * times_alone - demand.ages
        if not (times > 0).all():
            return times, False
        needs = demand.left / times
        return needs, solve.least(demand.speeds / needs[:, None]) >= 1

    def _added_up(self, demand: TypedDemand, alone: Array) -> Array:
        """Return the time that the work of each job so far would have taken alone [s], shape (jobs,).

        `alone` is the present speed of each job alone, shape (jobs,) [steps/s].
        """
        now = dict(zip(demand.jobs, zip(demand.left.tolist(), alone.tolist(), strict=True), strict=True))
        for job, (steps_left, _) in now.items():
            before, speed = self._before.get(job, (steps_left, 1.0))
            # Less than 0 if a fork gave the job more work than it has done.
            self._done_alone[job] = max(self._done_alone.get(job, 0.0) + (before - steps_left) / speed, 0.0)
        self._before |= now  # a job that can run nowhere now keeps its entry
        return np.array([self._done_alone[job] for job in demand.jobs])


def isolated(demand: TypedDemand) -> Array:
    """Return the shares of jobs if each has an equal part of all GPUs, shape (jobs, types)."""
    return _at_most_one(demand.gpus[None, :] / (len(demand.jobs) * demand.widths[:, None]))


@dataclass(frozen=True)
class Isolated(Rule):
    """Give every job an equal part of the GPUs, so that a wide gang gets less of the time. Source: as `MaxMin`."""

    agnostic = True

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        return isolated(demand)


@dataclass(frozen=True)
class GandivaFair(Rule):
    """Give every job an equal part of the time, whatever its GPUs. Source: Gandiva_fair (EuroSys '20), as in Gavel."""

    agnostic = True

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        return _at_most_one(np.tile(demand.gpus / len(demand.jobs), (len(demand.jobs), 1)))


@dataclass(frozen=True)
class Proportional(Rule):
    """Give every job an equal share of each type. Source: as `MaxMin`."""

    agnostic = True

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        equal = np.tile(demand.gpus / len(demand.jobs), (len(demand.jobs), 1))
        return equal / max(float(equal.sum(axis=1).max()), 1.0)


@dataclass(frozen=True)
class FirstCome(Rule):
    """Give each job, in order of submission, all of the time on the fastest type where it fits, until one fits nowhere.

    Source: as `MaxMin`.
    """

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        shares = np.zeros_like(demand.speeds)
        free = demand.gpus.copy()
        for job, width in enumerate(demand.widths):
            speeds = np.where(free >= width, demand.speeds[job], 0.0)
            if not speeds.any():
                break
            shares[job, speeds.argmax()] = 1.0
            free[speeds.argmax()] -= width
        return shares


@dataclass(frozen=True)
class WaterFilling(Rule):
    """Raise the effective throughputs of all jobs equally, as in `MaxMin`, and then those of jobs that can have more.

    Source: as `MaxMin`, §4.3. Jobs whose constraints have a price in the linear programme cannot have more.
    """

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        rows = max_min_rows(demand, agnostic=False)
        levels = np.zeros(len(rows))
        is_full = np.zeros(len(rows), dtype=bool)
        while not is_full.all():
            level, stuck = solve.raised(rows, levels, is_full)
            levels = np.where(is_full, levels, level)
            is_full = is_full | (stuck if stuck.any() else True)
        return solve.with_at_least(rows, levels * (1 - NEARLY_OPTIMAL))


@takes_settings("policy.shares")
@dataclass
class AlloX(Rule):
    """Give each free GPU to the job that goes first in the schedule with the least mean completion time.

    On unrelated machines Σ completion times is a matching: a job that is the k-th from last on a machine delays k jobs,
    itself included, by its time there (Horn, 1973; Bruno, Coffman and Sethi, 1974). This holds for jobs of one GPU.
    A gang of g GPUs has a share of 1/g, as in Gavel. A job with all of the time keeps it to its end.

    Parameters
    ----------
    oldest
        α: share of the waiting jobs that the matching takes, the oldest first; in (0, 1]. The number of jobs is at
        least the number of free GPUs.

    Source: Le et al., AlloX (EuroSys '20), as in Gavel (OSDI '20).
    """

    oldest: PositiveShare = 0.2
    # Shares of each job at the last computation, shape (types,).
    _last: dict[JobId, Array] = field(default_factory=dict, init=False, repr=False)

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        shares = np.array([self._last.get(job, np.zeros(len(demand.types))) for job in demand.jobs])
        free = demand.gpus - (shares == 1).sum(axis=0)
        waiting = np.flatnonzero(shares.sum(axis=1) != 1)
        oldest = waiting[np.argsort(-demand.ages[waiting], kind="stable")]
        candidates = oldest[: max(int(self.oldest * len(waiting)), int(free.sum()))]
        steps_left = demand.left[candidates, None]
        speeds = demand.speeds[candidates]
        ages = demand.ages[candidates]
        for index, gpu_type in matched(steps_left, speeds, ages, free, demand.types):
            shares[candidates[index], gpu_type] = 1 / demand.widths[candidates[index]]
        self._last = dict(zip(demand.jobs, shares, strict=True))
        return shares.copy()


def matched(left: Array, speeds: Array, ages: Array, free: Array, types: Sequence[str]) -> list[tuple[int, int]]:
    """Return which job goes first on each GPU, as pairs of indices (job, type).

    Remaining steps have shape (jobs, 1); speeds (jobs, types) [steps/s], 0 where a job cannot run; ages (jobs,) [s];
    free GPUs (types,). Ages only order jobs that are equal except for rounding. GPUs are ordered by the names of their
    types.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (slow to load)

    order = sorted(range(len(types)), key=types.__getitem__)
    gpus = [name for name in order for _ in range(int(free[name]))]
    if not gpus or not len(left):
        return []
    with np.errstate(divide="ignore"):
        times = (left / speeds)[:, gpus]
    # A job where it cannot run costs far more than all other times, so the matching avoids it.
    times = np.where(np.isinf(times), 1e6 * times[np.isfinite(times)].max(), times)
    from_last = np.arange(1, len(left) + 1)  # k for the k-th job from the last on a GPU
    costs = (from_last[None, :, None] * times[:, None, :]).reshape(len(left), -1) + ages[:, None]
    first: dict[int, tuple[int, int]] = {}
    for job, column in zip(*linear_sum_assignment(costs), strict=True):
        position, gpu = divmod(int(column), len(gpus))
        first[gpu] = max(first.get(gpu, (-1, -1)), (position, int(job)))
    return [(job, gpus[gpu]) for gpu, (_, job) in first.items() if speeds[job, gpus[gpu]] > 0]
