"""The report of an import: what was read, what was left out, and what in the trace results will depend on."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from polluxsim.logs.formats.base import Place

SHOWN_PLACES = 5
"""Places remembered of each kind of finding."""

QUANTILES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
"""Quantiles reported."""


@dataclass(frozen=True)
class Tally:
    """How often something was found, and the first places."""

    reason: str
    count: int
    places: tuple[Place, ...]


class DayLoad(NamedTuple):
    """The work that one day brought: its jobs' GPUs times their whole durations [GPU h].

    The day is a date on the log's clock, or a number from 0 where that is relative; the load is the work over what the
    cluster can do in a day [1], None if its size is not known.
    """

    day: str
    jobs: int
    gpu_hours: float
    load: float | None


class GpuCount(NamedTuple):
    """How many jobs have so many GPUs."""

    num_gpus: float
    jobs: int


class TypeCount(NamedTuple):
    """How many jobs name a type of GPU, or several with bars between them, as said in the log.

    It is known as the types that a replay takes it for, none for any; of the unknown ones only the name is known.
    """

    said: str
    jobs: int
    known_as: tuple[str, ...]
    unknown: tuple[str, ...]


class Quantile(NamedTuple):
    """The least value that a share of all values do not exceed [1; s]."""

    share: float
    value: float


@dataclass(frozen=True)
class Report:
    """What an import found.

    Parameters
    ----------
    format, source, destination
        What was read from where to where.
    citation, caveat
        Of the format.
    rows_read
        Rows of the source: jobs written, rows dropped and bad rows together.
    jobs_written
        Rows of the trace.
    dropped
        Rows that are no jobs with GPUs, by reason.
    bad
        Rows that cannot be read, by reason; there are some only where they were to be skipped.
    time_zone
        Zone of the log's clock; empty if times are relative.
    time_zone_assumed
        Whether that zone is an assumption: the log names none, and neither did the user.
    origin_time
        Instant of the first submission; of a relative clock, its second.
    span
        From the first submission to the last [s].
    cluster_gpus
        GPUs of the cluster; None if not known.
    larger_than_cluster
        Jobs with more GPUs than that.
    load
        Work submitted, by day, also days without any (these are absent where they would be over 10,000).
    total_gpu_hours
        The work of all jobs [GPU h].
    mean_load
        That work over what the cluster can do in the span [1]; None if its size is not known, or all came at once.
    without_duration
        Jobs whose duration the log does not say, which are in no load.
    durations, inter_arrivals
        Exact quantiles [s].
    gpu_counts
        Histogram of GPUs per job.
    gpu_types
        Jobs by the types of GPU that they name; empty if none does.
    suspicious
        What can be read but is strange, by kind.
    """

    format: str
    source: str
    destination: str
    citation: str
    caveat: str
    rows_read: int
    jobs_written: int
    dropped: tuple[Tally, ...]
    bad: tuple[Tally, ...]
    time_zone: str
    time_zone_assumed: bool
    origin_time: str
    span: float
    cluster_gpus: int | None
    larger_than_cluster: Tally
    load: tuple[DayLoad, ...]
    total_gpu_hours: float
    mean_load: float | None
    without_duration: int
    durations: tuple[Quantile, ...]
    inter_arrivals: tuple[Quantile, ...]
    gpu_counts: tuple[GpuCount, ...]
    gpu_types: tuple[TypeCount, ...]
    suspicious: tuple[Tally, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the report as values that `json.dumps` takes, tallies and the like as objects."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


class Tallies:
    """Findings counted by reason, each with its first places."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, tuple[Place, ...]]] = {}

    def add(self, reason: str, place: Place, count: int = 1) -> None:
        """Count one finding, or several of which the place of one is known."""
        number, places = self._found.get(reason, (0, ()))
        kept = (*places, place) if len(places) < SHOWN_PLACES else places
        self._found[reason] = (number + count, kept)

    def get(self, reason: str) -> Tally:
        """Return the findings of one kind, perhaps none."""
        return Tally(reason, *self._found.get(reason, (0, ())))

    def all(self) -> tuple[Tally, ...]:
        """Return the findings, most frequent first."""
        tallies = [Tally(reason, count, places) for reason, (count, places) in self._found.items()]
        return tuple(sorted(tallies, key=lambda tally: (-tally.count, tally.reason)))


def rank_of(share: float, count: int) -> int:
    """Return which of `count` sorted values is the quantile, from 0: the least that `share` do not exceed.

    >>> [rank_of(share, 4) for share in (0, 0.25, 0.5, 0.51, 1)]
    [0, 0, 1, 2, 3]
    """
    return max(0, math.ceil(share * count) - 1)
