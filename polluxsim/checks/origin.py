"""The law of the origin of time: if all times are later by whole rounds, no metric changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import isclose

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import SLACK
from polluxsim.checks.worlds import World, shifted
from polluxsim.hardware.restarts import ROUND_INTERVAL
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import Result
from polluxsim.records.storage import flat

# Rounds by which all times are later. Round 0 does not exist, so a job that is submitted at time 0 waits for round 1.
EARLY = (1, 35, 100)
LATE = (10_001, 23_003, 50_021)

OF_A_JOB = (
    "status", "jct", "queueing_delay", "run_time", "restart_time", "lost_time", "checkpoint_time", "num_restarts",
    "num_failures", "gpu_seconds", "work", "lost_work", "finish_time_fairness",
)  # fmt: skip
"""Columns of the table of jobs that are no times on the clock of the workload."""


def origin_dependence(world: World, run: Callable[[World], Result]) -> Iterator[Finding]:
    """Yield a finding if a run depends on where time 0 is. `run` makes the run of a world under the policy.

    Rounding can move the end of a job across a round at some origins of time. Therefore each early run must differ from
    each late run.
    """
    early = [run(shifted(world, EARLY[0]))]
    late = [run(shifted(world, LATE[0]))]
    difference = next(differences(early[0], late[0]), "")
    if not difference:
        return
    early += [run(shifted(world, rounds)) for rounds in EARLY[1:]]
    late += [run(shifted(world, rounds)) for rounds in LATE[1:]]
    for before in early:
        for after in late:
            if not any(differences(before, after)):
                return
    delay = (LATE[0] - EARLY[0]) * ROUND_INTERVAL
    yield Finding(Fault.ORIGIN, f"with all times {delay:g} s later, {difference}: count times from submissions")


def differences(early: Result, late: Result) -> Iterator[str]:
    """Yield the metrics that differ between two runs by more than rounding, in words."""
    before = metrics_without_clock(early)
    after = metrics_without_clock(late)
    for name in before | after:
        if not _are_close(before.get(name), after.get(name)):
            yield f"{name} is {after.get(name)} instead of {before.get(name)}"


def metrics_without_clock(result: Result) -> dict[str, object]:
    """Return by name the metrics of jobs, of the run and of its rounds that do not depend on where time 0 is.

    Times of rounds count from the start of the run.
    """
    metrics: dict[str, object] = {}
    for job in result.job_records:
        for name in OF_A_JOB:
            metrics[f"{name} of job {job.job!r}"] = getattr(job, name)
    summary = summarise(result)
    if summary is not None:
        metrics |= flat(asdict(summary))
    metrics["length of the run"] = result.end_time - result.start_time
    metrics["GPU time of all nodes"] = result.gpu_seconds
    for number, record in enumerate(result.round_records):
        values = record._replace(time=record.time - result.start_time)._asdict()
        for name, value in values.items():
            metrics[f"{name} of round record {number}"] = value
    return metrics


def _are_close(one: object, other: object) -> bool:
    """Return whether two values are equal up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=SLACK, abs_tol=SLACK)
    return one == other
