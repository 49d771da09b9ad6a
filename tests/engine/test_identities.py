"""A fork that changes nothing leaves the same bytes, and any other fork keeps the records from before it.

`benchmarks/identities.py` applies all of these forks to more runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest
from _pytest.mark import ParameterSet
from forks import (
    CHANGES,
    IDENTITIES,
    Change,
    changes_of_the_past,
    differences,
    names_of,
    new_job,
    points,
    records,
    whole_run,
)
from kinds import KINDS, World, world

from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job, Workload

RUNS = 4
"""Drawn runs of each kind, each with two times."""


def identities() -> list[ParameterSet]:
    """Return each kind of run with each identity that is possible in it. No fork changes elastic nodes."""
    pairs = [(kind, name) for kind in KINDS for name in IDENTITIES]
    pairs.remove(("elastic nodes", "add_and_drop_a_node"))
    return [pytest.param(kind, name, id=f"{kind}-{name}") for kind, name in pairs]


@pytest.mark.parametrize(("kind", "name"), identities())
def test_an_identity_leaves_the_same_bytes(kind: str, name: str) -> None:
    found = {}
    applied = 0
    for number in range(RUNS):
        for point in points(kind, number):
            if (change := IDENTITIES[name](point)) is not None:
                applied += 1
                if different := differences(point.whole, point.result_of(change)):
                    found[point.name, point.time] = different
    assert applied
    assert found == {}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_leaves_the_past_as_it_was(name: str) -> None:
    found = {}
    applied = 0
    for kind in KINDS:
        for point in points(kind, 0):
            if (change := CHANGES[name](point)) is not None:
                applied += 1
                if different := changes_of_the_past(point.whole, point.result_of(change), point.time):
                    found[point.name, point.time] = different
    assert applied
    assert found == {}


@pytest.mark.parametrize("name", CHANGES)
def test_a_fork_has_one_record_of_each_job(name: str) -> None:
    for kind in KINDS:
        for point in points(kind, 1):
            if (change := CHANGES[name](point)) is not None:
                added = ["added"] if name == "add_a_job" else []
                assert names_of(point.result_of(change)) == sorted([*names_of(point.whole), *added])


@pytest.mark.parametrize("kind", KINDS)
def test_an_identity_leaves_the_same_bytes_after_another_fork(kind: str) -> None:
    found = {}
    applied = 0
    *each, all_at_once = IDENTITIES.values()
    for point, make, one in zip(points(kind, 5, len(CHANGES)), CHANGES.values(), cycle(each), strict=False):
        change = make(point)
        later = None if change is None else point.after(change)
        if later is None:
            continue
        applied += 1
        for identity in (one, all_at_once):
            nothing = identity(later)
            if nothing is not None and (different := differences(later.whole, later.result_of(nothing))):
                found[later.name, later.time] = different
    assert applied >= 3
    assert found == {}


@pytest.mark.parametrize("name", CHANGES)
def test_a_copy_of_a_fork_ends_as_the_fork_does(name: str) -> None:
    found = {}
    applied = 0
    for kind in KINDS:
        for point in points(kind, 7, 1):
            change = CHANGES[name](point)
            later = None if change is None else point.after(change)
            if later is not None:
                applied += 1
                if different := differences(later.whole, later.result_of(Change())):
                    found[later.name, later.time] = different
    assert applied
    assert found == {}


def others(result: Result, without: str = "") -> list[str]:
    """Return what happened to all jobs but one, without their fairness, which counts all jobs."""
    kept = [job._replace(finish_time_fairness=None) for job in result.job_records if job.job != without]
    return [*map(repr, kept), *records(result, "allocation"), *records(result, "checkpoint")]


def with_jobs(world: World, jobs: Sequence[Job]) -> World:
    """Return a world with other jobs."""
    return world._replace(workload=Workload(tuple(sorted(jobs, key=lambda job: job.submit_time))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_coming_job_left_out_was_never_there(kind: str) -> None:
    applied = 0
    for number in range(2, 4):
        drawn = world(kind, number)
        jobs = drawn.workload.jobs
        for point in points(kind, number):
            name = next(iter(point.coming), "")
            # Failures are drawn from the first submission on, also if a fork leaves out the job that is submitted then.
            if point.time < point.whole.start_time:
                continue
            if name and not any(name in job.after for job in jobs):
                never = whole_run(with_jobs(drawn, [job for job in jobs if job.job_id != name]))
                change = CHANGES["leave_out_a_coming_job"](point)
                assert change is not None
                assert others(point.result_of(change), name) == others(never), (point.name, point.time)
                applied += 1
    assert applied


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_job_is_one_of_the_workload(kind: str) -> None:
    for number in range(2, 4):
        drawn = world(kind, number)
        for point in points(kind, number):
            always = whole_run(with_jobs(drawn, [*drawn.workload.jobs, new_job(point)]))
            change = CHANGES["add_a_job"](point)
            assert change is not None
            assert others(point.result_of(change)) == others(always), (point.name, point.time)
