"""Read the rows of JSON logs, which are objects, with checks of their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError
from polluxsim.logs.formats.base import BadRowError, Clock, Dropped, Entry, Format, LogJob, Place
from polluxsim.logs.formats.json_array import read_objects
from polluxsim.logs.formats.log_rows import MAX_COUNT, read_time
from polluxsim.tables import Row, read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import tzinfo
    from pathlib import Path


@dataclass(frozen=True)
class JsonRow(Row):
    """One JSON object. Errors name its keys with the path to them, like `spec.queue`.

    Parameters
    ----------
    zone
        Time zone of times that name none; None if all times must name theirs.
    prefix
        Path to this object, for errors.
    """

    zone: tzinfo | None = None
    prefix: str = ""

    @property
    def place(self) -> Place:
        """Return the place of the row in its file."""
        return Place(self.path.name, self.line)

    def part(self, values: Mapping[str, object], prefix: str) -> JsonRow:
        """Return an object inside this one. `prefix` is the path to it."""
        return replace(self, values=values, prefix=self.prefix + prefix)

    def child(self, key: str) -> JsonRow:
        """Return the object under a key, or an empty object if the key is missing."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return self.part(value, f"{key}.")

    def children(self, key: str) -> list[JsonRow]:
        """Return the objects of the list under a key, none if there is no list."""
        return [self.part(value, f"{key}[].") for value in self.objects(key)] if self.has(key) else []

    def value(self, column: str) -> object:
        """Return the value of a key."""
        if column not in self.values:
            raise BadRowError(self.path, self.line, f"key {self.prefix + column!r} is missing")
        return self.values[column]

    def text(self, column: str) -> str:
        """Return text that is not blank."""
        text = super().text(column)
        # JSON can spell half a surrogate pair, which is not a character.
        if text.encode(errors="ignore").decode() != text:
            raise self.error(column, "a name")
        return text

    def word(self, key: str) -> str | None:
        """Return the text of a key that may be blank or absent."""
        return self.text(key) if self.has(key) else None

    def within(self, key: str, low: float, high: float) -> float:
        """Return a number within limits, both allowed."""
        value = self.value(key)
        number = None if isinstance(value, str) else read_number(value)
        if number is None or not low <= number <= high:
            raise self.error(key, f"a number from {low:g} to {high:g}")
        return number

    def count(self, key: str, at_least: int = 0) -> int:
        """Return a whole number."""
        number = self.within(key, at_least, MAX_COUNT)
        if not number.is_integer():
            raise self.error(key, f"a whole number from {at_least} to {MAX_COUNT:g}")
        return int(number)

    def time(self, key: str) -> float | None:
        """Return a date and time of day [s since 1970-01-01 UTC], None if the value states none."""
        value = self.value(key)
        if value is None or value in ("None", ""):
            return None
        if not isinstance(value, str) or (seconds := read_time(value, self.zone)) is None:
            like = (
                "with its zone, like 2024-01-01T00:00:00Z" if self.zone is None else "like 2017-10-02 08:00:00, or None"
            )
            raise self.error(key, f"a time {like}")
        return seconds

    def objects(self, key: str) -> list[dict[str, object]]:
        """Return the objects of the list under a key."""
        value = self.value(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, "a list of objects")
        return value

    def dropped(self, reason: str) -> Dropped:
        """Return that this row is left out, and why."""
        return Dropped(self.place, reason)

    def error(self, column: str, allowed: str) -> BadRowError:
        """Return the error that a key's value is not what is allowed."""
        reason = f"key {self.prefix + column!r} is not {allowed}"
        return BadRowError(self.path, self.line, reason, self.value(column))


def is_json(path: Path) -> bool:
    """Return whether a file begins like JSON: with a bracket or a brace."""
    try:
        with path.open("rb") as file:
            return file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{")
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror})") from None


def json_rows(path: Path, key: str | None, zone: tzinfo | None) -> Iterator[JsonRow]:
    """Yield the objects of a JSON list, of the list under `key` if the file is one object."""
    return (JsonRow(path, line, values, zone) for line, values in read_objects(path, key))


def parsed(row: JsonRow, parse: Callable[[JsonRow], LogJob | Dropped]) -> Entry:
    """Return the entry of a row. An error about the row is an entry, too."""
    try:
        return parse(row)
    except BadRowError as error:
        return error


@dataclass(frozen=True, kw_only=True)
class JsonFormat(Format):
    """A log that is one JSON file. Such logs differ in a key and in a function for one row.

    Parameters
    ----------
    key
        Member of the file's object that lists the rows; None if the file is the list.
    parse
        Function that returns the job of a row or the reason to drop it, and raises `BadRowError`.
    """

    key: str | None
    parse: Callable[[JsonRow], LogJob | Dropped]

    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each object."""
        for row in json_rows(path, self.key, zone if self.clock is Clock.LOCAL else None):
            yield parsed(row, self.parse)
