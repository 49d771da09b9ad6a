"""The whole event log of three jobs on two nodes, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_run import Replay
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError, PolicyError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.rounds import every_round
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import AllocationRecord as Change
from polluxsim.records.results import RoundRecord, Status

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
    # By 180 s and by 300 s an epoch has passed; at 120 s nothing has happened.
    assert [(r.time, r.active_jobs, r.gpus_in_use) for r in result.round_records] == [
        (60.0, 3, 4),
        (180.0, 3, 4),
        (240.0, 1, 4),
        (300.0, 1, 4),
    ]
    assert [r.time for r in every_round(result, 60.0)] == [60.0, 120.0, 180.0, 240.0, 300.0]
    # 4 M0-steps of 10 examples a second in all; every step of every batch is perfectly efficient.
    assert result.round_records[0] == RoundRecord(60.0, 3, 4, goodput=40.0, efficiency=1.0, nodes=2)


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
        ({"a": ((0, 3),)}, "over-allocated node 0: with job 'a' jobs would hold 3 GPUs, the node has 2"),
        ({"a": ((0, 2),), "b": ((0, 1),)}, "over-allocated node 0: with job 'b'"),
        ({"a": ((7, 1),)}, "job 'a' node 7, must be 0 to 1"),
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


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "policy Wrong answered None, must be a mapping"),
        ([("a", ((0, 1),))], "policy Wrong answered"),
        ({"a": [0, 0]}, "job 'a' \\[0, 0\\], must be pairs"),
        ({"a": None}, "job 'a' None, must be pairs"),
        ({"a": ((0, 1.5),)}, "must be pairs \\(node, GPUs\\) of whole numbers"),
        ({"a": ((0, True),)}, "of whole numbers"),
        ({"a": ((0, 1, 2),)}, "of whole numbers"),
        ({3: ((0, 1),)}, "job 3, which is not active"),
    ],
)
def test_an_answer_that_is_no_allocation_is_named(answer: object, message: str) -> None:
    class Wrong:
        def allocate(self, view: ClusterView, rng: object) -> object:
            return answer

    with pytest.raises(InvalidAllocationError, match=message):
        simulate(JOBS, PROFILES, CLUSTER, Wrong())


def test_an_answer_that_the_policy_changes_later_is_an_answer_each_time() -> None:
    held: list[list[int]] = [[0, 1]]

    class Growing:
        def allocate(self, view: ClusterView, rng: object) -> dict[str, list[list[int]]]:
            held[0][1] = 1 if view.time < 100 else 2
            return {"a": held}

    result = simulate(toy_workload(toy_job("a", gpus=2)), PROFILES, CLUSTER, Growing())
    assert [c.gpus for c in result.allocation_records] == [(1,), (2,), ()]
    assert result.job_records[0].num_restarts == 1


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    class Numpy:
        def allocate(self, view: ClusterView, rng: object) -> dict[str, list[np.ndarray]]:
            return {job.job_id: [np.array([0, 2])] for job in view.jobs[:1]}

    result = simulate(toy_workload(toy_job("a", gpus=2)), PROFILES, CLUSTER, Numpy())
    assert result.allocation_records[0] == Change(60.0, "a", (0,), (2,), 20, 0)


def test_a_policys_own_error_says_when_and_what() -> None:
    class Broken:
        def allocate(self, view: ClusterView, rng: object) -> dict[str, object]:
            return {view.jobs[7].job_id: ()}

    with pytest.raises(
        PolicyError,
        match=r"policy Broken failed in the round at 60 s, .*test_golden.py, line \d+: IndexError: list index",
    ):
        simulate(JOBS, PROFILES, CLUSTER, Broken())


def test_moving_a_job_in_every_round_is_a_standstill() -> None:
    class Restless:
        def allocate(self, view: ClusterView, rng: object) -> dict[str, object]:
            return {"a": ((int(view.time / 60) % 2, 1),)}

    settings = EngineSettings(restart_delay=60.0)
    result = simulate(toy_workload(toy_job("a")), PROFILES, CLUSTER, Restless(), settings=settings)
    assert result.standstill is not None
    assert "policy Restless gave no GPU, or moved them every time" in result.standstill
    assert result.job_records[0].status is Status.CUT_OFF


def test_starvation_is_an_error_and_not_an_endless_run() -> None:
    result = simulate(JOBS, PROFILES, CLUSTER, Replay({}))
    assert result.standstill is not None
    assert result.standstill.startswith("none of the 3 jobs left, the first is 'a', has made any progress in the 603")
    assert [job.status for job in result.job_records] == [Status.CUT_OFF] * 3


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
    with pytest.raises(InvalidConfigError, match=r"engine\.\w+ is .*, must be"):
        EngineSettings(**wrong)
