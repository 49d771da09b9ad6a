"""How the cells of a workload's further columns are read."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, TypeVar

from polluxsim.models.stages import Stages
from polluxsim.tables import Row, read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.models.rigid import TypeSpeeds
    from polluxsim.models.scaling import Speeds
    from polluxsim.models.sensitivity import Curve

_KeyT = TypeVar("_KeyT")

BETWEEN = "with spaces or semicolons between them"


def _shared_text(row: Row, column: str) -> str:
    return intern(row.text(column))


@lru_cache(maxsize=1 << 12)
def _split(text: str) -> tuple[str, ...]:
    parts = text.split(";") if ";" in text else text.split()
    return tuple(part.strip() for part in parts if part.strip())


def _names(row: Row, column: str) -> tuple[str, ...]:
    """Return a list of names, or of names in a text, with spaces or semicolons between them."""
    value = row.values[column]
    names = _split(value) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise row.error(column, f"names {BETWEEN}, or a list of names")
    return tuple(names)


def _by(what: str, key_of: Callable[[str], _KeyT | None], row: Row, column: str) -> tuple[tuple[_KeyT, float], ...]:
    """Return speeds by something: pairs WHAT:speed with spaces or semicolons between them, or a list of such texts."""
    pairs = []
    for text in _names(row, column):
        name, _, speed = text.rpartition(":")
        key, number = key_of(name), read_number(speed)
        if key is None or number is None:
            raise row.error(column, f"{what}:speed pairs {BETWEEN}")
        pairs.append((key, number or 0.0))
    return tuple(pairs)


def _whole(text: str) -> int | None:
    number = read_number(text)
    return int(number) if number is not None and number.is_integer() else None


def _speeds(row: Row, column: str) -> Speeds:
    return _by("GPUs", _whole, row, column)


def curve_of(row: Row, column: str) -> Curve:
    """Return speeds by an amount."""
    return _by("amount", read_number, row, column)


def _type_speeds(row: Row, column: str) -> TypeSpeeds:
    return _by("TYPE", lambda name: name or None, row, column)


def _stages(row: Row, column: str) -> Stages:
    """Return the times of a step and its stages: four numbers with spaces or semicolons between them, or a list."""
    times = [read_number(name) for name in _names(row, column)]
    if len(times) != len(Stages._fields) or None in times:
        raise row.error(column, f"four times [s] {BETWEEN}: step, load, compute, network")
    return Stages(*(time or 0.0 for time in times))


READERS: Mapping[str, Callable[[Row, str], Any]] = {
    "user": _shared_text,
    "queue": _shared_text,
    "priority": Row.number,
    "deadline": Row.number,
    "time_limit": Row.number,
    "after": _names,
    "gpu_types": _names,
    "min_replicas": Row.integer,
    "max_replicas": Row.integer,
    "cancel_time": Row.number,
    "speeds": _speeds,
    "type_speeds": _type_speeds,
    "stages": _stages,
    "cpus": Row.number,
    "memory": Row.number,
    "cpu_speeds": curve_of,
    "memory_speeds": curve_of,
    "job_name": _shared_text,
    "qos": _shared_text,
}
"""Readers by column."""
