"""The search by annealing for an objective that is a sum over jobs; exact for small problems.

An allocation gives each job a row: GPUs by node. The fitness, a power mean of speedups, rises with a sum of one score
for each job, so the search maximises this sum. A score depends only on the GPUs of the row, on whether they are on one
node or several, and on whether the row differs from the present one, which costs a restart.

`AnnealingSearch.solve` maintains the best allocation so far and an upper bound of its fitness. The order of events is:

1. `trim` removes what cannot be in a best allocation, and `choose_scale` chooses the scale of the scores.
2. `_relax` solves the problem for a single pool of all GPUs. No allocation has a larger sum, so this is the bound. It
   also gives the price, the score that one more GPU is worth. If the bound proves the present allocation, it is kept.
3. A small problem is solved exactly by dynamic programming. A larger one starts from the better of the packed relaxed
   optimum and no change, and is improved by the moves of `local_search`.
4. If the scores of the answer do not fit the scale, a scale around the answer is chosen, and steps 2 to 4 are repeated,
   at most `MOST_SCALES` times.

Invariants: the fitness of an answer is computed from the speedups, and never from scores; the answer is the best of all
scales, and the bound is the smallest of all scales.

The trap: for a large power p the scores of jobs differ by more than a float can hold. A scale fits only the terms near
its centre, and the sums of terms that do not fit must not be compared. `ScoreScale.refocused` returns None if they fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import one_process
from polluxsim.policies.pollux import local_search
from polluxsim.policies.pollux.exhaustive import solve_exhaustively
from polluxsim.policies.pollux.local_search import anneal, construct, fill, new_best, new_journal, stand_still
from polluxsim.policies.pollux.problem import Answer, Problem, could_start, power_mean, with_idle_gpus
from polluxsim.policies.pollux.rows import KEEP, SEVERAL, SINGLE, Packing, Round, dense, empty_packing, priced_choices
from polluxsim.policies.pollux.scores import (
    Relaxation,
    ScoreScale,
    ScoreTables,
    choose_scale,
    relax,
    score_tables,
    trim,
)

# Temperatures of the annealing in prices of a GPU, the scale of the gain of one move.
HOT = 0.1
COLD = 0.01

# Additional moves for each job beyond the first `MANY_JOBS`: with 2,000 jobs they reduce the distance to the bound by a
# twentieth or more.
MORE_MOVES = 10
MANY_JOBS = 500

# How often the scale of the terms may change if they overflow for a large p.
MOST_SCALES = 10

# Distances to the bound below this share of the sum of scores, or of the fitness, are rounding errors.
ROUNDING = 1e-12


class Relaxed(NamedTuple):
    """A problem and the solution for a single pool of its GPUs."""

    tables: ScoreTables  # the scores of each job
    present: NDArray[np.int64]  # GPUs of each job before the round, shape (J,)
    pool: Relaxation
    fits: bool  # whether the terms of no change fit the scale, so that their sum can be compared with the bound

    def proves_no_change(self, tolerance: float) -> bool:
        """Return whether the bound proves that no change is an improvement.

        An improvement raises the sum of scores by more than a share `tolerance`. False proves nothing.
        """
        total = float(self.tables.keep.sum())
        return self.fits and isfinite(total) and self.pool.bound - total <= tolerance * abs(total)


class Options(NamedTuple):
    """The rows that a job may have in an allocation better than the start, by [job, option]."""

    kinds: NDArray[np.int64]  # KEEP, SINGLE or SEVERAL, shape (J, L)
    gpus: NDArray[np.int64]  # GPUs of the row, shape (J, L)
    lengths: NDArray[np.int64]  # number of options of each job, shape (J,)


@dataclass(frozen=True)
class AnnealingSearch:
    """Search by simulated annealing, with an upper bound of the fitness; small problems are solved exactly.

    Small problems are solved by dynamic programming over what is left of every node. Larger problems start from the
    better of two allocations: the solution for a single pool of all GPUs, packed onto the nodes, or no change. Then
    annealing moves whole rows. The optimum of the pool is also the upper bound.

    Parameters
    ----------
    moves
        Moves of the annealing for each round.
    moves_per_job
        Additional moves for each job.
    exhaustive_steps
        Steps (jobs × states × rows) up to which a problem is solved exhaustively; a million take 1 ms.
    """

    moves: int = 2000
    moves_per_job: int = 40
    exhaustive_steps: int = 5_000_000

    def solve(self, problem: Problem, rng: np.random.Generator) -> Answer:
        """Return the best allocation found; its bound equals its fitness where it is proven optimal."""
        problem = trim(problem)
        logs = problem.log_values()
        scale: ScoreScale | None = choose_scale(logs, problem)
        best = problem.placements
        fitness = -np.inf
        upper_bound = np.inf
        for _ in range(MOST_SCALES):
            if scale is None:
                break
            answer, bound = self._solve(problem, logs, scale, rng)
            upper_bound = min(upper_bound, scale.fitness(bound, len(answer)))
            logs_of_answer = _logs_of(problem, logs, answer)
            scale = scale.refocused(logs_of_answer)
            fitness_of_answer = float(power_mean(logs_of_answer, problem.fairness_power))
            if fitness_of_answer > fitness:
                best = answer
                fitness = fitness_of_answer
        is_proven = upper_bound <= fitness * (1.0 + ROUNDING)
        if is_proven:
            upper_bound = fitness
        return Answer(with_idle_gpus(problem, best), fitness, upper_bound)

    def stands_still(self, problem: Problem) -> bool:
        """Return whether no waiting job could start, and the relaxed bound proves that no change is an improvement."""
        problem = trim(problem)
        if could_start(problem):
            return False
        logs = problem.log_values()
        # Half the tolerance of an answer, so that rounding does not prove now what the other check would not prove.
        return _relax(problem, logs, choose_scale(logs, problem)).proves_no_change(ROUNDING / 2)

    def _solve(
        self, problem: Problem, logs: NDArray[np.float64], scale: ScoreScale, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], float]:
        """Return an allocation, shape (J, N), and an upper bound of the sum of scores on this scale."""
        relaxed = _relax(problem, logs, scale)
        if relaxed.proves_no_change(ROUNDING):
            return problem.placements, relaxed.pool.bound
        # The states of a node double if one bit must say whether a multi-node job is on it.
        kinds = 2 if problem.avoid_interference else 1
        steps = len(logs) * prod((gpus + 1) ** 2 * kinds for gpus in problem.gpus_per_node.tolist())
        if steps < self.exhaustive_steps:
            return solve_exhaustively(problem, scale.scores(logs))
        return self._search(problem, logs, scale, relaxed, rng)

    def _search(
        self, problem: Problem, logs: NDArray[np.float64], scale: ScoreScale, relaxed: Relaxed, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], float]:
        """Return the best allocation found by local search, and an upper bound of the sum of scores.

        A start whose terms exceed the scale is returned unchanged, and determines the next scale.
        """
        tables = relaxed.tables
        present = relaxed.present
        bound, price, relaxed_gpus = relaxed.pool
        fixed = _round(problem, tables, price)
        start = _best_start(fixed, relaxed_gpus, rng)
        best = new_best(start)
        total = float(start.scores.sum())
        rows = dense(start.nodes, start.gpus, start.node_count, len(problem.gpus_per_node))
        fits_scale = scale.refocused(_logs_of(problem, logs, rows)) is None
        can_improve = bound - total > ROUNDING * abs(total)
        if fits_scale and can_improve:
            left_to_win = price * int(problem.gpus_per_node.sum()) + float(fixed.ideal.sum()) - total
            options = _options(tables, present, price, left_to_win)
            num_jobs = len(present)
            moves = self.moves + self.moves_per_job * num_jobs + MORE_MOVES * max(num_jobs - MANY_JOBS, 0)
            schedule = (moves, HOT * price, COLD * price)
            journal = new_journal(*start.nodes.shape)
            anneal(fixed, start, options, journal, best, schedule, rng)
            rows = dense(best.nodes, best.gpus, best.node_count, len(problem.gpus_per_node))
        return rows, bound


def warm_up() -> None:
    """Compile the local search, on a problem of one job and two nodes, with no moves.

    A run that needs its first kernel during this time waits for all kernels, so that no helper is compiled twice.
    """
    one_gpu = np.ones(1, dtype=np.int64)
    problem = Problem(
        job_ids=("a",),
        speedups=np.ones((1, 2, 2)),
        restart_factors=np.ones(1),
        max_replicas=one_gpu,
        placements=np.zeros((1, 2), dtype=np.int64),
        gpus_per_node=np.ones(2, dtype=np.int64),
        fairness_power=-1.0,
    )
    tables = ScoreTables(np.zeros(1), np.zeros((1, 2)), np.zeros((1, 2)))
    rng = np.random.default_rng(0)
    with one_process(local_search.__name__):
        fixed = _round(problem, tables, 1.0)
        packing = _best_start(fixed, one_gpu, rng)
        options = _options(tables, np.zeros(1, dtype=np.int64), 1.0, 1.0)
        schedule = (0, 1.0, 1.0)
        anneal(fixed, packing, options, new_journal(*packing.nodes.shape), new_best(packing), schedule, rng)


def _relax(problem: Problem, logs: NDArray[np.float64], scale: ScoreScale) -> Relaxed:
    """Solve the problem for a single pool; the logarithms of `Problem.log_values` have shape (J, 2, 2, K + 1)."""
    tables = score_tables(problem, scale.scores(logs))
    present: NDArray[np.int64] = problem.placements.sum(axis=1)
    fits = scale.refocused(_logs_of(problem, logs, problem.placements)) is None
    return Relaxed(tables, present, relax(tables, present, int(problem.gpus_per_node.sum())), fits)


def _logs_of(problem: Problem, logs: NDArray[np.float64], allocation: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of each job's speedup in an allocation, shape (J,)."""
    changed = (allocation != problem.placements).any(axis=1).astype(int)
    several = ((allocation > 0).sum(axis=1) > 1).astype(int)
    chosen: NDArray[np.float64] = logs[np.arange(len(logs)), changed, several, allocation.sum(axis=1)]
    return chosen


