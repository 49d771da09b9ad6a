"""Slurm accounting: the output of `sacct --parsable2`, with a header, and of `sacct --json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import reading
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    ENDED,
    BadRowError,
    Clock,
    Dropped,
    Entry,
    JobStatus,
    LogJob,
    Reason,
    as_gang,
    oddities_of_times,
    source_files,
)
from polluxsim.logs.formats.json_rows import JsonRow, is_json, json_rows
from polluxsim.logs.formats.log_rows import MAX_GPUS, Layout, LogRow, TableFormat, parsed

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

NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID", "4294967294", "4294967295")
"""Words and numbers of sacct for a job without its own time limit."""

THROTTLE = re.compile(r"(\d+)_\[[^\]%]*%(\d+)\]", re.ASCII)
"""The rest of a job array that waits because not all jobs may run at once: 12_[4-9%2]."""

MAX_PRIORITY = 2**32  # largest priority read; Slurm's have 32 bits

ARRAY_LIMIT = "array.limits.max.running.tasks"
"""Key of `sacct --json` for the jobs of an array that may run at once, a column of its rows here."""

GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,7})", re.ASCII)
"""One entry of a TRES list for GPUs, of one type or of all."""

GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:,=()\d][^:,=()]*))?(?:[:=](\d{1,7}))?(?:\([^)]*\))?", re.ASCII)
"""One entry of a GRES list for GPUs, as older versions write them: gpu:4, gpu:a100:4; gpu alone is one."""


def _parse(row: LogRow) -> LogJob | Dropped:
    id_column = "JobID" if "JobID" in row.values else "JobIDRaw"
    job_id = row.name(id_column)
    if "." in job_id:
        return row.dropped("job step, counted with its job")
    if not JOB_ID.fullmatch(job_id):
        raise row.error(id_column, "a job id like 12, 12_3, 12+1 or a step like 12.batch")
    status = _status(row)
    if status is None or ("Start" in row.values and not row.has("Start")) or "[" in job_id:
        return row.dropped(Reason.NEVER_RAN)
    num_gpus, gpu_type, types = _gpus_of(row)
    if num_gpus == 0:
        return row.dropped(Reason.NO_GPU)
    submitted, start, end = row.moment("Submit"), _time(row, "Start"), _time(row, "End")
    # A dependency, a begin time or a hold keeps a job out of the queue after its submission.
    eligible = max(submitted, _time(row, "Eligible") or submitted)
    if (duration := _duration(row, start, end)) is None:
        return row.dropped("neither Elapsed nor both Start and End say how long it ran")
    # A job that ran for no time and has an empty allocation never held GPUs.
    if duration == 0 and any(name in row.values and not row.has(name) for name in ("AllocTRES", "AllocGRES")):
        return row.dropped(Reason.NEVER_RAN)
    return LogJob(
        place=row.place,
        job=job_id,
        submitted=eligible,
        duration=duration,
        num_gpus=num_gpus,
        user=row.word("User"),
        tenant=row.word("Account") or row.word("Partition"),
        status=status,
        attempts=row.count("Restarts") + 1 if row.has("Restarts") else None,
        extras=(
            row.word("JobName"),
            row.count("NNodes", at_least=1) if row.has("NNodes") else None,
            None if start is None else start - eligible,
            _time_limit(row),
            row.word("Partition"),
            gpu_type,
            row.within("Priority", 0, MAX_PRIORITY) if row.has("Priority") else None,
            row.word("QOS"),
            eligible - submitted if row.has("Eligible") else None,
            row.count(ARRAY_LIMIT, at_least=1) if row.has(ARRAY_LIMIT) else None,
        ),
        oddities=(*oddities_of_times(eligible, start, end, duration), *([Reason.SEVERAL_TYPES] if types > 1 else [])),
    )


def _status(row: LogRow) -> JobStatus | None:
    # sacct appends the user who cancelled a job: "CANCELLED by 1000".
    word = row.name("State").split()[0]
    if word not in STATES:
        raise row.error("State", f"one of {', '.join(STATES)}")
    return STATES[word]


def _time(row: LogRow, column: str) -> float | None:
    return row.moment(column) if row.has(column) else None


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


def _time_limit(row: LogRow) -> float | None:
    """Return the time limit [s], None for a job without its own limit. `TimelimitRaw` is in minutes."""
    if row.has("TimelimitRaw") and row.word("TimelimitRaw") not in NO_LIMIT:
        return row.within("TimelimitRaw", 0, MOST_SECONDS / 60) * 60 or None
    if row.has("Timelimit") and row.word("Timelimit") not in NO_LIMIT:
        return _elapsed(row, "Timelimit") or None
    return None


class _Gpus(NamedTuple):
    """GPUs of a job, their type if all GPUs have one type, and the number of types."""

    number: int  # number of GPUs
    type: str | None = None  # None if the GPUs have several types or an unknown type
    types: int = 0  # number of types


def _gpus_of(row: LogRow) -> _Gpus:
    """Return the allocated GPUs, or the requested GPUs if the log does not state the allocation.

    If the allocation states no type, the requested type is the type of the job.
    """
    given = [(column, read) for column, read in (("AllocTRES", _tres), ("AllocGRES", _gres)) if row.has(column)]
    lists = given or ([("ReqTRES", _tres)] if row.has("ReqTRES") else [])
    # Slurm before 20.11 may have the GPUs in AllocGRES only.
    found = next((gpus for column, read in lists if (gpus := _gpus_of_list(row, column, read)).number), _Gpus(0))
    asked = {name for name, _ in GPUS.findall(row.word("ReqTRES") or "") if name}
    return found if found.types or len(asked) != 1 else found._replace(type=asked.pop())


def _gpus_of_list(row: LogRow, column: str, read: Callable[[LogRow, str, str], tuple[str | None, int] | None]) -> _Gpus:
    """Return the GPUs in a list of resources; `read` returns the type and number of one entry."""
    entries = [found for text in row.values[column].strip().split(",") if (found := read(row, column, text))]
    typed = {name: count for name, count in entries if name is not None}
    # The untyped entry also counts the GPUs of the typed entries.
    total = next((count for name, count in reversed(entries) if name is None), sum(typed.values()))
    return _Gpus(total, next(iter(typed)) if len(typed) == 1 else None, len(typed))


def _tres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    """Return the type and number of GPUs in an entry of a TRES list; None for another resource."""
    if not text.startswith(("gres/gpu=", "gres/gpu:")):
        if "=" not in text:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        return None
    match = GPUS.fullmatch(text)
    if not match or int(match[2]) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gres/gpu=4 or gres/gpu:a100=4")
    return match[1], int(match[2])


def _gres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    """Return the type and number of GPUs in an entry of a GRES list; None for another resource."""
    if not text.removeprefix("gres").lstrip(":/").startswith("gpu"):
        return None
    match = GRES.fullmatch(text)
    if not match or int(match[2] or 1) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gpu:4 or gpu:a100:4")
    return match[1], int(match[2] or 1)


class SlurmFormat(TableFormat):
    """Rows of sacct as text or JSON. The parts of a heterogeneous job are several rows and one gang."""

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row, file by file."""
        yield from _gangs(super().read(source, zone), _throttles(source_files(source, self.files)))

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row of one file."""
        if not is_json(path):
            yield from super().entries(path, zone)
            return
        for row in json_rows(path, "jobs", zone):
            yield parsed(row, lambda row: self.parse(_cells(row)))


def _throttles(paths: Iterable[Path]) -> dict[str, int]:
    """Return the number of jobs of an array that may run at once, by the array's id, if the text of a log states it."""
    found = dict[str, int]()
    for path in paths:
        with reading(path), path.open(encoding="utf-8", errors="replace") as lines:
            matches = (match for line in lines if "%" in line and (match := THROTTLE.search(line)))
            found |= {match[1]: int(match[2]) for match in matches}
    return found


