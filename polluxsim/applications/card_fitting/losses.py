"""The loss of a card: straight lines between a few epochs, chosen where the measured curve bends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.applications.card_fitting.knots import hats
from polluxsim.applications.card_parts import Losses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def fit_losses(losses: Sequence[float], most: int) -> Losses:
    """Fit lines between up to `most` knots to the losses after 1, 2, 3 … epochs, by least squares of their ratios.

    There are no more than half the epochs, so that noise is not copied; each next one is where it leaves the least.

    >>> fit_losses([4.0, 3.0, 2.0, 2.0, 2.0, 2.0], 9).epochs
    (1, 3, 6)
    """
    epochs = range(1, len(losses) + 1)
    knots = sorted({1, len(losses)})
    while len(knots) < min(most, len(losses) // 2):
        longer = (sorted([*knots, new]) for new in epochs if new not in knots)
        knots = min(longer, key=lambda tried: _fit(tried, losses)[1])
    return Losses(tuple(knots), tuple(_fit(knots, losses)[0].tolist()))


def _fit(knots: Sequence[int], losses: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """Return the losses at the knots, and the sum of the squares of what they are off, in parts of each loss."""
    observed = np.array(losses)
    rows = hats(knots, range(1, len(losses) + 1)) / observed[:, None]
    values, *_ = np.linalg.lstsq(rows, np.ones(len(losses)), rcond=None)
    return values, float(((rows @ values - 1.0) ** 2).sum())
