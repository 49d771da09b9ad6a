"""Pollux with weights by remaining time: the weights, what is learnt, and that without them it is Pollux."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.pollux.annealing import AnnealingSearch
from polluxsim.policies.pollux.policy import Pollux, PolluxByRemaining, _WorkEstimates
from polluxsim.policies.pollux.problem import Problem
from polluxsim.workloads.philly import PhillyLike
from polluxsim.workloads.workload import Workload

PROFILES = ProfileFolder().load()
CLUSTER = Cluster.uniform(8, 4)


def workload(seed: int, num_jobs: int = 16) -> Workload:
    return PhillyLike(seed=seed, num_jobs=num_jobs, hours=1).load(PROFILES)


def test_without_strength_it_is_pollux() -> None:
    jobs = workload(1)
    weighted = simulate(jobs, PROFILES, CLUSTER, PolluxByRemaining(strength=0.0), seed=1)
    plain = simulate(jobs, PROFILES, CLUSTER, Pollux(p=-0.5), seed=1)
    assert weighted.job_records == plain.job_records
    other = simulate(jobs, PROFILES, CLUSTER, PolluxByRemaining(), seed=1)
    assert other.job_records != plain.job_records


def problem(rng: np.random.Generator, power: float) -> Problem:
    """Return three jobs on two nodes of two GPUs, with weights."""
    speedups = np.zeros((3, 2, 5))
    speedups[:, 0, 1:3] = np.cumsum(rng.uniform(0.05, 0.3, (3, 2)), axis=1)
    speedups[:, 1, 2:] = np.cumsum(rng.uniform(0.05, 0.3, (3, 3)), axis=1)
    weights = rng.uniform(0.1, 1.0, 3)
    return Problem(
        job_ids=("a", "b", "c"),
        speedups=speedups,
        restart_factors=rng.uniform(0.3, 0.9, 3),
        max_replicas=np.full(3, 4),
        placements=np.array([[1, 0], [0, 0], [0, 2]]),
        gpus_per_node=np.array([2, 2]),
        fairness_power=power,
        avoid_interference=False,
        shifts=np.log(weights) / power,
    )


def by_hand(asked: Problem, allocation: np.ndarray) -> float:
    """Return the weighted power mean."""
    power, total = asked.fairness_power, 0.0
    for row, own in enumerate(allocation):
        speedup = asked.speedups[row, int((own > 0).sum() > 1), own.sum()]
        speedup *= 1.0 if (own == asked.placements[row]).all() else asked.restart_factors[row]
        total += np.exp(asked.shifts[row] * power) * (speedup + 1e-3) ** power
    return float((total / len(allocation)) ** (1 / power))


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.5])
@pytest.mark.parametrize("seed", range(8))
def test_the_best_weighted_power_mean_is_found(power: float, seed: int) -> None:
    asked = problem(np.random.default_rng(seed), power)
    rows = [np.array(row) for row in itertools.product(range(3), repeat=2)]
    possible = [np.stack(chosen) for chosen in itertools.product(rows, repeat=3) if (sum(chosen) <= 2).all()]
    best = max(by_hand(asked, allocation) for allocation in possible)
    answer = AnnealingSearch().solve(asked, np.random.default_rng(0))
    assert answer.fitness == pytest.approx(best)
    assert asked.fitness(answer.allocation) == pytest.approx(by_hand(asked, answer.allocation))
    unlike = [replace(asked, shifts=None).fitness(one) / asked.fitness(one) for one in possible]
    assert max(unlike) > 1.01 * min(unlike)  # so that weights matter


@dataclass
class Watching(PolluxByRemaining):
    """Notes ranks, and what it takes jobs to have left beside what they have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[tuple[float, float, float]] = []
        self.ranked: list[tuple[list[float], list[float]]] = []

    def _ranks(self, view, asked, jobs):  # type: ignore[no-untyped-def]
        for job in jobs:
            if job.goodput is not None and job.application in self._estimates._totals:
                application = job.oracle.application
                assert job.trained == pytest.approx(job.oracle.progress * application.init_batch_size)
                total = PROFILES[job.application].epoch_end(application.num_epochs - 1) * application.init_batch_size
                self.told.append((self._estimates.left(job), total - job.trained, total))
        ranks = super()._ranks(view, asked, jobs)
        self.ranked.append((ranks.tolist(), [job.goodput is not None for job in jobs]))
        return ranks


def test_what_a_job_has_left_is_learnt_from_those_before_it() -> None:
    policy = Watching()
    simulate(workload(3, 24), PROFILES, CLUSTER, policy, seed=3)
    estimates = {name: totals for name, totals in policy._estimates._totals.items() if len(totals) > 1}
    assert len(estimates) >= 2
    for totals in estimates.values():  # all jobs of an application do alike work
        assert max(totals) < 1.15 * min(totals)
    assert len(policy.told) > 50
    for told, true, total in policy.told:
        assert abs(told - true) < 0.15 * total
    assert np.median([abs(told - true) / total for told, true, total in policy.told]) < 0.05


def test_a_length_does_not_grow_while_nobody_is_there_to_ask_for() -> None:
    alike = next(job for job in workload(3, 24).jobs if job.application == "cifar10")
    jobs = (replace(alike, job_id=f"{hour}", submit_time=3600.0 * hour) for hour in (0, 10, 20))
    policy = PolluxByRemaining()
    simulate(Workload(tuple(jobs)), PROFILES, CLUSTER, policy, seed=1)
    limits = PROFILES["cifar10"].application
    true = PROFILES["cifar10"].epoch_end(limits.num_epochs - 1) * limits.init_batch_size
    assert policy._estimates._totals["cifar10"] == pytest.approx([true, true], rel=0.1)


def test_before_anybody_ended_jobs_do_twice_what_the_oldest_did() -> None:
    estimates, old, new = _WorkEstimates(), *(SimpleNamespace(application="a", trained=done) for done in (300.0, 50.0))
    estimates._most["a"] = 300.0
    assert (estimates.left(old), estimates.left(new)) == (300.0, 550.0)  # type: ignore[arg-type]
    estimates._totals["a"] = [200.0, 310.0, 900.0]
    assert estimates.left(new) == 260.0  # type: ignore[arg-type]
    assert 0 < estimates.left(old) == 10.0  # type: ignore[arg-type]


def test_ranks_are_those_of_times_left_and_critical_jobs_have_one() -> None:
    policy = Watching(oracle=True)
    simulate(workload(3), PROFILES, CLUSTER, policy, seed=3)
    assert all(sorted(ranks) == [n / len(ranks) for n in range(1, len(ranks) + 1)] for ranks, _ in policy.ranked)
    alike = Watching(oracle=True, critical=1e-9)
    simulate(workload(3), PROFILES, CLUSTER, alike, seed=3)
    shared = [[rank for rank, known in zip(ranks, knowns, strict=True) if known] for ranks, knowns in alike.ranked]
    assert all(len(set(ranks)) <= 1 for ranks in shared)
    assert any(len(ranks) > 2 for ranks in shared)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 0.0}, "policy.p is 0, where terms have no weights; choose another finite number"),
        ({"strength": -1.0}, "policy.strength is -1, must be a finite number ≥ 0"),
        ({"critical": 0.0}, "policy.critical is 0, must be a finite number > 0"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        PolluxByRemaining(**settings)
