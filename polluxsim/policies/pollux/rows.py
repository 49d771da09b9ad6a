"""Whole rows on and off the nodes: the moves of the local search and of the constructive start, compiled.

A job's row is its GPUs on every node. Placing a row updates the free GPUs of each node, its jobs, and the score of each
job. The cost depends on the row, and not on the size of the cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.common.kernels import inlined, kernel

# Kernels would be compiled again for each literal argument; NumPy's numbers are of one type.
# Kinds of rows: the present placement; new, on one node; new, on several.
KEEP, SINGLE, SEVERAL = np.int64(0), np.int64(1), np.int64(2)

# Levels of the price of a GPU: none, and the worth of one more.
FREE, PRICED = np.int64(0), np.int64(1)

FIRST_NODE = np.int64(0)
NOTHING = np.int64(0)


class Round(NamedTuple):
    """What is fixed in a round, as the kernels need it; J jobs, N nodes, at most K GPUs a job."""

    placements: np.ndarray  # GPUs before the round, shape (J, N)
    present_nodes: np.ndarray  # the nodes of each present placement, then −1, shape (J, W)
    present_count: np.ndarray  # how many those are, shape (J,)
    # Scores, as `ScoreTables` says.
    keep: np.ndarray
    single: np.ndarray
    several: np.ndarray
    gpus_per_node: np.ndarray  # GPUs of each node, shape (N,)
    exclusive: bool  # whether a node may have one multi-node job at most
    # GPUs with the best score after their price among 0 to k (2 to k), by [price level, job, k], shape (2, J, K + 1);
    # at level 0 GPUs are free, at level 1 they have the price.
    single_choice: np.ndarray
    several_choice: np.ndarray
    price: np.ndarray  # price of a GPU at each level, shape (2,)
    ideal: np.ndarray  # the best of each job's scores after their price, shape (J,)


class Packing(NamedTuple):
    """An allocation with its books."""

    rows: np.ndarray  # GPUs by [job, node], shape (J, N)
    # The nodes of each job, shape (J, W), and how many, shape (J,).
    nodes: np.ndarray
    node_count: np.ndarray
    scores: np.ndarray  # score of each job, shape (J,)
    losses: np.ndarray  # by how much each job's score, after its price, falls short of its ideal, shape (J,)
    free: np.ndarray  # free GPUs of each node, shape (N,)
    owner: np.ndarray  # the multi-node job of each node or −1, shape (N,)
    # The jobs on each node, shape (N, most GPUs of a node), and how many, shape (N,).
    residents: np.ndarray
    resident_count: np.ndarray


@kernel
def priced_choices(scores, price, fewest):  # type: ignore[no-untyped-def]
    """Return for each job and k the GPUs from `fewest` to k with the best score minus cost, (J, K + 1)."""
    choice = np.full(scores.shape, -1, dtype=np.int32)
    for j in range(len(scores)):
        best, wanted = -np.inf, -1
        for k in range(fewest, scores.shape[1]):
            if scores[j, k] - price * k > best:
                best, wanted = scores[j, k] - price * k, k
            choice[j, k] = wanted
    return choice


def empty_packing(fixed: Round, width: int) -> Packing:
    """Return the packing without any GPU given; jobs are yet to be settled."""
    num_jobs, num_nodes = fixed.placements.shape
    return Packing(
        np.zeros((num_jobs, num_nodes), dtype=np.int32),
        np.zeros((num_jobs, width), dtype=np.int32),
        np.zeros(num_jobs, dtype=np.int64),
        np.empty(num_jobs),
        np.empty(num_jobs),
        fixed.gpus_per_node.copy(),
        np.full(num_nodes, -1, dtype=np.int64),
        np.zeros((num_nodes, int(fixed.gpus_per_node.max())), dtype=np.int64),
        np.zeros(num_nodes, dtype=np.int64),
    )


@inlined
def clear(packing, j):  # type: ignore[no-untyped-def]
    """Take all GPUs from a job; its score is stale until it is settled."""
    for i in range(packing.node_count[j]):
        n = packing.nodes[j, i]
        packing.free[n] += packing.rows[j, n]
        packing.rows[j, n] = 0
        if packing.owner[n] == j:
            packing.owner[n] = -1
        last = packing.resident_count[n] - 1
        for r in range(last):
            if packing.residents[n, r] == j:
                packing.residents[n, r] = packing.residents[n, last]
                break
        packing.resident_count[n] = last
    packing.node_count[j] = 0


@inlined
def put(packing, j, n, gpus):  # type: ignore[no-untyped-def]
    """Give a job GPUs of a node on which it has none."""
    packing.rows[j, n] = gpus
    packing.free[n] -= gpus
    packing.nodes[j, packing.node_count[j]] = n
    packing.node_count[j] += 1
    packing.residents[n, packing.resident_count[n]] = j
    packing.resident_count[n] += 1


@inlined
def settle(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Write a job's score and loss, and its name on its nodes if they are several."""
    count = packing.node_count[j]
    same = count == fixed.present_count[j]
    gpus = 0
    for i in range(count):
        n = packing.nodes[j, i]
        gpus += packing.rows[j, n]
        same &= packing.rows[j, n] == fixed.placements[j, n]
        if count > 1 and fixed.exclusive:
            packing.owner[n] = j
    if same:
        packing.scores[j] = fixed.keep[j]
    elif count > 1:
        packing.scores[j] = fixed.several[j, gpus]
    else:
        packing.scores[j] = fixed.single[j, gpus]
    packing.losses[j] = fixed.ideal[j] - packing.scores[j] + fixed.price[1] * gpus


