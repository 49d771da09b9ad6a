"""Tiresias: least attained service in two queues, with gangs of the size their users asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.gangs import schedule_gangs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


# To ask a round too early costs nothing, to ask one too late after a rounding error would.
NEARLY = 1 - 1e-9


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
    _demoted: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs in queue order; a job that fits may overtake one that does not."""
        self._demote(view)
        decision = schedule_gangs(view, self._in_order(view), describe=self._describe)
        return replace(decision, valid_until=view.time + NEARLY * self._next_demotion(view, decision))

    def _describe(self, job: JobView) -> dict[str, float]:
        return {
            "queue": 2 if job.job_id in self._demoted else 1,
            "attained_service": job.attained_service,
            "queue_threshold": self.queue_threshold,
        }

    def _demote(self, view: ClusterView) -> None:
        """Move jobs that have had enough to the second queue, and forget those that are gone."""
        for job_id in view.changes.ended:
            self._demoted.pop(job_id, None)
        for job in view.running:
            if job.job_id not in self._demoted and job.attained_service >= self.queue_threshold:
                self._demoted[job.job_id] = job

    def _next_demotion(self, view: ClusterView, decision: Decision) -> float:
        """Return the time until a job that has GPUs now is demoted [s]."""
        running = (job for job in view.jobs if job.job_id in decision.allocation and job.job_id not in self._demoted)
        return min(((self.queue_threshold - job.attained_service) / job.num_replicas for job in running), default=inf)

    def _in_order(self, view: ClusterView) -> Iterator[JobView]:
        """Yield the first queue in order of submission, then the second in order of demotion."""
        yield from (job for job in view.jobs if job.job_id not in self._demoted)
        yield from self._demoted.values()
