"""Whole rows on and off the nodes: the moves of the local search and of the constructive start, compiled.

A job's row is its GPUs on every node. Placing a row updates the free GPUs of each node, its jobs, the score of each
job, and the sets of like nodes. Like nodes have equal numbers of free GPUs, and all or none of them have a multi-node
job. A set has one bit for each node, so that the next node of a set is found in a few steps even on large clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.np.random.generator_core import next_uint32
from numpy.typing import NDArray

from polluxsim.common.kernels import inlined, kernel

# Kernels would be compiled again for each literal argument; NumPy's numbers are of one type.
# Kinds of rows: the present placement; new, on one node; new, on several.
KEEP = np.int64(0)
SINGLE = np.int64(1)
SEVERAL = np.int64(2)

# Levels of the price of a GPU: none, and the worth of one more.
FREE = np.int64(0)
PRICED = np.int64(1)

FIRST_NODE = np.int64(0)
NOTHING = np.int64(0)

# A set of nodes has one bit for each node, in words of this size.
WORD = 64
ZERO = np.uint64(0)
ONE = np.uint64(1)
TWO_POWER_32 = np.uint64(2**32)
LOW_BITS = np.uint64(2**32 - 1)
HALF_WORD = np.uint64(32)


class Round(NamedTuple):
    """The constants of a round that kernels need; J jobs, N nodes, at most K GPUs a job."""

    # The placements before the round: nodes, then −1, and GPUs on them, shape (J, W); the numbers of these nodes and
    # GPUs, shape (J,) each.
    present_nodes: np.ndarray
    present_gpus: np.ndarray
    present_count: np.ndarray
    present_total: np.ndarray
    # Scores, described in `ScoreTables`.
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
    """An allocation, with the tables that each placement of a row updates."""

    # The nodes of each job and its GPUs on them, shape (J, W), and how many nodes, shape (J,).
    nodes: np.ndarray
    gpus: np.ndarray
    node_count: np.ndarray
    scores: np.ndarray  # score of each job, shape (J,)
    losses: np.ndarray  # by how much each job's score, after its price, falls short of its ideal, shape (J,)
    free: np.ndarray  # free GPUs of each node, shape (N,)
    owner: np.ndarray  # the multi-node job of each node or −1, shape (N,)
    # The jobs on each node, shape (N, most GPUs of a node), and how many, shape (N,).
    residents: np.ndarray
    resident_count: np.ndarray
    # The sets of like nodes by [has a multi-node job, free GPUs], and how many nodes each has, shape (2, G + 1); a set
    # is a bit for each node, in words of 64 bits.
    like: np.ndarray
    like_count: np.ndarray


@kernel
def priced_choices(scores, price, fewest):  # type: ignore[no-untyped-def]
    """Return the number of GPUs from `fewest` to k with the best score minus cost, by [job, k], shape (J, K + 1).

    `scores` has the same shape, and `price` is the cost of a GPU. −1 if no number has a score.
    """
    choice = np.full(scores.shape, -1, dtype=np.int32)
    for j in range(len(scores)):
        best = -np.inf
        wanted = -1
        for k in range(fewest, scores.shape[1]):
            if scores[j, k] - price * k > best:
                best = scores[j, k] - price * k
                wanted = k
            choice[j, k] = wanted
    return choice


def empty_packing(fixed: Round, width: int) -> Packing:
    """Return the packing in which no job has GPUs. No job has a score before `settle` runs for it."""
    num_jobs = len(fixed.keep)
    num_nodes = len(fixed.gpus_per_node)
    largest = int(fixed.gpus_per_node.max())
    like = np.zeros((2, largest + 1, -(-num_nodes // WORD)), dtype=np.uint64)
    for node, gpus in enumerate(fixed.gpus_per_node.tolist()):
        like[0, gpus, node // WORD] |= np.uint64(1 << node % WORD)
    like_count = np.zeros((2, largest + 1), dtype=np.int64)
    like_count[0] = np.bincount(fixed.gpus_per_node, minlength=largest + 1)
    return Packing(
        np.zeros((num_jobs, width), dtype=np.int32),
        np.zeros((num_jobs, width), dtype=np.int32),
        np.zeros(num_jobs, dtype=np.int64),
        np.empty(num_jobs),
        np.empty(num_jobs),
        fixed.gpus_per_node.copy(),
        np.full(num_nodes, -1, dtype=np.int64),
        np.zeros((num_nodes, largest), dtype=np.int64),
        np.zeros(num_nodes, dtype=np.int64),
        like,
        like_count,
    )


def dense(
    nodes: NDArray[np.int32], gpus: NDArray[np.int32], count: NDArray[np.int64], num_nodes: int
) -> NDArray[np.int64]:
    """Return GPUs by [job, node], shape (J, N), of the nodes of each job and its GPUs on them."""
    used = np.arange(nodes.shape[1]) < count[:, None]
    rows = np.zeros((len(nodes), num_nodes), dtype=np.int64)
    rows[np.nonzero(used)[0], nodes[used]] = gpus[used]
    return rows


@inlined
def draw_below(rng, end):  # type: ignore[no-untyped-def]
    """Return the same number as `rng.integers(0, end)`, for 1 ≤ end < 2**32. Numba's version allocates an array.

    Source: Lemire, Fast random integer generation in an interval, ACM TOMACS 29 (2019).
    """
    if end == 1:
        return 0
    end = np.uint64(end)
    product = np.uint64(next_uint32(rng.bit_generator)) * end
    if (product & LOW_BITS) < end:
        threshold = (TWO_POWER_32 - end) % end
        while (product & LOW_BITS) < threshold:
            product = np.uint64(next_uint32(rng.bit_generator)) * end
    return np.int64(product >> HALF_WORD)


@inlined
def _transfer(packing, n, free, has_owner, free_after, has_owner_after):  # type: ignore[no-untyped-def]
    """Move a node from its set of like nodes to another."""
    word = n >> 6
    bit = ONE << np.uint64(n & 63)
    packing.like[has_owner, free, word] &= ~bit
    packing.like_count[has_owner, free] -= 1
    packing.like[has_owner_after, free_after, word] |= bit
    packing.like_count[has_owner_after, free_after] += 1


@inlined
def next_like(packing, free, start, with_owned):  # type: ignore[no-untyped-def]
    """Return the first node with `free` free GPUs, starting at `start` and wrapping around; −1 if there is none.

    Nodes with a multi-node job count only if `with_owned` is true.
    """
    words = packing.like.shape[2]
    w = start >> 6
    bits = packing.like[0, free, w]
    if with_owned:
        bits |= packing.like[1, free, w]
    bits &= ~((ONE << np.uint64(start & 63)) - ONE)
    for _ in range(words + 1):
        if bits != ZERO:
            return (w << 6) + np.int64(trailing_zeros(bits))
        w = w + 1 if w + 1 < words else 0
        bits = packing.like[0, free, w]
        if with_owned:
            bits |= packing.like[1, free, w]
    return -1


@inlined
def clear(packing, j):  # type: ignore[no-untyped-def]
    """Take all GPUs from a job; its score is out of date until `settle` runs."""
    for i in range(packing.node_count[j]):
        n = packing.nodes[j, i]
        free = packing.free[n]
        has_owner = 1 if packing.owner[n] >= 0 else 0
        if packing.owner[n] == j:
            packing.owner[n] = -1
        packing.free[n] = free + packing.gpus[j, i]
        _transfer(packing, n, free, has_owner, packing.free[n], 1 if packing.owner[n] >= 0 else 0)
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
    has_owner = 1 if packing.owner[n] >= 0 else 0
    _transfer(packing, n, packing.free[n], has_owner, packing.free[n] - gpus, has_owner)
    packing.free[n] -= gpus
    packing.nodes[j, packing.node_count[j]] = n
    packing.gpus[j, packing.node_count[j]] = gpus
    packing.node_count[j] += 1
    packing.residents[n, packing.resident_count[n]] = j
    packing.resident_count[n] += 1


@inlined
def settle(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Write a job's score and loss, and make a multi-node job the owner of its nodes."""
    count = packing.node_count[j]
    gpus = 0
    for i in range(count):
        n = packing.nodes[j, i]
        gpus += packing.gpus[j, i]
        if count > 1 and fixed.exclusive:
            _transfer(packing, n, packing.free[n], 0, packing.free[n], 1)
            packing.owner[n] = j
    if _is_present(fixed, packing, j):
        packing.scores[j] = fixed.keep[j]
    elif count > 1:
        packing.scores[j] = fixed.several[j, gpus]
    else:
        packing.scores[j] = fixed.single[j, gpus]
    packing.losses[j] = fixed.ideal[j] - packing.scores[j] + fixed.price[1] * gpus


