"""Annealing over whole rows: a job takes a row, and evicted jobs take rows on the GPUs that are left.

A `Packing` is a full allocation: each job has a row, GPUs on some nodes, possibly none. `anneal` maintains three things
beside it. The `Journal` contains the rows that the present move has touched, as they were before. `Best` contains the
best rows so far, and the list of jobs whose present rows differ from them. `Best.sums` are the present scores by block.

Invariants between two moves: the journal is empty; no job waits for a row; the packing is feasible, so no node has more
GPUs in use than it has, and with avoidance of interference at most one multi-node job is on a node; every row that
differs from the best one is listed in `Best.changed`.

A move has this order:

1. Of two random jobs, the job that is further from its ideal score loses its row and claims another row. The jobs
   that hold the GPUs of this row are evicted and wait.
2. The waiting jobs take rows in random order. As long as a chain lasts, they may evict further jobs.
3. The touched jobs, and two random ones, take free GPUs if these score more.
4. The move is accepted or undone as a whole, and the journal is emptied.

The traps: the best rows are copied only before a move that makes them worse, so after an improvement `Best` is out of
date, and the packing itself is the best one (`saved` is False). A job must be recorded in the journal before its row is
cleared, because otherwise `_undo` cannot restore it. All functions here are compiled: they take and change arrays in
place, and the order of their draws from `rng` determines the results.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.common.kernels import inlined, kernel_without_references, spliced
from polluxsim.policies.pollux.rows import (
    FIRST_NODE,
    FREE,
    KEEP,
    NOTHING,
    PRICED,
    SEVERAL,
    SINGLE,
    Packing,
    best_fit,
    best_new_score,
    choose,
    clear,
    draw_below,
    free_pool,
    place,
    present_fits,
    put,
    reorder_residents,
    settle,
)

# A job draws option n·u^SKEW of its n options, in order of score, with u uniform in [0, 1). On the recorded problems,
# SKEW = 1 leaves 1.5 times the distance to the best known answers that 3 and 4 leave.
SKEW = 4.0

# Probability that an evicted job may evict other jobs, if the job before it did. On the recorded problems, 0 leaves 1.9
# times the distance to the best known answers that 0.6 leaves.
CHAIN = 0.6

# Scores are summed by blocks of jobs, so that a move sums only the blocks of its jobs again.
BLOCK = 64


class Journal(NamedTuple):
    """The rows that a move has touched, as they were before it."""

    size: np.ndarray  # numbers of touched jobs, and of jobs that wait for a row, shape (2,)
    # These jobs, shape (J + 1,) each.
    jobs: np.ndarray
    waiting: np.ndarray
    touched: np.ndarray  # whether the move has touched a job, shape (J,)
    # Rows of the touched jobs: nodes and GPUs, shape (J + 1, W), numbers of nodes, and scores, shape (J + 1,).
    nodes: np.ndarray
    gpus: np.ndarray
    node_count: np.ndarray
    scores: np.ndarray


@kernel_without_references
def construct(fixed, packing, wanted, order):  # type: ignore[no-untyped-def]
    """Pack the relaxed optimum, `wanted` GPUs of each job: present placements first, then the other jobs in order."""
    num_jobs = len(wanted)
    for j in range(num_jobs):
        settle(fixed, packing, j)
    for j in range(num_jobs):
        present = fixed.present_total[j]
        stays = wanted[j] == present and fixed.keep[j] >= max(fixed.single[j, present], fixed.several[j, present])
        if stays and present_fits(fixed, packing, j):
            place(fixed, packing, j, KEEP, present, FIRST_NODE)
    for j in order:
        if packing.node_count[j] > 0 or wanted[j] == 0:
            continue
        kind, gpus, _ = choose(fixed, packing, j, PRICED)
        if fixed.single[j, wanted[j]] >= fixed.several[j, wanted[j]]:
            if best_fit(packing, wanted[j], FIRST_NODE, True) >= 0:
                kind = SINGLE
                gpus = wanted[j]
        else:
            pool, pool_nodes = free_pool(packing)
            if pool_nodes > 1 and pool >= wanted[j]:
                kind = SEVERAL
                gpus = wanted[j]
        place(fixed, packing, j, kind, gpus, FIRST_NODE)


@kernel_without_references
def stand_still(fixed, packing):  # type: ignore[no-untyped-def]
    """Pack all present placements that fit."""
    for j in range(len(packing.scores)):
        if present_fits(fixed, packing, j):
            place(fixed, packing, j, KEEP, NOTHING, FIRST_NODE)
        else:
            settle(fixed, packing, j)


@kernel_without_references
def fill(fixed, packing, journal, rng):  # type: ignore[no-untyped-def]
    """Let every job that gains from free GPUs take them."""
    for i in range(len(packing.scores)):
        journal.size[0] = 0
        journal.size[1] = 0
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


class Best(NamedTuple):
    """The rows of the best packing so far, and the rows that differ from it in the present packing."""

    # The nodes of each job and its GPUs on them, shape (J, W), and how many nodes, shape (J,).
    nodes: np.ndarray
    gpus: np.ndarray
    node_count: np.ndarray
    # The jobs whose rows differ, shape (J,), their number, shape (1,), and whether a job is one of them, shape (J,).
    changed: np.ndarray
    change_count: np.ndarray
    is_changed: np.ndarray
    sums: np.ndarray  # sum of the present scores of each block of `BLOCK` jobs, shape (⌈J / BLOCK⌉,)


def new_best(packing: Packing) -> Best:
    """Return the rows of a packing as the best packing so far."""
    num_jobs = len(packing.scores)
    return Best(
        packing.nodes.copy(),
        packing.gpus.copy(),
        packing.node_count.copy(),
        np.zeros(num_jobs, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(num_jobs, dtype=np.bool_),
        np.zeros(-(-num_jobs // BLOCK)),
    )


@kernel_without_references
def anneal(fixed, packing, options, journal, best, schedule, rng):  # type: ignore[no-untyped-def]
    """Improve a packing by random moves. Leave the rows of the best packing seen in `best`.

    The schedule is a number of moves and two temperatures. A move that lowers the score is accepted with probability
    exp(−loss / temperature); the temperature falls from the first to the second by equal factors. Source: Kirkpatrick,
    Gelatt, Vecchi, Science 220 (1983).
    """
    moves, hot, cold = schedule
    for block in range(len(best.sums)):
        _sum_block(packing, best, block)
    best_total = _total(best)
    total = best_total
    saved = True
    cooling = (cold / hot) ** (1.0 / max(moves, 1)) if hot > 0.0 else 0.0
    temperature = hot
    for _ in range(moves):
        temperature *= cooling
        _move(fixed, packing, options, journal, rng)
        change = _change(packing, journal)
        if change > 0.0 or (temperature > 0.0 and rng.random() < np.exp(change / temperature)):
            if change < 0.0 and not saved and total > best_total:
                # Copy the best rows only before a move that makes them worse. This move is then undone.
                _undo(packing, journal, fixed)
                _save(packing, best)
                best_total = total
                saved = True
            else:
                _note_changes(packing, journal, best)
                total = _total(best)
                saved = False
        else:
            _undo(packing, journal, fixed)
        _close(journal)
    if not saved and total > best_total:
        _save(packing, best)


@inlined
def _sum_block(packing, best, block):  # type: ignore[no-untyped-def]
    """Sum the scores of a block of jobs. A running sum would keep the rounding errors of the largest terms."""
    total = 0.0
    for j in range(block * BLOCK, min((block + 1) * BLOCK, len(packing.scores))):
        total += packing.scores[j]
    best.sums[block] = total


@inlined
def _total(best):  # type: ignore[no-untyped-def]
    """Return the sum of all scores."""
    total = 0.0
    for block in best.sums:
        total += block
    return total


@inlined
def _note_changes(packing, journal, best):  # type: ignore[no-untyped-def]
    """Record which rows an accepted move has changed, and sum their scores again."""
    for t in range(journal.size[0]):
        j = journal.jobs[t]
        _sum_block(packing, best, j // BLOCK)
        if not best.is_changed[j]:
            best.is_changed[j] = True
            best.changed[best.change_count[0]] = j
            best.change_count[0] += 1


@inlined
def _save(packing, best):  # type: ignore[no-untyped-def]
    """Copy the rows that have changed since the last copy."""
    for c in range(best.change_count[0]):
        j = best.changed[c]
        best.is_changed[j] = False
        best.node_count[j] = packing.node_count[j]
        for i in range(packing.node_count[j]):
            best.nodes[j, i] = packing.nodes[j, i]
            best.gpus[j, i] = packing.gpus[j, i]
    best.change_count[0] = 0


@spliced
def _move(fixed, packing, options, journal, rng):  # type: ignore[no-untyped-def]
    """Give a job a row, evict the jobs on its GPUs, and give these jobs and a few more the best rows that are left.

    Of two random jobs the move takes the job that is further from its ideal. Some of the evicted jobs evict further
    jobs.
    """
    num_jobs = len(packing.scores)
    num_nodes = len(packing.free)
    journal.size[0] = 0
    journal.size[1] = 0
    j = draw_below(rng, num_jobs)
    rival = draw_below(rng, num_jobs)
    if packing.losses[rival] > packing.losses[j]:
        j = rival
    _touch(packing, journal, j)
    clear(packing, j)
    journal.waiting[0] = j
    journal.size[1] = 1
    claims = 1
    level = PRICED if rng.random() < 0.5 else FREE
    while journal.size[1] > 0:
        i = draw_below(rng, journal.size[1])
        j = journal.waiting[i]
        journal.size[1] -= 1
        journal.waiting[i] = journal.waiting[journal.size[1]]
        if claims > 0:
            _claim(fixed, packing, options, journal, j, rng)
            claims = 1 if rng.random() < CHAIN else 0
        else:
            kind, gpus, _ = choose(fixed, packing, j, level)
            place(fixed, packing, j, kind, gpus, draw_below(rng, num_nodes))
    for i in range(journal.size[0] - 1, -1, -1):
        _regrow(fixed, packing, journal, journal.jobs[i], rng)
    for _ in range(2):
        _regrow(fixed, packing, journal, draw_below(rng, num_jobs), rng)


@spliced
def _claim(fixed, packing, options, journal, j, rng):  # type: ignore[no-untyped-def]
    """Give a row to a job without GPUs, a better row with a larger probability, and evict the jobs on its GPUs."""
    kinds, gpus, count = options
    option = int(count[j] * rng.random() ** SKEW)
    kind = kinds[j, option]
    wanted = gpus[j, option]
    start = draw_below(rng, len(packing.free))
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
        while packing.free[n] < fixed.present_gpus[j, i]:
            _evict(packing, journal, packing.residents[n, draw_below(rng, packing.resident_count[n])])


@spliced
def _make_room_on_node(fixed, packing, journal, gpus, start, rng):  # type: ignore[no-untyped-def]
    """Return a node with `gpus` free GPUs, after evictions if they are necessary.

    Half of the time, a node that has them without evictions is taken; otherwise the first large enough from `start` on.
    """
    if rng.random() < 0.5:
        n = best_fit(packing, gpus, start, True)
        if n >= 0:
            return n
    n = start
    while fixed.gpus_per_node[n] < gpus:
        n = n + 1 if n + 1 < len(packing.free) else 0
    while packing.free[n] < gpus:
        _evict(packing, journal, packing.residents[n, draw_below(rng, packing.resident_count[n])])
    return n


@spliced
def _make_room_on_nodes(packing, journal, gpus, start, rng):  # type: ignore[no-untyped-def]
    """Evict jobs, node by node from `start` on, until a multi-node job with `gpus` GPUs fits."""
    num_nodes = len(packing.free)
    pool, pool_nodes = free_pool(packing)
    n = start
    while pool < gpus or pool_nodes < 2:
        if packing.owner[n] >= 0:
            _evict(packing, journal, packing.owner[n])
        elif packing.resident_count[n] > 0:
            _evict(packing, journal, packing.residents[n, draw_below(rng, packing.resident_count[n])])
        pool, pool_nodes = free_pool(packing)
        n = n + 1 if n + 1 < num_nodes else 0


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
    score = packing.scores[j]
    if fixed.keep[j] <= score and best_new_score(fixed, packing, j) <= score:
        reorder_residents(packing, j)
        return
    spare = len(journal.jobs) - 1
    _record(packing, journal, j, spare)
    clear(packing, j)
    kind, gpus, best = choose(fixed, packing, j, FREE)
    if best <= score:
        _restore(fixed, packing, journal, spare)
        return
    if not journal.touched[j]:
        t = journal.size[0]
        journal.jobs[t] = j
        journal.node_count[t] = journal.node_count[spare]
        journal.scores[t] = score
        for i in range(journal.node_count[spare]):
            journal.nodes[t, i] = journal.nodes[spare, i]
            journal.gpus[t, i] = journal.gpus[spare, i]
        journal.touched[j] = True
        journal.size[0] = t + 1
    place(fixed, packing, j, kind, gpus, draw_below(rng, len(packing.free)))


@inlined
def _touch(packing, journal, j):  # type: ignore[no-untyped-def]
    """Record the row of a job if this move has not touched it yet."""
    if not journal.touched[j]:
        _record(packing, journal, j, journal.size[0])
        journal.touched[j] = True
        journal.size[0] += 1


@inlined
def _record(packing, journal, j, slot):  # type: ignore[no-untyped-def]
    """Copy the row of a job into a slot of the journal."""
    journal.jobs[slot] = j
    journal.node_count[slot] = packing.node_count[j]
    journal.scores[slot] = packing.scores[j]
    for i in range(packing.node_count[j]):
        journal.nodes[slot, i] = packing.nodes[j, i]
        journal.gpus[slot, i] = packing.gpus[j, i]


@inlined
def _restore(fixed, packing, journal, slot):  # type: ignore[no-untyped-def]
    """Give a job without GPUs the row in a slot of the journal."""
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
    """Empty the journal after a move."""
    for t in range(journal.size[0]):
        journal.touched[journal.jobs[t]] = False
    journal.size[0] = 0
    journal.size[1] = 0
