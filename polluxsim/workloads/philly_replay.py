"""Draw a load with the statistics of the Philly log: bursts of similar jobs by hour and weekday, and periodic jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, exp, log
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from polluxsim.common.dates import Origin
from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.values import NonNegativeInt, Range, check
from polluxsim.common.written import WholeHours, takes_settings
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.trace_table import TraceJob
from polluxsim.workloads import philly_figures as figures
from polluxsim.workloads.source import draw
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from polluxsim.models.profile import Profile

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

KINDS = tuple(figures.BURST_KINDS)  # kinds of bursts
NUM_TENANTS = len(figures.TENANTS[KINDS[0]])
LEAST_SHARE = 1e-6  # share of bursts that are larger than the largest burst of the trace [1]
ROUNDING = 1e-9  # more than the error of rounding of a size [jobs]


class RigidJobs(NamedTuple):
    """Jobs without a profile as arrays of shape (J,)."""

    times: Integers  # submissions from Monday midnight UTC [s]
    durations: Integers  # [s]
    gpus: Integers
    tenants: Integers  # indices of virtual clusters

    def only(self, which: NDArray[np.generic]) -> RigidJobs:
        """Return the jobs that a mask or indices select."""
        return RigidJobs(*(column[which] for column in self))


class _Bursts(NamedTuple):
    """Bursts in order of arrival, as arrays of shape (B,)."""

    starts: Floats  # from Monday midnight UTC [s]
    sizes: Integers  # [jobs]
    kinds: Integers  # indices of `KINDS`
    tenants: Integers  # indices of virtual clusters


def draw_bursts(first: int, last: int, rate: float, rng: np.random.Generator) -> RigidJobs:
    """Return the jobs of the bursts that arrive from hour `first` to `last` after Monday midnight UTC, burst by burst.

    `rate` multiplies the arrival rate of bursts in the trace. Rounded up, it multiplies its number of virtual clusters.
    """
    bursts = _draw_bursts(first, last, rate, rng)
    burst_of = np.repeat(np.arange(len(bursts.sizes)), bursts.sizes)  # index of the burst of each job
    ranks = np.arange(len(burst_of)) - (np.cumsum(bursts.sizes) - bursts.sizes)[burst_of]  # index of each job in it
    offsets = _offsets(bursts, burst_of, ranks, rng)
    starts = _apart(bursts, offsets[np.cumsum(bursts.sizes) - 1], rng)
    gpus = _gpus(bursts, burst_of, ranks, rng)
    own_scores = rng.standard_normal(len(burst_of))
    common = rng.standard_normal(len(bursts.sizes))[burst_of]
    scores = np.sqrt(figures.LIKENESS) * common + np.sqrt(1 - figures.LIKENESS) * own_scores
    durations = _durations(bursts.kinds[burst_of], gpus, ndtr(scores))
    return RigidJobs(starts[burst_of] + offsets, durations, gpus, bursts.tenants[burst_of])


def _draw_bursts(first: int, last: int, rate: float, rng: np.random.Generator) -> _Bursts:
    """Return the bursts that arrive from hour `first` to hour `last`. Large bursts have their own rhythm."""
    rates = figures.BURSTS_PER_HOUR * rate * _activity(first, last, rng)
    large = figures.SIZE_TAIL[figures.BURST_KINDS[KINDS[-1]]]
    small_rates = rates * (1 - large) * _rhythm(first, last, figures.STARTS_BY_HOUR, figures.WEEKEND)
    large_rates = rates * large * _rhythm(first, last, figures.LARGE_STARTS_BY_HOUR, figures.LARGE_WEEKEND)
    small_starts = _arrivals(first, small_rates, rng)
    large_starts = _arrivals(first, large_rates, rng)
    shares = np.concatenate((rng.uniform(large, 1, len(small_starts)), rng.uniform(0, large, len(large_starts))))
    starts = np.concatenate((small_starts, large_starts))
    order = np.argsort(starts, kind="stable")
    sizes = _sizes(shares[order])
    kinds = np.searchsorted([*figures.BURST_KINDS.values()], sizes, side="right") - 1
    tenants = _by_kind(kinds, figures.TENANTS, rng)
    copies = ceil(rate)
    if copies > 1:
        # A larger cluster has more virtual clusters. Busier virtual clusters could not keep their bursts apart.
        tenants += NUM_TENANTS * rng.integers(copies, size=len(tenants))
    return _Bursts(starts[order], sizes, kinds, tenants)


def _activity(first: int, last: int, rng: np.random.Generator) -> Floats:
    """Return the relative activity of the day of each hour; mean 1, shape (last - first,)."""
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
    """Return the arrivals of a Poisson process with these hourly rates from hour `first` on [s]."""
    counts = rng.poisson(rates)
    times: Floats = (np.repeat(first + np.arange(len(rates)), counts) + rng.uniform(0, 1, counts.sum())) * HOUR
    return times


def _sizes(shares: Floats) -> Integers:
    """Return the sizes that these shares of bursts reach [jobs], by power laws between the figures."""
    sizes = _each(log, [figures.MOST_JOBS + 1, *reversed(list(figures.SIZE_TAIL))])
    tail = _each(log, [LEAST_SHARE, *reversed(list(figures.SIZE_TAIL.values()))])
    drawn = _each(exp, np.interp(_each(log, np.maximum(shares, LEAST_SHARE)), tail, sizes))
    return (drawn + ROUNDING).astype(np.int64).clip(1, figures.MOST_JOBS)


def _by_kind(kinds: Integers, weights: Mapping[str, Sequence[float]], rng: np.random.Generator) -> Integers:
    """Return an index for each burst, drawn by the weights of its kind, shape (B,)."""
    drawn = np.zeros(len(kinds), np.int64)
    for index, kind in enumerate(KINDS):
        of_kind = np.flatnonzero(kinds == index)
        drawn[of_kind] = draw(dict(enumerate(weights[kind])), len(of_kind), rng)
    return drawn


def _offsets(bursts: _Bursts, burst_of: Integers, ranks: Integers, rng: np.random.Generator) -> Integers:
    """Return the time of each job after the first job of its burst [s], shape (J,)."""
    kinds = bursts.kinds[burst_of]
    shares = rng.uniform(size=len(burst_of))
    pauses = np.floor(_quantiles(kinds, figures.GAP_SHARES, figures.GAPS, shares))
    passed = np.cumsum(np.where(ranks == 0, 0, pauses).astype(np.int64))
    return passed - passed[np.flatnonzero(ranks == 0)][burst_of]


def _apart(bursts: _Bursts, lengths: Integers, rng: np.random.Generator) -> Integers:
    """Return the starts of bursts of these lengths [s], delayed so that the bursts of a tenant do not merge [s].

    A burst waits for the end of the previous burst of its tenant and for a pause: s(k) = max(a(k), s(k-1) + c(k-1)),
    where a is the arrival and c is the length with the pause. This is C(k) + max over j ≤ k of a(j) - C(j), where C(k)
    is the sum of all c before k.
    """
    starts = np.floor(bursts.starts).astype(np.int64)
    pauses = figures.BURST_GAP + 1 + rng.exponential(figures.BURST_GAP, len(starts)).astype(np.int64)
    for tenant in np.unique(bursts.tenants):
        own_bursts = np.flatnonzero(bursts.tenants == tenant)
        taken = lengths[own_bursts] + pauses[own_bursts]
        before = np.cumsum(taken) - taken
        starts[own_bursts] = before + np.maximum.accumulate(starts[own_bursts] - before)
    return starts


def _gpus(bursts: _Bursts, burst_of: Integers, ranks: Integers, rng: np.random.Generator) -> Integers:
    """Return the GPUs of the jobs, shape (J,). They are equal in a burst, except for the last jobs of a mixed burst."""
    usual, differing = np.ones((2, len(bursts.sizes)), np.int64)
    num_usual = bursts.sizes.copy()  # jobs of each burst with the usual number of GPUs
    for index, kind in enumerate(KINDS):
        of_kind = np.flatnonzero(bursts.kinds == index)
        usual[of_kind] = draw(figures.USUAL_GPUS[kind], len(of_kind), rng)
        share_mixed, share_differing = figures.MIXED[kind]
        mixed = of_kind[rng.uniform(size=len(of_kind)) < share_mixed]
        num_usual[mixed] -= np.maximum(1, (bursts.sizes[mixed] * share_differing).astype(np.int64))
    for which, weights in ((usual == 1, figures.DIFFERING_FROM_ONE), (usual > 1, figures.DIFFERING_FROM_MORE)):
        differing[which] = draw(weights, which.sum(), rng)
    return np.where(ranks < num_usual[burst_of], usual[burst_of], differing[burst_of])


def _durations(kinds: Integers, gpus: Integers, shares: Floats) -> Integers:
    """Return the durations of jobs at these quantiles of similar jobs [s], shape (J,)."""
    alone = {kind: _each(log, row) for kind, row in figures.DURATIONS_ALONE.items()}
    logs = _quantiles(kinds, figures.DURATION_SHARES, alone, shares)
    rows = np.searchsorted(list(figures.DURATIONS_BY_GPUS), gpus, side="right") - 1
    for index, row in enumerate(figures.DURATIONS_BY_GPUS.values()):
        which = rows == index
        logs[which] = np.interp(shares[which], figures.DURATION_SHARES, _each(log, row))
    return _each(exp, logs).round().astype(np.int64)


def _quantiles(
    kinds: Integers, points: Sequence[float], rows: Mapping[str, Sequence[float] | Floats], shares: Floats
) -> Floats:
    """Return the quantiles of jobs at `shares`, shape (J,), linear between the points of a table by kind."""
    values = np.zeros(len(kinds))
    for index, kind in enumerate(KINDS):
        which = kinds == index
        values[which] = np.interp(shares[which], points, rows[kind])
    return values


def _each(function: Callable[[float], float], values: Iterable[float]) -> Floats:
    """Apply a function to numbers one by one, because results of NumPy's array functions depend on the processor."""
    return np.array([function(value) for value in values], dtype=np.float64)