def _gangs(entries: Iterable[Entry], throttles: Mapping[str, int]) -> Iterator[Entry]:
    """Yield entries, with the parts of each heterogeneous job, which follow each other, as one job."""
    held: LogJob | None = None
    for entry in entries:
        if not isinstance(entry, LogJob):
            yield entry
        elif held is not None and _gang_of(held) == _gang_of(entry):
            held = as_gang(held, entry, SLURM.extras)
            yield Dropped(entry.place, "part of a heterogeneous job, one gang with its first")
        else:
            if held is not None:
                yield held
            array, is_task, _ = entry.job.partition("_")
            limit = throttles.get(array) if is_task else None
            held = entry if limit is None else entry._replace(extras=(*entry.extras[:-1], limit))
            if "+" not in entry.job:
                yield held
                held = None
    if held is not None:
        yield held


def _gang_of(job: LogJob) -> str:
    """Return the id of a heterogeneous job; empty for other jobs."""
    return job.job.partition("+")[0] if "+" in job.job else ""


@dataclass(frozen=True)
class _JsonCells(LogRow):
    """A job of `sacct --json` as a row of sacct's text. Errors name the key of each column."""

    def error(self, column: str, allowed: str) -> BadRowError:
        reason = f"key {KEYS.get(column, column)!r} is not {allowed}"
        return BadRowError(self.path, self.line, reason, self.values.get(column, ""))