@inlined
def present_fits(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Return whether a job without GPUs could have its present placement."""
    if fixed.keep[j] == -np.inf:
        return False
    count = fixed.present_count[j]
    for i in range(count):
        n = fixed.present_nodes[j, i]
        if packing.free[n] < fixed.placements[j, n] or (count > 1 and packing.owner[n] >= 0):
            return False
    return True


@inlined
def choose(fixed, packing, j, level):  # type: ignore[no-untyped-def]
    """Return how a job without GPUs is best placed on what is free: kind, GPUs and score after cost."""
    largest, pool, pool_nodes = 0, 0, 0
    for n in range(len(packing.free)):
        free = packing.free[n]
        largest = max(largest, free)
        if free > 0 and packing.owner[n] < 0:
            pool += free
            pool_nodes += 1
    most, price = fixed.single.shape[1] - 1, fixed.price[level]
    gpus = fixed.single_choice[level, j, min(largest, most)]
    kind, best = SINGLE, fixed.single[j, gpus] - price * gpus
    if pool_nodes > 1:
        more = fixed.several_choice[level, j, min(pool, most)]
        if more >= 0 and fixed.several[j, more] - price * more > best:
            kind, gpus, best = SEVERAL, more, fixed.several[j, more] - price * more
    present = 0
    for i in range(fixed.present_count[j]):
        present += fixed.placements[j, fixed.present_nodes[j, i]]
    if fixed.keep[j] - price * present >= best and present_fits(fixed, packing, j):
        kind, gpus, best = KEEP, present, fixed.keep[j] - price * present
    return kind, gpus, best


@inlined
def place(fixed, packing, j, kind, gpus, start):  # type: ignore[no-untyped-def]
    """Place a job without GPUs where its new row fits; among like nodes the first from node `start` on."""
    if kind == KEEP:
        for i in range(fixed.present_count[j]):
            n = fixed.present_nodes[j, i]
            put(packing, j, n, fixed.placements[j, n])
    elif kind == SINGLE and gpus > 0:
        put(packing, j, best_fit(packing, gpus, start), gpus)
    elif kind == SEVERAL:
        _spread(packing, j, gpus, start)
    settle(fixed, packing, j)


@inlined
def best_fit(packing, gpus, start):  # type: ignore[no-untyped-def]
    """Return the node with the fewest free GPUs that has at least `gpus`, or −1."""
    num_nodes = len(packing.free)
    best, fewest = -1, 1 << 30
    n = start
    for _ in range(num_nodes):
        if gpus <= packing.free[n] < fewest:
            best, fewest = n, packing.free[n]
            if fewest == gpus:
                break
        n = n + 1 if n + 1 < num_nodes else 0
    return best


@inlined
def _best_fit_of_unowned(packing, gpus, start):  # type: ignore[no-untyped-def]
    """Return the best fit among the nodes without a multi-node job, or −1."""
    num_nodes = len(packing.free)
    best, fewest = -1, 1 << 30
    n = start
    for _ in range(num_nodes):
        if gpus <= packing.free[n] < fewest and packing.owner[n] < 0:
            best, fewest = n, packing.free[n]
            if fewest == gpus:
                break
        n = n + 1 if n + 1 < num_nodes else 0
    return best


@inlined
def _spread(packing, j, gpus, start):  # type: ignore[no-untyped-def]
    """Place a multi-node job: the nodes with the most free GPUs first, the rest by best fit, never on one node."""
    num_nodes, left = len(packing.free), gpus
    while left > 0:
        if packing.node_count[j] > 0:
            n = _best_fit_of_unowned(packing, left, start)
            if n >= 0 and packing.rows[j, n] == 0:
                put(packing, j, n, left)
                return
        largest = 0
        for n in range(num_nodes):
            if packing.owner[n] < 0 and packing.rows[j, n] == 0:
                largest = max(largest, packing.free[n])
        if largest == 0:
            return
        n = start
        for _ in range(num_nodes):
            if packing.free[n] == largest and packing.owner[n] < 0 and packing.rows[j, n] == 0:
                take = min(largest, left if packing.node_count[j] > 0 else left - 1)
                put(packing, j, n, take)
                left -= take
                if left < largest:
                    break
            n = n + 1 if n + 1 < num_nodes else 0
