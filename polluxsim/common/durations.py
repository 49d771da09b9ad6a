"""Units of time, and text forms of durations."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

MINUTE, HOUR, DAY = 60, 3600, 86400  # [s]
NODE_DAYS = 1000 * DAY  # unit of time of published failure rates, 1,000 node-days [s]

UNITS = (("s", 1), ("min", MINUTE), ("h", HOUR), ("d", DAY))  # names and lengths [s]
CLOCK_UNITS = (HOUR, MINUTE, 1)  # lengths of the parts of H:MM:SS [s]


def clock(seconds: float) -> str:
    """Return a time since the start [s] as H:MM:SS.

    >>> clock(9480.4), clock(-90.0)
    ('2:38:00', '-0:01:30')
    """
    whole = abs(round(seconds))  # of the absolute value, because // and % round negative numbers down
    sign = "-" if round(seconds) < 0 else ""
    return f"{sign}{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def from_clock(text: str) -> float | None:
    """Return the seconds of a text like H:MM:SS, H:MM, 1.5h or 90; None for other texts.

    >>> from_clock("2:38:00"), from_clock("90.5"), from_clock("1.5h"), from_clock("1:60"), from_clock("1hh")
    (9480.0, 90.5, 5400.0, None, None)
    """
    if ":" in text:
        return _seconds_of_clock(text.split(":"))
    for unit, size in reversed(UNITS):  # "min" ends with no other unit, and "d" is no part of one
        if text.endswith(unit):
            return _number(text.removesuffix(unit), size)
    return _number(text, 1)


def _number(text: str, size: float) -> float | None:
    """Return a number of at least 0 times the length of its unit [s]; None for other texts."""
    try:
        number = float(text) * size
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _seconds_of_clock(parts: Sequence[str]) -> float | None:
    """Return the seconds of hours, minutes and perhaps seconds; None if they are not those of a clock."""
    if len(parts) > len(CLOCK_UNITS):
        return None
    total = 0.0
    for place, (part, size) in enumerate(zip(parts, CLOCK_UNITS, strict=False)):
        number = _number(part, 1)
        if number is None:
            return None
        if place > 0 and number >= 60:
            return None  # such minutes or seconds are probably in another unit
        total += number * size
    return total


def unit_of(seconds: float) -> tuple[str, int]:
    """Return the largest unit that fits at least twice into a duration, or else the second, and its length [s].

    >>> [unit_of(seconds)[0] for seconds in (45.0, 90.0, 5400.0, 9000.0, 259200.0)]
    ['s', 's', 'min', 'h', 'd']
    """
    for unit, size in reversed(UNITS):
        if seconds >= 2 * size:
            return unit, size
    return UNITS[0]


def length(seconds: float) -> str:
    """Return a duration [s] as text, in the unit of `unit_of`.

    >>> [length(seconds) for seconds in (0.5, 45.0, 90.0, 5400.0, 9000.0, 259200.0, 1e8)]
    ['0.5 s', '45 s', '90 s', '90 min', '2.5 h', '3 d', '1157 d']
    """
    unit, size = unit_of(seconds)
    # Three digits, but all digits of a large number, which would have an exponent otherwise.
    form = ".3g" if seconds < 1000 * size else ".0f"
    return f"{seconds / size:{form}} {unit}"
