"""Traces in Parquet: read the jobs of an imported log with checks, and write jobs as a trace."""

from __future__ import annotations

from datetime import datetime
from sys import float_info
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
    """One job of a trace. Values that the trace does not state are None.

    Attributes
    ----------
    job
        Name, unique in most logs.
    submit_time
        Submission [s since the first submission].
    duration
        Time on GPUs [s].
    num_gpus
        GPUs that the job held or requested [GPUs; a fraction if they were shared].
    tenant, status, user
        Virtual cluster, account or cluster; state at the end; user.
    queueing_delay, time_limit
        Time from submission to the first start, and the user's limit of the time on GPUs [s].
    partition
        Part of the cluster.
    gpu_type
        GPU types that the job was given or requested, with bars between them.
    array_limit
        Jobs of its array that may run at once; None for all.
    cpus, memory
        Requested CPUs and memory [cores; GB].
    application
        Application, type or recurring name.
    priority, qos
        Priority, and quality of service or priority class.
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

    @property
    def gpu_time(self) -> float:
        """Return duration times GPUs [GPU s]; NaN if there is no duration."""
        return np.nan if self.duration is None else self.duration * self.num_gpus


def read_trace(path: Path) -> tuple[TraceInfo, list[TraceJob]]:
    """Return the metadata of a trace, and its jobs in order of submission.

    Raises
    ------
    InvalidInputError
        If the file is not a trace, or a row has an invalid value.
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
    """Return the columns of jobs: the columns of every trace, and the further columns that the file has."""
    columns = (*CORE_COLUMNS, *(column for name, column in EXTRA_COLUMNS.items() if name in present))
    return pa.schema([(column.name, column.kind) for column in columns if column.name in TraceJob._fields])


def write_trace(jobs: Mapping[str, Sequence[object] | NDArray[np.generic]], info: TraceInfo, path: Path) -> None:
    """Write jobs, which are in order of submission, as a trace. Missing columns are empty."""
    schema = trace_schema((), info)
    count = len(jobs["job"])
    columns = [
        pa.array(jobs[field.name], field.type) if field.name in jobs else pa.nulls(count, field.type)
        for field in schema
    ]
    with appearing_whole(path) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary)


def origin_of(path: Path, info: TraceInfo) -> datetime:
    """Return the instant of second 0 of a trace; raise InvalidInputError if its times are relative."""
    try:
        origin = datetime.fromisoformat(info.origin_time)
    except ValueError:
        origin = None
    if origin is None or origin.tzinfo is None:
        raise InvalidInputError(f"{path}: origin_time is {info.origin_time!r}, allowed is a trace with times of day")
    return origin


def _check(path: Path, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Check the limits that a schema cannot state. A missing value of a required column is NaN here."""
    limits = {
        "submit_time": (0.0, MOST_SECONDS),
        "duration": (0.0, MOST_SECONDS),
        "num_gpus": (0.0, MAX_GPUS),
        "time_limit": (0.0, MOST_SECONDS),
        "array_limit": (0.0, MOST_SECONDS),
        "cpus": (0.0, UNLIMITED),
        "memory": (0.0, UNLIMITED),
        "priority": (-float_info.max, float_info.max),
    }
    for name, (least, most) in limits.items():
        values = columns[name].cast(pa.float64(), safe=False).to_numpy()  # unsafe: beyond 2⁵³ to the nearest
        good = (values >= least) & (values <= most)
        allowed = f"a number from {least:g} to {most:g}"
        if name not in ("submit_time", "num_gpus"):
            good |= columns[name].is_null().to_numpy()
            allowed += ", or nothing"
        if not good.all():
            row = int(np.argmin(good))
            raise bad_line(path, row + 1, f"column {name!r} is {columns[name][row].as_py()!r}, allowed is {allowed}")
    if columns["job"].null_count:
        row = columns["job"].is_null().to_pylist().index(True)
        raise bad_line(path, row + 1, "column 'job' is None, allowed is a name")
