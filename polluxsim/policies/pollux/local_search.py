"""Annealing over whole rows: a job takes a row, and evicted jobs take rows on the GPUs that are left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.common.kernels import inlined, kernel, spliced
from polluxsim.policies.pollux.rows import (
    FIRST_NODE,
    FREE,
    KEEP,
    NOTHING,
    PRICED,
    SEVERAL,
    SINGLE,
    best_fit,
    choose,
    clear,
    place,
    present_fits,
    put,
    settle,
)

# An option is drawn as the n·u^SKEW-th best of n, u uniform; on the recorded problems 1 leaves 1.5 times the
# distance to the best known answers that 3 and 4 do.
SKEW = 4.0

# How often an evicted job may evict other jobs, if the job before it did; 0 leaves 1.9
# times the distance to the best known answers that 0.6 does.
CHAIN = 0.6


class Journal(NamedTuple):
    """The rows that a move has touched, as they were before it."""

    size: np.ndarray  # how many jobs are touched and how many of them wait for a row, shape (2,)
    # Those jobs, shape (J,) each.
    jobs: np.ndarray
    waiting: np.ndarray
    touched: np.ndarray  # whether a job is among them, shape (J,)
    # Their rows: nodes and GPUs, shape (J, W), how many nodes, and the scores, shape (J,); by touched job.
    nodes: np.ndarray
    gpus: np.ndarray
    node_count: np.ndarray
    scores: np.ndarray


@kernel
def construct(fixed, packing, wanted, order):  # type: ignore[no-untyped-def]
    """Pack what the relaxed optimum wants: present placements first, then the other jobs in order."""
    num_jobs = len(wanted)
    for j in range(num_jobs):
        settle(fixed, packing, j)
    for j in range(num_jobs):
        present = 0
        for i in range(fixed.present_count[j]):
            present += fixed.placements[j, fixed.present_nodes[j, i]]
        stays = wanted[j] == present and fixed.keep[j] >= max(fixed.single[j, present], fixed.several[j, present])
        if stays and present_fits(fixed, packing, j):
            place(fixed, packing, j, KEEP, present, FIRST_NODE)
    for j in order:
        if packing.node_count[j] > 0 or wanted[j] == 0:
            continue
        kind, gpus, _ = choose(fixed, packing, j, PRICED)
        if fixed.single[j, wanted[j]] >= fixed.several[j, wanted[j]]:
            if best_fit(packing, wanted[j], FIRST_NODE) >= 0:
                kind, gpus = SINGLE, wanted[j]
        elif _pool(packing) >= wanted[j]:
            kind, gpus = SEVERAL, wanted[j]
        place(fixed, packing, j, kind, gpus, FIRST_NODE)


@kernel
def stand_still(fixed, packing):  # type: ignore[no-untyped-def]
    """Pack all present placements that fit."""
    for j in range(len(packing.rows)):
        if present_fits(fixed, packing, j):
            place(fixed, packing, j, KEEP, NOTHING, FIRST_NODE)
        else:
            settle(fixed, packing, j)


@kernel
def fill(fixed, packing, journal, rng):  # type: ignore[no-untyped-def]
    """Let every job that gains from it take what is free."""
    num_jobs = len(packing.rows)
    for i in range(num_jobs):
        journal.size[0], journal.size[1] = 0, 0
        _regrow(fixed, packing, journal, i, rng)
        _close(journal)


def new_journal(num_jobs: int, width: int) -> Journal:
    """Return an empty journal for rows on at most `width` nodes; its last slot is a spare one."""
    slots = num_jobs + 1
    return Journal(
        np.zeros(2, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(num_jobs, dtype=np.bool_),
        np.zeros((slots, width), dtype=np.int64),
        np.zeros((slots, width), dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots),
    )


@kernel
def anneal(fixed, packing, options, journal, schedule, rng):  # type: ignore[no-untyped-def]
    """Return the rows of the best packing seen, shape (J, N), and its score.

    The schedule is a number of moves and two temperatures.
    A move that loses score is accepted with probability exp(−loss / temperature); the temperature falls from
    the first to the second by equal factors. Source: Kirkpatrick, Gelatt, Vecchi, Science 220 (1983).
    """
    moves, hot, cold = schedule
    best, best_total = packing.rows.copy(), _total(packing)
    total, saved = best_total, True
    cooling = (cold / hot) ** (1.0 / max(moves, 1)) if hot > 0.0 else 0.0
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        _move(fixed, packing, options, journal, rng)
        change = _change(packing, journal)
        if change > 0.0 or (temperature > 0.0 and rng.random() < np.exp(change / temperature)):
            if change < 0.0 and not saved and total > best_total:
                # The rows are copied only before they would get worse: the move is given up for it.
                _undo(packing, journal, fixed)
                _copy(packing.rows, best)
                best_total, saved = total, True
            else:
                # A new sum: a running total would keep the rounding errors of the largest terms.
                total = _total(packing)
                saved = False
        else:
            _undo(packing, journal, fixed)
        _close(journal)
    if not saved and total > best_total:
        _copy(packing.rows, best)
        best_total = total
    return best, best_total


@inlined
def _total(packing):  # type: ignore[no-untyped-def]
    total = 0.0
    for score in packing.scores:
        total += score
    return total


@inlined
def _copy(rows, target):  # type: ignore[no-untyped-def]
    """Copy rows into an array of the same shape. An array expression takes seconds to compile."""
    for j in range(rows.shape[0]):
        for n in range(rows.shape[1]):
            target[j, n] = rows[j, n]


@spliced
def _move(fixed, packing, options, journal, rng):  # type: ignore[no-untyped-def]
    """Give a job a row, evict the jobs on its GPUs, and give these jobs and a few more the best rows that are left.

    Of two random jobs the one further from its ideal is taken. Some of the evicted jobs evict further jobs.
    """
    num_jobs, num_nodes = packing.rows.shape
    journal.size[0], journal.size[1] = 0, 0
    j, rival = rng.integers(0, num_jobs), rng.integers(0, num_jobs)
    if packing.losses[rival] > packing.losses[j]:
        j = rival
    _touch(packing, journal, j)
    clear(packing, j)
    journal.waiting[0] = j
    journal.size[1] = 1
    claims = 1
    level = PRICED if rng.random() < 0.5 else FREE
    while journal.size[1] > 0:
        i = rng.integers(0, journal.size[1])
        j = journal.waiting[i]
        journal.size[1] -= 1
        journal.waiting[i] = journal.waiting[journal.size[1]]
        if claims > 0:
            _claim(fixed, packing, options, journal, j, rng)
            claims = 1 if rng.random() < CHAIN else 0
        else:
            kind, gpus, _ = choose(fixed, packing, j, level)
            place(fixed, packing, j, kind, gpus, rng.integers(0, num_nodes))
    for i in range(journal.size[0] - 1, -1, -1):
        _regrow(fixed, packing, journal, journal.jobs[i], rng)
    for _ in range(2):
        _regrow(fixed, packing, journal, rng.integers(0, num_jobs), rng)


@spliced
def _claim(fixed, packing, options, journal, j, rng):  # type: ignore[no-untyped-def]
    """Give a row to a job without GPUs, a better row with a larger probability, and evict the jobs on its GPUs."""
    kinds, gpus, count = options
    option = int(count[j] * rng.random() ** SKEW)
    kind, wanted = kinds[j, option], gpus[j, option]
    start = rng.integers(0, len(packing.free))
    if kind == KEEP:
        _make_room_for_present(fixed, packing, journal, j, rng)
    elif kind == SINGLE and wanted > 0:
        start = _make_room_on_node(fixed, packing, journal, wanted, start, rng)
    elif kind == SEVERAL:
        _make_room_on_nodes(packing, journal, wanted, start, rng)
    place(fixed, packing, j, kind, wanted, start)


@spliced
def _change(packing, journal):  # type: ignore[no-untyped-def]
    """Return the gain of the move so far."""
    change = 0.0
    for t in range(journal.size[0]):
        change += packing.scores[journal.jobs[t]] - journal.scores[t]
    return change


@spliced
def _make_room_for_present(fixed, packing, journal, j, rng):  # type: ignore[no-untyped-def]
    """Evict the jobs on the GPUs of a present placement."""
    several = fixed.present_count[j] > 1
    for i in range(fixed.present_count[j]):
        n = fixed.present_nodes[j, i]
        if several and packing.owner[n] >= 0:
            _evict(packing, journal, packing.owner[n])
        while packing.free[n] < fixed.placements[j, n]:
            _evict(packing, journal, packing.residents[n, rng.integers(0, packing.resident_count[n])])


@spliced
def _make_room_on_node(fixed, packing, journal, gpus, start, rng):  # type: ignore[no-untyped-def]
    """Return a node with `gpus` free GPUs, from `start` on. Half of the time, other jobs are evicted."""
    if rng.random() < 0.5:
        n = best_fit(packing, gpus, start)
        if n >= 0:
            return n
    n = start
    while fixed.gpus_per_node[n] < gpus:
        n = n + 1 if n + 1 < len(packing.free) else 0
    while packing.free[n] < gpus:
        _evict(packing, journal, packing.residents[n, rng.integers(0, packing.resident_count[n])])
    return n


@spliced
def _make_room_on_nodes(packing, journal, gpus, start, rng):  # type: ignore[no-untyped-def]
    """Evict jobs, node by node from `start` on, until a multi-node job with `gpus` GPUs fits."""
    num_nodes = len(packing.free)
    pool, pool_nodes = _pool_nodes(packing)
    n = start
    while pool < gpus or pool_nodes < 2:
        if packing.owner[n] >= 0:
            _evict(packing, journal, packing.owner[n])
        elif packing.resident_count[n] > 0:
            _evict(packing, journal, packing.residents[n, rng.integers(0, packing.resident_count[n])])
        pool, pool_nodes = _pool_nodes(packing)
        n = n + 1 if n + 1 < num_nodes else 0


@inlined
def _pool(packing):  # type: ignore[no-untyped-def]
    """Return the free GPUs for a multi-node job, or 0 if they are on one node."""
    pool, nodes = _pool_nodes(packing)
    return pool if nodes > 1 else 0


@inlined
def _pool_nodes(packing):  # type: ignore[no-untyped-def]
    """Return the free GPUs for a multi-node job, and the number of their nodes."""
    pool, nodes = 0, 0
    for n in range(len(packing.free)):
        if packing.free[n] > 0 and packing.owner[n] < 0:
            pool += packing.free[n]
            nodes += 1
    return pool, nodes


@inlined
def _evict(packing, journal, j):  # type: ignore[no-untyped-def]
    """Take the GPUs of a job, which then waits."""
    _touch(packing, journal, j)
    clear(packing, j)
    journal.waiting[journal.size[1]] = j
    journal.size[1] += 1


@inlined
def _regrow(fixed, packing, journal, j, rng):  # type: ignore[no-untyped-def]
    """Place a job again if it scores more with the free GPUs."""
    spare = len(journal.jobs) - 1
    _record(packing, journal, j, spare)
    clear(packing, j)
    kind, gpus, best = choose(fixed, packing, j, FREE)
    if best <= journal.scores[spare]:
        _restore(fixed, packing, journal, spare)
        return
    if not journal.touched[j]:
        t = journal.size[0]
        journal.jobs[t], journal.node_count[t], journal.scores[t] = (
            j,
            journal.node_count[spare],
            journal.scores[spare],
        )
        for i in range(journal.node_count[spare]):
            journal.nodes[t, i], journal.gpus[t, i] = journal.nodes[spare, i], journal.gpus[spare, i]
        journal.touched[j] = True
        journal.size[0] = t + 1
    place(fixed, packing, j, kind, gpus, rng.integers(0, len(packing.free)))


@inlined
def _touch(packing, journal, j):  # type: ignore[no-untyped-def]
    """Record the row of a job if this move has not touched it yet."""
    if not journal.touched[j]:
        _record(packing, journal, j, journal.size[0])
        journal.touched[j] = True
        journal.size[0] += 1


@inlined
def _record(packing, journal, j, slot):  # type: ignore[no-untyped-def]
    journal.jobs[slot], journal.node_count[slot], journal.scores[slot] = (
        j,
        packing.node_count[j],
        packing.scores[j],
    )
    for i in range(packing.node_count[j]):
        n = packing.nodes[j, i]
        journal.nodes[slot, i], journal.gpus[slot, i] = n, packing.rows[j, n]


@inlined
def _restore(fixed, packing, journal, slot):  # type: ignore[no-untyped-def]
    j = journal.jobs[slot]
    for i in range(journal.node_count[slot]):
        put(packing, j, journal.nodes[slot, i], journal.gpus[slot, i])
    settle(fixed, packing, j)


@inlined
def _undo(packing, journal, fixed):  # type: ignore[no-untyped-def]
    """Restore all touched rows."""
    for t in range(journal.size[0]):
        clear(packing, journal.jobs[t])
    for t in range(journal.size[0]):
        _restore(fixed, packing, journal, t)


@inlined
def _close(journal):  # type: ignore[no-untyped-def]
    for t in range(journal.size[0]):
        journal.touched[journal.jobs[t]] = False
    journal.size[0], journal.size[1] = 0, 0
