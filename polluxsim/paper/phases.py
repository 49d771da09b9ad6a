"""Phases of a job's life by contention: before the crowd, in it, and after it (A, B and C of Figure 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from polluxsim.look.plot.job_life import Curve, Life

    Array = NDArray[np.float64]

HIGH, LOW = 0.5, 0.25
"""Shares of the most active jobs in a job's life: from the one on it is crowded, up to the other it is not."""


class Phase(NamedTuple):
    """What a job had on average over a phase, weighted by time.

    Attributes
    ----------
    length
        Time with GPUs in it [s].
    gpus
        GPUs held.
    batch_size
        Total [examples].
    batch_size_per_gpu
        [examples].
    efficiency
        Statistical efficiency.
    """

    length: float
    gpus: float
    batch_size: float
    batch_size_per_gpu: float
    efficiency: float


def phases(life: Life, contention: Curve) -> Mapping[str, Phase]:
    """Return the phases in which a job held GPUs.

    B is when at least half as many jobs are active as at most in its life; A is before it and C after it, each only
    while at most a quarter as many are active.

    Parameters
    ----------
    life
        Of the job, with its efficiency.
    contention
        Active jobs meanwhile.

    Raises
    ------
    ValueError
        If the life does not tell the efficiency.
    """
    if life.efficiency is None:
        raise ValueError(f"{life.label}: a life without efficiency, needed is one with it")
    curves = (life.gpus, life.batch_size, life.efficiency)
    edges = np.unique(np.concatenate([curve.edges for curve in (*curves, contention)]))
    starts, lengths = edges[:-1], np.diff(edges)
    gpus, sizes, efficiency = (_at(curve, starts) for curve in curves)
    active = _at(contention, starts)
    crowded = active >= HIGH * active.max()
    first, last = starts[crowded].min(), starts[crowded].max()
    quiet = active <= LOW * active.max()
    masks = {"A": quiet & (starts < first), "B": crowded, "C": quiet & (starts > last)}
    found = {}
    for name, mask in masks.items():
        weights = np.where(mask & (gpus > 0), lengths, 0.0)
        if weights.sum() > 0:
            columns = (gpus, sizes, sizes / np.maximum(gpus, 1), efficiency)
            found[name] = Phase(float(weights.sum()), *(_mean(column, weights) for column in columns))
    return found


def _at(curve: Curve, times: Array) -> Array:
    """Return a curve's value from each time on; nan outside of it."""
    place = np.searchsorted(curve.edges, times, side="right") - 1
    inside = (place >= 0) & (place < len(curve.values))
    values: Array = np.where(inside, curve.values[np.clip(place, 0, len(curve.values) - 1)], np.nan)
    return values


def _mean(values: Array, weights: Array) -> float:
    known = weights > 0
    return float(np.average(values[known], weights=weights[known]))
