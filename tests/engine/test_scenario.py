"""What cannot be simulated is told at once, or when a follower turns out to be it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
from drawn import PROFILES, begun, ended
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.applications.measured import MeasuredProfile
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.engine.futures import Fork
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Status
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

ONE = Cluster.uniform(1, 1)


class Following:
    """Has one job follow every job of the workload.

    Parameters
    ----------
    job
        That job.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def after(self, job: Job, time: float) -> Sequence[Job]:
        return () if job.job_id == self._job.job_id else (self._job,)


def followed_by(job: Job) -> Workload:
    return Workload((toy_job("a"),), new_arrivals=lambda: Following(job))


def test_a_follower_comes_when_it_says() -> None:
    result = ended(begun(followed_by(toy_job("b", 1000.0)), ONE, Fifo()), Fifo())
    assert [(job.job, job.submit_time, job.start_time) for job in result.job_records] == [
        ("a", 0.0, 60.0),
        ("b", 1000.0, 1020.0),
    ]


def test_a_follower_that_is_left_out_does_not_come() -> None:
    run = begun(followed_by(toy_job("b", 1000.0)), ONE, Fifo())
    while (view := run.advance(before=500.0)) is not None:
        run.commit(Fifo().allocate(view, run.rng))
    run.fork(Fork(500.0, run.scenario, without=("b",)))
    assert [job.job for job in ended(run, Fifo()).job_records if job.completion_time is not None] == ["a"]


def test_nor_does_it_while_another_job_runs() -> None:
    class FollowingOne(Following):
        def after(self, job: Job, time: float) -> Sequence[Job]:
            return super().after(job, time) if job.job_id == "a" else ()

    late = toy_job("b", 1000.0)
    workload = Workload((toy_job("a"), Job.rigid("c", 0.0, 1, 2000.0)), new_arrivals=lambda: FollowingOne(late))
    run = begun(workload, Cluster.uniform(1, 2), Fifo())
    while (view := run.advance(before=500.0)) is not None:
        run.commit(Fifo().allocate(view, run.rng))
    run.fork(Fork(500.0, run.scenario, without=("b",)))
    records = ended(run, Fifo()).job_records
    assert {job.job: job.status.value for job in records} == {"a": "completed", "c": "completed", "b": "cancelled"}


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (toy_job("late", 100.0), "job 'late': submitted at 100 s, must be 390 s or later"),
        (toy_job("large", 1000.0, gpus=2), "job 'large': num_replicas is 2, must be at most 1, the number of GPUs"),
    ],
)
def test_a_follower_that_cannot_be_is_named(job: Job, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ended(begun(followed_by(job), ONE, Fifo()), Fifo())


def test_a_follower_cannot_have_the_name_of_another() -> None:
    jobs = Workload((toy_job("a"), toy_job("b", 700.0)), new_arrivals=lambda: Following(toy_job("b", 1000.0)))
    with pytest.raises(InvalidInputError, match="job 'b': the workload already has a job of this name"):
        ended(begun(jobs, ONE, Fifo()), Fifo())


def test_added_jobs_wait_for_jobs_of_the_workload_and_for_each_other() -> None:
    """One waits for a job that is complete, one for a job that was cancelled, and a chain for a job that still runs."""
    jobs = [Job.rigid("done", 0.0, 1, 100.0), Job.rigid("cancelled", 0.0, 1, 9e3, cancel_time=200.0)]
    run = begun(toy_workload(*jobs, Job.rigid("long", 0.0, 1, 2000.0)), Cluster.uniform(1, 3), Fifo())
    while (view := run.advance(before=500.0)) is not None:
        run.commit(Fifo().allocate(view, run.rng))
    chain = {"second": ("first",), "first": ("long", "done"), "at-once": ("done",), "never": ("done", "cancelled")}
    added = tuple(Job.rigid(name, 600.0, 1, 60.0, after=after) for name, after in chain.items())
    run.fork(Fork(500.0, run.scenario, added=added))
    records = {job.job: job for job in ended(run, Fifo()).job_records}
    assert {name for name, job in records.items() if job.status is Status.CANCELLED} == {"cancelled", "never"}
    assert records["at-once"].submit_time == 600
    assert records["first"].submit_time == records["long"].completion_time
    assert records["second"].submit_time == records["first"].completion_time


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (
            (Job.rigid("b", 600.0, 1, 60.0, after=("x",)),),
            "added jobs, job 'b': after has 'x', must have names of jobs",
        ),
        ((Job.rigid("b", 600.0, 1, 60.0),) * 2, "added jobs, job 'b': the workload already has a job of this name"),
        ((Job.rigid("b", 600.0, 2, 60.0),), "added jobs, job 'b': num_replicas is 2, must be at most 1"),
    ],
)
def test_an_added_job_that_cannot_be_is_named(jobs: tuple[Job, ...], message: str) -> None:
    run = begun(toy_workload(toy_job("a")), ONE, Fifo())
    with pytest.raises(InvalidInputError, match=message):
        run.fork(Fork(100.0, run.scenario, added=jobs))
        ended(run, Fifo())


def test_a_policy_that_needs_profiles_refuses_a_job_without() -> None:
    with pytest.raises(InvalidInputError, match="job 'r': has no profile, and Optimus needs one of every job"):
        simulate(toy_workload(Job.rigid("r", 0.0, 1, 10.0)), {}, ONE, Optimus())


def test_whose_reasons_are_recorded_is_one_of_three_words() -> None:
    with pytest.raises(InvalidConfigError, match=r"engine\.reasons is 'all', must be one of changes, rounds, none"):
        EngineSettings(reasons="all")
    runs = {
        word: simulate(toy_workload(toy_job("a")), PROFILES, ONE, Fifo(), settings=EngineSettings(reasons=word))
        for word in ("changes", "rounds", "none")
    }
    assert [len(runs[word].reason_records) for word in ("none", "changes")] == [0, 1]
    assert runs["none"] == runs["changes"] == runs["rounds"]


def test_agents_that_know_their_throughput_explore_nothing(measured_profiles: dict[str, MeasuredProfile]) -> None:
    jobs = toy_workload(Job("a", 0.0, "cifar10", 1, 128))
    policy = Pollux(known_throughput=True)
    rules = EngineSettings(horizon=200.0)
    known = simulate(jobs, measured_profiles, Cluster.uniform(1, 4), policy, settings=rules)
    learnt = simulate(jobs, measured_profiles, Cluster.uniform(1, 4), Pollux(), settings=rules)
    assert sum(known.allocation_records[0].gpus) > sum(learnt.allocation_records[0].gpus) == 1
    assert known.job_records[0].status is Status.CUT_OFF


def test_what_a_view_is_called_and_that_its_truth_is_shared() -> None:
    run = begun(toy_workload(toy_job("a")), ONE, Fifo())
    view = run.advance()
    assert view is not None
    (job,) = view.jobs
    assert repr(job) == "JobView('a')"
    assert deepcopy(job.oracle).application is job.oracle.application
    assert job.oracle.application == ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)).application
