"""Any table of jobs in CSV or JSON, by a map from the values of a job to the columns of the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, allowed_among, listed
from polluxsim.common.tables import read_number
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
    BadRowError,
    Clock,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogJob,
    Reason,
    oddities_of_times,
    source_files,
)
from polluxsim.logs.formats.json_rows import is_json, read_objects
from polluxsim.logs.formats.log_rows import MAX_GPUS, Layout, LogRow, parsed, read_lines, read_rows, read_time
from polluxsim.logs.formats.slurm import MAX_PRIORITY, STATES

KEYS = {
    "job": "name of the job",
    "submit": "submission: seconds, or a date and time",
    "eligible": "time from which it could start",
    "start": "start",
    "end": "end",
    "duration": "time on GPUs [s]",
    "wait": "time from submission to start [s]",
    "gpus": "GPUs",
    "user": "user",
    "tenant": "virtual cluster, account or team",
    "partition": "part of the cluster, or queue",
    "status": "how it ended",
    "application": "application or recurring name of the job",
    "gpu_type": "GPU type",
    "nodes": "nodes",
    "cpus": "CPUs on all nodes together",
    "memory": "memory on all nodes together [GB]",
    "time_limit": "time limit [s]",
    "priority": "priority",
    "qos": "quality of service",
}
"""Keys of a map of columns, with their meanings."""

NEEDED = ("submit", "gpus")

COLUMN = re.compile(r"(?P<column>[^:*]+)(?P<entries>(?::[^:*]+)*)(?:\*(?P<factor>[^:*]+))?")
"""COLUMN, COLUMN*FACTOR for a number in another unit, COLUMN:ENTRY for an entry of a list like 1=8,1002=2."""

HEAD = 100  # rows that are read to find the columns of a table; objects in JSON may leave some out
FIRST_EPOCH = 1e8  # numbers from this one on are seconds since 1970; smaller ones count from an unknown start [s]
NO_LIMIT = (2**32 - 2, 2**32 - 1)  # numbers that Slurm's database has for a job without a limit

SLURM_NUMBERS = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""States in the order of their numbers in Slurm's database (slurm.h, enum job_states)."""

STATUSES: Mapping[str, JobStatus | None] = {
    **{state.lower(): status for state, status in STATES.items()},
    **{status.value: status for status in JobStatus},
    **{str(number): STATES[state] for number, state in enumerate(SLURM_NUMBERS)},
    "succeeded": JobStatus.COMPLETED,
    "killed": JobStatus.CANCELLED,
}
"""Statuses by their words in small letters: those of a trace, and Slurm's words and numbers."""


class Source(NamedTuple):
    """The source of the values of one key."""

    column: str
    entries: tuple[str, ...] = ()  # names of the entries of a list in the column; empty if the column is no list
    factor: float = 1.0  # from the unit of the column to the unit of the key


def parse_columns(text: str) -> dict[str, Source]:
    """Return a map of columns that a user writes as KEY=COLUMN,KEY=COLUMN.

    Raise InvalidConfigError if the text has another form, or a key is unknown or given twice.

    >>> parse_columns("submit=created_at,gpus=tres:1001:1002,time_limit=minutes*60")["gpus"]
    Source(column='tres', entries=('1001', '1002'), factor=1.0)
    """
    found = dict[str, Source]()
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, rest = (part.strip() for part in pair.partition("="))
        if not equals or not (match := COLUMN.fullmatch(rest)):
            raise InvalidConfigError(
                f"--columns has {pair!r}, which is not KEY=COLUMN, KEY=COLUMN*FACTOR or KEY=COLUMN:ENTRY; correct it"
            )
        if key not in KEYS:
            raise InvalidConfigError(f"--columns has the unknown key {key!r}; {allowed_among(key, KEYS)}")
        if key in found:
            raise InvalidConfigError(f"--columns has the key {key!r} twice; give it once")
        factor = read_number(match["factor"] or "1")
        if factor is None or factor <= 0:
            raise InvalidConfigError(f"--columns has the factor {match['factor']!r} in {pair!r}; give a number above 0")
        entries = tuple(entry.strip() for entry in match["entries"].split(":")[1:])
        found[key] = Source(match["column"].strip(), entries, factor)
    return found


