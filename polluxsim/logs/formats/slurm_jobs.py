"""One row of Slurm's accounting as a job: what the cells of sacct mean, and which rows are no job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    ENDED,
    ONLY_GPUS,
    CountedResource,
    Dropped,
    JobStatus,
    LogJob,
    Place,
    RowReason,
    oddities_of_times,
)
from polluxsim.logs.formats.log_rows import LogRow
from polluxsim.logs.formats.slurm_json import ARRAY_LIMIT
from polluxsim.logs.formats.slurm_resources import Gpus, Recurring, held_gpus, why_without_gpu
from polluxsim.logs.formats.times import Times, consistent_times

STATES = {
    **ENDED,
    "BOOT_FAIL": JobStatus.NODE_FAIL,
    "DEADLINE": JobStatus.TIMEOUT,
    "LAUNCH_FAILED": JobStatus.FAILED,
    "OUT_OF_MEMORY": JobStatus.OUT_OF_MEMORY,
    "PREEMPTED": JobStatus.PREEMPTED,
    "RECONFIG_FAIL": JobStatus.FAILED,
    "REQUEUED": JobStatus.PREEMPTED,
    "RESIZING": JobStatus.RUNNING,
    "REVOKED": JobStatus.CANCELLED,
    "RUNNING": JobStatus.RUNNING,
    "STOPPED": JobStatus.RUNNING,
    "SUSPENDED": JobStatus.RUNNING,
    "PENDING": None,
}
"""Job states of sacct (slurm.schedmd.com/sacct.html, "JOB STATE CODES")."""

JOB_ID = re.compile(r"\d+(_(\d+|\[[^\]]*\]))?(\+\d+)?", re.ASCII)
"""A job, one job 12_3 or the waiting rest 12_[4-9%2] of an array, one part 12+1 of a heterogeneous job."""

ELAPSED = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})(?:\.\d+)?", re.ASCII)
"""[days-][hours:]minutes:seconds, perhaps with a fraction that only CPU times have."""

NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "4294967294", "4294967295")
"""Words and numbers of sacct for a job without its own time limit."""

MAX_PRIORITY = 2**32  # largest priority read; Slurm's have 32 bits


STEP = "job step, counted with its job"


class RecurringValues(NamedTuple):
    """Values of a job from the cells that are equal in many jobs, so that equal cells are read once."""

    status: JobStatus
    gpus: Gpus
    request: SlurmRequest


def parse_job(row: LogRow, units: Sequence[CountedResource] = ONLY_GPUS) -> LogJob | Dropped:
    """Return the job of a row of sacct, or why it is no job; `units` are what counts as GPUs."""
    # Only JobID has the array and the heterogeneous job in it.
    id_column = "JobID" if "JobID" in row.values else "JobIDRaw"
    job_id = row.name(id_column)
    if "." in job_id:
        return row.dropped(STEP)
    if not JOB_ID.fullmatch(job_id):
        raise row.error(id_column, "a job id like 12, 12_3, 12+1 or a step like 12.batch")
    status = read_status(row)
    has_no_start = "Start" in row.values and not row.has("Start")
    if status is None or has_no_start or "[" in job_id:  # a bracket is the waiting rest of an array
        return row.dropped(RowReason.NEVER_RAN)
    gpus = held_gpus(row, units)
    if gpus.number == 0:
        return row.dropped(why_without_gpu(row, units))
    times, duration = _times(row)
    if duration is None:
        return row.dropped("neither Elapsed nor both Start and End say how long it ran")
    # Its requested GPUs count as held, but without an allocation and a duration it never held any.
    if duration == 0 and _has_empty_allocation(row):
        return row.dropped(RowReason.NEVER_RAN)
    return job_of(
        row.place,
        job_id,
        RecurringValues(status, gpus, REQUESTS.of(row)),
        times,
        duration,
        name=row.word("JobName"),
        has_eligible=row.has("Eligible"),
        priority=row.optional_within("Priority", 0, MAX_PRIORITY),
        submit_line=row.values.get("SubmitLine", ""),
        array_limit=row.optional_count(ARRAY_LIMIT, at_least=1),
    )


def _has_empty_allocation(row: LogRow) -> bool:
    """Return whether a list of the resources that a job held is there and empty."""
    return any(name in row.values and not row.has(name) for name in ("AllocTRES", "AllocGRES"))


def job_of(  # noqa: PLR0913  (the values of one job)
    place: Place,
    job_id: str,
    recurring: RecurringValues,
    times: Times,
    duration: float,
    *,
    name: str | None,
    has_eligible: bool,
    priority: float | None,
    submit_line: str,
    array_limit: int | None = None,
) -> LogJob:
    """Return the job with the values that were read from a row; `times` are out of order only if the log's are."""
    status, gpus, request = recurring
    submitted, eligible, start, end = times
    oddities = oddities_of_times(eligible, start, end, duration)
    if gpus.types > 1:
        oddities = (*oddities, RowReason.SEVERAL_TYPES)
    queueing_delay = None
    if start is not None:
        queueing_delay = start - eligible
    eligibility_delay = None
    if has_eligible:
        eligibility_delay = eligible - submitted
    extras = (
        name,
        request.num_nodes,
        queueing_delay,
        request.time_limit,
        request.partition,
        gpus.type,
        priority,
        request.qos,
        eligibility_delay,
        _gpus_per_task(submit_line, gpus.number, request.num_nodes),
        array_limit,
    )
    # By position, which takes half as long as by name; the order is that of the fields.
    return LogJob(
        place, job_id, eligible, duration, gpus.number, request.user, request.tenant, status, request.attempts, extras,
        oddities,
    )  # fmt: skip


