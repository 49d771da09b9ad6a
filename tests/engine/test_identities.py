"""Forks that change nothing leave the same bytes, and other forks leave the past as it was.

`benchmarks/identities.py` applies all of these forks to more runs.
"""

from __future__ import annotations

import pytest
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

RUNS = 3

FAILING: set[tuple[str, str]] = set()
"""Kinds of run and identities with differences at present."""


def identities() -> list[object]:
    return [
        pytest.param(
            kind,
            name,
            id=f"{kind}-{name}",
            marks=[pytest.mark.xfail(strict=True, reason="task 19")] if (kind, name) in FAILING else [],
        )
        for kind in KINDS
        for name in IDENTITIES
    ]


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
    assert applied or (kind, name) == ("elastic nodes", "add_and_drop_a_node")
    assert found == {}


@pytest.mark.parametrize("name", CHANGES)
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


@pytest.mark.parametrize("name", CHANGES)
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
