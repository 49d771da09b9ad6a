"""Rows of text tables with one line for each row. A bad line does not affect other lines.

Bytes that are not UTF-8 are kept as lone surrogates until the cells are known, because only a text that people choose
may have them. Whoever keeps such bytes must replace them: neither Arrow nor a terminal can write a lone surrogate.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.common.tables import Row, other_separator, read_number
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.base import BadRowError, Dropped, Entry, Format, LogClock, LogJob, Place
from polluxsim.logs.formats.opening import open_log
from polluxsim.logs.formats.times import read_time

MAX_LINE = 1 << 20  # Longest line [bytes]. A longer line is not a row and must not fill the memory.
MAX_COUNT = 10**9  # largest whole number in a log [1]
MAX_GPUS = 1e6  # largest number of GPUs of one job

BLANKS = frozenset(("", "none", "null", "nan", "nat", "n/a", "unknown"))
"""Words of logs for a missing value, in small letters."""

DIGITS = frozenset("0123456789")

_ValueT = TypeVar("_ValueT")


@lru_cache(maxsize=1 << 14)  # most cells of a log recur
def read_word(cell: str) -> str | None:
    """Return the text of a cell without the blanks around it; None if the cell has no value."""
    word = cell.strip()
    return None if word.lower() in BLANKS else word


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
        # Programs that keep a column with missing values as floating-point numbers write whole ones so.
        value = self.number_in(column)
        if value is None or not value.is_integer() or not at_least <= value <= MAX_COUNT:
            raise self.error(column, f"a whole number from {at_least} to {MAX_COUNT:g}")
        return int(value)

    def optional_within(self, column: str, low: float, high: float) -> float | None:
        """Return a number within closed limits, of a column that may be blank or absent."""
        if not self.has(column):
            return None
        return self.within(column, low, high)

    def optional_count(self, column: str, at_least: int = 0) -> int | None:
        """Return the whole number of a column that may be blank or absent."""
        if not self.has(column):
            return None
        return self.count(column, at_least)

    def one_of(self, column: str, allowed: Mapping[str, _ValueT]) -> _ValueT:
        """Return the value in `allowed` of the word in a cell."""
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

    `zone` is the zone of times without a zone; None if every time needs a zone. `oddities` are the repairs of the line
    before its cells were read.
    """

    values: Mapping[str, str]
    zone: tzinfo | None = None
    oddities: tuple[str, ...] = ()

    def has(self, column: str) -> bool:
        """Return whether the column exists and its cell is not blank."""
        cell = self.values.get(column)
        if not cell:
            return False
        # No word for a missing value begins with a digit, and most cells do.
        return cell[0] in DIGITS or read_word(cell) is not None

    def word(self, column: str) -> str | None:
        """Return the text of a column that may be blank or absent."""
        cell = self.values.get(column)
        return read_word(cell) if cell else None

    def name(self, column: str) -> str:
        """Return text that is not blank and no word for a missing value, without the blanks around it."""
        if not self.has(column):
            raise self.error(column, "a name")
        return self.values[column].strip()

    def number_in(self, column: str) -> float | None:
        """Return the finite number in a cell, or None."""
        return read_number(self.values[column])

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
            allowed = "a time like 2017-10-02 08:00:00"
            if self.zone is None:
                allowed += " and an offset like +08:00"
            raise self.error(column, allowed)
        return value

    def moment(self, column: str) -> float:
        """Return a time that is a date and time of day, or seconds since 1970 [s since 1970-01-01 UTC]."""
        text = self.values[column]
        # Only a date with a time of day has a colon.
        if ":" in text:
            time = read_time(text, self.zone)
            if time is None:
                return self.time(column)  # raises the error
            return time
        seconds = read_number(text)
        if seconds is None or not 0 <= seconds <= MOST_SECONDS:
            raise self.error(column, "a time like 2017-10-02 08:00:00, or seconds since 1970")
        return seconds

    def optional_moment(self, column: str) -> float | None:
        """Return the time of a column that may be blank or absent [s since 1970-01-01 UTC]."""
        if not self.has(column):
            return None
        return self.moment(column)

    def both_moments(self, column: str) -> tuple[float, ...]:
        """Return the one or two instants of a time: in the hour that a clock repeats in autumn, there are two [s]."""
        first = self.moment(column)
        second = read_time(self.values[column], self.zone, fold=1)
        if second is None or second == first:
            return (first,)
        return (first, second)

    def error(self, column: str, allowed: str) -> BadRowError:
        """Return the error that a column is not `allowed`."""
        return BadRowError(self.path, self.line, f"column {column!r} is not {allowed}", self.values.get(column, ""))


