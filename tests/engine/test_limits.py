"""Rules of the engine at their limits: standstill, rejections, sharing, CPUs, random numbers, and costs of a round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from drawn import begun, failing
from forks import READINGS, finish, fork, start, uniforms
from kinds import World
from toy import ToyProfile

import polluxsim
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import Host
from polluxsim.policies.contract.view import Change, ClusterView, Decision
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Status
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from types import FrameType

    from polluxsim.hardware.placements import Gpus

PACKAGE = str(Path(polluxsim.__file__).parent)


# Task 5: a run in which no job can progress ends, whatever fails and is repaired.


class Refuses:
    """A policy that places no job."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        return Decision({})


FAILING = Cluster.uniform(3, 2, DrawnFailures(4000.0))
UNTIL = EngineSettings(horizon=4e5)


def test_a_run_ends_whose_policy_places_no_job_while_nodes_fail() -> None:
    jobs = Workload((Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 900.0, 1, 600.0)))
    result = simulate(jobs, {}, FAILING, Refuses(), settings=UNTIL, seed=1)
    assert result.standstill is not None
    assert 6e4 <= result.end_time < 9e4
    assert len(result.outage_records) >= 3


def test_a_run_ends_that_loses_all_nodes_at_a_fork() -> None:
    jobs = Workload(tuple(Job.rigid(f"{number}", 400.0 * number, 1, 3000.0) for number in range(6)))
    run = start(World("test", Fifo, jobs, FAILING, UNTIL, {}), Fifo())
    fork(run, 1200.0, lost_nodes=(0, 1, 2))
    result = finish(run, Fifo())
    assert result.standstill is not None
    assert 6e4 <= result.end_time < 9e4


def test_a_run_waits_for_the_repair_of_its_last_node() -> None:
    """Between 200 s and the end of the repair at 250,000 s, the node fails again, and a job arrives."""
    cluster = failing((0, 200.0, 2e5), (0, 50_000.0, 2e5), nodes=1)
    jobs = Workload((Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 90_000.0, 1, 600.0)))
    result = simulate(jobs, {}, cluster, Fifo())
    assert [job.status for job in result.job_records] == [Status.COMPLETED] * 2
    assert result.end_time == pytest.approx(250_000.0, abs=2000.0)


# Task 12.


@dataclass
class Rejects:
    """First come, first served, without the jobs of a queue."""

    ended: set[str] = field(default_factory=set)
    times: list[float] = field(default_factory=list)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.times.append(view.time)
        self.ended |= set(view.changes.ended)
        rejected = [job.job_id for job in view.jobs if job.queue == "closed"]
        return Decision({job.job_id: ((0, 1),) for job in view.jobs if job.queue is None}, rejected=rejected)


def test_a_policy_is_not_told_of_the_jobs_that_it_rejected() -> None:
    jobs = Workload((Job.rigid("a", 0.0, 1, 300.0), Job.rigid("b", 30.0, 1, 60.0, queue="closed")))
    policy = Rejects()
    result = simulate(jobs, {}, Cluster((2,)), policy)
    assert [job.status for job in result.job_records] == [Status.COMPLETED, Status.REJECTED]
    assert len(policy.times) > 2
    assert "b" not in policy.ended


# Tasks 13 and 14.


@dataclass(frozen=True)
class Stops:
    """A sharing model in which each job that shares a GPU loses this part of its speed."""

    loss: float

    def fits(self, tenants: Sequence[Any]) -> bool:
        return True

    def lost(self, tenants: Sequence[Any]) -> Mapping[str, float]:
        users = [gpu for each in tenants for gpu in each.gpus]
        return {each.job.job_id: self.loss for each in tenants if any(users.count(gpu) > 1 for gpu in each.gpus)}


@dataclass
class OnGpus:
    """Gives each job numbered GPUs, and CPUs and memory."""

    gpus: Mapping[str, Gpus]
    hosts: Mapping[str, Host] = field(default_factory=dict)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        names = [job.job_id for job in view.jobs]
        hosts = {name: self.hosts[name] for name in names if name in self.hosts}
        return Decision({}, shared={name: self.gpus[name] for name in names}, hosts=hosts)


def test_a_sharing_loss_of_one_stops_the_job_or_is_refused() -> None:
    jobs = Workload((Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 0.0, 1, 600.0)))
    settings = EngineSettings(sharing=Stops(1.0), horizon=10_000.0)
    policy = OnGpus(dict.fromkeys("ab", ((0, 0),)))
    try:
        result = simulate(jobs, {}, Cluster((1,)), policy, settings=settings)
    except PolluxSimError as error:
        assert "Stops" in str(error)
    else:
        assert [(job.status, job.work) for job in result.job_records] == [(Status.CUT_OFF, 0.0)] * 2


