"""A job checks itself, wherever it comes from."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.workloads.job import OPTIONS, InvalidJobError, Job

JOB = Job("a", 10.0, "toy", 2, 20)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("job_id", " ", "a name"),
        ("application", "", "a name"),
        ("submit_time", -1.0, "a number of seconds from 0 to 1e+11"),
        ("submit_time", float("nan"), "a number of seconds from 0 to 1e+11"),
        ("submit_time", 1.7e308, "a number of seconds from 0 to 1e+11"),
        ("num_replicas", True, "a whole number from 1 to 1e+09"),
        ("num_replicas", 2.0, "a whole number from 1 to 1e+09"),
        ("num_replicas", 2**62, "a whole number from 1 to 1e+09"),
        ("batch_size", 0, "a whole number from 1 to 1e+09"),
        ("duration", 0.0, "a number of seconds above 0, up to 1e+11"),
        ("duration", 1e18, "a number of seconds above 0, up to 1e+11"),
        ("duration", "5", "a number of seconds above 0, up to 1e+11"),
        ("user", "", "a name"),
        ("queue", 7, "a name"),
        ("priority", None, "a finite number"),
        ("priority", float("inf"), "a finite number"),
        ("deadline", -1, "a number of seconds from 0 to 1e+11"),
        ("time_limit", 0, "a number of seconds above 0, up to 1e+11"),
        ("after", ["b"], "different names"),
        ("after", ("b", "b"), "different names"),
        ("gpu_types", "a100", "different names"),
        ("min_replicas", 3, "at most num_replicas, 2"),
        ("min_replicas", 0, "a whole number from 1 to 1e+09"),
        ("max_replicas", 1, "at least num_replicas, 2"),
        ("cancel_time", 9.9, "10 s or later, because the job is submitted then"),
    ],
)
def test_what_a_job_cannot_be_is_named(field: str, value: object, allowed: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        replace(JOB, **{field: value})
    name = value if field == "job_id" else "a"
    assert str(caught.value) == f"job {name!r}: {field} is {value!r}, must be {allowed}"


def test_a_job_with_a_duration_has_no_more_examples_than_gpus() -> None:
    """Its run failed with a division by zero."""
    assert replace(JOB, duration=60.0, batch_size=4, speeds=((2, 1.0), (4, 1.5))).batch_size == 4
    for given_speeds, most in ((), 2), (((1, 1.0), (4, 1.5)), 4):
        with pytest.raises(InvalidJobError, match=f"batch_size is 5, must be at most {most}: a job with a duration"):
            replace(JOB, duration=60.0, batch_size=5, speeds=given_speeds)


def test_numbers_of_numpy_are_numbers() -> None:
    assert Job("a", np.float64(10), "toy", np.int64(2), np.int64(20)) == JOB


_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "job_id": st.sampled_from(["a", "", " ", 1]),
        "submit_time": st.sampled_from([0, 0.0, -0.5, MOST_SECONDS, 2 * MOST_SECONDS, True, None, "1"]),
        "application": st.sampled_from(["a", "\t", None]),
        "num_replicas": st.sampled_from([1, 0, 10**9, 10**9 + 1, False, 1.0]),
        "batch_size": st.sampled_from([1, 0, 10**9, 10**9 + 1, True, "2"]),
        "duration": st.sampled_from([None, 1, 0.5, 0.0, float("inf"), float("nan"), MOST_SECONDS * 1.1]),
        "user": st.sampled_from([None, "u", " ", 3]),
        "queue": st.sampled_from([None, "q", ""]),
        "speeds": st.sampled_from(
            [(), ((1, 1.0), (2, 2.0)), ((2, 1.0), (1, 2.0)), ((1, 0.0),), ((3, 1.0),), [1], None]
        ),
    },
)


@given(_FIELDS)
def test_the_glance_passes_what_the_check_passes(fields: dict[str, object]) -> None:
    """Jobs are made with the glance and without it: both or neither are refused."""
    given_fields = {"job_id": "a", "submit_time": 1.0, "application": "x", "num_replicas": 2, "batch_size": 2} | fields

    def is_refused() -> bool:
        try:
            Job(**given_fields)
        except InvalidJobError:
            return True
        return False

    with patch.object(Job, "_is_plainly_right", lambda job: False):
        checked = is_refused()
    assert is_refused() == checked


def test_a_job_is_small_and_has_nothing_beside_its_fields() -> None:
    assert not hasattr(JOB, "__dict__")
    assert OPTIONS[0] == "user"
    assert deepcopy(JOB) == JOB
