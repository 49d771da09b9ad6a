"""Limits on the GPUs and jobs of users, QOS and queues: starts, reasons, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.policies.ordered.classic import Fifo, ShortestJobFirst, Srtf
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.records.results import Result
from polluxsim.run.without_effect import settings_without_effect
from polluxsim.workloads.workload import Job, Workload
from tests.policies.limited_cluster import Job as PlainJob
from tests.policies.limited_cluster import Limits, start_times


def settings(limits: Mapping[str, Any], placement: str = "consolidated") -> EngineSettings:
    return EngineSettings(round_interval=1.0, restart_delay=0.0, placement=placement, limits=limits)


def drawn_log(number: int) -> tuple[list[int], list[PlainJob], list[Limits]]:
    """Return the GPUs of each node, jobs in order of submission, and limits that allow each job alone."""
    rng = random.Random(f"limits {number}")
    size = rng.randint(2, 8)
    sizes = [size] * rng.randint(2, 12)
    limits = []
    for qos in (None, "normal", "high"):
        drawn = [rng.choice([None, most]) for most in (rng.randint(1, 2 * size), rng.randint(1, 4))]
        drawn += [rng.choice([None, most]) for most in (rng.randint(1, sum(sizes)), rng.randint(2, 12))]
        limits.append(Limits(qos, *drawn))
    jobs = []
    submit = 1  # the first round is after the start of the run
    for _ in range(rng.randint(20, 60)):
        submit += rng.choice([0, 0, 1, 3, 10, 40])
        qos = rng.choice(["normal", "high"])
        most = [limit.user_gpus for limit in limits if limit.qos in (None, qos)]
        most += [limit.gpus for limit in limits if limit.qos in (None, qos)]
        gpus = min([rng.choice([1, 1, 2, 3, size, 2 * size]), sum(sizes), *(gpus for gpus in most if gpus is not None)])
        duration = rng.randint(1, 200)
        limit = rng.choice([duration, duration + rng.randint(1, 100), 300])
        jobs.append(PlainJob(rng.choice("abc"), qos, submit, gpus, duration, limit))
    return sizes, jobs, limits


def as_setting(limits: list[Limits]) -> dict[str, Any]:
    """Return limits as a user writes them."""
    setting: dict[str, Any] = {"qos": {}}
    for limit in limits:
        numbers = {name: most for name, most in limit._asdict().items() if name != "qos" and most is not None}
        if limit.qos is None:
            setting["all"] = numbers
        else:
            setting["qos"][limit.qos] = numbers
    return setting


def simulated_starts(jobs: list[PlainJob], sizes: list[int], limits: list[Limits], policy: Policy) -> list[float]:
    """Return the start of each job in the simulator [s]."""
    workload = Workload(
        tuple(
            Job.rigid(
                f"job-{number}", float(job.submit), job.gpus, float(job.duration), time_limit=float(job.limit),
                user=job.user, qos=job.qos,
            )
            for number, job in enumerate(jobs)
        )
    )  # fmt: skip
    result = simulate(workload, {}, Cluster(tuple(sizes)), policy, settings=settings(as_setting(limits)))
    starts = {record.job: record.start_time for record in result.job_records}
    return [starts[f"job-{number}"] for number in range(len(jobs))]


LOGS = [*range(40), *(pytest.param(number, marks=pytest.mark.slow) for number in range(40, 200))]


@pytest.mark.parametrize("number", LOGS)
def test_starts_are_those_of_an_independent_simulation(number: int) -> None:
    sizes, jobs, limits = drawn_log(number)
    assert simulated_starts(jobs, sizes, limits, Fifo()) == start_times(jobs, sizes, limits, backfill=False)
    assert simulated_starts(jobs, sizes, limits, Easy()) == start_times(jobs, sizes, limits, backfill=True)


def test_the_drawn_limits_change_starts() -> None:
    """Without its limits, a drawn log has other starts, so that the comparison above can fail."""
    changed = 0
    for number in range(40):
        sizes, jobs, limits = drawn_log(number)
        with_limits = start_times(jobs, sizes, limits, backfill=True)
        changed += with_limits != start_times(jobs, sizes, [], backfill=True)
    assert changed >= 30


def outcome(jobs: list[Job], limits: Mapping[str, Any], policy: Policy, cluster: Cluster | None = None) -> Result:
    return simulate(Workload(tuple(jobs)), {}, cluster or Cluster((8, 8)), policy, settings=settings(limits))


def starts_of(result: Result) -> dict[str, float | None]:
    return {record.job: record.start_time for record in result.job_records}


def reason_of(result: Result, job: str) -> str:
    """Return the first reason of a job as a sentence."""
    record = next(record for record in result.reason_records if record.job == job)
    return sentence(record, result.reason_texts)


def three_jobs() -> list[Job]:
    """Return two jobs of ada with 8 GPUs, then one of bob with 8 GPUs, for a cluster of 16 GPUs."""
    users = ["ada", "ada", "bob"]
    return [
        Job.rigid(f"{user}-{number}", 1.0 + number, 8, 100.0, user=user, qos="high", time_limit=100.0)
        for number, user in enumerate(users)
    ]


POLICIES = [Fifo, Easy, Conservative, Multifactor, ShortestJobFirst, Srtf]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_a_limit_stops_blocks_no_job_and_says_why(policy: Callable[[], Policy]) -> None:
    result = outcome(three_jobs(), {"all": {"user_gpus": 8}}, policy())
    assert starts_of(result) == {"ada-0": 1.0, "ada-1": 101.0, "bob-2": 3.0}
    assert reason_of(result, "ada-1") == (
        "This job needs 8 GPUs, and its user holds 8 of at most 8 GPUs. This job delays no other job."
    )


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"all": {"user_jobs": 1}}, "Its user runs 1 of at most 1 job. "),
        ({"qos": {"high": {"user_gpus": 8}}}, "its user holds 8 of at most 8 GPUs in its QOS. "),
        ({"qos": {"high": {"gpus": 15}}}, "its QOS holds 8 of at most 15 GPUs. "),
        ({"qos": {"high": {"jobs": 1}}}, "Its QOS runs 1 of at most 1 job. "),
        ({"all": {"gpus": 12}}, "the cluster holds 8 of at most 12 GPUs. "),
    ],
)
def test_the_reason_names_the_limit(limits: Mapping[str, Any], words: str) -> None:
    assert words in reason_of(outcome(three_jobs(), limits, Fifo()), "ada-1")


def test_a_limit_of_another_qos_stops_no_job() -> None:
    jobs = [*three_jobs(), Job.rigid("other", 300.0, 1, 10.0, user="eve", qos="low")]
    assert starts_of(outcome(jobs, {"qos": {"low": {"user_gpus": 1}}}, Fifo()))["ada-1"] == 2.0


def test_a_job_without_a_user_has_no_limit_by_user() -> None:
    jobs = [Job.rigid(f"{number}", 1.0, 8, 100.0) for number in range(2)]
    assert starts_of(outcome(jobs, {"all": {"user_gpus": 8}}, Fifo())) == {"0": 1.0, "1": 1.0}


def test_a_user_counts_over_all_partitions() -> None:
    cluster = Cluster((8, 8), partitions={"a": (0,), "b": (1,)})
    jobs = [Job.rigid(name, 1.0, 4, 100.0, user="ada", queue=name[0]) for name in ("a1", "b1", "a2")]
    for policy in (Fifo, Easy, Conservative, Srtf):
        starts = starts_of(outcome(jobs, {"all": {"user_gpus": 8}}, policy(), cluster))
        assert sorted(starts.values(), key=str) == [1.0, 1.0, 101.0]
        starts = starts_of(outcome(jobs, {"queue": {"a": {"user_gpus": 4}}}, policy(), cluster))
        assert starts == {"a1": 1.0, "b1": 1.0, "a2": 101.0}


def test_a_user_counts_over_all_gpu_types() -> None:
    cluster = Cluster((8, 8), node_types=NodeTypes([GPU_TYPES["t4"], GPU_TYPES["v100"]]))
    jobs = [Job.rigid(name, 1.0, 6, 100.0, user="ada", gpu_types=(name,)) for name in ("t4", "v100")]
    for policy in (Fifo, Easy, Conservative, Multifactor):
        starts = starts_of(outcome(jobs, {"all": {"user_gpus": 8}}, policy(), cluster))
        assert sorted(starts.values(), key=str) == [1.0, 101.0]


def test_a_preemptive_policy_shares_the_limit_among_the_jobs_of_a_user() -> None:
    """The second job of ada has had less service, so that it takes the place of the first one within her limit."""
    jobs = [Job.rigid(f"ada-{number}", 1.0 + 50.0 * number, 8, 100.0, user="ada") for number in range(2)]
    result = outcome(jobs, {"all": {"user_gpus": 8}}, LeastAttainedService(quantum=100.0))
    assert starts_of(result) == {"ada-0": 1.0, "ada-1": 51.0}
    assert {record.job: record.num_restarts for record in result.job_records}["ada-0"] >= 1


def test_a_policy_that_does_not_obey_limits_is_refused() -> None:
    with pytest.raises(
        InvalidConfigError, match=r"policy Quotas does not obey limits by user; leave out engine\.limits"
    ):
        outcome(three_jobs(), {"all": {"user_gpus": 8}}, Quotas())


def test_a_job_that_exceeds_a_limit_alone_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"needs 8 GPUs, and engine\.limits\.all\.user_gpus is 4, so it would"):
        outcome(three_jobs(), {"all": {"user_gpus": 4}}, Fifo())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"users": {}}, r"engine\.limits has the key 'users', must be one of all, qos, queue"),
        ({"all": 8}, r"engine\.limits\.all is 8, must be a mapping, like \{user_gpus: 8\}"),
        ({"qos": {"high": {"user_gpu": 8}}}, r"engine\.limits\.qos\.high has the key 'user_gpu', .*mean user_gpus"),
        ({"all": {"user_gpus": 0}}, r"engine\.limits\.all\.user_gpus is 0, must be a whole number ≥ 1"),
    ],
)
def test_wrong_settings_are_refused(limits: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        settings(limits)


def test_a_limit_without_effect_is_reported() -> None:
    def sentences(limits: Mapping[str, Any], jobs: list[Job]) -> list[str]:
        policy = Fifo()
        scenario = Scenario.under(policy, Workload(tuple(jobs)), {}, Cluster((8, 8)), settings(limits))
        return settings_without_effect(policy, scenario)

    nobody = [Job.rigid("a", 1.0, 8, 100.0)]
    assert sentences({"all": {"user_gpus": 8}}, three_jobs()) == []
    assert sentences({"all": {"user_jobs": 1}}, nobody) == [
        "engine.limits.all.user_jobs has no effect: no job has a user"
    ]
    assert sentences({"all": {"gpus": 16}}, three_jobs()) == [
        "engine.limits.all.gpus has no effect: it is 16, and the cluster has 16 GPUs"
    ]
    with pytest.raises(InvalidConfigError, match=r"engine\.limits\.qos names qos 'hihg', .*did you mean high\?"):
        sentences({"qos": {"hihg": {"user_gpus": 8}}}, three_jobs())
