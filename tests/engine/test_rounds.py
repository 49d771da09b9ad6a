"""Rounds: at exact multiples, where something is to be done and nowhere else; what is due at one instant; limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from drawn import POLICIES, PROFILES, AskedEveryRound, draws, policies_and_cases
from hypothesis import example, given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.instants import (
    coincide,
    first_round,
    has_come,
    just_after,
    last_round,
    on_rounds,
    slack,
    sort_key,
)
from polluxsim.engine.clock import Clock, Event, Rank
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation
from polluxsim.metrics.rounds import every_round
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Result, RoundRecord, Status
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

ONE = Cluster.uniform(1, 1)
HUNDRED = {"toy": ToyProfile(epochs=(50.0, 100.0))}
intervals = st.sampled_from([0.1, 0.71, 12.1, 60.0, 1e-9]) | st.floats(1e-9, 1e9)


@example(0.71, 52, 0).via("the quotient is rounded up")
@example(0.1, 3, 0).via("3 · 0.1 is more than 0.3")
@given(intervals, st.integers(0, 10**6), st.integers(-2, 2))
@draws(250)
def test_a_time_that_differs_from_a_round_by_rounding_is_the_round(interval: float, index: int, ulps: int) -> None:
    time = index * interval
    for _ in range(abs(ulps)):
        time = max(np.nextafter(time, np.copysign(np.inf, ulps)), 0.0)
    assert first_round(float(time), interval) == max(index, 1)
    assert last_round(float(time), interval) == index
    assert on_rounds(float(time), interval) == (index * interval if index else time)


@given(intervals, st.floats(0.0, 1e6))
def test_so_is_that_of_any_time(interval: float, rounds: float) -> None:
    time = rounds * interval
    found = first_round(time, interval)
    assert found * interval >= time - slack(time)
    assert found == 1 or (found - 1) * interval < time
    assert on_rounds(time, interval) in (time, found * interval)


@given(st.floats(1e-9, 1e12), st.integers(-100, 100))
def test_times_that_differ_by_rounding_coincide(time: float, ulps: int) -> None:
    other = time + ulps * np.spacing(time)
    assert coincide(time, other)
    assert has_come(time, other)
    assert has_come(other, time)
    assert not has_come(just_after(time), time)
    assert not coincide(time, time * (1 + 1e-11))
    assert sort_key(time) == pytest.approx(time, rel=1e-9)


def test_never_does_not_coincide_with_a_time() -> None:
    assert not coincide(5.0, inf)
    assert not coincide(inf, 5.0)
    assert coincide(inf, inf)
    assert not has_come(inf, 5.0)


def test_there_is_a_first_round_after_a_time_without_exact_rounds() -> None:
    assert first_round(1e300, 60.0) * 60.0 == pytest.approx(1e300)


def quick(*jobs: Job, policy: Policy | None = None, **rules: float) -> Result:
    """Run jobs on one GPU; a run that holds every round would not end within the test's patience."""
    result = simulate(toy_workload(*jobs), HUNDRED, ONE, policy or Fifo(), settings=EngineSettings(**rules))
    assert len(result.round_records) <= 10
    return result


@pytest.mark.parametrize("policy", [Fifo, Tiresias], ids=["fifo", "tiresias"])
def test_a_job_of_thirty_years_costs_no_more_than_one_of_a_minute(policy: Callable[[], Policy]) -> None:
    (job,) = quick(Job.rigid("a", 0.0, 1, 1e9), policy=policy()).job_records
    assert job.completion_time == 60.0 + 30.0 + 1e9


def test_a_billion_rounds_in_which_nothing_happens_cost_nothing() -> None:
    (job,) = quick(Job.rigid("a", 0.0, 1, 1.0), round_interval=1e-9, restart_delay=0.0).job_records
    assert job.completion_time == 1e-9 + 1.0


def test_nor_does_a_delay_of_days() -> None:
    (job,) = quick(toy_job("a"), restart_delay=1e6).job_records
    assert job.completion_time == 60.0 + 1e6 + 100.0


