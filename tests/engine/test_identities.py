"""Forks that change nothing leave the same bytes, and other forks leave the past as it was.

`benchmarks/identities.py` applies all of these forks to more runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from _pytest.mark import ParameterSet
from forks import (
    CHANGES,
    IDENTITIES,
    changes_of_the_past,
    differences,
    names_of,
    new_job,
    points,
    records,
    whole_run,
)
from kinds import KINDS, World

from polluxsim.records import Result
from polluxsim.workloads.workload import Job, Workload

RUNS = 4
"""Drawn runs of each kind, each with two times."""


def identities() -> list[ParameterSet]:
    """Return each kind of run with each identity that is possible in it. No fork changes elastic nodes."""
    pairs = [(kind, name) for kind in KINDS for name in IDENTITIES]
    pairs.remove(("elastic nodes", "add_and_drop_a_node"))
    return [pytest.param(kind, name, id=f"{kind}-{name}", marks=marks(kind, name)) for kind, name in pairs]


def marks(kind: str, name: str) -> list[pytest.MarkDecorator]:
    """Return a mark if the identity fails at present."""
    if name == "place_jobs_where_they_are":
        return []
    if name in ("nothing", "replace_the_policy_by_a_copy") and kind in ("learning agents", "GPU types"):
        return []
    return [pytest.mark.xfail(strict=True, reason="task 19")]


def changes(tasks: Mapping[str, int]) -> list[ParameterSet]:
    """Return each fork that is no identity, with a mark if it fails at present."""
    fails = {name: [pytest.mark.xfail(strict=True, reason=f"task {task}")] for name, task in tasks.items()}
    return [pytest.param(name, id=name, marks=fails.get(name, [])) for name in CHANGES]


@pytest.mark.parametrize(("kind", "name"), identities())
def test_an_identity_leaves_the_same_bytes(kind: str, name: str) -> None:
    found = {}
    applied = 0
    for number in range(RUNS):
        for point in points(kind, number):
            if (other := IDENTITIES[name](point)) is not None:
                applied += 1
                if different := differences(point.whole, other):
                    found[point.world.name, point.time] = different
    assert applied
    assert found == {}


@pytest.mark.parametrize("name", changes({"another_policy": 6, "add_a_node": 6, "leave_out_an_active_job": 3}))
def test_a_change_leaves_the_past_as_it_was(name: str) -> None:
    found = {}
    applied = 0
    for kind in KINDS:
        for point in points(kind, 0):
            if (other := CHANGES[name](point)) is not None:
                applied += 1
                if different := changes_of_the_past(point.whole, other, point.time):
                    found[point.world.name, point.time] = different
    assert applied
    assert found == {}


@pytest.mark.parametrize("name", changes({"leave_out_an_active_job": 3}))
def test_a_fork_has_one_record_of_each_job(name: str) -> None:
    for kind in KINDS:
        for point in points(kind, 1):
            if (other := CHANGES[name](point)) is not None:
                assert names_of(other) == sorted([*names_of(point.whole), *["added"] * (name == "add_a_job")])


def others(result: Result, without: str = "") -> list[str]:
    """Return what happened to all jobs but one, without their fairness, which counts all jobs."""
    kept = [job._replace(finish_time_fairness=None) for job in result.job_records if job.job != without]
    return [*map(repr, kept), *records(result, "allocation"), *records(result, "checkpoint")]


def with_jobs(world: World, jobs: list[Job]) -> World:
    return world._replace(workload=Workload(tuple(sorted(jobs, key=lambda job: job.submit_time))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_coming_job_left_out_was_never_there(kind: str) -> None:
    applied = 0
    for number in range(2, 2 + RUNS):
        for point in points(kind, number):
            jobs = point.world.workload.jobs
            name = next(iter(point.coming), "")
            if name and not any(name in job.after for job in jobs):
                never = whole_run(with_jobs(point.world, [job for job in jobs if job.job_id != name]))
                other = CHANGES["leave_out_a_coming_job"](point)
                assert other is not None
                assert others(other, name) == others(never), (point.world.name, point.time)
                applied += 1
    assert applied


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_job_is_one_of_the_workload(kind: str) -> None:
    for number in range(2, 2 + RUNS):
        for point in points(kind, number):
            always = whole_run(with_jobs(point.world, [*point.world.workload.jobs, new_job(point)]))
            other = CHANGES["add_a_job"](point)
            assert other is not None
            assert others(other) == others(always), (point.world.name, point.time)
