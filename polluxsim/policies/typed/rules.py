"""Shares of time by the rules of papers: each rule computes them from the jobs and the GPU types.

A share is the part of the time that a job shall have all of its GPUs on a type. `RoundsOfShares` gives jobs this part
in rounds. A rule is a function of a `TypedDemand`; `FinishTimeFairness` and `AlloX` also remember their last shares.

Invariants: the shares of a job are at most 1 in sum, and those on a type never need more GPUs than are up. The arrays
have shape (jobs, types). A share is 0 where a job cannot run, except in the rules that ignore types.

Trap: rules with a state count what happened since they were last asked. A rule belongs to one policy, which asks it
once for each computation.

Source: Narayanan et al., "Gavel" (OSDI '20), unless a rule states another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

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
        if not demand.jobs:
            return {}
        return demand.named(self.of(demand, Solver(demand, solver)))


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
    speeds = (demand.speeds > 0).astype(float) if agnostic else demand.speeds
    equal_share = demand.gpus / float(demand.gpus.sum())
    return demand.widths[:, None] * speeds / (speeds @ equal_share)[:, None]


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
            without_price = demand.types[int(demand.prices.argmin())]
            raise InvalidConfigError(f"policy.shares.by_cost needs a price of every GPU type, {without_price} has none")
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
        largest_rate = solve.least(demand.speeds / demand.steps_left[:, None])  # all jobs complete after 1 / rate
        time = self._common_time(1 / largest_rate)
        return solve.with_at_least(demand.speeds, demand.steps_left / time)

    def _common_time(self, earliest: float) -> float:
        """Return the time that bisection finds: at least the earliest possible one, and at most 5 % later [s].

        The published rule bisects because it does not know the earliest time. Its result is a little later.
        """
        low = self.shortest
        high = self.longest
        while high < earliest:
            low = low * 10
            high = high * 10
        while 1.05 * low < high:
            middle = (low + high) / 2
            if middle >= earliest:
                high = middle
            else:
                low = middle
        return high


class LastWork(NamedTuple):
    """What is known of a job since the last computation of its shares."""

    steps_left: float
    speed_alone: float  # speed on an equal share alone [steps/s]


@dataclass
class FinishTimeFairness(Rule):
    """Minimise the worst finish-time fairness: the time to completion, divided by the time on an equal share alone.

    The progress that a job would have made alone is summed over the computations of shares.

    Source: Themis' metric (NSDI '20), as Gavel (OSDI '20), §4.2, optimises it.
    """

    # Time that the work of each job so far would have taken alone [s].
    _done_alone: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _last_work: dict[JobId, LastWork] = field(default_factory=dict, init=False, repr=False)

    def shares(self, view: ClusterView, solver: str) -> dict[JobId, dict[str, float]]:
        present = {job.job_id for job in view.jobs}
        self._done_alone = {job: time for job, time in self._done_alone.items() if job in present}
        self._last_work = {job: work for job, work in self._last_work.items() if job in present}
        return super().shares(view, solver)

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        speeds_alone = (demand.speeds * isolated(demand)).sum(axis=1)
        times_alone = self._times_done_alone(demand, speeds_alone) + demand.steps_left / speeds_alone
        # Bisection over ρ: it is too small at `low`, and possible at `high`.
        low = 0.0
        high = 1.0
        while not self._is_possible(solve, demand, times_alone, high):
            low = high
            high = 2 * high
        while high - low > 1e-4 * high:
            middle = (low + high) / 2
            if self._is_possible(solve, demand, times_alone, middle):
                high = middle
            else:
                low = middle
        # Slightly less than the need, so that the interior is not empty if all jobs have exactly their need.
        needs = demand.steps_left / (high * times_alone - demand.ages) * (1 - NEARLY_OPTIMAL)
        return solve.with_at_least(demand.speeds, needs)

    @staticmethod
    def _is_possible(solve: Solver, demand: TypedDemand, times_alone: Array, rho: float) -> bool:
        """Return whether all jobs can have a fairness of at most ρ."""
        times = rho * times_alone - demand.ages  # time that each job then has to its end [s]
        if not (times > 0).all():
            return False
        needs = demand.steps_left / times  # throughput [steps/s]
        return solve.least(demand.speeds / needs[:, None]) >= 1

    def _times_done_alone(self, demand: TypedDemand, speeds_alone: Array) -> Array:
        """Return the time that the work of each job so far would have taken alone [s], shape (jobs,).

        `speeds_alone` is the present speed of each job alone, shape (jobs,) [steps/s]. It counts from now on.
        """
        steps_and_speeds = zip(demand.steps_left.tolist(), speeds_alone.tolist(), strict=True)
        for job, (steps_left, speed_alone) in zip(demand.jobs, steps_and_speeds, strict=True):
            time_done = self._done_alone.get(job, 0.0)
            last = self._last_work.get(job)
            if last is not None:
                time_done += (last.steps_left - steps_left) / last.speed_alone
            # Less than 0 if a fork gave the job more work than it has done.
            self._done_alone[job] = max(time_done, 0.0)
            # A job that can run nowhere now is not in the demand, and keeps its entry.
            self._last_work[job] = LastWork(steps_left, speed_alone)
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
            speeds_with_room = np.where(free >= width, demand.speeds[job], 0.0)
            if not speeds_with_room.any():
                break
            fastest_type = speeds_with_room.argmax()
            shares[job, fastest_type] = 1.0
            free[fastest_type] -= width
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
            if not stuck.any():
                break  # no job limits the level, so the solver cannot tell which ones could have more
            is_full = is_full | stuck
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
        α: share of the waiting jobs that the matching takes, the oldest first; in (0, 1]. If there are more free GPUs
        than these jobs, the matching takes as many jobs as free GPUs.

    Source: Le et al., AlloX (EuroSys '20), as in Gavel (OSDI '20).
    """

    oldest: PositiveShare = 0.2
    # Shares of each job at the last computation, shape (types,).
    _last: dict[JobId, Array] = field(default_factory=dict, init=False, repr=False)

    def of(self, demand: TypedDemand, solve: Solver) -> Array:
        no_share = np.zeros(len(demand.types))
        shares = np.array([self._last.get(job, no_share) for job in demand.jobs])
        # Jobs with all of the time keep their GPUs. Their width is 1, because a gang has a share of 1 / width.
        free = demand.gpus - (shares == 1).sum(axis=0)
        waiting = np.flatnonzero(shares.sum(axis=1) != 1)
        oldest_first = waiting[np.argsort(-demand.ages[waiting], kind="stable")]
        num_candidates = max(int(self.oldest * len(waiting)), int(free.sum()))
        candidates = oldest_first[:num_candidates]
        steps_left = demand.steps_left[candidates, None]
        speeds = demand.speeds[candidates]
        ages = demand.ages[candidates]
        for index, gpu_type in matched(steps_left, speeds, ages, free, demand.types):
            job = candidates[index]
            shares[job, gpu_type] = 1 / demand.widths[job]
        self._last = dict(zip(demand.jobs, shares, strict=True))
        return shares.copy()


def matched(steps_left: Array, speeds: Array, ages: Array, free: Array, types: Sequence[str]) -> list[tuple[int, int]]:
    """Return which job goes first on each GPU, as pairs of indices (job, type); GPUs without a job are left out.

    Remaining steps have shape (jobs, 1); speeds (jobs, types) [steps/s], 0 where a job cannot run; ages (jobs,) [s];
    free GPUs (types,). Ages only order jobs that are equal except for rounding. GPUs are ordered by the names of their
    types.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (slow to load)

    type_of_gpu: list[int] = []
    # By name, so that the order in which a cluster lists its types does not decide between equal matchings.
    for gpu_type in sorted(range(len(types)), key=types.__getitem__):
        type_of_gpu += [gpu_type] * int(free[gpu_type])
    num_gpus = len(type_of_gpu)
    num_jobs = len(steps_left)
    if not num_gpus or not num_jobs:
        return []
    with np.errstate(divide="ignore"):
        times = (steps_left / speeds)[:, type_of_gpu]  # shape (jobs, GPUs)
    # A job where it cannot run costs far more than all other times, so the matching avoids it.
    times = np.where(np.isinf(times), 1e6 * times[np.isfinite(times)].max(), times)
    from_last = np.arange(1, num_jobs + 1)  # k for the k-th job from the last on a GPU
    # Columns are places: those last on all GPUs, then those last but one, and so on.
    costs = (from_last[None, :, None] * times[:, None, :]).reshape(num_jobs, -1) + ages[:, None]
    # Place from the last, and job, of the job that goes first on each GPU.
    first_on_gpu: dict[int, tuple[int, int]] = {}
    for job, column in zip(*linear_sum_assignment(costs), strict=True):
        place, gpu = divmod(int(column), num_gpus)
        first_on_gpu[gpu] = max(first_on_gpu.get(gpu, (-1, -1)), (place, int(job)))
    pairs: list[tuple[int, int]] = []
    for gpu, (_, job) in first_on_gpu.items():
        gpu_type = type_of_gpu[gpu]
        if speeds[job, gpu_type] > 0:
            pairs.append((job, gpu_type))
    return pairs
