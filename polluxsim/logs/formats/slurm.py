"""Slurm accounting: what `sacct --parsable2 --allusers` prints; its header line decides the columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.logs.formats.base import Clock, Dropped, Entry, JobStatus, LogJob, source_files
from polluxsim.logs.formats.log_rows import MAX_GPUS, Layout, LogRow, TableFormat
from polluxsim.logs.formats.states import ENDED, NEVER_RAN, NO_GPU, oddities_of_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import tzinfo
    from pathlib import Path

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

THROTTLE = re.compile(r"(\d+)_\[[^\]%]*%(\d+)\]", re.ASCII)
"""The waiting rest of a job array that may not run all at once: 12_[4-9%2]."""

SEVERAL_TYPES = "GPUs of several types, which can be replayed on any one"

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
        return row.dropped(NEVER_RAN)
    num_gpus, gpu_type, types = _gpus_of(row)
    if num_gpus == 0:
        return row.dropped(NO_GPU)
    submitted, start, end = row.time("Submit"), _time(row, "Start"), _time(row, "End")
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
            row.word("Partition"),
            gpu_type,
            None,
        ),
        oddities=(*oddities_of_times(submitted, start, end, duration), *([SEVERAL_TYPES] if types > 1 else [])),
    )


def _status(row: LogRow) -> JobStatus | None:
    # sacct writes who cancelled a job behind the state: "CANCELLED by 1000".
    word = row.name("State").split()[0]
    if word not in STATES:
        raise row.error("State", f"one of {', '.join(STATES)}")
    return STATES[word]


def _holds_nothing(row: LogRow) -> bool:
    return any(column in row.values and not row.has(column) for column in ("AllocTRES", "AllocGRES"))


def _time(row: LogRow, column: str) -> float | None:
    return row.time(column) if row.has(column) else None


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


class _Gpus(NamedTuple):
    """GPUs of a job, of which type where all are of one, and how many types there are."""

    number: int
    type: str | None = None
    types: int = 0


def _gpus_of(row: LogRow) -> _Gpus:
    """Return the GPUs that the job was given, or asked for where the log does not say what it was given.

    Not every cluster accounts for the types of what it gives; then the type that a job asked for is its type.
    """
    for column, read in (("AllocTRES", _tres), ("AllocGRES", _gres), ("ReqTRES", _tres)):
        if row.has(column):
            found = _gpus_of_list(row, column, read)
            return found if found.types else found._replace(type=_type_asked_for(row))
    return _Gpus(0)


def _type_asked_for(row: LogRow) -> str | None:
    asked = {name for name, _ in GPUS.findall(row.values["ReqTRES"]) if name} if row.has("ReqTRES") else set()
    return asked.pop() if len(asked) == 1 else None


def _gpus_of_list(row: LogRow, column: str, read: Callable[[LogRow, str, str], tuple[str | None, int] | None]) -> _Gpus:
    entries = [found for text in row.values[column].strip().split(",") if (found := read(row, column, text))]
    typed = {name: count for name, count in entries if name is not None}
    # The untyped entry counts the typed ones too, so that adding both would count them twice.
    total = next((count for name, count in reversed(entries) if name is None), sum(typed.values()))
    return _Gpus(total, next(iter(typed)) if len(typed) == 1 else None, len(typed))


def _tres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    if not text.startswith(("gres/gpu=", "gres/gpu:")):
        if "=" not in text:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        return None
    match = GPUS.fullmatch(text)
    if not match or int(match[2]) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gres/gpu=4 or gres/gpu:a100=4")
    return match[1], int(match[2])


def _gres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    if not text.removeprefix("gres").lstrip(":/").startswith("gpu"):
        return None
    match = GRES.fullmatch(text)
    if not match or int(match[2] or 1) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gpu:4 or gpu:a100:4")
    return match[1], int(match[2] or 1)


class SlurmFormat(TableFormat):
    """Rows of sacct, of which some make one job together: the parts of a heterogeneous job are one gang."""

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield what each row is, file by file."""
        yield from _gangs(super().read(source, zone), _throttles(source_files(source, self.files)))


def _throttles(paths: Iterable[Path]) -> dict[str, int]:
    """Return how many jobs of an array may run at once, by the array's id, where the log tells."""
    found = dict[str, int]()
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            matches = (match for line in lines if "%" in line and (match := THROTTLE.search(line)))
            found |= {match[1]: int(match[2]) for match in matches}
    return found


def _gangs(entries: Iterable[Entry], throttles: Mapping[str, int]) -> Iterator[Entry]:
    """Yield entries with the parts of each heterogeneous job, which follow each other, as one job."""
    held: LogJob | None = None
    for entry in entries:
        if not isinstance(entry, LogJob):
            yield entry
        elif held is not None and _gang_of(held) == _gang_of(entry):
            held = _together(held, entry)
            yield Dropped(entry.place, "part of a heterogeneous job, one gang with its first")
        else:
            if held is not None:
                yield held
            limit = throttles.get(entry.job.partition("_")[0]) if "_" in entry.job else None
            held = entry._replace(extras=(*entry.extras[:-1], limit))
            if "+" not in entry.job:
                yield held
                held = None
    if held is not None:
        yield held


def _gang_of(job: LogJob) -> str:
    return job.job.partition("+")[0] if "+" in job.job else ""


def _together(first: LogJob, part: LogJob) -> LogJob:
    """Return a heterogeneous job with one part more: all GPUs for as long as the longest part."""
    durations = [job.duration for job in (first, part) if job.duration is not None]
    whole = first._replace(num_gpus=first.num_gpus + part.num_gpus, duration=max(durations, default=None))
    place = SLURM.extras.index("gpu_type")
    if first.extras[place] == part.extras[place]:
        return whole
    oddities = dict.fromkeys((*first.oddities, SEVERAL_TYPES))
    return whole._replace(extras=(*first.extras[:place], None, *first.extras[place + 1 :]), oddities=tuple(oddities))


SLURM = SlurmFormat(
    name="slurm",
    citation="Slurm accounting, sacct --parsable2",
    caveat="sacct prints times in the time zone of the machine it ran on: name that zone",
    layout=Layout(
        columns=("Submit", "State"),
        alternatives=(("JobID", "JobIDRaw"), ("AllocTRES", "ReqTRES", "AllocGRES"), ("ElapsedRaw", "Elapsed", "End")),
        delimiter="|",
        quoted=False,
    ),
    parse=_parse,
    clock=Clock.LOCAL,
    extras=("application", "num_nodes", "queueing_delay", "time_limit", "partition", "gpu_type", "array_limit"),
    files="*.txt",
)
