"""The free GPUs of each node from now on, according to known releases and reservations.

It is the counterpart of `polluxsim.policies.tools.timetable.Timetable` for jobs whose GPUs must be on certain numbers
of nodes: then the number of all free GPUs does not tell whether a job fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.instants import ROUNDING
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import Placement
from polluxsim.policies.tools.free_gpus import FreeGpus

ROOM = 64  # unused steps of the arrays of a new timetable


class NodeTimetable:
    """The free GPUs of each node from now on, as a step function in arrays.

    Parameters
    ----------
    now
        Present time [s].
    free
        GPUs of each node that are free now.
    releases
        Pairs (time [s], placement) of the GPUs that become free, in order of time, not before now.
    """

    def __init__(self, now: float, free: Sequence[int], releases: Iterable[tuple[float, Placement]] = ()) -> None:
        times = [now]
        steps = [list(free)]
        for time, placement in releases:
            if time > times[-1]:
                times.append(time)
                steps.append(list(steps[-1]))
            for node, gpus in placement:
                steps[-1][node] += gpus
        self._num_steps = len(times)
        # Start of each step [s], with ∞ after the last one, and its free GPUs on each node. Unused entries follow.
        self._times = np.full(2 * len(times) + ROOM, inf)
        self._times[: len(times)] = times
        self._free = np.zeros((len(self._times), len(free)), dtype=np.int64)
        self._free[: len(times)] = steps

    def forward(self, now: float) -> None:
        """Drop the steps before a time [s]."""
        past = int(self._times.searchsorted(now, side="right")) - 1
        self._num_steps -= past
        for values in (self._times, self._free):
            values[: len(values) - past] = values[past:].copy()
        self._times[self._num_steps :] = inf
        self._times[0] = now

    def reserve(self, shape: Shape, length: float) -> tuple[float, Placement]:
        """Return the first start from which a job fits on the same nodes for a length of time [s], and its placement.

        The start is ∞, and the placement empty, if the job never fits. This method takes no GPUs.
        """
        starts = self._times[: self._num_steps]
        ends = self._times[1 : self._num_steps + 1]
        too_few = (~self._fits(shape)).nonzero()[0]  # steps in which the job does not fit
        for first in range(self._num_steps):
            # A quick test: until which time the job fits in each step, whichever nodes it would use.
            until = inf
            next_too_few = int(too_few.searchsorted(first))
            if next_too_few < len(too_few):
                until = starts[too_few[next_too_few]]
            end = starts[first] + length
            if until == starts[first] or until * (1 + ROUNDING) < end:
                continue
            # The exact test: whether it fits on the same nodes all the time.
            last = int(ends.searchsorted(end * (1 - ROUNDING)))
            lowest_free = self._free[first : last + 1].min(axis=0)
            placement = FreeGpus(lowest_free.tolist()).pack_shape(shape)
            if placement is not None:
                return float(starts[first]), placement
        return inf, ()

    def take(self, placement: Placement, start: float, end: float) -> None:
        """Take GPUs from one time to another; a step begins at each of them [s]."""
        first = self._step(start)
        last = self._step(end)
        for node, gpus in placement:
            self._free[first:last, node] -= gpus

    def _fits(self, shape: Shape) -> NDArray[np.bool_]:
        """Return whether a job fits in each step, shape (steps,)."""
        free = self._free[: self._num_steps]
        if not shape.parts:
            size = shape.gpus_per_task
            enough: NDArray[np.bool_] = (free // size).sum(axis=1) * size >= shape.gpus
            return enough
        fits = np.ones(len(free), dtype=bool)
        for part in dict.fromkeys(shape.parts):
            # The parts are in falling order, so all parts up to the last one of this size are at least as large.
            num_parts = sum(other >= part for other in shape.parts)
            fits &= (free >= part).sum(axis=1) >= num_parts
        return fits

    def _step(self, time: float) -> int:
        """Return the index of the step that begins at a time, and insert it if there is none; for ∞, the end."""
        index = int(self._times.searchsorted(time))
        end = self._num_steps
        if time == inf or self._times[index] == time:
            return min(index, end)
        # The last entry must stay ∞, and the arrays double, so that many insertions cost little each.
        if end + 1 == len(self._times):
            self._times = np.append(self._times, np.full(end, inf))
            self._free = np.append(self._free, np.zeros((end, self._free.shape[1]), dtype=np.int64), axis=0)
        for values in (self._times, self._free):
            values[index + 1 : end + 1] = values[index:end].copy()
        self._times[index] = time
        self._free[index] = self._free[index - 1]
        self._num_steps += 1
        return index
