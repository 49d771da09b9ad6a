"""Priorities with preemption, after a minimum run time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import check_number
from polluxsim.policies.effects import unless_jobs_differ
from polluxsim.policies.orders import gangs_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job


@dataclass
class Priority:
    """Gang-schedule whole jobs by the priorities of their users, larger first. Equal jobs do not preempt each other.

    Parameters
    ----------
    min_run_time
        Time that a job runs before it may be preempted [s].

    Source: a run time of two hours, as in the clusters of Kokolis et al., "Revisiting Reliability in Large-Scale
    Machine Learning Research Clusters" (HPCA '25).
    """

    min_run_time: float = 7200.0
    # When each job that runs was started.
    _since: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.min_run_time", self.min_run_time, self.min_run_time >= 0, "a finite number ≥ 0")

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether priorities decide nothing."""
        return unless_jobs_differ(jobs, "priority", "its jobs start in order of submission, and none is preempted")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to who may not be preempted, then by priority."""
        running = {job.job_id for job in view.running}
        self._since = {job_id: since for job_id, since in self._since.items() if job_id in running}
        protected = {name: end for name in self._since if (end := self._since[name] + self.min_run_time) > view.time}

        def rank(job: JobView) -> tuple[bool, float, bool]:
            return job.job_id not in protected, -job.priority, job.job_id not in running

        decision = gangs_by(view, rank, lambda job: {"priority": job.priority})
        started = [name for name, placement in decision.allocation.items() if placement and name not in running]
        self._since |= dict.fromkeys(started, view.time)
        ends = [self._since[name] + self.min_run_time for name in (*protected, *started)]
        return replace(decision, valid_until=min(decision.valid_until, *ends, inf))
