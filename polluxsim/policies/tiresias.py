"""Tiresias: least attained service in two queues, with gangs of the size their users asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polluxsim.policies.gangs import schedule_gangs

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Allocation, JobId


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
    _demoted: dict[JobId, None] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Give GPUs to whole gangs in queue order; a job that fits may overtake one that does not."""
        return schedule_gangs(view, self._in_order(view))

    def _in_order(self, view: ClusterView) -> list[JobView]:
        """Return the first queue in order of submission, then the second in order of demotion."""
        present = {job.job_id: job for job in view.jobs}
        for job in view.jobs:
            if job.attained_service >= self.queue_threshold:
                self._demoted.setdefault(job.job_id)
        self._demoted = {job_id: None for job_id in self._demoted if job_id in present}
        first = [job for job in view.jobs if job.job_id not in self._demoted]
        return first + [present[job_id] for job_id in self._demoted]
