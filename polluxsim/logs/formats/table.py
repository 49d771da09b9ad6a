"""Any table of jobs in CSV or JSON, by a map from the values of a job to the columns of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, allowed_among, listed
from polluxsim.common.tables import read_number
from polluxsim.common.values import OneOf, check
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import (
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
    source_files,
)
from polluxsim.logs.formats.column_maps import KEYS, NEEDED, ColumnSource, parse_columns
from polluxsim.logs.formats.log_rows import (
    ANY_COLUMN,
    MAX_GPUS,
    LogRow,
    parsed,
)
from polluxsim.logs.formats.opening import is_standard_workload_format
from polluxsim.logs.formats.slurm_jobs import MAX_PRIORITY, STATES
from polluxsim.logs.formats.swf import STATUSES as SWF_STATUSES
from polluxsim.logs.formats.table_rows import column_names, table_rows
from polluxsim.logs.formats.times import Times, consistent_times, read_clock_duration, read_time

FIRST_EPOCH = 1e8  # numbers from this one on are seconds since 1970; smaller ones count from an unknown start [s]
NO_LIMIT = (2**32 - 2, 2**32 - 1)  # numbers that Slurm's database has for a job without a limit
NO_LIMIT_WORDS = ("unlimited", "partition_limit", "infinite", "not_set", "invalid")  # words for the same

SLURM_NUMBERS = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""States in the order of their numbers in Slurm's database (slurm.h, enum job_states)."""

STATUSES: Mapping[str, JobStatus | None] = {
    **{state.lower(): status for state, status in STATES.items()},
    **{status.value: status for status in JobStatus},
    "succeeded": JobStatus.COMPLETED,
    "killed": JobStatus.CANCELLED,
}
"""Statuses by their words in small letters: those of a trace, and Slurm's."""

NUMBERED_STATUSES: Mapping[str, Mapping[str, JobStatus | None]] = {
    "slurm": {str(number): STATES[state] for number, state in enumerate(SLURM_NUMBERS)},
    "swf": {str(number): status for number, status in SWF_STATUSES.items()},
}
"""Statuses by their numbers, by the name of a numbering: Slurm's database, the Standard Workload Format."""

SLURM_DATABASE = ("id_job", "time_submit", "state")
"""Columns of a table of Slurm's database, whose states are numbers."""


