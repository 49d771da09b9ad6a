"""What a bound is about: jobs with their shortest times and speeds, and the GPUs that are up over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Mode(NamedTuple):
    """A way to run a job."""

    pool: int  # place of the pool of GPUs in `Capacity.gpus`
    gpus: float
    rate: float  # progress per second, above 0


class Measure(NamedTuple):
    """A measure of the progress of a job: its work, and at least the progress per second of each way to run it."""

    work: float
    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class JobLimits:
    """What no schedule can beat for one job."""

    submit: float  # submission [s]
    ready: float  # earliest start, which may be a later round [s]
    shortest: float  # shortest possible time from the start to the completion [s]
    # The first measure is of seconds at full speed, so that its work is `shortest` and no rate is above 1. Empty if
    # only the shortest time is known.
    measures: tuple[Measure, ...] = ()
    deadline: float | None = None  # [s]

    @property
    def jct_alone(self) -> float:
        """Return the shortest possible JCT [s]."""
        return self.ready - self.submit + self.shortest

    def least_gpu_time(self, weights: Sequence[float]) -> float:
        """Return the least GPU time of the job, weighted by pool [GPU s]."""
        least = []
        for measure in self.measures:
            costs = [weights[mode.pool] * mode.gpus / mode.rate for mode in measure.modes]
            least.append(measure.work * min(costs))
        return max(least)


@dataclass(frozen=True)
class Capacity:
    """GPUs that are up, by pool. A pool has GPUs of one type in one group of partitions."""

    times: Array  # rising times from which on the numbers hold, the first is −∞ [s]; shape (N,)
    gpus: Array  # shape (pools, N)

    @classmethod
    def constant(cls, gpus: Sequence[float]) -> Capacity:
        """Return numbers of GPUs that never change."""
        return cls(np.array([-np.inf]), np.array(gpus, float)[:, None])

    @property
    def num_pools(self) -> int:
        """Return the number of pools."""
        return len(self.gpus)

    def weighted(self, weights: Sequence[float]) -> Capacity:
        """Return one pool with the weighted sum of the GPUs of all pools."""
        return Capacity(self.times, (np.array(weights) @ self.gpus)[None])

    def gpu_seconds(self, ends: Array) -> Array:
        """Return the GPU time in each slot, shape (pools, S) [GPU s]; `ends` has the start and the ends of slots."""
        # Between two points, the number of GPUs does not change, and no slot begins.
        points = np.union1d(ends, self.times[(self.times > ends[0]) & (self.times < ends[-1])])
        places = np.searchsorted(self.times, points[:-1], side="right") - 1
        parts = self.gpus[:, places] * np.diff(points)
        slots = np.searchsorted(ends, points[:-1], side="right") - 1
        sums = np.zeros((self.num_pools, len(ends) - 1))
        for pool in range(self.num_pools):
            sums[pool] = np.bincount(slots, parts[pool], len(ends) - 1)
        return sums


@dataclass(frozen=True)
class BoundProblem:
    """The jobs in the means, and the GPUs that are up."""

    jobs: tuple[JobLimits, ...]
    capacity: Capacity
    others: tuple[JobLimits, ...] = ()  # further jobs, whose deadlines count

    @property
    def has_measures(self) -> bool:
        """Return whether more is known of each job than its shortest time."""
        return all(job.measures for job in (*self.jobs, *self.others))

    @property
    def start(self) -> float:
        """Return the first time at which a job can start [s]."""
        return min(job.ready for job in self.jobs)

    @cached_property
    def weightings(self) -> list[list[float]]:
        """Return weights of the pools with which sums over pools are bounded: equal ones, and ones by speed.

        If both are equal, they are returned once. Each job must have a measure.
        """
        equal = [1.0] * self.capacity.num_pools
        fastest = [0.0] * self.capacity.num_pools
        for job in self.jobs:
            for mode in job.measures[0].modes:
                fastest[mode.pool] = max(fastest[mode.pool], mode.rate / mode.gpus)
        largest = max(fastest)
        by_speed = [speed / largest for speed in fastest]
        return [equal] if by_speed == equal else [equal, by_speed]

    @cached_property
    def arrays(self) -> Arrays:
        """Return the jobs as arrays."""
        measures = [0]
        works: list[float] = []
        firsts = [0]
        modes: list[Mode] = []
        for job in self.jobs:
            for measure in job.measures:
                works.append(measure.work)
                modes += measure.modes
                firsts.append(len(modes))
            measures.append(len(works))
        return Arrays(
            np.array([job.ready for job in self.jobs], float),
            np.array(measures, np.int64),
            np.array(works, float),
            np.array(firsts, np.int64),
            np.array([mode.pool for mode in modes], np.int64),
            np.array([mode.gpus for mode in modes], float),
            np.array([mode.rate for mode in modes], float),
        )


class Arrays(NamedTuple):
    """Jobs, their measures and modes, one after the other."""

    ready: Array  # of each job [s]
    measures: Indices  # first measure of each job, and the number of all measures
    works: Array  # of each measure
    firsts: Indices  # first mode of each measure, and the number of all modes
    pools: Indices  # of each mode
    gpus: Array  # of each mode
    rates: Array  # of each mode
