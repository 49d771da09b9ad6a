"""Policies that are an order of the queue: worked examples, and the published numbers of Muri's simulator."""

from __future__ import annotations

from math import ceil, nan
from pathlib import Path

import numpy as np
import pytest
from drawn import begun, ended
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.failures import RecordedFailures
from polluxsim.engine.futures import Fork
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.policies.elastic.true_times import Proportional
from polluxsim.policies.ordered.attained_service import (
    Gittins,
    LeastAttainedService,
    Tiresias,
    TiresiasL,
    gittins_index,
)
from polluxsim.policies.ordered.classic import (
    EarliestDeadline,
    Fifo,
    Priority,
    QuasiShortestService,
    ShortestJobFirst,
    Srsf,
    Srtf,
)
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sized.shockwave import Shockwave
from polluxsim.policies.typed.rules import MinMakespan
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job

RULES = EngineSettings(restart_delay=0.0)


def run(policy: Policy, *jobs: Job, gpus: int = 1) -> Result:
    return simulate(toy_workload(*jobs), {}, Cluster.uniform(1, gpus), policy, settings=RULES)


def ends(result: Result) -> dict[str, float | None]:
    return {job.job: job.completion_time for job in result.job_records}


def test_srsf_counts_gpus_and_srtf_does_not() -> None:
    jobs = Job.rigid("wide", 0.0, 2, 120.0), Job.rigid("long", 0.0, 1, 180.0)
    assert ends(run(Srtf(), *jobs, gpus=2)) == {"wide": 180.0, "long": 360.0}
    assert ends(run(Srsf(), *jobs, gpus=2)) == {"wide": 360.0, "long": 240.0}


def test_shortest_first_lets_who_runs_end() -> None:
    jobs = Job.rigid("long", 0.0, 1, 300.0), Job.rigid("b", 90.0, 1, 120.0), Job.rigid("a", 100.0, 1, 60.0)
    assert ends(run(ShortestJobFirst(), *jobs)) == {"long": 360.0, "a": 420.0, "b": 540.0}
    assert ends(run(Srtf(), *jobs)) == {"long": 540.0, "a": 180.0, "b": 300.0}


def test_least_attained_service_turns_at_every_quantum() -> None:
    jobs = Job.rigid("a", 0.0, 1, 240.0), Job.rigid("b", 0.0, 1, 240.0)
    result = run(LeastAttainedService(quantum=120.0), *jobs)
    changes = [(change.time, change.job) for change in result.allocation_records if change.gpus]
    assert changes == [(60.0, "a"), (180.0, "b"), (300.0, "a"), (420.0, "b")]


def test_queues_are_left_at_their_limits() -> None:
    """Two jobs of one queue do not turn; who leaves it lets the other in, and the last queue is first come."""
    jobs = Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 0.0, 1, 600.0)
    result = run(TiresiasL((120.0, 240.0)), *jobs)
    changes = [(change.time, change.job) for change in result.allocation_records if change.gpus]
    assert changes == [(60.0, "a"), (180.0, "b"), (300.0, "a"), (420.0, "b"), (540.0, "a"), (900.0, "b")]


def test_who_runs_stays_ahead_in_its_queue() -> None:
    """In the first queue, b waits behind c, which overtook it, until c leaves; with one limit for all, b goes first."""
    jobs = Job.rigid("a", 0.0, 1, 120.0), Job.rigid("b", 0.0, 2, 60.0), Job.rigid("c", 10.0, 1, 600.0)
    result = run(TiresiasL((10_000.0,)), *jobs, gpus=2)
    assert ends(result) == {"a": 180.0, "b": 720.0, "c": 660.0}


def test_the_gittins_index_is_the_best_rate_of_ends() -> None:
    services = np.array([1.0, 2.0, 10.0])
    by_hand = max(1 / (1 + 1 + 1), 2 / (1 + 2 + 2), 3 / (1 + 2 + 10))
    assert gittins_index(services, 0.0) == pytest.approx(by_hand)
    assert gittins_index(services, 2.0) == pytest.approx(1 / 8)
    assert gittins_index(services, 10.0) == gittins_index(np.array([]), 0.0) == 0.0


