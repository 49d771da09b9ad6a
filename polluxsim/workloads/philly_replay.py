"""Draw a load with the statistics of the Philly log: bursts of similar jobs by hour and weekday, and periodic jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, exp, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, check_number
from polluxsim.logs.formats import JobStatus
from polluxsim.logs.trace_table import TraceInfo, TraceJob, write_trace
from polluxsim.workloads import philly_figures as figures
from polluxsim.workloads.source import check_whole, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

KINDS = tuple(figures.SIZE_CLASSES)
NUM_TENANTS = len(figures.TENANTS[KINDS[0]])


class RigidJobs(NamedTuple):
    """Jobs without a profile: each holds its GPUs for a time; shape (jobs,) each.

    Submissions are from Monday midnight UTC, they and durations in whole seconds; tenants are numbers of virtual
    clusters from 0.
    """

    times: Integers
    durations: Integers
    gpus: Integers
    tenants: Integers

    def only(self, which: NDArray[np.generic]) -> RigidJobs:
        """Return some of the jobs, by a mask or in an order."""
        return RigidJobs(*(column[which] for column in self))


class _Bursts(NamedTuple):
    """Bursts in order of their arrival: when [s], jobs, kind (in `KINDS`), tenant; shape (bursts,) each."""

    starts: Floats
    sizes: Integers
    kinds: Integers
    tenants: Integers


def draw_bursts(first: int, last: int, rate: float, rng: np.random.Generator) -> RigidJobs:
    """Return the jobs of bursts that arrive in a time, burst by burst.

    It is from and to hours after Monday midnight UTC [h]; bursts arrive `rate` times as often as in the trace, of as
    many times as many virtual clusters.
    """
    bursts = _draw_bursts(first, last, rate, rng)
    # Jobs stand burst by burst: `of` is each one's burst, `place` its number within.
    of = np.repeat(np.arange(len(bursts.sizes)), bursts.sizes)
    place = np.arange(len(of)) - (np.cumsum(bursts.sizes) - bursts.sizes)[of]
    kinds = bursts.kinds[of]
    offsets = _offsets(bursts, of, place, rng)
    starts = _apart(bursts, offsets[np.cumsum(bursts.sizes) - 1], rng)
    gpus = _gpus(bursts, of, place, rng)
    own, common = rng.standard_normal(len(of)), rng.standard_normal(len(bursts.sizes))[of]
    scores = np.sqrt(figures.LIKENESS) * common + np.sqrt(1 - figures.LIKENESS) * own
    return RigidJobs(starts[of] + offsets, _durations(kinds, gpus, ndtr(scores)), gpus, bursts.tenants[of])


def _draw_bursts(first: int, last: int, rate: float, rng: np.random.Generator) -> _Bursts:
    rates = figures.BURSTS_PER_HOUR * rate * _activity(first, last, rng)
    large = figures.SIZE_TAIL[figures.SIZE_CLASSES[KINDS[-1]]]
    small_rates = rates * (1 - large) * _rhythm(first, last, figures.STARTS_BY_HOUR, figures.WEEKEND)
    large_rates = rates * large * _rhythm(first, last, figures.LARGE_STARTS_BY_HOUR, figures.LARGE_WEEKEND)
    small_starts, large_starts = _arrivals(first, small_rates, rng), _arrivals(first, large_rates, rng)
    shares = np.concatenate((rng.uniform(large, 1, len(small_starts)), rng.uniform(0, large, len(large_starts))))
    starts = np.concatenate((small_starts, large_starts))
    order = np.argsort(starts, kind="stable")
    sizes = _sizes(shares[order])
    kinds = np.searchsorted([*figures.SIZE_CLASSES.values()], sizes, side="right") - 1
    tenants = _by_kind(kinds, figures.TENANTS, rng)
    if (copies := ceil(rate)) > 1:
        # A larger cluster has more virtual clusters, not busier ones: these could not keep their bursts apart.
        tenants += NUM_TENANTS * rng.integers(copies, size=len(tenants))
    return _Bursts(starts[order], sizes, kinds, tenants)


def _activity(first: int, last: int, rng: np.random.Generator) -> Floats:
    """Return how busy each hour's day is; mean 1, shape (last - first,)."""
    days = np.arange(first, last) // 24
    drawn: Floats = rng.gamma(1 / figures.ACTIVITY_VARIANCE, figures.ACTIVITY_VARIANCE, days[-1] - days[0] + 1)
    of_hours: Floats = drawn[days - days[0]]
    return of_hours


