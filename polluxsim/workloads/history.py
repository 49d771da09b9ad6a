"""Resample the past of a run: future jobs, and the durations of jobs that have not ended."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, log
from typing import NamedTuple

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.hardware.placements import JobId
from polluxsim.workloads.job import Job

Runs = list[tuple[float, bool]]  # run times, rising, and whether each job is complete

LEAST_SIMILAR = 5
"""Similar jobs that ran for longer, below which a first estimate uses less similar jobs."""

ENOUGH_OF_OWNER = 50  # jobs of one owner that ran for longer, from which on jobs of other owners are not used
PRIOR_JOBS = 4  # number of jobs of a kind that count as much as the typical duration of the next wider kind
LEAST_DURATION = 60.0  # lower bound of a duration if no job has run for longer [s]
LEAST_PIECES = 24  # number of pieces of the past, below which an arrival rate would seem too certain


class Seen(NamedTuple):
    """A submitted job. The duration of an unfinished job is not known."""

    job: Job
    ran: float  # its run time so far [s], or its progress [M0-steps] for a job with a profile
    is_complete: bool


class Draw:
    """One future, drawn from the past.

    The duration of an unfinished job is a typical duration times a factor. The typical duration is the geometric mean
    over jobs of the same user (or queue) and GPUs. It is shrunk towards the mean of the user, which is shrunk towards
    the mean of all jobs. Each job that has ended gives one factor, its duration over its typical duration. An
    unfinished job draws its factor from the factors that exceed its run time so far: each gap between two neighbouring
    factors, and the range above the largest factor, has the same probability. Above the largest factor, the tail is
    Pareto's with exponent 2. If the user has many jobs that ran for longer, durations of these jobs are drawn directly.
    No duration exceeds the time limit of its job, unless the job has already exceeded it. A job with a profile does its
    profile's work.

    Arrivals are pieces of the past, drawn at random from a resample of all pieces, so that they include the uncertainty
    about the arrival rate. Pieces are hours, or shorter if the past is less than a day. The past begins before the
    first submission by the mean time between submissions. Otherwise arrivals would seem too frequent. But if some jobs
    were submitted before the run, the past begins with the run.

    `seen` has the jobs submitted until `time` [s]. `durations` has the total time of each unfinished job that has a
    duration, and neither a profile nor a plan [s]. `length` is the length of a piece [s].

    Source: Künsch, "The jackknife and the bootstrap for general stationary observations" (Annals of Statistics 1989),
    for pieces; Hill, "Posterior distribution of percentiles" (JASA 1968), for the gaps between factors; Efron, "The two
    sample problem with censored data" (1967), for unfinished jobs; Tanner and Wong, "The calculation of posterior
    distributions by data augmentation" (JASA 1987), for typical durations with unfinished jobs.
    """

    def __init__(self, seen: Sequence[Seen], time: float, rng: np.random.Generator) -> None:
        self._rng = rng
        # Resampling the jobs includes the uncertainty about typical durations, which similar jobs share.
        resample: list[Seen] = []
        if seen:
            resample = [seen[index] for index in rng.integers(len(seen), size=len(seen))]
        past = [seen_job for seen_job in resample if _has_duration(seen_job.job)]
        past.sort(key=lambda seen_job: seen_job.ran)
        self.durations = self._durations([seen_job for seen_job in seen if _has_duration(seen_job.job)], past)
        arrived = [seen_job for seen_job in seen if seen_job.job.past is None]
        span = 0.0
        if len(arrived) < len(seen):
            # Of the jobs submitted before the run, only those are known that had not ended. So they are no arrivals.
            span = time
        elif arrived:
            # A job that waited for other jobs was submitted after them, whatever its own time is.
            submissions = [seen_job.job.submit_time for seen_job in arrived if not seen_job.job.after]
            first_submission = min(submissions, default=time)
            span = (time - first_submission) * (1 + 1 / len(arrived))
        self._start = time - span
        count = max(round(span / HOUR), LEAST_PIECES)
        self.length = span / count
        if not self.length:
            self.length = HOUR  # without a past, all jobs are in the first piece
        self._pieces: list[list[Job]] = [[] for _ in range(count)]
        for seen_job in arrived:
            piece = int((seen_job.job.submit_time - self._start) / self.length)
            self._pieces[min(max(piece, 0), count - 1)].append(seen_job.job)
        self._drawn_pieces = rng.integers(count, size=count)
        self._num_arrivals = 0

    def arrivals(self, start: float) -> Iterator[Job]:
        """Draw a piece of the past, and yield its jobs, moved in time so that the piece begins at `start` [s].

        The jobs get new names and wait for no others.
        """
        piece = int(self._rng.choice(self._drawn_pieces))
        shift = start - (self._start + piece * self.length)
        for job in self._pieces[piece]:
            self._num_arrivals += 1
            deadline = job.deadline
            if deadline is not None:
                deadline += shift
            yield replace(
                job,
                job_id=f"{job.job_id}~{self._num_arrivals}",
                submit_time=job.submit_time + shift,
                duration=self.durations.get(job.job_id, job.duration),
                deadline=deadline,
                after=(),
                cancel_time=None,
                line=0,
            )

    def _durations(self, seen: Sequence[Seen], past: Sequence[Seen]) -> dict[JobId, float]:
        """Return the duration of each unfinished job in `seen` [s], drawn from `past`, jobs in order of run time.

        Typical durations need durations of the unfinished jobs too. So a first estimate of these is drawn before.
        """
        unfinished = [seen_job for seen_job in seen if not seen_job.is_complete]
        runs = defaultdict[object, Runs](list)  # by kind of job
        for seen_job in past:
            for kind in _kinds(seen_job.job):
                runs[kind].append((seen_job.ran, seen_job.is_complete))
        first: dict[JobId, float] = {}
        for seen_job in unfinished:
            similar = [runs[kind] for kind in _kinds(seen_job.job) if kind in runs]
            first[seen_job.job.job_id] = self._drawn(seen_job.ran, 1.0, partial(_enough_longer, similar, LEAST_SIMILAR))
        typical = _typical(past, first)
        factors: Runs = sorted((seen_job.ran / typical(seen_job.job), seen_job.is_complete) for seen_job in past)
        durations: dict[JobId, float] = {}
        for seen_job in unfinished:
            of_owner = partial(_enough_longer, [runs[kind] for kind in _owner_kinds(seen_job.job)], ENOUGH_OF_OWNER)
            if len(of_owner(seen_job.ran)) >= ENOUGH_OF_OWNER:
                duration = self._drawn(seen_job.ran, 1.0, of_owner)
            else:
                unit = typical(seen_job.job)
                duration = unit * self._drawn(seen_job.ran / unit, unit, partial(_longer, factors))
            limit = seen_job.job.time_limit
            if limit is not None and seen_job.ran < limit:
                duration = min(duration, limit)
            durations[seen_job.job.job_id] = duration
        return durations

    def _drawn(self, ran: float, unit: float, longer_than: Callable[[float], Runs]) -> float:
        """Return the duration of a job that has run for `ran`, drawn from jobs that ran for longer.

        Both are relative to `unit` [s].
        """
        rng = self._rng
        lower = ran  # the duration is longer
        while True:
            longer = longer_than(lower)
            if not longer:
                break
            # One of the gaps before each longer run, or the range above the last one.
            index = int(rng.integers(len(longer) + 1))
            start_of_gap = lower
            if index > 0:
                start_of_gap = longer[index - 1][0]
            if index == len(longer):
                lower = start_of_gap
                break
            upper, is_complete = longer[index]
            if is_complete:
                # Uniform on the logarithm within the gap.
                share = rng.random()
                least = max(start_of_gap, 1.0 / unit)  # from 1 s on, because the logarithm of 0 is infinite
                return float(least ** (1 - share) * upper**share)
            lower = upper  # the unfinished job takes longer than it has run
        # Pareto's tail, whose logarithm is exponential.
        return float(max(lower, LEAST_DURATION / unit) / (1 - rng.random()) ** 0.5)


def _enough_longer(similar: Sequence[Runs], least: int, ran: float) -> Runs:
    """Return the longer runs of the first, narrowest kind with at least `least` longer runs, else of the last kind."""
    longer: Runs = []
    for runs in similar:
        longer = _longer(runs, ran)
        if len(longer) >= least:
            break
    return longer


def _longer(runs: Runs, ran: float) -> Runs:
    """Return the runs that are longer than `ran`."""
    return runs[bisect_right(runs, (ran, True)) :]


def _typical(past: Sequence[Seen], first: Mapping[JobId, float]) -> Callable[[Job], float]:
    """Return a function that gives a job's typical duration [s]; `first` has estimates for unfinished jobs [s]."""
    logs = defaultdict[object, float](float)
    counts = defaultdict[object, int](int)
    for seen_job in past:
        duration = seen_job.ran
        if not seen_job.is_complete:
            duration = first[seen_job.job.job_id]
        for kind in _kinds(seen_job.job):
            logs[kind] += log(max(duration, 1.0))
            counts[kind] += 1
    overall = log(LEAST_DURATION)
    if past:
        overall = logs[None] / counts[None]

    def typical(job: Job) -> float:
        """Return the typical duration of a job [s]."""
        mean = overall
        # From the widest kind to the narrowest, each shrunk towards the one before.
        for kind in reversed(_owner_kinds(job) or _kinds(job)[:1]):
            mean = (logs[kind] + PRIOR_JOBS * mean) / (counts[kind] + PRIOR_JOBS)
        return exp(mean)

    return typical


def _has_duration(job: Job) -> bool:
    """Return whether a job is described by a duration alone, neither by a profile nor by a plan."""
    return job.duration is not None and job.plan is None


def _kinds(job: Job) -> tuple[object, ...]:
    """Return the kinds of jobs to which a job belongs, the narrowest first."""
    return (*_owner_kinds(job), job.num_replicas, None)


def _owner_kinds(job: Job) -> tuple[object, ...]:
    """Return the kinds of jobs of the same user or queue; empty if both are unknown."""
    owner = job.user or job.queue
    if not owner:
        return ()
    return ((owner, job.num_replicas), owner)
