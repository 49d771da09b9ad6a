"""Records as Parquet tables, with the unit of each column in its schema."""

from __future__ import annotations

import gc
from array import array
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidInputError, bad_line, short
from polluxsim.hardware.clusters import MOST_GPUS, MOST_NODES
from polluxsim.records.columns import Records
from polluxsim.records.results import UNITS, AllocationRecord, JobRecord, SharingRecord, Status, unit_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

_RecordT = TypeVar("_RecordT", bound=NamedTuple)

FORMAT_VERSION = 1

LATEST = 1e16
"""No run comes so far [s]: from there on, a second more is no later."""

MOST_GPU_SECONDS = LATEST * MOST_GPUS * MOST_NODES
"""[GPU s]"""

_MOST = {"s": LATEST, "GPU s": MOST_GPU_SECONDS}

_LARGEST = 1e100
"""The largest figure of any other unit: sums and squares of such are numbers still."""

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


def schema_of(record_type: type[NamedTuple]) -> pa.Schema:
    """Return the Parquet schema of a kind of record, with the unit of each column that has one."""
    fields = [
        pa.field(name, _ARROW_TYPES[hint], metadata=(unit := unit_of(record_type, name)) and {"unit": unit})
        for name, hint in get_type_hints(record_type).items()
    ]
    return pa.schema(fields, metadata={"polluxsim": record_type.__name__, "format": str(FORMAT_VERSION)})