def test_gittins_lets_those_go_first_that_may_end_soon() -> None:
    """Where jobs last a minute or very long, who has run for two minutes is likely to be long."""
    short = [Job.rigid(f"s{i}", 0.0, 1, 60.0) for i in range(4)]
    long, new = Job.rigid("long", 0.0, 1, 3000.0), Job.rigid("new", 500.0, 1, 60.0)
    assert ends(run(Gittins(quantum=60.0), *short, long, new))["new"] == 600.0


def test_earliest_deadlines_preempt_and_those_without_wait() -> None:
    jobs = (
        Job.rigid("none", 0.0, 1, 60.0),
        Job.rigid("late", 0.0, 1, 120.0, deadline=900.0),
        Job.rigid("soon", 70.0, 1, 60.0, deadline=300.0),
    )
    assert ends(run(EarliestDeadline(), *jobs)) == {"soon": 180.0, "late": 240.0, "none": 300.0}


def test_priorities_preempt_after_the_time_that_all_may_run() -> None:
    jobs = Job.rigid("low", 0.0, 1, 600.0), Job.rigid("high", 70.0, 1, 60.0, priority=1.0)
    assert ends(run(Priority(min_run_time=0.0), *jobs)) == {"low": 720.0, "high": 180.0}
    assert ends(run(Priority(min_run_time=200.0), *jobs)) == {"low": 720.0, "high": 360.0}
    assert ends(run(Priority(min_run_time=700.0), *jobs)) == {"low": 660.0, "high": 720.0}
    equal = Job.rigid("early", 0.0, 1, 600.0, priority=1.0), Job.rigid("late", 0.0, 1, 60.0, priority=1.0)
    assert ends(run(Priority(min_run_time=0.0), *equal)) == {"early": 660.0, "late": 720.0}


def test_who_runs_is_not_preempted_by_an_equal_that_came_before() -> None:
    jobs = Job.rigid("a", 0.0, 1, 120.0), Job.rigid("wide", 10.0, 2, 60.0), Job.rigid("b", 20.0, 1, 600.0)
    assert ends(run(Priority(min_run_time=0.0), *jobs, gpus=2)) == {"a": 180.0, "wide": 720.0, "b": 660.0}


def test_qssf_goes_by_what_like_jobs_took() -> None:
    """Of a user's jobs the name tells; of others the user and the GPUs, then the GPUs."""
    past = Job.rigid("sweep-1", 0.0, 1, 600.0, user="ada"), Job.rigid("test-1", 0.0, 1, 60.0, user="ada")
    new = (
        Job.rigid("sweep-2", 800.0, 1, 60.0, user="ada"),
        Job.rigid("other", 800.0, 1, 60.0, user="ada"),
        Job.rigid("test-2", 800.0, 1, 600.0, user="ada"),
    )
    policy, blocker = QuasiShortestService(forgetting=0.5), Job.rigid("blocker", 730.0, 1, 90.0, user="bob")
    order = sorted((end, job) for job, end in ends(run(policy, *past, blocker, *new)).items())
    assert [job for _, job in order] == ["sweep-1", "test-1", "blocker", "test-2", "other", "sweep-2"]


def test_qssf_tells_applications_apart_and_takes_no_number_for_a_name() -> None:
    """Ids are numbers, as in most logs: the application tells, or the number of GPUs."""
    profiles = {
        "resnet18": ToyProfile(name="resnet18", seconds=1.0, epochs=(60.0,)),
        "resnet50": ToyProfile(name="resnet50", seconds=1.0, epochs=(3600.0,)),
    }
    past = [toy_job("1000001", 0.0, 1, "resnet50", user="ada"), toy_job("1000002", 0.0, 1, "resnet18", user="ada")]
    past += [Job.rigid("1000003", 0.0, 1, 600.0, user="bob"), Job.rigid("1000004", 0.0, 2, 36_000.0, user="bob")]
    new = [toy_job(f"{name}", 40_000.0, 1, application, user="ada") for name, application in
           (("1000005", "resnet18"), ("1000006", "resnet50"))]  # fmt: skip
    new += [Job.rigid("1000007", 40_000.0, 1, 60.0, user="bob"), Job.rigid("1000008", 40_000.0, 2, 60.0, user="bob")]
    expected: dict[str, float] = {}

    class Noting(QuasiShortestService):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            decision = super().allocate(view, rng)
            expected.update({job.job_id: self._expected(job) for job in view.jobs})
            return decision

    cluster, rules = Cluster.uniform(2, 4), EngineSettings(restart_delay=0.0)
    simulate(toy_workload(*past, *new), profiles, cluster, Noting(), settings=rules)
    assert [expected[f"100000{number}"] for number in range(5, 9)] == [60.0, 3600.0, 600.0, 36_000.0]


