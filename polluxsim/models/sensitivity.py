"""Speed of a job by the CPUs and memory for each of its GPUs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf, nextafter
from typing import Any, TypeAlias, TypeGuard

from polluxsim.hardware.hosts import Host

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs (amount per GPU, speed), with rising amounts and non-decreasing speeds; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Speeds by CPUs and by memory, relative to the job's profile or duration.

    Loading data, preparing data and computing overlap, so the smaller of both speeds counts. Below its first pair a
    curve falls linearly to 0; above its last pair it is constant.

    >>> alexnet = Sensitivity(((3, 1.0), (12, 2.94)), ((20, 0.1), (62.5, 2.0), (125, 2.94)))
    >>> alexnet.speed(Host(3, 62.5)), alexnet.speed(Host(12, 62.5)), alexnet.full
    (1.0, 2.0, 2.94)

    Source: Mohan et al., Synergy (OSDI '22), §4.1. Its measured tables are minima of both speeds.
    """

    cpus: Curve = ()  # speed by CPUs per GPU [cores], limited by the preparation of data
    memory: Curve = ()  # speed by memory per GPU [GB], limited by the data that does not fit in the cache

    def speed(self, host: Host) -> float:
        """Return the speed with these CPUs and memory per GPU; infinite without a curve."""
        return min(_at(self.cpus, host.cpus), _at(self.memory, host.memory))

    @property
    def full(self) -> float:
        """Return the speed with enough CPUs and memory; infinite without a curve."""
        # Above its last pair, a curve is constant.
        return min(_at(self.cpus, inf), _at(self.memory, inf))

    def least(self, speed: float, otherwise: Host) -> Host:
        """Return the least CPUs and memory per GPU for a speed; without a curve, those of `otherwise`.

        For a speed above a curve, return the amount from which on more has no effect.
        """
        cpus = otherwise.cpus
        if self.cpus:
            cpus = _least(self.cpus, speed)
        memory = otherwise.memory
        if self.memory:
            memory = _least(self.memory, speed)
        return Host(cpus, memory)


def are_pairs(value: object) -> TypeGuard[tuple[tuple[Any, Any], ...]]:
    """Return whether a value is a tuple of tuples of two values."""
    return isinstance(value, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)


def is_curve(value: object) -> bool:
    """Return whether a value is a `Curve`: pairs of numbers > 0 with rising amounts and non-decreasing speeds."""
    if not are_pairs(value):
        return False
    for number in chain.from_iterable(value):
        # By type, because True is a number for Python.
        if type(number) not in (int, float) or not 0 < number < inf:
            return False
    return all(first[0] < second[0] and first[1] <= second[1] for first, second in pairwise(value))


def _at(curve: Curve, amount: float) -> float:
    """Return the speed of a curve at an amount per GPU."""
    if not curve:
        return inf
    if amount >= curve[-1][0]:
        return curve[-1][1]
    after = bisect_right(curve, (amount, inf))
    before, low = curve[after - 1] if after else (0.0, 0.0)
    if amount == before:
        return low
    above, high = curve[after]
    return low + (high - low) * (amount - before) / (above - before)


def _least(curve: Curve, speed: float) -> float:
    """Return the least amount per GPU with at least this speed; the last amount of the curve if it is too slow."""
    after = bisect_left(curve, speed, key=lambda pair: pair[1])
    if after == len(curve):
        return curve[-1][0]
    before, low = curve[after - 1] if after else (0.0, 0.0)
    above, high = curve[after]
    if speed == high:
        return above
    amount = before + (above - before) * (speed - low) / (high - low)
    while _at(curve, amount) < speed:  # an error of rounding
        amount = nextafter(amount, inf)
    return amount
