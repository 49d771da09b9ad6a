"""Units of time, and text forms of durations."""

from __future__ import annotations

from math import isfinite

MINUTE, HOUR, DAY = 60, 3600, 86400  # [s]
NODE_DAYS = 1000 * DAY  # unit of time of published failure rates, 1,000 node-days [s]

UNITS = (("s", 1), ("min", MINUTE), ("h", HOUR), ("d", DAY))  # names and lengths [s]


def clock(seconds: float) -> str:
    """Return a time since the start [s] as H:MM:SS.

    >>> clock(9480.4), clock(-90.0)
    ('2:38:00', '-0:01:30')
    """
    whole = abs(round(seconds))
    sign = "-" if round(seconds) < 0 else ""
    return f"{sign}{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def from_clock(text: str) -> float | None:
    """Return the seconds of a text like H:MM:SS, H:MM, 1.5h or 90; None for other texts.

    >>> from_clock("2:38:00"), from_clock("90.5"), from_clock("1.5h"), from_clock("1:60"), from_clock("1hh")
    (9480.0, 90.5, 5400.0, None, None)
    """
    units = (unit_and_size for unit_and_size in reversed(UNITS) if text.endswith(unit_and_size[0]) and ":" not in text)
    unit, size = next(units, ("", 1))
    try:
        numbers = [float(part) * size for part in text.removesuffix(unit).split(":")]
    except ValueError:
        return None
    if len(numbers) > 3 or not all(isfinite(n) and n >= 0 for n in numbers) or any(n >= 60 for n in numbers[1:]):
        return None
    if len(numbers) == 1:
        return numbers[0]
    return sum(number * unit for number, unit in zip(numbers, (HOUR, MINUTE, 1.0), strict=False))


def unit_of(seconds: float) -> tuple[str, int]:
    """Return the largest unit that fits at least twice into a duration, and the length of the unit [s].

    >>> [unit_of(seconds)[0] for seconds in (45.0, 90.0, 5400.0, 9000.0, 259200.0)]
    ['s', 's', 'min', 'h', 'd']
    """
    return next((unit for unit in reversed(UNITS) if seconds >= 2 * unit[1]), UNITS[0])


def length(seconds: float) -> str:
    """Return a duration [s] as text, in the unit of `unit_of`.

    >>> [length(seconds) for seconds in (0.5, 45.0, 90.0, 5400.0, 9000.0, 259200.0, 1e8)]
    ['0.5 s', '45 s', '90 s', '90 min', '2.5 h', '3 d', '1157 d']
    """
    unit, size = unit_of(seconds)
    return f"{seconds / size:{'.3g' if seconds < 1000 * size else '.0f'}} {unit}"
