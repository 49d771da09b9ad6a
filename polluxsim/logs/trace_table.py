"""Traces, the Parquet files into which every cluster log is imported, with one row for each job in order of submission.

A trace has the columns of `CORE_COLUMNS`, followed by the columns of `EXTRA_COLUMNS` that its format has. The metadata
of a field contains its unit and meaning. The metadata of the schema contains the log, its time zone and the instant of
second 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from sys import float_info
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from polluxsim.common.dates import Origin
from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.common.files import atomic_write
from polluxsim.common.parquet import read_parquet, read_schema
from polluxsim.common.tables import reading_parquet
from polluxsim.hardware.hosts import UNLIMITED
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.log_rows import MAX_GPUS

VERSION = "1"  # version of these columns; a reader refuses other versions
PREFIX = "polluxsim."  # prefix of the keys in the metadata of a file


class Column(NamedTuple):
    """One column of a trace."""

    name: str
    kind: pa.DataType
    unit: str
    meaning: str
    nullable: bool = True


CORE_COLUMNS = (
    Column("job", pa.string(), "", "the job's name in the log", nullable=False),
    Column("submit_time", pa.float64(), "s", "submission, from the trace's first submission", nullable=False),
    Column("duration", pa.float64(), "s", "time on GPUs; empty if the log does not say"),
    Column("num_gpus", pa.float64(), "GPUs", "GPUs held or asked for; a fraction if shared", nullable=False),
    Column("user", pa.string(), "", "who submitted it"),
    Column("tenant", pa.string(), "", "virtual cluster, account or cluster"),
    Column("status", pa.string(), "", "how it ended: a value of JobStatus"),
    Column("attempts", pa.int64(), "1", "how often it was started"),
)
"""Columns of every trace, in order."""

EXTRA_COLUMNS = {
    column.name: column
    for column in (
        Column("application", pa.string(), "", "the model, application, type or name of the job"),
        Column("batch_size", pa.int64(), "examples", "total batch size asked for"),
        Column("iterations", pa.int64(), "1", "optimiser steps to do"),
        Column("num_nodes", pa.int64(), "1", "nodes it ran on (of its first attempt)"),
        Column("gpus_per_task", pa.int64(), "GPUs", "GPUs of a task or pod, which are on one node; 1 for anywhere"),
        Column("num_instances", pa.int64(), "1", "instances of the task"),
        Column("gpu_type", pa.string(), "", "kind of GPU given or asked for"),
        Column("cpus", pa.float64(), "cores", "CPUs asked for, of all its instances"),
        Column("memory", pa.float64(), "GB", "memory asked for, of all its instances"),
        Column("queueing_delay", pa.float64(), "s", "from submission to the first start"),
        Column("time_limit", pa.float64(), "s", "longest time on GPUs that its user promised; empty if none"),
        Column("partition", pa.string(), "", "part of the cluster that it was submitted to"),
        Column("priority", pa.float64(), "", "priority in the log; larger values go first"),
        Column("qos", pa.string(), "", "quality of service or priority class, by name"),
        Column("eligibility_delay", pa.float64(), "s", "from its user's submission to when it could start"),
        Column("array_limit", pa.int64(), "1", "jobs of its array that may run at once; empty if all may"),
        Column("usable_attempts", pa.int64(), "1", "attempts that held GPUs for a known time above 0"),
        Column("gpus_first", pa.int64(), "GPUs", "GPUs of the first attempt"),
        Column("gpus_max", pa.int64(), "GPUs", "most GPUs of any attempt"),
        Column("elapsed", pa.float64(), "s", "from the first attempt's start to the last one's end"),
        Column("gpu_time", pa.float64(), "GPU s", "GPUs times duration, summed over usable attempts"),
        Column("has_hole", pa.bool_(), "", "whether an attempt lacks its start or end"),
        Column("in_philly_csv", pa.bool_(), "", "whether the artifact's philly.csv would have the job"),
    )
}
"""Columns that a format may add, by name."""


@dataclass(frozen=True)
class TraceInfo:
    """Metadata of a trace."""

    format: str  # name of the format of the log
    source: str  # name of the file or folder of the log, without the path
    citation: str  # source and licence of logs of this format
    time_zone: str  # time zone of the log (IANA name); empty if its times are relative
    origin_time: str  # instant of second 0 in ISO format with an offset; if times are relative, the second of the log
    unit: str = "GPUs"  # what `num_gpus` counts
    left_out: str = "{}"  # number of rows of the log that are not in the trace, by reason, as a JSON object

    @property
    def num_left_out(self) -> dict[str, int]:
        """Return the number of rows of the log that are not in the trace, by reason; empty if it is unknown."""
        return dict(json.loads(self.left_out))


def columns_of(extras: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a trace with the further columns `extras`."""
    columns = list(CORE_COLUMNS)
    columns += [EXTRA_COLUMNS[name] for name in extras]
    return tuple(columns)


