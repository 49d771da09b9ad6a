"""Idle GPUs for jobs to whom the objective is indifferent, as at the moment of their submission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polluxsim.policies.pollux.problem import Problem


def with_idle_gpus(problem: Problem, allocation: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an allocation, shape (J, N), in which waiting jobs have idle GPUs wherever that changes no fitness.

    At age 0, and after as many restarts as a job is old, the restart factor is 0: nothing that the job could be given
    counts in this round, so a start gains nothing in the objective and costs nothing. Jobs come in their order of
    precedence; each gets GPUs of one node, the fewest with the largest speedup, where they fit best.
    """
    indifferent = (problem.restart_factors == 0.0) & _waits(problem, allocation)
    if not indifferent.any():
        return allocation
    filled = allocation.copy()
    free = problem.gpus_per_node - filled.sum(axis=0)
    for row in np.flatnonzero(indifferent).tolist():
        most = min(int(problem.max_replicas[row]), int(free.max()))
        speedups = problem.speedups[row, 0, : most + 1].copy()
        speedups[1 : problem.fewest[row]] = 0.0
        gpus = int(speedups.argmax())
        if gpus:
            node = int(np.where(free >= gpus, free, free.max() + 1).argmin())
            filled[row, node] = gpus
            free[node] -= gpus
    return filled


def could_start(problem: Problem) -> bool:
    """Return whether the GPUs that are idle before the round suffice for a job that waits."""
    idle = problem.gpus_per_node.sum() - problem.placements.sum()
    fits = (problem.fewest <= idle) & (problem.max_replicas > 0)
    return bool((_waits(problem, problem.placements) & fits).any())


def _waits(problem: Problem, allocation: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which jobs have no GPU, neither before the round nor in an allocation, shape (J,)."""
    waits: NDArray[np.bool_] = (problem.placements.sum(axis=1) == 0) & (allocation.sum(axis=1) == 0)
    return waits
