"""The problem that Pollux makes of what it sees, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy import ToyProfile

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.goodput import GoodputModel
from polluxsim.models.throughput import ThroughputParams
from polluxsim.policies.contract.view import ClusterView, JobSnapshot
from polluxsim.policies.pollux.problem import SPEEDUP_FLOOR, SpeedupTables, build_problem

MODEL = GoodputModel(
    ToyProfile(max_atomic_batch_size=20).application,
    ThroughputParams(0.1, 0.01, 0.3, 0.02, 0.1, 0.01, 1.5),
    GradientStatistics(1.0, 20.0),
)


def job(name: str, submitted: float, service: float, **more: object) -> JobSnapshot:
    fields = {"placement": (), "num_restarts": 0, "max_replicas": 4, "goodput": None} | more
    return JobSnapshot(
        job_id=name,
        submit_time=submitted,
        num_replicas=1,
        batch_size=10,
        attained_service=service,
        oracle=None,
        **fields,
    )


VIEW = ClusterView(
    time=1000.0,
    gpus_per_node=(4, 4, 2),
    jobs=(
        job("old", 100.0, 500.0, placement=((0, 2), (2, 1)), num_restarts=2, goodput=MODEL, max_replicas=6),
        job("new", 940.0, 0.0, max_replicas=1),
        job("newer", 970.0, 0.0, max_replicas=99),
    ),
)


def test_a_rounds_problem() -> None:
    problem = build_problem(VIEW, SpeedupTables(), 0.5, avoid_interference=False)
    assert problem.job_ids == ("new", "newer", "old")  # by attained service, then submission
    assert problem.max_replicas.tolist() == [1, 10, 6]
    assert problem.placements.tolist() == [[0, 0, 0], [0, 0, 0], [2, 0, 1]]
    assert (problem.fairness_power, problem.avoid_interference) == (0.5, False)
    assert problem.restart_factors.tolist() == pytest.approx([60 / 90, 30 / 60, 840 / 930])
    # 10 GPUs and 3 jobs: a fair share of 4 GPUs; 3 nodes: speedups are scaled by 3/10.
    assert problem.speedups[0, 0, :3].tolist() == pytest.approx([0.0, 1 / 4 * 0.3, 0.0])
    assert problem.speedups[1, 1].tolist() == pytest.approx([k / 4 * 0.3 for k in range(11)])
    fair = MODEL.best(1, 4)[0]
    for several, replicas in ((0, 1), (0, 4), (0, 6), (1, 2), (1, 6)):
        expected = MODEL.best(several + 1, replicas)[0] / fair * 0.3
        assert problem.speedups[2, several, replicas] == pytest.approx(expected)
    assert problem.speedups[2, 0, 7] == 0.0  # beyond what it may have


def test_fitness_by_hand() -> None:
    problem = build_problem(VIEW, SpeedupTables(), -1.0, avoid_interference=True)
    kept = problem.placements.copy()
    speedup = MODEL.best(2, 3)[0] / MODEL.best(1, 4)[0] * 0.3
    costs = [1 / SPEEDUP_FLOOR, 1 / SPEEDUP_FLOOR, 1 / (speedup + SPEEDUP_FLOOR)]
    assert problem.fitness(kept) == pytest.approx(1 / np.mean(costs))
    kept[0, 1] = 1  # the first job starts: its speedup counts with the restart factor
    costs[0] = 1 / (0.3 / 4 * 60 / 90 + SPEEDUP_FLOOR)
    assert problem.fitness(kept) == pytest.approx(1 / np.mean(costs))


def test_tables_follow_a_job_whose_statistics_change() -> None:
    tables = SpeedupTables()
    first = tables.build(VIEW, VIEW.jobs)
    again = tables.build(VIEW, VIEW.jobs)
    assert (first == again).all()
    moved = GoodputModel(MODEL.application, MODEL.params, GradientStatistics(1.0, 2000.0))
    jobs = (job("old", 100.0, 500.0, goodput=moved, max_replicas=6), *VIEW.jobs[1:])
    changed = tables.build(VIEW, jobs)
    assert (changed == SpeedupTables().build(VIEW, jobs)).all()
    assert changed[0, 1, 6] > first[0, 1, 6]  # noisier gradients: larger batches and more GPUs pay


def test_tables_follow_a_job_whose_batch_size_is_set_anew() -> None:
    tables = SpeedupTables()
    tables.build(VIEW, VIEW.jobs)
    grown = replace(MODEL, application=replace(MODEL.application, fixed_batch_size=160))
    jobs = (job("old", 100.0, 500.0, goodput=grown, max_replicas=6), *VIEW.jobs[1:])
    assert (tables.build(VIEW, jobs) == SpeedupTables().build(VIEW, jobs)).all()
