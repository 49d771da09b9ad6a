"""How jobs and runs end: cancelled, never submitted, at the horizon, or standing still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from drawn import PROFILES, begun, draws, ended, failing
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.checks.worlds import Listed
from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.futures import Fork
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.placements import Allocation
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.sia.policy import Sia
from polluxsim.records.results import JobRecord, Result, Status
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

ONE = Cluster.uniform(1, 1)
HUNDRED = {"toy": ToyProfile(epochs=(100.0,))}  # alone: from its start, 30 s of delay and 100 s of work


def run_of(*jobs: Job, policy: Policy | None = None, cluster: Cluster = ONE, **rules: float) -> Result:
    return simulate(toy_workload(*jobs), HUNDRED, cluster, policy or Fifo(), settings=EngineSettings(**rules))


def by_name(result: Result) -> dict[str, JobRecord]:
    return {job.job: job for job in result.job_records}


class Nothing:
    """Gives nobody anything, and is asked at every round."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        return {}


class NothingForEver:
    """Gives nobody anything, for good."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        return Decision({}, valid_until=inf)


def test_a_job_whose_user_gives_up_ends_there() -> None:
    result = run_of(toy_job("runs", cancel_time=100.0), toy_job("waits", cancel_time=110.0), toy_job("next"))
    jobs = by_name(result)
    runs, waits, after = jobs["runs"], jobs["waits"], jobs["next"]
    assert (runs.status, runs.start_time, runs.completion_time, runs.jct) == (Status.CANCELLED, 60.0, None, None)
    assert (runs.end_time, runs.gpu_seconds, runs.run_time, runs.restart_time) == (100.0, 40.0, 40.0, 30.0)
    assert (waits.status, waits.start_time, waits.end_time, waits.gpu_seconds) == (Status.CANCELLED, None, 110.0, 0.0)
    assert (after.status, after.start_time, after.end_time) == (Status.COMPLETED, 120.0, 250.0)
    assert result.end_time == 250.0


def test_a_job_given_up_as_it_is_submitted_was_submitted() -> None:
    (job,) = run_of(toy_job("a", 30.0, cancel_time=30.0)).job_records
    assert (job.status, job.submit_time, job.end_time) == (Status.CANCELLED, 30.0, 30.0)


def test_a_job_that_completes_as_it_is_given_up_is_complete() -> None:
    (job,) = run_of(toy_job("a", cancel_time=190.0)).job_records
    assert (job.status, job.completion_time) == (Status.COMPLETED, 190.0)


def test_who_gives_up_later_than_it_completes_changes_nothing() -> None:
    patient = run_of(toy_job("a", cancel_time=1000.0), toy_job("b"))
    assert [job.end_time for job in patient.job_records] == [190.0, 370.0]
    assert patient.end_time == 370.0


def test_a_chain_is_submitted_link_by_link() -> None:
    jobs = by_name(run_of(toy_job("a"), toy_job("b", after=("a",)), toy_job("c", 500.0, after=("b",))))
    assert [jobs[name].submit_time for name in "abc"] == [0.0, 190.0, 500.0]
    assert [jobs[name].start_time for name in "abc"] == [60.0, 240.0, 540.0]
    assert [jobs[name].jct for name in "abc"] == [190.0, 180.0, 170.0]


def test_the_last_of_a_diamond_waits_for_both_sides() -> None:
    diamond = (
        toy_job("d", after=("b", "c")),
        toy_job("b", after=("a",)),
        toy_job("c", after=("a",)),
        toy_job("a"),
    )
    jobs = by_name(run_of(*diamond))
    assert jobs["b"].submit_time == jobs["c"].submit_time == jobs["a"].completion_time
    assert jobs["d"].submit_time == max(jobs["b"].completion_time or 0.0, jobs["c"].completion_time or 0.0)
    assert all(job.status is Status.COMPLETED for job in jobs.values())


def test_who_waits_for_a_job_that_was_given_up_cannot_come() -> None:
    result = run_of(
        toy_job("a", cancel_time=100.0),
        toy_job("b", after=("a",)),
        toy_job("c", after=("b", "x")),
        toy_job("x"),
        toy_job("y", after=("x",)),
    )
    jobs = by_name(result)
    assert {name: job.status for name, job in jobs.items()} == {
        "a": Status.CANCELLED, "b": Status.CANCELLED, "c": Status.CANCELLED, "x": Status.COMPLETED,
        "y": Status.COMPLETED,
    }  # fmt: skip
    assert [(jobs[name].submit_time, jobs[name].start_time, jobs[name].end_time) for name in "bc"] == [
        (inf, None, 100.0),
        (inf, None, 100.0),
    ]
    assert result.job_records[-2:] == (jobs["b"], jobs["c"])  # in order of submission, which never came


@pytest.mark.parametrize("cancel_time", [100.0, 190.0, 400.0, 500.0])
def test_a_job_given_up_while_it_waits_for_others_never_comes(cancel_time: float) -> None:
    """Until it is submitted, that instant included; others go on meanwhile."""
    submit_time = cancel_time if cancel_time >= 400.0 else 0.0
    waits = toy_job("b", submit_time, after=("a",), cancel_time=cancel_time)
    result = run_of(toy_job("a"), waits, *(toy_job(f"{number}") for number in range(5)))
    assert len(result.job_records) == 7
    job = by_name(result)["b"]
    assert (job.status, job.submit_time, job.end_time) == (Status.CANCELLED, inf, cancel_time)
    assert job.gpu_seconds == 0.0


def test_a_job_that_waited_can_still_give_up() -> None:
    job = by_name(run_of(toy_job("a"), toy_job("b", after=("a",), cancel_time=250.0)))["b"]
    assert (job.status, job.submit_time, job.start_time, job.end_time) == (Status.CANCELLED, 190.0, 240.0, 250.0)


@st.composite
def families(draw: st.DrawFn) -> list[Job]:
    """Draw jobs that come after earlier ones, and some that give up."""
    jobs: list[Job] = []
    for index in range(draw(st.integers(1, 8))):
        submitted, patience = draw(st.integers(0, 20)) * 30.0, draw(st.none() | st.integers(0, 40))
        after = draw(st.lists(st.sampled_from([job.job_id for job in jobs]), max_size=3, unique=True)) if jobs else []
        gives_up = None if patience is None else submitted + 30.0 * patience
        jobs.append(toy_job(f"{index}", submitted, after=tuple(after), cancel_time=gives_up))
    return draw(st.permutations(jobs))


@given(families(), st.sampled_from([None, 300.0, 600.0]))
@draws(50)
def test_every_job_ends_once_and_as_it_should(jobs: list[Job], horizon: float | None) -> None:
    result = simulate(
        toy_workload(*jobs), PROFILES, Cluster.uniform(1, 2), Fifo(), settings=EngineSettings(horizon=horizon)
    )
    records, given_up = (
        by_name(result),
        {job.job_id: inf if job.cancel_time is None else job.cancel_time for job in jobs},
    )
    assert sorted(job.job for job in result.job_records) == sorted(job.job_id for job in jobs)
    assert result.standstill is None
    for job in jobs:
        record = records[job.job_id]
        awaited = [records[name] for name in job.after]
        if record.status is Status.COMPLETED:
            assert record.completion_time == record.end_time <= given_up[job.job_id]
            assert record.submit_time == max([job.submit_time, *(one.completion_time or inf for one in awaited)])
        elif record.status is Status.CANCELLED:
            ends = [inf if one.end_time is None else one.end_time for one in awaited if one.status is Status.CANCELLED]
            assert record.end_time == min([given_up[job.job_id], *ends])
            assert record.end_time <= result.end_time
        else:
            assert horizon is not None
            assert (record.end_time, result.end_time) == (None, horizon)
    if horizon is None:
        assert result.end_time == max(record.end_time or 0.0 for record in result.job_records)


# The horizon.


def test_the_horizon_comes_before_the_round_of_its_instant() -> None:
    result = run_of(toy_job("a"), horizon=60.0)
    assert (result.round_records, result.allocation_records, result.end_time) == ((), (), 60.0)
    completes = run_of(toy_job("a"), horizon=190.0)
    assert completes.job_records[0].status is Status.COMPLETED


def test_a_job_submitted_at_the_horizon_was_submitted() -> None:
    result = run_of(toy_job("a"), toy_job("b", 100.0), toy_job("c", 101.0), horizon=100.0)
    summary = summarise(result)
    assert summary is not None
    assert [job.status for job in result.job_records] == [Status.CUT_OFF] * 3
    assert (summary.cut_off, summary.not_submitted) == (("a", "b", "c"), ("c",))
    assert summary.avg_jct == 50.0  # of a and b, which are 100 and 0 s old


def test_nobody_has_no_mean() -> None:
    """Not zero seconds: a run may end before its first job is submitted."""
    result = run_of(toy_job("a", 500.0), horizon=100.0)
    summary = summarise(result)
    assert summary is not None
    assert (summary.num_jobs, summary.cut_off, summary.not_submitted) == (1, ("a",), ("a",))
    assert (summary.avg_jct, summary.p50_jct, summary.p99_jct, summary.makespan) == (None, None, None, None)
    assert summary.jct_by_application == {}


def test_who_gave_up_is_counted_and_in_no_mean() -> None:
    result = run_of(toy_job("a"), toy_job("b", cancel_time=100.0), toy_job("c", after=("b",)), toy_job("d", 10.0))
    summary = summarise(result)
    assert summary is not None
    assert (summary.num_jobs, summary.cancelled, summary.cut_off) == (4, ("b", "c"), ())
    assert summary.not_submitted == ("c",)
    assert summary.avg_jct == (190.0 + 360.0) / 2


# Standing still.


@pytest.mark.parametrize("policy", [Nothing(), NothingForEver()])
@pytest.mark.parametrize("horizon", [None, 1e6])
def test_a_policy_that_gives_nothing_ends_the_run_for_a_reason(policy: Policy, horizon: float | None) -> None:
    result = run_of(toy_job("a"), toy_job("b", 100.0), policy=policy, horizon=horizon)
    assert [job.status for job in result.job_records] == [Status.CUT_OFF] * 2
    if isinstance(policy, NothingForEver) and horizon:
        assert (result.standstill, result.end_time) == (None, 1e6)  # nothing was due before it
        return
    assert result.standstill is not None
    assert "none of the 2 jobs left, the first is 'a', " in result.standstill
    assert f"policy {type(policy).__name__} gave no GPU" in result.standstill
    assert result.end_time < 1e5


def test_a_job_that_waits_for_one_that_gets_nothing_is_no_hope() -> None:
    result = run_of(toy_job("a"), toy_job("b", after=("a",)), policy=Nothing())
    assert result.standstill is not None
    assert [job.status for job in result.job_records] == [Status.CUT_OFF] * 2


def test_a_job_that_is_still_to_come_is_a_hope() -> None:
    class Late(Nothing):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
            return {view.jobs[0].job_id: ((0, 1),)} if view.time > 2e5 else {}

    result = run_of(toy_job("a"), toy_job("late", 2e5), policy=Late())
    assert result.standstill is None
    assert [job.status for job in result.job_records] == [Status.COMPLETED] * 2


def test_a_user_who_will_give_up_is_a_hope() -> None:
    """The job at the head asks for more than is up; when it is gone, the next can run."""

    class Patient(Nothing):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
            return {view.jobs[0].job_id: ((0, 1),)} if view.jobs[0].job_id == "small" else {}

    result = run_of(toy_job("large", cancel_time=3e5), toy_job("small"), policy=Patient())
    assert result.standstill is None
    assert [job.status for job in result.job_records] == [Status.CANCELLED, Status.COMPLETED]


class AsksOnce(Nothing):
    """Asks for both nodes, and runs its job once the second is up."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        return Decision({"a": ((1, 1),)} if len(view.gpus_per_node) == 2 else {}, num_nodes=2)


