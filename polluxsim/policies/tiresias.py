"""Tiresias: least attained service in two queues, with gangs of the size their users asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.gangs import schedule_gangs
from polluxsim.policies.orders import NEARLY

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


@dataclass
class Tiresias:
    """Discretised two-queue least attained service, preemptive, without promotion of starved jobs.

    Parameters
    ----------
    queue_threshold
        Attained service at which a job moves from the first queue to the end of the second [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19); threshold of 16 GPU-hours and packing from the artifact of Pollux
    (OSDI '21).
    """

    queue_threshold: float = 16 * 3600.0
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # When jobs that have GPUs will be demoted [s], or a little before.
    _due: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _demoted: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by submission, then by demotion; a job that fits may overtake one that does not."""
        self._demote(view)
        first = (job for job in view.jobs if job.job_id not in self._demoted)
        decision = schedule_gangs(view, chain(first, self._demoted.values()), describe=self._describe)
        self._foresee(view, decision)
        return replace(decision, valid_until=min(self._due.values(), default=inf))

    def _describe(self, job: JobView) -> dict[str, float]:
        return {
            "queue": 2 if job.job_id in self._demoted else 1,
            "attained_service": job.attained_service,
            "queue_threshold": self.queue_threshold,
        }

    def _demote(self, view: ClusterView) -> None:
        """Move jobs that have had enough to the second queue, and forget those that are gone."""
        self._jobs |= {job.job_id: job for job in view.changes.arrived}
        for job_id in view.changes.ended:
            for table in (self._jobs, self._demoted, self._due):
                table.pop(job_id, None)
        due = [self._jobs[job_id] for job_id, time in self._due.items() if time <= view.time]
        for job in sorted(due, key=lambda job: job.submit_time):
            if job.attained_service >= self.queue_threshold:
                self._demoted[job.job_id] = job
            del self._due[job.job_id]

    def _foresee(self, view: ClusterView, decision: Decision) -> None:
        """Note when the jobs that have GPUs from now on will be demoted."""
        if not decision.others_keep:
            self._due = {job_id: time for job_id, time in self._due.items() if job_id in decision.allocation}
        for job_id in decision.allocation:
            if job_id not in self._demoted and job_id not in self._due:
                job = self._jobs[job_id]
                left = (self.queue_threshold - job.attained_service) / job.num_replicas
                self._due[job_id] = view.time + NEARLY * left
