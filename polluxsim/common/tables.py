"""Read users' tables, CSV or Parquet, row by row with checks."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path

from polluxsim.common.errors import InvalidInputError, bad_line, reading, short


@dataclass(frozen=True)
class Row:
    """One row of a table with its place. Subclasses read other kinds of cells and raise other errors.

    The methods that read a cell raise InvalidInputError if its value is invalid.
    """

    path: Path  # of the table, for messages
    line: int  # line of a CSV file, or row of a Parquet file, counted from 1
    values: Mapping[str, object]  # by column

    def value(self, column: str) -> object:
        """Return the value of a column."""
        return self.values[column]

    def has(self, column: str) -> bool:
        """Return whether the column exists and is not empty ("", None or NaN)."""
        value = self.values.get(column)
        # An empty cell is "" in CSV, and None or NaN in Parquet.
        return value is not None and value == value and value != ""  # noqa: PLR0124  (NaN is not itself)

    def text(self, column: str) -> str:
        """Return text that is not blank, without the spaces around it.

        A whole int or float counts as its text, as in a CSV file.
        """
        value = as_name(self.value(column))
        if not isinstance(value, str) or not value.strip():
            raise self.error(column, "a name")
        return value.strip()

    def number(self, column: str, at_least: float = -math.inf, above: float = -math.inf) -> float:
        """Return a finite number ≥ `at_least` and > `above`."""
        value = read_number(self.value(column))
        if value is None or value < at_least or value <= above:
            requirement = "a finite number"
            if at_least > -math.inf:
                requirement += f" ≥ {at_least:g}"
            if above > -math.inf:
                requirement += f" > {above:g}"
            raise self.error(column, requirement)
        return value

    def integer(self, column: str, at_least: int | None = None) -> int:
        """Return a whole number, ≥ `at_least` if that is given."""
        value = read_number(self.value(column))
        is_too_small = value is not None and at_least is not None and value < at_least
        if value is None or not value.is_integer() or is_too_small:
            raise self.error(column, "a whole number" if at_least is None else f"a whole number ≥ {at_least}")
        return int(value)

    def error(self, column: str, requirement: str) -> InvalidInputError:
        """Return the error about a wrong value in a column, with the requirement that it violates."""
        problem = f"column {column!r} is {short(self.values[column])}, must be {requirement}"
        return bad_line(self.path, self.line, problem)


def as_name(value: object) -> object:
    """Return a whole number as the text that a CSV file would have, and other values unchanged.

    >>> as_name(1001), as_name(1001.0), as_name("a"), as_name(True)
    ('1001', '1001', 'a', True)
    """
    # True is a number for Python, but not the name "1".
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value).is_integer():
        return value
    return str(int(value) if isinstance(value, Integral) else int(float(value)))


def read_number(value: object) -> float | None:
    """Return the finite number in a cell of text or of a number; None for other cells.

    >>> read_number("2.50"), read_number("1_000"), read_number("١٢"), read_number(True)
    (2.5, None, None, None)
    """
    if isinstance(value, str):
        # float() also reads 1_000 and digits of other scripts, which are mistakes in files.
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
    """Yield the rows of a Parquet file, whose name ends in .parquet, or of a CSV file with any other name.

    Raise InvalidInputError if the file is missing, has no rows, is not in this format, or lacks one of `columns`.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)
    is_empty = True
    for row in rows:
        # All rows have the columns of the first.
        if is_empty:
            _check_columns(row, columns)
        is_empty = False
        yield row
    if is_empty:
        raise InvalidInputError(f"{path}: the file has no rows; it must have the columns {', '.join(columns)}")


def _check_columns(row: Row, columns: Sequence[str]) -> None:
    """Raise InvalidInputError if the first row of a file lacks one of `columns`."""
    missing = [name for name in columns if name not in row.values]
    if not missing:
        return
    separator = other_separator(row.values)
    if separator is not None:
        problem = f"the columns are separated by {separator}, must be separated by commas"
        raise bad_line(row.path, 1, f"{problem}; write the table again as CSV with commas")
    missing_names = ", ".join(map(repr, missing))
    raise bad_line(row.path, 1, f"missing column {missing_names}; the header must have {', '.join(columns)}")


SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # marks in place of commas, and their names


def other_separator(columns: Collection[str]) -> str | None:
    """Return what separates the columns of a file whose header was read as one column; None for other headers."""
    if len(columns) != 1:
        return None
    (header,) = columns
    for mark, name in SEPARATORS.items():
        if mark in header:
            return name
    return None


@contextmanager
def reading_parquet(
    path: Path, what: str = "not a Parquet file", remedy: str = "; give another file"
) -> Iterator[None]:
    """Raise an `InvalidInputError` about a file if the block cannot read it as Parquet.

    The message has the words `what`, the reason and the `remedy`.
    """
    import pyarrow as pa  # noqa: PLC0415  (slow to load, and not needed for CSV)

    try:
        yield
    # Values that Python cannot hold (broken UTF-8, far-off dates) are a ValueError or an OverflowError.
    except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{path}: {what} ({str(error).splitlines()[0]}){remedy}") from None


def _csv_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a CSV file, without blank lines. Raise InvalidInputError if it is not CSV in UTF-8."""
    try:
        with reading(path), path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)  # strict, so that a quote without an end is an error
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header):
                raise bad_line(path, 1, "the header has a column name twice")
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise bad_line(path, reader.line_num, f"{len(fields)} fields, the header has {len(header)} columns")
                yield Row(path, reader.line_num, dict(zip(header, fields, strict=True)))
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: not a UTF-8 text file ({error.reason} at byte {error.start})") from None
    except csv.Error as error:
        raise bad_line(path, reader.line_num, f"not CSV: {error}") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raise InvalidInputError if it is none, or has a column name twice."""
    from polluxsim.common.parquet import read_parquet  # noqa: PLC0415  (slow to load, and not needed for CSV)

    with reading_parquet(path):
        table = read_parquet(path)
        if len(set(table.column_names)) != table.num_columns:
            raise ValueError("a column name twice")
        records = table.to_pylist()
    yield from (Row(path, number, record) for number, record in enumerate(records, start=1))