@dataclass(frozen=True)
class _Mapped:
    """One row whose values are read by the keys of the map."""

    row: LogRow
    columns: Mapping[str, Source]  # by key
    is_relative: bool  # whether times count from an unknown start

    def has(self, key: str) -> bool:
        return key in self.columns and self.row.has(self.columns[key].column)

    def word(self, key: str) -> str | None:
        return self.row.word(self.columns[key].column) if key in self.columns else None

    def number(self, key: str, low: float, high: float) -> float | None:
        """Return a number from `low` to `high` in the unit of the key, None if the cell is blank."""
        if not self.has(key):
            return None
        source = self.columns[key]
        number = self._of_entries(source) if source.entries else read_number(self.row.values[source.column])
        if number is None or not low <= number * source.factor <= high:
            raise self.row.error(source.column, f"a number from {low / source.factor:g} to {high / source.factor:g}")
        return number * source.factor

    def _of_entries(self, source: Source) -> float | None:
        """Return the sum of some entries of a list like 1=8,1002=2; an entry that is missing is 0."""
        total = 0.0
        for part in self.row.values[source.column].split(","):
            name, _, text = part.partition("=")
            if (number := read_number(text)) is None:
                raise self.row.error(source.column, "a list like cpu=8,gpu=2")
            total += number if name.strip() in source.entries else 0.0
        return total

    def count(self, key: str) -> int | None:
        number = self.number(key, 0, 1e9)
        if number is not None and not number.is_integer():
            raise self.row.error(self.columns[key].column, "a whole number")
        return None if number is None else int(number)

    def time(self, key: str, submitted: float | None = None) -> float | None:
        """Return a time [s], or None if the cell is blank.

        A time of 0 s after a later submission `submitted` [s] is unknown, because Slurm's database has 0 for a missing
        start or end.
        """
        if not self.has(key):
            return None
        source = self.columns[key]
        if self.is_relative or source.factor != 1:
            seconds = self.number(key, -MOST_SECONDS, MOST_SECONDS)
        else:
            seconds = self.row.moment(source.column)
        return None if seconds == 0 and submitted is not None and submitted > 0 else seconds

    def status(self) -> JobStatus | None:
        if (text := self.word("status")) is None:
            return None
        word = text.lower().partition(" by ")[0]  # Slurm writes CANCELLED by 1000
        if word not in STATUSES:
            column = self.columns["status"].column
            raise self.row.error(column, f"one of {listed(STATUSES)}; rename the column if it has another meaning")
        return STATUSES[word]


def _job(mapped: _Mapped) -> LogJob | Dropped:
    """Return the job of a row, or the row as dropped."""
    row = mapped.row
    gpus, submitted = mapped.number("gpus", 0, MAX_GPUS) or 0.0, mapped.time("submit")
    if submitted is None:
        raise row.error(mapped.columns["submit"].column, "a time")
    start, end = mapped.time("start", submitted), mapped.time("end", submitted)
    wait = mapped.number("wait", 0, MOST_SECONDS)
    if wait is not None and "start" not in mapped.columns:
        start = submitted + wait
    duration = mapped.number("duration", 0, MOST_SECONDS)
    status = mapped.status()
    if ("start" in mapped.columns and start is None) or (status is None and mapped.has("status")):
        return row.dropped(Reason.NEVER_RAN)
    if gpus == 0:
        return row.dropped(Reason.NO_GPU)
    if duration is None and start is not None and "end" in mapped.columns:
        if end is None:
            return row.dropped(Reason.NO_END)
        if end < start:
            return row.dropped(Reason.END_BEFORE_START)
        duration = end - start
    eligible = max(submitted, mapped.time("eligible", submitted) or submitted)
    return LogJob(
        place=row.place,
        job=mapped.word("job") or f"row-{row.line}",
        submitted=eligible,
        duration=duration,
        num_gpus=gpus,
        user=mapped.word("user"),
        tenant=mapped.word("tenant"),
        status=status,
        extras=(
            mapped.word("application"),
            mapped.count("nodes"),
            mapped.word("gpu_type"),
            mapped.number("cpus", 0, 1e9),
            mapped.number("memory", 0, 1e9),
            None if start is None else start - eligible,
            _time_limit(mapped),
            mapped.word("partition"),
            mapped.number("priority", -MAX_PRIORITY, MAX_PRIORITY),
            mapped.word("qos"),
            eligible - submitted if mapped.has("eligible") else None,
        ),
        oddities=oddities_of_times(eligible, start, end, duration or 0.0),
    )


