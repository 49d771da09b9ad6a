"""Reservations and begin times of `policy=slurm` in the simulator, by examples worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.slurm.policy import Slurm
from polluxsim.workloads.workload import Job, Workload

RESERVED: dict[str, Any] = {"maint": {"StartTime": 100, "EndTime": 400, "Nodes": "0"}}


def job(name: str, submitted: float, gpus: int, duration: float, limit: float) -> Job:
    return Job.rigid(name, submitted, gpus, duration, time_limit=limit)


def first_nodes(*jobs: Job, **policy: Any) -> dict[str, tuple[float, tuple[int, ...]]]:
    """Return the first start of each job [s] on two nodes of 4 GPUs, with its nodes."""
    settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)
    result = simulate(Workload(jobs), {}, Cluster((4, 4)), Slurm(**policy), settings=settings)
    first: dict[str, tuple[float, tuple[int, ...]]] = {}
    for record in result.allocation_records:
        if record.nodes:
            first.setdefault(record.job, (record.time, record.nodes))
    return first


def test_a_job_outside_ends_before_the_reservation_or_uses_other_nodes() -> None:
    """`short` ends by 61 s. `long` might run on node 0 until 150 s, so it gets node 1."""
    jobs = (job("short", 0.0, 4, 20.0, 60.0), job("long", 30.0, 4, 60.0, 120.0))
    assert first_nodes(*jobs)["long"] == (30.0, (0,))
    assert first_nodes(*jobs, reservations=RESERVED) == {"short": (1.0, (0,)), "long": (30.0, (1,))}


def test_a_job_that_needs_reserved_nodes_starts_when_the_reservation_ends() -> None:
    assert first_nodes(job("wide", 50.0, 8, 60.0, 60.0), reservations=RESERVED) == {"wide": (400.0, (0, 1))}


def test_a_job_of_the_reservation_starts_when_it_begins() -> None:
    reserved = {"maint": {**RESERVED["maint"], "Jobs": ["in"]}}
    jobs = (job("in", 0.0, 4, 60.0, 60.0), job("out", 150.0, 4, 60.0, 60.0))
    assert first_nodes(*jobs, reservations=reserved) == {"in": (100.0, (0,)), "out": (150.0, (1,))}


def test_a_job_with_a_begin_time_waits_and_keeps_its_place() -> None:
    """`busy` ends at 301 s. `later` may start from 200 s on, and was submitted before `last`."""
    jobs = (job("busy", 0.0, 8, 300.0, 300.0), job("later", 1.0, 8, 60.0, 60.0), job("last", 2.0, 8, 60.0, 60.0))
    assert first_nodes(*jobs, begin_time={"later": 200})["later"][0] == 301.0
    found = first_nodes(*jobs, begin_time={"later": 310})
    assert (found["last"][0], found["later"][0]) == (301.0, 361.0)
    assert first_nodes(jobs[1], begin_time={"later": 77}) == {"later": (77.0, (0, 1))}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reservations": {"m": 4}}, "policy.reservations.m is 4, must be a mapping"),
        ({"reservations": {"m": {"StartTime": 1, "Nodes": 0}}}, "policy.reservations.m has no EndTime; state it"),
        ({"reservations": {"m": {"Start": 1}}}, "policy.reservations.m has the key 'Start', must be one of StartTime"),
        (
            {"reservations": {"m": {"StartTime": 9, "EndTime": 9, "Nodes": 0}}},
            "policy.reservations.m.EndTime is 9, must be later than StartTime, 9",
        ),
        (
            {"reservations": {"m": {"StartTime": 0, "EndTime": 9, "Nodes": "x"}}},
            "policy.reservations.m.Nodes is 'x', must be numbers of nodes",
        ),
    ],
)
def test_a_wrong_reservation_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        Slurm(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"begin_time": {"b": 9}}, "policy.begin_time names job 'b'"),
        (
            {"reservations": {"m": {"StartTime": 0, "EndTime": 9, "Nodes": "0-2"}}},
            "policy.reservations states node 2, and the cluster has the nodes 0 to 1",
        ),
    ],
)
def test_unknown_jobs_and_nodes_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        Slurm(**settings).without_effect([job("a", 0.0, 1, 60.0, 60.0)], Cluster((4, 4)))
    assert message in str(error.value)
