"""Earliest deadline first, by whole gangs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.effects import unless_jobs_differ
from polluxsim.policies.orders import gangs_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster
    from polluxsim.workloads.job import Job


@dataclass(frozen=True)
class EarliestDeadline:
    """Gang-schedule whole jobs by deadline, preemptively; those without one come last, in order of submission.

    Source: Liu and Layland (1973), with gangs in place of single processors.
    """

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether deadlines decide nothing."""
        return unless_jobs_differ(jobs, "deadline", "its jobs start in order of submission")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by deadline."""
        return gangs_by(view, due, lambda job: {} if job.deadline is None else {"deadline": job.deadline})


def due(job: JobView) -> float:
    """Return when a job should be complete, ∞ if nobody says [s]."""
    return inf if job.deadline is None else job.deadline