@dataclass(frozen=True)
class TableLayout:
    """Form of the lines of a table."""

    columns: tuple[str, ...]  # required columns; without a header, all columns in order
    alternatives: tuple[tuple[str, ...], ...] = ()  # groups of columns, of which one each is required
    other_columns: tuple[tuple[str, ...], ...] = ()  # without a header, columns of rows of other widths
    delimiter: str = ","
    has_header: bool = True
    quoted: bool = True  # whether a cell may stand in double quotes
    finds_delimiter: bool = False  # whether the header tells the delimiter, if it is another one
    # Columns of text that people choose. Only these cells may have the delimiter or bytes that are not UTF-8.
    free_text: tuple[str, ...] = ()
    explain: Callable[[list[str]], str] = lambda cells: ""  # why the cells of a first line may be no header; or empty


ANY_COLUMN = ("*",)
"""Free text of a layout all of whose columns may have bytes that are not UTF-8."""

DELIMITER_REPAIRED = "a text with the delimiter, which was taken for one cell"
BYTES_REPAIRED = "a text with bytes that are not UTF-8, which were replaced"


class OpenTable(NamedTuple):
    """An open table: its layout and columns, and the lines of its rows."""

    layout: TableLayout  # with the delimiter that the header tells
    header: list[str]  # names of the columns
    lines: Iterator[tuple[int, str | BadRowError]]  # as those of `read_lines`


def open_table(path: Path, layout: TableLayout) -> OpenTable:
    """Return a table whose header is read. Raise InvalidInputError if the header is wrong."""
    lines = read_lines(path, keep_bytes=bool(layout.free_text))
    if not layout.has_header:
        return OpenTable(layout, list(layout.columns), lines)
    # An empty file gets the error about a header without the needed columns.
    first = next(lines, (1, ""))
    layout = _with_delimiter(layout, first[1])
    return OpenTable(layout, _header(path, first, layout), lines)


def read_rows(path: Path, layout: TableLayout, zone: tzinfo | None = None) -> Iterator[LogRow | BadRowError]:
    """Yield rows of a table and errors about bad ones; skip blank lines. Raise InvalidInputError for a bad header."""
    layout, header, lines = open_table(path, layout)
    for line, text in lines:
        yield text if isinstance(text, BadRowError) else row_of(path, line, text, layout, header, zone)


def _with_delimiter(layout: TableLayout, header: str | BadRowError) -> TableLayout:
    """Return the layout with the delimiter that separates the names of the header, if the header tells it."""
    if not layout.finds_delimiter or isinstance(header, BadRowError) or layout.delimiter in header:
        return layout
    between = DELIMITED_NAMES.match(header.strip())
    if between is None:
        return layout
    names = header.strip().split(between[1])
    # A piece with other marks shows that the text between the first two names is not the delimiter.
    are_names = all(name.isalnum() for name in names if name)
    if not are_names:
        return layout
    return replace(layout, delimiter=between[1])


DELIMITED_NAMES = re.compile(r"[A-Za-z]\w*?([^\w\s]+|[ \t]+)(?=[A-Za-z])")
"""The first name of a header, and what separates it from the second one."""


def _header(path: Path, first: tuple[int, str | BadRowError], layout: TableLayout) -> list[str]:
    """Return the names of the columns in the first line; raise InvalidInputError if it is no header of the layout."""
    line, text = first
    if isinstance(text, BadRowError):
        raise InvalidInputError(str(text))
    cells = split_cells(text, layout)
    if cells is None:
        raise bad_line(path, line, "the header's quotes do not match")
    names = [name.strip() for name in cells]
    reason = layout.explain(names)
    if reason:
        raise bad_line(path, line, reason)
    if len(set(names)) != len(names):  # one of the cells would be lost
        raise bad_line(path, line, "the header has a column name twice")
    missing = _missing_columns(names, layout)
    if missing:
        columns = ", ".join(map(repr, names))
        # A table may have hundreds of columns.
        if len(columns) > 200:
            columns = f"{columns[:197]}..."
        reason = f"the header lacks {', '.join(missing)}; it has {columns}"
        separator = other_separator(names)
        if separator is not None:
            reason += f", whose columns are separated by {separator}"
        raise bad_line(path, line, f"{reason}; 'polluxsim log import --help' lists the formats")
    return names