WARM_UP = 24  # hours before the start that are drawn too, so that bursts are in progress at the start [h]
MOST_HOURS = 20_000  # ten times the trace, with about a million jobs, drawn in ten seconds [h]
HIGHEST_RATE = 1000.0  # to catch errors in settings
HOURS = Range(least=1, most=MOST_HOURS)  # length of a load [h]
START = Range(least=0, most=MOST_HOURS)  # start of a load [h]
RATE = Range(above=0, most=HIGHEST_RATE)
MONDAY = datetime(2017, 9, 25, tzinfo=UTC)  # hour 0, the midnight before the first complete Monday of the trace

CITATION = "generated by the statistics of the Philly trace (Jeon et al., ATC '19, CC-BY-4.0)"


@takes_settings("workload")
@dataclass(frozen=True)
class ReplayLike:
    """A cluster process of rigid jobs with the statistics of the Philly trace.

    Bursts arrive at a rate that depends on the hour, the weekday and a random activity of each day. The jobs of a burst
    belong to one virtual cluster, mostly have the same number of GPUs, and have similar durations. Some periods of a
    few hours have no submissions.

    Raise InvalidConfigError if a parameter is invalid.
    """

    hours: Annotated[WholeHours, HOURS] = 1920  # length [h]; 1,920 are the trace's 80 days, with about 81,000 jobs
    start: Annotated[WholeHours, START] = 0  # start after Monday midnight UTC [h]
    # Multiplier of the arrival rate of bursts and, rounded up, of the number of virtual clusters [1].
    rate: Annotated[float, RATE] = 1.0
    # Whether one virtual cluster submits a job of about 68 s every ten minutes, 12 % of the trace's jobs.
    heartbeat: bool = True
    seed: NonNegativeInt = 0  # seed of the draws

    def __post_init__(self) -> None:
        check("workload.hours · workload.rate", self.hours * self.rate, Annotated[float, Range(most=MOST_HOURS)])

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the jobs. Times are from the start of the window. Raise InvalidInputError if no job is drawn."""
        drawn = trace_jobs(self.draw(), self.start)
        if not drawn:
            raise no_job("philly-like log", self)
        jobs = []
        for job in drawn:
            assert job.duration is not None  # `trace_jobs` states the duration of each job
            jobs.append(Job.rigid(job.job, job.submit_time, int(job.num_gpus), job.duration, queue=job.tenant))
        origin = Origin(MONDAY + timedelta(hours=self.start), "UTC")
        return Workload(tuple(jobs), source=f"philly-like log, seed {self.seed}, {CITATION}", origin=origin)

    def draw(self) -> RigidJobs:
        """Return the jobs in order of submission; a short period may have no jobs."""
        # Separate streams, so that the bursts do not depend on the heartbeat.
        streams = [np.random.default_rng(child) for child in np.random.SeedSequence(self.seed).spawn(3)]
        first = self.start - WARM_UP
        last = self.start + self.hours
        parts = [draw_bursts(first, last, self.rate, streams[0])]
        if self.heartbeat:
            parts.append(_beats(first, last, streams[1]))
        jobs = RigidJobs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        inside = (jobs.times >= self.start * HOUR) & (jobs.times < last * HOUR)
        jobs = jobs.only(inside & ~_is_silent(jobs.times, first, last, streams[2]))
        return jobs.only(np.argsort(jobs.times, kind="stable"))


def trace_jobs(jobs: RigidJobs, start: int) -> list[TraceJob]:
    """Return generated jobs as jobs of a trace, with submissions counted from hour `start` [h]."""
    times = (jobs.times - start * HOUR).astype(float).tolist()
    columns = (_names(jobs), times, jobs.durations.astype(float).tolist(), jobs.gpus.tolist(), _tenants(jobs))
    return [TraceJob(*row, JobStatus.COMPLETED) for row in zip(*columns, strict=True)]


def no_job(what: object, source: ReplayLike) -> InvalidInputError:
    """Return the error about a load without jobs; `what` names the load."""
    drawn = f"{source.hours} h at rate {source.rate:g} with seed {source.seed}"
    return InvalidInputError(f"{what}: no job is submitted in {drawn}; use more hours or another seed")


def _names(jobs: RigidJobs) -> list[str]:
    """Return the names of jobs, which are numbered from 0."""
    return [f"job-{number}" for number in range(len(jobs.times))]


def _tenants(jobs: RigidJobs) -> list[str]:
    """Return the name of the virtual cluster of each job, numbered from 1."""
    return [f"vc-{number + 1}" for number in jobs.tenants.tolist()]


def _beats(first: int, last: int, rng: np.random.Generator) -> RigidJobs:
    """Return the periodic jobs from hour `first` to hour `last`."""
    num_beats = (last - first) * HOUR // figures.BEAT_INTERVAL
    beats = np.cumsum(draw(figures.BEAT_STEPS, num_beats, rng))
    times = first * HOUR + figures.BEAT_PHASE + figures.BEAT_INTERVAL * beats[beats < num_beats]
    durations = rng.normal(figures.BEAT_DURATION, figures.BEAT_SPREAD, len(times)).round().clip(1)
    tenants = np.full(len(times), figures.BEAT_TENANT)
    return RigidJobs(times, durations.astype(np.int64), np.ones(len(times), np.int64), tenants)


def _is_silent(times: NDArray[np.int64], first: int, last: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which times [s] are in a period without submissions, shape (J,)."""
    count = rng.poisson(figures.OUTAGES_PER_DAY * (last - first) / 24)
    starts = rng.uniform(first, last, count) * HOUR
    ends = starts + rng.exponential(figures.OUTAGE_HOURS * HOUR, count)
    silent = np.zeros(len(times), np.bool_)
    for start, end in zip(starts, ends, strict=True):
        silent |= (times >= start) & (times < end)
    return silent