def _rhythm(first: int, last: int, by_hour: Sequence[float], weekend: float) -> Floats:
    """Return the relative rate of each hour, by hour of day and kind of day; shape (last - first,)."""
    hours = np.arange(first, last)
    mean = (figures.WEEKDAYS + weekend * figures.WEEKEND_DAYS) / (figures.WEEKDAYS + figures.WEEKEND_DAYS)
    of_day = np.array(by_hour) / np.mean(by_hour)
    rates: Floats = of_day[hours % 24] * np.where(hours // 24 % 7 >= 5, weekend, 1) / mean
    return rates


def _arrivals(first: int, rates: Floats, rng: np.random.Generator) -> Floats:
    """Return the arrivals of a Poisson process of so many an hour from hour `first` on [s]."""
    counts = rng.poisson(rates)
    times: Floats = (np.repeat(first + np.arange(len(rates)), counts) + rng.uniform(0, 1, counts.sum())) * HOUR
    return times


def _sizes(shares: Floats) -> Integers:
    """Return the sizes that these shares of bursts reach: a power law between any two figures."""
    least = 1e-6
    sizes = _each(log, [figures.MOST_JOBS + 1, *reversed(list(figures.SIZE_TAIL))])
    tail = _each(log, [least, *reversed(list(figures.SIZE_TAIL.values()))])
    drawn = _each(exp, np.interp(_each(log, np.maximum(shares, least)), tail, sizes)) + 1e-9
    return drawn.astype(np.int64).clip(1, figures.MOST_JOBS)


def _by_kind(kinds: Integers, weights: Mapping[str, Sequence[float]], rng: np.random.Generator) -> Integers:
    """Return numbers from 0 drawn by the weights of each burst's kind."""
    drawn = np.zeros(len(kinds), np.int64)
    for number, kind in enumerate(KINDS):
        these = np.flatnonzero(kinds == number)
        drawn[these] = draw(dict(enumerate(weights[kind])), len(these), rng)
    return drawn


def _offsets(bursts: _Bursts, of: Integers, place: Integers, rng: np.random.Generator) -> Integers:
    """Return when each job comes, from its burst's first [s]."""
    gaps = np.floor(_quantiles(bursts.kinds[of], figures.GAP_SHARES, figures.GAPS, rng.uniform(size=len(of))))
    passed = np.cumsum(np.where(place == 0, 0, gaps).astype(np.int64))
    return passed - passed[np.flatnonzero(place == 0)][of]


def _apart(bursts: _Bursts, lengths: Integers, rng: np.random.Generator) -> Integers:
    """Return when bursts begin [s] if none runs into the next of its tenant: the two would be one by definition.

    A burst waits for the end of the one before and for a pause; s(k) = max(a(k), s(k-1) + c(k-1)), which is
    C(k) + max over j ≤ k of a(j) - C(j), C being the sum of all c before.
    """
    starts = np.floor(bursts.starts).astype(np.int64)
    pauses = figures.BURST_GAP + 1 + rng.exponential(figures.BURST_GAP, len(starts)).astype(np.int64)
    for tenant in np.unique(bursts.tenants):
        own = np.flatnonzero(bursts.tenants == tenant)
        taken = lengths[own] + pauses[own]
        before = np.cumsum(taken) - taken
        starts[own] = before + np.maximum.accumulate(starts[own] - before)
    return starts


def _gpus(bursts: _Bursts, of: Integers, place: Integers, rng: np.random.Generator) -> Integers:
    """Return the jobs' GPUs: the same in a burst, but that the last of a mixed one differ."""
    usual, differing = np.ones((2, len(bursts.sizes)), np.int64)
    same = bursts.sizes.copy()
    for number, kind in enumerate(KINDS):
        these = np.flatnonzero(bursts.kinds == number)
        usual[these] = draw(figures.USUAL_GPUS[kind], len(these), rng)
        mixed, share = figures.MIXED[kind]
        chosen = these[rng.uniform(size=len(these)) < mixed]
        same[chosen] -= np.maximum(1, (bursts.sizes[chosen] * share).astype(np.int64))
    for most, weights in ((usual == 1, figures.DIFFERING_FROM_ONE), (usual > 1, figures.DIFFERING_FROM_MORE)):
        differing[most] = draw(weights, most.sum(), rng)
    return np.where(place < same[of], usual[of], differing[of])


def _durations(kinds: Integers, gpus: Integers, shares: Floats) -> Integers:
    """Return the durations that these shares of like jobs do not exceed [s]."""
    alone = {kind: _each(log, row) for kind, row in figures.DURATIONS_ALONE.items()}
    logs = _quantiles(kinds, figures.DURATION_SHARES, alone, shares)
    counts = list(figures.DURATIONS_BY_GPUS)
    for number, (_, row) in enumerate(figures.DURATIONS_BY_GPUS.items()):
        these = np.searchsorted(counts, gpus, side="right") - 1 == number
        logs[these] = np.interp(shares[these], figures.DURATION_SHARES, _each(log, row))
    return _each(exp, logs).round().astype(np.int64)


def _quantiles(
    kinds: Integers, points: Sequence[float], rows: Mapping[str, Sequence[float] | Floats], shares: Floats
) -> Floats:
    """Return the quantiles at `shares` of a table with a row for each kind, linear between its points."""
    values = np.zeros(len(kinds))
    for number, kind in enumerate(KINDS):
        these = kinds == number
        values[these] = np.interp(shares[these], points, rows[kind])
    return values


def _each(function: Callable[[float], float], values: Iterable[float]) -> Floats:
    """Return a function of the numbers, one by one: NumPy's own of arrays hang on the processor."""
    return np.array([function(value) for value in values], dtype=np.float64)


WARM_UP = 24
MOST_HOURS = 20_000
"""Ten times the trace: about a million jobs, drawn in ten seconds [h]."""
HIGHEST_RATE = 1000.0
MONDAY = datetime(2017, 9, 25, tzinfo=UTC)
"""Hour 0, at the midnight of the first Monday that the trace has whole."""

CITATION = "generated by the statistics of the Philly trace (Jeon et al., ATC '19, CC-BY-4.0)"


@dataclass(frozen=True)
class ReplayLike:
    """A cluster process of rigid jobs with the statistics of the Philly trace.

    Bursts arrive at a rate that goes with the hour of day, the weekday and a random activity of each day. The jobs of
    a burst are of one virtual cluster, mostly have the same GPUs, and durations that are alike. Now and then nobody
    submits anything for some hours.

    Parameters
    ----------
    hours
        Length [h]; 1,920 are the trace's 80 days, with about 81,000 jobs.
    start
        When it begins, from Monday midnight UTC [h].
    rate
        Bursts arrive so many times as often as in the trace, of as many times as many virtual clusters [1].
    heartbeat
        Whether one virtual cluster submits a job of about 68 s every ten minutes, 12 % of the trace's jobs.
    seed
        Seed of the drawing.
    """

    hours: int = 1920
    start: int = 0
    rate: float = 1.0
    heartbeat: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least, most in (("hours", self.hours, 1, MOST_HOURS), ("start", self.start, 0, MOST_HOURS)):
            if not least <= value <= most:
                raise InvalidConfigError(
                    f"workload.{name} is {value}, allowed is a whole number from {least} to {most}"
                )
        check_number("workload.rate", self.rate, 0 < self.rate <= HIGHEST_RATE, f"a number > 0 and ≤ {HIGHEST_RATE:g}")
        if self.hours * self.rate > MOST_HOURS:
            raise InvalidConfigError(
                f"workload.hours · workload.rate is {self.hours * self.rate:g}, allowed is up to {MOST_HOURS}"
            )
        check_whole("seed", self.seed)

    def draw(self) -> RigidJobs:
        """Return the jobs in order of submission; there may be none in a short time."""
        # Each consumer has a stream of its own: the bursts are the same with the heartbeat and without.
        streams = [np.random.default_rng(child) for child in np.random.SeedSequence(self.seed).spawn(3)]
        # From a day before, so that bursts are under way when the time begins.
        first, last = self.start - WARM_UP, self.start + self.hours
        parts = [draw_bursts(first, last, self.rate, streams[0])]
        if self.heartbeat:
            parts.append(_beats(first, last, streams[1]))
        jobs = RigidJobs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        inside = (jobs.times >= self.start * HOUR) & (jobs.times < last * HOUR)
        jobs = jobs.only(inside & ~_is_silent(jobs.times, first, last, streams[2]))
        return jobs.only(np.argsort(jobs.times, kind="stable"))


def trace_jobs(jobs: RigidJobs, start: int) -> list[TraceJob]:
    """Return generated jobs as those of a trace, submissions from hour `start` on [s]."""
    times = (jobs.times - start * HOUR).astype(float).tolist()
    columns = (_names(jobs), times, jobs.durations.astype(float).tolist(), jobs.gpus.tolist(), _tenants(jobs))
    return [TraceJob(*row, JobStatus.COMPLETED) for row in zip(*columns, strict=True)]


def write_replay(source: ReplayLike, path: Path) -> RigidJobs:
    """Draw the jobs and write them as a trace in Parquet; raise InvalidInputError if the time has no job."""
    jobs = source.draw()
    if not len(jobs.times):
        raise InvalidInputError(f"{path}: no job came in {source.hours} h at rate {source.rate:g}, seed {source.seed}")
    origin = MONDAY + timedelta(seconds=int(jobs.times[0]))
    info = TraceInfo("philly-like", f"seed {source.seed}", CITATION, "UTC", origin.isoformat())
    columns = {
        "job": _names(jobs),
        "submit_time": jobs.times - jobs.times[0],
        "duration": jobs.durations,
        "num_gpus": jobs.gpus,
        "tenant": _tenants(jobs),
        "status": [JobStatus.COMPLETED.value] * len(jobs.times),
        "attempts": np.ones(len(jobs.times), np.int64),
    }
    write_trace(columns, info, path)
    return jobs


def _names(jobs: RigidJobs) -> list[str]:
    return [f"job-{number}" for number in range(len(jobs.times))]


def _tenants(jobs: RigidJobs) -> list[str]:
    return [f"vc-{number + 1}" for number in jobs.tenants.tolist()]


def _beats(first: int, last: int, rng: np.random.Generator) -> RigidJobs:
    """Return the heartbeat of the hours from `first` to `last`."""
    most = (last - first) * HOUR // figures.BEAT_INTERVAL
    beats = np.cumsum(draw(figures.BEAT_STEPS, most, rng))
    times = first * HOUR + figures.BEAT_PHASE + figures.BEAT_INTERVAL * beats[beats < most]
    durations = rng.normal(figures.BEAT_DURATION, figures.BEAT_SPREAD, len(times)).round().clip(1)
    tenants = np.full(len(times), figures.BEAT_TENANT)
    return RigidJobs(times, durations.astype(np.int64), np.ones(len(times), np.int64), tenants)


def _is_silent(times: NDArray[np.int64], first: int, last: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which times fall into an outage."""
    count = rng.poisson(figures.OUTAGES_PER_DAY * (last - first) / 24)
    starts = rng.uniform(first, last, count) * HOUR
    ends = starts + rng.exponential(figures.OUTAGE_HOURS * HOUR, count)
    silent = np.zeros(len(times), np.bool_)
    for start, end in zip(starts, ends, strict=True):
        silent |= (times >= start) & (times < end)
    return silent
