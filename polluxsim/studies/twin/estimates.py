"""Estimates of starts and ends with intervals, from futures of a live cluster.

An estimate is the distribution of a time over futures. How well the rules fit the cluster shows in another way: in how
many plans of one cycle are those that slurmctld itself has made (`Plans`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from polluxsim.policies.slurm.backfill import backfill
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.run.forecasts import quantile
from polluxsim.studies.twin.futures import FutureSource, FutureTimes, outcomes
from polluxsim.studies.twin.settings import candidates
from polluxsim.studies.twin.world import TwinWorld

NUM_FUTURES = 40  # the ends of a 95 % interval are then just within the drawn values
LEVELS = (50, 80, 95)  # of intervals [%]
SLACK = 2  # largest difference between a plan and `squeue --start` that counts as equal [s]


class TimeDistribution(NamedTuple):
    """The distribution of a time [s since 1970-01-01 UTC], or of a difference of times [s].

    A time after the end of a future is ∞.
    """

    median: float
    intervals: Mapping[int, tuple[float, float]]  # by level [%]


class JobEstimate(NamedTuple):
    """The estimate of a job."""

    name: str
    waits: bool
    start: TimeDistribution
    end: TimeDistribution
    expected: int  # what `squeue --start` prints [s since 1970-01-01 UTC]; 0 for nothing


def times_of(values: Sequence[float]) -> TimeDistribution:
    """Return the distribution of a time whose values in the futures are given."""
    intervals = {}
    for level in LEVELS:
        # An interval leaves equal parts of the futures out on both sides.
        outside = (100 - level) / 200
        intervals[level] = quantile(values, outside), quantile(values, 1 - outside)
    return TimeDistribution(quantile(values, 0.5), intervals)


def estimates(
    world: TwinWorld,
    source: FutureSource,
    names: Sequence[str],
    num_futures: int = NUM_FUTURES,
    report: Callable[[int, float], None] = lambda done, mean_wait: None,
) -> list[JobEstimate]:
    """Return the estimates of pending and running jobs of a world. `report` is that of `futures.outcomes`."""
    return estimates_of(world, outcomes(world, source, names, num_futures, report=report))


def estimates_of(world: TwinWorld, by_name: Mapping[str, FutureTimes]) -> list[JobEstimate]:
    """Return the estimates of jobs from their outcomes."""
    waiting = {job.name for job in world.pending}
    expected = {job.name: job.start for job in world.pending}
    result = []
    for name, outcome in by_name.items():
        start, end = times_of(outcome.starts), times_of(outcome.ends)
        result.append(JobEstimate(name, name in waiting, start, end, expected.get(name, 0)))
    return result


class Plans(NamedTuple):
    """How many plans of the rules are those of `squeue --start`."""

    agreeing: int = 0
    compared: int = 0

    def __add__(self, other: object) -> Plans:
        """Return the sum of two counts."""
        assert isinstance(other, Plans)
        return Plans(self.agreeing + other.agreeing, self.compared + other.compared)


def compared_plans(world: TwinWorld) -> Plans:
    """Return how many starts of a cycle, made or planned, are within 2 s of the starts that slurmctld expects.

    Jobs without an expected start, and jobs that the cycle does not plan, are not compared.
    """
    cycle = backfill(world.cluster_state(), world.parameters)
    plans = {plan.job.name: plan.start for plan in cycle.plans}
    plans |= {start.job.name: world.state.now for start in cycle.starts}
    asked = [job for job in world.pending if job.start and job.name in plans]
    return Plans(sum(abs(plans[job.name] - job.start) <= SLACK for job in asked), len(asked))


def fitted_parameters(world: TwinWorld) -> tuple[Parameters, str]:
    """Return the parameters whose plans agree best with `squeue --start`, and a sentence on them.

    At a tie, or without a plan that can be compared, these are the likeliest candidates.
    """
    counts = []
    for name, parameters in candidates():
        counts.append((compared_plans(TwinWorld(world.state, parameters)), name, parameters))
    best, name, parameters = max(counts, key=lambda count: count[0].agreeing)
    if not best.compared:
        return parameters, f"parameters of the schedulers are unknown; assumed: {name}"
    return parameters, f"parameters are inferred: {name} ({best.agreeing} of {best.compared} plans as squeue --start)"
