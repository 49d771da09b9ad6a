from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench_search import synthetic_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from recorded_rounds import read_rounds

from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.pollux.genetic import GeneticSearch, survivors
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.pollux.problem import Problem, power_mean, restart_factor


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    num_jobs, num_nodes = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gpus = rng.integers(1, 5, num_nodes)
    speedups = np.sort(rng.random((num_jobs, 2, gpus.sum() + 1)), axis=2)
    speedups[:, :, 0] = 0.0
    placements = np.zeros((num_jobs, num_nodes), dtype=np.int64)
    for node in range(num_nodes):  # some jobs hold GPUs already, no two of them several nodes of the same
        placements[rng.integers(num_jobs), node] = rng.integers(gpus[node] + 1)
    return Problem(
        job_ids=tuple(f"job-{i}" for i in range(num_jobs)),
        speedups=speedups,
        restart_factors=rng.random(num_jobs),
        max_replicas=np.maximum(placements.sum(axis=1), rng.integers(1, gpus.sum() + 1, num_jobs)),
        placements=placements,
        gpus_per_node=gpus,
        fairness_power=draw(st.sampled_from([1.0, 0.0, -1.0, -10.0, -1000.0])),
        avoid_interference=draw(st.booleans()),
        min_replicas=rng.integers(1, np.maximum(placements.sum(axis=1), 1) + 1) if draw(st.booleans()) else None,
    )


def check_feasible(problem: Problem, answer: np.ndarray) -> None:
    assert answer.shape == problem.placements.shape
    assert (answer >= 0).all()
    assert (answer.sum(axis=0) <= problem.gpus_per_node).all()
    gpus = answer.sum(axis=1)
    assert (gpus <= problem.max_replicas).all()
    assert ((gpus == 0) | (gpus >= problem.fewest)).all()
    if problem.avoid_interference:
        several = answer[(answer > 0).sum(axis=1) > 1]
        assert ((several > 0).sum(axis=0) <= 1).all()


@given(problems(), st.integers(0, 100))
@settings(max_examples=50)
def test_answers_are_feasible_reproducible_and_no_worse_than_no_change(problem: Problem, seed: int) -> None:
    answers = [GeneticSearch(20, 10).solve(problem, np.random.default_rng(seed)).allocation for _ in range(2)]
    np.testing.assert_array_equal(*answers)
    check_feasible(problem, answers[0])
    check_feasible(problem, problem.placements)
    assert problem.fitness(answers[0]) >= problem.fitness(problem.placements) * (1 - 1e-9)


@given(problems())
@settings(max_examples=30)
def test_a_warm_start_survives_jobs_that_come_and_go(problem: Problem) -> None:
    search, rng = GeneticSearch(20, 5), np.random.default_rng(0)
    search.solve(problem, rng)
    others = tuple(f"job-{i + 2}" for i in range(len(problem.job_ids)))
    later = Problem(**{**vars(problem), "job_ids": others})
    check_feasible(later, search.solve(later, rng).allocation)


def test_the_fittest_member_always_survives() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        objectives = rng.random((40, 2))
        rank, crowding = np.zeros(20, dtype=np.int64), np.zeros(20)
        order = survivors(objectives, 20, rank, crowding)
        assert len(set(order.tolist())) == 20
        assert objectives[order, 0].max() == objectives[:, 0].max()
        # Fronts by their definition: nobody in a front is dominated within it, everybody by one of the front before.
        for front in range(int(rank.max()) + 1):
            members = objectives[order[rank == front]]
            before = objectives[order[rank == front - 1]]
            assert not any(_dominates(a, b) for a in members for b in members)
            if front:
                assert all(any(_dominates(a, b) for a in before) for b in members)


def test_of_equal_members_one_is_in_front_of_the_others() -> None:
    """So copies of a good allocation do not crowd out everything else."""
    rank, crowding = np.zeros(5, dtype=np.int64), np.zeros(5)
    survivors(np.ones((5, 2)), 5, rank, crowding)
    assert rank.tolist() == [0, 1, 2, 3, 4]


def _dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a >= b).all() and (a > b).any())


