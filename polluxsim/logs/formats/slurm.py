"""Slurm accounting: what `sacct --parsable2 --allusers` prints; its header line decides the columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from polluxsim.logs.formats.base import Clock, Dropped, JobStatus, LogJob
from polluxsim.logs.formats.log_rows import MAX_GPUS, Layout, LogRow
from polluxsim.logs.formats.states import ENDED, NEVER_RAN, NO_GPU, oddities_of_times
from polluxsim.logs.formats.text_table import TableFormat

if TYPE_CHECKING:
    from datetime import tzinfo

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

NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID")
"""What sacct writes where a job has no time limit of its own."""

GPUS = re.compile(r"gres/gpu(:[^=,]+)?=(\d{1,7})", re.ASCII)
"""One entry of a TRES list for GPUs, of one type or of all."""


def _parse(row: LogRow, zone: tzinfo) -> LogJob | Dropped:
    id_column = "JobID" if "JobID" in row.values else "JobIDRaw"
    job_id = row.name(id_column)
    if "." in job_id:
        return row.dropped("job step, counted with its job")
    if not JOB_ID.fullmatch(job_id):
        raise row.error(id_column, "a job id like 12, 12_3, 12+1 or a step like 12.batch")
    status = _status(row)
    if status is None or ("Start" in row.values and not row.has("Start")) or "[" in job_id:
        return row.dropped(NEVER_RAN)
    num_gpus = _gpus(row)
    if num_gpus == 0:
        return row.dropped(NO_GPU)
    submitted, start, end = row.time("Submit", zone), _time(row, "Start", zone), _time(row, "End", zone)
    if (duration := _duration(row, start, end)) is None:
        return row.dropped("neither Elapsed nor both Start and End say how long it ran")
    if duration == 0 and _holds_nothing(row):
        return row.dropped(NEVER_RAN)
    return LogJob(
        place=row.place,
        job=job_id,
        submitted=submitted,
        duration=duration,
        num_gpus=num_gpus,
        user=row.word("User"),
        tenant=row.word("Account") or row.word("Partition"),
        status=status,
        attempts=row.count("Restarts") + 1 if row.has("Restarts") else None,
        extras=(
            row.word("JobName"),
            row.count("NNodes", at_least=1) if row.has("NNodes") else None,
            None if start is None else start - submitted,
            _time_limit(row),
        ),
        oddities=oddities_of_times(submitted, start, end, duration),
    )


def _status(row: LogRow) -> JobStatus | None:
    # sacct writes who cancelled a job behind the state: "CANCELLED by 1000".
    word = row.name("State").split()[0]
    if word not in STATES:
        raise row.error("State", f"one of {', '.join(STATES)}")
    return STATES[word]


def _holds_nothing(row: LogRow) -> bool:
    return "AllocTRES" in row.values and not row.has("AllocTRES")


def _gpus(row: LogRow) -> int:
    """Return the GPUs that the job was given, or asked for where the log does not say what it was given."""
    column = "AllocTRES" if row.has("AllocTRES") else "ReqTRES"
    return _gpus_of_list(row, column) if row.has(column) else 0


def _gpus_of_list(row: LogRow, column: str) -> int:
    total, typed = None, 0
    for entry in row.values[column].strip().split(","):
        if not entry.startswith(("gres/gpu=", "gres/gpu:")):
            if "=" not in entry:
                raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
            continue
        match = GPUS.fullmatch(entry)
        if not match or int(match[2]) > MAX_GPUS:
            raise row.error(column, "a list with GPUs like gres/gpu=4 or gres/gpu:a100=4")
        if match[1]:
            typed += int(match[2])
        else:
            total = int(match[2])
    # The untyped entry counts the typed ones too, so that adding both would count them twice.
    return typed if total is None else total


def _time(row: LogRow, column: str, zone: tzinfo) -> float | None:
    return row.time(column, zone) if row.has(column) else None


def _duration(row: LogRow, start: float | None, end: float | None) -> float | None:
    if row.has("ElapsedRaw"):
        return row.seconds("ElapsedRaw")
    if row.has("Elapsed"):
        return _elapsed(row, "Elapsed")
    return end - start if start is not None and end is not None and end >= start else None


def _elapsed(row: LogRow, column: str) -> float:
    match = ELAPSED.fullmatch(row.values[column].strip())
    if not match:
        raise row.error(column, "a time like 1-02:03:04 (days-hours:minutes:seconds)")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _time_limit(row: LogRow) -> float | None:
    if row.has("TimelimitRaw") and row.word("TimelimitRaw") not in NO_LIMIT:
        return row.seconds("TimelimitRaw") * 60 or None
    if row.has("Timelimit") and row.word("Timelimit") not in NO_LIMIT:
        return _elapsed(row, "Timelimit") or None
    return None


SLURM = TableFormat(
    name="slurm",
    citation="Slurm accounting, sacct --parsable2",
    caveat="sacct prints times in the time zone of the machine it ran on: name that zone",
    layout=Layout(
        columns=("Submit", "State"),
        alternatives=(("JobID", "JobIDRaw"), ("AllocTRES", "ReqTRES"), ("ElapsedRaw", "Elapsed", "End")),
        delimiter="|",
        quoted=False,
    ),
    parse=_parse,
    clock=Clock.LOCAL,
    extras=("application", "num_nodes", "queueing_delay", "time_limit"),
    files="*.txt",
)
