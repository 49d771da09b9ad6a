"""Earliest deadline first, by whole gangs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.orders import gangs_by

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView


@dataclass(frozen=True)
class EarliestDeadline:
    """Gang-schedule whole jobs by deadline, preemptively; those without one come last, in order of submission.

    Source: Liu and Layland (1973), with gangs in place of single processors.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by deadline."""
        return gangs_by(view, due, lambda job: {} if job.deadline is None else {"deadline": job.deadline})


def due(job: JobView) -> float:
    """Return when a job should be complete, ∞ if nobody says [s]."""
    return inf if job.deadline is None else job.deadline
