"""Resample the past of a run: future jobs, and the durations of jobs that have not ended."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.hardware.placements import JobId
from polluxsim.workloads.job import Job

Runs = list[tuple[float, bool]]  # how long jobs ran, rising, and whether each is complete

LEAST_ALIKE = 5
"""A first estimate needs this many similar jobs that ran for longer; otherwise less similar jobs are taken."""

MANY_ALIKE = 50  # with this many jobs of one owner that ran for longer, jobs of other owners are not used
PRIOR_JOBS = 4  # the typical duration of the wider kind counts as much as this number of jobs of the kind itself
LEAST_DURATION = 60.0  # lower bound of a duration if no job has run for longer [s]

LEAST_PIECES = 24
"""Minimum number of pieces into which the past is cut: few pieces would make an arrival rate seem too certain."""


class Seen(NamedTuple):
    """A submitted job, and how much of its duration it has run [s], or [M0-steps] for a job with a profile.

    A complete job has run its whole duration. The duration of an unfinished job is not known.
    """

    job: Job
    ran: float
    is_complete: bool


class Draw:
    """One future, drawn from the past.

    The duration of an unfinished job is a typical duration times a factor. The typical duration is the geometric mean
    over jobs of the same user (or queue) and GPUs. It is shrunk towards the mean of the user, which is shrunk towards
    the mean of all jobs. Each job that has ended gives one factor, its duration over its typical duration. An
    unfinished job draws its factor from the factors that exceed its run time so far: each gap between two neighbouring
    factors, and the range above the largest factor, has the same probability. Above the largest factor, the tail is
    Pareto's with exponent 2. If the user has many jobs that ran for longer, durations of these jobs are drawn directly.
    A job with a profile does its profile's work.

    Arrivals are pieces of the past, drawn at random from a resample of all pieces, so that they include the uncertainty
    about the arrival rate. Pieces are hours, or shorter if the past is less than a day.

    Source: Künsch, "The jackknife and the bootstrap for general stationary observations" (Annals of Statistics 1989),
    for pieces; Hill, "Posterior distribution of percentiles" (JASA 1968), for the gaps between factors; Efron, "The two
    sample problem with censored data" (1967), for unfinished jobs; Tanner and Wong, "The calculation of posterior
    distributions by data augmentation" (JASA 1987), for typical durations with unfinished jobs.
    """

    def __init__(self, seen: Sequence[Seen], time: float, rng: np.random.Generator) -> None:
        self._rng = rng
        # Resampling the jobs includes the uncertainty about typical durations, which similar jobs share.
        again = [seen[place] for place in rng.integers(len(seen), size=len(seen))] if seen else []
        known = sorted((each for each in again if _is_unknown(each.job)), key=lambda each: each.ran)
        self.durations = self._durations([each for each in seen if _is_unknown(each.job)], known)
        count = max(round(time / HOUR), LEAST_PIECES)
        self.length = time / count
        self._pieces: list[list[Job]] = [[] for _ in range(count)]
        for each in seen:
            self._pieces[min(int(each.job.submit_time / self.length), count - 1)].append(each.job)
        self._world = rng.integers(count, size=count)
        self._number = 0

    def arrivals(self, start: float) -> Iterator[Job]:
        """Yield the jobs of another piece, from a time on [s]."""
        piece = int(self._rng.choice(self._world))
        for job in self._pieces[piece]:
            self._number += 1
            later = start - piece * self.length
            yield replace(
                job,
                job_id=f"{job.job_id}~{self._number}",
                submit_time=job.submit_time + later,
                duration=self.durations.get(job.job_id, job.duration),
                deadline=None if job.deadline is None else job.deadline + later,
                after=(),
                cancel_time=None,
                line=0,
            )

    def _durations(self, seen: Sequence[Seen], known: Sequence[Seen]) -> dict[JobId, float]:
        """Return the total time of each unfinished job [s], drawn from known jobs in order of how long they ran."""
        unfinished = [each for each in seen if not each.is_complete]
        alike = defaultdict[object, list[tuple[float, bool]]](list)
        for each in known:
            for kind in _kinds(each.job):
                alike[kind].append((each.ran, each.is_complete))
        first = {
            each.job.job_id: self._drawn(each.ran, 1.0, _Alike(alike, each.job, LEAST_ALIKE)) for each in unfinished
        }
        typical = _typical(known, first)
        factors: Runs = sorted((each.ran / typical(each.job), each.is_complete) for each in known)
        found: dict[JobId, float] = {}
        for each in unfinished:
            own = _Alike({kind: alike[kind] for kind in _owner_kinds(each.job)}, each.job, MANY_ALIKE)
            if len(own(each.ran)) >= MANY_ALIKE:
                found[each.job.job_id] = self._drawn(each.ran, 1.0, own)
            else:
                unit = typical(each.job)
                found[each.job.job_id] = unit * self._drawn(each.ran / unit, unit, lambda ran: _longer(factors, ran))
        return found

    def _drawn(self, ran: float, unit: float, longer_than: Callable[[float], Runs]) -> float:
        """Return the duration of a job that has run for some time, drawn from longer jobs, in units [s]."""
        rng, least = self._rng, ran
        while longer := longer_than(least):
            place = int(rng.integers(len(longer) + 1))
            before = longer[place - 1][0] if place else least
            if place == len(longer):
                least = before
                break
            upper, is_complete = longer[place]
            if is_complete:
                share, lower = rng.random(), max(before, 1.0 / unit)
                return float(max(lower, least) ** (1 - share) * upper**share)
            least = upper  # the unfinished job takes longer than it has run
        return float(max(least, LEAST_DURATION / unit) / (1 - rng.random()) ** 0.5)


class _Alike:
    """The jobs of the narrowest kind with enough jobs that ran for longer than a given time."""

    def __init__(self, alike: Mapping[object, Runs], job: Job, least: int) -> None:
        self._kinds = [alike[kind] for kind in _kinds(job) if kind in alike]
        self._least = least

    def __call__(self, ran: float) -> Runs:
        longer: Runs = []
        for runs in self._kinds:
            longer = _longer(runs, ran)
            if len(longer) >= self._least:
                break
        return longer


def _longer(runs: Runs, ran: float) -> Runs:
    return runs[bisect_right(runs, (ran, True)) :]


def _typical(known: Sequence[Seen], first: Mapping[JobId, float]) -> Callable[[Job], float]:
    """Return a function that gives a job's typical duration [s]; `first` are estimates for unfinished jobs."""
    logs, counts = defaultdict[object, float](float), defaultdict[object, int](int)
    for each in known:
        duration = each.ran if each.is_complete else first[each.job.job_id]
        for kind in _kinds(each.job):
            logs[kind] += log(max(duration, 1.0))
            counts[kind] += 1
    overall = logs[None] / counts[None] if known else log(LEAST_DURATION)

    def typical(job: Job) -> float:
        mean = overall
        for kind in reversed(_owner_kinds(job) or _kinds(job)[:1]):
            mean = (logs[kind] + PRIOR_JOBS * mean) / (counts[kind] + PRIOR_JOBS)
        return exp(mean)

    return typical


def _is_unknown(job: Job) -> bool:
    return job.duration is not None and job.plan is None


def _kinds(job: Job) -> tuple[object, ...]:
    """Return the kinds of jobs to which a job belongs, the narrowest first."""
    return (*_owner_kinds(job), job.num_replicas, None)


def _owner_kinds(job: Job) -> tuple[object, ...]:
    owner = job.user or job.queue
    return ((owner, job.num_replicas), owner) if owner else ()
