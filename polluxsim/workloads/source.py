"""Interface of a source of workloads, checks of its settings, and weighted draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol, TypeVar

import numpy as np

from polluxsim.common.errors import invalid_setting
from polluxsim.common.values import Range
from polluxsim.models.profile import Profile
from polluxsim.workloads.workload import Workload

START = Range(least=0)  # start of a window of a log [h]
LENGTH = Range(above=0, most=inf)  # length of a window of a log [h]
MOST_JOBS = 10_000_000  # largest number of jobs that a source draws, to catch errors in settings


class Source(Protocol):
    """Source of a workload; it reads or draws the jobs."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload. Its notes state how many jobs were left out or changed.

        Raise InvalidInputError if a file cannot be read, a row is invalid, or no job is left; InvalidConfigError if the
        settings contradict the file; and UnknownApplicationError if an application has no profile.
        """


def check_gpu_types(gpu_types: object) -> None:
    """Raise InvalidConfigError if the GPU types by their names in a log are neither a mapping of names nor None."""
    if not isinstance(gpu_types, Mapping | None) or not all(isinstance(name, str) for name in gpu_types or ()):
        raise invalid_setting("workload.gpu_types", gpu_types, "a mapping of names, like {V100: v100-32}, or null")


_ValueT = TypeVar("_ValueT")


def draw(values: Mapping[_ValueT, float], count: int, rng: np.random.Generator) -> Sequence[_ValueT]:
    """Return `count` of the values, drawn with replacement in proportion to their weights."""
    choices = list(values)
    weights = np.array(list(values.values()), dtype=float)
    return [choices[index] for index in rng.choice(len(choices), count, p=weights / weights.sum()).tolist()]
