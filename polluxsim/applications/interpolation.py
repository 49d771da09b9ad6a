"""Linear interpolation between knots, on linear or logarithmic axes, constant beyond the outer knots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import log


def bracket(knots: Sequence[float], x: float) -> tuple[int, int, float]:
    """Return the indices of the knots on both sides of x, and the weight of the upper knot in [0, 1].

    `knots` rise. Beyond the outer knots the weight is 0 or 1.

    >>> bracket((1.0, 2.0, 4.0), 3.0)
    (1, 2, 0.5)
    """
    high = min(bisect_right(knots, x), len(knots) - 1)
    low = max(high - 1, 0)
    width = knots[high] - knots[low]
    if not width:  # a single knot
        return low, high, 0.0
    weight = (x - knots[low]) / width
    return low, high, min(max(weight, 0.0), 1.0)


def interpolated(knots: Sequence[float], values: Sequence[float], x: float) -> float:
    """Return the value at x, linear between knots."""
    low, high, weight = bracket(knots, x)
    return values[low] * (1.0 - weight) + values[high] * weight


def log_interpolated(knots: Sequence[float], values: Sequence[float], x: float) -> float:
    """Return the value at x. Its log is linear in log x between knots; knots, values and x are > 0."""
    low, high, weight = bracket([log(knot) for knot in knots], log(x))
    return float(values[low] ** (1.0 - weight) * values[high] ** weight)