KEYS = {
    "JobID": "job_id",
    "JobName": "name",
    "User": "user",
    "Account": "account",
    "Partition": "partition",
    "QOS": "qos",
    "Priority": "priority",
    "State": "state.current",
    "Submit": "time.submission",
    "Eligible": "time.eligible",
    "Start": "time.start",
    "End": "time.end",
    "ElapsedRaw": "time.elapsed",
    "TimelimitRaw": "time.limit",
    "NNodes": "allocation_nodes",
    "Restarts": "restart_cnt",
    "AllocTRES": "tres.allocated",
    "ReqTRES": "tres.requested",
}
"""Keys of `sacct --json` by the columns of sacct's text (slurm.schedmd.com/rest_api.html, dbv0.0.37 to 0.0.43)."""


def _cells(row: JsonRow) -> _JsonCells:
    """Return a job of `sacct --json` as a row of sacct's text."""
    array, het, time, tres = (row.child(key) for key in ("array", "het", "time", "tres"))
    limits = array.child("limits").child("max").child("running")
    cells = {column: _scalar(row, key) for column, key in KEYS.items() if "." not in key}
    cells |= {
        "JobID": _job_id(row, array, het),
        "User": cells["User"] or _scalar(row.child("association"), "user"),
        "State": _state(row.child("state")),
        "Submit": _number_or_blank(time, "submission"),
        "Eligible": _number_or_blank(time, "eligible"),
        "Start": _number_or_blank(time, "start"),
        "End": _number_or_blank(time, "end"),
        "ElapsedRaw": _scalar(time, "elapsed"),
        "TimelimitRaw": _scalar(time, "limit"),
        "AllocTRES": _resources(tres, "allocated"),
        "ReqTRES": _resources(tres, "requested"),
        ARRAY_LIMIT: _number_or_blank(limits, "tasks"),
    }
    return _JsonCells(row.path, row.line, cells, row.zone)


def _scalar(row: JsonRow, key: str) -> str:
    """Return a text or number as text, blank if it is not set.

    Since Slurm 23.02 a number may be an object {"set": …, "infinite": …, "number": …}.
    """
    value = row.values.get(key)
    if isinstance(value, dict):
        number = row.child(key)
        if number.values.get("infinite"):
            return "UNLIMITED"
        return _scalar(number, "number") if number.values.get("set") else ""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return row.text(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise row.error(key, "a text or a number")
    return str(value)


def _number_or_blank(row: JsonRow, key: str) -> str:
    """Return a number as text, blank for 0, which Slurm writes for an unknown time or no limit."""
    text = _scalar(row, key)
    return "" if text == "0" else text


def _job_id(row: JsonRow, array: JsonRow, het: JsonRow) -> str:
    """Return the id of a job in the form of `JOB_ID`."""
    if first := _number_or_blank(het, "job_id"):
        return f"{first}+{_scalar(het, 'job_offset') or 0}"
    if first := _number_or_blank(array, "job_id"):
        if task := _scalar(array, "task_id"):
            return f"{first}_{task}"
        if tasks := _scalar(array, "task"):
            return f"{first}_[{tasks}]"
    return _scalar(row, "job_id")


def _state(row: JsonRow) -> str:
    """Return the state of a job. Since Slurm 23.11 the state is a list, the base state first."""
    value = row.values.get("current")
    if not isinstance(value, list):
        return _scalar(row, "current")
    if not value or not isinstance(value[0], str):
        raise row.error("current", "a list of states")
    return value[0]


def _resources(tres: JsonRow, key: str) -> str:
    """Return a list of resources as sacct's text, like cpu=8,gres/gpu:a100=4."""
    entries = [
        (_scalar(entry, "type"), _scalar(entry, "name"), _scalar(entry, "count")) for entry in tres.children(key)
    ]
    return ",".join(f"{kind}/{name}={count}" if name else f"{kind}={count}" for kind, name, count in entries if count)


SLURM = SlurmFormat(
    name="slurm",
    citation="Slurm accounting, sacct --parsable2",
    layout=Layout(
        columns=("Submit", "State"),
        alternatives=(("JobID", "JobIDRaw"), ("AllocTRES", "ReqTRES", "AllocGRES"), ("ElapsedRaw", "Elapsed", "End")),
        delimiter="|",
        quoted=False,
    ),
    parse=_parse,
    clock=Clock.LOCAL,
    extras=(
        "application", "num_nodes", "queueing_delay", "time_limit", "partition", "gpu_type", "priority", "qos",
        "eligibility_delay", "array_limit",
    ),
    files="*.txt *.json",
)  # fmt: skip
