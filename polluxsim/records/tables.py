"""Write and read records as Parquet tables, with the unit of each column in the schema."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidInputError, bad_line, one_of, short
from polluxsim.common.parquet import read_parquet
from polluxsim.common.tables import reading_parquet
from polluxsim.hardware.clusters import MOST_GPUS, MOST_NODES
from polluxsim.records.columns import Records, expanded
from polluxsim.records.completeness import REMEDY
from polluxsim.records.results import AllocationRecord, JobRecord, RecordColumn, SharingRecord, Status, columns_of

_RecordT = TypeVar("_RecordT", bound=NamedTuple)

FORMAT_VERSION = 1

LATEST = 1e16  # Upper bound of times in a run [s]. From this time on, adding a second changes nothing.
MOST_GPU_SECONDS = LATEST * MOST_GPUS * MOST_NODES  # [GPU s]

_MOST = {"s": LATEST, "GPU s": MOST_GPU_SECONDS}

_LARGEST = 1e100  # upper bound of figures in other units, whose sums and squares are still finite

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
    """Return the Parquet schema of a type of record, with units."""
    fields = [
        pa.field(name, _ARROW_TYPES[column.type], metadata=column.unit and {"unit": column.unit})
        for name, column in columns_of(record_type).items()
    ]
    return pa.schema(fields, metadata={"polluxsim": record_type.__name__, "format": str(FORMAT_VERSION)})


def write_records(path: Path, record_type: type[_RecordT], records: Sequence[_RecordT]) -> None:
    """Write records of one type to a Parquet file, with the units of the columns."""
    schema = schema_of(record_type)
    if not isinstance(records, Records):
        records = Records(record_type, records)
    arrays = []
    for stored, field in zip(records.columns, schema, strict=True):
        column = expanded(stored)
        # An array of numbers is a buffer already, so it needs no copy.
        values = column if isinstance(column, array) else list(column)
        arrays.append(arrow_column(values, field.type))
    with path.open("wb") as file:  # pyarrow takes only names in UTF-8
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, compression="zstd")


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of 64-bit numbers, of text, of lists of these, or of maps from text to numbers.

    Numbers and texts may be None. Rows of lists and maps are sequences of items or of pairs. The column is built from
    buffers, because `pyarrow.array` loads pandas, which takes 0.3 s.
    """
    if isinstance(kind, pa.ListType):
        items = arrow_column(list(chain.from_iterable(values)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[items])
    if isinstance(kind, pa.MapType):
        pairs = list(chain.from_iterable(values))
        entry = kind.field(0).type
        keys = arrow_column([key for key, _ in pairs], entry.field(0).type)
        items = arrow_column([item for _, item in pairs], entry.field(1).type)
        entries = pa.Array.from_buffers(entry, len(pairs), [None], children=[keys, items])
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[entries])
    validity = None  # one bit for each value; a column without missing values needs none
    # An array of numbers has no missing values.
    if isinstance(values, list) and None in values:
        is_present = np.array([value is not None for value in values])
        validity = pa.py_buffer(np.packbits(is_present, bitorder="little"))
    if kind == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(kind, len(texts), [validity, _offsets(texts), pa.py_buffer(b"".join(texts))])
    if validity is not None:
        # The bit says that the value is missing, but its place still needs a number.
        values = [0 if value is None else value for value in values]
    numbers = np.asarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(numbers)])


