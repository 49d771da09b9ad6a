"""Slurm accounting: the output of `sacct --parsable2`, with a header, and of `sacct --json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    CPU,
    ENDED,
    ONLY_GPUS,
    Clock,
    Dropped,
    Entry,
    JobStatus,
    LogJob,
    Reason,
    Unit,
    as_gang,
    oddities_of_times,
    source_files,
)
from polluxsim.logs.formats.json_rows import is_json, json_rows
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat, parsed, read_rows
from polluxsim.logs.formats.opening import open_log
from polluxsim.logs.formats.slurm_json import ARRAY_LIMIT, sacct_cells
from polluxsim.logs.formats.slurm_resources import CPU_COLUMNS, Recurring, held_gpus, why_without_gpu
from polluxsim.logs.formats.times import Times, consistent_times, read_time

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

THROTTLE = re.compile(rb"(\d+)_\[[^\]%]*%(\d+)\]")
"""The rest of a job array that waits because not all jobs may run at once: 12_[4-9%2]."""

MAX_PRIORITY = 2**32  # largest priority read; Slurm's have 32 bits

FREE_TEXT = ("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Reason")
"""Columns of sacct with a text that a user chooses. Slurm does not escape a delimiter in it."""


def _parse(row: LogRow, units: Sequence[Unit] = ONLY_GPUS) -> LogJob | Dropped:
    id_column = "JobID" if "JobID" in row.values else "JobIDRaw"
    job_id = row.name(id_column)
    if "." in job_id:
        return row.dropped("job step, counted with its job")
    if not JOB_ID.fullmatch(job_id):
        raise row.error(id_column, "a job id like 12, 12_3, 12+1 or a step like 12.batch")
    status = _status(row)
    if status is None or ("Start" in row.values and not row.has("Start")) or "[" in job_id:
        return row.dropped(Reason.NEVER_RAN)
    num_gpus, gpu_type, num_types = held_gpus(row, units)
    if num_gpus == 0:
        return row.dropped(why_without_gpu(row, units))
    times, duration = _times(row)
    submitted, eligible, start, end = times
    if duration is None:
        return row.dropped("neither Elapsed nor both Start and End say how long it ran")
    # A job that ran for no time and has an empty allocation never held GPUs.
    if duration == 0 and any(name in row.values and not row.has(name) for name in ("AllocTRES", "AllocGRES")):
        return row.dropped(Reason.NEVER_RAN)
    oddities = oddities_of_times(eligible, start, end, duration)
    if num_types > 1:
        oddities = (*oddities, Reason.SEVERAL_TYPES)
    request = _REQUESTS.of(row)
    return LogJob(
        place=row.place,
        job=job_id,
        submitted=eligible,
        duration=duration,
        num_gpus=num_gpus,
        user=request.user,
        tenant=request.tenant,
        status=status,
        attempts=request.attempts,
        extras=(
            row.word("JobName"),
            request.num_nodes,
            None if start is None else start - eligible,
            request.time_limit,
            request.partition,
            gpu_type,
            row.within("Priority", 0, MAX_PRIORITY) if row.has("Priority") else None,
            request.qos,
            eligible - submitted if row.has("Eligible") else None,
            _gpus_per_task(row, num_gpus, request.num_nodes),
            row.optional_count(ARRAY_LIMIT, at_least=1),
        ),
        oddities=oddities,
    )


def _status(row: LogRow) -> JobStatus | None:
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
    times = Times(submitted, submitted if eligible is None else max(submitted, eligible), start, end)
    if times.agree(duration):
        return times, duration
    columns = ["Submit", "Submit" if eligible is None else "Eligible"]
    if start is not None:
        columns.append("Start")
    if end is not None:
        columns.append("End")
    times = consistent_times(times, duration, lambda: [row.both_moments(column) for column in columns])
    times = times._replace(eligible=max(times.submitted, times.eligible))
    return times, _duration(row, times.start, times.end)


def _duration(row: LogRow, start: float | None, end: float | None) -> float | None:
    if row.has("ElapsedRaw"):
        return row.seconds("ElapsedRaw")
    if row.has("Elapsed"):
        return _elapsed(row, "Elapsed")
    return end - start if start is not None and end is not None and end >= start else None


def _elapsed(row: LogRow, column: str) -> float:
    """Return a duration like 1-02:03:04 [s]."""
    match = ELAPSED.fullmatch(row.values[column].strip())
    if not match:
        raise row.error(column, "a time like 1-02:03:04 (days-hours:minutes:seconds)")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


class _Request(NamedTuple):
    """What the cells of a job say that are equal in many jobs of a user."""

    user: str | None
    tenant: str | None
    partition: str | None
    qos: str | None
    attempts: int | None
    num_nodes: int | None
    time_limit: float | None  # [s]


def _read_request(row: LogRow) -> _Request:
    partition = row.word("Partition")
    restarts = row.optional_count("Restarts")
    return _Request(
        user=row.word("User"),
        tenant=row.word("Account") or partition,
        partition=partition,
        qos=row.word("QOS"),
        attempts=None if restarts is None else restarts + 1,
        num_nodes=row.optional_count("NNodes", at_least=1),
        time_limit=_time_limit(row),
    )


_REQUESTS = Recurring(
    ("User", "Account", "Partition", "QOS", "Restarts", "NNodes", "TimelimitRaw", "Timelimit"), _read_request
)


def _time_limit(row: LogRow) -> float | None:
    """Return the time limit [s], None for a job without its own limit. `TimelimitRaw` is in minutes."""
    minutes = row.word("TimelimitRaw")
    if minutes is not None and minutes not in NO_LIMIT:
        return row.within("TimelimitRaw", 0, MOST_SECONDS / 60) * 60 or None
    limit = row.word("Timelimit")
    if limit is not None and limit not in NO_LIMIT:
        return _elapsed(row, "Timelimit") or None
    return None


def _gpus_per_task(row: LogRow, num_gpus: float, num_nodes: int | None) -> int | None:
    """Return the GPUs of a task, which are on one node; None if only the number of nodes is known, or not even it.

    The command line may state them. Slurm spreads GPUs that are requested for each node evenly. A job whose nodes have
    different numbers of GPUs requested only their sum, and can have them anywhere.
    """
    if row.has("SubmitLine"):
        match = GPUS_PER_TASK.search(row.values["SubmitLine"])
        if match is not None and num_gpus % int(match[1]) == 0:
            return int(match[1])
    if num_nodes is not None and num_gpus > num_nodes and num_gpus % num_nodes:
        return 1
    return None


GPUS_PER_TASK = re.compile(r"--gpus-per-task[= ](?:[A-Za-z][^:=\s]*:)?([1-9]\d{0,3})(?=\s|$)", re.ASCII)
"""The option of sbatch for the GPUs of each task."""


class SlurmFormat(TableFormat):
    """Rows of sacct as text or JSON. The parts of a heterogeneous job are several rows and one gang."""

    def for_source(self, source: Path, columns: str) -> SlurmFormat:
        """Return the format with the clock of one log: its times may state their offset from UTC."""
        super().for_source(source, columns)
        offset = _stated_offset(source_files(source, self.files))
        return self if offset is None else replace(self, clock=Clock.ZONED, time_zone=offset)

    def counting(self, units: tuple[Unit, ...]) -> SlurmFormat:
        """Return the format with other resources that count as GPUs."""
        resources = (*RESOURCES, *CPU_COLUMNS) if units == (Unit(CPU),) else RESOURCES
        columns = tuple(resources if group == RESOURCES else group for group in self.layout.alternatives)
        layout = replace(self.layout, alternatives=columns)
        return replace(self, units=units, layout=layout, parse=partial(_parse, units=units))

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row, file by file."""
        yield from _gangs(super().read(source, zone), _throttles(source_files(source, self.files)))

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row of one file."""
        if not is_json(path):
            yield from super().entries(path, zone)
            return
        for row in json_rows(path, "jobs", zone):
            yield parsed(row, lambda row: self.parse(sacct_cells(row)))


def _stated_offset(paths: Iterable[Path]) -> str | None:
    """Return the offset from UTC, like +01:00, of the first submission in text; None if a log states none."""
    for path in paths:
        if is_json(path):
            continue
        for row in islice(read_rows(path, SLURM.layout), ROWS_TO_FIND_THE_CLOCK):
            if isinstance(row, LogRow) and row.has("Submit"):
                match = OFFSET.search(row.values["Submit"].strip())
                if match is None or read_time(row.values["Submit"], None) is None:
                    return None
                return "+00:00" if match[1] else f"{match[2]}:{match[3]}"
    return None


ROWS_TO_FIND_THE_CLOCK = 1000  # rows among which one has a submission

OFFSET = re.compile(r"(?:(Z)|([+-]\d\d):?(\d\d))$", re.ASCII)
"""Offset from UTC at the end of a time."""


def _throttles(paths: Iterable[Path]) -> dict[str, int]:
    """Return the number of jobs of an array that may run at once, by the array's id, if the text of a log states it."""
    limits = dict[str, int]()
    for path in paths:
        with open_log(path) as lines:
            for line in lines:
                if b"%" not in line:
                    continue
                match = THROTTLE.search(line)
                if match is not None:
                    limits[match[1].decode()] = int(match[2])
    return limits


