"""Reservations: nobody who starts early delays who has one; worked examples by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from drawn import PROFILES, begun, cases, draws, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_workload

from polluxsim.checks.worlds import Listed
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Changes, ClusterView, Decision, JobSnapshot, Oracle, SharedGpus
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.reserving.conservative import Conservative, Reservations
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.limits import Limits
from polluxsim.policies.reserving.multifactor import Multifactor, fair_tree
from polluxsim.policies.tools.ledger import Ledger
from polluxsim.policies.tools.timetable import Timetable
from polluxsim.workloads.workload import Job, Workload

RULES = EngineSettings(restart_delay=0.0)


def starts(policy: Policy, *jobs: Job, gpus: int = 4) -> dict[str, float | None]:
    result = simulate(toy_workload(*jobs), {}, Cluster.uniform(1, gpus), policy, settings=RULES)
    return {job.job: job.start_time for job in result.job_records}


QUEUE = (
    Job.rigid("runs", 0.0, 3, 300.0),  # until 360
    Job.rigid("head", 10.0, 4, 60.0),  # needs all: at 360
    Job.rigid("short", 20.0, 1, 240.0),  # ends by 360 if it starts at 60 or 120
    Job.rigid("long", 30.0, 1, 600.0),  # would delay the head
)


def test_easy_fills_the_gap_before_the_head_and_no_more() -> None:
    assert starts(Fifo(), *QUEUE) == {"runs": 60.0, "head": 360.0, "short": 420.0, "long": 420.0}
    assert starts(Easy(), *QUEUE) == {"runs": 60.0, "head": 360.0, "short": 60.0, "long": 420.0}
    # An end that is expected too late leaves a gap that is too long: the head starts in time, as the gap's user ends.
    assert starts(Easy(overestimate=3.0), *QUEUE) == {"runs": 60.0, "head": 360.0, "short": 60.0, "long": 420.0}


def test_a_promise_counts_for_more_than_the_truth() -> None:
    jobs = [replace(job, time_limit=400.0) if job.job_id == "short" else job for job in QUEUE]
    assert starts(Easy(), *jobs)["short"] == 420.0


def test_gpus_that_the_head_leaves_may_be_used_for_any_time() -> None:
    jobs = Job.rigid("runs", 0.0, 3, 300.0), Job.rigid("head", 10.0, 3, 60.0), Job.rigid("long", 20.0, 1, 9000.0)
    assert starts(Easy(), *jobs) == {"runs": 60.0, "head": 360.0, "long": 60.0}


def test_what_the_head_leaves_is_used_once() -> None:
    jobs = (
        Job.rigid("runs", 0.0, 2, 240.0),  # until 300
        Job.rigid("head", 10.0, 3, 60.0),  # then there is one GPU besides
        Job.rigid("long", 20.0, 1, 9000.0),
        Job.rigid("longer", 30.0, 1, 9000.0),
    )
    assert starts(Easy(), *jobs) == {"runs": 60.0, "head": 300.0, "long": 60.0, "longer": 360.0}


def test_reservations_are_kept_in_their_own_order_when_somebody_ends_early() -> None:
    """By submission, the wide job would take the time that the narrow one was promised."""
    jobs = (
        Job.rigid("early", 0.0, 2, 180.0, time_limit=540.0),  # ends at 240, expected at 600
        Job.rigid("runs", 0.0, 2, 240.0),  # until 300
        Job.rigid("wide", 10.0, 4, 120.0),  # at 600
        Job.rigid("narrow", 20.0, 2, 300.0),  # at 300, until 600
    )
    assert starts(Conservative(), *jobs) == {"early": 60.0, "runs": 60.0, "wide": 540.0, "narrow": 240.0}


def test_easy_may_delay_the_second_and_conservative_does_not() -> None:
    """The second in the queue is to start with the head's end; under EASY a later job takes its GPUs."""
    jobs = (
        Job.rigid("runs", 0.0, 2, 240.0),  # until 300
        Job.rigid("head", 10.0, 3, 60.0),  # at 300, until 360
        Job.rigid("second", 20.0, 4, 60.0),  # at 360
        Job.rigid("later", 30.0, 1, 900.0),  # beside the head, but across the second
    )
    assert starts(Easy(), *jobs) == {"runs": 60.0, "head": 300.0, "second": 960.0, "later": 60.0}
    assert starts(Conservative(), *jobs) == {"runs": 60.0, "head": 300.0, "second": 360.0, "later": 420.0}


