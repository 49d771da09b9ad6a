"""Dates and clock times: as users write them, and of the seconds of a run whose start has a date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from polluxsim.common.errors import InvalidInputError

FORMS = "a date like 2026-03-04 or 2026-03-04T14:00"

_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ](?P<hour>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(?P<offset>Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_BEGINNING = re.compile(r"\d{4}-\d", re.ASCII)  # beginning of all dates, and of no duration

OFFSET = re.compile(r"(?:UTC)?([+-])([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
"""A time zone that is stated as its offset from UTC."""


class Date(NamedTuple):
    """A date that a user wrote, with or without a time of day and an offset from UTC."""

    text: str  # as the user wrote it
    time: datetime  # without a zone if the text states no offset; midnight if it states no time of day


def is_like_a_date(text: str) -> bool:
    """Return whether a text begins like a date, so that it was not meant as a duration.

    >>> is_like_a_date("2026-03-04"), is_like_a_date("2026-3"), is_like_a_date("3h")
    (True, True, False)
    """
    return _BEGINNING.match(text) is not None


def read_date(text: str) -> Date | None:
    """Return the date that a text states, None if it states none.

    >>> read_date("2026-03-04T14:00").time, read_date("2026-03-04T14:00+01:00").time.utcoffset()
    (datetime.datetime(2026, 3, 4, 14, 0), datetime.timedelta(seconds=3600))
    >>> read_date("2026-02-30"), read_date("4 March")
    (None, None)
    """
    # `fromisoformat` also reads other forms, like 20260304 and week dates, which are more likely mistakes.
    if _DATE.fullmatch(text) is None:
        return None
    with suppress(ValueError):
        return Date(text, datetime.fromisoformat(text))
    return None


def zone_named(name: str) -> tzinfo | None:
    """Return the time zone with a name like Europe/Berlin, or with an offset like UTC+01:00; None for other names.

    >>> zone_named("UTC+01:00").utcoffset(None), zone_named("Mars/Olympus")
    (datetime.timedelta(seconds=3600), None)
    """
    offset = OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(offset[2]), minutes=int(offset[3])))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def short_date(time: datetime, now: datetime) -> str:
    """Return a time as clock time, or with its weekday and date if it is on another day than now.

    >>> now = datetime(2026, 3, 4, 13, 0)
    >>> short_date(datetime(2026, 3, 4, 14, 1, 5), now), short_date(datetime(2026, 3, 5, 9, 30), now)
    ('14:01:05', 'Thu Mar 05 09:30')
    """
    return f"{time:%H:%M:%S}" if time.date() == now.date() else f"{time:%a %b %d %H:%M}"


class Origin(NamedTuple):
    """The date of second 0 of a run, and the time zone of its dates."""

    time: datetime  # of second 0, with a zone
    zone_name: str  # as the log states it, like Europe/Berlin

    @classmethod
    def of(cls, time: datetime, zone_name: str) -> Origin:
        """Return the origin with the time of second 0 in a zone. Raise InvalidInputError if there is no such zone."""
        zone = zone_named(zone_name)
        if zone is None:
            raise InvalidInputError(f"there is no time zone {zone_name!r}; import the log again with --time-zone")
        return cls(time.astimezone(zone), zone_name)

    @classmethod
    def read(cls, value: object) -> Origin:
        """Return the origin that run.json states. Raise InvalidInputError for another value."""
        if isinstance(value, Mapping) and isinstance(value.get("time"), str) and isinstance(value.get("zone"), str):
            with suppress(ValueError):
                time = datetime.fromisoformat(value["time"])
                if time.tzinfo is not None:
                    return cls.of(time, value["zone"])
        raise InvalidInputError(f"origin is {value!r}, must be a time with an offset and the name of a zone")

    def as_json(self) -> dict[str, Any]:
        """Return the form that `read` reads."""
        return {"time": self.time.isoformat(), "zone": self.zone_name}

    def later(self, seconds: float) -> Origin:
        """Return the origin of a run that starts some seconds after this one."""
        return self._replace(time=self.date(seconds))

    def date(self, seconds: float) -> datetime:
        """Return the date of a time of the run [s], in the zone."""
        # In UTC, because Python adds to a date in a zone as if the clocks were never moved.
        return (self.time.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(self.time.tzinfo)

    def text(self, seconds: float) -> str:
        """Return the date of a time of the run [s] to the second. In an hour that occurs twice, it has its offset.

        >>> Origin.of(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "Europe/Berlin").text(3600.0)
        '2026-10-25 02:30:00+01:00'
        """
        date = self.date(round(seconds))
        local_time = date.replace(tzinfo=None)
        first, second = _offsets(local_time, date.tzinfo)
        # One offset is that of almost all hours, and needs no mention.
        if first == second:
            date = local_time
        return date.isoformat(sep=" ", timespec="seconds")

    def seconds(self, date: Date) -> float:
        """Return the time of a date since the start of the run [s]; it is below 0 before the start.

        Raise InvalidInputError if the clocks were moved, so that the date occurs twice or never, and states no offset.
        """
        return (self._instant(date) - self.time.astimezone(UTC)).total_seconds()

    def _instant(self, date: Date) -> datetime:
        """Return the instant of a date, in UTC. Raise the error of `seconds`."""
        if date.time.tzinfo is not None:
            return date.time.astimezone(UTC)
        first, second = _offsets(date.time, self.time.tzinfo)
        # The first offset is that before the clocks are moved. It is the larger one where they are put back.
        if first != second:
            happens = "occurs twice" if first > second else "does not occur"
            offsets = [date.time.replace(tzinfo=timezone(offset)).isoformat()[-6:] for offset in (first, second)]
            written = date.time.isoformat(timespec="minutes")
            advice = f"write {written}{offsets[0]} or {written}{offsets[1]}"
            raise InvalidInputError(
                f"{date.text} {happens} in {self.zone_name}, because the clocks are moved there; {advice}"
            )
        return date.time.replace(tzinfo=self.time.tzinfo).astimezone(UTC)


def _offsets(local: datetime, zone: tzinfo | None) -> tuple[timedelta, timedelta]:
    """Return the offsets from UTC of a local time, before and after a move of the clocks at this time."""
    offsets = [local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)]
    return offsets[0], offsets[1]
