"""Interface of a source of workloads, checks of its settings, and weighted draws."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar

import numpy as np

from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.workload import Workload


class Source(Protocol):
    """Makes a workload of profiles: reads it, or draws it."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload; what was left out or altered stands in its notes.

        Raises
        ------
        InvalidInputError
            If a file cannot be read, a row is not what it should be, or no job is left.
        InvalidConfigError
            If the settings do not fit what was read.
        UnknownApplicationError
            If an application that it needs has no profile.
        """
        ...


def check_window(start: object, hours: object) -> None:
    """Raise InvalidConfigError if a window is none: when it begins, and how long it is, None to the end [h]."""
    if not is_number(start) or not 0 <= start < inf:
        raise InvalidConfigError(f"start is {start!r}, allowed is a finite number ≥ 0")
    if hours is not None and not (is_number(hours) and hours > 0):
        raise InvalidConfigError(f"hours is {hours!r}, allowed is a number > 0")


def check_whole(name: str, value: int, least: int = 0, most: float = inf) -> None:
    """Raise InvalidConfigError if a setting of a workload is not within limits."""
    if not least <= value <= most:
        above = "" if most == inf else f" and ≤ {most}"
        raise InvalidConfigError(f"workload.{name} is {value}, allowed is a whole number ≥ {least}{above}")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether it is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_ValueT = TypeVar("_ValueT")


def draw(values: Mapping[_ValueT, float], count: int, rng: np.random.Generator) -> Sequence[_ValueT]:
    """Return values drawn in proportion to their weights."""
    names, weights = list(values), np.array(list(values.values()), dtype=float)
    return [names[index] for index in rng.choice(len(names), count, p=weights / weights.sum()).tolist()]
