"""The slots of time in which prices are constant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.statistics.bounds.alone import makespan_of_work
from polluxsim.statistics.bounds.problem import Array, BoundProblem

MOST_SLOTS = 600
SHORTEST = 10.0  # shortest slot [s]
BEYOND = 1.5  # prices end at this multiple of the time from the first arrival until all work could be done
NEVER = 1e12  # end of the last slot, without prices, in which every job completes [s]
GROWTH = 1.25  # ratio of the lengths of neighbouring slots without prices


class PricedSlots(NamedTuple):
    """Slots of equal length, and slots of growing lengths without prices after them."""

    ends: Array  # start of the first slot, and the ends of all slots, rising [s]
    gpu_seconds: Array  # GPU time that is there in each slot with a price, shape (pools, S) [GPU s]

    @property
    def priced(self) -> Array:
        """Return the start of the first slot and the ends of the slots with prices, shape (S + 1,) [s]."""
        return self.ends[: self.gpu_seconds.shape[1] + 1]

    @property
    def lengths(self) -> Array:
        """Return the lengths of the slots with prices, shape (S,) [s]."""
        return np.diff(self.priced)

    def padded(self, prices: Array) -> Array:
        """Return prices, shape (pools, S), and the price 0 of all other slots."""
        return np.pad(prices, ((0, 0), (0, len(self.ends) - len(self.priced))))


def slots_of(problem: BoundProblem) -> PricedSlots:
    """Return the slots for the prices of a problem. Each of its jobs must have a measure."""
    first = problem.start
    latest = max(job.ready + job.shortest for job in problem.jobs)
    until = max(latest, first + makespan_of_work(problem))
    span = max(BEYOND * (until - first), SHORTEST)
    number = int(min(max(span / SHORTEST, 1), MOST_SLOTS))
    priced = first + span * np.arange(number + 1) / number
    unpriced = []
    length = span / number
    end = priced[-1]
    while end < NEVER:
        length *= GROWTH
        end = min(end + length, NEVER)
        unpriced.append(end)
    return PricedSlots(np.concatenate([priced, unpriced]), problem.capacity.gpu_seconds(priced))
