"""Measures of the progress of a job, from its work and its speeds in each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from polluxsim.statistics.bounds.problem import Array, Measure, Mode
from polluxsim.statistics.bounds.speeds import SpeedBounds

LEVELS = (0.01, 0.1, inf)
"""Prices of a GPU for one second [s], for each of which there is a measure. With ∞, only GPU time counts."""

EQUAL = 1e-9  # measures whose weights differ by less than this share are the same


def measures_of(works: Array, speeds: Mapping[int, SpeedBounds]) -> tuple[Measure, ...]:
    """Return measures of the progress of a job.

    Its epochs have the `works` [M0-steps], and it has `speeds` by pool. A measure adds up the work of all epochs with a
    weight for each epoch. In the first measure it is the time at full speed. In each other one it is the least cost at
    which a job could do the work if a GPU had a constant price, and a second the price 1: the best measure at this
    price. The rate of a mode is its highest rate in any epoch, so that the order of the epochs does not matter.
    """
    with np.errstate(divide="ignore"):
        costs = {pool: 1 / of_pool.rates for pool, of_pool in speeds.items()}
    weights = [_weights(speeds, costs, 0.0)]
    if len(works) > 1:  # with one epoch, all measures are the same
        weights += [_weights(speeds, costs, level) for level in LEVELS]
    measures: list[Measure] = []
    different: list[Array] = []
    for weight in weights:
        scaled = weight / weight.max()  # only the ratios of weights matter
        if any(np.allclose(scaled, other, rtol=EQUAL, atol=0) for other in different):
            continue
        different.append(scaled)
        modes: list[Mode] = []
        for pool, of_pool in speeds.items():
            rates = (of_pool.rates * weight[:, None]).max(axis=0)
            modes += [Mode(pool, float(gpus), float(rate)) for gpus, rate in corners(of_pool.counts, rates.tolist())]
        measures.append(Measure(float(works @ weight), tuple(modes)))
    return tuple(measures)


def _weights(speeds: Mapping[int, SpeedBounds], costs: Mapping[int, Array], level: float) -> Array:
    """Return the least cost of one unit of work in each epoch, if a second costs 1 and a GPU for a second `level`.

    With the level ∞, only the GPU time costs, and a GPU for a second costs 1.
    """
    least = []
    for pool, of_pool in speeds.items():
        counts = np.array(of_pool.counts, float)
        prices = counts if level == inf else 1 + level * counts
        least.append((costs[pool] * prices).min(axis=1))
    weights: Array = np.min(least, axis=0)
    return weights


def corners(counts: Sequence[float], rates: Sequence[float]) -> list[tuple[float, float]]:
    """Return the corners of the upper concave hull of rates by numbers of GPUs, as pairs (GPUs, rate).

    The hull begins at no GPUs with the rate 0, and ends at the highest rate.

    >>> corners([1, 2, 4, 8], [1.0, 1.4, 3.0, 2.9])
    [(1, 1.0), (4, 3.0)]
    """
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for count, rate in zip(counts, rates, strict=True):
        if rate <= hull[-1][1]:
            continue
        while len(hull) > 1:
            (gpus, low), (more_gpus, high) = hull[-2:]
            if (high - low) * (count - gpus) > (rate - low) * (more_gpus - gpus):
                break
            hull.pop()
        hull.append((count, rate))
    return hull[1:]