@dataclass(frozen=True)
class _Mapped:
    """One row whose values are read by the keys of the map."""

    row: LogRow
    columns: Mapping[str, ColumnSource]  # by key
    is_relative: bool  # whether times count from an unknown start

    def has(self, key: str) -> bool:
        return key in self.columns and self.row.has(self.columns[key].column)

    def word(self, key: str) -> str | None:
        if key not in self.columns:
            return None
        return self.row.word(self.columns[key].column)

    def number(self, key: str, low: float, high: float) -> float | None:
        """Return a number from `low` to `high` in the unit of the key, None if the cell is blank."""
        if not self.has(key):
            return None
        source = self.columns[key]
        factor = source.factor
        if source.other_column:
            other = read_number(self.row.values.get(source.other_column, ""))
            if other is None or other < 0:
                raise self.row.error(source.other_column, "a number of at least 0")
            factor = other
        if source.entries:
            number: float | None = self._of_entries(source)
        else:
            number = read_number(self.row.values[source.column])
        if number is None or not low <= number * factor <= high:
            # The limits cannot be divided by 0.
            if factor <= 0:
                raise self.row.error(source.column, f"a number of which the {factor:g}-fold is {low:g} to {high:g}")
            raise self.row.error(source.column, f"a number from {low / factor:g} to {high / factor:g}")
        return number * factor

    def _of_entries(self, source: ColumnSource) -> float:
        """Return the sum of some entries of a list like 1=8,1002=2; an entry that is missing is 0.

        An entry like gres/gpu:a100=4 counts under the name before its type, unless the list has an entry without type.
        """
        untyped = dict[str, float]()
        typed = dict[str, float]()
        for part in self.row.values[source.column].split(","):
            name, equals, text = (word.strip() for word in part.partition("="))
            base = name.partition(":")[0]
            if not equals:
                raise self.row.error(source.column, "a list like cpu=8,gpu=2")
            if not {name, base} & set(source.entries):
                continue  # another resource, such as mem=16G
            number = read_number(text)
            if number is None:
                raise self.row.error(source.column, f"a list with a number of {name}, like {name}=2")
            if name in source.entries:
                untyped[name] = number
            else:
                typed[base] = typed.get(base, 0.0) + number
        return sum((typed | untyped).values())

    def seconds(self, key: str) -> float | None:
        """Return a duration [s], also from a text like 1-02:03:04; None if the cell is blank."""
        if not self.has(key):
            return None
        text = self.row.values[self.columns[key].column]
        if ":" not in text:
            return self.number(key, 0, MOST_SECONDS)
        seconds = read_clock_duration(text)
        if seconds is None or seconds > MOST_SECONDS:
            allowed = "a number of seconds, or a time like 02:03:04 or 1-02:03:04 (days-hours:minutes:seconds)"
            raise self.row.error(self.columns[key].column, allowed)
        return seconds

    def count(self, key: str) -> int | None:
        """Return a whole number, None if the cell is blank."""
        number = self.number(key, 0, 1e9)
        if number is None:
            return None
        if not number.is_integer():
            raise self.row.error(self.columns[key].column, "a whole number")
        return int(number)

    def time(self, key: str, submitted: float | None = None) -> float | None:
        """Return a time [s], or None if the cell is blank.

        With `submitted`, the submission [s], a time of 0 s counts as unknown if the submission is later, because the
        database of Slurm has 0 for a missing start or end.
        """
        if not self.has(key):
            return None
        source = self.columns[key]
        # A factor turns a number into seconds, so the cell cannot be a date.
        if self.is_relative or source.factor != 1:
            seconds = self.number(key, -MOST_SECONDS, MOST_SECONDS)
        else:
            seconds = self.row.moment(source.column)
        is_after_zero = submitted is not None and submitted > 0
        if seconds == 0 and is_after_zero:
            return None
        return seconds

    def is_date(self, key: str) -> bool:
        """Return whether a time is a date with a time of day."""
        if not self.has(key):
            return False
        source = self.columns[key]
        return source.factor == 1 and ":" in self.row.values[source.column]

    def both_times(self, key: str) -> tuple[float, ...]:
        """Return the one or two instants of a date with a time of day [s]."""
        return self.row.both_moments(self.columns[key].column)

    def has_status_of_unknown_meaning(self) -> bool:
        """Return whether the status is a number, and the map does not say whose numbers these are."""
        text = self.word("status")
        return text is not None and not self.columns["status"].entries and read_number(text) is not None

    def status(self) -> JobStatus | None:
        """Return how the job ended; None if it did not run, or if the table does not say."""
        text = self.word("status")
        if text is None or self.has_status_of_unknown_meaning():
            return None
        source = self.columns["status"]
        statuses = STATUSES
        if source.entries:  # the name of a numbering
            statuses = NUMBERED_STATUSES[source.entries[0]]
        word = text.lower().partition(" by ")[0]  # Slurm writes CANCELLED by 1000
        if word not in statuses:
            allowed = f"one of {listed(statuses)}; rename the column if it has another meaning"
            raise self.row.error(source.column, allowed)
        return statuses[word]


