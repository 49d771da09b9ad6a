"""What `configs/workload` chooses from: whatever makes a workload; and checks of its settings."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol, TypeGuard

from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
