"""A workload like those sampled from the Philly trace, from the trace's statistics alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from polluxsim.errors import InvalidConfigError
from polluxsim.workloads.sampling import CLASSES, check_profiles
from polluxsim.workloads.tuned import Configuration, tuned_configurations
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.profile import Profile

_ValueT = TypeVar("_ValueT")

# Source of all figures: statistics of the Philly trace (Jeon et al., ATC '19; data under CC-BY-4.0), jobs that passed,
# of a minute or more and less than 1000 GPU-hours, submitted between 02 and 10 h UTC.
JOBS_BY_HOUR = (3550, 3368, 2240, 3728, 5169, 6585, 3499, 3154)
CLASS_SHARES = {"S": 78.3, "M": 15.25, "L": 4.6, "XL": 1.9}
GPUS_BY_CLASS: Mapping[str, Mapping[int, float]] = {
    "S": {1: 98.5, 4: 0.8, 8: 0.4},
    "M": {1: 95.4, 4: 2.0, 8: 2.0},
    "L": {1: 64.6, 2: 5.2, 4: 17.7, 8: 11.2},
    "XL": {1: 17.5, 2: 6.4, 4: 28.7, 8: 40.2, 16: 4.9, 32: 2.2},
}
"""Shares of GPU counts in a class [%]; what is missing to 100 is spread over them."""

SECONDS_PER_HOUR = 3600
LONGEST = 10_000


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
    """

    num_jobs: int = 160
    hours: int = 8
    tuned: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("num_jobs", self.num_jobs, 1), ("hours", self.hours, 1), ("seed", self.seed, 0)):
            if value < least or (name == "hours" and value > LONGEST):
                most = f" and ≤ {LONGEST}" if name == "hours" else ""
                raise InvalidConfigError(f"workload.{name} is {value}, allowed is a whole number ≥ {least}{most}")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; `profiles` says what tuned configurations there are.

        Raises
        ------
        UnknownApplicationError
            If an application of a size class has no profile.
        """
        check_profiles(profiles)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        weights = np.resize(JOBS_BY_HOUR, self.hours).astype(float)
        hours = rng.choice(self.hours, self.num_jobs, p=weights / weights.sum())
        times = np.sort(hours * SECONDS_PER_HOUR + rng.integers(0, SECONDS_PER_HOUR, self.num_jobs))
        applications = {name: names for name, _, names in CLASSES}
        classes = _draw(rng, CLASS_SHARES, self.num_jobs)
        tuned = {name: tuned_configurations(profiles[name]) for names in applications.values() for name in names}
        jobs = []
        for index, (time, size_class) in enumerate(zip(times.tolist(), classes, strict=True)):
            names = applications[size_class]
            name = names[rng.integers(len(names))]
            if self.tuned:
                request = tuned[name][rng.integers(len(tuned[name]))]
            else:
                request = _realistic(profiles[name], size_class, rng)
            jobs.append(Job(f"{name}-{index}", float(time), name, *request))
        return Workload(tuple(jobs), source=f"philly-like workload, seed {self.seed}")


def _realistic(profile: Profile, size_class: str, rng: np.random.Generator) -> Configuration:
    limits = profile.application
    (gpus,) = _draw(rng, GPUS_BY_CLASS[size_class], 1)
    gpus = min(gpus, limits.max_batch_size // limits.init_batch_size)
    return Configuration(gpus, limits.init_batch_size * gpus)


def _draw(rng: np.random.Generator, shares: Mapping[_ValueT, float], count: int) -> Sequence[_ValueT]:
    """Return values drawn in proportion to their shares."""
    values = list(shares)
    weights = np.array(list(shares.values()))
    return [values[index] for index in rng.choice(len(values), count, p=weights / weights.sum())]
