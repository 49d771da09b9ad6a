"""Rows of any table in CSV or JSON, as cells of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import tzinfo
from itertools import islice
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.base import BadRowError
from polluxsim.logs.formats.json_rows import is_json, read_objects
from polluxsim.logs.formats.log_rows import ANY_COLUMN, BLANK, LogRow, TableLayout, read_lines, read_rows, row_of
from polluxsim.logs.formats.opening import is_standard_workload_format

HEAD = 100  # rows that are read to find the columns of a table; objects in JSON may leave some out

DELIMITERS = ",\t|;"
"""Delimiters of tables. The one that occurs most in the first line counts, and the first of equal ones."""

UNKNOWN_IN_SWF = "-1"
"""The cell of an unknown value in the Standard Workload Format."""


def column_names(path: Path, is_numbered: bool) -> list[str]:
    """Return the names of the columns of a table, from its first rows. Raise InvalidInputError if it has no rows."""
    has_row = False
    names: dict[str, None] = {}
    for row in islice(table_rows(path, None, is_numbered, ANY_COLUMN), HEAD):
        if isinstance(row, LogRow):
            has_row = True
            names |= dict.fromkeys(row.values)
    if not has_row:
        raise InvalidInputError(f"{path}: no row with values in the first {HEAD}; give a table with jobs")
    return list(names)


def table_rows(
    path: Path, zone: tzinfo | None, is_numbered: bool = False, free_text: tuple[str, ...] = ()
) -> Iterator[LogRow | BadRowError]:
    """Yield the rows of a table in CSV, in a JSON list, or in JSON with an object on each line.

    The columns of a table that `is_numbered` have the numbers from 1 on as names, because it has no header.
    """
    # With all bytes, because a line that is not UTF-8 also tells the form of the table.
    _, first = next(read_lines(path, keep_bytes=True), (1, ""))
    if is_json(path):
        is_list = str(first).lstrip().startswith("[")
        objects: Iterable[tuple[int, dict[str, object] | BadRowError]] = _objects_by_line(path)
        if is_list:
            objects = read_objects(path)
        for line, values in objects:
            if isinstance(values, BadRowError):
                yield values
            else:
                yield _flat(path, line, values, zone)
        return
    if is_numbered:
        yield from _numbered_rows(path, zone)
        return
    delimiter = ","
    if isinstance(first, str):
        delimiter = max(DELIMITERS, key=first.count)  # the comma if the line has none of them
    yield from read_rows(path, TableLayout((), delimiter=delimiter, free_text=free_text), zone)


def _numbered_rows(path: Path, zone: tzinfo | None) -> Iterator[LogRow | BadRowError]:
    """Yield the rows of a table without a header. Lines that begin with ; or # are comments.

    In a log in the Standard Workload Format, a cell with -1 becomes blank.
    """
    layout: TableLayout | None = None
    has_unknown_numbers = is_standard_workload_format(path)
    for line, text in read_lines(path):
        if isinstance(text, BadRowError):
            yield text
            continue
        if text.lstrip().startswith((";", "#")):
            continue
        if layout is None:  # the first row tells the form of all rows
            layout = _numbered_layout(text)
        row = row_of(path, line, text, layout, list(layout.columns), zone)
        if has_unknown_numbers and isinstance(row, LogRow):
            values = dict(row.values)
            for name, cell in row.values.items():
                if cell == UNKNOWN_IN_SWF:
                    values[name] = ""
            row = replace(row, values=values)
        yield row


def _numbered_layout(row: str) -> TableLayout:
    """Return the layout of a table without a header, by its first row: the columns have the numbers from 1 on."""
    delimiter = max(DELIMITERS, key=row.count)
    cells = row.split(delimiter)
    # Without any of the delimiters, blanks separate the cells.
    if delimiter not in row:
        delimiter = BLANK
        cells = row.split()
    columns = tuple(str(number) for number in range(1, len(cells) + 1))
    return TableLayout(columns, delimiter=delimiter, has_header=False)


def _objects_by_line(path: Path) -> Iterator[tuple[int, dict[str, object] | BadRowError]]:
    """Yield the object, or the error, of each line that is not blank, and the number of the line."""
    for line, text in read_lines(path):
        if isinstance(text, BadRowError):
            yield line, text
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield line, value
        else:
            yield line, BadRowError(path, line, "the line is not a JSON object", text)


def _flat(path: Path, line: int, values: dict[str, object], zone: tzinfo | None) -> LogRow | BadRowError:
    """Return an object as a row of texts, or the error about a text that is not UTF-8.

    The column of a value in an inner object is its path, like spec.queue.
    """
    cells = dict[str, str]()
    # A stack in place of recursion, because objects may be nested deeper than Python can call functions.
    stack = list(values.items())
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif value is None:
            cells[name] = ""
        elif isinstance(value, str):
            cells[name] = value
        else:
            cells[name] = json.dumps(value)
    try:
        "".join(cells.values()).encode()
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair
        return BadRowError(path, line, "a text has half a surrogate pair, which is not a character")
    return LogRow(path, line, cells, zone)
