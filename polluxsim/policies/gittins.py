"""Gittins index: whoever is most likely to be done soon goes first, by what jobs before it needed."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.policies.las import next_quantum, quanta
from polluxsim.policies.orders import check_above_zero, gangs_by

if TYPE_CHECKING:
    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


def gittins_index(services: np.ndarray, attained: float) -> float:
    """Return the best chance of an end per GPU time spent, of a job that has had so much and has not ended [1/GPU s].

    That is the largest P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a] over all Δ; 0 where nobody needed more.

    Parameters
    ----------
    services
        What jobs before it needed in all, rising, shape (jobs,) [GPU s].
    attained
        What it has had, a [GPU s].

    Source: Gittins (1979), as in Tiresias (NSDI '19), §3.3.
    """
    left = services[np.searchsorted(services, attained, side="right") :] - attained
    if not len(left):
        return 0.0
    done = np.arange(1, len(left) + 1)
    spent = np.cumsum(left) + (len(left) - done) * left
    return float((done / spent).max())


@dataclass
class Gittins:
    """Gang-schedule whole jobs by the Gittins index of their attained service, preemptively.

    The distribution is that of the GPU time of the jobs that have ended in this run; until one has, jobs come in order
    of submission.

    Parameters
    ----------
    quantum
        Attained service is counted in whole quanta [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19), where it is Tiresias-G without its queues.
    """

    quantum: float = 3600.0
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    _services: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(quantum=self.quantum)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by falling index."""
        self._learn(view)
        services = np.array(self._services)

        @cache
        def index_at(level: float) -> float:
            return gittins_index(services, level * self.quantum)

        def index(job: JobView) -> float:
            return index_at(quanta(job, self.quantum))

        return gangs_by(
            view,
            lambda job: -index(job),
            lambda job: {"attained_service": job.attained_service, "gittins_index": index(job)},
            lasts_until=next_quantum(view, self.quantum),
        )

    def _learn(self, view: ClusterView) -> None:
        """Take note of what the jobs that have ended needed."""
        self._jobs |= {job.job_id: job for job in view.changes.arrived}
        for job_id in view.changes.ended:
            if needed := self._jobs.pop(job_id).attained_service:
                insort(self._services, needed)
