"""Read the objects of one JSON array one at a time, with the line on which each begins."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError, bad_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

CHUNK = 1 << 16
"""Bytes read at a time."""

MAX_OBJECT = 1 << 23
"""Longest value read [characters]: if no value ends by then, the text is broken and must not fill the memory."""

BLANKS = " \t\r\n"

IN_NUMBERS = "0123456789.eE+-"


def read_objects(path: Path, key: str | None = None) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSON array and their lines.

    With a `key`, the file is one object, and the array is its member of that name. Other members are skipped.

    Broken JSON is not a bad row, because the start of the next row is unknown.

    Raises
    ------
    InvalidInputError
        If the file cannot be read or has no such array.
    """
    try:
        with path.open("rb") as file:
            window = _Window(path, file)
            yield from window.objects() if key is None else window.objects_of(key)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror})") from None


class _Window:
    """The part of a file that is read but not yet parsed."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def objects(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object and the line on which it begins."""
        yield from self._list()
        if found := self._next():
            raise self._error(f"the list has ended, allowed is nothing more; found {found!r}")

    def objects_of(self, key: str) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object of the list under a key, and the line on which it begins."""
        self._expect("{", f"{{, the start of an object with the list {key!r}")
        found = False
        while self._next() == '"':
            name = self._value()
            self._expect(":", ": after a key")
            if name == key:
                found = True
                yield from self._list()
            else:
                self._value()
            if self._next() != ",":
                break
            self._expect(",", ",")
        self._expect("}", ", or } after a value")
        if not found:
            raise self._error(f"the file has no list {key!r}; give the output of the command that the help names")
        if mark := self._next():
            raise self._error(f"found {mark!r} after the end of the object; remove the rest of the file")

    def _list(self) -> Iterator[tuple[int, dict[str, object]]]:
        self._expect("[", "[, the start of a list of jobs")
        if self._next() == "]":
            self._expect("]", "]")
        else:
            yield from self._items()

    def _items(self) -> Iterator[tuple[int, dict[str, object]]]:
        while True:
            if self._next() != "{":
                raise self._error(f"allowed is {{, the start of a job; found {self._next()!r}")
            line = self._line
            yield line, self._value()  # type: ignore[misc]  # it begins with a brace
            if self._next() == "]":
                self._expect("]", "]")
                return
            self._expect(",", ", or ] after a job")

    def _next(self) -> str:
        """Go to the next character that is not blank and return it; nothing at the end of the file."""
        while True:
            while self._at < len(self._text):
                if (mark := self._text[self._at]) not in BLANKS:
                    return mark
                self._line += mark == "\n"
                self._at += 1
            if self._ended:
                return ""
            self._read(CHUNK)

    def _expect(self, mark: str, allowed: str) -> None:
        if (found := self._next()) != mark:
            what = f"allowed is {allowed}; found {found!r}" if found else f"the file ends before {allowed}"
            raise self._error(what)
        self._at += 1

    def _value(self) -> object:
        """Read the next value of any kind and return it."""
        self._next()
        while True:
            seen = len(self._text) - self._at
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # The value is cut short or broken. Reading twice as much tells which, at twice the cost at most.
                if self._ended or seen > MAX_OBJECT:
                    raise self._broken(error) from None
                self._read(max(CHUNK, seen))
                continue
            if isinstance(value, int | float) and not self._ended and not self._text[end:].lstrip(IN_NUMBERS):
                self._read(CHUNK)  # the number may go on
                continue
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _read(self, size: int) -> None:
        raw = self._file.read(size)
        self._ended = not raw
        try:
            more = self._decode(raw, final=self._ended)
        except UnicodeDecodeError as error:
            found = error.object[error.start : error.end]
            raise self._error(f"allowed is UTF-8 text; found {found!r}") from None
        self._text = self._text[self._at :] + more
        self._at = 0

    def _broken(self, error: ValueError | RecursionError) -> InvalidInputError:
        if isinstance(error, json.JSONDecodeError):
            self._line += self._text.count("\n", self._at, error.pos)
            if self._ended and error.pos >= len(self._text.rstrip()):
                return self._error("the file ends within a job")
            return self._error(f"not JSON: {error.msg}")
        return self._error(f"not JSON that can be read: {str(error)[:80]}")

    def _error(self, what: str) -> InvalidInputError:
        return bad_line(self._path, self._line, what)
