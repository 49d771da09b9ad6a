"""The columns of a trace, into which every cluster log is imported: a row per job in order of submission.

A trace is a Parquet file with the columns of `CORE_COLUMNS`, followed by the columns of `EXTRA_COLUMNS` that its format
has. The metadata of a field has its unit and meaning. The metadata of the schema has the log, its time zone and the
instant of second 0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = "1"
"""Version of these columns. A reader refuses other versions."""

PREFIX = "polluxsim."
"""Prefix of the keys in the metadata of a file."""


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
    """Metadata of a trace.

    Parameters
    ----------
    format
        Name of the format of the log.
    source
        Name of the file or folder of the log, without the path.
    citation
        Source of such logs, and their licence.
    time_zone
        Time zone of the log (IANA name); empty if its times are relative.
    origin_time
        Instant of second 0 in ISO format with an offset; if times are relative, the second of the log.
    """

    format: str
    source: str
    citation: str
    time_zone: str
    origin_time: str


def columns_of(extras: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a trace with the further columns `extras`."""
    return (*CORE_COLUMNS, *(EXTRA_COLUMNS[name] for name in extras))


def trace_schema(extras: Sequence[str], info: TraceInfo) -> pa.Schema:
    """Return the Arrow schema of a trace, with all its metadata."""
    about = {"schema": VERSION, "sorted_by": "submit_time", **asdict(info)}
    fields = [
        pa.field(name, kind, nullable=nullable, metadata={"unit": unit, "meaning": meaning})
        for name, kind, unit, meaning, nullable in columns_of(extras)
    ]
    return pa.schema(fields, metadata={PREFIX + key: value for key, value in about.items()})


def read_info(path: Path) -> TraceInfo:
    """Return the metadata of a trace.

    Raises
    ------
    InvalidInputError
        If the file is not a trace of this version.
    """
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from None
    about = {
        key.decode(errors="replace"): value.decode(errors="replace") for key, value in (schema.metadata or {}).items()
    }
    if (found := about.get(PREFIX + "schema")) != VERSION:
        raise InvalidInputError(f"{path}: schema version is {found!r}, allowed is {VERSION!r}, an imported trace")
    names = list(TraceInfo.__dataclass_fields__)
    if missing := [PREFIX + name for name in names if PREFIX + name not in about]:
        raise InvalidInputError(f"{path}: metadata lack {', '.join(missing)}, needed is an imported trace")
    return TraceInfo(**{name: about[PREFIX + name] for name in names})
