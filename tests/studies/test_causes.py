"""Likely causes of waits, on logs so small that their shares follow by hand."""

from __future__ import annotations

import pytest

from polluxsim.logs.formats.base import RowReason
from polluxsim.logs.trace_table import TraceJob
from polluxsim.studies.causes import Cause, Use, inferred_user_limit, likely_causes

HOUR = 3600.0


def job(
    name: str, submit: float, start: float, hours: float, gpus: int, user: str = "u", partition: str = "p"
) -> TraceJob:
    """Return a job; times are in hours."""
    wait = (start - submit) * HOUR
    return TraceJob(name, submit * HOUR, hours * HOUR, gpus, user=user, partition=partition, queueing_delay=wait)


def causes_of(jobs: list[TraceJob], gpus: int = 8, **left_out: int) -> dict[str, Cause]:
    return {cause.name: cause for cause in likely_causes(jobs, gpus, left_out)}


def test_a_user_at_its_limit_while_gpus_are_idle_is_named_with_the_share_of_the_waiting_time() -> None:
    """`ann` never holds more than 4 of 8 GPUs. Each of her jobs runs for 1 h, and the next one starts 1 h later."""
    jobs = [job(f"{n}", 0, 2 * n, 1, 4, "ann") for n in range(4)]  # waits of 0, 2, 4 and 6 h
    jobs.append(job("late", 10, 11, 1, 4, "bob"))
    found = causes_of(jobs)
    cause = found["limits of users"]
    # During the hours of her first three jobs, 3, 2 and 1 of her jobs wait.
    assert cause.share == pytest.approx(6 / 13)
    assert "in 46 % of the waiting time" in cause.sentence
    assert cause.sentence.endswith("1 of 2 users, like ann 4 GPUs (reached 4 times)")
    assert next(iter(found)) == "limits of users"


def test_the_limit_of_users_is_inferred_from_what_they_hold_while_they_wait() -> None:
    jobs = [job(f"{n}", 0, 2 * n, 1, 4, "ann") for n in range(4)]
    jobs += [job(f"b{n}", 20, 20 + 2 * n, 1, 3, "bob") for n in range(3)]  # waits 6 h in all, ann 12 h
    assert inferred_user_limit(jobs, 8) == 4
    assert inferred_user_limit([*jobs, job("larger", 40, 40, 1, 6, "eve")], 8) is None
    assert inferred_user_limit(jobs[:2], 8) is None


def test_a_limit_that_is_reached_once_is_no_limit() -> None:
    """One long job holds the largest number of GPUs of its user from beginning to end."""
    jobs = [job("long", 0, 0, 10, 4, "ann"), job("next", 1, 5, 1, 4, "ann")]
    assert "limits of users" not in causes_of([job("other", 0, 0, 10, 4, "bob"), *jobs], 16)


def test_a_full_partition_while_others_are_idle_is_named() -> None:
    jobs = [job(f"{n}", 0, 2 * n, 2, 2, f"u{n}", "small") for n in range(4)]  # waits of 0, 2, 4 and 6 h
    jobs += [job("other", 0, 0, 1, 6, "v", "large")]
    cause = causes_of(jobs)["partitions"]
    # In the first hour, all 8 GPUs are in use: 3 of 12 hours of waiting have busy GPUs.
    assert cause.share == pytest.approx(9 / 12)
    assert "small (at most 2 GPUs at once, mean wait 3 h)" in cause.sentence
    assert "partitions" not in causes_of([each._replace(partition="p") for each in jobs])


def test_rows_without_gpus_are_counted() -> None:
    jobs = [job("a", 0, 4, 1, 4), job("b", 0, 4, 1, 4)]
    sentence = causes_of(jobs, **{RowReason.NO_GPU: 6})["jobs without GPUs"].sentence
    assert "the import left out 6 rows of them, 75 % of the log" in sentence
    assert "jobs without GPUs" not in causes_of(jobs)


def test_more_and_fewer_gpus_than_in_the_replay_are_told_apart() -> None:
    jobs = [job("a", 0, 0, 4, 16), job("b", 1, 4, 1, 16)]
    assert "up to 16 were in use at once" in causes_of(jobs)["more GPUs"].sentence
    fewer = causes_of([job("a", 0, 0, 4, 4), job("b", 1, 4, 1, 4)], 16)["fewer GPUs"]
    assert "on 1 day of 1 with waiting jobs, at most 4 GPUs were in use at once" in fewer.sentence


def test_busy_gpus_are_no_cause() -> None:
    """Three jobs on all 8 GPUs, one after the other."""
    assert causes_of([job(f"{n}", 0, n, 1, 8, f"u{n}") for n in range(3)]) == {}


def test_held_back_jobs_are_counted() -> None:
    held = job("a", 0, 1, 1, 8)._replace(eligibility_delay=7200.0)
    assert "1 job became eligible 2 h late on average" in causes_of([held])["dependencies and holds"].sentence


def test_the_peak_counts_a_job_that_starts_when_another_ends_once() -> None:
    assert Use.of([job("a", 0, 0, 1, 4), job("b", 0, 1, 1, 4)]).peak == 4
    assert Use.of([job("a", 0, 0, 1, 4), job("b", 0, 0.5, 1, 4)]).peak == 8
    assert Use.of([]).peak == 0
