"""Where GPU time went: shares that add up to all there was, against the allocations and outages themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from drawn import POLICIES, PROFILES, draws, policies_and_cases
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.side_by_side import compared_cells
from polluxsim.metrics.summary import effective_time_ratio, shares_of_gpu_time, summarise
from polluxsim.records.results import JobRecord, OutageRecord, Result, Status
from polluxsim.workloads.workload import Workload


def held_at(result: Result, moment: float) -> int:
    """Return the GPUs that jobs hold just after a moment, by the allocations."""
    ended = {job.job for job in result.job_records if job.end_time is not None and job.end_time <= moment}
    held = {record.job: sum(record.gpus) for record in result.allocation_records if record.time <= moment}
    return sum(gpus for job, gpus in held.items() if job not in ended)


@given(policies_and_cases, st.sampled_from([0.0, 3e4, 1.5e5]), st.sampled_from([None, Checkpoints(70.0, 7.0)]))
@draws(30)
def test_shares_add_up_and_none_is_negative(
    given: tuple[str, tuple[Cluster, Workload]], rate: float, saves: Checkpoints | None
) -> None:
    name, (cluster, workload) = given
    cluster = replace(cluster, failures=DrawnFailures(rate, repair_time=200.0) if rate else None)
    rules = EngineSettings(checkpoints=saves, horizon=10_000.0)
    result = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules)
    shares = shares_of_gpu_time(result)
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= -1e-9
    # Piece by piece, between all times at which anything changed.
    times = {result.start_time, result.end_time} | {record.time for record in result.allocation_records}
    times |= {time for record in result.outage_records for time in (record.time, record.until)}
    times |= {job.end_time for job in result.job_records if job.end_time is not None}
    edges = sorted(time for time in times if result.start_time <= time <= result.end_time)
    idle = down = 0.0
    for start, end in pairwise(edges):
        gone = sum(row.gpus for row in result.outage_records if row.time <= start < row.until)
        down += gone * (end - start)
        idle += (cluster.num_gpus - gone - held_at(result, start)) * (end - start)
    whole = cluster.num_gpus * (result.end_time - result.start_time)
    assert shares["down"] == pytest.approx(down / whole, abs=1e-9)
    assert shares["idle"] == pytest.approx(idle / whole, abs=1e-9)


def job(name: str, **values: object) -> JobRecord:
    known = {"run_time": 1000.0, "restart_time": 100.0, "gpu_seconds": 4000.0, "restart_gpu_seconds": 400.0}
    record = JobRecord(name, "toy", 0.0, 100.0, 1300.0, 1300.0, 100.0, 0, 0.0, Status.COMPLETED)
    return record._replace(**{**known, **values})


def test_by_hand() -> None:
    losing = job(
        "b",
        num_failures=2,
        checkpoint_time=50.0,
        lost_time=250.0,
        checkpoint_gpu_seconds=200.0,
        lost_gpu_seconds=1000.0,
    )
    outages = (OutageRecord(1900.0, 2100.0, 0, 4, "failure"), OutageRecord(500.0, 600.0, 1, 4, "failure"))
    result = Result((job("a"), losing), (), (), 2000.0, outage_records=outages, gpu_seconds=16_000.0)
    summary = summarise(result)
    assert summary is not None
    shares = {"useful": 6000, "checkpoint": 200, "restart": 800, "lost": 1000, "idle": 7200, "down": 800}
    assert summary.gpu_time == pytest.approx({name: seconds / 16_000 for name, seconds in shares.items()})
    assert (summary.outages, summary.restarts_by_failure) == (2, 2)
    assert summary.effective_time_ratio == pytest.approx((900 + 600) / 2400)
    assert effective_time_ratio([job("a")], 2000.0) == 900 / 1200
    words = {label: [cell.plain for cell in cells] for label, cells in compared_cells([summary]).items()}
    assert (words["outages of nodes"], words["restarts by failure"]) == (["2"], ["2"])
    assert words["effective training time"] == ["62.5 %"]
    assert words["  GPU time: lost training"] == ["6.2 %"]
    assert words["availability of GPUs"] == ["95.0 %"]


def test_without_failures_and_checkpoints_the_table_is_as_it_was() -> None:
    summary = summarise(Result((job("a"),), (), (), 2000.0, gpu_seconds=16_000.0))
    assert not any("failure" in label or "GPU time:" in label for label in compared_cells([summary]))
    assert summarise(Result((job("a"),), (), (), 2000.0)).gpu_time == {}
