"""Make an extract of a log: choose the rows that show its fault, replace the names, and import the extract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.logs.extracts.anonymous import Anonymous, JsonText, TableForm, anonymous_comment, is_header
from polluxsim.logs.extracts.faults import ImportFault, Reading, fault_of
from polluxsim.logs.extracts.pieces import Piece, as_text, chosen, lines_of, objects_of
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.formats.column_maps import parse_columns
from polluxsim.logs.formats.json_rows import is_json
from polluxsim.logs.formats.log_rows import TableFormat
from polluxsim.logs.formats.opening import RECOGNISED, head_of, open_log
from polluxsim.logs.formats.table_rows import DELIMITERS

MOST_TRIES = 200  # most imports to find the smallest number of rows
BINARY = ("a Parquet file", "a ZIP archive or a workbook", "a tar archive", "text in UTF-16")


class Extract(NamedTuple):
    """An extract of a log that was made."""

    log: ImportFault  # of the log
    extract: ImportFault  # of the extract
    rows: int  # in the extract
    rows_of_log: int
    num_replaced: int  # different words and numbers
    kept_names: tuple[str, ...]  # words that were replaced as names and stay elsewhere, as known words, columns or keys
    is_written: bool  # whether both faults are the same


@dataclass
class _Log:
    """A log in memory, and the imports of parts of it."""

    path: Path
    reading: Reading
    pieces: list[Piece]
    fault: ImportFault
    folder: Path  # for the parts
    tries: int = 0

    def shows_fault(self, rows: Collection[int]) -> bool:
        """Return whether some rows of the log alone have the same fault."""
        self.tries += 1
        # The part has the name of the log, because some formats know files by their names.
        part = self.folder / self.path.name
        part.write_bytes(_encoded(as_text(self.pieces, rows)))
        return fault_of(part, self.reading).is_same(self.fault)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def extract(log: Path, destination: Path, reading: Reading, good_rows: int) -> Extract:
    """Write a small anonymous extract of a log with the same fault, and return what was made.

    At most `good_rows` further rows are added, if they do not change the fault.
    Nothing is written if the extract has another fault. Raise InvalidConfigError if the reading is invalid, and
    InvalidInputError if the log is damaged as a file, a copy of it does not have its fault, or the extract cannot be
    written.
    """
    with open_log(log) as file:
        # A byte that is not UTF-8 may be the fault, so it stays as a lone surrogate.
        text = file.read().decode("utf-8", "surrogateescape")
    in_json = is_json(log)
    pieces = _pieces(text, reading, in_json=in_json)
    with TemporaryDirectory() as name:
        state = _Log(log, reading, pieces, fault_of(log, reading), Path(name))
        rows = _chosen_rows(state, good_rows)
        part = chosen(pieces, rows)
        # From the chosen rows only, because other names of the log cannot come into the extract.
        anonymous = Anonymous("".join(piece.text for piece in part))
        anonymous_text = _anonymous_text(part, anonymous, reading, in_json=in_json)
        candidate = Path(name) / destination.name
        # The extract is imported before it is written, because a replaced word may have removed the fault.
        candidate.write_bytes(_encoded(anonymous_text))
        fault = fault_of(candidate, reading)
    # A reason may quote a name of the log, which the extract has as an invented word.
    renamed = state.fault.renamed(anonymous.names.renamed)
    is_written = fault.is_same(state.fault) or fault.is_same(renamed)
    if is_written:
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(destination) as temporary:
                temporary.write_bytes(_encoded(anonymous_text))
        except OSError as error:
            raise InvalidInputError(
                f"{destination}: cannot be written ({error.strerror or error}); give another path"
            ) from None
    return Extract(
        state.fault,
        fault,
        len(rows),
        sum(piece.is_row for piece in pieces),
        anonymous.names.num_replaced,
        anonymous.names.still_in(anonymous_text),
        is_written,
    )


def check_paths(log: Path, destination: Path) -> None:
    """Raise InvalidInputError if the log is no file of text, or the extract would replace it."""
    if log.is_dir():
        raise InvalidInputError(f"{log}: is a folder, must be a file; give the file of the folder that does not import")
    if not log.is_file():
        raise InvalidInputError(f"{log}: no such file; check the path")
    if destination.is_dir():
        raise InvalidInputError(f"{destination}: is a folder, must be a file; give the name of a file for the extract")
    if destination.exists() and destination.samefile(log):
        raise InvalidInputError(f"{destination}: the extract cannot replace the log; give another name for the extract")
    head = head_of(log)
    for kind in RECOGNISED:
        if kind.description in BINARY and kind.is_it(head):
            raise InvalidInputError(f"{log}: this is {kind.description}, which has no extract; {kind.advice}")


def _pieces(text: str, reading: Reading, *, in_json: bool) -> list[Piece]:
    """Return the pieces of a log."""
    if not in_json:
        return lines_of(text, has_header=_has_header(reading))
    if reading.format == "table" and text.lstrip("\ufeff \t\r\n").startswith("{"):  # an object on each line
        return lines_of(text, has_header=False)
    return objects_of(text)


def _has_header(reading: Reading) -> bool:
    """Return whether the first line of a table of a format is a header, or should be one."""
    log_format = FORMATS[reading.format]
    if isinstance(log_format, TableFormat):
        return log_format.layout.has_header
    return reading.format == "table" and not _is_numbered(reading)


def _is_numbered(reading: Reading) -> bool:
    """Return whether the columns of a table have numbers as names, because it has no header."""
    sources = parse_columns(reading.columns).values()
    return bool(sources) and all(source.column.isdigit() for source in sources)


def _chosen_rows(log: _Log, good_rows: int) -> list[int]:
    """Return few rows with the fault of the log, and some other rows beside them."""
    rows = [number for number, piece in enumerate(log.pieces) if piece.is_row]
    needed = _reduced(log, _sufficient(log, rows))
    others = [number for number in rows if number not in set(needed)][:good_rows]
    together = sorted({*needed, *others})
    if log.shows_fault(together):
        return together
    # Together, other rows may hide the fault. Then each is tried alone.
    for number in others:
        more = sorted({*needed, number})
        if log.shows_fault(more):
            needed = more
    return needed


def _sufficient(log: _Log, rows: Sequence[int]) -> list[int]:
    """Return rows with the fault of the log: the rows in its report, with more and more rows around them.

    Raise InvalidInputError if all rows together do not have the fault.
    """
    marked = [at for at, number in enumerate(rows) if _has_line(log.pieces[number], log.fault.lines)]
    around = 0
    while True:
        if around == 0:
            part = [rows[at] for at in marked]
        else:
            # The first rows too, because they may decide how all rows are read.
            near = set(range(around))
            for at in marked:
                near.update(range(at - around, at + around + 1))
            part = [rows[at] for at in sorted(near) if 0 <= at < len(rows)]
        if log.shows_fault(part):
            return part
        if len(part) == len(rows):
            raise InvalidInputError(
                f"{log.path}: a copy of this file alone does not have its fault ({log.fault}); the fault needs the "
                "other files in its folder, or its name"
            )
        # Doubled, so that the number of imports grows with the logarithm of the number of rows only.
        around = 2 * around or 1


def _has_line(piece: Piece, lines: Collection[int]) -> bool:
    """Return whether a piece has one of some lines of the log."""
    last = piece.line + piece.text.rstrip("\n").count("\n")
    return any(line in lines for line in range(piece.line, last + 1))


def _reduced(log: _Log, rows: list[int]) -> list[int]:
    """Return as few of some rows as show the fault: leave out all, a half, a quarter and so on, while it stays.

    The search ends after `MOST_TRIES` imports of the log.
    """
    size = len(rows)
    while size and log.tries < MOST_TRIES:
        start = 0
        while start < len(rows) and log.tries < MOST_TRIES:
            fewer = rows[:start] + rows[start + size :]
            if log.shows_fault(fewer):
                rows = fewer
            else:
                # Only here: after a removal, the next rows have moved to `start`.
                start += size
        size //= 2
    return rows


def _anonymous_text(pieces: Iterable[Piece], anonymous: Anonymous, reading: Reading, *, in_json: bool) -> str:
    """Return the text of some pieces with invented names."""
    parts = list(pieces)
    if in_json:
        text = JsonText(anonymous, _mapped_keys(reading))
        return "".join(text.anonymous_text(piece.text) for piece in parts)
    if not _has_header(reading):
        line_of = _form_without_header(parts, reading).anonymous_line
        return "".join(_line(piece.text, partial(line_of, anonymous=anonymous), anonymous) for piece in parts)
    texts = [piece.text for piece in parts if piece.text.strip()]
    first = next(filter(is_header, texts), texts[0] if texts else "")  # the header may stand below other lines
    second = next((piece.text for piece in parts if piece.is_row), "")
    form, has_header = _form_of_header(first, second, reading)
    line_of = form.anonymous_line
    lines = []
    for piece in parts:
        # By identity, because a later row may have the same text.
        is_first = piece.text is first and has_header
        if is_first or is_header(piece.text):
            lines.append(piece.text)
        else:
            lines.append(_line(piece.text, partial(line_of, anonymous=anonymous), anonymous))
    return "".join(lines)


def _line(text: str, line_of: Callable[[str], str], anonymous: Anonymous) -> str:
    """Return a line with invented names and its own line end."""
    line = text.rstrip("\r\n")
    if line.lstrip().startswith((";", "#")):
        return anonymous_comment(line, anonymous) + text[len(line) :]
    return line_of(line) + text[len(line) :]


def _mapped_keys(reading: Reading) -> dict[str, str]:
    """Return the key of `--columns` by the column that the user maps to it."""
    return {source.column: key for key, source in parse_columns(reading.columns).items()}


def _form_without_header(parts: Sequence[Piece], reading: Reading) -> TableForm:
    """Return the form of a table of a format without a header."""
    log_format = FORMATS[reading.format]
    first = next((piece.text for piece in parts if piece.text.strip() and piece.text.lstrip()[0] not in ";#"), "")
    if isinstance(log_format, TableFormat):
        layout = log_format.layout
        columns = layout.columns
        width = len(first.split(None if layout.delimiter == " " else layout.delimiter))
        for others in layout.other_columns:
            if len(others) == width:
                columns = others
        return TableForm(layout.delimiter, list(columns), quoted=layout.quoted)
    if reading.format == "table":
        delimiter = max(DELIMITERS, key=first.count)
        if delimiter not in first:
            delimiter = " "
        mapped = _mapped_keys(reading)
        width = len(first.split(None if delimiter == " " else delimiter))
        columns = tuple(mapped.get(str(number), "") for number in range(1, width + 1))
        return TableForm(delimiter, list(columns), quoted=True)
    return TableForm("\n", [""], quoted=False)  # a record of PBS, which is one text


def _form_of_header(first: str, second: str, reading: Reading) -> tuple[TableForm, bool]:
    """Return the form of a table by its first line and its first row, and whether the first line is a header.

    Without a header, the columns are unknown.
    """
    log_format = FORMATS[reading.format]
    delimiter = max(DELIMITERS, key=first.count)
    quoted = True
    free_text: tuple[str, ...] = ()
    if isinstance(log_format, TableFormat):
        quoted = log_format.layout.quoted
        free_text = log_format.layout.free_text
        # The delimiter of the format counts unless the file lacks it, which may be its fault.
        if log_format.layout.delimiter in first:
            delimiter = log_format.layout.delimiter
    cells = [cell.strip().strip('"') for cell in first.removeprefix("\ufeff").rstrip("\r\n").split(delimiter)]
    has_header = is_header(first)
    # The columns of such a table may all have names of the site, so the form of its lines decides.
    if reading.format == "table" and not has_header:
        has_number = any(cell[:1].isdigit() for cell in cells)
        has_header = len(cells) > 1 and not has_number and second.count(delimiter) == first.count(delimiter)
    columns: list[str] = []
    if has_header and len(cells) > 1:
        # The lists of known words have the keys of `--columns`, not the names of a site.
        mapped = _mapped_keys(reading)
        columns = [mapped.get(cell, cell) for cell in cells]
    return TableForm(delimiter, columns, free_text, quoted=quoted), has_header