def _gangs(entries: Iterable[Entry], throttles: Mapping[str, int]) -> Iterator[Entry]:
    """Yield entries, with the parts of each heterogeneous job, which follow each other, as one job."""
    held: LogJob | None = None
    parts = set[str]()  # ids of the parts of `held`
    for entry in entries:
        if not isinstance(entry, LogJob):
            yield entry
        # A part for the second time belongs to another output of sacct with the same job.
        elif held is not None and _gang_of(held) == _gang_of(entry) and entry.job not in parts:
            parts.add(entry.job)
            held = as_gang(held, entry, SLURM.extras)
            yield Dropped(entry.place, "part of a heterogeneous job, one gang with its first")
        else:
            if held is not None:
                yield held
            array, is_task, _ = entry.job.partition("_")
            limit = throttles.get(array) if is_task else None
            held = entry if limit is None else entry._replace(extras=(*entry.extras[:-1], limit))
            parts = {entry.job}
            if "+" not in entry.job:
                yield held
                held = None
    if held is not None:
        yield held


def _gang_of(job: LogJob) -> str:
    """Return the id of a heterogeneous job; empty for other jobs."""
    return job.job.partition("+")[0] if "+" in job.job else ""


RESOURCES = ("AllocTRES", "ReqTRES", "AllocGRES")
"""Columns with lists of resources."""


def _explain_header(cells: list[str]) -> str:
    """Return what is wrong with the first line of an output without a header; empty for any other line."""
    has_job = JOB_ID.fullmatch(cells[0]) is not None
    has_state = any(cell.split()[:1] != [] and cell.split()[0] in STATES for cell in cells)
    if not (has_job and has_state):
        return ""
    return (
        "this line is a job, not the header of sacct; run sacct without --noheader, or put the list of --format, with "
        "the delimiter of the file, before the first line"
    )


SLURM = SlurmFormat(
    name="slurm",
    citation="Slurm accounting, sacct --parsable2",
    layout=Layout(
        columns=("Submit", "State"),
        alternatives=(("JobID", "JobIDRaw"), RESOURCES, ("ElapsedRaw", "Elapsed", "End")),
        delimiter="|",
        quoted=False,
        finds_delimiter=True,
        free_text=FREE_TEXT,
        explain=_explain_header,
    ),
    parse=_parse,
    clock=Clock.LOCAL,
    extras=(
        "application", "num_nodes", "queueing_delay", "time_limit", "partition", "gpu_type", "priority", "qos",
        "eligibility_delay", "gpus_per_task", "array_limit",
    ),
    files="*.txt *.json *.csv",
)  # fmt: skip
