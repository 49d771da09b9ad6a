"""Import a cluster log: read and count its rows, sort the jobs by submission, write a trace, and report.

Each row of the log is counted once: as a job, as dropped, or as bad. A log may have millions of rows, so they become
Arrow columns as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polluxsim.common.dates import zone_named
from polluxsim.common.durations import DAY, HOUR
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, bad_line, invalid_setting
from polluxsim.common.files import atomic_write
from polluxsim.common.values import PositiveInt, check
from polluxsim.hardware.gpu_types import GPU_TYPES, types_in
from polluxsim.logs.formats import find_format
from polluxsim.logs.formats.base import (
    GPU,
    Dropped,
    Entry,
    Format,
    JobStatus,
    LogClock,
    LogJob,
    Place,
    RowReason,
    parse_units,
    source_files,
    unit_word,
)
from polluxsim.logs.formats.opening import check_opening
from polluxsim.logs.import_report import (
    QUANTILES,
    DayLoad,
    GpuCount,
    ImportReport,
    Quantile,
    Tallies,
    Tally,
    TypeCount,
)
from polluxsim.logs.trace_table import CORE_COLUMNS, TraceInfo, beyond_limits, columns_of, trace_schema

LONG_DURATION = 60 * DAY  # durations above this are suspicious [s]
BULK_SHARE = 0.01  # largest share of the jobs before or after the bulk [1]
BULK_GAP = DAY  # shortest pause between these jobs and the bulk [s]
BULK_JOBS = 10  # fewest jobs of a trace with a bulk
BURST = 10  # fewest submissions within one second that make a burst

BEFORE_BULK = "submitted before the bulk (in the first 1 %, cut off by a pause of more than a day)"
AFTER_BULK = "submitted after the bulk (in the last 1 %, cut off by a pause of more than a day)"
IN_BURST = f"one of {BURST} or more jobs submitted in the same second"
DUPLICATE = "a job's name that another row had before"


def oddities(job: LogJob) -> list[str]:
    """Return the suspicious values of one job."""
    reasons = list(job.oddities)
    duration = job.duration
    if duration is not None:
        if duration == 0:
            reasons.append("duration of 0 s")
        elif duration > LONG_DURATION:
            reasons.append("duration of more than 60 days")
    if job.num_gpus % 1:
        reasons.append("a fraction of a GPU")
    if job.status is JobStatus.RUNNING and duration is not None:
        reasons.append("was running when last seen: its duration is a lower bound")
    return reasons


class Examination:
    """Statistics of a trace whose jobs are in order of submission.

    The table has the columns of the trace, `file` (an index of `files`) and `line`. `day_start` is the time from the
    midnight before the first submission to the first submission [s].
    """

    def __init__(self, table: pa.Table, files: Sequence[str], day_start: float) -> None:
        self._table = table
        self._files = files
        self._day_start = day_start
        self.num_jobs: int = table.num_rows
        self.times = table["submit_time"].to_numpy()
        self.durations = table["duration"].to_numpy()
        self.gpus = table["num_gpus"].to_numpy()

    def days(self) -> dict[int, tuple[int, float]]:
        """Return the number of jobs and their GPU time [GPU s] by day with a submission, counted from 0, the first."""
        day_of_job = np.floor((self.times + self._day_start) / DAY).astype(np.int64)
        days, index = np.unique(day_of_job, return_inverse=True)
        gpu_times = np.nan_to_num(self.durations) * self.gpus  # a job without a duration counts as a job only
        work = np.bincount(index, weights=gpu_times)
        loads = zip(np.bincount(index).tolist(), work.tolist(), strict=True)
        return dict(zip(days.tolist(), loads, strict=True))

    def gpu_types(self) -> tuple[TypeCount, ...]:
        """Return the number of jobs by GPU type as the log writes it, most frequent first; empty without types."""
        if "gpu_type" not in self._table.column_names:
            return ()
        counts = []
        for value_count in self._table["gpu_type"].drop_null().value_counts().to_pylist():
            text = value_count["values"]
            types = tuple(gpu.name for gpu in types_in(text))
            unknown = tuple(name for name in types if name not in GPU_TYPES)
            counts.append(TypeCount(text, value_count["counts"], types, unknown))
        return tuple(sorted(counts, key=lambda count: (-count.jobs, count.said)))

    def suspicious(self) -> tuple[Tally, ...]:
        """Return the number of suspicious jobs by reason: duplicates, bursts, and jobs outside the bulk."""
        tallies = Tallies()
        for row in self._duplicates():
            tallies.add(DUPLICATE, self._place(row))
        _, first_rows, counts = np.unique(np.floor(self.times), return_index=True, return_counts=True)
        for index in np.flatnonzero(counts >= BURST).tolist():
            tallies.add(IN_BURST, self._place(first_rows[index]), int(counts[index]))
        if self.num_jobs >= BULK_JOBS:
            self._find_outside_bulk(tallies)
        return tallies.all()

    def _place(self, row: int) -> Place:
        """Return the place of the job of a row in the log."""
        file = self._table["file"][int(row)].as_py()
        line = self._table["line"][int(row)].as_py()
        return Place(self._files[file], line)

    def _find_outside_bulk(self, tallies: Tallies) -> None:
        """Add the jobs before and after the bulk to the findings."""
        # At least 1, so that a single job far away is reported in a trace of fewer than 100 jobs.
        few = max(1, int(self.num_jobs * BULK_SHARE))
        after_pause = np.flatnonzero(np.diff(self.times) > BULK_GAP) + 1  # rows of the first jobs after pauses
        # The pause that is nearest to the bulk, so that all jobs before it are reported together.
        early = after_pause[after_pause <= few]
        if early.size:
            bulk_start = int(early[-1])
            tallies.add(BEFORE_BULK, self._place(bulk_start - 1), bulk_start)
        late = after_pause[after_pause >= self.num_jobs - few]
        if late.size:
            bulk_end = int(late[0])
            tallies.add(AFTER_BULK, self._place(bulk_end), self.num_jobs - bulk_end)

    def _duplicates(self) -> list[int]:
        """Return the rows whose names occur in an earlier row, in order of the names."""
        # A sort needs less memory than a set of all names of a log with millions of jobs.
        order = pc.sort_indices(self._table["job"])  # stable
        names = self._table["job"].take(order)
        same = pc.equal(names.slice(1), names.slice(0, self.num_jobs - 1)).to_numpy()
        return order.to_numpy()[1:][same].tolist()  # type: ignore[no-any-return]


def _quantiles(values: NDArray[np.float64]) -> tuple[Quantile, ...]:
    """Return the quantiles that the report lists; empty without values."""
    if not values.size:
        return ()
    # This method returns times that occur in the log, not means of two times.
    exact = np.quantile(values, QUANTILES, method="inverted_cdf").tolist()
    return tuple(map(Quantile, QUANTILES, exact))


BETWEEN_ODDITIES = "\n"
END_OF_CORE = 1 + len(CORE_COLUMNS)  # position behind the last core column among the fields of a job
BATCH_ROWS = 1 << 13  # rows held as Python values before they become a batch of columns
GROUP_ROWS = 1 << 16  # rows of one row group of the Parquet file
MAX_DAYS = 10_000  # longest trace whose report also lists the days without a submission [days]


def import_trace(  # noqa: PLR0913  (options of one command)
    format_name: str,
    source: Path,
    destination: Path,
    *,
    skip_bad: bool = False,
    cluster_gpus: int | None = None,
    time_zone: str | None = None,
    columns: str = "",
    unit: str = GPU,
) -> ImportReport:
    """Read a log, write it as one Parquet file with the columns of `polluxsim.logs.trace_table`, and return a report.

    The trace is sorted by submission, because replays need this order, and the report needs it for gaps and bursts.
    The jobs are Arrow columns in memory.

    Raise PolluxSimError if an argument is invalid, the source cannot be read, a bad row is not skipped, no job is left,
    a value is beyond the limits of a trace, or the destination cannot be written. In this case no new file is written.

    Parameters
    ----------
    format_name
        Name of a format in `polluxsim.logs.formats.FORMATS`.
    source
        The log: a file, or a folder with files under their usual names.
    destination
        The file to write. The file appears when it is complete.
    skip_bad
        Whether rows that cannot be read are counted and left out; otherwise the first one ends the import.
    cluster_gpus
        Size of the cluster, for the report; None takes the size in the log or the format [GPUs].
    time_zone
        Time zone for times that state no zone (IANA name); None takes the format's assumption.
    columns
        Map of the columns of a table, as KEY=COLUMN,KEY=COLUMN; see `polluxsim.logs.formats.table`.
    unit
        Resources that count as GPUs, as NAME,NAME*GPUS; see `polluxsim.logs.formats.base.parse_units`.
    """
    trace_format = find_format(format_name)
    # Before a row is read, so that a wrong kind of file is named instead of its first bad row.
    for path in source_files(source, trace_format.files):
        check_opening(path, format_name)
    if unit != GPU:
        trace_format = trace_format.counting(parse_units(unit))
    trace_format = trace_format.for_source(source, columns)
    zone = _zone(trace_format, time_zone)
    check("cluster_gpus", cluster_gpus, PositiveInt | None)
    # The ending also prevents overwriting a log by mistake.
    if destination.suffix != ".parquet" or destination.is_dir():
        raise InvalidInputError(f"{destination}: the name of the file to write must end in .parquet")
    if cluster_gpus is None:
        cluster_gpus = trace_format.cluster_gpus(source)
    is_assumed = time_zone is None and trace_format.clock is LogClock.LOCAL
    importing = _Import(trace_format, source, destination, zone, is_assumed, cluster_gpus)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        return importing.run(trace_format.read(source, zone), skip_bad)
    except OSError as error:
        raise InvalidInputError(f"{destination}: cannot be written ({error.strerror or error})") from None


def _zone(trace_format: Format, name: str | None) -> tzinfo:
    """Return the time zone with a name, by default the format's.

    Raise InvalidConfigError if there is no such zone, or a zone is named for a log with relative times.
    """
    is_relative = trace_format.clock is LogClock.RELATIVE
    if name is None and is_relative:
        return UTC
    if name is None:
        return _zone(trace_format, trace_format.time_zone)
    if is_relative:
        raise InvalidConfigError(
            f"time_zone is {name!r}, must be absent, because the times of {trace_format.name} logs are seconds from an "
            "unknown start"
        )
    zone = zone_named(name)
    if zone is None:
        raise invalid_setting("time_zone", name, "a name like Europe/Berlin or UTC")
    return zone


class _Start(NamedTuple):
    """First submission of a trace, as seconds, as text and as local time."""

    seconds: float  # [s on the clock of the log]
    text: str  # an ISO time, or the second of the log
    local: datetime | None  # None on a clock without dates

    @property
    def since_midnight(self) -> float:
        """Return the time since the midnight before [s]; 0 on a clock without dates."""
        if self.local is None:
            return 0.0
        # Local time without its zone, so that days on which summer time begins or ends also have 24 h.
        wall = self.local.replace(tzinfo=None)
        return (wall - wall.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()

    def day(self, number: int) -> str:
        """Return the date of a day counted from the first; its number without dates, or beyond the year 9999."""
        if self.local is None:
            return str(number)
        try:
            return str(self.local.date() + timedelta(days=number))
        except OverflowError:  # beyond the year 9999
            return str(number)


def _start(seconds: float, clock: LogClock, zone: tzinfo) -> _Start:
    """Return the first submission, given its time on the clock of the log [s]."""
    if clock is LogClock.RELATIVE:
        return _Start(seconds, str(seconds), None)
    # A log may have a time that no calendar has, like one in milliseconds in a column of seconds.
    try:
        local = datetime.fromtimestamp(seconds, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return _Start(seconds, f"{seconds} s from 1970-01-01 UTC", None)
    return _Start(seconds, local.isoformat(), local)


@dataclass
class _Import:
    """The state of one import."""

    format: Format
    source: Path
    destination: Path
    zone: tzinfo
    zone_assumed: bool
    cluster_gpus: int | None  # GPUs of the cluster; None if unknown
    files: dict[str, int] = field(default_factory=dict)  # index of each file, by name
    rows_read: int = 0
    dropped: Tallies = field(default_factory=Tallies)
    bad: Tallies = field(default_factory=Tallies)
    odd: Tallies = field(default_factory=Tallies)

    def run(self, entries: Iterator[Entry], skip_bad: bool) -> ImportReport:
        """Import the rows, write the trace and return the report."""
        # Three columns hold the suspicious values of each job and its place in the source, for the report only.
        fields = [(column.name, column.kind) for column in columns_of(self.format.extras)]
        schema = pa.schema([*fields, ("oddities", pa.string()), ("file", pa.int32()), ("line", pa.int64())])
        table = pa.Table.from_batches(_batches(self._rows(entries, skip_bad), schema), schema)
        if not table.num_rows:
            raise self._no_job()
        table = table.take(pc.sort_indices(table["submit_time"]))  # stable: jobs with the same time keep their order
        # Before the oddities are counted, because a repeat has those of its job again.
        table = self._without_repeats(table)
        self._count_oddities(table)
        with atomic_write(self.destination) as temporary:
            return self._write(table, temporary)

    def _no_job(self) -> InvalidInputError:
        """Return the error about a log without jobs, with the reasons why its rows are none."""
        problem = f"{self.source}: no job with {unit_word(self.format.units)} in {self.rows_read} rows"
        reasons = [f"{tally.count} × {tally.reason}" for tally in (*self.dropped.all(), *self.bad.all())]
        if reasons:
            problem += f": {'; '.join(reasons)}"
        return InvalidInputError(problem)

    def _without_repeats(self, table: pa.Table) -> pa.Table:
        """Return the jobs without the repeats of runs, and count these as dropped.

        Outputs that overlap in time repeat the jobs that ran in both periods. Rows with equal job, submission and start
        are one run. The row of the run's end stays, or the row with the longest duration if none has the end.
        """
        # Without starts, runs of one job cannot be told apart. Most logs have each name once, so nothing is sorted.
        if "queueing_delay" not in table.column_names or pc.count_distinct(table["job"]).as_py() == table.num_rows:
            return table
        is_running = pc.fill_null(pc.equal(table["status"], JobStatus.RUNNING.value), False)
        keys = table.select(["job", "submit_time", "queueing_delay", "duration"])
        keys = keys.append_column("is_running", is_running).append_column("row", pa.array(range(table.num_rows)))
        # The row to keep is the last one of its run in this order.
        order = [(name, "ascending") for name in ("job", "submit_time", "queueing_delay")]
        order += [("is_running", "descending"), ("duration", "ascending"), ("row", "descending")]
        keys = keys.take(pc.sort_indices(keys, sort_keys=order))
        is_repeat = np.ones(table.num_rows - 1, dtype=bool)
        for name in ("job", "submit_time", "queueing_delay"):
            column = keys[name]
            same = pc.equal(column.slice(1), column.slice(0, table.num_rows - 1))
            # A job without a start cannot be told from another one of its name.
            is_repeat &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        repeats = keys["row"].to_numpy()[:-1][is_repeat]
        # In the order of the table, so that the report names the places of the earliest submissions.
        for row in np.sort(repeats).tolist():
            place = Place(list(self.files)[table["file"][row].as_py()], table["line"][row].as_py())
            self.dropped.add(RowReason.REPEATED, place)
        stays = np.ones(table.num_rows, dtype=bool)
        stays[repeats] = False
        return table.filter(pa.array(stays))

    def _count_oddities(self, table: pa.Table) -> None:
        """Count the suspicious values of the jobs, in the order of the source."""
        odd = table.select(["oddities", "file", "line"]).filter(pc.is_valid(table["oddities"]))
        odd = odd.take(pc.sort_indices(odd, sort_keys=[("file", "ascending"), ("line", "ascending")]))
        files = list(self.files)
        # Only odd rows become Python values; a log may have millions of other jobs.
        for row in odd.to_pylist():
            for reason in row["oddities"].split(BETWEEN_ODDITIES):
                self.odd.add(reason, Place(files[row["file"]], row["line"]))

    def _rows(self, entries: Iterable[Entry], skip_bad: bool) -> Iterator[tuple[object, ...]]:
        """Yield the cells of each job; count dropped rows, bad rows and suspicious values."""
        for entry in entries:
            self.rows_read += 1
            if isinstance(entry, LogJob):
                reasons = oddities(entry)
                if self.cluster_gpus is not None and entry.num_gpus > self.cluster_gpus:
                    reasons.append(self._too_large)
                file_name, line = entry.place
                # Numbers in place of names of files: a trace of many rows needs much less memory.
                file = self.files.setdefault(file_name, len(self.files))
                core = entry[1:END_OF_CORE]  # the fields from `job` to `attempts`
                odd = BETWEEN_ODDITIES.join(reasons) or None
                yield (*core, *entry.extras, odd, file, line)
            elif isinstance(entry, Dropped):
                self.dropped.add(entry.reason, entry.place)
            elif skip_bad:
                self.bad.add(entry.reason, entry.place)
            else:
                raise InvalidInputError(f"{entry}; correct the row, or leave out bad rows with --skip-bad")

    @property
    def _too_large(self) -> str:
        return f"more {unit_word(self.format.units)} than the {self.cluster_gpus} of the cluster"

    def _write(self, table: pa.Table, path: Path) -> ImportReport:
        """Write the sorted jobs, with submissions from the first one, and return the report."""
        start = _start(table["submit_time"][0].as_py(), self.format.clock, self.zone)
        word = unit_word(self.format.units)
        tallies = (*self.dropped.all(), *self.bad.all())
        left_out = json.dumps({tally.reason: tally.count for tally in tallies})
        of_log = (self.format.name, self.source.name, self.format.citation)
        info = TraceInfo(*of_log, self._zone_name, start.text, word, left_out)
        schema = trace_schema(self.format.extras, info)
        # Submissions count from the first one, because a replay begins at second 0.
        times = pa.array(table["submit_time"].to_numpy() - start.seconds)
        table = table.set_column(table.schema.get_field_index("submit_time"), "submit_time", times)
        # After the shift to second 0, because the limits hold for the times of the trace.
        for row, reason in beyond_limits(dict(zip(table.column_names, table.columns, strict=True))):
            log = self.source
            if self.source.is_dir():
                log /= list(self.files)[table["file"][row].as_py()]
            line = table["line"][row].as_py()
            raise bad_line(log, line, f"{reason} in the trace; correct the row, or remove it")
        with path.open("wb") as file:  # pyarrow takes only names in UTF-8
            pq.write_table(table.select(schema.names).cast(schema), file, row_group_size=GROUP_ROWS)
        return self._report(Examination(table, list(self.files), start.since_midnight), start)

    @property
    def _zone_name(self) -> str:
        if self.format.clock is LogClock.RELATIVE:
            return ""
        return str(self.zone)

    def _report(self, examination: Examination, start: _Start) -> ImportReport:
        """Return the report on the jobs that are written and on the rows that are not."""
        suspicious = (*self.odd.all(), *examination.suspicious())
        days = examination.days()
        hours = sum(seconds for _, seconds in days.values()) / HOUR
        span = float(examination.times[-1])
        mean_load = None
        if span:  # a load needs a period
            mean_load = self._load(hours, span)
        is_known = ~np.isnan(examination.durations)
        num_gpus, counts = np.unique(examination.gpus, return_counts=True)
        return ImportReport(
            format=self.format.name,
            source=str(self.source),
            destination=str(self.destination),
            citation=self.format.citation,
            caveat=self.format.caveat,
            rows_read=self.rows_read,
            jobs_written=examination.num_jobs,
            dropped=self.dropped.all(),
            bad=self.bad.all(),
            time_zone=self._zone_name,
            time_zone_assumed=self.zone_assumed,
            unit=unit_word(self.format.units),
            origin_time=start.text,
            span=span,
            cluster_gpus=self.cluster_gpus,
            larger_than_cluster=self.odd.get(self._too_large),
            load=tuple(self._loads(days, start)),
            total_gpu_hours=hours,
            mean_load=mean_load,
            without_duration=int((~is_known).sum()),
            durations=_quantiles(examination.durations[is_known]),
            inter_arrivals=_quantiles(np.diff(examination.times)),
            gpu_counts=tuple(map(GpuCount, num_gpus.tolist(), counts.tolist())),
            gpu_types=examination.gpu_types(),
            suspicious=tuple(sorted(suspicious, key=lambda tally: (-tally.count, tally.reason))),
        )

    def _loads(self, loads: dict[int, tuple[int, float]], start: _Start) -> Iterator[DayLoad]:
        """Yield the load of each day, from the jobs and GPU time [GPU s] of `Examination.days`."""
        days: Sequence[int] = range(min(loads), max(loads) + 1)
        if len(days) > MAX_DAYS:  # a submission that is wrong by centuries must not list all days in between
            days = sorted(loads)
        for day in days:
            jobs, seconds = loads.get(day, (0, 0.0))
            yield DayLoad(start.day(day), jobs, seconds / HOUR, self._load(seconds / HOUR, DAY))

    def _load(self, gpu_hours: float, seconds: float) -> float | None:
        """Return GPU time relative to the capacity of the cluster in a period [s]; None if its size is unknown."""
        if self.cluster_gpus is None:
            return None
        return gpu_hours / (self.cluster_gpus * seconds / HOUR)


def _batches(rows: Iterator[tuple[object, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as columns. A log may be larger than the memory as Python values, and smaller as columns."""
    while batch := list(islice(rows, BATCH_ROWS)):
        columns = zip(zip(*batch, strict=True), schema.types, strict=True)
        yield pa.record_batch([pa.array(values, kind) for values, kind in columns], schema=schema)
