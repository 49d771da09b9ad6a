"""Report of an import, as values and as text: numbers of rows, dropped rows, and the load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, NamedTuple

from polluxsim.common.durations import length
from polluxsim.logs.formats.base import Place

SHOWN_PLACES = 5  # places kept for each kind of finding
QUANTILES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)  # quantiles reported


@dataclass(frozen=True)
class Tally:
    """Number of findings of one kind, and the places of the first ones."""

    reason: str
    count: int
    places: tuple[Place, ...]  # places of the first findings


class DayLoad(NamedTuple):
    """Number of jobs and amount of work that were submitted in one day."""

    day: str  # date on the log's clock, or a number from 0 if times are relative
    jobs: int  # number of jobs
    gpu_hours: float  # GPUs times durations of these jobs [GPU h]
    load: float | None  # relative to the capacity of the cluster in a day [1]; None if its size is unknown


class GpuCount(NamedTuple):
    """Number of jobs with one number of GPUs."""

    num_gpus: float  # GPUs of one job
    jobs: int  # number of jobs


class TypeCount(NamedTuple):
    """Number of jobs with a GPU type."""

    said: str  # in the log, several types with bars between them
    jobs: int  # number of jobs
    known_as: tuple[str, ...]  # in a replay; empty for any type
    unknown: tuple[str, ...]  # of these types, those of which only the name is known


class Quantile(NamedTuple):
    """Quantile of times: the smallest value that at least a share of all values does not exceed."""

    share: float  # [1]
    value: float  # [s]


@dataclass(frozen=True)
class ImportReport:
    """Findings of an import."""

    format: str
    source: str  # path of the log
    destination: str  # path of the trace
    citation: str
    caveat: str
    rows_read: int  # jobs, dropped rows and bad rows
    jobs_written: int
    dropped: tuple[Tally, ...]  # rows that are not jobs with GPUs, by reason, most frequent first
    bad: tuple[Tally, ...]  # skipped rows that cannot be read, by reason
    time_zone: str  # of the log's clock; empty if times are relative
    time_zone_assumed: bool  # whether neither the log nor the user names this zone
    unit: str  # word for what the numbers of GPUs count, like GPUs or CPUs
    origin_time: str  # instant of the first submission, or its second if times are relative
    span: float  # from the first submission to the last [s]
    cluster_gpus: int | None  # GPUs of the cluster; None if unknown
    larger_than_cluster: Tally  # jobs with more GPUs than the cluster
    load: tuple[DayLoad, ...]  # by day, with days without a submission if there are at most 10,000 days
    total_gpu_hours: float  # work of all jobs [GPU h]
    mean_load: float | None  # relative to the capacity during the span [1]; None if it is unknown
    without_duration: int  # jobs without a duration in the log, which are not in the loads
    durations: tuple[Quantile, ...]  # exact quantiles [s]
    inter_arrivals: tuple[Quantile, ...]  # exact quantiles of the times between two submissions [s]
    gpu_counts: tuple[GpuCount, ...]  # by rising number of GPUs
    gpu_types: tuple[TypeCount, ...]  # empty if the log has no types
    suspicious: tuple[Tally, ...]  # by kind

    def as_json(self) -> dict[str, Any]:
        """Return the report as values for `json.dumps`; named tuples become objects."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _plain(value: object) -> object:
    """Return a value with objects for named tuples, and lists for other tuples, at every depth."""
    # Before the test for tuples, because a named tuple is a tuple too.
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
        self._tallies: dict[str, Tally] = {}

    def add(self, reason: str, place: Place, count: int = 1) -> None:
        """Count `count` findings; `place` is the place of the first."""
        tally = self.get(reason)
        places = tally.places
        if len(places) < SHOWN_PLACES:  # a log may have millions of findings
            places = (*places, place)
        self._tallies[reason] = Tally(reason, tally.count + count, places)

    def get(self, reason: str) -> Tally:
        """Return the findings of one kind, with count 0 if there are none."""
        return self._tallies.get(reason, Tally(reason, 0, ()))

    def all(self) -> tuple[Tally, ...]:
        """Return the findings, most frequent first."""
        return tuple(sorted(self._tallies.values(), key=lambda tally: (-tally.count, tally.reason)))


