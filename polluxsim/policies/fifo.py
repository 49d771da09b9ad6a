"""First in, first out: the simplest baseline, without preemption."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import inf
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
        return schedule_gangs(view, chain(view.running, view.waiting), overtaking=self.backfill, order_lasts_until=inf)
