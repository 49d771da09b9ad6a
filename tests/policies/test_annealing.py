"""The exact search: brute force on small problems, laws on all, the recorded rounds of a published run."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_rounds import read_rounds

from polluxsim.policies.pollux import annealing
from polluxsim.policies.pollux.annealing import AnnealingSearch
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.problem import Problem
from polluxsim.policies.pollux.rows import dense, draw_below
from polluxsim.policies.pollux.scores import (
    _least_bottleneck,
    choose_scale,
    pooled_scores,
    price_gpus,
    relax,
    score_tables,
    trim,
)

annealing_kernel = annealing.anneal
POWERS = (1.0, 0.0, -1.0, -10.0)
TOLERANCE = 1e-9


def is_feasible(problem, allocation):
    several = (allocation > 0).sum(axis=1) > 1
    crowded = ((allocation > 0) & several[:, None]).sum(axis=0) > 1
    return (
        allocation.shape == problem.placements.shape
        and (allocation >= 0).all()
        and (allocation.sum(axis=0) <= problem.gpus_per_node).all()
        and (allocation.sum(axis=1) <= problem.max_replicas).all()
        and not ((allocation.sum(axis=1) > 0) & (allocation.sum(axis=1) < problem.fewest)).any()
        and not (problem.avoid_interference and crowded.any())
    )


def solve(problem, seed=0, **parameters):
    answer = AnnealingSearch(**parameters).solve(problem, np.random.default_rng(seed))
    assert is_feasible(problem, answer.allocation)
    assert answer.fitness == pytest.approx(problem.fitness(answer.allocation), rel=TOLERANCE)
    assert answer.upper_bound >= answer.fitness
    return answer


def brute_force(problem):
    """Return the largest fitness over every feasible allocation, by depth-first enumeration of all rows."""
    nodes = problem.gpus_per_node
    rows = [np.array(row) for row in product(*(range(gpus + 1) for gpus in nodes))]
    logs = problem.log_values()
    best = -np.inf

    def visit(j, free, taken, chosen):
        nonlocal best
        if j == len(problem.job_ids):
            exponent = problem.fairness_power
            terms = np.array(chosen)
            if exponent == 0:
                value = np.exp(terms.mean())
            else:
                largest = (exponent * terms).max()
                value = np.exp((largest + np.log(np.exp(exponent * terms - largest).mean())) / exponent)
            best = max(best, value)
            return
        for row in rows:
            several = (row > 0).sum() > 1
            clash = problem.avoid_interference and several and (taken & (row > 0)).any()
            if clash or (row > free).any() or row.sum() > problem.max_replicas[j] or 0 < row.sum() < problem.fewest[j]:
                continue
            changed = int((row != problem.placements[j]).any())
            log = logs[j, changed, int(several), row.sum()]
            visit(j + 1, free - row, taken | (row > 0) if several else taken, [*chosen, log])

    visit(0, nodes.copy(), np.zeros(len(nodes), dtype=bool), [])
    return best


@st.composite
def problems(draw, most_jobs=3, node_shapes=((2,), (4,), (1, 2), (2, 2), (3, 1), (1, 1, 1), (2, 1, 1))):
    gpus = np.array(draw(st.sampled_from(node_shapes)))
    num_jobs, total = draw(st.integers(1, most_jobs)), int(gpus.sum())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    speedups = rng.uniform(0.0, 2.0, (num_jobs, 2, total + 1))
    if draw(st.booleans()):
        speedups.sort(axis=2)
        speedups[:, 1] *= 0.8
    speedups[:, :, 0] = 0.0
    most = rng.integers(0 if draw(st.booleans()) else 1, total + 1, num_jobs)
    fewest = rng.integers(1, 4, num_jobs) if draw(st.booleans()) else None
    problem = Problem(
        job_ids=tuple(f"job-{j}" for j in range(num_jobs)),
        speedups=speedups,
        restart_factors=rng.choice([0.0, 0.3, 0.9, 1.0], num_jobs),
        max_replicas=most,
        placements=np.zeros((num_jobs, len(gpus)), dtype=np.int64),
        gpus_per_node=gpus,
        fairness_power=draw(st.sampled_from(POWERS)),
        avoid_interference=draw(st.booleans()),
        min_replicas=fewest,
    )
    return replace(problem, placements=random_allocation(problem, rng))


def random_allocation(problem, rng):
    """Return a feasible allocation: GPUs one by one to random jobs and nodes where nothing is violated.

    Jobs that get too few GPUs lose them.
    """
    allocation = np.zeros_like(problem.placements)
    fewest, problem = problem.fewest, replace(problem, min_replicas=None)
    for _ in range(2 * int(problem.gpus_per_node.sum())):
        j, n = rng.integers(allocation.shape[0]), rng.integers(allocation.shape[1])
        allocation[j, n] += 1
        if not is_feasible(problem, allocation):
            allocation[j, n] -= 1
    allocation[allocation.sum(axis=1) < fewest] = 0
    return allocation


def random_problem(seed, num_jobs, gpus, power=-1.0, *, avoid_interference=True):
    """Return a problem of any size with concave speedups, half of it in use."""
    rng = np.random.default_rng(seed)
    gpus = np.array(gpus)
    most = rng.integers(1, min(gpus.sum(), 64) + 1, num_jobs)
    speedups = np.zeros((num_jobs, 2, gpus.sum() + 1))
    for j in range(num_jobs):
        speedups[j, 0, : gpus.max() + 1] = np.arange(gpus.max() + 1) ** rng.uniform(0.3, 1.0)
        speedups[j, 1] = np.arange(gpus.sum() + 1) ** rng.uniform(0.3, 0.9)
        speedups[j, 1, :2] = 0.0
    problem = Problem(
        tuple(f"job-{j}" for j in range(num_jobs)), speedups, rng.uniform(0.2, 1.0, num_jobs), most,
        np.zeros((num_jobs, len(gpus)), dtype=np.int64), gpus, power, avoid_interference,
    )  # fmt: skip
    return replace(problem, placements=random_allocation(problem, rng))


@settings(max_examples=75, deadline=None)
@given(problems())
def test_it_equals_brute_force_on_small_problems(problem):
    answer = solve(problem)
    best = brute_force(problem)
    assert answer.fitness == pytest.approx(best, rel=TOLERANCE)
    assert answer.upper_bound == pytest.approx(best, rel=TOLERANCE)


@settings(max_examples=30, deadline=None)
@given(problems(most_jobs=4, node_shapes=((4, 4), (4, 3, 2), (4, 4, 4), (1, 2, 3))))
def test_local_search_never_beats_the_optimum(problem):
    optimum = solve(problem)
    found = solve(problem, exhaustive_steps=0)
    assert optimum.upper_bound == optimum.fitness
    assert found.fitness <= optimum.fitness * (1 + TOLERANCE)


@settings(max_examples=50, deadline=None)
@given(problems(most_jobs=4, node_shapes=((4, 4), (4, 3, 2), (4, 4, 4), (1, 2, 3))))
def test_neither_bound_is_below_the_optimum(problem):
    optimum = solve(problem)
    trimmed = trim(problem)
    logs = trimmed.log_values()
    scale = choose_scale(logs, trimmed)
    tables = score_tables(trimmed, scale.scores(logs))
    present, num_gpus = problem.placements.sum(axis=1), problem.gpus_per_node.sum()
    by_price, _, _ = price_gpus(pooled_scores(tables.keep, tables.single, tables.several, present), num_gpus)
    dealt = relax(tables, present, num_gpus).bound
    for bound in (by_price, dealt):
        assert scale.fitness(bound, len(logs)) >= optimum.fitness * (1 - TOLERANCE)


def test_local_search_finds_nearly_every_small_optimum():
    missed = 0
    for seed in range(60):
        problem = random_problem(seed, 4, (4, 2, 3), POWERS[seed % 4], avoid_interference=seed % 8 < 4)
        optimum = solve(problem)
        found = solve(problem, exhaustive_steps=0)
        missed += found.fitness < optimum.fitness * (1 - TOLERANCE)
    assert missed <= 1


@numba.njit
def draws_below(rng, ends, drawn):
    for i in range(len(ends)):
        drawn[i] = draw_below(rng, ends[i])


def test_integers_are_those_of_numpy():
    ends = np.concatenate([np.arange(1, 200), [2**16, 3 * 2**30, 2**32 - 1] * 50])
    drawn = np.empty_like(ends)
    draws_below(np.random.default_rng(5), ends, drawn)
    rng = np.random.default_rng(5)
    assert drawn.tolist() == [int(rng.integers(0, end)) for end in ends]


@pytest.mark.parametrize("seed", range(20))
def test_the_books_of_a_packing_match_its_rows(seed, monkeypatch):
    packings = []
    monkeypatch.setattr(annealing, "anneal", lambda *args: packings.append(args[1]) or annealing_kernel(*args))
    shape = (4, 2, 3, 4) if seed % 2 else (4, 2, 3, 8) * 20  # one word of bits for each set of nodes, or two
    problem = random_problem(seed, 8 if seed % 2 else 60, shape, -1.0, avoid_interference=seed % 4 < 2)
    solve(problem, exhaustive_steps=0)
    for packing in packings:
        rows = dense(packing.nodes, packing.gpus, packing.node_count, len(shape))
        free = np.array(shape) - rows.sum(axis=0)
        several = (rows > 0).sum(axis=1) > 1
        owned = (rows[several] > 0).any(axis=0) & problem.avoid_interference
        assert packing.free.tolist() == free.tolist()
        assert (packing.owner >= 0).tolist() == owned.tolist()
        for node, count in enumerate(packing.resident_count.tolist()):
            assert sorted(packing.residents[node, :count]) == np.flatnonzero(rows[:, node]).tolist()
        for has_owner, gpus in product(range(2), range(max(shape) + 1)):
            like = np.flatnonzero((free == gpus) & (owned == has_owner))
            bits = sum(int(word) << 64 * i for i, word in enumerate(packing.like[has_owner, gpus]))
            assert bits == sum(1 << node for node in like.tolist())
            assert packing.like_count[has_owner, gpus] == len(like)
    assert packings or seed % 2


@settings(max_examples=25, deadline=None)
@given(problems(most_jobs=4), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(problem, random):
    order = list(range(len(problem.job_ids)))
    random.shuffle(order)
    permuted = replace(
        problem,
        job_ids=tuple(problem.job_ids[j] for j in order),
        speedups=problem.speedups[order],
        restart_factors=problem.restart_factors[order],
        max_replicas=problem.max_replicas[order],
        placements=problem.placements[order],
        min_replicas=problem.fewest[order],
    )
    assert solve(permuted).fitness == pytest.approx(solve(problem).fitness, rel=TOLERANCE)


SHAPES = [
    (1, (4,)),
    (3, (1,) * 9),
    (30, (4,) * 4),
    (12, (8, 8, 4, 4, 2, 1)),
    (5, (4,) * 16),
    (20, (16, 16)),
    (40, (4,) * 16),
]


@pytest.mark.parametrize("power", [*POWERS, 0.5, 1e-6, -1e-6, 40.0, -1000.0, 1000.0])
@pytest.mark.parametrize(("num_jobs", "gpus"), SHAPES)
def test_answers_are_feasible_and_no_worse_than_no_change_and_than_the_start(num_jobs, gpus, power):
    for avoid in (True, False):
        problem = random_problem(num_jobs, num_jobs, gpus, power, avoid_interference=avoid)
        answer = solve(problem, exhaustive_steps=0)
        start = solve(problem, exhaustive_steps=0, moves=0, moves_per_job=0)
        assert np.isfinite(answer.upper_bound)
        # Near p = 0 the power mean itself has few digits left.
        tolerance = 1e-8 if 0 < abs(power) < 1e-3 else TOLERANCE
        assert answer.fitness >= problem.fitness(problem.placements) * (1 - tolerance)
        assert answer.fitness >= start.fitness * (1 - tolerance)


@pytest.mark.parametrize("power", [-1000.0, -300.0])
def test_a_starved_cluster_does_not_overflow(power):
    """With more jobs than GPUs some terms are 1000 to the 300th or more."""
    problem = replace(random_problem(3, 6, (2, 2), power), max_replicas=np.full(6, 4))
    answer = solve(problem)
    assert answer.fitness == pytest.approx(brute_force(problem), rel=1e-9)


@pytest.mark.parametrize("power", [-1000.0, -400.0])
def test_terms_that_were_cut_are_told_apart(power):
    """Pooled, both jobs reach a speedup of 10; on the nodes only one can; its term is cut at first."""
    speedups = np.zeros((2, 2, 5))
    speedups[:, 0] = [0.0, 0.01, 0.02, 10.0, 10.0]
    speedups[0, 1] = [0.0, 0.0, 10.0, 10.0, 10.0]
    speedups[1, 1] = [0.0, 0.0, 10.0, 10.0, 10.0]
    problem = Problem(
        ("a", "b"),
        speedups,
        np.ones(2),
        np.full(2, 4),
        np.zeros((2, 2), dtype=np.int64),
        np.full(2, 2),
        power,
    )
    assert solve(problem).fitness == pytest.approx(brute_force(problem), rel=1e-9)


def test_present_placements_that_break_the_rules_are_given_up():
    """Two multi-node jobs on the same nodes, placed while that was allowed, and one beyond its limit."""
    problem = random_problem(1, 3, (4, 4, 4))
    crowded = np.array([[2, 2, 0], [2, 2, 0], [0, 0, 4]])
    problem = replace(problem, placements=crowded, max_replicas=np.array([8, 8, 2]))
    solve(problem)
    solve(problem, exhaustive_steps=0)


def test_it_is_a_function_of_problem_and_seed():
    problem = random_problem(5, 20, (4,) * 8)
    first, again = solve(problem, seed=7).allocation, solve(problem, seed=7).allocation
    assert (first == again).all()


def test_the_gap_is_small_on_many_nodes():
    problem = random_problem(0, 150, (4,) * 64)
    answer = solve(problem)
    assert 1 - answer.fitness / answer.upper_bound <= 0.02


def pooled_optimum(problem):
    """Return the fitness at p = −1 if each job had the best value at its GPUs and all GPUs were a pool."""
    values = np.exp(-problem.log_values())
    costs = values[:, 1].min(axis=1)
    for j, placement in enumerate(problem.placements):
        gpus = placement.sum()
        costs[j, gpus] = min(costs[j, gpus], values[j, 0, int((placement > 0).sum() > 1), gpus])
    total = np.zeros(problem.gpus_per_node.sum() + 1)
    for cost, most in zip(costs, problem.max_replicas, strict=True):
        reached = np.full_like(total, np.inf)
        for k in range(most + 1):
            reached[k:] = np.minimum(reached[k:], total[: len(total) - k] + cost[k])
        total = reached
    return len(costs) / total.min()


def test_recorded_rounds_are_near_the_bound_and_no_worse_than_recorded(data_folder):
    gaps = []
    for problem, _, recorded in read_rounds(data_folder / "rounds" / "pollux-workload-3.jsonl.gz"):
        answer = solve(problem)
        assert answer.fitness >= 0.999 * recorded
        bound = pooled_optimum(problem)
        assert answer.upper_bound == pytest.approx(bound, rel=TOLERANCE)
        gaps.append(1 - answer.fitness / bound)
    assert np.mean(gaps) <= 0.0025


@given(problems(), st.integers(0, 2**32), st.floats(0.0, 1.0))
@settings(max_examples=75)
def test_what_stands_still_is_an_optimum_and_stays_one_with_smaller_restart_factors(problem, seed, share):
    """From any start, and from an optimum, where standing still is common and has to be proven."""
    settled = replace(problem, placements=solve(problem).allocation)
    rng = np.random.default_rng(seed)
    for start in (problem, settled):
        if not AnnealingSearch().stands_still(start):
            continue
        factors = start.restart_factors * rng.uniform(share, 1.0, len(start.job_ids))
        for each in (start, replace(start, restart_factors=factors)):
            answer = solve(each, seed)
            assert (answer.allocation == start.placements).all()
            assert answer.fitness == answer.upper_bound == pytest.approx(brute_force(each), rel=TOLERANCE)


def test_standing_still_is_proven_more_often_than_not_at_an_optimum() -> None:
    """Otherwise the test above would be empty."""
    problems_met = [random_problem(seed, 3, (4, 4, 4, 4)) for seed in range(40)]
    settled = [replace(each, placements=solve(each).allocation) for each in problems_met]
    assert sum(map(AnnealingSearch().stands_still, settled)) >= 20


@given(problems(), st.integers(0, 2**32))
@settings(max_examples=50)
def test_idle_gpus_go_to_whom_the_objective_is_indifferent_at_no_cost(problem, seed):
    """A start at restart factor 0 counts for nothing: nobody waits for a useful GPU that is idle, and none is taken."""
    problem = replace(problem, restart_factors=np.zeros(len(problem.job_ids)))
    for answer in (solve(problem, seed), GeneticSearch(20, 10).solve(problem, np.random.default_rng(seed))):
        allocation = answer.allocation
        assert is_feasible(problem, allocation)
        assert problem.fitness(allocation) == pytest.approx(answer.fitness, rel=TOLERANCE)
        assert answer.fitness >= problem.fitness(problem.placements) * (1 - TOLERANCE)
        largest = int((problem.gpus_per_node - allocation.sum(axis=0)).max())
        for j in np.flatnonzero((allocation.sum(axis=1) == 0) & (problem.placements.sum(axis=1) == 0)):
            assert not problem.speedups[j, 0, problem.fewest[j] : min(largest, problem.max_replicas[j]) + 1].any()
            if largest < problem.fewest[j] <= problem.max_replicas[j] and problem.speedups[j, 1, problem.fewest[j]]:
                several = (allocation > 0).sum(axis=1) > 1
                is_closed = (allocation[several] > 0).any(axis=0) & problem.avoid_interference
                assert (problem.gpus_per_node - allocation.sum(axis=0))[~is_closed].sum() < problem.fewest[j]


@given(st.lists(st.lists(st.integers(-20, 20), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 12))
def test_the_least_bottleneck_is_that_of_trying_all(rows: list[list[int]], num_gpus: int) -> None:
    """Each job's exponents fall with its GPUs; where even no GPUs suffice for the largest, that is the answer."""
    exponents = np.array([sorted(row, reverse=True) for row in rows], float)
    low, high = float(exponents.min(axis=1).max()), float(exponents.max())
    enough = [t for t in np.unique(exponents) if t >= low and (exponents > t).sum() <= num_gpus]
    assert _least_bottleneck(exponents, low, high, num_gpus) == pytest.approx(min(enough), abs=1e-9)
