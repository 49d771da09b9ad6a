"""The market: how many rounds of a window each job gets, as an integer programme."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.policies.quiet import without_chatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.policies.shockwave.prospects import Prospect

BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Parts of all epochs between which the logarithm is taken for straight."""

LOG_OF_NOTHING = 1e-6
_GAP = 1e-3


class Window(NamedTuple):
    """The rounds that are planned at a time."""

    rounds: int  # how many
    length: float  # of each [s]
    gpus: int  # GPUs there are
    weight_of_longest: float  # what a second of the longest job's rest counts against mean utility


def planned_rounds(
    jobs: Sequence[Prospect], weights: Sequence[float], least: Sequence[int], window: Window
) -> list[int]:
    """Return the number of rounds of the window that each job gets.

    The counts maximise the mean over jobs of weight × log (share of its epochs that a job has done after the window),
    minus the time that the longest job then has left. Each job gets at least its `least` rounds.

    The published programme has a binary for each job and round. A count for each job is a relaxation of it: the GPU
    rounds of all jobs fit into the window, and so do the gangs of each width and more, but not all of these counts can
    be packed into rounds. On 2 GPUs, for example, 1 round of a job of 2 GPUs and 3 rounds of a job of 1 GPU fit into 3
    rounds by their counts, and need 4 rounds. The policy then runs fewer gangs than planned, and plans again after
    `resolve` rounds.

    Source: Zheng et al., Shockwave (NSDI '23), §4.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (slow to load, and only for Shockwave)

    count = len(jobs)
    # Unknowns: rounds n, epochs e, utilities u, rests (in rounds) of all jobs, then the longest rest.
    n, e, u, rest = (np.eye(count, 4 * count + 1, k=part * count) for part in range(4))
    longest = np.eye(1, 4 * count + 1, k=4 * count)
    epoch = np.array([[job.epoch_time / window.length] for job in jobs])
    epochs, done = np.array([job.epochs for job in jobs]), np.array([job.done for job in jobs])
    left = np.array([job.left / window.length for job in jobs])
    rows = [epoch * e - n, -epoch * e - rest, rest - longest, np.array([[job.width for job in jobs]]) @ n]
    limits = [np.zeros(count), -left, np.zeros(count), np.array([float(window.rounds * window.gpus)])]
    for slope, start in _lines():
        rows.append(u - slope * e / epochs[:, None])
        limits.append(start + slope * done / epochs)
    for at_least, gangs in _gangs_at_once([job.width for job in jobs], window.gpus):
        rows.append(np.array([[float(job.width >= at_least) for job in jobs]]) @ n)
        limits.append(np.array([float(window.rounds * gangs)]))
    worth = np.array(weights) @ u / (count * window.rounds)
    lower = np.concatenate(
        [np.array(least, dtype=float), np.zeros(count), np.full(count, -np.inf), np.zeros(count + 1)]
    )
    upper = np.concatenate([np.full(count, float(window.rounds)), epochs - done, np.full(2 * count + 1, np.inf)])
    with without_chatter():
        found = milp(
            window.weight_of_longest * window.length * longest[0] - worth,
            integrality=np.arange(4 * count + 1) < count,
            bounds=Bounds(lower, upper),
            constraints=LinearConstraint(np.vstack(rows), ub=np.concatenate(limits)),
            options={"mip_rel_gap": _GAP},
        )
    if found.x is None:
        raise ArithmeticError(f"no plan: {found.message}")
    return [round(rounds) for rounds in found.x[:count]]


def _gangs_at_once(widths: Sequence[int], gpus: int) -> list[tuple[int, int]]:
    """Return pairs (width, number of gangs of at least this width that fit at once).

    A width that divides the number of GPUs is left out, because the limit of GPU rounds implies its limit.

    >>> _gangs_at_once([3, 2, 3], 4)
    [(3, 1)]
    """
    return [(width, gpus // width) for width in sorted(set(widths)) if gpus % width]


def _lines() -> list[tuple[float, float]]:
    """Return slope and start of the straight lines between `BASES` that the logarithm is taken for."""
    points = [(base, log(base or LOG_OF_NOTHING)) for base in BASES]
    slopes = [((y1 - y0) / (x1 - x0), x0, y0) for (x0, y0), (x1, y1) in pairwise(points)]
    return [(slope, y - slope * x) for slope, x, y in slopes]


def fair_rounds(jobs: Sequence[Prospect], spare: Sequence[float], window: Window) -> list[int] | None:
    """Return the rounds that each job needs to have no more left than it can spare [s]; None if they do not fit."""
    needed = [max(ceil((job.left - rest) / window.length - 1e-9), 0) for job, rest in zip(jobs, spare, strict=True)]
    gpus = sum(job.width * rounds for job, rounds in zip(jobs, needed, strict=True))
    possible = min(spare, default=0.0) >= 0 and max(needed, default=0) <= window.rounds
    for width, gangs in _gangs_at_once([job.width for job in jobs], window.gpus):
        wide = sum(rounds for job, rounds in zip(jobs, needed, strict=True) if job.width >= width)
        possible = possible and wide <= window.rounds * gangs
    return needed if possible and gpus <= window.rounds * window.gpus else None