@inlined
def _is_present(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Return whether a job has its present placement. The order of the nodes may differ."""
    count = fixed.present_count[j]
    if packing.node_count[j] != count:
        return False
    for i in range(count):
        at = 0
        while at < count and packing.nodes[j, at] != fixed.present_nodes[j, i]:
            at += 1
        if at == count or packing.gpus[j, at] != fixed.present_gpus[j, i]:
            return False
    return True


@inlined
def present_fits(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Return whether a job without GPUs could have its present placement."""
    if fixed.keep[j] == -np.inf:
        return False
    count = fixed.present_count[j]
    for i in range(count):
        n = fixed.present_nodes[j, i]
        if packing.free[n] < fixed.present_gpus[j, i] or (count > 1 and packing.owner[n] >= 0):
            return False
    return True


@inlined
def _most_free(packing):  # type: ignore[no-untyped-def]
    """Return the largest number of free GPUs on a node."""
    largest = packing.like_count.shape[1] - 1
    while largest > 0 and packing.like_count[0, largest] + packing.like_count[1, largest] == 0:
        largest -= 1
    return largest


@inlined
def free_pool(packing):  # type: ignore[no-untyped-def]
    """Return the free GPUs for a multi-node job, and the number of their nodes."""
    pool = 0
    nodes = 0
    for free in range(1, packing.like_count.shape[1]):
        pool += free * packing.like_count[0, free]
        nodes += packing.like_count[0, free]
    return pool, nodes


@inlined
def choose(fixed, packing, j, level):  # type: ignore[no-untyped-def]
    """Return the best placement of a job without GPUs on the free GPUs: kind, GPUs, and score after cost."""
    largest = _most_free(packing)
    (pool, pool_nodes) = free_pool(packing)
    most_gpus = fixed.single.shape[1] - 1
    price = fixed.price[level]
    gpus = fixed.single_choice[level, j, min(largest, most_gpus)]
    kind = SINGLE
    best = fixed.single[j, gpus] - price * gpus
    if pool_nodes > 1:
        more = fixed.several_choice[level, j, min(pool, most_gpus)]
        if more >= 0 and fixed.several[j, more] - price * more > best:
            kind = SEVERAL
            gpus = more
            best = fixed.several[j, more] - price * more
    present = fixed.present_total[j]
    if fixed.keep[j] - price * present >= best and present_fits(fixed, packing, j):
        kind = KEEP
        gpus = present
        best = fixed.keep[j] - price * present
    return kind, gpus, best


@inlined
def best_new_score(fixed, packing, j):  # type: ignore[no-untyped-def]
    """Return the best score of a job on a new row, which may use its own GPUs and free GPUs."""
    largest = _most_free(packing)
    (pool, pool_nodes) = free_pool(packing)
    for i in range(packing.node_count[j]):
        n = packing.nodes[j, i]
        own_gpus = packing.gpus[j, i]
        largest = max(largest, packing.free[n] + own_gpus)
        if packing.owner[n] == j:
            pool += packing.free[n] + own_gpus
            pool_nodes += 1
        elif packing.owner[n] < 0:
            pool += own_gpus
            pool_nodes += packing.free[n] == 0
    most_gpus = fixed.single.shape[1] - 1
    best = fixed.single[j, fixed.single_choice[FREE, j, min(largest, most_gpus)]]
    if pool_nodes > 1:
        more = fixed.several_choice[FREE, j, min(pool, most_gpus)]
        if more >= 0:
            best = max(best, fixed.several[j, more])
    return best


@inlined
def reorder_residents(packing, j):  # type: ignore[no-untyped-def]
    """Make a job the last one of the jobs on each of its nodes, as if it were placed again."""
    for i in range(packing.node_count[j]):
        n = packing.nodes[j, i]
        last = packing.resident_count[n] - 1
        for r in range(last):
            if packing.residents[n, r] == j:
                packing.residents[n, r] = packing.residents[n, last]
                packing.residents[n, last] = j
                break


@inlined
def place(fixed, packing, j, kind, gpus, start):  # type: ignore[no-untyped-def]
    """Place a job without GPUs where its new row fits; among like nodes the first from node `start` on."""
    if kind == KEEP:
        for i in range(fixed.present_count[j]):
            n = fixed.present_nodes[j, i]
            put(packing, j, n, fixed.present_gpus[j, i])
    elif kind == SINGLE and gpus > 0:
        put(packing, j, best_fit(packing, gpus, start, True), gpus)
    elif kind == SEVERAL:
        _spread(packing, j, gpus, start)
    settle(fixed, packing, j)


@inlined
def best_fit(packing, gpus, start, with_owned):  # type: ignore[no-untyped-def]
    """Return the node with the fewest free GPUs that has at least `gpus`, or −1.

    Nodes with a multi-node job count only if `with_owned` is true.
    """
    for free in range(gpus, packing.like_count.shape[1]):
        if packing.like_count[0, free] > 0 or (with_owned and packing.like_count[1, free] > 0):
            return next_like(packing, free, start, with_owned)
    return -1


@inlined
def _spread(packing, j, gpus, start):  # type: ignore[no-untyped-def]
    """Place a multi-node job: the nodes with the most free GPUs first, the rest by best fit, never all on one node."""
    num_nodes = len(packing.free)
    gpus_left = gpus
    # The node of which the job takes only a part; there is at most one, the first node.
    part = -1
    while gpus_left > 0:
        if packing.node_count[j] > 0:
            n = best_fit(packing, gpus_left, start, False)
            if n >= 0 and n != part:
                put(packing, j, n, gpus_left)
                return
        largest = packing.like_count.shape[1] - 1
        while largest > 0 and packing.like_count[0, largest] - (part >= 0 and packing.free[part] == largest) == 0:
            largest -= 1
        if largest == 0:
            return
        n = start
        for _ in range(packing.like_count[0, largest]):
            n = next_like(packing, largest, n, False)
            if n != part:
                take = min(largest, gpus_left if packing.node_count[j] > 0 else gpus_left - 1)
                put(packing, j, n, take)
                gpus_left -= take
                if take < largest:
                    part = n
                if gpus_left < largest:
                    break
            n = n + 1 if n + 1 < num_nodes else 0