MAX_LINES = 20  # largest number of lines of a list; the last line of a longer list counts the rest
FEW_HOURS = 100.0  # GPU hours below which the report prints digits behind the point [GPU h]
HOUR_DIGITS = 2
BAR = 40  # width of the longest bar [characters]


def as_text(report: ImportReport) -> str:
    """Return a report as plain lines."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ImportReport) -> Iterator[str]:
    """Yield the lines of a report, section by section."""
    yield f"{report.source} -> {report.destination}"
    yield f"{report.format}: {report.citation}"
    if report.caveat:
        yield f"note: {report.caveat}"
    yield ""
    yield f"rows read     {report.rows_read:>10,}"
    yield f"jobs written  {report.jobs_written:>10,}"
    yield from _section("rows dropped", report.dropped)
    yield from _section("bad rows skipped", report.bad)
    yield f"clock         {_clock(report)}"
    yield f"span          {length(report.span)} from the first submission to the last"
    yield f"cluster       {_cluster(report)}"
    yield ""
    yield from _quantiles("duration", report.durations)
    yield from _quantiles("inter-arrival", report.inter_arrivals)
    yield ""
    yield f"{report.unit} per job"
    yield from _gpu_counts(report)
    yield ""
    if report.gpu_types:
        yield "GPU types in the log, and in a replay"
        yield from _gpu_types(report)
        yield ""
    title = "offered load by day of submission"
    if report.cluster_gpus:
        title += ", 1.00 is the whole cluster"
    yield title
    yield from _load(report)
    yield ""
    yield "suspicious"
    yield from _tallies(report.suspicious)
    if not report.suspicious:
        yield "  nothing"


def _section(title: str, tallies: Sequence[Tally]) -> Iterator[str]:
    """Yield the number of all findings, and lines for the most frequent kinds; nothing without findings."""
    if tallies:
        yield f"{title:<14}{sum(tally.count for tally in tallies):>10,}"
        yield from _tallies(tallies)


def _tallies(tallies: Sequence[Tally]) -> Iterator[str]:
    """Yield a line for each of the first `MAX_LINES` kinds of findings, and one that counts the others."""
    for tally in tallies[:MAX_LINES]:
        yield f"  {tally.count:>10,}  {tally.reason} ({_places(tally)})"
    other_tallies = tallies[MAX_LINES:]
    if other_tallies:
        count = sum(tally.count for tally in other_tallies)
        yield f"  {count:>10,}  of {len(other_tallies)} other kinds"


def _places(tally: Tally) -> str:
    """Return the places of findings as text. A file is named once for the lines in it that follow each other."""
    words = []
    file = None
    for place in tally.places:
        if place.file == file:
            words.append(f"{place.line}")
        else:
            words.append(f"{place.file} line {place.line}")
        file = place.file
    if tally.count > len(tally.places):
        words.append("...")
    return ", ".join(words)


def _clock(report: ImportReport) -> str:
    """Return what the times of the log are, and the instant of second 0."""
    # Without a zone, the log has no dates: a reader must not take second 0 for an instant.
    if not report.time_zone:
        return f"relative, no time of day; second 0 of the trace is second {report.origin_time} of the log"
    zone = report.time_zone
    if report.time_zone_assumed:
        zone += " (assumed: the log names no zone; name it with --time-zone)"
    return f"{zone}; second 0 of the trace is {report.origin_time}"


def _cluster(report: ImportReport) -> str:
    if report.cluster_gpus is None:
        return "size not known; give the size to see the load of the cluster"
    larger = report.larger_than_cluster
    text = f"{report.cluster_gpus:,} {report.unit}; {larger.count:,} jobs are larger"
    if larger.count:
        text += f" ({_places(larger)})"
    return text


def _quantiles(title: str, quantiles: Sequence[Quantile]) -> Iterator[str]:
    values = "  ".join(f"p{100 * item.share:g} {length(item.value)}" for item in quantiles)
    yield f"{title:<14}{values or 'not in the log'}"


def _gpu_counts(report: ImportReport) -> Iterator[str]:
    """Yield a line with a bar for each of the most frequent numbers of GPUs, and one that counts the others."""
    # The most frequent numbers have a line each, in rising order.
    counts = sorted(report.gpu_counts, key=lambda item: -item.jobs)
    for item in sorted(counts[:MAX_LINES]):
        share = item.jobs / report.jobs_written
        yield f"{item.num_gpus:>10g}  {item.jobs:>10,}  {100 * share:6.2f} %  {_bar(share)}"
    other_counts = counts[MAX_LINES:]
    if other_counts:
        jobs = sum(item.jobs for item in other_counts)
        per_cent = 100 * jobs / report.jobs_written
        yield f"     other  {jobs:>10,}  {per_cent:6.2f} %  in {len(other_counts)} other counts"


def _gpu_types(report: ImportReport) -> Iterator[str]:
    """Yield a line for each of the first `MAX_LINES` types, with those in a replay, and one that counts the others."""
    for item in report.gpu_types[:MAX_LINES]:
        names_in_replay = []
        for name in item.known_as:
            if name in item.unknown:
                names_in_replay.append(f"{name} (no figures known)")
            else:
                names_in_replay.append(name)
        yield f"{item.jobs:>10,}  {item.said}: {', '.join(names_in_replay) or 'any'}"
    other_types = report.gpu_types[MAX_LINES:]
    if other_types:
        jobs = sum(item.jobs for item in other_types)
        yield f"{jobs:>10,}  of {len(other_types)} other names"


def _load(report: ImportReport) -> Iterator[str]:
    """Yield the work of all jobs, and at most `MAX_LINES` lines with a bar, each for one or several days."""
    unit = f"{report.unit.removesuffix('s')} h"
    # A small log has less than an hour of work on many days, which whole hours would show as 0.
    digits = 0
    if report.total_gpu_hours < FEW_HOURS:
        digits = HOUR_DIGITS
    total = f"  {report.total_gpu_hours:,.{digits}f} {unit} in all"
    if report.mean_load is not None:
        total += f", mean load {report.mean_load:.2f}"
    yield total
    if report.without_duration:
        yield f"  {report.without_duration:,} jobs without a duration are not in it"
    # One line for each run of days, so that a year's log fits on a screen; the JSON contains every day.
    days_per_line = ceil(len(report.load) / MAX_LINES) or 1
    runs = [report.load[first : first + days_per_line] for first in range(0, len(report.load), days_per_line)]
    mean_hours = []
    for run in runs:
        mean_hours.append(_mean([day.gpu_hours for day in run]))
    full_bar = max(mean_hours, default=0.0) or 1.0  # any length is right if no day has work
    for run, hours in zip(runs, mean_hours, strict=True):
        label = run[0].day
        if len(run) > 1:
            label = f"{run[0].day} to {run[-1].day}"
        # The load is unknown without the size of the cluster. The work of the days is known all the same.
        loads = [day.load for day in run if day.load is not None]
        load = ""
        if loads:
            load = f"{_mean(loads):6.2f}"
        jobs = _mean([day.jobs for day in run])
        work = f"{jobs:>9,.0f} jobs/day  {hours:>11,.0f} {unit}/day"
        yield f"  {label:<24}  {work} {load}  {_bar(hours / full_bar)}".rstrip()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _bar(share: float) -> str:
    return "#" * round(BAR * share)
