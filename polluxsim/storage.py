"""A run's folder: Parquet tables with units in their schemas and a run.json that makes the run complete."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polluxsim.columns import Records
from polluxsim.errors import InvalidInputError, bad_line, short
from polluxsim.files import appearing_together
from polluxsim.records import (
    UNITS,
    AllocationRecord,
    JobRecord,
    ReasonRecord,
    Result,
    RoundRecord,
    Status,
    TimingRecord,
    unit_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_RecordT = TypeVar("_RecordT", JobRecord, RoundRecord, AllocationRecord, TimingRecord, ReasonRecord)

RUN_FILE = "run.json"
REASONS_FILE = "reasons.parquet"
RUN_FILES = (RUN_FILE, "jobs.parquet", "rounds.parquet", "allocations.parquet", "timing.parquet", REASONS_FILE)
"""All files of a run's folder."""

FORMAT_VERSION = 1

LATEST = 1e16
"""No run comes so far [s]: from there on, a second more is no later."""

# The Parquet type of every type that a record's field may have.
_ARROW_TYPES = {
    str: pa.string(),
    Status: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    float | None: pa.float64(),
    int | None: pa.int64(),
    str | None: pa.string(),
    tuple[int, ...]: pa.list_(pa.int64()),
    tuple[str, ...]: pa.list_(pa.string()),
    tuple[tuple[str, float], ...]: pa.map_(pa.string(), pa.float64()),
}


@dataclass(frozen=True)
class Run:
    """A finished run as its folder tells it.

    Attributes
    ----------
    name
        The folder's name.
    info
        Contents of run.json: config, seed, versions, summary.
    result
        The records, without wall-clock times.
    """

    name: str
    info: Mapping[str, Any]
    result: Result


def schema_of(record_type: type[NamedTuple]) -> pa.Schema:
    """Return the Parquet schema of a kind of record, with the unit of each column that has one."""
    hints = get_type_hints(record_type)
    return pa.schema(
        [
            pa.field(
                name,
                _ARROW_TYPES[hint],
                metadata=None if (unit := unit_of(record_type, name)) is None else {"unit": unit},
            )
            for name, hint in hints.items()
        ],
        metadata={"polluxsim": record_type.__name__, "format": str(FORMAT_VERSION)},
    )


def write_run(folder: Path, result: Result, info: Mapping[str, Any]) -> None:
    """Write a run, whole or not at all; a folder that has a run.json holds a finished run.

    Parameters
    ----------
    folder
        Where to; made if it is not there. A run that was there before is replaced.
    result
        The records.
    info
        What run.json is to say.
    """
    text = _json({"end_time": result.end_time, "standstill": result.standstill, **info})
    with appearing_together(folder, last=RUN_FILE) as temporary:
        _write(temporary / "jobs.parquet", JobRecord, result.job_records)
        _write(temporary / "rounds.parquet", RoundRecord, result.round_records)
        _write(temporary / "allocations.parquet", AllocationRecord, result.allocation_records)
        _write(temporary / "timing.parquet", TimingRecord, result.timing_records)
        _write(temporary / REASONS_FILE, ReasonRecord, result.reason_records)
        (temporary / RUN_FILE).write_text(text + "\n", encoding="utf-8")


def _json(value: Mapping[str, Any]) -> str:
    """Return values as JSON; what is infinite becomes a number too large for any float, as JSON has no other word.

    >>> json.loads(_json({"threshold": float("-inf")}))
    {'threshold': -inf}
    """
    marks = {mark: f"{sign}1e999" for mark, sign in ((f"{uuid4()}", ""), (f"{uuid4()}", "-"))}
    plus, minus = marks

    def marked(item: Any) -> Any:
        if isinstance(item, Mapping):
            return {name: marked(part) for name, part in item.items()}
        if isinstance(item, list | tuple):
            return [marked(part) for part in item]
        return (plus if item > 0 else minus) if isinstance(item, float) and isinf(item) else item

    text = json.dumps(marked(value), indent=2, sort_keys=True, allow_nan=False)
    for mark, number in marks.items():
        text = text.replace(f'"{mark}"', number)
    return text


def read_run(folder: Path) -> Run:
    """Read a run back; columns that were not recorded yet when it was written have their defaults.

    Raises
    ------
    InvalidInputError
        If the folder does not hold a finished run.
    """
    if not (folder / RUN_FILE).is_file():
        raise InvalidInputError(f"{folder}: not a finished run, needed is a folder with {RUN_FILE}")
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        end_time = info["end_time"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"{folder / RUN_FILE}: not what polluxsim writes ({error})") from None
    if type(end_time) not in (int, float) or not 0 <= end_time <= LATEST:
        what = f"end_time is {short(end_time)}, allowed is a number of seconds from 0 to {LATEST:g}"
        raise InvalidInputError(f"{folder / RUN_FILE}: {what}")
    result = Result(
        job_records=_read(folder / "jobs.parquet", JobRecord),
        round_records=_read(folder / "rounds.parquet", RoundRecord),
        allocation_records=_read(folder / "allocations.parquet", AllocationRecord),
        end_time=float(end_time),
        standstill=info.get("standstill"),
    )
    return Run(folder.resolve().name, info, result)


