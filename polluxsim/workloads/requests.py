"""What the users of mapped jobs ask for: tuned GPUs and batch sizes, or what those of the trace did."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from polluxsim.durations import HOUR
from polluxsim.workloads.size_classes import classify
from polluxsim.workloads.tuned import Configuration, tuned_configurations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.logs.trace_table import TraceJob
    from polluxsim.models.profile import Profile

# Source of both: Pollux (OSDI '21), §5.2, and its artifact.
REDRAWN_CLASSES = ("L", "XL")
"""Classes whose realistic GPU counts are drawn anew, from their jobs of at most a day."""

LONGEST_REQUEST = 24.0 * HOUR
"""Longest jobs that those are drawn from [s]."""


class Tuned:
    """Users who know what their jobs scale to."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._choices: dict[str, tuple[Configuration, ...]] = {}

    def draw(self, application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Return one of the application's tuned configurations, at even odds."""
        if application not in self._choices:
            self._choices[application] = tuned_configurations(self._profiles[application])
        choices = self._choices[application]
        return choices[rng.integers(len(choices))]


class Realistic:
    """Users who ask for what those of the trace did, with the initial batch size on each GPU.

    GPU counts of large classes are drawn from those of the `usable` jobs.
    """

    def __init__(self, profiles: Mapping[str, Profile], usable: Sequence[TraceJob]) -> None:
        self._profiles = profiles
        self._requested: dict[str, list[int]] = {name: [] for name in REDRAWN_CLASSES}
        for job in usable:
            if (name := _class_of(job)) in self._requested and (job.duration or 0) <= LONGEST_REQUEST:
                self._requested[name].append(ceil(job.num_gpus))

    def draw(self, application: str, job: TraceJob, rng: np.random.Generator) -> Configuration:
        """Return the job's GPUs, or for large jobs those of one like it; never more than the largest batch feeds."""
        limits = self._profiles[application].application
        requested = self._requested.get(_class_of(job)) or [ceil(job.num_gpus)]
        gpus = requested[rng.integers(len(requested))]
        gpus = min(gpus, limits.max_batch_size // limits.init_batch_size)
        return Configuration(gpus, limits.init_batch_size * gpus)


def _class_of(job: TraceJob) -> str:
    found = classify(job.gpu_time)
    return "" if found is None else found[0]


def requests_of(profiles: Mapping[str, Profile], usable: Sequence[TraceJob], *, tuned: bool) -> Tuned | Realistic:
    """Return the users: those who know what their jobs scale to, or those of the trace."""
    return Tuned(profiles) if tuned else Realistic(profiles, usable)