def _offsets(rows: Sequence[Collection[Any]]) -> pa.Buffer:
    """Return the start of each row, and the end of the last row, as a buffer of 32-bit numbers."""
    return pa.py_buffer(np.fromiter(accumulate(map(len, rows), initial=0), np.int32, len(rows) + 1))


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Pause the garbage collector within the block."""
    # It would visit each of millions of new records again and again, and records are not part of cycles.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@nothing_collected()
def read_records(path: Path, record_type: type[_RecordT]) -> tuple[_RecordT, ...]:
    """Read and check records. Columns that the file lacks get their defaults.

    Raise InvalidInputError if the file is not a table of these records, or a run could not have written a value.
    """
    import pyarrow.compute as pc

    schema = schema_of(record_type)
    with reading_parquet(path, "not a table of a polluxsim run", remedy=f"; {REMEDY}"):
        table = _completed(read_parquet(path), schema, record_type._field_defaults)
        # Columns that a newer version wrote are left out.
        table = table.select(schema.names).cast(schema)
        # A damaged file can have offsets beyond its buffers, and reading such values could end the process.
        table.validate(full=True)
    declared = columns_of(record_type).items()
    columns = [_values(path, name, table.column(name), column) for name, column in declared]
    # Both columns state one placement, the nodes and the GPUs on them.
    if record_type in (AllocationRecord, SharingRecord):
        num_nodes = pc.list_value_length(table.column("nodes"))
        num_entries = pc.list_value_length(table.column("gpus"))
        row = pc.index(pc.equal(num_nodes, num_entries), value=False).as_py()  # -1 if all lengths are equal
        if row >= 0:
            raise _bad(path, row + 1, "gpus", table.column("gpus")[row].as_py(), "as long as nodes")
    if record_type is SharingRecord:
        _check_sharing(path, table)
    if record_type is JobRecord:
        _check_submitted(path, table)
    # What `_make` does, without a call of Python for each.
    return tuple(map(partial(tuple.__new__, record_type), zip(*columns, strict=True)))


def _check_sharing(path: Path, table: pa.Table) -> None:
    """Raise InvalidInputError if a number of a node or GPU is below 0, or a speed is not between 0 and that alone."""
    import pyarrow.compute as pc

    for name, largest, must in (("nodes", inf, "numbers ≥ 0"), ("gpus", inf, "numbers ≥ 0"), ("speed", 1.0, "0 to 1")):
        column = table.column(name).combine_chunks()
        numbers = column.values if isinstance(column, pa.ListArray) else column
        are_inside = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, largest))
        if not len(numbers) or pc.all(are_inside).as_py():
            continue
        # Only a damaged table pays for the search of the first row.
        for row, value in enumerate(_listed(column), start=1):
            figures = value if isinstance(value, tuple) else (value,)
            if not all(0 <= figure <= largest for figure in figures):
                raise _bad(path, row, name, value, must)


def _check_submitted(path: Path, table: pa.Table) -> None:
    """Raise InvalidInputError if a job with submission time ∞, which was never submitted, started."""
    import pyarrow.compute as pc

    wrong = pc.and_(pc.is_inf(table.column("submit_time")), pc.is_valid(table.column("start_time")))
    row = pc.index(wrong, value=True).as_py()  # -1 if no row is wrong
    if row >= 0:
        raise _bad(path, row + 1, "submit_time", inf, "a time before start_time")


def _values(path: Path, name: str, column: pa.ChunkedArray, declared: RecordColumn) -> list[Any]:
    """Return the values of a column as records have them. Raise InvalidInputError for the first invalid one."""
    import pyarrow.compute as pc

    may_be_missing = type(None) in get_args(declared.type)
    if column.null_count and not may_be_missing:
        row = pc.index(column.is_null(), value=True).as_py()
        raise _bad(path, row + 1, name, None, "a value")
    if pa.types.is_floating(column.type):
        _check_figures(path, name, column, declared.unit)
    whole = column.combine_chunks()
    values = _listed(whole)
    if declared.type is Status:
        return _statuses(path, name, values)
    if isinstance(whole, pa.ListArray) and _items(whole)[-1].null_count:
        for row, items in enumerate(values):
            parts = chain.from_iterable(items) if isinstance(whole, pa.MapArray) else items
            if None in parts:
                raise _bad(path, row + 1, name, whole[row].as_py(), "without missing values")
    return values


def _check_figures(path: Path, name: str, column: pa.ChunkedArray, unit: str | None) -> None:
    """Raise InvalidInputError if a figure is beyond the bounds of its unit, or NaN."""
    import pyarrow.compute as pc

    largest = _MOST.get(unit or "", _LARGEST)
    inside = pc.less_equal(pc.abs(column), largest)
    if name in ("submit_time", "until"):  # ∞ for a job that was never submitted, and for a permanent outage
        inside = pc.or_(inside, pc.equal(column, inf))
    # A missing value is not outside the bounds.
    row = pc.index(pc.fill_null(inside, fill_value=True), value=False).as_py()
    if row >= 0:
        quantity = "a number of seconds" if unit == "s" else "a number"
        raise _bad(path, row + 1, name, column[row].as_py(), f"{quantity} up to {largest:g}")


def _listed(column: pa.Array) -> list[Any]:
    """Return the values of a column, with a tuple for each list, faster than `to_pylist`."""
    if isinstance(column, pa.ListArray):
        parts = list(map(_listed, _items(column)))
        items = parts[0]
        if len(parts) > 1:  # a map
            items = list(zip(*parts, strict=True))
        if not items:
            return [()] * len(column)
        # Slices of one list, because a call of Arrow for each row takes much longer.
        bounds = column.offsets.to_numpy().tolist()
        return [tuple(items[start:end]) for start, end in pairwise(bounds)]
    if not column.null_count:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    # With missing values, `to_numpy` would turn whole numbers into floats.
    objects = np.empty(len(column), object)
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    objects[is_valid] = column.drop_null().to_numpy(zero_copy_only=False).tolist()
    values: list[Any] = objects.tolist()
    return values


def _items(column: pa.ListArray) -> list[pa.Array]:
    """Return the items of all lists of a column: values, or names and values."""
    if isinstance(column, pa.MapArray):
        return [column.keys, column.items]
    return [column.values]


def _statuses(path: Path, name: str, values: Sequence[str]) -> list[Status]:
    """Return the statuses of texts. Raise InvalidInputError for the first text that is none."""
    status_of = {status.value: status for status in Status}
    for row, value in enumerate(values, start=1):
        if value not in status_of:
            raise _bad(path, row, name, value, one_of(value, status_of))
    return [status_of[value] for value in values]


def _bad(path: Path, row: int, name: str, value: object, requirement: str) -> InvalidInputError:
    return bad_line(path, row, f"column {name!r} is {short(value)}, must be {requirement}")


def _completed(table: pa.Table, schema: pa.Schema, defaults: Mapping[str, Any]) -> pa.Table:
    """Return the table with missing columns added, if they have a default. Older versions wrote fewer columns."""
    for name in defaults.keys() - set(table.schema.names):
        field = schema.field(name)
        table = table.append_column(field, arrow_column([defaults[name]] * table.num_rows, field.type))
    return table
