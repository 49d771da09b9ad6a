"""Forks bring each job to its present, keep the past, and change what they state. Each test shows one former defect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from forks import differences, drive, finish, fork, start, whole_run
from kinds import Slowing, World

import polluxsim
from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.failures import DrawnFailures, JobFailures
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.view import Decision, Traits
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Status
from polluxsim.workloads.workload import Job, Workload, WorkloadFile, write_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from polluxsim.policies.contract.policy import Policy
    from polluxsim.policies.contract.view import ClusterView
    from polluxsim.records.results import JobRecord, Result

TWO_NODES = Cluster.uniform(2, 2)
# On two GPUs the job "a" trains from 90 s. Its epochs have rates of 2, 1.625 and 1.45 M0-steps/s.
EPOCHS = {"toy": Slowing(epochs=(100.0, 200.0, 300.0))}
ONE = Workload((Job("a", 0.0, "toy", 2, 20),))


def typed(name: str, price: float) -> list[Any]:
    return [1, 2, {"name": name, "memory": 16, "price": price}]


OLD = Cluster.of_groups([typed("old", 1.0)])
BOTH = Cluster.of_groups([typed("old", 1.0), typed("new", 10.0)])


def typed_job(name: str, time: float = 0.0) -> Job:
    return Job.rigid(name, time, 2, 3000.0, type_speeds=(("old", 1.0), ("new", 4.0)))


@dataclass
class Watched:
    """A policy that is asked at every round, and that records the epoch and the progress of each job."""

    policy: Policy = field(default_factory=Fifo)
    seen: dict[tuple[float, str], tuple[int, float]] = field(default_factory=dict)
    speeds: dict[float, dict[str, set[str]]] = field(default_factory=dict)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        for job in view.jobs:
            self.seen[view.time, job.job_id] = job.oracle.epoch, job.oracle.progress
        self.speeds[view.time] = {job.job_id: set(job.speeds) for job in view.jobs}
        decision = self.policy.allocate(view, rng)
        decision = decision if isinstance(decision, Decision) else Decision(decision)
        return replace(decision, valid_until=-1.0)


def world(workload: Workload, cluster: Cluster, policy: Callable[[], Policy] = Fifo, **settings: Any) -> World:
    return World("test", policy, workload, cluster, EngineSettings(**settings), EPOCHS)


def forked(
    case: World, time: float, policy: Policy | None = None, cluster: Cluster | None = None, **changes: Any
) -> Result:
    """Return the result of a run with changes at a time [s]."""
    policy = policy or case.policy()
    run = start(case, policy)
    drive(run, policy, before=time)
    fork(run, time, replace(run.scenario, cluster=cluster or case.cluster), **changes)
    return finish(run, policy)


def by_name(result: Result) -> dict[str, JobRecord]:
    return {job.job: job for job in result.job_records}


# Task 1.


@pytest.mark.parametrize("whole_seconds", [False, True])
def test_a_run_tells_the_progress_of_each_job_in_its_present_epoch(whole_seconds: bool) -> None:
    case = world(ONE, TWO_NODES, whole_seconds=whole_seconds)
    policy = case.policy()
    run = start(case, policy)
    drive(run, policy, before=170.0)
    ((job, progress),) = run.active(170.0)
    assert job == ONE.jobs[0]
    assert progress == pytest.approx(100.0 + 30.0 * rate_of_two(0.3))


def rate_of_two(sqr: float) -> float:
    """Return the rate of two GPUs in an epoch [M0-steps/s]."""
    return (1.0 + sqr) / (0.5 + sqr)


def test_a_job_leaves_a_dropped_node_with_all_its_work() -> None:
    case, policy = world(ONE, TWO_NODES), Watched()
    result = forked(case, 170.0, policy, lost_nodes=(0,))
    epoch, progress = policy.seen[180.0, "a"]
    assert epoch == 1
    assert progress == pytest.approx(100.0 + 30.0 * rate_of_two(0.3))
    # It restarts for 30 s at 180 s, and has the work of 1.7 epochs left.
    left = (200.0 - progress) / rate_of_two(0.3) + 100.0 / rate_of_two(0.6)
    assert result.job_records[0].completion_time == pytest.approx(210.0 + left)


def test_a_job_with_another_priority_repeats_no_epoch() -> None:
    case = world(ONE, TWO_NODES)
    (job,) = forked(case, 170.0, altered=(replace(ONE.jobs[0], priority=1.0),)).job_records
    assert job.completion_time == pytest.approx(whole_run(case).job_records[0].completion_time)


def tiresias_until(time: float, policy: Policy, **changes: Any) -> dict[str, float | None]:
    """Return the completion times of the default run under Tiresias up to a time [s], with changes at 3,720 s."""
    profiles = ProfileFolder().load()
    case = World("default", Tiresias, WorkloadFile().load(profiles), Cluster.uniform(16, 4), EngineSettings(), profiles)
    run = start(case, policy)
    drive(run, policy, before=3720.0)
    altered = tuple(replace(job) for job, _ in run.active(3720.0)) if changes.pop("alters", False) else ()
    fork(run, 3720.0, altered=altered, **changes)
    drive(run, policy, before=time)
    return {job.job: job.completion_time for job in run.ended()}


def test_jobs_of_the_default_run_repeat_no_epoch() -> None:
    before = tiresias_until(5100.0, Tiresias())
    assert before["deepspeech2-7"] == pytest.approx(4982.9, abs=0.05)
    assert tiresias_until(5100.0, Tiresias(), alters=True) == before


def test_jobs_of_the_default_run_lose_no_epoch_with_a_node() -> None:
    before, after = Watched(Tiresias()), Watched(Tiresias())
    tiresias_until(3730.0, before)
    tiresias_until(3730.0, after, lost_nodes=(0,))
    assert before.seen[3720.0, "deepspeech2-2"][0] == 57
    there = {key: value for key, value in before.seen.items() if key[0] == 3720.0}
    assert {key: epoch for key, (epoch, _) in after.seen.items() if key in there} == {
        key: epoch for key, (epoch, _) in there.items()
    }


# Task 3.


def test_a_job_that_ends_at_the_fork_is_recorded_once(tmp_path: Path) -> None:
    jobs = (("a", 0.0, 570.0), ("b", 0.0, 3000.0), ("c", 5000.0, 600.0), ("d", 9000.0, 600.0))
    path = tmp_path / "jobs.csv"
    write_workload(Workload(tuple(Job.rigid(name, time, 1, duration) for name, time, duration in jobs)), path)
    workload, cluster = polluxsim.workload("file", path=str(path)), polluxsim.cluster(num_nodes=1)
    run = polluxsim.simulate(workload, policy="fifo", cluster=cluster, progress=False)
    assert by_name(run.result)["a"].completion_time == 660.0
    other = run.at(660.0).fork(without=["a"])
    assert Counter(job.job for job in other.result.job_records) == Counter("abcd")
    assert other.result.job_records == run.result.job_records


# Task 6.


RIGID = Workload(tuple(Job.rigid(name, time, 1, 600.0) for name, time in [("a", 0.0), ("b", 0.0), ("c", 800.0)]))


@pytest.mark.parametrize(
    ("cluster", "changes"),
    [(Cluster.uniform(3, 1), {}), (Cluster.uniform(2, 1), {"lost_nodes": (1,)})],
    ids=["grows", "grows-and-shrinks"],
)
def test_the_fairness_of_jobs_that_ended_before_the_fork_stays(cluster: Cluster, changes: dict[str, Any]) -> None:
    case = world(RIGID, Cluster.uniform(1, 1))
    before, after = whole_run(case), forked(case, 1000.0, cluster=cluster, **changes)
    assert by_name(before)["a"].end_time == 690.0
    assert by_name(after)["a"] == by_name(before)["a"]


def test_their_fairness_stays_when_a_gpu_type_is_added() -> None:
    case = world(Workload((typed_job("a"), typed_job("b", 5000.0))), OLD)
    assert by_name(forked(case, 4000.0, cluster=BOTH))["a"] == by_name(whole_run(case))["a"]


def test_their_fairness_stays_under_a_policy_with_other_agents() -> None:
    case = world(Workload((*ONE.jobs, Job("b", 1000.0, "toy", 2, 20))), TWO_NODES)
    run, policy = start(case, Fifo()), Fifo()
    drive(run, policy, before=500.0)
    fork(run, 500.0, replace(run.scenario, traits=Traits(adaptive=True)))
    assert by_name(finish(run, policy))["a"] == by_name(whole_run(case))["a"]


# Task 7.


@pytest.mark.parametrize("settings", [{}, {"whole_seconds": True}, {"job_failures": JobFailures(0.0)}], ids=str)
def test_to_alter_a_job_to_itself_changes_no_bit(settings: dict[str, Any]) -> None:
    case = world(ONE, TWO_NODES, **settings)
    before = whole_run(case)
    for time in (97.3, 170.0, 200.1, 215.0 + 1e-9):
        assert differences(before, forked(case, time, altered=(replace(ONE.jobs[0]),))) == []


# Tasks 8 and 18.


def test_all_jobs_report_the_gpu_types_that_a_fork_adds() -> None:
    jobs, policy = Workload((typed_job("a"), typed_job("b"), typed_job("c", 900.0))), Watched()
    forked(world(jobs, OLD), 610.0, policy, cluster=BOTH)
    assert policy.speeds[600.0] == {"a": {"old"}, "b": {"old"}}
    assert policy.speeds[960.0] == {name: {"old", "new"} for name in "abc"}


def test_an_earlier_job_has_the_speed_of_an_added_gpu_type() -> None:
    jobs = Workload((typed_job("a"), typed_job("b")))
    records = by_name(forked(world(jobs, OLD), 610.0, cluster=BOTH))
    # Job b waits until the fork, and starts on the new node at the next round.
    assert records["b"].start_time == 660.0
    assert records["b"].completion_time == 660.0 + 30.0 + 3000.0 / 4.0


def test_an_added_node_costs_its_price_from_the_fork_on() -> None:
    jobs = Workload((Job.rigid("a", 0.0, 1, 7200.0), Job.rigid("b", 7000.0, 1, 3600.0)))
    case = world(jobs, OLD)
    before, after = whole_run(case), forked(case, 3600.0, cluster=BOTH)
    past = [record for record in after.round_records if record.time < 3600.0]
    assert past == [record for record in before.round_records if record.time < 3600.0]
    for record in after.round_records[len(past) :]:
        assert record.cost == pytest.approx(2 * record.time / 3600.0 + 20 * (record.time - 3600.0) / 3600.0)
    summary = summarise(after)
    assert summary is not None
    assert summary.cost == pytest.approx(2 * after.end_time / 3600.0 + 20 * (after.end_time - 3600.0) / 3600.0)


# Task 9.


def test_a_dropped_node_costs_work_whatever_it_is_that_can_fail() -> None:
    """Nothing fails at these rates. Work since the start of a job is lost if it can be lost at all."""
    jobs = Workload((Job.rigid("a", 0.0, 2, 1000.0),))
    failing = replace(TWO_NODES, failures=DrawnFailures(1e-9))
    by_nodes = forked(world(jobs, failing), 500.0, lost_nodes=(0,))
    by_jobs = forked(world(jobs, TWO_NODES, job_failures=JobFailures(1e-9)), 500.0, lost_nodes=(0,))
    assert by_nodes.job_records[0].status is Status.COMPLETED
    assert by_nodes.job_records[0].lost_work == 410.0
    assert by_jobs.job_records == by_nodes.job_records
