"""Write the rigid jobs of a workload as a log in Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.trace_table import TraceInfo, write_trace
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

WRITTEN = ("job_id", "submit_time", "application", "num_replicas", "batch_size", "line", "duration", "user", "queue")
"""Fields of a rigid job that a log states, or that follow from those that it states."""


def write_log(workload: Workload, path: Path) -> None:
    """Write jobs with durations as a log, with times from the first submission.

    Raise InvalidInputError if there are no jobs, or a job has no duration, or a field that a log does not have.
    """
    if not workload.jobs:
        raise InvalidInputError(f"{path}: {workload.source} has no jobs; use more hours or another seed")
    for job in workload.jobs:
        lacking = _not_stated(job)
        if lacking:
            raise InvalidInputError(
                f"{path}: job {job.job_id!r} of {workload.source} has {lacking}; give a name that ends in .csv"
            )
    first = workload.jobs[0].submit_time
    zone_name = ""  # the times of the log are then relative
    origin_time = f"{first:g}"
    if workload.origin is not None:
        zone_name = workload.origin.zone_name
        origin_time = workload.origin.date(first).isoformat()
    info = TraceInfo("workload", workload.source, "written by polluxsim", zone_name, origin_time)
    columns: dict[str, Sequence[object]] = {
        "job": [job.job_id for job in workload.jobs],
        "submit_time": [job.submit_time - first for job in workload.jobs],
        "duration": [job.duration for job in workload.jobs],
        "num_gpus": [job.num_replicas for job in workload.jobs],
        "user": [job.user for job in workload.jobs],
        "tenant": [job.queue for job in workload.jobs],
        "status": [JobStatus.COMPLETED.value] * len(workload.jobs),
        "attempts": [1] * len(workload.jobs),
    }
    write_trace(columns, info, path)


def _not_stated(job: Job) -> str:
    """Return why a log cannot state a job; "" if it can."""
    if job.fixed_duration is None:
        return "no duration, which a log must state"
    for field in fields(job):
        if field.name not in WRITTEN and getattr(job, field.name) != field.default:
            return f"the field {field.name}, which a log does not have"
    return ""
