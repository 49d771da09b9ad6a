"""What `configs/workload` chooses from: whatever makes a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