def test_a_node_on_its_way_is_a_hope() -> None:
    result = run_of(toy_job("a"), policy=AsksOnce(), cluster=Cluster.elastic(2, 1, 1, 3e5, 0.0))
    assert (result.standstill, result.job_records[0].start_time) == (None, 300_060.0)


def test_a_cluster_that_did_not_grow_is_told_of() -> None:
    jobs = toy_workload(toy_job("a", gpus=2))
    result = ended(begun(jobs, Cluster.elastic(2, 1, 1, 0.0, 0.0), Fifo()), Fifo())
    assert result.standstill is not None
    assert result.standstill.endswith("only 1 of up to 2 nodes are up, as the policy asked for no more")
    assert "will make progress after 60 s" in result.standstill


def test_progress_in_between_starts_the_wait_anew() -> None:
    class NowAndThen(Nothing):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
            return {"a": ((0, 1),)} if view.time % 48_000 in (0, 60) else {}

    result = run_of(toy_job("a"), policy=NowAndThen())
    assert result.standstill is None
    assert result.job_records[0].status is Status.COMPLETED


# Waiting for nodes is no standstill.

LONG = 90_000.0  # [s], longer than the patience with a policy
WIDE = Job.rigid("wide", 0.0, 8, 600.0)
BESIDE = Job.rigid("beside", 60.0, 2, 600.0)