def _job(mapped: _Mapped) -> LogJob | Dropped:
    """Return the job of a row, or the row as dropped."""
    row = mapped.row
    gpus = mapped.number("gpus", 0, MAX_GPUS) or 0.0
    duration = mapped.seconds("duration")
    submitted, eligible, start, end = _times(mapped, duration)
    status = mapped.status()
    is_status_unknown = mapped.has_status_of_unknown_meaning()
    has_no_start = "start" in mapped.columns and start is None
    # A known word that stands for no status is that of a job that waits.
    is_pending = status is None and mapped.has("status") and not is_status_unknown
    if has_no_start or is_pending:
        return row.dropped(RowReason.NEVER_RAN)
    if gpus == 0:
        return row.dropped(RowReason.NO_GPU)
    if duration is None and start is not None and "end" in mapped.columns:
        if end is None:
            return row.dropped(RowReason.NO_END)
        if end < start:
            return row.dropped(RowReason.END_BEFORE_START)
        duration = end - start
    oddities = list(oddities_of_times(eligible, start, end, duration or 0.0))
    if is_status_unknown:
        oddities.append(RowReason.STATUS_NUMBER)
    queueing_delay = None
    if start is not None:
        queueing_delay = start - eligible
    eligibility_delay = None
    if mapped.has("eligible"):
        eligibility_delay = eligible - submitted
    return LogJob(
        place=row.place,
        job=mapped.word("job") or f"row-{row.line}",  # a replay needs a name for each job
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
            queueing_delay,
            _time_limit(mapped),
            mapped.word("partition"),
            mapped.number("priority", -MAX_PRIORITY, MAX_PRIORITY),
            mapped.word("qos"),
            eligibility_delay,
            _gpus_per_task(mapped, gpus),
        ),
        oddities=(*oddities, *row.oddities),
    )


def _times(mapped: _Mapped, duration: float | None) -> Times:
    """Return the times of a job. `duration` [s] decides between the two instants of a time in the repeated hour."""
    submitted = mapped.time("submit")
    if submitted is None:
        raise mapped.row.error(mapped.columns["submit"].column, "a time")
    start = mapped.time("start", submitted)
    end = mapped.time("end", submitted)
    eligible = mapped.time("eligible", submitted)
    wait = mapped.seconds("wait")
    if wait is not None and "start" not in mapped.columns:
        start = submitted + wait
    times = Times(submitted, max(submitted, eligible or submitted), start, end)
    # Relative times have no hour that a clock repeats.
    if times.agree(duration) or mapped.is_relative:
        return times
    keys = ["submit", "submit"]  # without an eligible time, the submission counts for it
    if eligible is not None:
        keys[1] = "eligible"
    if times.start is not None:
        keys.append("start")
    if times.end is not None:
        keys.append("end")
    if not all(mapped.is_date(key) for key in keys):
        return times
    times = consistent_times(times, duration, lambda: [mapped.both_times(key) for key in keys])
    return times._replace(eligible=max(times.submitted, times.eligible))


def _gpus_per_task(mapped: _Mapped, num_gpus: float) -> int | None:
    """Return the GPUs of a task, of which the GPUs of the job must be a multiple; None if the row has none."""
    gpus = mapped.count("gpus_per_task")
    if gpus and num_gpus % gpus:
        raise mapped.row.error(mapped.columns["gpus_per_task"].column, f"a divisor of its GPUs, {num_gpus:g}")
    return gpus or None


def _time_limit(mapped: _Mapped) -> float | None:
    """Return the time limit of a job [s]; None if the row has none, or a word or number for no limit."""
    word = mapped.word("time_limit")
    if word is None or word.lower() in NO_LIMIT_WORDS or read_number(word) in NO_LIMIT:
        return None
    return mapped.seconds("time_limit")


