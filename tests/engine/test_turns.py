"""A run turn by turn: what stepping by hand gives, what may be done when, and what a view shows when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from drawn import POLICIES, begun, draws, ended, policies_and_cases, told
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_job, toy_workload

from polluxsim.common.errors import InvalidAllocationError, PolicyError, TurnError, ViewClosedError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.contract.view import (
    ClusterView,
    Decision,
    JobSnapshot,
    JobView,
    Reason,
    ReasonKind,
)
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Status
from polluxsim.workloads.workload import Workload

Drawn = tuple[str, tuple[Cluster, Workload]]

CLUSTER = Cluster.uniform(2, 2)
JOBS = toy_workload(toy_job("a", 0, 2), toy_job("b", 10, 2), toy_job("c", 130, 4))


@given(policies_and_cases, st.booleans())
@draws(20)
def test_stepping_by_hand_is_simulate(given: Drawn, whole_seconds: bool) -> None:
    name, (cluster, workload) = given
    rules, policy = EngineSettings(whole_seconds=whole_seconds, interference=0.3), POLICIES[name]()
    by_hand = ended(begun(workload, cluster, policy, rules), policy)
    run = begun(workload, cluster, POLICIES[name](), rules)
    profiles = run._state.scenario.profiles
    assert told(by_hand) == told(simulate(workload, profiles, cluster, POLICIES[name](), settings=rules, seed=1))


def test_what_may_not_be_done_now_is_an_error_that_changes_nothing() -> None:
    run, policy = begun(JOBS, CLUSTER, Fifo()), Fifo()
    with pytest.raises(TurnError, match="no decision is due at 0 s"):
        run.commit({})
    while (view := run.advance()) is not None:
        with pytest.raises(TurnError, match=f"a decision is due at {view.time:g} s"):
            run.advance()
        with pytest.raises(TurnError, match=f"a decision is due at {view.time:g} s"):
            run.result()
        run.commit(policy.allocate(view, run.rng))
        with pytest.raises(TurnError, match=f"no decision is due at {view.time:g} s"):
            run.commit({})
    with pytest.raises(TurnError, match="no decision is due"):
        run.commit({})
    assert run.advance() is None
    assert told(run.result()) == told(ended(begun(JOBS, CLUSTER, Fifo()), Fifo()))


BAD: list[Callable[[Decision], object]] = [
    lambda good: None,
    lambda good: replace(good, allocation={**good.allocation, "nobody": ((0, 1),)}),
    lambda good: replace(good, allocation=dict.fromkeys(good.allocation, ((0, 99),)) or {"nobody": ()}),
    lambda good: replace(good, upper_bound=0.0),
    lambda good: replace(good, num_nodes=1),
]


@given(policies_and_cases, st.lists(st.sampled_from(BAD), min_size=1))
@draws(20)
def test_after_a_bad_decision_the_run_is_where_it_was(given: Drawn, bad: list[Callable[[Decision], object]]) -> None:
    name, (cluster, workload) = given
    policy = POLICIES[name]()
    run, turn = begun(workload, cluster, policy), 0
    while (view := run.advance()) is not None:
        good = policy.allocate(view, run.rng)
        with pytest.raises(InvalidAllocationError, match=f"policy {type(policy).__name__} "):
            run.commit(bad[turn % len(bad)](good))
        assert run.view is view
        run.commit(good)
        turn += 1
    assert [record.phase for record in run.result().timing_records].count("decide") == turn
    other = POLICIES[name]()
    assert told(run.result()) == told(ended(begun(workload, cluster, other), other))


def _nonsense(asked: object) -> dict[str, Reason]:
    return {"nobody": Reason(ReasonKind("none"), {})}


def test_after_a_bad_explanation_the_same_reasons_are_due() -> None:
    run, policy, refused = begun(JOBS, CLUSTER, Fifo()), Fifo(), 0
    while (view := run.advance()) is not None:
        good = policy.allocate(view, run.rng)
        try:
            run.commit(replace(good, explain=_nonsense))
        except PolicyError:
            refused += 1
            run.commit(good)
    assert refused >= 3
    assert told(run.result()) == told(ended(begun(JOBS, CLUSTER, Fifo()), Fifo()))


LOOKS: dict[str, Callable[[JobView], object]] = {
    "placement": lambda job: job.placement,
    "attained_service": lambda job: job.attained_service,
    "num_restarts": lambda job: job.num_restarts,
    "max_replicas": lambda job: job.max_replicas,
    "goodput": lambda job: job.goodput,
    "epoch": lambda job: job.oracle.epoch,
    "progress": lambda job: job.oracle.progress,
    "remaining_iterations": lambda job: job.oracle.remaining_iterations(10),
    "snapshot": JobSnapshot.of,
}
LOOKS_AT_ALL: dict[str, Callable[[ClusterView], object]] = {
    "jobs": lambda view: list(view.jobs),
    "first": lambda view: view.jobs[0],
    "running": lambda view: list(view.running),
    "waiting": lambda view: list(view.waiting),
}
ALWAYS = (
    "job_id", "submit_time", "num_replicas", "batch_size", "user", "queue", "priority", "deadline", "time_limit",
    "job_name", "qos",
)  # fmt: skip


@pytest.mark.parametrize("policy", [Fifo(), Pollux()], ids=["fifo", "pollux"])
def test_a_view_shows_the_present_and_is_closed_between_turns(policy: Policy) -> None:
    run = begun(JOBS, CLUSTER, policy)
    windows: dict[str, JobView] = {}
    while (view := run.advance()) is not None:
        windows |= {job.job_id: job for job in view.jobs}
        open_now = [windows[job.job_id] for job in view.jobs]
        assert open_now == list(view.jobs)  # the same window shows a job at every turn
        assert {job.job_id: job.placement for job in open_now if job.placement} == run.allocation
        shown = {job.job_id: JobSnapshot.of(job) for job in open_now}
        run.commit(policy.allocate(view, run.rng))
        for job in open_now:
            for look in LOOKS.values():
                with pytest.raises(ViewClosedError, match=r"JobSnapshot\.of"):
                    look(job)
            # What its user said can always be read, and a snapshot keeps what was seen.
            assert [getattr(shown[job.job_id], name) for name in ALWAYS] == [getattr(job, name) for name in ALWAYS]
        for look_at_all in LOOKS_AT_ALL.values():
            with pytest.raises(ViewClosedError):
                look_at_all(view)


def test_a_snapshot_stays_as_it_was() -> None:
    run, policy = begun(JOBS, CLUSTER, Fifo()), Fifo()
    view = run.advance()
    assert view is not None
    (waiting, _) = map(JobSnapshot.of, view.jobs)
    run.commit(policy.allocate(view, run.rng))
    assert (waiting.placement, waiting.attained_service, waiting.num_restarts) == ((), 0.0, 0)
    view = run.advance()
    assert view is not None
    running = JobSnapshot.of(view.jobs[0])
    assert running.placement == ((0, 2),)
    assert running.attained_service == 2 * (view.time - 60.0)
    assert running.trained > 0
    assert replace(running, placement=(), attained_service=0.0, trained=0.0, report=waiting.report) == waiting


class Listening:
    """Checks at every turn that the view's changes are those that its own bookkeeping tells.

    Parameters
    ----------
    policy
        Who decides.
    """

    def __init__(self, policy: Policy) -> None:
        self.traits = traits_of(policy)
        self.ended: list[tuple[float, float, str]] = []  # since, up to, job
        self._policy = policy
        self._known: dict[str, tuple[int, object]] = {}
        self._since = -1.0

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> object:
        changes, now = view.changes, {job.job_id: (job.oracle.epoch, job.goodput) for job in view.jobs}
        assert [job.job_id for job in changes.arrived if job.job_id in now] == [j for j in now if j not in self._known]
        assert all(self._since < job.submit_time <= view.time for job in changes.arrived)
        before = self._known | {job.job_id: (0, None) for job in changes.arrived}
        assert before.keys() - now.keys() == set(changes.ended)
        self.ended += [(self._since, view.time, job) for job in changes.ended]
        passed = {job for job, (epoch, _) in now.items() if epoch != before[job][0]}
        assert passed == set(changes.passed_epoch) & now.keys()
        learnt = {job for job, (_, model) in now.items() if model is not before[job][1]}
        assert learnt <= set(changes.learnt)
        assert self.traits.adaptive or not changes.learnt
        self._known, self._since = now, view.time
        return self._policy.allocate(view, rng)


@given(policies_and_cases, st.booleans())
@draws(30)
def test_changes_are_what_happened_since_the_policy_was_last_asked(given: Drawn, whole_seconds: bool) -> None:
    name, (cluster, workload) = given
    policy = Listening(POLICIES[name]())
    result = ended(begun(workload, cluster, policy, EngineSettings(whole_seconds=whole_seconds)), policy)
    times = {job.job: job.end_time for job in result.job_records}
    assert all(since <= times[job] <= until for since, until, job in policy.ended)
    assert len(policy.ended) == len({job for *_, job in policy.ended})


class Growing:
    """Asks for another node at every turn, and notes whether any came up."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool]] = []

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.seen.append((len(view.gpus_per_node), view.changes.nodes))
        assert view.nodes is not None
        return Decision({"a": ((0, 1),)}, num_nodes=min(view.nodes.requested + 1, view.nodes.most))


