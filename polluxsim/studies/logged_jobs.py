"""The jobs of a log by their names in replays, with what the log states about their waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.trace_table import TraceJob, read_trace
from polluxsim.workloads.selection import UniqueNames


def logged_jobs(log: Path) -> dict[str, TraceJob]:
    """Return all jobs of a log in order of submission, by their names in replays of the log.

    Raise InvalidInputError if the log cannot be read.
    """
    _, jobs = read_trace(log)
    # The names that a replay gives, so that its jobs can be found in the log.
    names = UniqueNames(job.job for job in jobs)
    return {names.next_of(job.job): job for job in jobs}


def recorded_waits(log: Path, jobs: Mapping[str, TraceJob]) -> dict[str, float]:
    """Return the recorded wait [s] of each job of a log, by name. Jobs without one, or with one below 0, are left out.

    Raise InvalidInputError if no job is left.
    """
    recorded = {}
    for name, job in jobs.items():
        wait = job.queueing_delay
        if wait is not None and wait >= 0:  # below 0, a clock was wrong
            recorded[name] = wait
    if not recorded:
        raise InvalidInputError(f"{log}: no job has a queueing delay; use a log that records when jobs began")
    return recorded