def write_records(path: Path, record_type: type[_RecordT], records: Sequence[_RecordT]) -> None:
    """Write records of one kind, a row each."""
    schema = schema_of(record_type)
    if not isinstance(records, Records):
        records = Records(record_type, records)
    columns = (column if isinstance(column, array) else list(column) for column in records.columns)
    arrays = [arrow_column(column, field.type) for column, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of 64-bit numbers, of text, of lists of these, or of maps from text to numbers.

    Numbers and texts may be None; rows of lists and maps are sequences of items, or of pairs. It is made of buffers, as
    `pyarrow.array` loads pandas first, which takes 0.3 s.
    """
    if isinstance(kind, pa.ListType):
        items = arrow_column(list(chain.from_iterable(values)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[items])
    if isinstance(kind, pa.MapType):
        pairs, entry = list(chain.from_iterable(values)), kind.field(0).type
        parts = [arrow_column([pair[place] for pair in pairs], entry.field(place).type) for place in range(2)]
        entries = pa.Array.from_buffers(entry, len(pairs), [None], children=parts)
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[entries])
    missing = [value is None for value in values] if isinstance(values, list) else []
    present = pa.py_buffer(np.packbits(~np.array(missing), bitorder="little")) if any(missing) else None
    if kind == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(kind, len(texts), [present, _offsets(texts), pa.py_buffer(b"".join(texts))])
    there = [0 if value is None else value for value in values] if present else values
    numbers = np.asarray(there, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(numbers)])


def _offsets(rows: Sequence[Collection[Any]]) -> pa.Buffer:
    """Return where each row begins, and where the last one ends."""
    return pa.py_buffer(np.fromiter(accumulate(map(len, rows), initial=0), np.int32, len(rows) + 1))


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Keep the collector from going through all records again and again: none is part of a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@nothing_collected()
def read_records(path: Path, record_type: type[_RecordT]) -> tuple[_RecordT, ...]:
    """Read records back, all of them checked; columns that the file has not have their defaults.

    Raises
    ------
    InvalidInputError
        If the file is no such table, or a value is none that a run could have written.
    """
    import pyarrow.compute as pc

    schema = schema_of(record_type)
    try:
        with pq.ParquetFile(path) as file:  # `read_table` loads pandas for it
            table = _completed(file.read(), schema, record_type._field_defaults).select(schema.names).cast(schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InvalidInputError(f"{path}: not a table of a polluxsim run ({str(error).splitlines()[0]})") from None
    columns = [_values(path, name, table.column(name), hint) for name, hint in get_type_hints(record_type).items()]
    if record_type in (AllocationRecord, SharingRecord):
        lengths = [pc.list_value_length(table.column(name)) for name in ("nodes", "gpus")]
        if (row := pc.index(pc.equal(*lengths), value=False).as_py()) >= 0:
            raise _bad(path, row + 1, "gpus", table.column("gpus")[row].as_py(), "is a value for each of nodes")
    if record_type is SharingRecord:
        _check_sharing(path, table)
    if record_type is JobRecord:
        _check_submitted(path, table)
    # What `_make` does, without a call of Python for each.
    return tuple(map(partial(tuple.__new__, record_type), zip(*columns, strict=True)))


def _check_sharing(path: Path, table: pa.Table) -> None:
    """Check that GPUs have numbers, and that nobody is faster than alone."""
    import pyarrow.compute as pc

    for name, most, allowed in (("nodes", inf, "are from 0"), ("gpus", inf, "are from 0"), ("speed", 1.0, "is 0 to 1")):
        column = table.column(name).combine_chunks()
        numbers = column.values if isinstance(column, pa.ListArray) else column
        if not pc.all(pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, most))).as_py() and len(numbers):
            for row, value in enumerate(_listed(column), start=1):
                if not all(0 <= each <= most for each in (value if isinstance(value, tuple) else (value,))):
                    raise _bad(path, row, name, value, allowed)


def _check_submitted(path: Path, table: pa.Table) -> None:
    """Check that who was never submitted, which is written as ∞, never started."""
    import pyarrow.compute as pc

    wrong = pc.and_(pc.is_inf(table.column("submit_time")), pc.is_valid(table.column("start_time")))
    if (row := pc.index(wrong, value=True).as_py()) >= 0:
        raise _bad(path, row + 1, "submit_time", inf, "is a time before start_time")


def _values(path: Path, name: str, column: pa.ChunkedArray, hint: Any) -> list[Any]:
    """Return a column's values as records have them, all of them checked."""
    import pyarrow.compute as pc

    if column.null_count and type(None) not in get_args(hint):
        raise _bad(path, pc.index(column.is_null(), value=True).as_py() + 1, name, None, "is a value")
    if pa.types.is_floating(column.type):
        _check_figures(path, name, column)
    whole = column.combine_chunks()
    values = _listed(whole)
    if hint is Status:
        return _statuses(path, name, values)
    if isinstance(whole, pa.ListArray) and _items(whole)[-1].null_count:
        row = next(row for row, items in enumerate(values) if _lacks_one(items))
        raise _bad(path, row + 1, name, whole[row].as_py(), "are values")
    return values


def _check_figures(path: Path, name: str, column: pa.ChunkedArray) -> None:
    """Check that all figures are numbers, and none is larger than a run's can be."""
    import pyarrow.compute as pc

    unit = UNITS.get(name)
    most = _MOST.get(unit or "", _LARGEST)
    inside = pc.less_equal(pc.abs(column), most)
    if name in ("submit_time", "until"):  # infinite of a job that was never submitted, and of an outage for good
        inside = pc.or_(inside, pc.equal(column, inf))
    if (row := pc.index(pc.fill_null(inside, fill_value=True), value=False).as_py()) >= 0:
        of = " of seconds" if unit == "s" else ""
        raise _bad(path, row + 1, name, column[row].as_py(), f"is a number{of} up to {most:g}")


def _listed(column: pa.Array) -> list[Any]:
    """Return the values of a column, a tuple for each list: what `to_pylist` does, but not one by one."""
    if isinstance(column, pa.ListArray):
        parts = list(map(_listed, _items(column)))
        items = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        ends = column.offsets.to_numpy().tolist()
        return [tuple(items[start:end]) for start, end in pairwise(ends)] if items else [()] * len(column)
    if not column.null_count:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    found = np.empty(len(column), object)
    found[column.is_valid().to_numpy(zero_copy_only=False)] = column.drop_null().to_numpy(zero_copy_only=False).tolist()
    values: list[Any] = found.tolist()
    return values


def _items(column: pa.ListArray) -> list[pa.Array]:
    """Return what all lists of a column hold, one after the other: values, or names and values."""
    return [column.keys, column.items] if isinstance(column, pa.MapArray) else [column.values]


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
        table = table.append_column(field, arrow_column([defaults[name]] * table.num_rows, field.type))
    return table