def test_changes_tell_of_nodes() -> None:
    policy = Growing()
    ended(begun(toy_workload(toy_job("a")), Cluster.elastic(4, 1, 4, 100.0, 0.0), policy), policy)
    counts = [count for count, _ in policy.seen]
    assert counts[-1] == 4
    assert [told_of for _, told_of in policy.seen[1:]] == [now > then for then, now in pairwise(counts)]


@given(policies_and_cases)
@draws(10)
def test_a_result_between_turns_is_the_past_and_changes_nothing(given: Drawn) -> None:
    name, (cluster, workload) = given
    policy = POLICIES[name]()
    run, seen = begun(workload, cluster, policy), []
    while (view := run.advance()) is not None:
        run.commit(policy.allocate(view, run.rng))
        seen.append(run.result())
    end = run.result()
    other = POLICIES[name]()
    assert told(end) == told(ended(begun(workload, cluster, other), other))
    for past in seen:
        # It does not grow with the run: nothing in it is of later.
        later = [record for record in (*past.allocation_records, *past.round_records) if record.time > past.end_time]
        assert later == []
        assert past.allocation_records == end.allocation_records[: len(past.allocation_records)]
        assert past.round_records == end.round_records[: len(past.round_records)]
        for then, at_last in zip(past.job_records, end.job_records, strict=True):
            is_over = at_last.end_time is not None and at_last.end_time <= past.end_time
            assert (then.status is Status.CUT_OFF) != is_over
            assert not is_over or then._replace(finish_time_fairness=at_last.finish_time_fairness) == at_last


def test_what_can_be_read_of_a_run_while_it_goes_on() -> None:
    run, policy = begun(JOBS, CLUSTER, Fifo()), Fifo()
    assert (run.time, run.num_jobs, run.num_ended, run.mean_jct, run.last_round) == (0.0, 3, 0, None, None)
    while (view := run.advance()) is not None:
        assert (run.time, run.view) == (view.time, view)
        active = [job.job_id for job in view.jobs]
        run.commit(policy.allocate(view, run.rng))
        assert run.waiting == [job for job in active if job not in run.allocation]
        assert run.last_round is not None
        assert run.last_round.gpus_in_use == sum(gpus for held in run.allocation.values() for _, gpus in held)
    jcts = [job.jct for job in run.result().job_records]
    assert run.mean_jct == sum(jcts) / 3
    assert run.num_ended == 3
