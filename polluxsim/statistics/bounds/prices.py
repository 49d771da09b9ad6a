"""Prices of GPUs over time, and the bound on the mean JCT that they prove."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import numpy as np

from polluxsim.statistics.bounds.problem import Array, BoundProblem
from polluxsim.statistics.bounds.slots import PricedSlots

STEP = 100  # changes of the prices in a step
LEAST_GAIN = 1e-3  # the search ends after a step that gains less than this share
PATIENCE = 10  # changes without a better bound after which the aim is lowered
FIRST_AIM = 0.1  # the bound aimed at exceeds the best one by this share at first
INERTIA = 0.7  # share of the last direction in the next one


class Priced(NamedTuple):
    """What prices prove."""

    mean: float  # no schedule has a lower mean JCT [s]
    usage: Array  # GPU time that the jobs alone would use at these prices, shape (pools, S) [GPU s]


def price(problem: BoundProblem, slots: PricedSlots, prices: Array) -> Priced:
    """Return the bound on the mean JCT with prices ≥ 0, shape (pools, S).

    For every schedule and every prices, the sum of completion times is at least the sum of the least costs of jobs
    alone, less the price of all GPU time: the schedule uses at most the GPU time that is there. So the bound is valid
    for any prices, and good ones make it sharp.
    """
    from polluxsim.statistics.bounds.least_costs import least_costs  # noqa: PLC0415  (loads Numba)

    jobs = problem.arrays
    priced = slots.padded(prices)
    usage = np.zeros(priced.shape)  # to which `least_costs` adds
    costs, _ = least_costs(
        slots.ends, priced, jobs.ready, jobs.measures, jobs.works, jobs.firsts, jobs.pools, jobs.gpus, jobs.rates, usage
    )
    total = float(costs.sum()) - float((prices * slots.gpu_seconds).sum()) - sum(job.submit for job in problem.jobs)
    return Priced(total / len(problem.jobs), usage[:, : prices.shape[1]])


class PriceSearch:
    """A search for prices that prove a high bound: subgradient steps towards a bound above the best one.

    A price rises where jobs would use more than there is. `best` is the best bound so far [s].

    Source: B. T. Polyak, "Minimization of unsmooth functionals", 1969.
    """

    def __init__(self, problem: BoundProblem, slots: PricedSlots, prices: Array) -> None:
        self._problem = problem
        self._slots = slots
        self._present = prices
        self._direction = np.zeros(prices.shape)
        self._aim = FIRST_AIM
        self._in_vain = 0  # changes since the last better bound
        self.best = price(problem, slots, prices).mean  # [s]
        self.best_prices = prices

    def improve(self, until: float, clock: Callable[[], float] = monotonic) -> None:
        """Make steps until one of them gains little, or until a time of the clock [s]."""
        while clock() < until:
            before = self.best
            for _ in range(STEP):
                self._change()
                if clock() >= until:
                    return
            if self.best - before < LEAST_GAIN * abs(before):
                return

    def _change(self) -> None:
        """Change the prices once."""
        priced = price(self._problem, self._slots, self._present)
        if priced.mean > self.best:
            self._in_vain = 0
            self.best = priced.mean
            self.best_prices = self._present
        else:
            self._in_vain += 1
        # The aim may be above the highest bound that prices can prove. Go on from the best prices with a lower aim.
        if self._in_vain > PATIENCE:
            self._aim /= 2
            self._in_vain = 0
            self._present = self.best_prices
            self._direction = np.zeros(self._present.shape)
            return
        lengths = self._slots.lengths
        excess = (priced.usage - self._slots.gpu_seconds) / lengths
        self._direction = INERTIA * self._direction + (1 - INERTIA) * excess
        square = float((self._direction**2 * lengths).sum())
        if not square:  # the jobs use exactly what is there, so that the prices are the best ones
            return
        # Polyak's step: as long as it would take to reach the aim if the bound rose linearly.
        missing = max(self.best * (1 + self._aim) - priced.mean, 0.0) * len(self._problem.jobs)
        self._present = np.maximum(self._present + missing / square * self._direction, 0.0)
