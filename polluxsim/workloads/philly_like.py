"""A workload like those sampled from the Philly trace, from the trace's statistics alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.durations import HOUR
from polluxsim.errors import InvalidInputError
from polluxsim.workloads.drawing import draw
from polluxsim.workloads.mapping import map_jobs
from polluxsim.workloads.philly_figures import CLASS_SHARES, GPUS_BY_CLASS, JOBS_BY_HOUR
from polluxsim.workloads.replay_like import ReplayLike, trace_jobs
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.size_classes import CLASSES, check_profiles
from polluxsim.workloads.source import check_whole
from polluxsim.workloads.tuned import REPLICA_CHOICES, Configuration, tuned_configurations
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile

LONGEST = 10_000
MOST_JOBS = 10_000_000
LARGEST_REQUEST = REPLICA_CHOICES[-1]


@dataclass(frozen=True)
class PhillyLike:
    """Independent draws over a window of hours, as the paper's workloads are.

    Parameters
    ----------
    num_jobs
        Jobs.
    hours
        Length of the window [h]; arrivals follow the trace's eight hours from 02 to 10 h UTC, again and again.
    tuned
        Whether jobs ask for tuned GPUs and batch sizes, or for GPUs as in the trace and the initial batch size on each.
    seed
        Seed of the drawing.
    largest_request
        A job that would ask for more GPUs asks for so many, so that gangs fit on a GPU type of which there are few.
    """

    num_jobs: int = 160
    hours: int = 8
    tuned: bool = True
    seed: int = 0
    largest_request: int = LARGEST_REQUEST

    def __post_init__(self) -> None:
        check_whole("num_jobs", self.num_jobs, 1, MOST_JOBS)
        check_whole("hours", self.hours, 1, LONGEST)
        check_whole("largest_request", self.largest_request, 1, LARGEST_REQUEST)
        check_whole("seed", self.seed)

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; `profiles` says what tuned configurations there are."""
        check_profiles(profiles)
        rng = np.random.default_rng(self.seed)
        weights = np.resize(JOBS_BY_HOUR, self.hours).astype(float)
        hours = rng.choice(self.hours, self.num_jobs, p=weights / weights.sum())
        times = np.sort(hours * HOUR + rng.integers(0, HOUR, self.num_jobs))
        applications = {name: names for name, _, names in CLASSES}
        classes = draw(CLASS_SHARES, self.num_jobs, rng)
        known = (name for names in applications.values() for name in names)
        tuned = {name: tuned_configurations(profiles[name], self.largest_request) for name in known}
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


@dataclass(frozen=True)
class PhillyLikeReplay:
    """Bursts as `ReplayLike` has them, with an application that has a profile in place of each job, by its size class.

    Parameters
    ----------
    hours
        Length of the window [h].
    start
        When it begins, from Monday midnight UTC [h]; the paper's workloads are of the hours from 02 to 10.
    rate
        Bursts arrive so many times as often as in the trace, whose cluster had 2,490 GPUs [1].
    tuned
        Whether jobs ask for tuned GPUs and batch sizes, or for the load's GPUs and the initial batch size on each.
    seed
        Seed of the drawing.
    heartbeat
        Whether the heartbeat is among them.
    """

    hours: int = 8
    start: int = 2
    rate: float = 0.4
    tuned: bool = True
    seed: int = 0
    heartbeat: bool = False

    def __post_init__(self) -> None:
        self._source()

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the load and map the jobs that the paper would use: of a minute or more, under 1000 GPU-hours."""
        check_profiles(profiles)
        source = f"philly-like replay workload, seed {self.seed}"
        usable = Selection().select(trace_jobs(self._source().draw(), self.start))
        if not usable:
            raise InvalidInputError(f"{source}: no job came in {self.hours} h at rate {self.rate:g}")
        # A stream of its own, apart from those that the load is drawn with.
        rng = np.random.default_rng(np.random.SeedSequence(self.seed).spawn(4)[3])
        return map_jobs(usable, usable, profiles, rng, tuned=self.tuned, source=source)

    def _source(self) -> ReplayLike:
        return ReplayLike(self.hours, self.start, self.rate, heartbeat=self.heartbeat, seed=self.seed)


def _realistic(
    profile: Profile, size_class: str, rng: np.random.Generator, largest: int = LARGEST_REQUEST
) -> Configuration:
    limits = profile.application
    (gpus,) = draw(GPUS_BY_CLASS[size_class], 1, rng)
    gpus = min(gpus, largest, limits.max_batch_size // limits.init_batch_size)
    return Configuration(gpus, limits.init_batch_size * gpus)