def _time_limit(mapped: _Mapped) -> float | None:
    if not mapped.has("time_limit") or read_number(mapped.word("time_limit")) in NO_LIMIT:
        return None
    return mapped.number("time_limit", 0, MOST_SECONDS)


@dataclass(frozen=True, kw_only=True)
class MappedTable(Format):
    """A table of jobs.

    A key that the map leaves out is read from the column of that name, if the table has this column.
    """

    columns: Mapping[str, Source] = field(default_factory=dict)  # by key; empty until `for_source` reads a table

    def for_source(self, source: Path, columns: str) -> MappedTable:
        """Return the format with the columns and the clock of a table.

        Raise InvalidConfigError if `columns` is not a map of columns of the table, and InvalidInputError if the table
        has no rows or a needed key has no column.
        """
        mapped, path = parse_columns(columns), source_files(source, self.files)[0]
        rows = [row for row in islice(_rows(path, None), HEAD) if isinstance(row, LogRow)]
        if not rows:
            raise InvalidInputError(f"{path}: no row with values in the first {HEAD}; give a table with jobs")
        names = list(dict.fromkeys(name for row in rows for name in row.values))
        for key, (column, *_) in mapped.items():
            if column not in names:
                raise InvalidConfigError(
                    f"--columns maps {key} to {column!r}, which is not a column of {path}; "
                    f"{allowed_among(column, names)}"
                )
        mapped = {key: Source(key) for key in KEYS if key in names} | mapped
        if missing := [key for key in NEEDED if key not in mapped]:
            raise InvalidInputError(
                f"{path}: no column is mapped to {missing[0]}, which every job needs; "
                f"add {missing[0]}=COLUMN to --columns with one of {listed(names)}"
            )
        return replace(self, columns=mapped, clock=_clock(rows, mapped["submit"]))

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row."""
        for row in _rows(path, zone if self.clock is Clock.LOCAL else None):
            yield parsed(row, lambda row: _job(_Mapped(row, self.columns, self.clock is Clock.RELATIVE)))


def _clock(rows: Sequence[LogRow], submit: Source) -> Clock:
    """Return how a table writes its times, by the submission of the first row that has one."""
    text = next((row.values[submit.column] for row in rows if row.has(submit.column)), "")
    if (number := read_number(text)) is not None:
        return Clock.ZONED if number * submit.factor >= FIRST_EPOCH else Clock.RELATIVE
    return Clock.LOCAL if read_time(text, None) is None else Clock.ZONED


def _rows(path: Path, zone: tzinfo | None) -> Iterator[LogRow | BadRowError]:
    """Yield the rows of a table in CSV, in a JSON list, or in JSON with an object on each line."""
    _, first = next(read_lines(path), (1, ""))
    if not is_json(path):
        delimiter = max(",\t|;", key=first.count) if isinstance(first, str) else ","
        return read_rows(path, Layout((), delimiter=delimiter), zone)
    is_list = str(first).lstrip().startswith("[")
    return (
        row if isinstance(row, BadRowError) else _flat(path, line, row, zone)
        for line, row in (read_objects(path) if is_list else _objects_by_line(path))
    )


def _objects_by_line(path: Path) -> Iterator[tuple[int, dict[str, object] | BadRowError]]:
    """Yield the object, or the error, of each line that is not blank, and the number of the line."""
    for line, text in read_lines(path):
        if isinstance(text, BadRowError):
            yield line, text
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        yield line, value if isinstance(value, dict) else BadRowError(path, line, "the line is not a JSON object", text)


def _flat(path: Path, line: int, values: dict[str, object], zone: tzinfo | None) -> LogRow | BadRowError:
    """Return an object as a row of texts. The column of a value in an inner object is its path, like spec.queue."""
    cells, stack = dict[str, str](), list(values.items())
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{name}.{key}", inner) for key, inner in value.items()]
        else:
            cells[name] = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    try:
        "".join(cells.values()).encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        return BadRowError(path, line, "a text has half a surrogate pair, which is not a character")
    return LogRow(path, line, cells, zone)


TABLE = MappedTable(
    name="table",
    citation="table of jobs with a map of columns",
    clock=Clock.LOCAL,
    extras=(
        "application", "num_nodes", "gpu_type", "cpus", "memory", "queueing_delay", "time_limit", "partition",
        "priority", "qos", "eligibility_delay",
    ),
    files="*.csv *.json *.jsonl",
)  # fmt: skip
