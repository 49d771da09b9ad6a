"""Laws that hold for every policy, on clusters and workloads drawn at random; and what theory says of a queue."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from drawn import BY_CLOCK, POLICIES, PROFILES, AskedEveryRound, cases, draws, policies, policies_and_cases
from hypothesis import example, given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.checks.clocks import difference_on_clock
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.rounds import every_round
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Result, Status
from polluxsim.workloads.workload import Job, Workload


def held_service(result: Result) -> dict[str, float]:
    """Return the GPU time each job held, from the record of changes alone."""
    service: dict[str, float] = defaultdict(float)
    held: dict[str, tuple[float, int]] = {}
    for change in result.allocation_records:
        since, gpus = held.get(change.job, (0.0, 0))
        service[change.job] += (change.time - since) * gpus
        held[change.job] = (change.time, sum(change.gpus))
    return service


@given(policies_and_cases, st.booleans())
@draws(50)
def test_every_policy_obeys_the_laws(given: tuple[str, tuple[Cluster, Workload]], whole_seconds: bool) -> None:
    name, (cluster, workload) = given
    rules = EngineSettings(whole_seconds=whole_seconds)
    result = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    # Everybody completes, after submission, a start at a round, and at least the delay.
    admitted = [job for job in result.job_records if job.status is not Status.REJECTED]
    for job in admitted:
        assert job.start_time is not None
        assert job.completion_time is not None
        assert job.start_time >= job.submit_time
        assert job.start_time % 60 == 0
        assert job.completion_time >= job.start_time + 30
    # Time never goes back, and GPUs are conserved: what is in use is held by somebody and exists.
    times = [change.time for change in result.allocation_records]
    assert times == sorted(times)
    assert [r.time for r in result.round_records] == sorted({r.time for r in result.round_records})
    assert all(0 <= r.gpus_in_use <= cluster.num_gpus for r in result.round_records)
    # Attained service is the sum of held GPU time.
    service = held_service(result)
    for job in result.job_records:
        assert job.gpu_seconds == pytest.approx(service[job.job])
    # Restarts are the changes of placement after the first start.
    placements = Counter[str]()
    last: dict[str, object] = {}
    for change in result.allocation_records:
        where = (change.nodes, change.gpus)
        placements[change.job] += bool(change.gpus) and last.get(change.job) != where
        last[change.job] = where
    for job in admitted:
        assert job.num_restarts == placements[job.job] - 1


@given(policies_and_cases, st.booleans(), st.sampled_from([0.0, 0.4]))
@draws(60)
def test_a_decision_stands_as_long_as_its_policy_says(
    given: tuple[str, tuple[Cluster, Workload]], whole_seconds: bool, interference: float
) -> None:
    """To ask at every round changes nothing."""
    name, (cluster, workload) = given
    rules = EngineSettings(whole_seconds=whole_seconds, interference=interference)
    once = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    always = simulate(workload, PROFILES, cluster, AskedEveryRound(POLICIES[name]()), settings=rules, seed=1)
    assert once == always


@given(policies, cases())
@draws(15)
def test_the_same_seed_gives_the_same_result(name: str, case: tuple[Cluster, Workload]) -> None:
    cluster, workload = case
    first, second = (simulate(workload, PROFILES, cluster, POLICIES[name](), seed=7) for _ in range(2))
    assert first == second


@example(interval=12.1, times=[108.9], at_rounds=False)  # 9 · 12.1 is 108.89999999999999
@given(st.floats(1.0, 100.0), st.lists(st.floats(0.0, 500.0), min_size=1, max_size=5), st.booleans())
@draws(50)
def test_nothing_starts_before_it_is_submitted(interval: float, times: list[float], at_rounds: bool) -> None:
    """Also where rounds are at times that floating point cannot say exactly."""
    if at_rounds:
        times = [round(time / interval) * interval for time in times]
    jobs = toy_workload(*(toy_job(f"{i}", time) for i, time in enumerate(times)))
    rules = EngineSettings(round_interval=interval, horizon=600.0)
    result = simulate(jobs, PROFILES, Cluster.uniform(4, 4), Fifo(), settings=rules)
    assert all(
        job.queueing_delay is None or 0 <= job.queueing_delay < interval * (1 + 1e-12) for job in result.job_records
    )


def slower(job: Job, clock: float) -> Job:
    times = {name: getattr(job, name) for name in ("submit_time", "deadline", "time_limit")}
    return replace(job, **{name: None if time is None else clock * time for name, time in times.items()})


def learns(name: str) -> bool:
    """Return whether agents learn under a policy. Their fit has a start and bounds in seconds."""
    return traits_of(POLICIES[name]()).adaptive


@given(policies.filter(lambda name: not learns(name)), cases(), st.sampled_from([2.0, 3.0, 0.1, 1 / 7]))
@draws(40)
def test_a_factor_on_all_times_is_a_factor_on_the_completion_times(
    name: str, case: tuple[Cluster, Workload], clock: float
) -> None:
    """Only the factor 2 changes no digit. `polluxsim check` has the same law for all kinds of worlds."""
    cluster, workload = case
    profiles = {key: replace(each, seconds=clock * each.seconds, name=each.name) for key, each in PROFILES.items()}
    late = Workload(tuple(slower(job, clock) for job in workload.jobs))
    policy = BY_CLOCK[name](clock) if name in BY_CLOCK else POLICIES[name]()
    once = simulate(workload, PROFILES, cluster, POLICIES[name](), seed=3)
    rules = EngineSettings(round_interval=60.0 * clock, restart_delay=30.0 * clock)
    scaled = simulate(late, profiles, cluster, policy, settings=rules, seed=3)
    assert difference_on_clock(once, scaled, clock) is None


# Not QSSF, which goes by them.
@given(policies.filter(lambda name: name != "qssf"), cases(), st.randoms(use_true_random=False))
@draws(20)
def test_names_do_not_matter(name: str, case: tuple[Cluster, Workload], random: st.DataObject) -> None:
    cluster, workload = case
    names = [f"{letter}-job" for letter in "qwertyuiop"][: len(workload.jobs)]
    random.shuffle(names)
    renamed = Workload(tuple(replace(job, job_id=new) for job, new in zip(workload.jobs, names, strict=True)))
    once = simulate(workload, PROFILES, cluster, POLICIES[name](), seed=3)
    again = simulate(renamed, PROFILES, cluster, POLICIES[name](), seed=3)
    assert [job.jct for job in once.job_records] == [job.jct for job in again.job_records]


def test_a_fifo_queue_waits_as_long_as_theory_says() -> None:
    """M/D/1: Poisson arrivals, one GPU, fixed work D; mean wait ρD/(2(1 − ρ)), plus half a round to be noticed."""
    interval, work, load, count = 10.0, 100.0, 0.5, 6000
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.exponential(work / load, count)).tolist()
    profiles = {"toy": ToyProfile(seconds=1.0, epochs=(work,))}
    result = simulate(
        toy_workload(*(toy_job(f"{i}", time) for i, time in enumerate(times))),
        profiles,
        Cluster.uniform(1, 1),
        Fifo(),
        settings=EngineSettings(round_interval=interval, restart_delay=0.0),
    )
    # Lindley's recursion, with starts at rounds only, exactly …
    free = 0.0
    for job in result.job_records:
        start = max(-(-job.submit_time // interval) * interval, free, interval)
        assert job.start_time == start
        free = start + work
    # … and the mean over many jobs.
    wait = np.mean([job.queueing_delay for job in result.job_records])
    assert wait == pytest.approx(load * work / (2 * (1 - load)) + interval / 2, rel=0.08)
    # Little's law: jobs in the system, over time = time in the system, over jobs (both from the first round of each).
    in_system = sum(r.active_jobs for r in every_round(result, interval)) * interval
    noticed = sum(max(-(-job.submit_time // interval) * interval, interval) for job in result.job_records)
    assert in_system == sum(job.completion_time for job in result.job_records) - noticed