@dataclass(frozen=True, kw_only=True)
class MappedTable(Format):
    """A table of jobs.

    A key that the map leaves out is read from the column of that name, if the table has this column.
    """

    columns: Mapping[str, ColumnSource] = field(default_factory=dict)  # by key; empty until `for_source` reads a table
    is_numbered: bool = False  # whether the table has no header, and the columns have numbers from 1 on
    free_text: tuple[str, ...] = ()  # columns whose texts may have bytes that are not UTF-8

    def for_source(self, source: Path, columns: str) -> MappedTable:
        """Return the format with the columns and the clock of a table.

        Raise InvalidConfigError if `columns` is not a map of columns of the table. Raise InvalidInputError if the table
        has no rows, a needed key has no column, or it is in the Standard Workload Format and the map names no numbers.
        """
        mapped = parse_columns(columns)
        path = source_files(source, self.files)[0]
        is_swf = is_standard_workload_format(path)
        # Numbers as names of columns mean that the table has no header.
        is_numbered = bool(mapped) and all(source.column.isdigit() for source in mapped.values())
        if is_swf and not is_numbered:
            raise InvalidInputError(
                f"{path}: this is a log in the Standard Workload Format; import it with the format swf, or name its "
                "columns by their numbers, like --columns submit=2,wait=3,duration=4,gpus=5"
            )
        names = column_names(path, is_numbered)
        for key, column_source in mapped.items():
            for column in (column_source.column, column_source.other_column):
                if column and column not in names:
                    raise InvalidConfigError(
                        f"--columns maps {key} to {column!r}, which is not a column of {path}; "
                        f"{allowed_among(column, names)}"
                    )
        # A column with the name of a key counts for it, unless the user maps another one to the key.
        mapped = {key: ColumnSource(key) for key in KEYS if key in names} | mapped
        for key in NEEDED:
            if key not in mapped:
                raise InvalidInputError(
                    f"{path}: no column is mapped to {key}, which every job needs; "
                    f"add {key}=COLUMN to --columns with one of {listed(names)}"
                )
        status = mapped.get("status")
        if status is not None and status.entries:
            check("the numbering of status", status.entries[0], Annotated[str, OneOf(*NUMBERED_STATUSES)])
        elif status is not None and set(SLURM_DATABASE) <= set(names):
            # The other columns tell whose numbers these are.
            mapped["status"] = status._replace(entries=("slurm",))
        return replace(
            self,
            columns=mapped,
            is_numbered=is_numbered,
            free_text=_free_text(names, mapped),
            clock=_clock(table_rows(path, None, is_numbered, ANY_COLUMN), mapped["submit"]),
        )

    def counting(self, units: tuple[CountedResource, ...]) -> MappedTable:
        """Return the format with another word for what the column of the GPUs counts."""
        return replace(self, units=units)

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row."""
        zone_of_times = None
        if self.clock is LogClock.LOCAL:
            zone_of_times = zone
        is_relative = self.clock is LogClock.RELATIVE
        for row in table_rows(path, zone_of_times, self.is_numbered, self.free_text):
            yield parsed(row, lambda row: _job(_Mapped(row, self.columns, is_relative)))


def _free_text(names: Sequence[str], mapped: Mapping[str, ColumnSource]) -> tuple[str, ...]:
    """Return the columns of a table from which nothing but a job's name or application is read.

    A byte that is not UTF-8 in such a text must not cost the row.
    """
    needed = set[str]()
    for key, source in mapped.items():
        if key not in ("job", "application"):
            needed |= {source.column, source.other_column}
    return tuple(name for name in names if name not in needed)


def _clock(rows: Iterable[LogRow | BadRowError], submit: ColumnSource) -> LogClock:
    """Return how a table writes its times, by the first submission in it; local times if there is none."""
    for row in rows:
        if not isinstance(row, LogRow) or not row.has(submit.column):
            continue
        text = row.values[submit.column]
        number = read_number(text)
        if number is not None and number * submit.factor < FIRST_EPOCH:
            return LogClock.RELATIVE
        if number is not None:
            return LogClock.ZONED  # seconds since 1970 are the same in all zones
        if read_time(text, None) is not None:  # the text names its zone
            return LogClock.ZONED
        return LogClock.LOCAL
    return LogClock.LOCAL


TABLE = MappedTable(
    name="table",
    citation="table of jobs with a map of columns",
    clock=LogClock.LOCAL,
    extras=(
        "application", "num_nodes", "gpu_type", "cpus", "memory", "queueing_delay", "time_limit", "partition",
        "priority", "qos", "eligibility_delay", "gpus_per_task",
    ),
    files="*.csv *.json *.jsonl",
)  # fmt: skip
