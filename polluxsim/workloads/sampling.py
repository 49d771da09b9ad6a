"""Sample a workload from the Philly trace, as the paper's evaluation did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from polluxsim.errors import InvalidConfigError, UnknownApplicationError
from polluxsim.traces.philly import PhillyJob, read_philly
from polluxsim.workloads.tuned import Configuration, tuned_configurations
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.profile import Profile

# Source of all constants: Pollux (OSDI '21), §5.1, and its artifact.
LEAST_DURATION = 60.0
GPU_HOUR = 3600.0
CLOCK_SHIFT = 2 * 3600
DAY = 24 * 3600
WINDOW_HOURS = 8
LONGEST_REQUEST = 24 * 3600.0

CLASSES: Sequence[tuple[str, float, tuple[str, ...]]] = (
    ("S", 1 * GPU_HOUR, ("cifar10", "ncf")),
    ("M", 10 * GPU_HOUR, ("deepspeech2", "bert")),
    ("L", 100 * GPU_HOUR, ("yolov3",)),
    ("XL", 1000 * GPU_HOUR, ("imagenet",)),
)
"""Size classes: name, upper limit of GPU time [GPU s], and the applications that stand for them, at even odds."""

REDRAWN_CLASSES = ("L", "XL")
"""Classes whose realistic GPU counts are drawn anew, from their jobs of at most a day."""


@dataclass(frozen=True)
class PhillySample:
    """A workload drawn from the Philly trace.

    Jobs of at least a minute and less than 1000 GPU-hours, submitted within an 8-hour window of the day, with all days
    folded into one, are drawn without replacement.

    Parameters
    ----------
    path
        philly.csv, as in the artifact of Pollux.
    num_jobs
        Jobs to draw.
    tuned
        Whether jobs ask for tuned GPUs and batch sizes, or for the trace's GPUs and the initial batch size for each.
    seed
        Seed of the drawing.

    Source: Pollux (OSDI '21), §5.1, and its artifact.
    """

    path: str
    num_jobs: int = 160
    tuned: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidConfigError(f"workload.seed is {self.seed}, allowed is a whole number ≥ 0")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Draw the workload; `profiles` says what tuned configurations there are.

        Raises
        ------
        InvalidInputError
            If the trace cannot be read, or an application of a class has no profile.
        InvalidConfigError
            If there are not so many jobs to draw from.
        """
        check_profiles(profiles)
        usable = [job for job in read_philly(Path(self.path)) if _is_usable(job)]
        candidates = [job for job in usable if _clock(job) < WINDOW_HOURS * 3600]
        if not 0 < self.num_jobs <= len(candidates):
            raise InvalidConfigError(
                f"workload.num_jobs is {self.num_jobs}, allowed are 1 to the {len(candidates)} jobs of {self.path}"
            )
        rng = np.random.default_rng(np.random.SeedSequence(self.seed))
        drawn = rng.choice(len(candidates), self.num_jobs, replace=False)
        chosen = sorted((candidates[i] for i in drawn), key=_clock)
        requests: _Requests = _Tuned(profiles) if self.tuned else _Realistic(profiles, usable)
        return Workload(
            tuple(self._job(index, job, requests, rng) for index, job in enumerate(chosen)), source=self.path
        )

    def _job(self, index: int, job: PhillyJob, requests: _Requests, rng: np.random.Generator) -> Job:
        _, applications = classify(job)
        application = applications[rng.integers(len(applications))]
        configuration = requests.draw(application, job, rng)
        return Job(f"{application}-{index}", float(_clock(job)), application, *configuration)


def check_profiles(profiles: Mapping[str, Profile]) -> None:
    """Check that all applications that stand for size classes have a profile.

    Raises
    ------
    UnknownApplicationError
        If one has not.
    """
    if missing := [name for *_, names in CLASSES for name in names if name not in profiles]:
        raise UnknownApplicationError(
            f"workload: the size classes need profiles of {', '.join(missing)}, there are {', '.join(profiles)}"
        )


def classify(job: PhillyJob) -> tuple[str, tuple[str, ...]]:
    """Return the size class of a job and the applications that stand for it."""
    for name, limit, applications in CLASSES:
        if job.gpu_time < limit:
            return name, applications
    raise ValueError(f"{job} needs {job.gpu_time / GPU_HOUR:g} GPU-hours, allowed is less than 1000")


class _Requests(Protocol):
    """What the users of sampled jobs ask for."""

    def draw(self, application: str, job: PhillyJob, rng: np.random.Generator) -> Configuration:
        """Return one user's request."""
        ...


class _Tuned:
    """Users who know what their jobs scale to."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._choices = {name: tuned_configurations(profiles[name]) for *_, names in CLASSES for name in names}

    def draw(self, application: str, job: PhillyJob, rng: np.random.Generator) -> Configuration:
        choices = self._choices[application]
        return choices[rng.integers(len(choices))]


class _Realistic:
    """Users who ask for what those of the trace did."""

    def __init__(self, profiles: Mapping[str, Profile], usable: Sequence[PhillyJob]) -> None:
        self._profiles = profiles
        self._requested = {
            name: [job.num_gpus for job in usable if classify(job)[0] == name and job.duration <= LONGEST_REQUEST]
            for name in REDRAWN_CLASSES
        }

    def draw(self, application: str, job: PhillyJob, rng: np.random.Generator) -> Configuration:
        limits = self._profiles[application].application
        requested = self._requested.get(classify(job)[0]) or [job.num_gpus]
        gpus = requested[rng.integers(len(requested))]
        gpus = min(gpus, limits.max_batch_size // limits.init_batch_size)
        return Configuration(gpus, limits.init_batch_size * gpus)


def _is_usable(job: PhillyJob) -> bool:
    return job.duration >= LEAST_DURATION and job.gpu_time < CLASSES[-1][1]


def _clock(job: PhillyJob) -> int:
    """Return the seconds since midnight on the shifted clock."""
    time = job.submitted
    return (time.hour * 3600 + time.minute * 60 + time.second - CLOCK_SHIFT) % DAY