@dataclass
class Promising:
    """Notes the first reservation of every job that waits for one."""

    inner: Easy | Conservative
    first: dict[str, float] = field(default_factory=dict)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        decision = self.inner.allocate(view, rng)
        assert decision.explain is not None
        for job_id, reason in decision.explain([job.job_id for job in view.waiting]).items():
            if reason.kind.name in ("reserved", "starts-by"):
                self.first.setdefault(job_id, reason.numbers.get("reserved_time", inf))
        return decision


@pytest.mark.parametrize("overestimate", [1.0, 1.7])
@pytest.mark.parametrize("policy", [Easy, Conservative])
@given(case=cases(with_rigid=True))
@draws(30)
def test_nobody_starts_after_its_first_reservation(
    policy: type[Easy | Conservative], overestimate: float, case: tuple[Cluster, Workload]
) -> None:
    """While nobody outlives a limit, be limits right or too long."""
    cluster, workload = case
    honest = Workload(tuple(replace(job, time_limit=None) for job in workload.jobs))
    noting = Promising(policy(overestimate))
    jobs = simulate(honest, PROFILES, cluster, noting).job_records
    for job in jobs:
        assert job.start_time <= noting.first.get(job.job, inf)


@dataclass
class Anew(Conservative):
    """Makes all reservations anew at every turn, whether or not anything came otherwise than planned."""

    def _up_to_date(self, view: ClusterView) -> Reservations | None:
        self._limits.take_note(view)
        return None if view.demand <= view.num_gpus else Reservations.anew(view, self._reserved, self._limits)


@pytest.mark.parametrize("overestimate", [1.0, 1.7])
@given(case=cases(with_rigid=True), delay=st.sampled_from([0.0, 30.0]))
@draws(40)
def test_reservations_that_are_kept_are_those_that_would_be_made_anew(
    overestimate: float, case: tuple[Cluster, Workload], delay: float
) -> None:
    cluster, workload = case
    rules = EngineSettings(restart_delay=delay)
    kept, anew = (
        simulate(workload, PROFILES, cluster, each(overestimate), settings=rules) for each in (Conservative, Anew)
    )
    assert kept == anew


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=4),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 8), st.booleans()), max_size=80),
)
@draws(100)
def test_a_timetable_says_what_counting_every_second_says(
    releases: list[tuple[int, int]], asked: list[tuple[int, int, bool]]
) -> None:
    """Reservations of whole seconds, each where it was offered, while time goes on now and then."""
    horizon, now = 1500, 0
    table = Timetable(0.0, 2, sorted((float(time), gpus) for time, gpus in releases))
    free = [2 + sum(gpus for time, gpus in releases if time <= second) for second in range(horizon)]
    for gpus, length, passes in asked:
        now += passes
        table.forward(float(now))
        fits = (t for t in range(now, 1000) if min(free[t : t + max(length, 1)]) >= gpus)
        start = table.earliest(gpus, float(length))
        assert start == next(fits, inf)
        if start < inf:
            table.take(gpus, start, start + max(length, 1))
            for second in range(int(start), int(start) + max(length, 1)):
                free[second] -= gpus


def test_who_outlives_a_limit_puts_off_the_reservation() -> None:
    jobs = Job.rigid("runs", 0.0, 4, 300.0, time_limit=60.0), Job.rigid("head", 10.0, 4, 60.0)
    for policy in (Easy(), Conservative()):
        assert starts(policy, *jobs) == {"runs": 60.0, "head": 360.0}