def _round(problem: Problem, tables: ScoreTables, price: float) -> Round:
    """Return the constants of the local search. `price` is the score that one more GPU is worth."""
    present_nodes, present_gpus, count = _left_aligned(problem.placements)
    present = problem.placements.sum(axis=1)
    prices = np.array([0.0, price])
    ideal = _net_scores(tables, present, price).max(axis=1)
    return Round(
        present_nodes=present_nodes,
        present_gpus=present_gpus,
        present_count=count,
        present_total=present,
        keep=tables.keep,
        single=tables.single,
        several=tables.several,
        gpus_per_node=problem.gpus_per_node,
        exclusive=problem.avoid_interference,
        single_choice=np.stack([priced_choices(tables.single, gpu_price, 0) for gpu_price in prices]),
        several_choice=np.stack([priced_choices(tables.several, gpu_price, 2) for gpu_price in prices]),
        price=prices,
        ideal=ideal,
    )


def _left_aligned(
    placements: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes with GPUs of each job, then −1; its GPUs on them, then 0; and the number of these nodes.

    `placements` has shape (J, N), the first two results have shape (J, W), the last one has shape (J,).

    >>> _left_aligned(np.array([[0, 4, 2], [1, 0, 0]]))[0].tolist()
    [[1, 2], [0, -1]]
    """
    count = (placements > 0).sum(axis=1)
    jobs, nodes = np.nonzero(placements)
    shape = (len(placements), max(int(count.max()), 1))
    aligned = np.full(shape, -1, dtype=np.int64)
    gpus = np.zeros(shape, dtype=np.int64)
    slots = np.arange(len(jobs)) - np.repeat(np.cumsum(count) - count, count)
    aligned[jobs, slots] = nodes
    gpus[jobs, slots] = placements[jobs, nodes]
    return aligned, gpus, count


def _best_start(fixed: Round, relaxed_gpus: NDArray[np.int64], rng: np.random.Generator) -> Packing:
    """Return the better start: the packed relaxed optimum, or no change, each with free GPUs given away."""
    num_nodes = len(fixed.gpus_per_node)
    width = max(min(num_nodes, fixed.single.shape[1] - 1), fixed.present_nodes.shape[1])
    packed = empty_packing(fixed, width)
    unchanged = empty_packing(fixed, width)
    construct(fixed, packed, relaxed_gpus, np.argsort(-relaxed_gpus, kind="stable"))
    stand_still(fixed, unchanged)
    for packing in (packed, unchanged):
        fill(fixed, packing, new_journal(*packing.nodes.shape), rng)
    return packed if packed.scores.sum() >= unchanged.scores.sum() else unchanged


def _options(tables: ScoreTables, present: NDArray[np.int64], price: float, tolerance: float) -> Options:
    """Return the rows worth trying, best first: after their price, within `tolerance` of the job's best score.

    Any other row alone costs more than the largest possible gain over the start, according to the bound.
    """
    counts = np.arange(tables.single.shape[1])
    kinds = np.repeat([KEEP, SINGLE, SEVERAL], [1, len(counts), len(counts)])
    gpus = np.concatenate([[0], counts, counts])
    net = _net_scores(tables, present, price)
    count = (net >= net.max(axis=1, keepdims=True) - tolerance).sum(axis=1)
    columns = np.argsort(-net, axis=1, kind="stable")[:, : count.max()]
    return Options(kinds[columns], gpus[columns], count)


def _net_scores(tables: ScoreTables, present: NDArray[np.int64], price: float) -> NDArray[np.float64]:
    """Return scores after price: to stay, k GPUs of one node, k of several; shape (J, 1 + 2(K + 1))."""
    cost = price * np.arange(tables.single.shape[1])
    return np.column_stack([tables.keep - price * present, tables.single - cost, tables.several - cost])
