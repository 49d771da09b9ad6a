"""Workloads sampled from the Philly log, or drawn from its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np

from polluxsim.common.durations import DAY, HOUR
from polluxsim.common.errors import invalid_setting
from polluxsim.common.values import NonNegativeInt, PositiveInt, Range
from polluxsim.common.written import WholeHours, takes_settings
from polluxsim.logs.formats import find_format
from polluxsim.logs.formats.base import BadRowError, LogJob
from polluxsim.logs.trace_table import TraceJob, origin_of, read_trace
from polluxsim.models.profile import Profile
from polluxsim.workloads.mapping import (
    CLASSES,
    REPLICA_CHOICES,
    Configuration,
    check_profiles,
    map_jobs,
    tuned_configurations,
)
from polluxsim.workloads.philly_figures import CLASS_SHARES, GPUS_BY_CLASS, JOBS_BY_HOUR
from polluxsim.workloads.philly_replay import HOURS, RATE, START, ReplayLike, no_job, trace_jobs
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.source import MOST_JOBS, draw
from polluxsim.workloads.workload import Job, Workload

# Source of all constants: Pollux (OSDI '21), §5.1, and its artifact.
CLOCK_SHIFT = 2 * HOUR  # time of day in UTC at which the window of submissions begins [s]
WINDOW_HOURS = 8  # length of the window [h]


@takes_settings("workload")
@dataclass(frozen=True)
class PhillySample:
    """A workload drawn from the Philly trace.

    Jobs of a minute or more and less than 1000 GPU-hours, submitted in an 8-hour window of any day, are drawn without
    replacement.

    Source: Pollux (OSDI '21), §5.1, and its artifact.

    Raise InvalidConfigError if a parameter is invalid.
    """

    path: str  # philly.csv, as in the artifact of Pollux, or a trace in Parquet with times of day (UTC is used)
    num_jobs: PositiveInt = 160  # number of jobs
    # Whether jobs request tuned GPUs and batch sizes, or the trace's GPUs and the initial batch size per GPU.
    tuned: bool = True
    seed: NonNegativeInt = 0  # seed of the draws

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; tuned configurations follow from `profiles`.

        Raise InvalidInputError if the trace cannot be read, InvalidConfigError if it has too few jobs, and
        UnknownApplicationError if an application has no profile.
        """
        check_profiles(profiles)
        usable = Selection().select(_folded(Path(self.path)))
        candidates = [job for job in usable if job.submit_time < WINDOW_HOURS * HOUR]
        if self.num_jobs > len(candidates):
            must = f"1 to {len(candidates)}, the jobs of {self.path}"
            raise invalid_setting("workload.num_jobs", self.num_jobs, must)
        rng = np.random.default_rng(self.seed)
        drawn = rng.choice(len(candidates), self.num_jobs, replace=False)
        chosen = [candidates[index] for index in drawn]
        chosen.sort(key=lambda job: job.submit_time)
        return map_jobs(chosen, usable, profiles, rng, tuned=self.tuned, source=self.path)


def _folded(path: Path) -> list[TraceJob]:
    """Return a trace's jobs with submissions as times of day, counted from `CLOCK_SHIFT` [s].

    The last trace is cached, because the runs of a sweep draw from one trace, and reading it takes a second.
    """
    state = None
    if path.is_file():
        status = path.stat()
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
    return list(_read_folded(path, state))


@lru_cache(maxsize=1)
def _read_folded(path: Path, state: tuple[int, ...] | None) -> tuple[TraceJob, ...]:
    """Read the trace for `_folded`. A changed `state` of the file reads it again."""
    if path.suffix == ".parquet":
        info, jobs = read_trace(path)
        origin = origin_of(path, info).timestamp()
    else:
        origin = 0.0
        jobs = _read_philly(path)
    folded = []
    for job in jobs:
        time_of_day = int(origin + job.submit_time - CLOCK_SHIFT) % DAY
        folded.append(job._replace(submit_time=float(time_of_day)))
    return tuple(folded)


def _read_philly(path: Path) -> list[TraceJob]:
    """Read philly.csv in the order of the file, with submissions since 1970 UTC [s]."""
    jobs = []
    for entry in find_format("philly").read(path, UTC):
        if isinstance(entry, BadRowError):
            raise entry
        if isinstance(entry, LogJob):
            jobs.append(
                TraceJob(entry.job, entry.submitted, entry.duration, entry.num_gpus, entry.tenant, entry.status)
            )
    return jobs


MOST_HOURS = 10_000  # to catch errors in settings [h]
LARGEST_REQUEST = REPLICA_CHOICES[-1]  # [GPUs]


@takes_settings("workload")
@dataclass(frozen=True)
class PhillyLike:
    """Independent jobs over a window of hours, like the paper's workloads.

    Raise InvalidConfigError if a parameter is invalid.
    """

    num_jobs: Annotated[int, Range(least=1, most=MOST_JOBS)] = 160  # number of jobs
    # Length of the window [h]; arrival rates repeat those of the trace from 02 to 10 h UTC.
    hours: Annotated[WholeHours, Range(least=1, most=MOST_HOURS)] = 8
    # Whether jobs request tuned GPUs and batch sizes, or GPUs as in the trace and the initial batch size per GPU.
    tuned: bool = True
    seed: NonNegativeInt = 0  # seed of the draws
    # Largest number of GPUs of a request, so that gangs fit on a GPU type with few GPUs.
    largest_request: Annotated[int, Range(least=1, most=LARGEST_REQUEST)] = LARGEST_REQUEST

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; tuned configurations follow from `profiles`."""
        check_profiles(profiles)
        rng = np.random.default_rng(self.seed)
        weights = np.resize(JOBS_BY_HOUR, self.hours).astype(float)
        hours = rng.choice(self.hours, self.num_jobs, p=weights / weights.sum())
        times = np.sort(hours * HOUR + rng.integers(0, HOUR, self.num_jobs))
        applications = {name: names for name, _, names in CLASSES}
        classes = draw(CLASS_SHARES, self.num_jobs, rng)
        tuned = {}
        for name in chain.from_iterable(applications.values()):
            tuned[name] = tuned_configurations(profiles[name], self.largest_request)
        jobs = []
        for index, (time, size_class) in enumerate(zip(times.tolist(), classes, strict=True)):
            names = applications[size_class]
            name = names[rng.integers(len(names))]
            if self.tuned:
                request = tuned[name][rng.integers(len(tuned[name]))]
            else:
                request = _realistic(profiles[name], size_class, rng, self.largest_request)
            jobs.append(Job(f"{name}-{index}", float(time), name, *request))
        return Workload(tuple(jobs), source=f"philly-like workload, seed {self.seed}")


@takes_settings("workload")
@dataclass(frozen=True)
class PhillyLikeReplay:
    """Jobs of `ReplayLike`, mapped to applications with profiles by their size classes; raises its errors."""

    hours: Annotated[WholeHours, HOURS] = 8  # length of the window [h]
    # Start of the window after Monday midnight UTC [h]; the paper's workloads have the hours from 02 to 10.
    start: Annotated[WholeHours, START] = 2
    # Arrival-rate multiplier of bursts; 1 is for the cluster of the trace, with 2,490 GPUs [1].
    rate: Annotated[float, RATE] = 0.4
    # Whether jobs request tuned GPUs and batch sizes, or the load's GPUs and the initial batch size per GPU.
    tuned: bool = True
    seed: NonNegativeInt = 0  # seed of the draws
    heartbeat: bool = False  # whether the periodic jobs are included

    def __post_init__(self) -> None:
        self._source()

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the load and map the jobs of a minute or more and less than 1000 GPU-hours, as in the paper.

        Raise InvalidInputError if no job is drawn, and UnknownApplicationError if an application has no profile.
        """
        check_profiles(profiles)
        source = f"philly-like replay workload, seed {self.seed}"
        usable = Selection().select(trace_jobs(self._source().draw(), self.start))
        if not usable:
            raise no_job(source, self._source())
        # A separate stream, so that the load does not depend on the kind of requests.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed).spawn(4)[3])
        return map_jobs(usable, usable, profiles, rng, tuned=self.tuned, source=source)

    def _source(self) -> ReplayLike:
        return ReplayLike(self.hours, self.start, self.rate, heartbeat=self.heartbeat, seed=self.seed)


def _realistic(
    profile: Profile, size_class: str, rng: np.random.Generator, largest: int = LARGEST_REQUEST
) -> Configuration:
    """Return a request with GPUs as in the trace, at most `largest`, and the initial batch size on each GPU."""
    limits = profile.application
    (gpus,) = draw(GPUS_BY_CLASS[size_class], 1, rng)
    gpus = min(gpus, largest, limits.max_batch_size // limits.init_batch_size)
    return Configuration(gpus, limits.init_batch_size * gpus)


LEAST_SLACK = 1.2  # smallest time from submission to deadline, relative to the duration


@takes_settings("workload")
@dataclass(frozen=True)
class PhillyLikeRigid:
    """Rigid jobs of `ReplayLike` of a minute or more, and less than 1000 GPU-hours; raises its errors."""

    hours: Annotated[WholeHours, HOURS] = 8  # length of the window [h]
    start: Annotated[WholeHours, START] = 2  # start of the window after Monday midnight UTC [h]
    rate: Annotated[float, RATE] = 0.4  # arrival-rate multiplier of bursts, as in `ReplayLike` [1]
    most_gpus: PositiveInt = 64  # GPUs of the largest job; larger jobs are left out
    # Largest time from submission to deadline, relative to the duration [1]. Deadlines are drawn uniformly from 1.2 to
    # this value. None for jobs without deadlines.
    slack: Annotated[float, Range(least=LEAST_SLACK)] | None = None
    seed: NonNegativeInt = 0  # seed of the draws

    def __post_init__(self) -> None:
        self._source()

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the load and return its rigid jobs. Raise InvalidInputError if no job is drawn."""
        drawn = Selection().select(trace_jobs(self._source().draw(), self.start))
        usable = [job for job in drawn if job.num_gpus <= self.most_gpus]
        if not usable:
            raise no_job("philly-like rigid workload", self._source())
        # A separate stream, so that the load does not depend on deadlines.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed).spawn(5)[4])
        # Drawn also for jobs without deadlines, which do not use them.
        slacks = rng.uniform(LEAST_SLACK, self.slack or LEAST_SLACK, len(usable)).tolist()
        jobs = tuple(self._job(job, slack) for job, slack in zip(usable, slacks, strict=True))
        return Workload(jobs, source=f"philly-like rigid workload, seed {self.seed}")

    def _job(self, job: TraceJob, slack: float) -> Job:
        """Return the rigid job of a job of the load. A deadline is `slack` times its duration after its submission."""
        duration = job.duration or 0.0  # all selected jobs have a duration
        deadline = None
        if self.slack is not None:
            deadline = job.submit_time + slack * duration
        gpus = int(job.num_gpus)
        return Job.rigid(job.job, job.submit_time, gpus, duration, queue=job.tenant, deadline=deadline)

    def _source(self) -> ReplayLike:
        return ReplayLike(self.hours, self.start, self.rate, heartbeat=False, seed=self.seed)