def trace_schema(extras: Sequence[str], info: TraceInfo) -> pa.Schema:
    """Return the Arrow schema of a trace, with all its metadata."""
    about = {"schema": VERSION, "sorted_by": "submit_time", **asdict(info)}
    metadata = {PREFIX + key: value for key, value in about.items()}
    # Metadata of each column, so that a reader without polluxsim also knows units and meanings.
    arrow_fields = []
    for name, kind, unit, meaning, nullable in columns_of(extras):
        arrow_fields.append(pa.field(name, kind, nullable=nullable, metadata={"unit": unit, "meaning": meaning}))
    return pa.schema(arrow_fields, metadata=metadata)


def read_info(path: Path) -> TraceInfo:
    """Return the metadata of a trace.

    Raise InvalidInputError if the file cannot be read, is not a trace of this version, or lacks metadata.
    """
    with reading_parquet(path):
        schema = read_schema(path)
    # Another program may have added metadata that are not UTF-8.
    about: dict[str, str] = {}
    for key, value in (schema.metadata or {}).items():
        about[key.decode(errors="replace")] = value.decode(errors="replace")
    version = about.get(PREFIX + "schema")
    if version != VERSION:
        raise InvalidInputError(f"{path}: schema version is {version!r}, must be {VERSION!r}; import the log again")
    values: dict[str, str] = {}
    missing = []
    for field in fields(TraceInfo):
        key_of_field = PREFIX + field.name
        if key_of_field in about:
            values[field.name] = about[key_of_field]
        elif field.default is MISSING:  # older versions did not write the fields that have a default
            missing.append(key_of_field)
    if missing:
        raise InvalidInputError(f"{path}: metadata lack {', '.join(missing)}; import the log again")
    return TraceInfo(**values)


class TraceJob(NamedTuple):
    """One job of a trace: the columns of `CORE_COLUMNS` and `EXTRA_COLUMNS` that replays use, in their units.

    Values that the trace does not state are None. `gpu_type` may have several types, with bars between them.
    """

    job: str
    submit_time: float
    duration: float | None
    num_gpus: float
    tenant: str | None = None
    status: str | None = None
    user: str | None = None
    queueing_delay: float | None = None
    time_limit: float | None = None
    partition: str | None = None
    gpu_type: str | None = None
    array_limit: int | None = None
    cpus: float | None = None
    memory: float | None = None
    application: str | None = None
    priority: float | None = None
    qos: str | None = None
    num_nodes: int | None = None
    gpus_per_task: int | None = None
    eligibility_delay: float | None = None

    @property
    def gpu_time(self) -> float:
        """Return duration times GPUs [GPU s]; NaN if there is no duration."""
        if self.duration is None:
            return np.nan
        return self.duration * self.num_gpus


