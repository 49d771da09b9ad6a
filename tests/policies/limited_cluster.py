"""An independent simulation of FIFO and EASY under limits by user and QOS, without code of the package.

A job starts only if all limits allow it beside the jobs that run now. A job that a limit stops is skipped: it gets no
reservation, and later jobs start as if it were absent. All other rules are those of `packed_cluster`.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.policies import packed_cluster


class Job(NamedTuple):
    """A job; its number in the list is its order of submission."""

    user: str
    qos: str
    submit: int  # [s]
    gpus: int
    duration: int  # [s]
    limit: int  # longest run time [s], at least the duration


class Limits(NamedTuple):
    """The limits of a QOS, or of all jobs; None for no limit."""

    qos: str | None  # None for all jobs
    user_gpus: int | None
    user_jobs: int | None
    gpus: int | None
    jobs: int | None


def may_start(job: Job, running: list[Job], limits: list[Limits]) -> bool:
    """Return whether all limits allow a job to start beside the running jobs."""
    for limit in limits:
        if limit.qos not in (None, job.qos):
            continue
        counted = [other for other in running if limit.qos in (None, other.qos)]
        of_user = [other for other in counted if other.user == job.user]
        for jobs, most_gpus, most_jobs in (
            (of_user, limit.user_gpus, limit.user_jobs),
            (counted, limit.gpus, limit.jobs),
        ):
            if most_gpus is not None and sum(other.gpus for other in jobs) + job.gpus > most_gpus:
                return False
            if most_jobs is not None and len(jobs) + 1 > most_jobs:
                return False
    return True


def start_times(jobs: list[Job], sizes: list[int], limits: list[Limits], *, backfill: bool) -> list[int]:
    """Return the start of each job [s] on nodes with the given GPUs."""

    def may_start_beside(number: int, running: list[int]) -> bool:
        return may_start(jobs[number], [jobs[other] for other in running], limits)

    return packed_cluster.start_times(jobs, sizes, backfill=backfill, allows=may_start_beside)
