"""Read the objects of JSON logs one at a time, and check their values."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path
from typing import BinaryIO

from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.common.tables import read_number
from polluxsim.logs.formats.base import BadRowError, Dropped, Entry, Format, LogClock, LogJob
from polluxsim.logs.formats.log_rows import PlacedRow, parsed
from polluxsim.logs.formats.opening import head_of, open_log
from polluxsim.logs.formats.times import read_time

CHUNK = 1 << 16  # bytes read at a time

MAX_OBJECT = 1 << 23
"""Longest value read [characters]: if no value ends by then, the text is broken and must not fill the memory."""

BLANKS = " \t\r\n"
IN_NUMBERS = "0123456789.eE+-"  # characters of which a number consists


def read_objects(path: Path, key: str | None = None) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSON array and their lines.

    With a `key`, the file is one object, and the array is its member of that name. Other members are skipped. A file
    may have several arrays or objects one after another, because sites join the outputs of several days.

    Raise InvalidInputError for broken JSON, which is not a bad row, because the start of the next row is unknown.
    """
    with open_log(path) as file:
        window = _Window(path, file)
        if key is None:
            yield from window.objects()
        else:
            yield from window.objects_of(key)


class _Window:
    """The part of a file that is read but not yet parsed.

    A log may be larger than the memory, so the window moves on, and holds about one object. `_line` counts the line
    breaks before `_at`: whatever moves `_at` must count those that it passes.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        # A byte that is not UTF-8 becomes a lone surrogate, so that only the row with it is bad.
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._json = json.JSONDecoder()
        self._text = ""  # the window
        self._at = 0  # index of the next character that is not parsed
        self._line = 1  # line of this character, from 1
        self._ended = False  # whether the window contains the end of the file

    def objects(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object of the lists of a file, and the line on which it begins."""
        yield from self._list()
        while self._next() == "[":
            yield from self._list()
        mark = self._next()
        if mark:
            raise self._error(f"the list has ended, but the file goes on; found {mark!r}")

    def objects_of(self, key: str) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object of the lists under a key, and the line on which it begins."""
        yield from self._document(key)
        while self._next() == "{":
            yield from self._document(key)
        mark = self._next()
        if mark:
            raise self._error(f"found {mark!r} after the end of the object; remove the rest of the file")

    def _document(self, key: str) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object of the list under a key of the next object of the file."""
        self._expect("{", f"{{, the start of an object with the list {key!r}")
        has_list = False
        while self._next() == '"':
            name = self._value()
            self._expect(":", ": after a key")
            if name == key:
                has_list = True
                yield from self._list()
            else:
                self._value()
            if self._next() != ",":
                break
            self._expect(",", ",")
        self._expect("}", ", or } after a value")
        if not has_list:
            raise self._error(f"the file has no list {key!r}; give the output of the command that the help names")

    def _list(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each object of a list, and the line on which it begins."""
        self._expect("[", "[, the start of a list of jobs")
        if self._next() == "]":
            self._expect("]", "]")
            return
        while True:
            if self._next() != "{":
                raise self._error(f"a job must start with {{; found {self._next()!r}")
            line = self._line
            yield line, self._value()  # type: ignore[misc]  # it begins with a brace
            if self._next() == "]":
                self._expect("]", "]")
                return
            self._expect(",", ", or ] after a job")

    def _next(self) -> str:
        """Move to the next character that is not blank and return it; return "" at the end of the file."""
        while True:
            while self._at < len(self._text):
                mark = self._text[self._at]
                if mark not in BLANKS:
                    return mark
                self._line += mark == "\n"
                self._at += 1
            if self._ended:
                return ""
            self._read(CHUNK)

    def _expect(self, mark: str, allowed: str) -> None:
        """Move past a mark; if another character is next, raise an error with the words of `allowed`."""
        next_mark = self._next()
        if not next_mark:
            raise self._error(f"the file ends before {allowed}")
        if next_mark != mark:
            raise self._error(f"expected {allowed}; found {next_mark!r}")
        self._at += 1

    def _value(self) -> object:
        """Read the next value of any kind and return it."""
        # The decoder refuses blanks before a value.
        self._next()
        while True:
            num_read = len(self._text) - self._at  # characters of the value that are in the window
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # The value is cut short or broken. Reading twice as much text decides it, at no more than twice the
                # cost.
                if self._ended or num_read > MAX_OBJECT:
                    raise self._broken(error) from None
                self._read(max(CHUNK, num_read))
                continue
            if isinstance(value, int | float) and not self._ended and not self._text[end:].lstrip(IN_NUMBERS):
                self._read(CHUNK)  # a number has no end mark, so it may go on behind the window
                continue
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _read(self, size: int) -> None:
        """Read up to `size` bytes, and discard the text that is already parsed."""
        raw = self._file.read(size)
        self._ended = not raw
        more = self._decode(raw, final=self._ended)
        self._text = self._text[self._at :] + more
        self._at = 0

    def _broken(self, error: ValueError | RecursionError) -> InvalidInputError:
        """Return the error about a value that the JSON decoder cannot read."""
        if isinstance(error, json.JSONDecodeError):
            # The error names the line of the fault, which may be far below the start of the job.
            self._line += self._text.count("\n", self._at, error.pos)
            if self._ended and error.pos >= len(self._text.rstrip()):
                return self._error("the file ends within a job")
            return self._error(f"not JSON: {error.msg}")
        return self._error(f"not JSON that can be read: {str(error)[:80]}")

    def _error(self, what: str) -> InvalidInputError:
        return bad_line(self._path, self._line, what)


@dataclass(frozen=True)
class JsonRow(PlacedRow):
    """One JSON object. Errors name its keys with the path to them, like `spec.queue`."""

    zone: tzinfo | None = None  # of times that name none; None if all times must name theirs
    prefix: str = ""  # path to this object

    def part(self, values: Mapping[str, object], prefix: str) -> JsonRow:
        """Return an object that this object contains. `prefix` is the path to it."""
        return replace(self, values=values, prefix=self.prefix + prefix)

    def child(self, key: str) -> JsonRow:
        """Return the object under a key, or an empty object if the key is missing or null."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return self.part(value, f"{key}.")

    def children(self, key: str, *, is_required: bool = False) -> list[JsonRow]:
        """Return the objects of the list under a key; none without a list, if it is not required."""
        if not is_required and not self.has(key):
            return []
        value = self.value(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, "a list of objects")
        return [self.part(item, f"{key}[].") for item in value]

    def value(self, column: str) -> object:
        """Return the value of a key; raise BadRowError if the key is missing."""
        if column not in self.values:
            raise BadRowError(self.path, self.line, f"key {self.prefix + column!r} is missing")
        return self.values[column]

    def text(self, column: str) -> str:
        """Return text that is not blank, and has only characters that UTF-8 can write."""
        text = super().text(column)
        # JSON can spell half a surrogate pair, which is not a character, and so can a byte that is not UTF-8.
        if text.encode(errors="ignore").decode() != text:
            raise self.error(column, "a name in UTF-8")
        return text

    def free_text(self, column: str) -> str:
        """Return text that is not blank, with a replacement for each character that is not UTF-8."""
        return super().text(column).encode("utf-8", "replace").decode("utf-8")

    def word(self, key: str) -> str | None:
        """Return the text of a key that may be blank or absent."""
        if not self.has(key):
            return None
        return self.text(key)

    def number_in(self, column: str) -> float | None:
        """Return the finite number under a key, or None."""
        value = self.value(column)
        if isinstance(value, str):  # JSON has numbers, so a number in quotes is a name
            return None
        return read_number(value)

    def time(self, key: str) -> float | None:
        """Return a date and time of day [s since 1970-01-01 UTC]; None if the value is null, blank or "None"."""
        value = self.value(key)
        # Philly's log has the word None for a missing time.
        if value is None or value in ("None", ""):
            return None
        seconds = None
        if isinstance(value, str):
            seconds = read_time(value, self.zone)
        if seconds is None and self.zone is None:
            raise self.error(key, "a time with its zone, like 2024-01-01T00:00:00Z")
        if seconds is None:
            raise self.error(key, "a time like 2017-10-02 08:00:00, or None")
        return seconds

    def error(self, column: str, allowed: str) -> BadRowError:
        """Return the error that the value of a key is not `allowed`."""
        reason = f"key {self.prefix + column!r} is not {allowed}"
        return BadRowError(self.path, self.line, reason, self.value(column))


def is_json(path: Path) -> bool:
    """Return whether a file begins like JSON: with a bracket or a brace."""
    # A byte order mark and blanks may stand before the bracket.
    return head_of(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{")


def json_rows(path: Path, key: str | None, zone: tzinfo | None) -> Iterator[JsonRow]:
    """Yield the objects of a JSON list, or of the list under `key` if the file is one object."""
    return (JsonRow(path, line, values, zone) for line, values in read_objects(path, key))


@dataclass(frozen=True, kw_only=True)
class JsonFormat(Format):
    """A log in JSON: a list with an object for each row."""

    key: str | None  # of the list of rows in the file's object; None if the file is the list
    parse: Callable[[JsonRow], LogJob | Dropped]  # raises `BadRowError`

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each object."""
        # In all other logs, a time without a zone is a mistake.
        zone_of_times = None
        if self.clock is LogClock.LOCAL:
            zone_of_times = zone
        for row in json_rows(path, self.key, zone_of_times):
            yield parsed(row, self.parse)
