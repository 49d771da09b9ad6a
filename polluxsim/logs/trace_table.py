"""Traces as tables in Parquet: the jobs of an imported log, read back with checks, and tables of jobs, written."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.errors import InvalidInputError, bad_line
from polluxsim.files import appearing_whole
from polluxsim.hosts import UNLIMITED
from polluxsim.logs.formats.log_rows import MAX_GPUS
from polluxsim.logs.schema import CORE_COLUMNS, EXTRA_COLUMNS, TraceInfo, read_info, trace_schema
from polluxsim.types import MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


class TraceJob(NamedTuple):
    """One job as a trace tells it.

    Attributes
    ----------
    job
        Its name; unique in most logs, not in all.
    submit_time
        Submission, on the trace's clock [s].
    duration
        Time on its GPUs [s]; None if the trace does not say.
    num_gpus
        GPUs it held or asked for [GPUs; a fraction where they were shared].
    tenant, status, user
        Its virtual cluster, account or cluster, how it ended, and whose it was; None if the trace does not say.
    queueing_delay, time_limit
        How long it waited, and the longest time on GPUs that its user promised [s]; None if the trace does not say.
    partition
        The part of the cluster; None if the trace does not say.
    gpu_type
        Kinds of GPU given or asked for, with bars between them; None if the trace does not say.
    array_limit
        Jobs of its array that may run at once; None if all may.
    cpus, memory
        What it asked for [cores; GB]; None if the trace does not say.
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

    @property
    def gpu_time(self) -> float:
        """Return duration times GPUs [GPU s]; NaN if there is no duration."""
        return np.nan if self.duration is None else self.duration * self.num_gpus


def read_trace(path: Path) -> tuple[TraceInfo, list[TraceJob]]:
    """Return what a trace says of itself, and its jobs in order of submission [s since the first].

    Raises
    ------
    InvalidInputError
        If the file is no trace, or a row of it is not what it should be.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix != ".parquet":
        raise InvalidInputError(
            f"{path}: allowed is a trace in .parquet, as 'polluxsim import FORMAT LOG DST' writes it"
        )
    info = read_info(path)
    try:
        schema = _schema_of_jobs(pq.read_schema(path).names)
        table = pq.read_table(path, columns=schema.names).cast(schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    columns = {
        name: table[name] if name in schema.names else pa.chunked_array([pa.nulls(table.num_rows)])
        for name in TraceJob._fields
    }
    _check(path, columns)
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return info, [TraceJob(*row) for row in rows]


def _schema_of_jobs(present: Sequence[str]) -> pa.Schema:
    """Return the columns that jobs are read from: those of every trace, and of the others those that are there."""
    columns = (*CORE_COLUMNS, *(column for name, column in EXTRA_COLUMNS.items() if name in present))
    return pa.schema([(column.name, column.kind) for column in columns if column.name in TraceJob._fields])


def write_trace(jobs: Mapping[str, Sequence[object] | NDArray[np.generic]], info: TraceInfo, path: Path) -> None:
    """Write jobs as a trace, in order of submission as given; columns that are not given are empty."""
    schema = trace_schema((), info)
    count = len(jobs["job"])
    columns = [
        pa.array(jobs[field.name], field.type) if field.name in jobs else pa.nulls(count, field.type)
        for field in schema
    ]
    with appearing_whole(path) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary)


def origin_of(path: Path, info: TraceInfo) -> datetime:
    """Return the instant of a trace's second 0; raise InvalidInputError if its times are relative: nobody knows."""
    try:
        origin = datetime.fromisoformat(info.origin_time)
    except ValueError:
        origin = None
    if origin is None or origin.tzinfo is None:
        raise InvalidInputError(f"{path}: origin_time is {info.origin_time!r}, allowed is a trace with times of day")
    return origin


def _check(path: Path, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Check what no schema says; a value that is missing where it must not be shows as NaN."""
    limits = {
        "submit_time": MOST_SECONDS,
        "duration": MOST_SECONDS,
        "num_gpus": MAX_GPUS,
        "time_limit": MOST_SECONDS,
        "array_limit": MOST_SECONDS,
        "cpus": UNLIMITED,
        "memory": UNLIMITED,
    }
    for name, most in limits.items():
        values = columns[name].cast(pa.float64(), safe=False).to_numpy()  # unsafe: beyond 2⁵³ to the nearest
        good = (values >= 0) & (values <= most)
        allowed = f"a number from 0 to {most:g}"
        if name not in ("submit_time", "num_gpus"):
            good |= columns[name].is_null().to_numpy()
            allowed += ", or nothing"
        if not good.all():
            row = int(np.argmin(good))
            raise bad_line(path, row + 1, f"column {name!r} is {columns[name][row].as_py()!r}, allowed is {allowed}")
    if columns["job"].null_count:
        row = columns["job"].is_null().to_pylist().index(True)
        raise bad_line(path, row + 1, "column 'job' is None, allowed is a name")