class AtEveryRound(Fifo):
    """FIFO that is asked at every round."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        return replace(super().allocate(view, rng), valid_until=-inf)


def completions(cluster: Cluster, *jobs: Job, policy: Policy | None = None, **rules: float) -> list[float | None]:
    result = simulate(Workload(jobs), {}, cluster, policy or Fifo(), settings=EngineSettings(**rules), seed=1)
    return [job.completion_time for job in result.job_records]


@pytest.mark.parametrize(
    ("policy", "duration"),
    [(Fifo(), LONG / 2), (Fifo(), LONG), (Fifo(), 10 * LONG), (AtEveryRound(), 2 * LONG), (Sia(), LONG)],
)
def test_jobs_wait_for_a_recorded_repair(policy: Policy, duration: float) -> None:
    """A long outage gives the result of a short one, later. FIFO holds back the other job, which fits beside it."""
    ends = completions(failing((1, 0.0, duration)), WIDE, BESIDE, policy=policy)
    start = -(-duration // 60) * 60
    assert ends[0] == start + 630.0
    assert ends[1] is not None


def test_jobs_wait_for_the_last_of_several_repairs() -> None:
    """After the first repair, another node is down for longer than the patience."""
    cluster = failing((1, 0.0, LONG), (0, LONG - 10.0, LONG), (1, 2 * LONG - 20.0, LONG))
    assert completions(cluster, WIDE) == [3 * LONG + 630.0]


@pytest.mark.parametrize("policy", [Fifo(), AtEveryRound()])
def test_jobs_wait_for_the_end_of_a_drain(policy: Policy) -> None:
    drained = Listed(tuple(Outage((node,), 2 * LONG, 600.0, "maintenance", drain=LONG + 100.0) for node in (0, 1)))
    assert completions(Cluster.uniform(2, 4, drained), replace(BESIDE, submit_time=LONG), policy=policy) == [
        2 * LONG + 600.0 + 630.0
    ]


@dataclass(frozen=True)
class EndlessOutages:
    """A node that fails at once and comes up after a long time, again and again."""

    repair_time: float

    def units(self, num_nodes: int) -> Iterable[int]:
        return [num_nodes - 1]

    def outage(self, unit: int, number: int, since: float, draw: Callable[[int], Sequence[float]]) -> Outage:
        start = 0.0 if number == 0 else since + 20_000.0
        return Outage((unit,), start, self.repair_time, "failure")


@pytest.mark.parametrize("policy", [Fifo(), AtEveryRound()])
def test_jobs_wait_for_a_repair_that_recurs(policy: Policy) -> None:
    """Strict order holds back the other job, which fits beside the node that is down."""
    ends = completions(Cluster.uniform(2, 4, EndlessOutages(LONG)), WIDE, BESIDE, policy=policy)
    assert ends == [LONG + 630.0, LONG + 1290.0]


class FromTime(Nothing):
    """Starts jobs from a time on, and says so."""

    def __init__(self, time: float) -> None:
        self.time = time

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        if view.time < self.time:
            return Decision({}, valid_until=self.time)
        return Fifo().allocate(view, rng)


@pytest.mark.parametrize("delay", [30.0, 5000.0])
def test_a_policy_is_asked_at_the_time_that_it_named(delay: float) -> None:
    """It is not cut off before the job has restarted either."""
    assert completions(ONE, Job.rigid("a", 0.0, 1, 600.0), policy=FromTime(3 * LONG), restart_delay=delay) == [
        3 * LONG + delay + 600.0
    ]


def test_a_policy_that_names_a_later_time_again_and_again_ends() -> None:
    class Procrastinates(Nothing):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            return Decision({}, valid_until=view.time + 10_000.0)

    result = run_of(toy_job("a"), policy=Procrastinates())
    assert result.standstill is not None
    assert "policy Procrastinates gave no GPU" in result.standstill


def test_endless_failures_in_which_no_job_can_train_end() -> None:
    """Each node fails after some seconds, so that no job ends its restart."""
    failures = DrawnFailures(rate=1e6 * 86.4, repair_time=50.0)
    result = simulate(Workload((WIDE,)), {}, Cluster.uniform(2, 4, failures), Fifo(), seed=1)
    assert result.standstill is not None
    assert "no job could train in between" in result.standstill
    assert "policy" not in result.standstill


def test_a_job_that_needs_nodes_that_never_come_back_blames_no_policy() -> None:
    result = simulate(Workload((WIDE,)), {}, failing((1, 0.0, inf)), Fifo())
    assert result.standstill is not None
    assert result.standstill.endswith("node 1 is down for good, and each of them needs more than the nodes that are up")


def test_a_policy_that_holds_back_other_jobs_is_told_beside_the_nodes_that_are_down() -> None:
    result = simulate(Workload((WIDE, BESIDE)), {}, failing((1, 0.0, inf)), Fifo())
    assert result.standstill is not None
    assert "node 1 is down for good, and job 'wide' needs more" in result.standstill
    assert result.standstill.endswith("and policy Fifo started no other job")


def test_a_policy_that_gives_nothing_is_blamed_after_a_repair() -> None:
    result = simulate(Workload((BESIDE,)), {}, failing((1, 0.0, LONG)), Nothing())
    assert result.standstill is not None
    assert "policy Nothing gave no GPU" in result.standstill
    assert result.end_time > LONG


def test_a_fork_to_come_is_awaited() -> None:
    """It has another policy, which starts the job."""
    run = begun(toy_workload(toy_job("a")), ONE, Nothing())
    run.fork(Fork(2 * LONG, run.scenario, has_new_policy=True))
    while (view := run.advance()) is not None:
        run.commit((Fifo() if view.time > LONG else Nothing()).allocate(view, run.rng))
    result = run.result()
    assert (result.standstill, result.job_records[0].status) == (None, Status.COMPLETED)
