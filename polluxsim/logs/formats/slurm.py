"""Slurm accounting: the output of `sacct --parsable2`, with a header, and of `sacct --json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    CPU,
    ENDED,
    GPU,
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
from polluxsim.logs.formats.log_rows import (
    MAX_GPUS,
    Layout,
    LogRow,
    TableFormat,
    Times,
    consistent_times,
    parsed,
    read_rows,
    read_time,
)
from polluxsim.logs.formats.opening import open_log
from polluxsim.logs.formats.slurm_json import ARRAY_LIMIT, sacct_cells

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

GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,7})", re.ASCII)
"""One entry of a TRES list for GPUs, of one type or of all."""

GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:,=()\d][^:,=()]*))?(?:[:=](\d{1,7}))?(?:\([^)]*\))?", re.ASCII)
"""One entry of a GRES list for GPUs, as older versions write them: gpu:4, gpu:a100:4; gpu alone is one."""


CPU_COLUMNS = ("AllocCPUS", "NCPUS", "ReqCPUS")
"""Columns of sacct with the CPUs of a job, for logs without lists of resources."""

SHARES = ("gres/shard", "gres/mps")
"""Resources of Slurm by which jobs share a GPU."""

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
    num_gpus, gpu_type, types = _held(row, units)
    if num_gpus == 0:
        return row.dropped(_why_without_gpu(row, units))
    times, duration = _times(row)
    submitted, eligible, start, end = times
    if duration is None:
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


def _times(row: LogRow) -> tuple[Times, float | None]:
    """Return the times of a job, and how long it ran [s].

    A dependency, a begin time or a hold keeps a job out of the queue after its submission.
    """
    submitted = row.moment("Submit")
    eligible = _time(row, "Eligible")
    start = _time(row, "Start")
    end = _time(row, "End")
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

    number: float  # number of GPUs, or of what counts as GPUs
    type: str | None = None  # None if the GPUs have several types or an unknown type
    types: int = 0  # number of types


def _held(row: LogRow, units: Sequence[Unit]) -> _Gpus:
    """Return the GPUs of a job, with the other resources that count as GPUs."""
    if units == ONLY_GPUS:
        return _gpus_of(row)
    gpus = _Gpus(0)
    number = 0.0
    for unit in units:
        if unit.resource == GPU:
            gpus = _gpus_of(row)
            number += unit.gpus * gpus.number
        else:
            number += unit.gpus * _amount(row, "cpu" if unit.resource == CPU else unit.resource)
    if number > MAX_GPUS:
        raise row.error("AllocTRES", f"a list with at most {MAX_GPUS:g} of what --unit names")
    return gpus._replace(number=number)


def _amount(row: LogRow, resource: str) -> float:
    """Return the amount of a resource in the allocation, or in the request if the log states no allocation."""
    for column in ("AllocTRES", "ReqTRES"):
        if row.has(column):
            amounts = _amounts(row, column)
            return amounts.get(resource, 0.0)
    if resource == "cpu":
        for column in CPU_COLUMNS:
            if row.has(column):
                return row.count(column)
    return 0.0


def _amounts(row: LogRow, column: str) -> dict[str, float]:
    """Return the amounts of the resources in a TRES list by name.

    The name of a typed entry is that before the type. An untyped entry counts the typed entries of its name as well.
    """
    untyped, typed = dict[str, float](), dict[str, float]()
    for text in row.values[column].strip().split(","):
        name, equals, number = text.partition("=")
        match = AMOUNT.fullmatch(number)
        if not equals:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        if match is None:
            continue  # memory such as mem=16G, which is no number of pieces
        base, colon, _ = name.partition(":")
        if colon:
            typed[base] = typed.get(base, 0.0) + float(number)
        else:
            untyped[base] = float(number)
    return typed | untyped


AMOUNT = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
"""A number of pieces of a resource."""


def _why_without_gpu(row: LogRow, units: Sequence[Unit]) -> str:
    """Return the reason to drop a job without GPUs, with the names of other accelerators that it holds."""
    if Unit(CPU) in units:
        return "no CPU"
    names = set[str]()
    for column in ("AllocTRES", "ReqTRES"):
        if row.has(column):
            entries = row.values[column].split(",")
            names |= {entry.partition("=")[0].partition(":")[0].strip() for entry in entries}
    others = sorted(name for name in names if name.startswith("gres/") and not name.startswith("gres/gpu"))
    if not others:
        return Reason.NO_GPU
    named = ", ".join(others)
    if set(others) <= set(SHARES):
        return f"only shares of a GPU: {named}; count them with --unit {GPU},{others[0]}*GPUS_OF_A_SHARE"
    return f"no GPU, but {named}; count them with --unit {GPU},{others[0]}"


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


_ReadEntry: TypeAlias = Callable[[LogRow, str, str], tuple[str | None, int] | None]


def _gpus_of_list(row: LogRow, column: str, read: _ReadEntry) -> _Gpus:
    """Return the GPUs in a list of resources; `read` returns the type and number of one entry.

    The jobs of a log have few different lists, so the GPUs of each list are read once.
    """
    text = row.values[column]
    gpus = _GPUS_BY_LIST.get((column, text))
    if gpus is None:
        gpus = _read_list(row, column, read)
        if len(_GPUS_BY_LIST) < MOST_LISTS:
            _GPUS_BY_LIST[column, text] = gpus
    return gpus


MOST_LISTS = 1 << 14  # lists of resources that are remembered
_GPUS_BY_LIST: dict[tuple[str, str], _Gpus] = {}


def _read_list(row: LogRow, column: str, read: _ReadEntry) -> _Gpus:
    """Return the GPUs in a list of resources."""
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
        "eligibility_delay", "array_limit",
    ),
    files="*.txt *.json *.csv",
)  # fmt: skip
