"""What is known of the jobs only when a run is over: their overheads and their finish-time fairness."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polluxsim.metrics.fairness import mean_contention
from polluxsim.metrics.overheads import Overhead, overheads

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.records import JobRecord, Result


def with_overheads(result: Result, restart_delay: float) -> Result:
    """Return the result with every job's time on GPUs and in restarts.

    Parameters
    ----------
    result
        A run's records.
    restart_delay
        Time that a job loses when it is placed anew [s].
    """
    known = overheads(result.allocation_records, restart_delay, result.end_time)
    jobs = (job._replace(**known.get(job.job, Overhead())._asdict()) for job in result.job_records)
    return replace(result, job_records=tuple(jobs))


def with_fairness(result: Result, num_gpus: float, time_alone: Callable[[JobRecord, float], float | None]) -> Result:
    """Return the result with every complete job's finish-time fairness ρ, where the time alone is known.

    Parameters
    ----------
    result
        A run's records.
    num_gpus
        GPUs of the cluster.
    time_alone
        Completion time of a job alone on a share of so many GPUs, whole or not [s]; None if it cannot be told.

    Source: Themis (NSDI '20); an equal share is that among the jobs that were unfinished on average over its life.
    """
    submitted = [job for job in result.job_records if job.submit_time <= result.end_time]
    ends = [result.end_time if job.completion_time is None else job.completion_time for job in submitted]
    contention = mean_contention([job.submit_time for job in submitted], ends).tolist()
    fairness = {
        job.job: job.jct / alone
        for job, jobs in zip(submitted, contention, strict=True)
        if job.jct is not None and (alone := time_alone(job, num_gpus / jobs)) is not None
    }
    jobs = (job._replace(finish_time_fairness=fairness.get(job.job)) for job in result.job_records)
    return replace(result, job_records=tuple(jobs))
