"""Read JSON of Slurm that may be cut off, with the values of all its versions.

A recorded output may end anywhere, so the objects before a fault are used. The readers of single values take the forms
of all versions, and answer a default or None where a value is missing or damaged. None of them raises an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

JsonObject = Mapping[str, Any]

LARGEST = 10**12  # largest number that is no sign of damage; times are seconds since 1970


class Objects(NamedTuple):
    """The objects of a list in a JSON text."""

    objects: Sequence[JsonObject]
    is_complete: bool  # whether the text ends where it should


def objects_in(text: str, *keys: str) -> Objects | None:
    """Return the objects of the list under the first of the keys that has one; None without such a list.

    If the text is cut off or damaged, the objects before the fault are returned. Other items are left out.
    """
    try:
        content = json.loads(text)
    except ValueError:
        return _before_fault(text, keys)
    if not isinstance(content, dict):
        return None
    for key in keys:
        if isinstance(content.get(key), list):
            return Objects([item for item in content[key] if isinstance(item, dict)], is_complete=True)
    return None


def _before_fault(text: str, keys: Sequence[str]) -> Objects | None:
    """Return the objects of a list before the first fault of a text that is no JSON; None without such a list."""
    for key in keys:
        match = re.search(rf'"{key}"\s*:\s*\[', text)
        if match is not None:
            return Objects(list(_items(text, match.end())), is_complete=False)
    return None


def _items(text: str, place: int) -> Iterator[JsonObject]:
    """Yield the objects of a list whose first item is at a place of a text, up to the first fault."""
    decoder = json.JSONDecoder()
    while True:
        # The decoder reads one value, and takes neither the space nor the comma before it.
        while place < len(text) and (text[place].isspace() or text[place] == ","):
            place += 1
        try:
            item, place = decoder.raw_decode(text, place)
        except ValueError:  # the end of the list, or the fault
            return
        if isinstance(item, dict):
            yield item


def has_errors(text: str) -> bool:
    """Return whether an output states errors and has no jobs, as if slurmctld does not answer.

    Errors beside jobs do no harm.

    >>> has_errors('{"errors": [{"error": "Unspecified error"}], "jobs": []}'), has_errors('{"errors": [], "jobs": []}')
    (True, False)
    """
    errors = objects_in(text, "errors")
    jobs = objects_in(text, "jobs")
    has_jobs = jobs is not None and bool(jobs.objects)
    return errors is not None and bool(errors.objects) and not has_jobs


def number(value: object) -> float | None:
    """Return a number of Slurm's JSON; None if it is not set, infinite, negative or damaged.

    Since 23.02, a number is an object with `set`, `infinite` and `number`.

    >>> number(5), number({"set": True, "infinite": False, "number": 5}), number({"set": False, "number": 0})
    (5.0, 5.0, None)
    """
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    # In Python, true and false are whole numbers.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        return None
    return float(value)


def is_infinite(value: object) -> bool:
    """Return whether a number of Slurm's JSON has no limit."""
    return isinstance(value, dict) and bool(value.get("infinite"))


def whole(value: object, default: int = 0) -> int:
    """Return a number of Slurm's JSON without its fraction; the default if `number` has none."""
    read = number(value)
    return default if read is None else int(read)


def text(value: object) -> str:
    """Return a text of Slurm's JSON; empty if it is missing or no text. A list becomes a text with commas.

    >>> text(["a", "b"]), text(None), text("x")
    ('a,b', '', 'x')
    """
    if isinstance(value, list):
        return ",".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


def words(value: object) -> list[str]:
    """Return the words of a state in capital letters: from a text with +, or a list of words since 23.11.

    >>> words("mixed+drain"), words(["RUNNING"])
    (['MIXED', 'DRAIN'], ['RUNNING'])
    """
    items = value if isinstance(value, list) else text(value).split("+")
    return [item.strip().upper() for item in items if isinstance(item, str) and item.strip()]
