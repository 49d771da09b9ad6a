"""Job lists of Gavel's and Shockwave's simulators as workloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.workloads.gavel_lists import GavelList
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile


@dataclass(frozen=True)
class GavelJobs(GavelList):
    """The jobs of such a list; parameters as of `GavelList`."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs; raises as `GavelList.read`."""
        jobs, notes = self.read()
        return Workload(jobs, source=self.path, notes=notes)
