"""First in, first out: the simplest baseline, without preemption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.policies.gangs import schedule_gangs

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision


@dataclass(frozen=True)
class Fifo:
    """Start whole jobs in order of submission and let each run to its end.

    Parameters
    ----------
    backfill
        Whether a job that fits may start before an earlier one that does not.
    """

    backfill: bool = False

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep what runs, then start the waiting in order."""
        order = sorted(view.jobs, key=lambda job: not job.placement)
        return schedule_gangs(view, order, overtaking=self.backfill)
