"""Finish-time fairness: how long a job took on the shared cluster, over what it takes alone on an equal share of it."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

FAIR = 2.0
"""Below this a job counts as fairly treated in the summary. Source: Pollux (OSDI '21), §5.2.2."""


def mean_contention(starts: ArrayLike, ends: ArrayLike) -> NDArray[np.float64]:
    """Return n̄ of every job: how many jobs were unfinished on average over its life, itself included.

    The number of unfinished jobs is a step function of time; its integral at every step makes each mean one difference,
    so that n jobs cost O(n log n).

    Parameters
    ----------
    starts, ends
        When each job was submitted, and when it was complete or the run was over, both of length n [s].

    Returns
    -------
    NDArray
        Shape (n,), at least 1; 1 also for a job without any life.

    >>> mean_contention([0.0, 0.0, 30.0], [10.0, 20.0, 40.0]).tolist()
    [2.0, 1.5, 1.0]
    """
    begin, end = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    unfinished = np.cumsum(np.repeat([1.0, -1.0], [len(begin), len(end)])[order])
    areas = np.concatenate([[0.0], np.cumsum(unfinished[:-1] * np.diff(times[order]))])[: len(times)]
    area = np.empty(len(times))
    area[order] = areas
    lives = end - begin
    contention: NDArray[np.float64] = np.divide(
        area[len(begin) :] - area[: len(begin)], lives, out=np.ones(len(begin)), where=lives > 0
    )
    return contention.clip(min=1.0)  # what rounding may have taken


def time_on_share(share: float, time_alone: Callable[[int], float]) -> float:
    """Return the completion time alone on `share` > 0 GPUs by that on whole numbers of them, `time_alone` [s].

    Between two whole numbers it is interpolated linearly; below one GPU it is that of one GPU over the share.

    >>> time_on_share(1.5, lambda gpus: 60.0 / gpus), time_on_share(0.25, lambda gpus: 60.0 / gpus)
    (45.0, 240.0)
    """
    if share < 1:
        return time_alone(1) / share
    low, high = floor(share), ceil(share)
    shorter = time_alone(low)
    return shorter if low == high else shorter + (share - low) * (time_alone(high) - shorter)
