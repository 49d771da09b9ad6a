"""The Standard Workload Format of the Parallel Workloads Archive, with processors in place of GPUs.

Feitelson, Tsafrir and Krakov, "Experience with using the Parallel Workloads Archive", JPDC 2014. A row has 18 numbers,
and -1 is an unknown value. Lines that begin with a semicolon are comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from zoneinfo import available_timezones

from polluxsim.common.tables import read_number
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    CPU,
    BadRowError,
    CountedResource,
    Dropped,
    Entry,
    JobStatus,
    LogClock,
    LogJob,
    RowReason,
    source_files,
)
from polluxsim.logs.formats.log_rows import (
    BLANK,
    MAX_GPUS,
    LogRow,
    TableFormat,
    TableLayout,
    parsed,
    read_lines,
    row_of,
)

COLUMNS = (
    "job_number", "submit_time", "wait_time", "run_time", "allocated_processors", "average_cpu_time", "used_memory",
    "requested_processors", "requested_time", "requested_memory", "status", "user_id", "group_id", "executable",
    "queue", "partition", "preceding_job", "think_time",
)  # fmt: skip

CANCELLED = 5
STATUSES = {0: JobStatus.FAILED, 1: JobStatus.COMPLETED, CANCELLED: JobStatus.CANCELLED}
"""Meanings of the field `status`. Rows of status 2 to 4 are parts of a job with a row of its own."""

PARTIAL = (2, 3, 4)

FILES = "*.swf *.txt"


def _parse(row: LogRow) -> LogJob | Dropped:
    """Return the job of a row, or why it is none. Without allocated processors, the requested ones count."""
    status = _known(row, "status")
    if status in PARTIAL:
        return row.dropped("part of a job between two checkpoints, counted with the whole job")
    duration = _known(row, "run_time")
    wait = _known(row, "wait_time")
    # A job that was cancelled in the queue has a wait too.
    has_started = wait is not None and status != CANCELLED
    if duration is None and has_started:
        return row.dropped("ran for an unknown time")
    if duration is None:
        return row.dropped(RowReason.NEVER_RAN)
    processors = _known(row, "allocated_processors", MAX_GPUS) or _known(row, "requested_processors", MAX_GPUS)
    if not processors:
        return row.dropped("no number of processors")
    submitted = row.instant("submit_time")
    queue = _number(row, "queue")
    partition = _number(row, "partition")
    if partition is None:
        partition = queue
    job_status = None
    if status is not None:
        job_status = STATUSES.get(int(status))
    oddities: tuple[str, ...] = ()
    if wait is None:
        oddities = ("no wait: when the job started is unknown",)
    return LogJob(
        place=row.place,
        job=row.name("job_number"),
        submitted=submitted,
        duration=duration,
        num_gpus=processors,
        user=_number(row, "user_id"),
        tenant=_number(row, "group_id"),
        status=job_status,
        extras=(
            _number(row, "executable"),
            wait,
            _known(row, "requested_time") or None,  # a limit of 0 s is none
            partition,
        ),
        oddities=oddities,
    )


def _known(row: LogRow, column: str, most: float = MOST_SECONDS) -> float | None:
    """Return a number; None if it is negative, which stands for an unknown value."""
    value = row.within(column, -1, most)
    if value < 0:
        return None
    return value


def _number(row: LogRow, column: str) -> str | None:
    """Return a whole number as a name; None if it is unknown."""
    value = _known(row, column)
    if value is None:
        return None
    return f"{value:.0f}"


def _comments(path: Path) -> dict[str, str]:
    """Return the values in the comments before the first row, by their names, like MaxProcs."""
    values = dict[str, str]()
    # Comments are texts of people, and may have bytes that are not UTF-8.
    for _, text in read_lines(path, keep_bytes=True):
        if not isinstance(text, str) or not text.lstrip().startswith(";"):
            break
        name, _, value = text.lstrip("; ").partition(":")
        # The first value counts, because a later remark may have the same word before a colon.
        values.setdefault(name.strip(), value.strip())
    return values


def _processors(source: Path) -> int | None:
    """Return the processors of the machine that the comments of a log state; None if they do not."""
    paths = source_files(source, FILES)
    # The files of a folder are logs of one machine, so the comments of the first one suffice.
    number = read_number(_comments(paths[0]).get("MaxProcs", ""))
    if number is None or number < 1:
        return None
    return int(number)


@dataclass(frozen=True, kw_only=True)
class SwfFormat(TableFormat):
    """Rows of numbers that blanks separate, with comments. Times count from the beginning of the log.

    If a comment states the instant of this beginning, the times become dates.
    """

    begin: float = 0.0  # of the log [s since 1970-01-01 UTC]; 0 if unknown

    def for_source(self, source: Path, columns: str) -> SwfFormat:
        """Return the format with the beginning of one log and its time zone, if the comments state them."""
        super().for_source(source, columns)
        comments = _comments(source_files(source, FILES)[0])
        begin = read_number(comments.get("UnixStartTime", ""))
        if begin is None or not 0 < begin <= MOST_SECONDS:
            return self
        zone = comments.get("TimeZoneString", "")
        if zone not in available_timezones():  # some logs name no zone, or name it in another way
            zone = "UTC"
        return replace(self, begin=begin, clock=LogClock.ZONED, time_zone=zone)

    def counting(self, units: tuple[CountedResource, ...]) -> SwfFormat:
        """Return the format itself, which counts processors only; raise InvalidConfigError for other resources."""
        if units != (CountedResource(CPU),):
            super().counting(units)  # raises the error
        return self

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row of one file."""
        for line, text in read_lines(path):
            if isinstance(text, BadRowError):
                yield text
                continue
            if text.lstrip().startswith(";"):
                continue
            entry = parsed(row_of(path, line, text, self.layout, list(COLUMNS)), self.parse)
            if isinstance(entry, LogJob):
                entry = entry._replace(submitted=entry.submitted + self.begin)
            yield entry


SWF = SwfFormat(
    name="swf",
    citation="a log in the Standard Workload Format, as the Parallel Workloads Archive has them",
    caveat="the numbers of GPUs are numbers of processors",
    layout=TableLayout(COLUMNS, delimiter=BLANK, has_header=False, quoted=False),
    parse=_parse,
    extras=("application", "queueing_delay", "time_limit", "partition"),
    files=FILES,
    cluster_gpus=_processors,
    units=(CountedResource(CPU),),
)
