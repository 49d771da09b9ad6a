"""Accounting logs of PBS Professional, OpenPBS and Torque: the records of the ends of jobs.

A record is `time;type;job id;key=value key=value …` (PBS Professional Administrator's Guide, "Accounting").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    CPU,
    GPU,
    ONLY_GPUS,
    BadRowError,
    CountedResource,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogClock,
    LogJob,
    RowReason,
    oddities_of_times,
)
from polluxsim.logs.formats.log_rows import MAX_GPUS, LogRow, parsed, read_lines
from polluxsim.logs.formats.times import read_clock_duration

PAIR = re.compile(r'([A-Za-z_][\w.]*)=("[^"]*"|\S*)', re.ASCII)
"""One key with its value, which may stand in quotes."""

ENDED = "E"
OTHERS = {
    "A": "a job that was aborted",
    "B": "the begin of a reservation",
    "C": "a checkpoint of a job",
    "D": "the deletion of a job",
    "F": "the end of a reservation",
    "L": "a record of licences",
    "Q": "the submission of a job",
    "R": "a job that was run again",
    "S": "the start of a job",
    "T": "a restart from a checkpoint",
}
"""Types of records other than the end of a job, and what they state."""

KILLED_BY_SIGNAL = 256  # exit statuses from here on are this number plus the signal that ended the job
NODE_COUNT = ("Resource_List.nodect", "Resource_List.nodes")


@dataclass(frozen=True)
class _Record(LogRow):
    """The keys of one record as a row. Errors name the key."""

    def error(self, column: str, allowed: str) -> BadRowError:
        return BadRowError(self.path, self.line, f"key {column!r} is not {allowed}", self.values.get(column, ""))


def _parse(row: _Record, units: tuple[CountedResource, ...]) -> LogJob | Dropped:
    """Return the job of the record of an end, or why it is none. The wait begins when the job could start."""
    submitted_key = "qtime" if row.has("qtime") else "ctime"
    for key in (submitted_key, "start", "end"):
        if not row.has(key):
            return row.dropped(f"a record without {key}")
    number = 0.0
    for unit in units:
        number += unit.gpus * _amount(row, unit.resource)
    if number == 0 and units == ONLY_GPUS:
        return row.dropped(RowReason.NO_GPU)
    if number == 0:
        return row.dropped("nothing of what --unit names")
    if number > MAX_GPUS:
        raise row.error("Resource_List.ngpus", f"at most {MAX_GPUS:g}")
    submitted = row.instant(submitted_key)
    start = row.instant("start")
    end = row.instant("end")
    eligible = submitted
    eligibility_delay = None
    if row.has("etime"):
        # A job cannot start before its submission, even if the record states an earlier time.
        eligible = max(submitted, row.instant("etime"))
        eligibility_delay = eligible - submitted
    # PBS writes 0 for a job that never started.
    if start == 0:
        return row.dropped(RowReason.NEVER_RAN)
    if end < start:
        return row.dropped(RowReason.END_BEFORE_START)
    return LogJob(
        place=row.place,
        job=row.name("job"),
        submitted=eligible,
        duration=end - start,
        num_gpus=number,
        user=row.word("user"),
        tenant=row.word("account") or row.word("project") or row.word("group"),
        status=_status(row),
        attempts=row.optional_count("run_count", at_least=1),
        extras=(
            row.word("jobname"),
            row.optional_count("Resource_List.nodect"),
            start - eligible,
            _limit(row),
            row.word("queue"),
            eligibility_delay,
        ),
        oddities=oddities_of_times(eligible, start, end, end - start),
    )


def _amount(row: _Record, resource: str) -> float:
    """Return how many GPUs, CPUs or pieces of another resource a job asked for."""
    name = {GPU: "ngpus", CPU: "ncpus"}.get(resource, resource)
    total = row.optional_count(f"Resource_List.{name}")
    if total is not None:
        return total
    if row.has("Resource_List.select"):
        return _sum_of_chunks(row, "Resource_List.select", name)
    # Torque has names of its own, and writes nodes=2:ppn=8:gpus=4.
    if row.has("Resource_List.nodes"):
        name_in_torque = {GPU: "gpus", CPU: "ppn"}.get(resource, resource)
        return _sum_of_chunks(row, "Resource_List.nodes", name_in_torque)
    return 0.0


def _sum_of_chunks(row: _Record, key: str, resource: str) -> float:
    """Return the sum of a resource over chunks like 2:ncpus=8:ngpus=4+1:ncpus=1, each with its number of copies."""
    total = 0.0
    for chunk in row.values[key].strip('"').split("+"):
        parts = chunk.split(":")
        copies = 1
        if parts[0].isdigit():  # Torque may have the name of a node in its place
            copies = int(parts[0])
        for part in parts:
            name, equals, number = part.partition("=")
            if not equals or name != resource:
                continue
            if not number.isdigit():
                raise row.error(key, f"a list of chunks with whole numbers of {name}")
            total += copies * int(number)
    return total


def _limit(row: _Record) -> float | None:
    """Return the time limit [s], None for a job without one."""
    if not row.has("Resource_List.walltime"):
        return None
    limit = read_clock_duration(row.values["Resource_List.walltime"])
    if limit is None or limit > MOST_SECONDS:
        raise row.error("Resource_List.walltime", "a time like 24:00:00")
    # A limit of 0 s is none.
    return limit or None


def _status(row: _Record) -> JobStatus | None:
    """Return how a job ended, by its exit status; None if the record has none."""
    if not row.has("Exit_status"):
        return None
    # PBS has negative statuses for jobs that it could not start.
    status = int(row.within("Exit_status", -1000, 1000))
    if status == 0:
        return JobStatus.COMPLETED
    if status >= KILLED_BY_SIGNAL:
        return JobStatus.CANCELLED
    return JobStatus.FAILED


@dataclass(frozen=True, kw_only=True)
class PbsFormat(Format):
    """Accounting logs of PBS, with one record on each line."""

    def counting(self, units: tuple[CountedResource, ...]) -> PbsFormat:
        """Return the format with other resources that count as GPUs."""
        return replace(self, units=units)

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each record of one file."""
        for line, text in read_lines(path):
            if isinstance(text, BadRowError):
                yield text
                continue
            # The message may have semicolons too.
            parts = text.split(";", 3)
            if len(parts) != 4:
                yield BadRowError(path, line, "a record must be time;type;job;message", text)
                continue
            _, kind, job, message = parts
            row = _Record(path, line, {"job": job, **_values(message)}, zone)
            if kind != ENDED:
                yield row.dropped(f"{OTHERS.get(kind, 'another record')}, not the end of a job")
                continue
            yield parsed(row, lambda row: _parse(row, self.units))


def _values(message: str) -> Mapping[str, str]:
    """Return the values of a message by key."""
    return {key: value.strip('"') for key, value in PAIR.findall(message)}


PBS = PbsFormat(
    name="pbs",
    citation="accounting log of PBS Professional, OpenPBS or Torque",
    caveat="the GPUs of a job are those that it asked for",
    clock=LogClock.LOCAL,
    extras=("application", "num_nodes", "queueing_delay", "time_limit", "partition", "eligibility_delay"),
    files="*.txt *.log 20??????",
)
