"""The whole event log of three jobs on two nodes, worked out by hand."""

from __future__ import annotations

import pytest
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.errors import InvalidAllocationError, InvalidConfigError, StalledError
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.replay import Replay
from polluxsim.policies.tiresias import Tiresias
from polluxsim.policies.view import ClusterView
from polluxsim.records import AllocationRecord as Change
from polluxsim.records import RoundRecord
from polluxsim.types import Cluster

CLUSTER = Cluster.uniform(2, 2)
PROFILES = {"toy": ToyProfile(epochs=(100.0, 200.0))}
JOBS = toy_workload(toy_job("a", 0, gpus=2), toy_job("b", 10, gpus=2), toy_job("c", 60, gpus=4))


def test_three_jobs_first_in_first_out() -> None:
    result = simulate(JOBS, PROFILES, CLUSTER, Fifo())
    assert result.allocation_records == (
        Change(60.0, "a", (0,), (2,), 20, 0),  # 200 M0-steps at 2 a second after a delay of 30 s
        Change(60.0, "b", (1,), (2,), 20, 0),
        Change(190.0, "a", (), (), 0, 0),
        Change(190.0, "b", (), (), 0, 0),
        Change(240.0, "c", (0, 1), (2, 2), 40, 0),  # the first round after both ended
        Change(320.0, "c", (), (), 0, 0),
    )
    assert [(r.time, r.active_jobs, r.gpus_in_use) for r in result.round_records] == [
        (60.0, 3, 4),
        (120.0, 3, 4),
        (180.0, 3, 4),
        (240.0, 1, 4),
        (300.0, 1, 4),
    ]
    # 4 M0-steps of 10 examples a second in all; every step of every batch is perfectly efficient.
    assert result.round_records[0] == RoundRecord(60.0, 3, 4, goodput=40.0, efficiency=1.0)


def test_three_jobs_with_preemption() -> None:
    """Tiresias: at 120 s job a, and one round later b, have had 60 s on 2 GPUs and go behind c."""
    result = simulate(JOBS, PROFILES, CLUSTER, Tiresias(queue_threshold=120.0))
    changes = [(c.time, c.job, sum(c.gpus)) for c in result.allocation_records]
    assert changes == [
        (60.0, "a", 2),
        (60.0, "b", 2),
        (120.0, "a", 0),
        (120.0, "b", 0),
        (120.0, "c", 4),
        (180.0, "c", 0),  # 240 GPU-seconds: demoted, behind a and b
        (180.0, "a", 2),
        (180.0, "b", 2),
        (280.0, "a", 0),  # 60 done before, 140 left at 2 a second after another delay
        (280.0, "b", 0),
        (300.0, "c", 4),
        (350.0, "c", 0),  # 120 done before, 80 left at 4 a second
    ]
    assert [job.num_restarts for job in result.job_records] == [1, 1, 1]


def test_multi_node_jobs_that_share_a_node_slow_each_other_down() -> None:
    jobs = toy_workload(toy_job("a", 0, gpus=2), toy_job("b", 0, gpus=2))
    spread = {time: {"a": ((0, 1), (1, 1)), "b": ((0, 1), (1, 1))} for time in range(60, 600, 60)}
    settings = EngineSettings(interference=0.5, restart_delay=0.0)
    result = simulate(jobs, PROFILES, CLUSTER, Replay(spread, adaptive=False), settings=settings)
    assert [job.completion_time for job in result.job_records] == [260.0, 260.0]  # 200 at 1 a second instead of 2
    apart = {time: {"a": ((0, 2),), "b": ((1, 2),)} for time in range(60, 600, 60)}
    result = simulate(jobs, PROFILES, CLUSTER, Replay(apart, adaptive=False), settings=settings)
    assert [job.completion_time for job in result.job_records] == [160.0, 160.0]


def test_interference_ends_with_the_round_after_the_other_job() -> None:
    jobs = toy_workload(toy_job("a", 0, gpus=2), toy_job("b", 0, gpus=2))
    both = {"a": ((0, 1), (1, 1)), "b": ((0, 1), (1, 1))}
    recorded = {60: both, 120: both} | {time: {"a": both["a"]} for time in range(180, 600, 60)}
    settings = EngineSettings(interference=0.5, restart_delay=0.0, horizon=500.0)
    result = simulate(jobs, PROFILES, CLUSTER, Replay(recorded, adaptive=False), settings=settings)
    assert result.job_records[0].completion_time == 220.0  # 120 s at 1 a second, then 2


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ({"a": ((0, 3),)}, "over-allocated node 0: with job 'a' it is asked for 3 GPUs, allowed are 2"),
        ({"a": ((0, 2),), "b": ((0, 1),)}, "over-allocated node 0: with job 'b'"),
        ({"a": ((7, 1),)}, "job 'a' node 7, allowed are 0 to 1"),
        ({"a": ((0, 0),)}, "job 'a' 0 GPUs of node 0"),
        ({"a": ((0, 1), (0, 1))}, "named a node twice for job 'a'"),
        ({"nobody": ((0, 1),)}, "job 'nobody', which is not active"),
    ],
)
def test_an_impossible_allocation_is_named(allocation: dict[str, tuple[tuple[int, int], ...]], message: str) -> None:
    class Wrong:
        def allocate(self, view: ClusterView, rng: object) -> dict[str, tuple[tuple[int, int], ...]]:
            return allocation

    with pytest.raises(InvalidAllocationError, match=message):
        simulate(JOBS, PROFILES, CLUSTER, Wrong())


def test_starvation_is_an_error_and_not_an_endless_run() -> None:
    with pytest.raises(StalledError, match=r"no GPU to any of the 3 waiting jobs.*'a'"):
        simulate(JOBS, PROFILES, CLUSTER, Replay({}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"round_interval": 0.0},
        {"round_interval": float("nan")},
        {"restart_delay": -1.0},
        {"interference": 1.0},
        {"horizon": 0.0},
        {"whole_seconds": True, "round_interval": 0.5},
    ],
)
def test_impossible_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError, match=r"engine\.\w+ is .*, allowed is"):
        EngineSettings(**wrong)
