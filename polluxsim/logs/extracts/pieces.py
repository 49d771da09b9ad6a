"""The text of a log in pieces: its rows, which an extract may leave out, and the text around them.

A row is a line of a table, or an object in the list of a JSON file. The texts and commas of all pieces, joined again,
are the text. It may be broken: a row without an end goes to the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Piece(NamedTuple):
    """A part of the text of a log."""

    text: str
    line: int  # its first line, counted from 1
    is_row: bool  # whether an extract may leave it out
    comma: str = ""  # between this row and the next one of its list


def as_text(pieces: Iterable[Piece], rows: Collection[int]) -> str:
    """Return the text of a log with some of its rows only, by their numbers among the pieces."""
    return "".join(piece.text for piece in chosen(pieces, rows))


def chosen(pieces: Iterable[Piece], rows: Collection[int]) -> list[Piece]:
    """Return the pieces without the rows that an extract leaves out; the commas between rows are separate pieces."""
    parts: list[Piece] = []
    comma = Piece("", 1, is_row=False)  # of the last row in the open list
    for number, piece in enumerate(pieces):
        if not piece.is_row:
            comma = Piece("", 1, is_row=False)
            parts.append(piece)
        elif number in rows:
            # Only between two rows that both stay, because a comma before the end of a list is no JSON.
            if comma.text:
                parts.append(comma)
            parts.append(piece)
            comma = Piece(piece.comma, piece.line, is_row=False)
    return parts


def lines_of(text: str, *, has_header: bool) -> list[Piece]:
    """Return the lines of a table. A header in the first line, and comments before the rows, are no rows."""
    pieces = []
    is_before_rows = True
    # Not `splitlines`, which also splits at characters that may stand in a cell.
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), start=1):
        is_comment = line.lstrip().startswith((";", "#")) and is_before_rows
        is_first = number == 1 and has_header
        is_row = not is_first and not is_comment
        is_before_rows = not is_row and is_before_rows
        pieces.append(Piece(line, number, is_row))
    return pieces


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]|[^"{}\[\]]+', re.DOTALL)

_ROW_DEPTHS = (1, 2)  # open brackets around a row: a list, or a list in an object


def objects_of(text: str) -> list[Piece]:
    """Return the objects of the outer lists of a JSON text, and the text around them.

    Such a list is the text itself, or a member of an object that is the text.
    """
    pieces: list[Piece] = []
    start = 0  # of the piece that is open
    open_marks: list[str] = []
    row_depth = 0  # marks around the row that is open; 0 if there is none
    before_row = False  # whether the last piece is a row of the open list
    line = 1

    def close(end: int, *, is_row: bool) -> None:
        nonlocal start, line
        part = text[start:end]
        if part:
            pieces.append(Piece(part, line, is_row))
        line += part.count("\n")
        start = end

    for match in _MARK.finditer(text):
        mark = match[0]
        if mark in "{[":
            in_list = bool(open_marks) and open_marks[-1] == "["
            if mark == "{" and in_list and not row_depth and len(open_marks) in _ROW_DEPTHS:
                between = text[start : match.start()]
                # The comma belongs to the row before it, so that it goes when that row goes.
                if before_row and not between.strip(" \t\r\n,"):
                    pieces[-1] = pieces[-1]._replace(comma=between)
                    line += between.count("\n")
                    start = match.start()
                else:
                    close(match.start(), is_row=False)
                row_depth = len(open_marks) + 1
            open_marks.append(mark)
        elif mark in "}]":
            if row_depth and len(open_marks) == row_depth:
                close(match.end(), is_row=True)
                row_depth = 0
                before_row = True
            elif not row_depth:
                before_row = False
            # A broken text may close more than it opens.
            if open_marks:
                open_marks.pop()
    close(len(text), is_row=bool(row_depth))
    return pieces
