"""Where the curves of a card have their knots, and how measured points weigh on them."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.applications.interpolation import bracket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


def knots_over(measured: Iterable[int], most: int) -> tuple[int, ...]:
    """Return up to `most` whole knots in geometric steps over the range of the measured values."""
    sizes = sorted(set(measured))
    number = min(most, len(sizes))
    return tuple(sorted({round(x) for x in np.geomspace(sizes[0], sizes[-1], number)}))


def hats(knots: Sequence[float], points: Iterable[float]) -> NDArray[np.float64]:
    """Return the weight of each knot in the linear interpolation at each point, shape (points, knots)."""
    rows = []
    for x in points:
        row = np.zeros(len(knots))
        low, high, weight = bracket(knots, x)
        row[low] += 1.0 - weight
        row[high] += weight
        rows.append(row)
    return np.array(rows)


def log_hats(knots: Sequence[float], points: Iterable[float]) -> NDArray[np.float64]:
    """Return the same for an interpolation that is linear in the logarithm."""
    return hats([log(knot) for knot in knots], [log(x) for x in points])
