"""A linear programme whose dual values are prices: the least sum of mean busy times.

A job whose rate is at most 1 completes at least half its length after its mean busy time.

Source: Goemans et al., "Single machine scheduling with release dates", SIAM J. Discrete Math. 15, 2002.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.statistics.bounds.problem import Array, BoundProblem, Indices, JobLimits
from polluxsim.statistics.bounds.slots import PricedSlots

MOST_COLUMNS = 60_000  # of the programme; with more, neighbouring slots are joined
AHEAD = 20  # columns of a job end this multiple of the mean shortest time after its earliest completion


class Linear(NamedTuple):
    """A job whose rate grows linearly with its GPUs, up to the rate 1 on one pool."""

    ready: float  # [s]
    shortest: float  # [s]
    gpus: tuple[tuple[int, float, float], ...]  # pool, GPUs for its rate there, and this rate


def linear(job: JobLimits) -> Linear:
    """Return a simpler job that is never worse off: at each rate it needs at most the GPUs that the job needs.

    On each pool, it has the highest rate of the job, and the GPU time of its most efficient mode.
    """
    measure = job.measures[0]
    best: dict[int, tuple[float, float]] = {}  # by pool: GPU time for each second at full speed, and the highest rate
    for mode in measure.modes:
        efficiency, rate = best.get(mode.pool, (np.inf, 0.0))
        best[mode.pool] = min(efficiency, mode.gpus / mode.rate), max(rate, mode.rate)
    gpus = tuple((pool, efficiency * rate, rate) for pool, (efficiency, rate) in best.items())
    return Linear(job.ready, job.shortest, gpus)


def programme_prices(problem: BoundProblem, slots: PricedSlots, time_limit: float) -> Array | None:
    """Return the dual values of the capacity, shape (pools, S), or None if there is no solution in time [s]."""
    jobs = [linear(job) for job in problem.jobs]
    joined = _joined(jobs, slots)
    ends = slots.priced[::joined]
    if ends[-1] < slots.priced[-1]:  # the last joined slot has fewer slots
        ends = np.append(ends, slots.priced[-1])
    columns = _Columns(jobs, ends)
    prices = columns.solve(problem.capacity.gpu_seconds(ends), time_limit)
    if prices is None:
        return None
    return np.repeat(prices, joined, axis=1)[:, : len(slots.lengths)]


def _joined(jobs: list[Linear], slots: PricedSlots) -> int:
    """Return how many neighbouring slots are joined, so that the programme has few columns."""
    length = float(slots.lengths[0])
    ahead = AHEAD * float(np.mean([job.shortest for job in jobs]))
    seconds = sum((job.shortest + ahead) * len(job.gpus) for job in jobs)
    return max(int(np.ceil(min(seconds / length, len(jobs) * len(slots.lengths)) / MOST_COLUMNS)), 1)


class _Span(NamedTuple):
    """The slots in which a job may run on a pool, each of which is a column of the programme."""

    job: int
    pool: int
    slots: Indices  # numbers of the slots, shape (n,)
    starts: Array  # earliest time in each slot, shape (n,) [s]
    lengths: Array  # longest time in each slot, shape (n,) [s]
    gpus: float
    rate: float


class _Columns:
    """The columns of the programme: the time that a job runs on a pool in a slot."""

    def __init__(self, jobs: list[Linear], ends: Array) -> None:
        self._num_slots = len(ends) - 1
        self._shortest = np.array([job.shortest for job in jobs])
        ahead = AHEAD * float(self._shortest.mean())
        spans: list[_Span] = []
        for index, job in enumerate(jobs):
            first = max(int(np.searchsorted(ends, job.ready, side="right")) - 1, 0)
            # Later slots would make the programme large, and are hardly ever used.
            last = int(np.searchsorted(ends, job.ready + job.shortest + ahead, side="right"))
            places = np.arange(first, min(max(last, first + 1), self._num_slots))
            starts = np.maximum(ends[places], job.ready)
            lengths = ends[places + 1] - starts
            for pool, gpus, rate in job.gpus:
                spans.append(_Span(index, pool, places, starts, lengths, gpus, rate))
        sizes = [len(span.slots) for span in spans]
        self._job = np.repeat([span.job for span in spans], sizes)
        self._pool = np.repeat([span.pool for span in spans], sizes)
        self._slot = np.concatenate([span.slots for span in spans])
        self._start = np.concatenate([span.starts for span in spans])
        self._most = np.concatenate([span.lengths for span in spans])
        self._gpus = np.repeat([span.gpus for span in spans], sizes)
        self._rate = np.repeat([span.rate for span in spans], sizes)

    def solve(self, gpu_seconds: Array, time_limit: float) -> Array | None:
        """Return the dual values of the capacity, shape (pools, S), or None without a solution."""
        from scipy.optimize import linprog  # noqa: PLC0415  (slow to load)
        from scipy.sparse import csr_array  # noqa: PLC0415

        number = np.arange(len(self._job))
        work = csr_array((self._rate, (self._job, number)), shape=(len(self._shortest), len(number)))
        rows = self._pool * self._num_slots + self._slot
        use = csr_array((self._gpus, (rows, number)), shape=(gpu_seconds.size, len(number)))
        solution = linprog(
            cost_of_progress(self._start, self._most, self._shortest[self._job], self._rate) * self._rate,
            A_ub=use,
            b_ub=gpu_seconds.ravel(),
            A_eq=work,
            b_eq=self._shortest,
            bounds=np.column_stack([np.zeros(len(number)), self._most]),
            method="highs-ds",
            options={"time_limit": time_limit},
        )
        if solution.status != 0:
            return None
        # Rounding can give a price below 0, which would prove nothing.
        prices: Array = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(gpu_seconds.shape)
        return prices


def programme_value(problem: BoundProblem, slots: PricedSlots, prices: Array) -> float:
    """Return the mean JCT that prices prove in the programme [s], which holds for any prices.

    It is the dual value: each job takes the seconds that are cheapest for it, without an end.
    """
    total = -float((prices * slots.gpu_seconds).sum())
    priced = slots.padded(prices)
    for job in problem.jobs:
        total += _least(linear(job), slots.ends, priced) + job.shortest / 2 - job.submit
    return total / len(problem.jobs)


def cost_of_progress(starts: Array, lengths: Array, shortest: Array | float, rate: Array | float) -> Array:
    """Return what a second of progress at full speed adds to the mean busy time in each slot [s].

    It counts from the start of the slot, because the job may run at any time of the slot. Progress is weighed, not time
    on GPUs: on a slow pool, a job has less of both busy time and progress in a second. So the rate has no effect.
    """
    cost: Array = starts / shortest
    return cost


def _least(job: Linear, ends: Array, prices: Array) -> float:
    """Return the least mean start of the seconds of a job, plus the price of its GPUs [s]."""
    first = max(int(np.searchsorted(ends, job.ready, side="right")) - 1, 0)
    starts = np.maximum(ends[first:-1], job.ready)
    lengths = ends[first + 1 :] - starts
    costs = []
    seconds = []
    for pool, gpus, rate in job.gpus:
        costs.append(cost_of_progress(starts, lengths, job.shortest, rate) + prices[pool, first:] * gpus / rate)
        seconds.append(lengths * rate)
    cost = np.concatenate(costs)
    order = np.argsort(cost, kind="stable")
    room = np.concatenate(seconds)[order]
    taken = np.clip(job.shortest - (np.cumsum(room) - room), 0.0, room)
    return float((taken * cost[order]).sum())