@pytest.mark.parametrize("interval", [0.0, -1.0, 1e-320, 1e-10, 1e12, 1e308, float("inf"), float("nan")])
def test_an_interval_that_cannot_be_is_named(interval: float) -> None:
    with pytest.raises(
        InvalidConfigError, match=r"^engine\.round_interval is .*, must be a number from 1e-09 to 1e\+11$"
    ):
        EngineSettings(round_interval=interval)


@pytest.mark.parametrize("job", [Job.rigid("a", 1e7, 1, 1.0), Job.rigid("a", 0.0, 1, 1e7)])
def test_a_time_whose_rounds_cannot_be_told_apart_is_named(job: Job) -> None:
    with pytest.raises(InvalidConfigError, match=r"^job 'a' comes to 1e\+07 s, must be below 4\.504e\+06 s"):
        quick(job, round_interval=1e-9)


def test_the_longest_interval_works() -> None:
    (job,) = quick(toy_job("a"), round_interval=1e11, restart_delay=0.0).job_records
    assert job.completion_time == 1e11 + 100.0


@given(policies_and_cases, st.booleans(), st.none() | st.integers(2, 60).map(lambda halves: 30.0 * halves))
@draws(20)
def test_every_round_is_filled_in_as_it_was(
    given: tuple[str, tuple[Cluster, Workload]], whole_seconds: bool, horizon: float | None
) -> None:
    """As one who asks the policy at every round sees it."""
    name, (cluster, workload) = given
    rules, seen = EngineSettings(whole_seconds=whole_seconds, horizon=horizon), list[RoundRecord]()

    def watch(run: Simulation) -> None:
        assert run.last_round is not None
        seen.append(run.last_round)

    always = AskedEveryRound(POLICIES[name]())
    simulate(workload, PROFILES, cluster, always, settings=rules, seed=1, watcher=watch)
    once = simulate(workload, PROFILES, cluster, POLICIES[name](), settings=rules, seed=1)
    assert [*every_round(once, 60.0)] == seen
    records = tuple(job._replace(end_time=None) if job.completion_time is not None else job for job in once.job_records)
    assert [*every_round(replace(once, job_records=records), 60.0)] == seen  # records with completions only


def times_apart(due: list[tuple[float, Rank, int]]) -> bool:
    """Return whether the times are equal, or differ by more than rounding."""
    times = sorted({time for time, _, _ in due})
    return all(not has_come(after, before) for before, after in pairwise(times))


@given(
    st.lists(st.tuples(st.floats(0.0, 1e9), st.sampled_from(Rank), st.integers(0, 3)), max_size=20).filter(times_apart)
)
def test_what_is_due_happens_at_exactly_its_time_by_rank_then_order_then_age(
    due: list[tuple[float, Rank, int]],
) -> None:
    agenda, happened = Clock(interval=1e10), list[tuple[float, Rank, int, int]]()

    def note(event: Event) -> None:
        happened.append((agenda.now, event.rank, *event.about))

    for age, (time, rank, order) in enumerate(due):
        agenda.at(time, rank, note, (order, age), order=order)
    for _ in due:
        agenda.step()
    assert happened == sorted((time, rank, order, age) for age, (time, rank, order) in enumerate(due))
    assert agenda.peek() == float("inf")


@given(
    st.floats(1.0, 1e9),
    st.lists(st.tuples(st.sampled_from(Rank), st.integers(-20, 20)), min_size=1, max_size=6),
    st.sampled_from([0.1, 0.7, 60.0]),
)
def test_events_whose_times_differ_by_rounding_happen_in_the_order_of_their_ranks(
    time: float, due: list[tuple[Rank, int]], interval: float
) -> None:
    """At a round, they happen at the exact time of the round."""
    at_round = round(time / interval) * interval
    for instant in (time, at_round or time):
        clock, happened = Clock(interval), list[Rank]()

        def note(event: Event, happened: list[Rank] = happened) -> None:
            happened.append(event.rank)

        for rank, ulps in due:
            clock.at(instant + ulps * np.spacing(instant), rank, note)
        times = set[float]()
        for _ in due:
            clock.step()
            times.add(clock.now)
        assert happened == sorted(happened)
        assert coincide(min(times), max(times))
        if instant == at_round and at_round:
            assert times == {at_round}


