"""If all times of a world are later by whole rounds, no metric changes: a run begins with its first submission."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kinds import KINDS, World, world
from shifts import later, result_of

from polluxsim.checks.origin import differences
from polluxsim.checks.worlds import Listed, later_job
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.metrics.summary import summarise
from polluxsim.policies.elastic.cluster_size import Forecast, Scaled
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job, Workload

RUNS = 4
"""Drawn worlds of each kind."""

UNIX_TIME = 28_333_333
"""Rounds of a minute from 1970 to 2023."""


@pytest.mark.parametrize("rounds", [1001, UNIX_TIME])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shift_of_all_times_changes_no_metric(kind: str, rounds: int) -> None:
    """The first world is one round late itself, because a job that is submitted at time 0 waits for round 1."""
    found: dict[str, list[str]] = {}
    for number in range(RUNS):
        drawn = world(kind, number)
        if different := list(differences(result_of(later(drawn, 1)), result_of(later(drawn, rounds)))):
            found[drawn.name] = different[:3]
    assert found == {}


def gangs(shift: float) -> Workload:
    """Return three jobs of 4 GPUs, which use 8 GPUs for 1,200 s to 75 %."""
    return Workload(tuple(Job.rigid(name, 60.0 + shift, 4, 600.0) for name in "abc"))


@pytest.mark.parametrize("shift", [0.0, 3600.0, 1.7e9 // 60 * 60])
def test_shares_of_gpu_time_and_costs_count_from_the_first_submission(shift: float) -> None:
    """In use, idle and down are 100 % of the span of the makespan, in which two nodes cost 2 · 4 $/h."""
    cluster = Cluster((4, 4, 2), node_price=4.0, failures=Listed((Outage((2,), shift, 360.0, "failure"),)))
    settings = EngineSettings(restart_delay=0.0)
    result = simulate(gangs(shift), {}, cluster, Fifo(), settings=settings)
    summary = summarise(result)
    assert summary is not None
    assert summary.makespan == 1200.0
    # The first minute of the outage is before the first submission.
    assert summary.gpu_time["down"] == pytest.approx(2 * 300 / 12_000)
    assert summary.gpu_time["useful"] == pytest.approx(7200 / 12_000)
    assert sum(summary.gpu_time.values()) == pytest.approx(1.0)
    assert summary.cost == pytest.approx(3 * 4.0 / 3)
    assert summary.outages == 1


def test_an_outage_that_ends_before_the_first_submission_does_not_count() -> None:
    cluster = Cluster((4, 4), failures=Listed((Outage((0,), 1000.0, 600.0, "failure"),)))
    summary = summarise(simulate(gangs(6000.0), {}, cluster, Fifo()))
    assert summary is not None
    assert (summary.outages, summary.gpu_time["down"]) == (0, 0.0)


def test_a_run_that_ends_before_its_first_submission_has_no_gpu_time() -> None:
    settings = EngineSettings(horizon=600.0)
    result = simulate(gangs(6000.0), {}, Cluster((8,), node_price=1.0), Fifo(), settings=settings)
    summary = summarise(result)
    assert summary is not None
    assert (result.gpu_seconds, summary.cost, summary.gpu_time) == (0.0, 0.0, {})


def test_a_run_begins_with_a_job_that_a_fork_adds_before_the_others() -> None:
    scenario = Scenario(gangs(6000.0), {}, Cluster((8,), node_price=1.0), EngineSettings(restart_delay=0.0))
    run = Simulation(scenario)
    run.fork(Fork(0.0, scenario, added=(Job.rigid("first", 2460.0, 8, 3600.0),)))
    result = run_to_end(run, Fifo())
    summary = summarise(result)
    assert summary is not None
    assert result.start_time == run.start_time == 2460.0
    assert summary.cost == pytest.approx((6060.0 + 1200.0 - 2460.0) / 3600)
    assert summary.gpu_time["useful"] == pytest.approx((3600 * 8 + 7200) / (8 * 4800))


def forecast_of(shift: float) -> Result:
    jobs = [Job.rigid(f"{day}-{i}", 86400.0 * day + 3000.0 + 60.0 * i, 2, 300.0) for day in range(3) for i in range(6)]
    cluster = Cluster.elastic(16, least_nodes=1, gpus_per_node=2, startup_time=240.0, node_price=1.0)
    workload = Workload(tuple(later_job(job, shift) for job in jobs))
    return simulate(workload, {}, cluster, Scaled(Fifo(backfill=True), Forecast(headroom=5.0), 0.0))


def test_a_forecast_by_the_hour_does_not_depend_on_where_an_hour_begins() -> None:
    once = forecast_of(0.0)
    assert [list(differences(once, forecast_of(60.0 * rounds))) for rounds in (17, 61, UNIX_TIME)] == [[], [], []]


def test_the_law_notices_a_metric_that_counts_from_time_zero() -> None:
    drawn: World = world("failures", 1)
    once, again = result_of(later(drawn, 1)), result_of(later(drawn, 1001))
    assert not list(differences(once, again))
    counted_from_zero = replace(again, gpu_seconds=again.end_time * drawn.cluster.num_gpus)
    assert list(differences(once, counted_from_zero))
