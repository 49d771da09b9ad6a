"""The number of free GPUs from now on, for policies that plan starts ahead.

A timetable begins with the planned ends of the running jobs. A policy asks for the first time at which a job has enough
GPUs for long enough, and takes the GPUs for this time, so that the next job sees what is left.

Invariants: the times rise, and ∞ follows the last one, so that a search finds an index for each time; the number is
constant between two times, and from the last time on.

The trap: a timetable counts GPUs of the whole cluster. GPUs that are free may be spread over nodes in a way that does
not suit a job; `reserving.node_timetable` counts by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf

import numpy as np

from polluxsim.common.instants import ROUNDING, has_come

# Fewest unused entries of the arrays of a new timetable, so that the first reservations copy no array.
ROOM = 64


class Timetable:
    """The number of free GPUs from now on, according to known releases and reservations.

    It is a step function in arrays, because there may be thousands of jobs. `releases` are pairs (time, GPUs) of the
    further GPUs that become free [s; GPUs], in order of time, not before now.
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        added: dict[float, int] = {now: free}  # GPUs that become free, by time [s]
        for time, gpus in releases:
            added[time] = added.get(time, 0) + gpus
        self._steps = len(added)
        # Start of each step [s], with ∞ after the last one, and its free GPUs. Unused entries follow.
        self._times = np.full(2 * self._steps + ROOM, inf)
        self._free = np.zeros(len(self._times), dtype=np.int64)
        self._times[: self._steps] = list(added)
        self._free[: self._steps] = list(accumulate(added.values()))

    @property
    def now(self) -> int:
        """Return the GPUs that are free now."""
        return int(self._free[0])

    def intervals(self) -> Iterator[tuple[float, float, int]]:
        """Yield the start, the end and the free GPUs of each step; the last step ends at ∞ [s]."""
        times = self._times[: self._steps + 1].tolist()
        return zip(times, times[1:], self._free[: self._steps].tolist(), strict=False)

    def forward(self, now: float) -> None:
        """Drop the steps before a time [s]."""
        past = int(self._times.searchsorted(now, side="right")) - 1
        self._steps -= past
        # A copy, because the two parts of an array overlap.
        for values in (self._times, self._free):
            values[: len(values) - past] = values[past:].copy()
        self._times[self._steps :] = inf
        self._times[0] = now

    def earliest(self, num_replicas: int, length: float) -> float:
        """Return the start of the first step from which GPUs are free for a length of time; ∞ if there is none [s]."""
        times = self._times
        too_few = (self._free[: self._steps] < num_replicas).nonzero()[0]  # indices of steps
        if not len(too_few):
            return float(times[0])
        # The usual case: enough GPUs are free now, for long enough.
        first_too_few = too_few[0]
        if first_too_few and has_come(times[0] + length, times[first_too_few]):
            return float(times[0])
        # Intervals between the steps that have too few GPUs. An interval between neighbouring steps is empty.
        begins = times[too_few + 1]
        ends = np.append(times[too_few[1:]], inf)
        fits = (begins < ends) & (ends * (1 + ROUNDING) >= begins + length)
        first_fitting = int(fits.argmax())
        # `argmax` returns 0 if nothing fits.
        return float(begins[first_fitting]) if fits[first_fitting] else inf

    def take(self, num_replicas: int, start: float, end: float) -> None:
        """Reserve GPUs from one time to another; a step begins at each of them [s]."""
        first = self._step(start)
        last = self._step(end)
        self._free[first:last] -= num_replicas

    def _step(self, time: float) -> int:
        """Return the index of the step that begins at a time, and insert it if there is none."""
        index = int(self._times.searchsorted(time))
        end = self._steps
        if time == inf or self._times[index] == time:
            return min(index, end)
        # One unused entry must stay, so that `_times` ends with ∞.
        if end + 1 == len(self._times):
            self._times = np.append(self._times, np.full(end, inf))
            self._free = np.append(self._free, np.zeros(end, dtype=np.int64))
        # A copy, because the two parts of an array overlap.
        for values in (self._times, self._free):
            values[index + 1 : end + 1] = values[index:end].copy()
        self._times[index] = time
        self._free[index] = self._free[index - 1]
        self._steps += 1
        return index