@given(st.lists(st.floats(1e-3, 100), min_size=1, max_size=20), st.floats(-50, 50))
def test_the_power_mean_is_the_power_mean(values: list[float], power: float) -> None:
    numbers = np.array(values)
    if abs(power) < 1e-8:
        expected = np.exp(np.log(numbers).mean())
    else:
        scaled = numbers / numbers.max()
        expected = numbers.max() * np.mean(scaled**power) ** (1 / power)
    assert power_mean(np.log(numbers), power) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("power", [0.0, 5e-324, 1e-300, 1e-17, -1e-17, 1e-15, -1e-14, 1e-9])
def test_the_power_mean_of_small_powers_is_the_geometric(power: float) -> None:
    logs = np.log(np.array([0.001, 1.0, 5.0]))
    assert power_mean(logs, power) == pytest.approx(np.exp(logs.mean()), rel=1e-7)


def test_the_power_mean_of_extreme_powers_is_an_extreme() -> None:
    logs = np.log(np.array([0.001, 1.0, 5.0]))
    assert power_mean(logs, -10_000.0) == pytest.approx(0.001, rel=1e-3)
    assert power_mean(logs, 10_000.0) == pytest.approx(5.0, rel=1e-3)


def test_restart_factors_by_hand() -> None:
    assert restart_factor(age=0.0, num_restarts=0, restart_delay=30.0) == 0.0
    assert restart_factor(age=90.0, num_restarts=1, restart_delay=30.0) == 0.5
    assert restart_factor(age=90.0, num_restarts=5, restart_delay=30.0) == 0.0
    assert restart_factor(age=0.0, num_restarts=0, restart_delay=0.0) == 1.0


@pytest.mark.parametrize("wrong", [{"p": float("inf")}, {"p": float("nan")}, {"search": "guess"}, {"search": ["a"]}])
def test_impossible_parameters_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=r"policy\.(p|search) is .*, must be"):
        Pollux(**wrong)


def test_recorded_problems_are_solved_as_well_as_by_the_published_search(data_folder: Path) -> None:
    ratios = []
    for problem, answer, fitness in read_rounds(data_folder / "rounds" / "pollux-workload-3.jsonl.gz"):
        assert problem.fitness(answer) == pytest.approx(fitness, rel=1e-6)
        found = GeneticSearch().solve(problem, np.random.default_rng(0)).allocation
        check_feasible(problem, found)
        ratios.append(problem.fitness(found) / fitness)
    assert len(ratios) == 74
    assert np.mean(ratios) >= 0.999


@pytest.mark.skipif(config.NUMBA_NUM_THREADS < 2, reason="one core: there is one number of threads")
@pytest.mark.parametrize("num_jobs", [1, 7, 40])
def test_the_answer_does_not_depend_on_the_number_of_threads(num_jobs: int) -> None:
    problem = synthetic_problem(num_jobs, 16)
    answers = []
    for threads in {1, 2, config.NUMBA_NUM_THREADS}:
        search, rng = GeneticSearch(20, 10, threads), np.random.default_rng(3)
        answers.append([search.solve(problem, rng) for _ in range(2)])  # the second goes on from the first
    for other in answers[1:]:
        for one, same in zip(answers[0], other, strict=True):
            np.testing.assert_array_equal(one.allocation, same.allocation)
            assert one.fitness == same.fitness


def test_more_threads_than_there_are_give_the_same_answer() -> None:
    problem = synthetic_problem(7, 16)
    one, same = (
        GeneticSearch(50, 20, threads).solve(problem, np.random.default_rng(3))
        for threads in (1, config.NUMBA_NUM_THREADS + 1)
    )
    np.testing.assert_array_equal(one.allocation, same.allocation)
    assert one.fitness == same.fitness


@pytest.mark.parametrize("threads", [0, -1])
def test_other_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"is {threads}, must be a whole number ≥ 1"):
        Pollux("genetic", threads=threads)
    with pytest.raises(InvalidConfigError, match=f"population of the genetic search is {threads}, must be"):
        GeneticSearch(population=threads)