@pytest.mark.parametrize("policy", [Easy, Conservative, Multifactor])
def test_after_a_fork_the_jobs_that_already_run_are_expected_to_end_at_their_limits(policy: type[Policy]) -> None:
    jobs = (
        Job.rigid("runs", 0.0, 3, 1000.0, time_limit=1000.0),  # until 1080
        Job.rigid("head", 200.0, 4, 60.0),
        Job.rigid("long", 210.0, 1, 6000.0),  # would delay the head
    )
    run, before = begun(toy_workload(*jobs), Cluster((4,)), Fifo(), RULES), Fifo()
    while (view := run.advance(120.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    run.fork(Fork(120.0, run.scenario, has_new_policy=True))
    starts = {job.job: job.start_time for job in ended(run, policy()).job_records}
    assert starts == {"runs": 60.0, "head": 1080.0, "long": 1140.0}


def test_the_new_limit_of_an_altered_job_counts_from_its_start() -> None:
    runs = Job.rigid("runs", 0.0, 3, 1200.0, time_limit=1200.0)
    head, late = Job.rigid("head", 960.0, 4, 60.0), Job.rigid("late", 970.0, 1, 600.0)
    policy = Easy()
    run = begun(toy_workload(runs, head, late), Cluster((4,)), policy, RULES)
    while (view := run.advance(900.0)) is not None:
        run.commit(policy.allocate(view, run.rng))
    run.fork(Fork(900.0, run.scenario, altered=(replace(runs, duration=1190.0),)))
    starts = {job.job: job.start_time for job in ended(run, policy).job_records}
    assert starts == {"runs": 60.0, "head": 1260.0, "late": 1320.0}


def test_the_last_job_of_those_that_share_a_gpu_since_before_a_fork_releases_it() -> None:
    oracle = cast("Oracle", SimpleNamespace(time_left=lambda gpus: 0.0))
    jobs = [
        JobSnapshot(name, 0.0, gpus, gpus, ((0, gpus),), 0.0, 0, gpus, None, oracle, time_limit=limit)
        for name, gpus, limit in (("a", 2, 100.0), ("b", 2, 200.0), ("c", 1, 300.0))
    ]
    held = {"a": ((0, 0), (0, 1)), "b": ((0, 0), (0, 1)), "c": ((0, 2),)}
    view, limits = ClusterView(0.0, (4,), jobs, sharing=SharedGpus(held)), Limits()
    limits.take_note(replace(view, changes=Changes(arrived=jobs)))

    def released(view: ClusterView) -> list[tuple[float, int]]:
        return [(time, sum(gpus for _, gpus in placement)) for time, placement in limits.releases(view)]

    assert released(view) == [(100.0, 0), (200.0, 2), (300.0, 1)]
    assert released(replace(view, sharing=SharedGpus())) == [(100.0, 2), (200.0, 2), (300.0, 1)]


def test_a_job_that_a_fork_moves_ahead_has_the_earlier_reservation() -> None:
    jobs = [Job.rigid(name, submit, 4, 600.0) for name, submit in (("runs", 0.0), ("a", 10.0), ("b", 20.0))]
    policy = Conservative()
    run = begun(toy_workload(*jobs), Cluster((4,)), policy, RULES)
    while (view := run.advance(300.0)) is not None:
        run.commit(policy.allocate(view, run.rng))
    run.fork(Fork(300.0, run.scenario, overtaken=(("b", "a"),)))
    starts = {job.job: job.start_time for job in ended(run, policy).job_records}
    assert starts == {"runs": 60.0, "b": 660.0, "a": 1260.0}


OUTAGE = Cluster((4, 4), failures=Listed((Outage((1,), 200.0, 60.0, "drawn"),)))
EVICTED = (
    Job.rigid("A", 0.0, 4, 6000.0, time_limit=6060.0),
    Job.rigid("B", 0.0, 4, 480.0, time_limit=540.0),  # evicted at 200, runs again from 300 to 840
    Job.rigid("H", 240.0, 8, 600.0, time_limit=660.0),
    Job.rigid("C", 300.0, 2, 3420.0, time_limit=3480.0),  # fits beside A before H
)


@pytest.mark.parametrize("policy", [Easy, Conservative, Multifactor])
def test_an_eviction_removes_the_planned_release(policy: type[Policy]) -> None:
    result = simulate(toy_workload(*EVICTED), {}, OUTAGE, policy())
    start = {job.job: job.start_time for job in result.job_records}
    assert (start["C"], start["H"]) == (840.0, 6120.0)


def test_a_job_that_runs_before_a_fork_is_charged_from_the_fork_on() -> None:
    jobs = Job.rigid("runs", 0.0, 2, 1200.0, user="ada"), Job.rigid("late", 600.0, 1, 60.0, user="bob")
    run, before = begun(toy_workload(*jobs), Cluster((4,)), Fifo(), RULES), Fifo()
    while (view := run.advance(120.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    run.fork(Fork(120.0, run.scenario, has_new_policy=True))
    policy = Multifactor(half_life=1e9)
    while (view := run.advance()) is not None and view.time <= 600.0:
        run.commit(policy.allocate(view, run.rng))
    assert policy._usage.balance("ada", 600.0) == pytest.approx(2 * 480.0, rel=1e-4)


def test_an_evicted_job_is_charged_until_its_eviction() -> None:
    """The job holds 4 GPUs from 60 s to 600 s, and again from 60,000 s on."""
    cluster = Cluster((4,), failures=Listed((Outage((0,), 600.0, 59_400.0, "drawn"),)))
    policy = Multifactor(half_life=1e9)
    workload = toy_workload(Job.rigid("a", 0.0, 4, 3000.0, user="ada"))
    charged = {}
    run = Simulation(Scenario.under(policy, workload, {}, cluster, RULES), 1)
    while (view := run.advance()) is not None:
        decision = policy.allocate(view, run.rng)
        charged[view.time] = policy._usage.balance("ada", view.time)
        run.commit(decision)
    assert charged[60_000.0] == pytest.approx(4 * 540.0, rel=1e-4)


def test_a_charge_counts_half_after_a_half_life() -> None:
    ledger = Ledger[str](half_life=100.0)
    assert 2 * ledger._weighted(1e9) == pytest.approx(2 * 100.0 / np.log(2))
    steps = sum(2 * ledger._weight(age) for age in np.arange(0.005, 50.0, 0.01)) * 0.01
    assert 2 * ledger._weighted(50.0) == pytest.approx(steps, rel=1e-6)


def test_the_rank_in_the_fair_tree_does_not_depend_on_how_much_more_a_user_used() -> None:
    assert fair_tree({"ada": 1.0, "bob": 1e9}, {}) == {"ada": 1.0, "bob": 0.5}
    assert fair_tree({"ada": 1.0, "bob": 2.0}, {}) == {"ada": 1.0, "bob": 0.5}
    assert fair_tree({"ada": 6.0, "bob": 4.0}, {"ada": 2.0}) == {"ada": 1.0, "bob": 0.5}
    assert fair_tree({"ada": 2.0, "bob": 2.0, "eve": 4.0}, {}) == {"ada": 1.0, "bob": 1.0, "eve": 1 / 3}


def test_fair_share_lets_those_go_first_who_used_less() -> None:
    jobs = (
        Job.rigid("a1", 0.0, 1, 600.0, user="ada"),
        Job.rigid("a2", 10.0, 1, 60.0, user="ada"),
        Job.rigid("b1", 20.0, 1, 60.0, user="bob"),
    )
    assert starts(Multifactor(), *jobs, gpus=1) == {"a1": 60.0, "b1": 660.0, "a2": 720.0}
    assert starts(Multifactor(fair_share=0.0), *jobs, gpus=1) == {"a1": 60.0, "a2": 660.0, "b1": 720.0}


def test_fair_shares_are_used_up_in_proportion_in_the_long_run() -> None:
    """Under saturation by two users with shares 3 and 1, GPU time goes 3 to 1, within 1 %."""
    count, length = 500, 600.0
    jobs = [Job.rigid(f"{user}{i}", 0.0, 1, length, user=user) for i in range(count) for user in ("ada", "bob")]
    policy = Multifactor(shares={"ada": 3.0}, age=0.0, half_life=86_400.0)
    rules = EngineSettings(restart_delay=0.0, horizon=96_000.0, reasons="none")
    result = simulate(toy_workload(*jobs), {}, Cluster.uniform(1, 4), policy, settings=rules)
    used = {user: sum(job.gpu_seconds for job in result.job_records if job.user == user) for user in ("ada", "bob")}
    assert used["ada"] / sum(used.values()) == pytest.approx(0.75, rel=0.01)


@pytest.mark.parametrize(
    ("policy", "job", "words"),
    [
        (Easy(), "head", "the first job that has to wait, so the policy reserves GPUs for it. By the planned ends"),
        (Easy(), "short", "with 1 of the 1 GPU left, because it does not delay head: it is planned to end by 0:"),
        (Easy(), "long", "no GPU is left. The nearest jobs ahead of it that get GPUs: short"),
        (Easy(), "other", "because it would delay head, which starts at"),
        (Conservative(), "head", "By plan, runs, whose reservation begins at 0:01:00, releases its GPUs at 0:06:00."),
        (Conservative(), "short", "is number 2 of 2. When its turn comes, 1 GPU is free, and it gets the 1 that it"),
        (Multifactor(), "head", "by the multifactor priority, the highest first, this job with 10000"),
    ],
)  # fmt: skip
def test_why_says_who_waits_for_whom(policy: Policy, job: str, words: str) -> None:
    other = Job.rigid("other", 15.0, 1, 9000.0)
    run = begun(toy_workload(*QUEUE, other), Cluster.uniform(1, 4), policy, RULES)
    result = ended(run, policy)
    first = next(record for record in result.reason_records if record.job == job)
    assert words in sentence(first, result.reason_texts)
    assert "gives the reason" not in sentence(first, result.reason_texts)


def test_a_timetable_has_room_for_any_number_of_steps() -> None:
    table, free = Timetable(0.0, 1000), np.full(2000, 1000)
    for start in np.random.default_rng(0).integers(1, 1500, 300).tolist():
        table.take(2, float(start), start + 7.0)
        free[start : start + 7] -= 2
    found = np.concatenate([np.full(int(min(end, 2000) - start), gpus) for start, end, gpus in table.intervals()])
    np.testing.assert_array_equal(found, free)
