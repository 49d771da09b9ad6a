"""Tables as users write them, CSV or Parquet, read row by row with checks."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING

from polluxsim.common.errors import InvalidInputError, bad_line, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One row of a table, which knows where it stands; readers of logs say more kinds of cells, and other errors."""

    path: Path
    line: int  # of a CSV file, or row of a Parquet file, counted from 1
    values: Mapping[str, object]  # by column

    def value(self, column: str) -> object:
        """Return what stands in a column."""
        return self.values[column]

    def has(self, column: str) -> bool:
        """Return whether the column is there and says something: an empty cell is "", None or NaN."""
        value = self.values.get(column)
        return value is not None and value == value and value != ""  # noqa: PLR0124  (NaN is not itself)

    def text(self, column: str) -> str:
        """Return a name: text that is not empty."""
        value = self.value(column)
        if not isinstance(value, str) or not value.strip():
            raise self.error(column, "a name")
        return value.strip()

    def number(self, column: str, at_least: float = -math.inf, above: float = -math.inf) -> float:
        """Return a finite number within limits."""
        value = read_number(self.value(column))
        if value is None or value < at_least or value <= above:
            allowed = "a finite number"
            if at_least > -math.inf:
                allowed += f" ≥ {at_least:g}"
            if above > -math.inf:
                allowed += f" > {above:g}"
            raise self.error(column, allowed)
        return value

    def integer(self, column: str, at_least: int | None = None) -> int:
        """Return a whole number, of at least `at_least`."""
        value = read_number(self.value(column))
        if value is None or not value.is_integer() or (at_least is not None and value < at_least):
            raise self.error(column, "a whole number" if at_least is None else f"a whole number ≥ {at_least}")
        return int(value)

    def error(self, column: str, allowed: str) -> InvalidInputError:
        """Return the error that this row's `column` is not what is allowed."""
        return bad_line(
            self.path, self.line, f"column {column!r} is {short(self.values[column])}, allowed is {allowed}"
        )


def read_number(value: object) -> float | None:
    """Return the finite number that a cell says, as text or as a number; None if it says none.

    >>> read_number("2.50"), read_number("1_000"), read_number("١٢"), read_number(True)
    (2.5, None, None, None)
    """
    if isinstance(value, str):
        # float() also reads 1_000 and digits of other scripts, which no file means.
        if "_" in value or not value.isascii():
            return None
    elif isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file, or of a Parquet file where the name ends so.

    Raises
    ------
    InvalidInputError
        If the file is missing, is empty, is not of its format, or lacks one of `columns`.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
    empty = True
    for row in rows:
        if empty and (missing := [name for name in columns if name not in row.values]):
            raise bad_line(path, 1, f"missing column {', '.join(map(repr, missing))}, needed are {', '.join(columns)}")
        empty = False
        yield row
    if empty:
        raise InvalidInputError(f"{path}: no rows, needed are {', '.join(columns)} in a header and a row for each")


def _csv_rows(path: Path) -> Iterator[Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header):
                raise bad_line(path, 1, "a column name stands twice in the header")
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise bad_line(path, reader.line_num, f"{len(fields)} fields, the header has {len(header)} columns")
                yield Row(path, reader.line_num, dict(zip(header, fields, strict=True)))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not a UTF-8 text file ({error.reason} at byte {error.start})") from None
    except csv.Error as error:
        raise bad_line(path, reader.line_num, f"not CSV: {error}") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa  # noqa: PLC0415  (slow to load, and CSV needs none of it)
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        # Values that Python cannot hold (broken UTF-8, far-off dates) are a ValueError or an OverflowError.
        records = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from None
    yield from (Row(path, number, record) for number, record in enumerate(records, start=1))
