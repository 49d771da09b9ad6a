"""Interface of a source of workloads, checks of its settings, and weighted draws."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol, TypeGuard, TypeVar

import numpy as np

from polluxsim.common.errors import invalid_setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.models.profile import Profile
    from polluxsim.workloads.workload import Workload


class Source(Protocol):
    """Source of a workload, which reads or draws it."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload. Its notes count the jobs that were left out or changed.

        Raises
        ------
        InvalidInputError
            If a file cannot be read, a row is invalid, or no job is left.
        InvalidConfigError
            If the settings contradict the file.
        UnknownApplicationError
            If an application has no profile.
        """
        ...


def check_window(start: object, hours: object) -> None:
    """Raise InvalidConfigError if the start or the length of a window is invalid [h]."""
    if not is_number(start) or not 0 <= start < inf:
        raise invalid_setting("start", start, "a finite number ≥ 0")
    if hours is not None and not (is_number(hours) and hours > 0):
        raise invalid_setting("hours", hours, "a number > 0")


def check_whole(name: str, value: int, least: int = 0, most: float = inf) -> None:
    """Raise InvalidConfigError if a setting of a workload is not within limits."""
    if not least <= value <= most:
        raise invalid_setting(
            f"workload.{name}", value, f"a whole number ≥ {least}{'' if most == inf else f' and ≤ {most}'}"
        )


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_ValueT = TypeVar("_ValueT")


def draw(values: Mapping[_ValueT, float], count: int, rng: np.random.Generator) -> Sequence[_ValueT]:
    """Return values drawn in proportion to their weights."""
    names, weights = list(values), np.array(list(values.values()), dtype=float)
    return [names[index] for index in rng.choice(len(names), count, p=weights / weights.sum()).tolist()]