def test_qssf_goes_by_the_name_in_the_log() -> None:
    """Ids are numbers; jobs named `long` took 600 s, and those named `short` 60 s."""
    past = [Job.rigid("1", 0.0, 1, 600.0, job_name="long"), Job.rigid("2", 0.0, 1, 60.0, job_name="short")]
    blocker = Job.rigid("3", 730.0, 1, 90.0, job_name="other")
    new = [Job.rigid("4", 800.0, 1, 60.0, job_name="long"), Job.rigid("5", 800.0, 1, 600.0, job_name="short")]
    order = sorted((end, job) for job, end in ends(run(QuasiShortestService(), *past, blocker, *new)).items())
    assert [job for _, job in order] == ["1", "2", "3", "5", "4"]


@pytest.mark.parametrize("policy", [Fifo, LeastAttainedService, Srtf, Tiresias, TiresiasL, Priority, Conservative])
def test_a_job_starts_after_a_fork_although_another_job_got_all_gpus_before(
    policy: type[Policy],
) -> None:
    wide = Job.rigid("wide", 0.0, 1, 6000.0, speeds=((1, 1.0), (2, 1.9), (4, 3.5)))
    before = Proportional()
    run = begun(toy_workload(wide, Job.rigid("late", 150.0, 2, 600.0)), Cluster((4,)), before)
    while (view := run.advance(120.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    run.fork(Fork(120.0, run.scenario, has_new_policy=True))
    result = ended(run, policy())
    assert all(job.completion_time is not None for job in result.job_records)
    end = result.job_records[0].completion_time
    assert result.job_records[1].start_time == (60 * ceil(end / 60) if policy is Conservative else 180.0)


@pytest.mark.parametrize("policy", [Tiresias(1900.0), TiresiasL((1900.0,))], ids=["tiresias", "tiresias-l"])
def test_a_job_that_waits_at_a_fork_is_in_the_queue_of_its_service(policy: Policy) -> None:
    """The long job had GPUs from 60 s to 540 s; the short job, which preempted it, is demoted at 1,020 s."""
    jobs = [Job.rigid("long", 0.0, 4, 6000.0), Job.rigid("short", 540.0, 4, 600.0), Job.rigid("new", 700.0, 4, 60.0)]
    before = Srtf()
    run = begun(toy_workload(*jobs), Cluster((4,)), before)
    while (view := run.advance(660.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    run.fork(Fork(660.0, run.scenario, has_new_policy=True))
    changes = [(record.time, record.job) for record in ended(run, policy).allocation_records]
    assert [job for time, job in changes if 660.0 <= time < 1020.0] == []
    assert (1020.0, "new") in changes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeastAttainedService(quantum=0.0), "policy.quantum is 0, must be a finite number > 0"),
        (lambda: Gittins(quantum=float("inf")), "policy.quantum is inf, must be a finite number > 0"),
        (lambda: TiresiasL((5.0, 5.0)), r"policy.queue_limits is \[5.0, 5.0\], must be rising numbers > 0"),
        (lambda: TiresiasL((nan,)), r"policy.queue_limits is \[nan\], must be rising numbers > 0"),
        (
            lambda: TiresiasL(("x",)),
            r"policy.queue_limits\[0\] is 'x', must be a number of GPU seconds",
        ),
        (lambda: QuasiShortestService(0.0), r"policy.forgetting is 0, must be a number > 0 and ≤ 1"),
        (lambda: QuasiShortestService(1.5), r"policy.forgetting is 1.5, must be a number > 0 and ≤ 1"),
        (lambda: Tiresias(nan), "policy.queue_threshold is nan, must be a number > 0"),
        (lambda: Shockwave(window=2.5), "policy.window is 2.5, must be a whole number ≥ 1"),  # type: ignore[arg-type]
        (lambda: Shockwave(resolve=0), "policy.resolve is 0, must be a whole number ≥ 1"),
        (lambda: Shockwave(weight_of_longest=-1.0), "policy.weight_of_longest is -1, must be a finite number ≥ 0"),
        (lambda: MinMakespan(shortest=0.0), "policy.shares.shortest is 0, must be a finite number > 0"),
        (lambda: MinMakespan(longest=float("inf")), "policy.shares.longest is inf, must be a finite number ≥ 100"),
        (lambda: MinMakespan(longest=99.0), "policy.shares.longest is 99, must be a finite number ≥ 100"),
        (lambda: Gandiva(time_slice=0.0), "policy.time_slice is 0, must be a finite number > 0"),
        (lambda: Multifactor(age=-1.0), r"policy.age is -1, must be a finite number ≥ 0"),
        (lambda: Multifactor(shares={"ada": 0.0}), "policy.shares.ada is 0, must be a finite number > 0"),
        (lambda: Priority(-1.0), "policy.min_run_time is -1, must be a finite number ≥ 0"),
    ],
)
def test_impossible_parameters_are_refused(make: type[Policy], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Srsf(), "the fewest GPU-hours left to run first, this job with 0.0667. Jobs"),
        (ShortestJobFirst(), "the least time left to run first, this job with 0:04:00 on the GPUs that it requests"),
        (
            LeastAttainedService(),
            "the fewest whole quanta attained first, this job with 0 whole quanta of 1 GPU-hour attained "
            "(0 GPU-hours in all). Jobs with equal quanta go by",
        ),
        (Gittins(), "(0 GPU-hours in all). No job has ended yet, so the jobs are in order of submission."),
        (TiresiasL((3600.0, 7200.0)), "in queue 1 of 3 (up to 1 GPU-hours), with 0 GPU-hours attained"),
        (EarliestDeadline(), "the earliest deadline first, this job with 0:15:00"),
        (Priority(), "with priority 3"),
        (
            QuasiShortestService(),
            "No job has completed yet, so all jobs count as equal and stay in order of submission, then of the list",
        ),
    ],
)
def test_why_says_what_the_order_goes_by(policy: Policy, words: str) -> None:
    jobs = Job.rigid("a", 0.0, 1, 60.0, priority=9.0), Job.rigid("b", 0.0, 1, 240.0, deadline=900.0, priority=3.0)
    run = begun(toy_workload(*jobs), Cluster.uniform(1, 1), policy, RULES)
    result = ended(run, policy)
    first = next(record for record in result.reason_records if record.job == "b")
    assert words in sentence(first, result.reason_texts)
    assert "gives the reason" not in sentence(first, result.reason_texts)


def test_a_queue_may_end_at_any_service_above_zero() -> None:
    assert ends(run(TiresiasL((0.5,)), Job.rigid("a", 0.0, 1, 600.0))) == {"a": 660.0}


def test_tiresias_demotes_a_job_that_lost_its_gpus_to_a_failure(tmp_path: Path) -> None:
    """Job a reaches the threshold later than expected, because its node is down for 300 s."""
    path = tmp_path / "failures.csv"
    path.write_text("node,time,down_until\n0,300,600\n")
    cluster = Cluster.uniform(1, 4, RecordedFailures(str(path)))
    jobs = Job.rigid("a", 0.0, 4, 6000.0), Job.rigid("b", 3000.0, 4, 600.0)
    result = simulate(toy_workload(*jobs), {}, cluster, Tiresias(queue_threshold=4000.0), settings=RULES)
    assert {job.job: job.start_time for job in result.job_records} == {"a": 60.0, "b": 3000.0}
