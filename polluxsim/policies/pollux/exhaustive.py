"""The exact search of Pollux for small problems: dynamic programming over what the jobs so far have taken.

Jobs come one by one. A state is the number of taken GPUs of each node, and whether a multi-node job is on it. For each
state that the jobs so far can reach, only the best sum of scores counts, because the scores of the later jobs depend on
what is free and not on who took the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper, kernel
from polluxsim.policies.pollux.problem import Problem


def solve_exhaustively(problem: Problem, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    """Return the best allocation, shape (J, N), and its sum of scores.

    `values` are scores by [job, changed, on several nodes, GPUs], shape (J, 2, 2, K + 1).
    """
    nodes = problem.gpus_per_node
    exclusive = problem.avoid_interference
    # The index of a state is a mixed-radix number, so that the state after a row is a sum of two indices. It has a
    # digit for the GPUs of each node, and another one for the multi-node job if nodes have at most one.
    num_kinds = 2 if exclusive else 1
    radix = np.stack([nodes + 1, np.full_like(nodes, num_kinds)], axis=1)
    digits = np.append(1, radix.cumprod()[:-1]).reshape(radix.shape)
    rows = _all_numbers(nodes + 1)  # each way to put one job on the nodes
    taken = _all_numbers(radix.ravel()).reshape(-1, *radix.shape)
    gpus = rows.sum(axis=1)
    is_on_several = (rows > 0).sum(axis=1) > 1
    takes_node_alone = (rows > 0) & is_on_several[:, None] & exclusive
    steps = rows @ digits[:, 0] + takes_node_alone @ digits[:, 1]
    is_in_range = (gpus >= problem.fewest[:, None]) & (gpus <= problem.max_replicas[:, None])
    is_allowed = is_in_range | (gpus == 0)
    changed = (rows != problem.placements[:, None]).any(axis=2).astype(int)
    most_gpus = values.shape[3] - 1
    jobs = np.arange(len(values))[:, None]
    scores = values[jobs, changed, is_on_several.astype(int), np.minimum(gpus, most_gpus)]
    free = taken.copy()
    free[:, :, 0] = nodes - taken[:, :, 0]
    chosen, best = _best_rows(free, rows, steps, np.where(is_allowed, scores, -np.inf))
    return rows[chosen], best


def _all_numbers(radix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the digits of all mixed-radix numbers in rising order, the lowest digit first, shape (numbers, digits).

    >>> _all_numbers(np.array([2, 3])).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]
    """
    digits = np.unravel_index(np.arange(radix.prod()), tuple(radix.tolist()), order="F")
    return np.stack(digits, axis=1)


@kernel
def _best_rows(states, rows, steps, scores):  # type: ignore[no-untyped-def]
    """Return the index of each job's row in the best allocation, shape (J,), and its sum of scores.

    Jobs come one by one and take any row that fits. `states` are free GPUs, and whether a multi-node job is there, by
    [state, node], shape (S, N, 2). `rows` are the possible rows of a job, shape (R, N), and `steps` the differences of
    the index of the state by them, shape (R,). `scores` are −∞ for too few or too many GPUs, shape (J, R).
    """
    reached = np.full(len(states), -np.inf)
    reached[0] = 0.0
    choice = np.full((len(scores), len(states)), -1, dtype=np.int32)
    for j in range(len(scores)):
        before = reached
        reached = np.full(len(states), -np.inf)
        for state in range(len(states)):
            if before[state] == -np.inf:
                continue
            for r in range(len(rows)):
                if scores[j, r] == -np.inf or not _fits(states[state], rows[r]):
                    continue
                after = state + steps[r]
                if before[state] + scores[j, r] > reached[after]:
                    reached[after] = before[state] + scores[j, r]
                    choice[j, after] = r
    state = int(np.argmax(reached))
    best = reached[state]
    chosen = np.zeros(len(scores), dtype=np.int64)
    for j in range(len(scores) - 1, -1, -1):
        chosen[j] = choice[j, state]
        state -= steps[chosen[j]]
    return chosen, best


@helper
def _fits(state, row):  # type: ignore[no-untyped-def]
    """Return whether a row fits into a state: enough free GPUs, and at most one multi-node job on each node."""
    nodes = 0
    multi_node_jobs = 0
    for n in range(len(row)):
        if row[n] > state[n, 0]:
            return False
        if row[n] > 0:
            nodes += 1
            multi_node_jobs += state[n, 1]
    return nodes < 2 or multi_node_jobs == 0
