"""The exact optimum of a small problem: dynamic programming over what is left on every node."""

from __future__ import annotations

import numpy as np

from polluxsim.kernels import helper, kernel


@kernel
def count_steps(num_jobs, gpus_per_node, avoid_interference, most):  # type: ignore[no-untyped-def]
    """Return the steps of the exhaustive search (jobs × states × rows), or `most` if they are more."""
    steps = num_jobs
    for gpus in gpus_per_node:
        steps *= (gpus + 1) * (gpus + 1) * (2 if avoid_interference else 1)
        if steps >= most:
            return most
    return steps


@kernel
def solve_exhaustively(values, placements, gpus_per_node, limits, avoid_interference):  # type: ignore[no-untyped-def]
    """Return the best allocation, shape (J, N), and its sum of scores.

    A state says how many GPUs of each node are taken, and whether a multi-node job is on it; jobs come one by
    one and take every row that fits. `values` are scores by [job, changed, on several nodes, GPUs], shape (J,
    2, 2, K + 1). `limits` are the fewest and the most GPUs of each job that gets GPUs, shape (J, 2).
    """
    num_jobs, num_nodes = placements.shape
    rows, codes = _all_rows(gpus_per_node, avoid_interference)
    left, num_states = _what_is_left(gpus_per_node, avoid_interference)
    reached = np.full(num_states, -np.inf)
    reached[0] = 0.0
    choice = np.full((num_jobs, num_states), -1, dtype=np.int32)
    for j in range(num_jobs):
        before = reached
        reached = np.full(num_states, -np.inf)
        scores = _row_scores(rows, values[j], placements[j], limits[j])
        for state in range(num_states):
            if before[state] == -np.inf:
                continue
            for r in range(len(rows)):
                if scores[r] == -np.inf or not _fits(left[state], rows[r]):
                    continue
                after = state + codes[r]
                if before[state] + scores[r] > reached[after]:
                    reached[after] = before[state] + scores[r]
                    choice[j, after] = r
    state = int(np.argmax(reached))
    best = reached[state]
    answer = np.zeros((num_jobs, num_nodes), dtype=np.int64)
    for j in range(num_jobs - 1, -1, -1):
        r = choice[j, state]
        answer[j] = rows[r]
        state -= codes[r]
    return answer, best


@helper
def _all_rows(gpus_per_node, avoid_interference):  # type: ignore[no-untyped-def]
    """Return every row of one job on an empty cluster, shape (R, N), and what each adds to a state."""
    num_rows = 1
    for gpus in gpus_per_node:
        num_rows *= gpus + 1
    rows, codes = np.zeros((num_rows, len(gpus_per_node)), dtype=np.int64), np.zeros(num_rows, dtype=np.int64)
    for r in range(num_rows):
        rest, nodes = r, 0
        for n in range(len(gpus_per_node)):
            rows[r, n] = rest % (gpus_per_node[n] + 1)
            rest //= gpus_per_node[n] + 1
            nodes += rows[r, n] > 0
        place = 1
        for n in range(len(gpus_per_node)):
            codes[r] += place * rows[r, n]
            place *= gpus_per_node[n] + 1
            if avoid_interference:
                codes[r] += place * (nodes > 1 and rows[r, n] > 0)
                place *= 2
    return rows, codes


@helper
def _what_is_left(gpus_per_node, avoid_interference):  # type: ignore[no-untyped-def]
    """Return free GPUs and multi-node jobs by [state, node, which of the two], and the number of states."""
    num_states, flags = 1, 2 if avoid_interference else 1
    for gpus in gpus_per_node:
        num_states *= (gpus + 1) * flags
    table = np.zeros((num_states, len(gpus_per_node), 2), dtype=np.int64)
    for state in range(num_states):
        rest = state
        for n in range(len(gpus_per_node)):
            table[state, n, 0] = gpus_per_node[n] - rest % (gpus_per_node[n] + 1)
            rest //= gpus_per_node[n] + 1
            table[state, n, 1] = rest % flags
            rest //= flags
    return table, num_states


@helper
def _fits(state, row):  # type: ignore[no-untyped-def]
    """Return whether a row fits into a state."""
    nodes, others = 0, 0
    for n in range(len(row)):
        if row[n] > state[n, 0]:
            return False
        if row[n] > 0:
            nodes += 1
            others += state[n, 1]
    return nodes < 2 or others == 0


@helper
def _row_scores(rows, values, placement, limits):  # type: ignore[no-untyped-def]
    """Return a job's score on every row, shape (R,); −∞ where it has too few or too many GPUs."""
    scores = np.full(len(rows), -np.inf)
    for r in range(len(rows)):
        gpus, nodes, changed = 0, 0, 0
        for n in range(rows.shape[1]):
            gpus += rows[r, n]
            nodes += rows[r, n] > 0
            changed |= rows[r, n] != placement[n]
        if gpus == 0 or limits[0] <= gpus <= limits[1]:
            scores[r] = values[changed, 1 if nodes > 1 else 0, gpus]
    return scores
