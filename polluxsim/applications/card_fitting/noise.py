"""Fit the noise scale: cut training into stages, and draw one curve over the batch size in each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from polluxsim.applications.card_fitting.knots import knots_over, log_hats
from polluxsim.applications.card_parts import NoiseScales

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polluxsim.applications.card import CardSize
    from polluxsim.applications.measured import MeasuredProfile

LEAST_SQR_SHARE = 1e-9
"""Below this sqr/(sqr + var) no batch size in use gains or loses: it stands for an infinite noise scale."""

NOISE_SCALE_WEIGHT = 1e-3
"""What an error of log φ counts beside one of efficiency; it decides where the batch size hardly matters."""


def fit_noise(measured: MeasuredProfile, size: CardSize) -> NoiseScales:
    """Cut training into stages, and fit a noise scale at some batch sizes in each."""
    batch_sizes = np.array(sorted(measured.validations), dtype=float)
    shares = _sqr_shares(measured)
    extra = batch_sizes / batch_sizes[0] - 1.0
    ends = best_cuts(np.log1p(extra * shares), size.noise_stages)
    # A batch of M0 is worth one step whatever the noise: it has no say, and needs no knot of its own.
    several = batch_sizes[1:].astype(int).tolist() if len(batch_sizes) > 1 else [int(batch_sizes[0])]
    knots = knots_over(several, size.noise_knots)
    table = []
    for start, end in pairwise([0, *ends]):
        stage = shares[start:end].mean(axis=0)
        table.append(_fit_noise_curve(batch_sizes, stage, knots))
    return NoiseScales(tuple(ends), knots, tuple(table))


def _sqr_shares(measured: MeasuredProfile) -> NDArray[np.float64]:
    """Return q = sqr/(sqr + var) by epoch and validated batch size, shape (epochs, sizes)."""
    epochs = range(measured.application.num_epochs)
    runs = [run for _, run in sorted(measured.validations.items())]
    rows = np.array([[(run[epoch].grad_sqr, run[epoch].grad_var) for run in runs] for epoch in epochs])
    total = rows.sum(axis=2)
    # Without any gradient the gain is 1, as it is where all of it is sqr.
    shares: NDArray[np.float64] = np.divide(rows[:, :, 0], total, out=np.ones_like(total), where=total > 0)
    return shares


def best_cuts(series: NDArray[np.float64], most: int) -> list[int]:
    """Return the ends of the stages that leave the least sum of squares around each stage's mean.

    Of a series of shape (n, k) at most n stages are made, and at most `most`; ends rise, the last is n.

    >>> best_cuts(np.array([[0.0], [0.1], [5.0], [5.1]]), 2)
    [2, 4]
    """
    n = len(series)
    sums = np.vstack([np.zeros(series.shape[1]), np.cumsum(series, axis=0)])
    squares = np.append(0.0, np.cumsum((series**2).sum(axis=1)))

    def left(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return float(squares[end] - squares[start] - (total**2).sum() / (end - start))

    # cost[end], ends: the best way to cut the first `end` rows into as many stages as the loop has passed.
    best: dict[int, tuple[float, list[int]]] = {end: (left(0, end), [end]) for end in range(1, n + 1)}
    for stages in range(2, min(most, n) + 1):
        best = {
            end: min((best[cut][0] + left(cut, end), [*best[cut][1], end]) for cut in range(stages - 1, end))
            for end in range(stages, n + 1)
        }
    return best[n][1]


def _fit_noise_curve(
    batch_sizes: NDArray[np.float64], shares: NDArray[np.float64], knots: tuple[int, ...]
) -> tuple[float, ...]:
    """Fit φ(M) to 1/efficiency = 1 + (M/M0 − 1)·q, which is what a fixed batch size's time depends on."""
    first, extra = batch_sizes[0], batch_sizes / batch_sizes[0] - 1.0
    shares = np.clip(shares, LEAST_SQR_SHARE, 1.0 - LEAST_SQR_SHARE)
    hats = log_hats(knots, batch_sizes)
    logs = np.log(first * (1.0 / shares - 1.0))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        fitted = first / (np.exp(hats @ x) + first)
        off = np.log1p(extra * fitted) - np.log1p(extra * shares)
        return np.append(off, NOISE_SCALE_WEIGHT * (hats @ x - logs))

    start, *_ = np.linalg.lstsq(hats, logs, rcond=None)
    return tuple(np.exp(least_squares(residuals, start).x).tolist())