@pytest.mark.parametrize("ulps", [1, 20])
def test_a_round_that_an_arrival_calls_for_at_once_follows_all_arrivals_of_the_instant(ulps: int) -> None:
    time = 90 / 7
    clock, happened = Clock(60 / 7), list[str]()

    def note(event: Event) -> None:
        happened.append(event.about)
        if event.about == "failure":
            clock.at(clock.now, Rank.ROUND, note, "round")

    clock.at(time, Rank.ARRIVAL, note, "failure")
    clock.at(time + ulps * np.spacing(time), Rank.ARRIVAL, note, "repair")
    for _ in range(3):
        clock.step()
    assert happened == ["failure", "repair", "round"]


@given(st.floats(0.1, 1000.0), st.lists(st.floats(0.0, 1e5), min_size=1, max_size=4), st.floats(0.01, 100.0))
def test_nothing_happens_a_rounding_beside_its_time(interval: float, times: list[float], duration: float) -> None:
    jobs = [Job.rigid(f"{number}", time, 1, duration) for number, time in enumerate(times)]
    rules = EngineSettings(round_interval=interval, restart_delay=0.0)
    result = simulate(toy_workload(*jobs), {}, Cluster.uniform(1, 4), Fifo(), settings=rules)
    for job in result.job_records:
        assert job.submit_time == times[int(job.job)]
        index = first_round(job.submit_time, interval)
        assert job.start_time == max(index * interval, job.submit_time)
        assert job.completion_time == on_rounds(index * interval + duration, interval)
        assert Fraction(job.start_time) >= Fraction(job.submit_time)


class Telling(Fifo):
    """Tells what it is shown."""

    log: list[tuple[float, list[str], list[str], list[str]]]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        arrived = [job.job_id for job in view.changes.arrived]
        self.log.append((view.time, arrived, list(view.changes.ended), [job.job_id for job in view.jobs]))
        return {view.jobs[0].job_id: ((0, 1),)} if view.jobs else {}


def test_the_tie_law() -> None:
    """At 240 s a job completes, one is submitted, one is given up, and a round is held which sees all of it."""
    jobs = [
        Job.rigid("a", 0.0, 1, 150.0),
        Job.rigid("gone", 100.0, 1, 10.0, cancel_time=240.0),
        Job.rigid("new", 240.0, 1, 60.0),
        Job.rigid("next", 0.0, 1, 10.0, after=("a",)),
    ]
    policy = Telling()
    object.__setattr__(policy, "log", [])
    result = simulate(toy_workload(*jobs), {}, ONE, policy, settings=EngineSettings(horizon=330.0))
    assert policy.log == [
        (60.0, ["a"], [], ["a"]),
        (120.0, ["gone"], [], ["a", "gone"]),
        (180.0, [], [], ["a", "gone"]),
        (240.0, ["new", "next"], ["a", "gone"], ["new", "next"]),
        (300.0, [], [], ["new", "next"]),
    ]
    # The job that would be complete at the horizon is: progress comes first of all.
    assert [(job.job, job.status.value, job.end_time) for job in result.job_records] == [
        ("a", "completed", 240.0),
        ("gone", "cancelled", 240.0),
        ("next", "cut off", None),
        ("new", "completed", 330.0),
    ]


@pytest.mark.parametrize("interval", [60.0, 0.7 * 60, 60 / 7, 0.1])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_job_that_is_cancelled_at_the_instant_of_its_release_is_cancelled(interval: float, rounds: int) -> None:
    """The first job ends at the round at which the user cancels the job that waits for it."""
    first = Job.rigid("first", 0.0, 1, rounds * interval)
    cancel_time = np.nextafter((1 + rounds) * interval, 0.0).item()  # by rounding before the end of the first job
    second = Job.rigid("second", 0.0, 1, interval, after=("first",), cancel_time=cancel_time)
    rules = EngineSettings(round_interval=interval, restart_delay=0.0)
    result = simulate(Workload((first, second)), {}, Cluster((1,)), Fifo(), settings=rules)
    assert {job.job: job.status for job in result.job_records} == {
        "first": Status.COMPLETED,
        "second": Status.CANCELLED,
    }
