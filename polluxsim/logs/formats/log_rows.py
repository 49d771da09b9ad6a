"""Rows of text tables with one line for each row. A bad line does not affect other lines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import BinaryIO, TypeVar

from polluxsim.common.errors import InvalidInputError, bad_line, reading
from polluxsim.common.tables import Row, other_separator, read_number
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import BadRowError, Clock, Dropped, Entry, Format, LogJob, Place

MAX_LINE = 1 << 20  # Longest line [bytes]. A longer line is not a row and must not fill the memory.
MAX_COUNT = 10**9  # largest whole number in a log [1]
MAX_GPUS = 1e6  # largest number of GPUs of one job

BLANKS = frozenset(("", "none", "null", "nan", "nat", "n/a", "unknown"))
"""Words of logs for a missing value, in small letters."""

_ValueT = TypeVar("_ValueT")


class PlacedRow(Row):
    """One row of a log. The methods that read a cell raise the error of `error` if its value is invalid."""

    @property
    def place(self) -> Place:
        """Return the place of the row."""
        return Place(self.path.name, self.line)

    def number_in(self, column: str) -> float | None:
        """Return the finite number in a cell, or None."""
        return read_number(self.value(column))

    def within(self, column: str, low: float, high: float) -> float:
        """Return a number within closed limits."""
        value = self.number_in(column)
        if value is None or not low <= value <= high:
            raise self.error(column, f"a number from {low:g} to {high:g}")
        return value

    def count(self, column: str, at_least: int = 0) -> int:
        """Return a whole number, also from a cell like 2.0."""
        value = self.number_in(column)
        if value is None or not value.is_integer() or not at_least <= value <= MAX_COUNT:
            raise self.error(column, f"a whole number from {at_least} to {MAX_COUNT:g}")
        return int(value)

    def one_of(self, column: str, allowed: Mapping[str, _ValueT]) -> _ValueT:
        """Return the value of a word from a known list."""
        word = self.value(column)
        if not isinstance(word, str) or word.strip() not in allowed:
            raise self.error(column, f"one of {', '.join(allowed)}")
        return allowed[word.strip()]

    def dropped(self, reason: str) -> Dropped:
        """Return this row as dropped for a reason."""
        return Dropped(self.place, reason)


@dataclass(frozen=True)
class LogRow(PlacedRow):
    """One row of a log with cells of text.

    `zone` is the zone of times without a zone; None if every time needs a zone.
    """

    values: Mapping[str, str]
    zone: tzinfo | None = None

    def has(self, column: str) -> bool:
        """Return whether the column exists and its cell is not blank."""
        return self.values.get(column, "").strip().lower() not in BLANKS

    def word(self, column: str) -> str | None:
        """Return the text of a column that may be blank or absent."""
        return self.values[column].strip() if self.has(column) else None

    def name(self, column: str) -> str:
        """Return text that is not blank."""
        if not self.has(column):
            raise self.error(column, "a name")
        return self.text(column)

    def seconds(self, column: str) -> float:
        """Return a length of time [s]."""
        return self.within(column, 0, MOST_SECONDS)

    def instant(self, column: str) -> float:
        """Return a time on a clock of seconds [s]."""
        return self.within(column, -MOST_SECONDS, MOST_SECONDS)

    def gpus(self, column: str) -> float:
        """Return a number of GPUs, 0 for a job without GPUs [GPUs]."""
        return self.within(column, 0, MAX_GPUS)

    def time(self, column: str) -> float:
        """Return a date and time of day [s since 1970-01-01 UTC]."""
        value = read_time(self.values[column], self.zone)
        if value is None:
            offset = "" if self.zone else " and an offset like +08:00"
            raise self.error(column, f"a time like 2017-10-02 08:00:00{offset}")
        return value

    def moment(self, column: str) -> float:
        """Return a time that is a date and time of day, or seconds since 1970 [s since 1970-01-01 UTC]."""
        text = self.values[column]
        if ":" in text:
            return self.time(column)
        seconds = read_number(text)
        if seconds is None or not 0 <= seconds <= MOST_SECONDS:
            raise self.error(column, "a time like 2017-10-02 08:00:00, or seconds since 1970")
        return seconds

    def error(self, column: str, allowed: str) -> BadRowError:
        """Return the error that a column is not `allowed`."""
        return BadRowError(self.path, self.line, f"column {column!r} is not {allowed}", self.values.get(column, ""))


def read_time(text: str, zone: tzinfo | None) -> float | None:
    """Return the time in a text [s since 1970-01-01 UTC], or None if the text has another form or no known zone.

    >>> from datetime import UTC
    >>> read_time("1970-01-02 00:00:00", UTC)
    86400.0
    >>> read_time("1970-01-02 00:00", UTC)
    86400.0
    >>> read_time("1970-01-01T08:00:00+08:00", None)
    0.0
    """
    text = text.strip()
    # Python also reads 20171002 and 2017-W40, which are more likely numbers or names in a wrong column.
    if len(text) < 16 or text[4] != "-" or text[13] != ":" or text[10] not in " T":
        return None
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is None:
            if zone is None:
                return None
            value = value.replace(tzinfo=zone)
        return value.timestamp()
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Layout:
    """Form of the lines of a table."""

    columns: tuple[str, ...]  # required columns; without a header, all columns in order
    alternatives: tuple[tuple[str, ...], ...] = ()  # groups of columns, of which one each is required
    wider: tuple[str, ...] = ()  # without a header, columns of rows with more cells; empty if there are none
    delimiter: str = ","
    has_header: bool = True
    quoted: bool = True  # whether a cell may stand in double quotes


def read_rows(path: Path, layout: Layout, zone: tzinfo | None = None) -> Iterator[LogRow | BadRowError]:
    """Yield the rows of a table. Blank lines are not rows. Raise InvalidInputError if the header is wrong."""
    lines = read_lines(path)
    header = list(layout.columns)
    if layout.has_header:
        header = _header(path, next(lines, (1, "")), layout)
    for line, text in lines:
        cells = text if isinstance(text, BadRowError) else _cells(path, line, text, header, layout)
        yield cells if isinstance(cells, BadRowError) else LogRow(path, line, cells, zone)


def _header(path: Path, first: tuple[int, str | BadRowError], layout: Layout) -> list[str]:
    """Return the names of the columns in the first line; raise InvalidInputError if a required column is missing."""
    line, text = first
    if isinstance(text, BadRowError):
        raise InvalidInputError(str(text))
    cells = _split(text, layout)
    if cells is None:
        raise bad_line(path, line, "the header's quotes do not match")
    names = [name.strip() for name in cells]
    if len(set(names)) != len(names):
        raise bad_line(path, line, "the header has a column name twice")
    groups = (*((name,) for name in layout.columns), *layout.alternatives)
    if missing := [" or ".join(map(repr, group)) for group in groups if not set(group) & set(names)]:
        found = ", ".join(map(repr, names))
        shown = found if len(found) <= 200 else found[:197] + "..."
        separator = other_separator(names)
        separated = "" if separator is None else f", whose columns are separated by {separator}"
        what = f"the header lacks {', '.join(missing)}; it has {shown}{separated}"
        raise bad_line(path, line, f"{what}; 'polluxsim log import --help' lists the formats")
    return names


def _cells(path: Path, line: int, text: str, header: list[str], layout: Layout) -> dict[str, str] | BadRowError:
    """Return the cells of a line by column, or the error about the line."""
    cells = _split(text, layout)
    if cells is None:
        return BadRowError(path, line, "its quotes do not match", text)
    if layout.wider and len(cells) == len(layout.wider):
        header = list(layout.wider)
    if len(cells) != len(header):
        allowed = f"{len(header)} or {len(layout.wider)}" if layout.wider else len(header)
        return BadRowError(path, line, f"the number of cells must be {allowed}", len(cells))
    return dict(zip(header, cells, strict=True))


def _split(text: str, layout: Layout) -> list[str] | None:
    """Return the cells of a line; None if its quotes do not match."""
    if not layout.quoted or '"' not in text:
        return text.split(layout.delimiter)
    # One reader for each line, because no cell spans lines and an open quote must not swallow the following rows.
    try:
        return next(csv.reader([text], delimiter=layout.delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def read_lines(path: Path) -> Iterator[tuple[int, str | BadRowError]]:
    """Yield the lines of a text file that are not blank, with their numbers; a line that cannot be read is an error."""
    with reading(path), path.open("rb") as file:
        yield from _decoded_lines(path, file)


def _decoded_lines(path: Path, file: BinaryIO) -> Iterator[tuple[int, str | BadRowError]]:
    """Yield lines as `read_lines` does, without holding more than `MAX_LINE` bytes of a line."""
    number = 0
    while raw := file.readline(MAX_LINE):
        number += 1
        if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
            yield number, BadRowError(path, number, f"the line must have less than {MAX_LINE} bytes")
            continue
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield number, BadRowError(path, number, "the line must be UTF-8 text", raw[error.start : error.end])
            continue
        if text.strip():
            yield number, text


def good_rows(path: Path, layout: Layout) -> Iterator[LogRow]:
    """Yield the rows of a table; raise the BadRowError of the first bad row."""
    for row in read_rows(path, layout):
        if isinstance(row, BadRowError):
            raise row
        yield row


def counts_beside(source: Path, name: str, columns: tuple[str, ...]) -> list[int]:
    """Return the whole numbers in the last column of the table `name` beside a log; empty if there is no table."""
    path = (source if source.is_dir() else source.parent) / name
    return [row.count(columns[-1]) for row in good_rows(path, Layout(columns))] if path.is_file() else []


_RowT = TypeVar("_RowT", bound=PlacedRow)


def parsed(row: _RowT | BadRowError, parse: Callable[[_RowT], LogJob | Dropped]) -> Entry:
    """Return what `parse` returns for a row, or the error about the row."""
    try:
        return row if isinstance(row, BadRowError) else parse(row)
    except BadRowError as error:
        return error


@dataclass(frozen=True, kw_only=True)
class TableFormat(Format):
    """A log in a text table."""

    layout: Layout
    parse: Callable[[LogRow], LogJob | Dropped]  # raises `BadRowError`

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row."""
        # If all times of a log name their zone, a time without one is a mistake, and the zone is unknown.
        for row in read_rows(path, self.layout, zone if self.clock is Clock.LOCAL else None):
            yield parsed(row, self._job)

    def _job(self, row: LogRow) -> LogJob | Dropped:
        if self.layout.has_header and all(cell.strip() == name for name, cell in row.values.items()):
            return row.dropped("the header again")  # several outputs in one file
        return self.parse(row)
