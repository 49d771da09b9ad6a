"""Slurm accounting: the output of `sacct --parsable2`, with a header, and of `sacct --json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from itertools import islice
from pathlib import Path

from polluxsim.logs.formats.base import (
    CPU,
    BadRowError,
    CountedResource,
    Dropped,
    Entry,
    LogClock,
    LogJob,
    as_gang,
    source_files,
)
from polluxsim.logs.formats.json_rows import is_json, json_rows
from polluxsim.logs.formats.log_rows import LogRow, TableFormat, TableLayout, open_table, parsed, read_rows, row_of
from polluxsim.logs.formats.opening import open_log
from polluxsim.logs.formats.slurm_jobs import JOB_ID, STATES, parse_job
from polluxsim.logs.formats.slurm_json import sacct_cells
from polluxsim.logs.formats.slurm_plain import PlainRows
from polluxsim.logs.formats.slurm_resources import CPU_COLUMNS, RESOURCE_COLUMNS
from polluxsim.logs.formats.times import read_time

THROTTLE = re.compile(rb"(\d+)_\[[^\]%]*%(\d+)\]")
"""The rest of a job array that waits because not all jobs may run at once: 12_[4-9%2]."""

FREE_TEXT = ("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Reason")
"""Columns of sacct with a text that a user chooses. Slurm does not escape a delimiter in it."""


class SlurmFormat(TableFormat):
    """Rows of sacct as text or JSON. The parts of a heterogeneous job are several rows and one gang."""

    def for_source(self, source: Path, columns: str) -> SlurmFormat:
        """Return the format with the clock of one log: its times may state their offset from UTC."""
        super().for_source(source, columns)
        offset = _stated_offset(source_files(source, self.files))
        if offset is None:
            return self
        return replace(self, clock=LogClock.ZONED, time_zone=offset)

    def counting(self, units: tuple[CountedResource, ...]) -> SlurmFormat:
        """Return the format with other resources that count as GPUs."""
        layout = self.layout
        # Where only CPUs count, an output without lists of resources is enough.
        if units == (CountedResource(CPU),):
            layout = replace(layout, alternatives=_alternatives((*RESOURCE_COLUMNS, *CPU_COLUMNS)))
        return replace(self, units=units, layout=layout, parse=partial(parse_job, units=units))

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row, file by file."""
        # The limits of arrays are searched first, because the row of a waiting rest may stand behind those of its jobs.
        yield from _gangs(super().read(source, zone), _throttles(source_files(source, self.files)))

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row of one file."""
        if is_json(path):
            for json_row in json_rows(path, "jobs", zone):
                yield parsed(json_row, lambda row: self.parse(sacct_cells(row)))
            return
        zone_of_times = self.zone_of_times(zone)
        table = open_table(path, self.layout)
        plain_rows = PlainRows(path, table, zone_of_times, self.units)
        for line, text in table.lines:
            if isinstance(text, BadRowError):
                yield text
                continue
            entry = plain_rows.entry(line, text)
            if entry is not None:
                yield entry
                continue
            row = row_of(path, line, text, table.layout, table.header, zone_of_times)
            yield parsed(row, self.job_of_row)


def _stated_offset(paths: Iterable[Path]) -> str | None:
    """Return the offset from UTC, like +01:00, of the first submission in text; None if a log states none.

    The first one suffices, because sacct writes all times of an output in one form.
    """
    for path in paths:
        if is_json(path):
            continue
        for row in islice(read_rows(path, SLURM.layout), ROWS_TO_FIND_THE_CLOCK):
            if isinstance(row, LogRow) and row.has("Submit"):
                match = OFFSET.search(row.values["Submit"].strip())
                if match is None or read_time(row.values["Submit"], None) is None:
                    return None
                if match[1]:  # a Z
                    return "+00:00"
                return f"{match[2]}:{match[3]}"
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
                if b"%" not in line:  # much faster than the search, and true for nearly all lines
                    continue
                match = THROTTLE.search(line)
                if match is not None:
                    limits[match[1].decode()] = int(match[2])
    return limits


def _gangs(entries: Iterable[Entry], throttles: Mapping[str, int]) -> Iterator[Entry]:
    """Yield entries, with the parts of each heterogeneous job, which follow each other, as one job."""
    gang: LogJob | None = None  # waits for its next part
    parts = set[str]()  # ids of the parts of the gang
    for entry in entries:
        if not isinstance(entry, LogJob):
            yield entry
            continue
        is_part = "+" in entry.job
        # A part for the second time belongs to another output of sacct with the same job.
        if is_part and gang is not None and _gang_of(gang) == _gang_of(entry) and entry.job not in parts:
            parts.add(entry.job)
            gang = as_gang(gang, entry, SLURM.extras)
            yield Dropped(entry.place, "part of a heterogeneous job, one gang with its first")
            continue
        # Any other job ends the gang.
        if gang is not None:
            yield gang
            gang = None
        job = entry
        if throttles:
            job = _with_throttle(entry, throttles)
        if is_part:
            gang = job
            parts = {entry.job}
        else:
            yield job
    if gang is not None:
        yield gang


def _with_throttle(job: LogJob, throttles: Mapping[str, int]) -> LogJob:
    """Return a job with the number of jobs of its array that may run at once, if it is one of an array with a limit."""
    array, is_task, _ = job.job.partition("_")
    if not is_task or array not in throttles:
        return job
    extras = list(job.extras)
    extras[-1] = throttles[array]  # the column `array_limit`
    return job._replace(extras=tuple(extras))


def _gang_of(job: LogJob) -> str:
    """Return the id of the heterogeneous job of a part."""
    return job.job.partition("+")[0]


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


def _alternatives(resources: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of columns of which an output needs one each. `resources` state what a job held."""
    return (("JobID", "JobIDRaw"), resources, ("ElapsedRaw", "Elapsed", "End"))


SLURM = SlurmFormat(
    name="slurm",
    citation="Slurm accounting, sacct --parsable2",
    layout=TableLayout(
        columns=("Submit", "State"),
        alternatives=_alternatives(RESOURCE_COLUMNS),
        delimiter="|",
        quoted=False,
        finds_delimiter=True,
        free_text=FREE_TEXT,
        explain=_explain_header,
    ),
    parse=parse_job,
    clock=LogClock.LOCAL,
    extras=(
        "application", "num_nodes", "queueing_delay", "time_limit", "partition", "gpu_type", "priority", "qos",
        "eligibility_delay", "gpus_per_task", "array_limit",
    ),
    files="*.txt *.json *.csv",
)  # fmt: skip
