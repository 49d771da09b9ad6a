"""The slots of time in which prices are constant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.statistics.bounds.alone import makespan_of_work
from polluxsim.statistics.bounds.problem import Array, Problem

MOST_SLOTS = 600
SHORTEST = 10.0  # shortest slot [s]
BEYOND = 1.5  # prices end at this multiple of the time from the first arrival until all work could be done
NEVER = 1e12  # end of the last slot, without prices, in which every job completes [s]


class Slots(NamedTuple):
    """Slots of equal length, and a last slot without prices."""

    ends: Array  # start of the first slot, and the ends of all slots, shape (S + 1,) [s]
    gpu_seconds: Array  # GPU time that is there in each slot but the last, shape (pools, S − 1) [GPU s]

    @property
    def lengths(self) -> Array:
        """Return the lengths of the slots other than the last, shape (S − 1,) [s]."""
        return np.diff(self.ends[:-1])

    def with_last(self, prices: Array) -> Array:
        """Return prices, shape (pools, S − 1), with that of the last slot, 0."""
        return np.pad(prices, ((0, 0), (0, 1)))


def slots_of(problem: Problem) -> Slots:
    """Return the slots for the prices of a problem."""
    first = problem.start
    latest = max(job.ready + job.shortest for job in problem.jobs)
    until = max(latest, first + makespan_of_work(problem))
    span = max(BEYOND * (until - first), SHORTEST)
    number = int(min(max(span / SHORTEST, 1), MOST_SLOTS))
    priced = first + span * np.arange(number + 1) / number
    return Slots(np.append(priced, NEVER), problem.capacity.gpu_seconds(priced))
