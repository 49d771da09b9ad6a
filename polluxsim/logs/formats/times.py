"""Times and durations in the texts of logs.

A local time in the hour that a clock repeats in autumn means two instants. Reading takes the first one. Where the times
of a job disagree then, `consistent_times` tries the second ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, tzinfo
from functools import lru_cache
from itertools import product
from typing import NamedTuple


class Times(NamedTuple):
    """The times of one job [s]; start and end are None if unknown."""

    submitted: float
    eligible: float  # from here on the job could start
    start: float | None
    end: float | None

    def agree(self, duration: float | None) -> bool:
        """Return whether the job did not start before its submission, and ran for its duration [s].

        A value that is unknown agrees with all others.
        """
        if self.start is None:
            return True
        if self.start < self.submitted:
            return False
        # Logs round times to whole seconds.
        return self.end is None or duration is None or abs(self.end - self.start - duration) <= 1


def consistent_times(times: Times, duration: float | None, moments: Callable[[], Iterable[tuple[float, ...]]]) -> Times:
    """Return the times of a job, with the right ones of the instants that a local time in autumn can mean.

    `times` takes the first instant of each time. `moments` returns all instants of each known time, in the order of
    `Times`. If `times` disagree, return the first combination of these that agrees, or `times` if there is none.
    """
    if times.agree(duration):
        return times
    for combination in product(*moments()):
        instants = iter(combination)  # of the times that are known
        submitted = next(instants)
        eligible = next(instants)
        start = times.start
        if start is not None:
            start = next(instants)
        end = times.end
        if end is not None:
            end = next(instants)
        other = Times(submitted, eligible, start, end)
        if other.agree(duration):
            return other
    return times


def read_time(text: str, zone: tzinfo | None, fold: int = 0) -> float | None:
    """Return the time in a text [s since 1970-01-01 UTC], or None if the text has another form or no known zone.

    In the hour that a clock repeats in autumn, `fold` 1 takes the second instant of a local time.

    >>> from datetime import UTC
    >>> read_time("1970-01-02 00:00:00", UTC)
    86400.0
    >>> read_time("1970-01-02 00:00", UTC)
    86400.0
    >>> read_time("1970-01-01T08:00:00+08:00", None)
    0.0
    """
    # Most logs write times like 2017-10-02T08:00:00, and a log has much fewer different hours than times.
    past_hour = SECONDS_PAST_HOUR.get(text[13:])
    if past_hour is not None and zone is not None:
        begin = _start_of_hour(text[:13], zone, fold)
        if begin is not None:
            return begin + past_hour
    text = text.strip()
    # Python also reads 20171002 and 2017-W40, which are more likely numbers or names in a wrong column.
    if len(text) < 16 or text[4] != "-" or text[13] != ":" or text[10] not in " T":
        return None
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is None:
            if zone is None:
                return None
            value = value.replace(tzinfo=zone, fold=fold)
        return value.timestamp()
    except (ValueError, OverflowError):
        return None


SECONDS_PAST_HOUR = {
    f":{minute:02d}:{second:02d}": 60 * minute + second for minute in range(60) for second in range(60)
}
"""Seconds since the start of the hour, by the end of a time, like :59:30."""

HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII)
"""The hour of a time, in the form in which most logs write it."""


@lru_cache(maxsize=1 << 14)  # the times of a log are close together
def _start_of_hour(text: str, zone: tzinfo, fold: int) -> float | None:
    """Return when an hour like 2017-10-02T08 begins [s since 1970-01-01 UTC].

    None if the text has another form, if there is no such hour, or if the clock of the zone is changed within it.
    """
    if HOUR.fullmatch(text) is None:
        return None
    try:
        first = datetime.fromisoformat(f"{text}:00:00").replace(tzinfo=zone, fold=fold)
        begin = first.timestamp()
        end = first.replace(minute=59, second=59).timestamp()
    except (ValueError, OverflowError):
        return None
    if end - begin != 3599:  # the clock is changed within the hour
        return None
    return begin


def read_clock_duration(text: str) -> float | None:
    """Return a duration like 02:03:04, 1-02:03:04 or 1 day 02:03:04 [s]; None for any other text.

    >>> read_clock_duration("1-00:00:30"), read_clock_duration("2 days, 1:00:00"), read_clock_duration("90")
    (86430.0, 176400.0, None)
    """
    match = CLOCK_DURATION.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


CLOCK_DURATION = re.compile(r"(?:(\d{1,6})(?:-| days?,? ))?(\d{1,6}):([0-5]?\d):([0-5]?\d(?:\.\d+)?)", re.ASCII)
"""[days-]hours:minutes:seconds, or the days as words, perhaps with a fraction of a second."""
