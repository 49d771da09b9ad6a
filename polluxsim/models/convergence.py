"""Fit curves to the losses of a training.

The loss of stochastic gradient descent falls as 1/k. With linear convergence, the loss falls by a factor in each epoch.

Source: Peng et al., "Optimus" (EuroSys '18), §3.1, without its removal of outliers; Zhang et al., "SLAQ" (SoCC '17),
§4.1, without its term in k².
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_POINTS = 3  # fewest losses to which a curve of three figures can be fitted

GRID = 33  # values tried for the nonlinear parameter in each round
ROUNDS = 5  # number of rounds, each around the best value so far
SMALLEST_FACTOR = 1.0 / GRID  # lower bound of the factor of a decay

Curve: TypeAlias = Callable[[float], float]  # function from a number of epochs, also fractional, to the loss


@dataclass(frozen=True, slots=True)
class Hyperbola:
    """The loss 1/(a·k + b) + c after k epochs, with a, b, c ≥ 0. A loss has any unit."""

    slope: float  # a [1/loss]
    offset: float  # b [1/loss]
    floor: float  # c [loss]

    def __call__(self, epochs: float) -> float:
        """Return the loss after `epochs` epochs."""
        return 1.0 / (self.slope * epochs + self.offset) + self.floor

    def drop(self, epochs: float) -> float:
        """Return the decrease of the loss in the epoch that follows `epochs` epochs."""
        return self(epochs) - self(epochs + 1)

    def flat_after(self, drop: float) -> float:
        """Return the epochs after which the loss decreases by less than `drop` in an epoch.

        0 if the loss is constant; otherwise ∞ for a drop of 0.
        """
        if not self.slope:
            return 0.0
        if drop <= 0:
            return inf
        # Solve a/(x·(x + a)) = drop for x = a·k + b.
        x = (sqrt(self.slope**2 + 4.0 * self.slope / drop) - self.slope) / 2.0
        return max((x - self.offset) / self.slope, 0.0)


@dataclass(frozen=True, slots=True)
class Decay:
    """The loss a·µ^k + c after k epochs, with a, c ≥ 0 and µ in (0, 1). A loss has any unit."""

    scale: float  # a [loss]
    factor: float  # µ [1]
    floor: float  # c [loss]

    def __call__(self, epochs: float) -> float:
        """Return the loss after `epochs` epochs."""
        return float(self.scale * self.factor**epochs + self.floor)


def fit_hyperbola(losses: Sequence[float], forgetting: float = 1.0) -> Hyperbola:
    """Fit a hyperbola to three or more losses > 0, after 1, 2, 3 … epochs, by least squares.

    `forgetting` is the weight of a loss relative to the next loss, in (0, 1].
    """
    # For a given c, 1/(loss − c) is linear in k. The weights restore the errors of the loss itself, because its inverse
    # is fitted.
    observed = np.array(losses)
    weights = _weights(len(losses), forgetting)
    k = np.arange(1.0, len(losses) + 1, dtype=np.float64)

    def fit(floors: Array) -> tuple[Array, Array, Array]:
        """Return the slope, the offset and the error of the best hyperbola for each floor c, shapes (floors,)."""
        above = observed - floors[:, None]
        slopes, offsets = _lines(k, 1.0 / above, weights * (above * above) ** 2)
        errors = 1.0 / (slopes[:, None] * k + offsets[:, None]) - above
        return slopes, offsets, np.sum(weights * errors * errors, axis=1)

    floor, (slope, offset, _) = _best(fit, 0.0, min(losses))
    return Hyperbola(slope, offset, floor)


def fit_decay(losses: Sequence[float], forgetting: float = 1.0) -> Decay:
    """Fit a decay to losses as `fit_hyperbola` does. For a given µ, the loss is linear in µ^k."""
    observed = np.array(losses)
    weights = _weights(len(losses), forgetting)

    def fit(factors: Array) -> tuple[Array, Array, Array]:
        """Return the scale, the floor and the error of the best decay for each factor µ, shapes (factors,)."""
        # As products, because the last bits of NumPy's powers depend on the processor.
        powers = np.cumprod(np.repeat(factors[:, None], len(losses), axis=1), axis=1)
        scales, floors = _lines(powers, np.broadcast_to(observed, powers.shape), np.broadcast_to(weights, powers.shape))
        errors = scales[:, None] * powers + floors[:, None] - observed
        return scales, floors, np.sum(weights * errors * errors, axis=1)

    factor, (scale, floor, _) = _best(fit, SMALLEST_FACTOR, 1.0)
    return Decay(scale, factor, floor)


def fit_best(losses: Sequence[float], forgetting: float) -> Curve:
    """Return the hyperbola or the decay, whichever has the smaller error; recent losses have larger weights."""
    weights = _weights(len(losses), forgetting).tolist()

    def error(curve: Curve) -> float:
        """Return the weighted sum of squared errors of a curve."""
        errors = []
        for epoch, (weight, loss) in enumerate(zip(weights, losses, strict=True), start=1):
            errors.append(weight * (curve(epoch) - loss) ** 2)
        return fsum(errors)

    curves: tuple[Curve, Curve] = fit_hyperbola(losses, forgetting), fit_decay(losses, forgetting)
    return min(curves, key=error)


def last_drop(losses: Sequence[float]) -> float:
    """Return the decrease of the hyperbola through all losses of a training in the epoch after the last.

    A training that stops below this decrease has as many epochs as losses. Return 0 if there are too few losses.
    """
    if len(losses) < LEAST_POINTS:
        return 0.0
    return fit_hyperbola(losses).drop(len(losses))


def _weights(count: int, forgetting: float) -> Array:
    """Return the weights of `count` losses, shape (count,): `forgetting` for the last, its square for the one before.

    Only ratios of the weights matter.
    """
    return np.cumprod(np.full(count, forgetting))[::-1]


def _best(
    fit: Callable[[Array], tuple[Array, Array, Array]], low: float, high: float
) -> tuple[float, tuple[float, float, float]]:
    """Return the value in [low, high) with the least error, as far as finer and finer grids show it, and its fit.

    `fit` returns two coefficients and the sum of squared errors for each value, as arrays of the shape of the values.
    """
    for _ in range(ROUNDS):
        step = (high - low) / GRID
        tried = low + step * np.arange(GRID, dtype=np.float64)
        fitted = fit(tried)
        best = int(np.argmin(fitted[2]))
        low = max(float(tried[best]) - step, low)
        high = min(float(tried[best]) + step, high)
    first, second, error = fitted
    return float(tried[best]), (float(first[best]), float(second[best]), float(error[best]))


def _lines(x: NDArray[Any], y: Array, weights: Array) -> tuple[Array, Array]:
    """Return slope and intercept ≥ 0 of the least-squares line through each row of points, shapes (rows,)."""
    # Weighted sums of 1, x, x², y and xy, each of shape (rows,).
    s_1 = np.sum(weights * np.ones_like(y), axis=1)
    s_x = np.sum(weights * (x + 0 * y), axis=1)  # 0·y gives x the shape of y
    s_xx = np.sum(weights * (x * x + 0 * y), axis=1)
    s_y = np.sum(weights * y, axis=1)
    s_xy = np.sum(weights * (x * y), axis=1)
    determinant = s_1 * s_xx - s_x * s_x
    # Rounding can make it 0 or less if all x are nearly equal. The result is then the flat line below.
    safe = np.where(determinant > 0, determinant, 1.0)
    slope = (s_1 * s_xy - s_x * s_y) / safe
    intercept = (s_xx * s_y - s_x * s_xy) / safe
    is_flat = (slope < 0) | (determinant <= 0)
    is_steep = intercept < 0
    # The best line with slope 0 is level at the mean; the best one with intercept 0 begins at the origin.
    slope = np.where(is_flat, 0.0, np.where(is_steep, s_xy / s_xx, slope))
    intercept = np.where(is_flat, s_y / s_1, np.where(is_steep, 0.0, intercept))
    return slope, intercept
