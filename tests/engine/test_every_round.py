"""A run can stop at every round, which changes nothing, and a view prints as an allocation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from math import inf

import pytest
from drawn import POLICIES, begun, draws, ended, policies_and_cases, told
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_job, toy_workload

from polluxsim.checks.worlds import Listed
from polluxsim.common.errors import TurnError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import MOST_LINES, ClusterView
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

SMALL = Cluster.uniform(2, 4)


def stepped(run: Simulation, policy: Policy) -> tuple[list[float], list[float]]:
    """Stop a run at every round; return the times of the stops, and those at which a decision was due [s]."""
    times, due = [], []
    while (view := run.advance(every_round=True)) is not None:
        times.append(view.time)
        if run.decision_is_due:
            due.append(view.time)
            run.commit(policy.allocate(view, run.rng))
    return times, due


@given(policies_and_cases, st.booleans())
@draws(25)
def test_stops_at_every_round_change_no_result(
    given: tuple[str, tuple[Cluster, Workload]], whole_seconds: bool
) -> None:
    name, (cluster, workload) = given
    rules = EngineSettings(whole_seconds=whole_seconds)
    policy, other = POLICIES[name](), POLICIES[name]()
    run = begun(workload, cluster, policy, rules)
    stepped(run, policy)
    assert told(run.result()) == told(ended(begun(workload, cluster, other, rules), other))


def test_a_run_stops_at_every_round_with_jobs() -> None:
    """The jobs run from 60 s + 30 s to 390 s, and from 660 s on. FIFO decides at arrivals and ends only."""
    jobs = toy_workload(Job.rigid("a", 10.0, 2, 300.0), Job.rigid("b", 610.0, 2, 60.0))
    run = begun(jobs, SMALL, Fifo())
    times, due = stepped(run, Fifo())
    assert times == [60.0 * number for number in (*range(1, 7), 11, 12)]
    assert due == [60.0, 660.0]
    assert run.is_over


def test_a_decision_that_is_not_due_may_be_made_and_one_that_is_due_must() -> None:
    jobs = toy_workload(Job.rigid("a", 10.0, 2, 300.0))
    run = begun(jobs, SMALL, Fifo())
    assert run.advance(every_round=True) is not None
    with pytest.raises(TurnError, match="a decision is due at 60 s"):
        run.advance(every_round=True)
    run.commit({"a": ((0, 2),)})
    assert run.advance() is not None  # a mapping is a decision for one round
    run.commit({"a": ((1, 2),)})
    copy = deepcopy(run)
    assert run.advance(every_round=True) is not None
    run.commit({"a": ((1, 2),)})
    assert copy.advance() is not None
    assert run.allocation == copy.allocation == {"a": ((1, 2),)}


def test_a_stop_that_needs_no_decision_can_be_forked_and_ended() -> None:
    jobs = toy_workload(Job.rigid("a", 10.0, 2, 300.0))
    run = begun(jobs, SMALL, Fifo())
    view = run.advance()
    assert view is not None
    run.commit(Fifo().allocate(view, run.rng))
    assert run.advance(every_round=True) is not None
    assert not run.decision_is_due
    copy = deepcopy(run)
    run.hand_over()
    assert run.decision_is_due
    run.commit({"a": ((1, 2),)})
    assert run.allocation == {"a": ((1, 2),)}
    assert copy.result().end_time == 120.0
    assert copy.view is None
    assert ended(copy, Fifo()).job_records[0].completion_time == 390.0


def shown(view: ClusterView) -> list[str]:
    return str(view).splitlines()


def test_a_view_prints_which_job_holds_which_gpus_of_which_node() -> None:
    cluster = replace(Cluster.uniform(4, 4), failures=Listed((Outage((3,), 100.0, inf, "failure"),)))
    jobs = toy_workload(*(toy_job(name, gpus=gpus) for name, gpus in (("a", 2), ("b", 8), ("c", 1), ("late", 16))))
    run = begun(jobs, cluster, Fifo())
    run.advance()
    run.commit({"a": ((0, 2),), "c": ((0, 1),), "b": ((1, 4), (2, 4))})
    view = run.advance(every_round=True)
    assert view is not None
    assert shown(view) == [
        "ClusterView at 0:02:00 (120 s): 3 jobs hold 11 of 12 GPUs, 1 waits",
        "node 0, 4 GPUs: a 2, c 1, 1 free",
        "each of the nodes 1 to 2, 4 GPUs: b 4",
        "node 3, down",
        "waiting, with requested GPUs: late (16)",
    ]
    assert repr(view) == str(view)
    run.commit({})
    assert shown(view) == ["ClusterView at 0:02:00: closed, because the decision for which it was made is committed"]


def test_a_view_of_a_large_cluster_prints_in_at_most_twenty_lines() -> None:
    cluster = Cluster.uniform(100, 2)
    run = begun(toy_workload(*(toy_job(f"j{number}") for number in range(130))), cluster, Fifo())
    run.advance()
    run.commit({f"j{number}": ((number, 1),) for number in range(100)})
    view = run.advance()
    assert view is not None
    lines = shown(view)
    assert len(lines) == MOST_LINES + 2 <= 20
    assert lines[-2] == "… 85 more lines about nodes"
    assert lines[-1].startswith("waiting, with requested GPUs: j100 (1), ")
    assert lines[-1].endswith("j107 (1) and 22 more")
