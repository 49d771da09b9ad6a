"""Gandiva's time slices: a job that resumes where it was suspended pays little, any other start is a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.failures import RecordedFailures
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.records.results import JobRecord

ONE_NODE = Cluster.uniform(1, 4)


def run(
    *jobs: Job, packing: bool = False, cluster: Cluster = ONE_NODE, delay: float = 30.0, **parameters: float
) -> dict[str, JobRecord]:
    rules = EngineSettings(restart_delay=delay, sharing=Interleaved() if packing else None)
    result = simulate(Workload(jobs), {}, cluster, Gandiva(packing=packing, **parameters), settings=rules)
    return {job.job: job for job in result.job_records}


@pytest.mark.parametrize("packing", [False, True])
def test_a_time_slice_costs_a_suspension_and_a_resumption(packing: bool) -> None:
    """Two gangs of four take turns on four GPUs. The first start of each is a restart, each later slice costs 1 s."""
    jobs = run(Job.rigid("a", 0.0, 4, 200.0), Job.rigid("b", 0.0, 4, 200.0), packing=packing)
    assert all(job.num_restarts >= 3 for job in jobs.values())
    assert all(job.restart_time == 30.0 + job.num_restarts for job in jobs.values())


@pytest.mark.parametrize(("resume_time", "delay", "cost"), [(0.0, 30.0, 0.0), (5.0, 30.0, 5.0), (50.0, 30.0, 30.0)])
def test_the_cost_of_a_slice_is_a_parameter_and_at_most_a_restart(
    resume_time: float, delay: float, cost: float
) -> None:
    jobs = run(*(Job.rigid(name, 0.0, 4, 200.0) for name in "ab"), delay=delay, resume_time=resume_time)
    assert all(job.restart_time == delay + cost * job.num_restarts for job in jobs.values())
    with pytest.raises(InvalidConfigError, match=r"policy\.resume_time"):
        Gandiva(resume_time=-1.0)


def test_jobs_return_to_the_nodes_where_they_were_suspended() -> None:
    """Of six jobs of two GPUs on two nodes, each resumes on its own node, whatever the order of their turns."""
    jobs = run(
        *(Job.rigid(f"{number}", 10.0 * number, 2, 300.0 + 20.0 * number) for number in range(6)),
        cluster=Cluster.uniform(2, 4),
    )
    restarts = sum(job.num_restarts for job in jobs.values())
    moves = sum(round((job.restart_time - 30.0 - job.num_restarts) / 29.0) for job in jobs.values())
    assert restarts > 10
    assert moves <= 2


def test_a_job_that_lost_its_node_restarts(tmp_path: Path) -> None:
    """The node is down from 130 s to 170 s, while `b` runs and `a` is suspended there. Both restart."""
    path = tmp_path / "outages.csv"
    path.write_text("node,time,down_until\n0,130,170\n")
    cluster = replace(ONE_NODE, failures=RecordedFailures(str(path)))
    jobs = run(*(Job.rigid(name, 0.0, 4, 100.0) for name in "ab"), cluster=cluster)
    assert jobs["a"].restart_time == 30.0 + 30.0 + (jobs["a"].num_restarts - 1)