def _missing_columns(names: list[str], layout: TableLayout) -> list[str]:
    """Return the required columns that a header lacks, in words."""
    missing = [repr(name) for name in layout.columns if name not in names]
    for group in layout.alternatives:
        if not set(group) & set(names):
            missing.append(" or ".join(map(repr, group)))
    return missing


def row_of(
    path: Path, line: int, text: str, layout: TableLayout, header: list[str], zone: tzinfo | None = None
) -> LogRow | BadRowError:
    """Return the row of a line with the columns of a header, or the error about the line."""
    cells = split_cells(text, layout)
    if cells is None:
        return BadRowError(path, line, "its quotes do not match", text)
    # Without a header, the number of its cells tells the form of a row.
    for columns in layout.other_columns:
        if len(cells) == len(columns):
            header = list(columns)
    oddities = []
    if len(cells) > len(header) and layout.free_text:
        joined = _joined(cells, header, layout)
        if joined is None:
            reason = f"the number of cells must be {len(header)}: a text may have the delimiter {layout.delimiter!r}"
            return BadRowError(path, line, f"{reason}; print such a text in JSON, or leave its column out", len(cells))
        cells = joined
        oddities.append(DELIMITER_REPAIRED)
    if len(cells) != len(header):
        allowed = str(len(header))
        if layout.other_columns:
            widths = sorted({len(header), len(layout.columns), *map(len, layout.other_columns)})
            allowed = " or ".join(map(str, widths))
        return BadRowError(path, line, f"the number of cells must be {allowed}", len(cells))
    values = dict(zip(header, cells, strict=True))
    # Most lines are ASCII, and looking at each character takes long.
    if not text.isascii() and _has_kept_bytes(text):
        broken = [name for name, cell in values.items() if _has_kept_bytes(cell)]
        if layout.free_text != ANY_COLUMN and not set(broken) <= set(layout.free_text):
            return _not_utf8(path, line, text.encode("utf-8", "surrogateescape"))
        for name in broken:
            values[name] = values[name].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        oddities.append(BYTES_REPAIRED)
    return LogRow(path, line, values, zone, tuple(oddities))


def _joined(cells: list[str], header: list[str], layout: TableLayout) -> list[str] | None:
    """Return the cells of a row with too many, with the pieces of one cell that has the delimiter joined again.

    With the comma as delimiter, the pieces belong to a list of resources, whose entries commas separate. With another
    delimiter, they belong to the only column of free text. Return None if it is not known where they belong.
    """
    if layout.delimiter == ",":
        return _joined_lists(cells, len(header))
    free_text = [index for index, name in enumerate(header) if name in layout.free_text]
    # In quotes, a text may have the delimiter. With several texts, it is unknown which one has it.
    if layout.quoted or len(free_text) != 1:
        return None
    start = free_text[0]
    num_pieces = len(cells) - len(header) + 1
    end = start + num_pieces
    joined = list(cells)
    joined[start:end] = [layout.delimiter.join(cells[start:end])]
    return joined


def _joined_lists(cells: list[str], width: int) -> list[str] | None:
    """Return the cells with neighbours like cpu=8 and node=1 as one list; None if there are not `width` cells then."""
    joined: list[str] = []
    was_entry = False
    for cell in cells:
        is_entry = LIST_ENTRY.fullmatch(cell.strip()) is not None
        if is_entry and was_entry:
            joined[-1] += f",{cell}"
        else:
            joined.append(cell)
        was_entry = is_entry
    if len(joined) != width:
        return None
    return joined


LIST_ENTRY = re.compile(r"[a-z][\w/:.-]*=[^=\s]+")
"""One entry of a list of resources, like cpu=8 or gres/gpu:a100=4."""