def read_status(row: LogRow) -> JobStatus | None:
    """Return how a job ended; None if it has not begun."""
    cell = row.values["State"]
    if cell in STATES:
        return STATES[cell]
    # sacct appends the user who cancelled a job: "CANCELLED by 1000".
    word = row.name("State").split()[0]
    if word not in STATES:
        raise row.error("State", f"one of {', '.join(STATES)}")
    return STATES[word]


def _times(row: LogRow) -> tuple[Times, float | None]:
    """Return the times of a job, and how long it ran [s].

    A dependency, a begin time or a hold keeps a job out of the queue after its submission.
    """
    submitted = row.moment("Submit")
    # Most jobs could start when they were submitted, so the equal text is not read again.
    if row.values.get("Eligible") == row.values["Submit"]:
        eligible: float | None = submitted
    else:
        eligible = row.optional_moment("Eligible")
    start = row.optional_moment("Start")
    end = row.optional_moment("End")
    duration = _duration(row, start, end)
    eligible_column = "Eligible"
    if eligible is None:
        eligible = submitted
        eligible_column = "Submit"
    times = Times(submitted, max(submitted, eligible), start, end)
    if times.agree(duration):
        return times, duration
    # The hour that a clock repeats in autumn: read each time again, with both of its instants.
    columns = ["Submit", eligible_column]
    if start is not None:
        columns.append("Start")
    if end is not None:
        columns.append("End")
    times = consistent_times(times, duration, lambda: [row.both_moments(column) for column in columns])
    times = times._replace(eligible=max(times.submitted, times.eligible))
    return times, _duration(row, times.start, times.end)


def _duration(row: LogRow, start: float | None, end: float | None) -> float | None:
    """Return how long a job ran [s]; None if neither a duration nor a start and a later end is known."""
    if row.has("ElapsedRaw"):
        return row.seconds("ElapsedRaw")
    if row.has("Elapsed"):
        return _elapsed(row, "Elapsed")
    if start is None or end is None or end < start:
        return None
    return end - start


def _elapsed(row: LogRow, column: str) -> float:
    """Return a duration like 1-02:03:04 [s]."""
    seconds = read_elapsed(row.values[column])
    if seconds is None:
        raise row.error(column, "a time like 1-02:03:04 (days-hours:minutes:seconds)")
    return seconds


def read_elapsed(text: str) -> float | None:
    """Return a duration like 1-02:03:04 [s]; None for any other text.

    >>> read_elapsed("1-00:00:30"), read_elapsed("90")
    (86430.0, None)
    """
    match = ELAPSED.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


class SlurmRequest(NamedTuple):
    """Who requested a job, and with what; the cells of it are equal in many jobs of a user."""

    user: str | None
    tenant: str | None
    partition: str | None
    qos: str | None
    attempts: int | None
    num_nodes: int | None
    time_limit: float | None  # [s]


def _read_request(row: LogRow) -> SlurmRequest:
    """Return who requested a job, and with what. Without accounts, partitions stand for tenants."""
    partition = row.word("Partition")
    attempts = row.optional_count("Restarts")
    if attempts is not None:
        attempts += 1  # the first start is no restart
    return SlurmRequest(
        user=row.word("User"),
        tenant=row.word("Account") or partition,
        partition=partition,
        qos=row.word("QOS"),
        attempts=attempts,
        num_nodes=row.optional_count("NNodes", at_least=1),
        time_limit=_time_limit(row),
    )


REQUEST_COLUMNS = ("User", "Account", "Partition", "QOS", "Restarts", "NNodes", "TimelimitRaw", "Timelimit")
REQUESTS = Recurring(REQUEST_COLUMNS, _read_request)


def _time_limit(row: LogRow) -> float | None:
    """Return the time limit [s], None for a job without its own limit. `TimelimitRaw` is in minutes."""
    # A limit of 0 is none.
    minutes = row.word("TimelimitRaw")
    if minutes is not None and minutes not in NO_LIMIT:
        return row.within("TimelimitRaw", 0, MOST_SECONDS / 60) * 60 or None
    limit = row.word("Timelimit")
    if limit is not None and limit not in NO_LIMIT:
        return _elapsed(row, "Timelimit") or None
    return None


def _gpus_per_task(submit_line: str, num_gpus: float, num_nodes: int | None) -> int | None:
    """Return the GPUs of a task, which are on one node; 1 if the GPUs can be anywhere; None if it is unknown.

    The command line may state them. Slurm spreads GPUs that are requested for each node evenly. A job whose nodes have
    different numbers of GPUs requested only their sum, and can have them anywhere.
    """
    if submit_line:
        match = GPUS_PER_TASK.search(submit_line)
        # A number that does not divide the GPUs of the job is not that of all its tasks.
        if match is not None and num_gpus % int(match[1]) == 0:
            return int(match[1])
    if num_nodes is not None and num_gpus > num_nodes and num_gpus % num_nodes:
        return 1
    return None


GPUS_PER_TASK = re.compile(r"--gpus-per-task[= ](?:[A-Za-z][^:=\s]*:)?([1-9]\d{0,3})(?=\s|$)", re.ASCII)
"""The option of sbatch for the GPUs of each task."""
