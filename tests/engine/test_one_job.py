"""Arithmetic: one job alone, where every number can be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Status

CLUSTER = Cluster.uniform(2, 4)


@given(
    st.integers(1, 8),
    st.floats(0.001, 10),
    st.floats(1, 10_000),
    st.floats(0, 1000),
    st.sampled_from([0.0, 30.0, 90.0]),
)
def test_completion_is_first_round_plus_delay_plus_work_over_rate(
    gpus: int, seconds: float, work: float, submit: float, delay: float
) -> None:
    profiles = {"toy": ToyProfile(seconds=seconds, epochs=(work / 3, work))}
    settings = EngineSettings(restart_delay=delay)
    result = simulate(toy_workload(toy_job("a", submit, gpus)), profiles, CLUSTER, Fifo(), settings=settings)
    (job,) = result.job_records
    first_round = max(-(-submit // 60), 1) * 60.0
    assert job.start_time == first_round
    assert job.completion_time == pytest.approx(first_round + delay + work * seconds / gpus)
    assert job.jct == job.completion_time - submit
    assert job.queueing_delay == first_round - submit
    assert job.gpu_seconds == pytest.approx(gpus * (job.completion_time - first_round))
    assert (job.num_restarts, job.status) == (0, Status.COMPLETED)


def test_whole_seconds_round_every_epoch() -> None:
    profiles = {"toy": ToyProfile(seconds=1.0, epochs=(10.4, 20.8, 31.2))}
    settings = EngineSettings(whole_seconds=True, restart_delay=0)
    result = simulate(toy_workload(toy_job("a")), profiles, CLUSTER, Fifo(), settings=settings)
    assert result.job_records[0].completion_time == 60 + 10 + 10 + 10
    exact = simulate(toy_workload(toy_job("a")), profiles, CLUSTER, Fifo(), settings=EngineSettings(restart_delay=0))
    assert exact.job_records[0].completion_time == pytest.approx(60 + 31.2)


def test_a_run_that_reaches_its_horizon_cuts_jobs_off() -> None:
    profiles = {"toy": ToyProfile(epochs=(1000.0,))}
    settings = EngineSettings(horizon=300.0)
    jobs = toy_workload(toy_job("a"), toy_job("late", 400.0))
    result = simulate(jobs, profiles, CLUSTER, Fifo(), settings=settings)
    running, late = result.job_records
    assert (running.status, running.jct, running.gpu_seconds) == (Status.CUT_OFF, None, 240.0)
    assert (late.status, late.start_time, late.gpu_seconds) == (Status.CUT_OFF, None, 0.0)
    assert result.end_time == 300.0


def test_a_workload_without_jobs_is_over_at_once() -> None:
    result = simulate(toy_workload(), {}, CLUSTER, Fifo())
    assert (result.job_records, result.round_records, result.end_time) == ((), (), 0.0)


def test_an_adaptive_job_alone_grows_and_takes_larger_batches() -> None:
    """It may at most double its GPUs, and each growth costs it a restart."""
    profiles = {"toy": ToyProfile(epochs=tuple(1000.0 * e for e in range(1, 30)), max_atomic_batch_size=10)}
    result = simulate(toy_workload(toy_job("a")), profiles, CLUSTER, Pollux())
    counts = [sum(record.gpus) for record in result.allocation_records]
    grown = list(dict.fromkeys(counts))
    assert grown[:3] == [1, 2, 4]
    assert max(counts) <= 8
    batches = [record.batch_size for record in result.allocation_records if record.gpus]
    assert batches[-1] > batches[0]
    assert result.job_records[0].num_restarts >= 2