def split_cells(text: str, layout: TableLayout) -> list[str] | None:
    """Return the cells of a line; None if its quotes do not match."""
    if layout.delimiter == BLANK:
        return text.split()
    if not layout.quoted or '"' not in text:
        return text.split(layout.delimiter)
    # One reader for each line, because no cell spans lines and an open quote must not swallow the following rows.
    try:
        return next(csv.reader([text], delimiter=layout.delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


BLANK = " "
"""Delimiter of tables whose cells are separated by any number of blanks."""


def _has_kept_bytes(text: str) -> bool:
    """Return whether a text has bytes that are not UTF-8, which `read_lines` kept."""
    return any("\udc80" <= character <= "\udcff" for character in text)


def _not_utf8(path: Path, line: int, raw: bytes) -> BadRowError:
    """Return the error about a line with bytes that are not UTF-8."""
    # Decoded only for the error, which states where the first broken bytes are.
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return BadRowError(path, line, "the line must be UTF-8 text", raw[error.start : error.end])
    raise ValueError("the line is UTF-8 text")


def read_lines(path: Path, *, keep_bytes: bool = False) -> Iterator[tuple[int, str | BadRowError]]:
    """Yield the lines of a text file that are not blank, with their numbers; a line that cannot be read is an error.

    With `keep_bytes`, a line with bytes that are not UTF-8 is no error: each such byte becomes a lone surrogate, as
    Python's error handler surrogateescape makes them.
    """
    with open_log(path) as file:
        yield from _decoded_lines(path, file, keep_bytes=keep_bytes)


def _decoded_lines(path: Path, file: BinaryIO, *, keep_bytes: bool) -> Iterator[tuple[int, str | BadRowError]]:
    """Yield lines as `read_lines` does, without holding more than `MAX_LINE` bytes of a line."""
    number = 0
    while raw := file.readline(MAX_LINE):
        number += 1
        if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
            # The rest of the line must not become a row of its own.
            _skip_line(file)
            yield number, BadRowError(path, number, f"the line must have less than {MAX_LINE} bytes")
            continue
        encoding = "utf-8-sig" if number == 1 else "utf-8"  # only a file begins with a byte order mark
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            if not keep_bytes:
                yield number, _not_utf8(path, number, raw)
                continue
            text = raw.decode(encoding, "surrogateescape")
        text = text.rstrip("\r\n")
        if text.strip():
            yield number, text


def _skip_line(file: BinaryIO) -> None:
    """Read to the end of the present line, without holding more than `MAX_LINE` bytes of it."""
    while True:
        part = file.readline(MAX_LINE)
        if not part or part.endswith(b"\n"):
            return


def good_rows(path: Path, layout: TableLayout) -> Iterator[LogRow]:
    """Yield the rows of a table; raise the BadRowError of the first bad row."""
    for row in read_rows(path, layout):
        if isinstance(row, BadRowError):
            raise row
        yield row


def counts_beside(source: Path, name: str, columns: tuple[str, ...]) -> list[int]:
    """Return the whole numbers in the last column of a table beside a log; empty without it. Raise BadRowError."""
    path = beside(source, name)
    if not path.is_file():
        return []
    return [row.count(columns[-1]) for row in good_rows(path, TableLayout(columns))]


def beside(source: Path, name: str) -> Path:
    """Return the path of a file that stands in the folder of a log, or beside it if the log is a file."""
    folder = source if source.is_dir() else source.parent
    return folder / name


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

    layout: TableLayout
    parse: Callable[[LogRow], LogJob | Dropped]  # raises `BadRowError`

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row."""
        for row in read_rows(path, self.layout, self.zone_of_times(zone)):
            yield parsed(row, self.job_of_row)

    def zone_of_times(self, zone: tzinfo) -> tzinfo | None:
        """Return the zone of times that state none; None if such a time is a mistake."""
        if self.clock is LogClock.LOCAL:
            return zone
        return None  # all times name their zone, so the zone of a time without one is unknown

    def job_of_row(self, row: LogRow) -> LogJob | Dropped:
        """Return the job of a row, or why it is none; raise `BadRowError` if a cell is invalid."""
        if self.layout.has_header and all(cell.strip() == name for name, cell in row.values.items()):
            return row.dropped("the header again")  # several outputs in one file
        job = self.parse(row)
        if row.oddities and isinstance(job, LogJob):
            job = job._replace(oddities=(*job.oddities, *row.oddities))
        return job
