"""How many GPUs are free from when on, by what is reserved: a step function in arrays, as jobs may be thousands."""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


ROOM = 64
"""Steps that there is room for at the least beyond those that are known."""


class Timetable:
    """GPUs that are free from now on [s], by what is reserved.

    So many are free at first, others become free at times [s], in order and none before now.
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        freed: dict[float, int] = {now: free}
        for time, gpus in releases:
            freed[time] = freed.get(time, 0) + gpus
        self._steps = len(freed)
        # When each step begins, with ∞ behind the last one, and the GPUs that are free in it; then room for more.
        self._times = np.full(2 * self._steps + ROOM, inf)
        self._free = np.zeros(len(self._times), dtype=np.int64)
        self._times[: self._steps], self._free[: self._steps] = list(freed), list(accumulate(freed.values()))

    @property
    def now(self) -> int:
        """Return the GPUs that are free at the beginning."""
        return int(self._free[0])

    def intervals(self) -> Iterator[tuple[float, float, int]]:
        """Yield from when until when how many GPUs are free; the last interval does not end."""
        times = self._times[: self._steps + 1].tolist()
        return zip(times, times[1:], self._free[: self._steps].tolist(), strict=False)

    def forward(self, now: float) -> None:
        """Forget what is past [s]."""
        past = int(self._times.searchsorted(now, side="right")) - 1
        self._steps -= past
        for values in (self._times, self._free):
            values[: len(values) - past] = values[past:].copy()
        self._times[self._steps :] = inf
        self._times[0] = now

    def earliest(self, num_replicas: int, length: float) -> float:
        """Return the earliest step at which so many GPUs are free for a length of time [s]; ∞ if they never are."""
        times = self._times
        short = (self._free[: self._steps] < num_replicas).nonzero()[0]
        if not len(short):
            return float(times[0])
        if short[0] and times[short[0]] >= times[0] + length:
            return float(times[0])
        # After each step with too few, until the next of them begins.
        begins = times[short + 1]
        ends = np.append(times[short[1:]], inf)
        fits = (begins < ends) & (ends >= begins + length)
        first = int(fits.argmax())
        return float(begins[first]) if fits[first] else inf

    def take(self, num_replicas: int, start: float, end: float) -> None:
        """Reserve GPUs from a step on to another time, at which a step is made if need be."""
        first, last = self._step(start), self._step(end)
        self._free[first:last] -= num_replicas

    def _step(self, time: float) -> int:
        """Return the index of the step at a time, which is made if need be."""
        index, end = int(self._times.searchsorted(time)), self._steps
        if time == inf or self._times[index] == time:
            return min(index, end)
        if end + 1 == len(self._times):
            self._times = np.append(self._times, np.full(end, inf))
            self._free = np.append(self._free, np.zeros(end, dtype=np.int64))
        for values in (self._times, self._free):
            values[index + 1 : end + 1] = values[index:end].copy()
        self._times[index], self._free[index] = time, self._free[index - 1]
        self._steps += 1
        return index