def read_trace(path: Path) -> tuple[TraceInfo, list[TraceJob]]:
    """Return the metadata of a trace, and its jobs in the order of its rows, which is that of submission.

    Raise InvalidInputError if the file is not a trace, or a row has an invalid value.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    if path.suffix != ".parquet":
        advice = "make it with polluxsim log import FORMAT LOG -o FILE.parquet"
        raise InvalidInputError(f"{path}: the file must be a trace in .parquet; {advice}")
    info = read_info(path)
    with reading_parquet(path, "cannot be read", remedy=""):
        names = read_schema(path).names
        columns_of_file = columns_of([name for name in EXTRA_COLUMNS if name in names])
        # Only the columns of `TraceJob`, because a trace may have many columns that no replay needs.
        schema = pa.schema(
            [(column.name, column.kind) for column in columns_of_file if column.name in TraceJob._fields]
        )
        table = read_parquet(path, schema.names).select(schema.names).cast(schema)
        table.validate(full=True)
    # Older traces lack columns. A column of nulls gives every job the same fields.
    columns: dict[str, pa.ChunkedArray] = {}
    for name in TraceJob._fields:
        if name in schema.names:
            columns[name] = table[name]
        else:
            columns[name] = pa.chunked_array([pa.nulls(table.num_rows)])
    _check(path, columns)
    values_by_column = [column.to_pylist() for column in columns.values()]
    return info, [TraceJob(*values) for values in zip(*values_by_column, strict=True)]


def write_trace(jobs: Mapping[str, Sequence[object] | NDArray[np.generic]], info: TraceInfo, path: Path) -> None:
    """Write the core columns of jobs, which are in order of submission, as a trace.

    `jobs` has the values by column, in the units of `CORE_COLUMNS`. Missing columns are empty, but `job`, `submit_time`
    and `num_gpus` must be there.
    """
    schema = trace_schema((), info)
    count = len(jobs["job"])
    columns = []
    for field in schema:
        if field.name in jobs:
            columns.append(pa.array(jobs[field.name], field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pq.write_table(pa.table(columns, schema=schema), file)


def origin_of(path: Path, info: TraceInfo) -> datetime:
    """Return the instant of second 0 of a trace.

    Raise InvalidInputError if the trace states no date and time with a zone, as one with relative times.
    """
    with suppress(ValueError):
        origin = datetime.fromisoformat(info.origin_time)
        # A date without a zone is not an instant, so it is refused like a text that is no date.
        if origin.tzinfo is not None:
            return origin
    must_be = "must be a date and time with a zone, like 2017-10-03T00:00:00+00:00; import the log again"
    raise InvalidInputError(f"{path}: origin_time is {info.origin_time!r}, {must_be}")


def dates_of(path: Path, info: TraceInfo) -> Origin | None:
    """Return the date of second 0 of a trace, in the time zone of its log; None if its times are relative.

    A first submission that no calendar has, which the trace states in seconds, counts as relative too. Raise
    InvalidInputError if there is no such time zone, or the trace states no valid instant of second 0.
    """
    if not info.time_zone or "s from" in info.origin_time:
        return None
    try:
        return Origin.of(origin_of(path, info), info.time_zone)
    except InvalidInputError as error:
        # `origin_of` names the path already.
        raise InvalidInputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _check(path: Path, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Raise InvalidInputError about the first value that a schema cannot rule out.

    This is a number beyond its limits, or a missing value of `job`, `submit_time` or `num_gpus`.
    """
    for row, reason in beyond_limits(columns):  # the first one suffices
        raise bad_line(path, row + 1, reason)
    if columns["job"].null_count:
        row = columns["job"].is_null().to_pylist().index(True)
        raise bad_line(path, row + 1, "column 'job' is None, must be a name")


def beyond_limits(columns: Mapping[str, pa.ChunkedArray]) -> Iterator[tuple[int, str]]:
    """Yield the first row with an invalid value for each column that has one: its number from 0, and the reason.

    A value is invalid if it is beyond the limits of a trace, or if a submission or a number of GPUs is missing.
    """
    limits = {
        "submit_time": (0.0, MOST_SECONDS),
        "duration": (0.0, MOST_SECONDS),
        "num_gpus": (0.0, MAX_GPUS),
        "time_limit": (0.0, MOST_SECONDS),
        "array_limit": (0.0, MOST_SECONDS),  # [jobs]; the bound only has to be large
        "cpus": (0.0, UNLIMITED),
        "memory": (0.0, UNLIMITED),
        "priority": (-float_info.max, float_info.max),
        "num_nodes": (0.0, MAX_GPUS),
        "gpus_per_task": (0.0, MAX_GPUS),
    }
    for name, (lowest, highest) in limits.items():
        if name not in columns:
            continue
        values = columns[name].cast(pa.float64(), safe=False).to_numpy()  # rounds integers above 2⁵³
        is_good = (values >= lowest) & (values <= highest)  # False for NaN, which a missing value becomes
        allowed = f"a number from {lowest:g} to {highest:g}"
        if name not in ("submit_time", "num_gpus"):
            is_good |= columns[name].is_null().to_numpy()
            allowed += ", or nothing"
        if not is_good.all():
            row = int(np.argmin(is_good))
            yield row, f"column {name!r} is {columns[name][row].as_py()!r}, must be {allowed}"
