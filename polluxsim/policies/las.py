"""Least attained service: whoever has had the least GPU time goes first."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.orders import NEARLY, check_above_zero, gangs_by

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView


@dataclass(frozen=True)
class LeastAttainedService:
    """Gang-schedule whole jobs by attained service, preemptively.

    Parameters
    ----------
    quantum
        Jobs within one quantum count as equal and stay in order of submission [GPU s].

    Source: the continuous form of what Tiresias (NSDI '19) puts into queues.
    """

    quantum: float = 3600.0

    def __post_init__(self) -> None:
        check_above_zero(quantum=self.quantum)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by quanta of attained service."""
        return gangs_by(
            view,
            lambda job: quanta(job, self.quantum),
            lambda job: {"attained_service": job.attained_service},
            lasts_until=next_quantum(view, self.quantum),
        )


def quanta(job: JobView, quantum: float) -> float:
    """Return the whole quanta of service [GPU s] that a job has attained."""
    return job.attained_service // quantum


def next_quantum(view: ClusterView, quantum: float) -> float:
    """Return a time before which no job completes the quantum it is in, whoever runs [s]."""
    left = (((quanta(job, quantum) + 1) * quantum - job.attained_service) / job.num_replicas for job in view.jobs)
    return view.time + NEARLY * min(left, default=inf)
