"""Lengths of time: units, and how they are written for people and by them."""

from __future__ import annotations

from math import isfinite

from polluxsim.errors import InvalidInputError

MINUTE, HOUR, DAY = 60, 3600, 86400
"""[s]"""

UNITS = {"min": MINUTE, "s": 1, "h": HOUR, "d": DAY}
"""As people write them."""


def clock(seconds: float) -> str:
    """Return a time since the start as H:MM:SS.

    >>> clock(9480.4)
    '2:38:00'
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def from_clock(text: str) -> float | None:
    """Return what `clock` wrote, in seconds, or H:MM, a number with its unit, or seconds; None if it is none of these.

    >>> from_clock("2:38:00"), from_clock("90.5"), from_clock("1.5h"), from_clock("1:60")
    (9480.0, 90.5, 5400.0, None)
    """
    unit = next((unit for unit in UNITS if text.endswith(unit)), None)
    if unit is not None and ":" not in text:
        number = from_clock(text.removesuffix(unit))
        return None if number is None else number * UNITS[unit]
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    if len(numbers) > 3 or not all(isfinite(n) and n >= 0 for n in numbers) or any(n >= 60 for n in numbers[1:]):
        return None
    if len(numbers) == 1:
        return numbers[0]
    return sum(number * unit for number, unit in zip(numbers, (HOUR, MINUTE, 1.0), strict=False))


def instant(given: float | str) -> float:
    """Return a time since the start in seconds, however it was written.

    Raises
    ------
    InvalidInputError
        If it is none.
    """
    time = from_clock(given) if isinstance(given, str) else given
    if time is None or not (isfinite(time) and time >= 0):
        raise InvalidInputError(f"TIME is {given!r}, allowed are seconds ≥ 0, 90min, 1.5h, H:MM or H:MM:SS")
    return time


def short(seconds: float) -> str:
    """Return a length of time in the unit that a person would take.

    >>> [short(seconds) for seconds in (45.0, 90.0, 5400.0, 9000.0, 259200.0)]
    ['45 s', '90 s', '90 min', '2.5 h', '3.0 d']
    """
    if seconds < 10 * MINUTE:
        return f"{seconds:g} s" if seconds < MINUTE else f"{seconds:.0f} s"
    if seconds < 2 * DAY:
        return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"
    return f"{seconds / DAY:.1f} d"