def read_timings(folder: Path) -> tuple[TimingRecord, ...]:
    """Read the wall-clock times of a run, which `read_run` leaves out.

    Raises
    ------
    InvalidInputError
        If the folder does not hold them.
    """
    return _read(folder / "timing.parquet", TimingRecord)


def read_reasons(folder: Path) -> tuple[ReasonRecord, ...] | None:
    """Read why a run's jobs got what they got; None for a run of before reasons were recorded."""
    path = folder / REASONS_FILE
    return _read(path, ReasonRecord) if path.is_file() else None


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names.

    >>> flat({"policy": {"p": -1.0, "search": "exact"}, "seed": 0})
    {'policy.p': -1.0, 'policy.search': 'exact', 'seed': 0}
    """
    result = dict[str, Any]()
    for name, value in values.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


def _write(path: Path, record_type: type[_RecordT], records: Sequence[_RecordT]) -> None:
    schema = schema_of(record_type)
    if not isinstance(records, Records):
        records = Records(record_type, records)
    arrays = [_array(column, field.type) for column, field in zip(records.columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    """Return a column for Parquet; plain numbers need not be looked at one by one."""
    if isinstance(column, array):
        return pa.array(np.asarray(column), type=kind)
    return pa.array(list(column), type=kind)


def _read(path: Path, record_type: type[_RecordT]) -> tuple[_RecordT, ...]:
    schema = schema_of(record_type)
    try:
        table = _completed(pq.read_table(path), schema, record_type._field_defaults).select(schema.names).cast(schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InvalidInputError(f"{path}: not a table of a polluxsim run ({str(error).splitlines()[0]})") from None
    hints = get_type_hints(record_type)
    columns = {name: _values(path, name, table.column(name), hint) for name, hint in hints.items()}
    if record_type is AllocationRecord:
        for row, (nodes, gpus) in enumerate(zip(columns["nodes"], columns["gpus"], strict=True), start=1):
            if len(nodes) != len(gpus):
                raise _bad(path, row, "gpus", list(gpus), "is a value for each of nodes")
    return tuple(map(record_type._make, zip(*columns.values(), strict=True)))


def _values(path: Path, name: str, column: pa.ChunkedArray, hint: Any) -> list[Any]:
    """Return a column's values as records have them, all of them checked."""
    if column.null_count and type(None) not in get_args(hint):
        raise _bad(path, pc.index(column.is_null(), value=True).as_py() + 1, name, None, "is a value")
    if UNITS.get(name) == "s":
        inside = pc.less_equal(pc.abs(column), LATEST)
        if name == "submit_time":  # infinite of a job that was never submitted
            inside = pc.or_(inside, pc.is_inf(column))
        inside = pc.fill_null(inside, fill_value=True)
        if (row := pc.index(inside, value=False).as_py()) >= 0:
            raise _bad(path, row + 1, name, column[row].as_py(), f"is a number of seconds up to {LATEST:g}")
    values: list[Any] = column.to_pylist()
    if hint is Status:
        return _statuses(path, name, values)
    if get_origin(hint) is not tuple:
        return values
    if (row := next((row for row, items in enumerate(values) if _lacks_one(items)), -1)) >= 0:
        raise _bad(path, row + 1, name, values[row], "are values")
    return list(map(tuple, values))


def _statuses(path: Path, name: str, values: Sequence[str]) -> list[Status]:
    known = {status.value: status for status in Status}
    for row, value in enumerate(values, start=1):
        if value not in known:
            raise _bad(path, row, name, value, f"are {', '.join(known)}")
    return [known[value] for value in values]


def _lacks_one(items: Sequence[Any]) -> bool:
    """Return whether a list has an empty place, or a map a name without a value."""
    return any(item is None or (isinstance(item, tuple) and None in item) for item in items)


def _bad(path: Path, row: int, name: str, value: object, allowed: str) -> InvalidInputError:
    return bad_line(path, row, f"column {name!r} is {short(value)}, allowed {allowed}")


def _completed(table: pa.Table, schema: pa.Schema, defaults: Mapping[str, Any]) -> pa.Table:
    """Return the table with the columns that it lacks, as far as they have a default."""
    for name in defaults.keys() - set(table.schema.names):
        field = schema.field(name)
        table = table.append_column(field, pa.array([defaults[name]] * table.num_rows, type=field.type))
    return table