@pytest.mark.parametrize("memory", [32.0, 24.0])
def test_jobs_that_share_a_gpu_share_its_cpus_and_memory(memory: float) -> None:
    cluster = Cluster((2,), hosts=(Host(8.0, 64.0),))
    gpus = {"a": ((0, 0),), "b": ((0, 0),), "c": ((0, 1),)}
    jobs = Workload(tuple(Job.rigid(name, 0.0, 1, 600.0) for name in gpus))
    policy = OnGpus(gpus, {"c": Host(4.0, memory)})
    result = simulate(jobs, {}, cluster, policy, settings=EngineSettings(sharing=Stops(0.5)))
    first = {record.job: (record.cpus, record.memory) for record in result.host_records if record.time == 60.0}
    assert first == {"a": (2.0, 16.0), "b": (2.0, 16.0), "c": (4.0, memory)}


# Task 15.


def test_uniform_numbers_are_strictly_between_0_and_1(monkeypatch: pytest.MonkeyPatch) -> None:
    class Words:
        """The words that are the extremes and the middle of all random words."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def generate_state(self, count: int, *_: object) -> list[int]:
            return [2**64 - 1, 0, 2**63][:count]

    monkeypatch.setattr(np.random, "SeedSequence", Words)
    assert all(0 < number < 1 for number in uniforms(1, (1, 2), 3))


# Task 17: only changes add to the costs of a round, and the number of jobs does not add to those of a reading.


class Interval(float):
    """A length of a round that counts the additions of it to a time: one for each interval that is passed."""

    count = 0

    def __radd__(self, other: float) -> float:
        type(self).count += 1
        return float.__radd__(self, other)


class Reads:
    """A policy that reads the progress of its job at each round."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        for job in view.jobs:
            assert job.oracle.progress >= 0
        return Decision({job.job_id: ((0, 1),) for job in view.jobs})


def intervals_passed(num_rounds: int) -> int:
    """Return how many intervals the engine adds in a run of a job whose progress is read at each round."""
    Interval.count = 0
    jobs = Workload((Job.rigid("a", 0.0, 1, 60.0 * num_rounds),))
    settings = EngineSettings(round_interval=Interval(60.0), whole_seconds=True)
    assert simulate(jobs, {}, Cluster((1,)), Reads(), settings=settings).job_records[0].status is Status.COMPLETED
    return Interval.count


def test_reading_the_progress_at_each_round_takes_linear_time() -> None:
    small, large = intervals_passed(50), intervals_passed(200)
    assert small >= 50
    assert large <= 6 * small


def operations(action: Callable[[], object]) -> int:
    """Return how many bytecode instructions of polluxsim an action runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


class Settled:
    """A policy that gives each job the GPU of its number, and that is asked again only when jobs arrive."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        allocation = {job.job_id: ((int(job.job_id), 1),) for job in view.jobs}
        return Decision(allocation, valid_until=inf, outdated_by=Change.ARRIVAL)


LONG = {"long": ToyProfile("long", epochs=(1e6, 2e6)), "toy": ToyProfile(epochs=tuple(100.0 * n for n in range(1, 50)))}


def settled(num_jobs: int) -> Simulation:
    """Return a run in which one job ends an epoch every 100 s, and all other jobs train in their first epoch."""
    jobs = [Job(str(number), 0.0, "long" if number else "toy", 1, 10) for number in range(num_jobs)]
    world = World("test", Settled, Workload(tuple(jobs)), Cluster.uniform(num_jobs, 1), EngineSettings(), LONG)
    run = start(world, Settled())
    view = run.advance()
    assert view is not None
    run.commit(Settled().allocate(view, run.rng))
    run.advance(before=1000.0)
    return run


def rounds_of_20_epochs(num_jobs: int) -> int:
    """Return the instructions of 20 rounds, each after the end of an epoch of the one job."""
    run = settled(num_jobs)
    return operations(lambda: run.advance(before=3000.0))


def test_a_round_costs_what_changed() -> None:
    small = rounds_of_20_epochs(20)
    assert small > 1000
    assert rounds_of_20_epochs(200) <= 1.5 * small


def reading(name: str, num_jobs: int) -> int:
    """Return the instructions of a reading of a run with one active job after a number of jobs have ended."""
    jobs = [Job.rigid(f"{number}", 0.0, 1, 100.0) for number in range(num_jobs)]
    workload = Workload((*jobs, Job.rigid("last", 1000.0, 1, 600.0)))
    run, policy = begun(workload, Cluster.uniform(1, num_jobs), Fifo()), Fifo()
    while (view := run.advance(before=1300.0)) is not None:
        run.commit(policy.allocate(view, run.rng))
    assert (run.num_ended, READINGS[name](run) is None) == (num_jobs, False)
    return operations(lambda: READINGS[name](run))


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_does_not_go_through_all_jobs(name: str) -> None:
    assert reading(name, 400) <= 1.5 * reading(name, 40) + 50
