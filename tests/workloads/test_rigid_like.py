"""Rigid jobs drawn for a run: deadlines and limits are what they say, and change nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.common.errors import InvalidConfigError
from polluxsim.workloads.philly import LEAST_SLACK, PhillyLikeRigid


@given(st.integers(0, 20), st.floats(LEAST_SLACK, 10.0), st.integers(1, 64))
@settings(max_examples=6)
def test_deadlines_are_within_the_slack_and_change_nothing_else(seed: int, slack: float, most: int) -> None:
    source = PhillyLikeRigid(hours=24, rate=1.0, most_gpus=most, seed=seed)
    plain, jobs = source.load({}).jobs, replace(source, slack=slack).load({}).jobs
    assert [replace(job, deadline=None) for job in jobs] == list(plain)
    assert all(job.num_replicas <= most for job in jobs)
    for job in jobs:
        assert job.deadline is not None
        assert job.duration is not None
        assert LEAST_SLACK * 0.999 <= (job.deadline - job.submit_time) / job.duration <= slack * 1.001


def test_fewer_gpus_leave_jobs_out() -> None:
    wide, narrow = (PhillyLikeRigid(hours=48, rate=1.0, most_gpus=most).load({}).jobs for most in (64, 2))
    assert {job.job_id for job in narrow} == {job.job_id for job in wide if job.num_replicas <= 2} != set()
    assert len(narrow) < len(wide)


@pytest.mark.parametrize(("name", "value"), [("slack", 1.0), ("most_gpus", 0), ("rate", 0.0), ("hours", 0)])
def test_what_cannot_be_is_named(name: str, value: float) -> None:
    with pytest.raises(InvalidConfigError, match=f"workload.{name} is {value:g}"):
        PhillyLikeRigid(**{name: value})
