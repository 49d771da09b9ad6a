"""Shortest job first without preemption: by the true duration, or by what like jobs took before."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from polluxsim.errors import check_number
from polluxsim.policies.orders import gangs_by
from polluxsim.policies.srtf import remaining_time

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId

_NUMBER = re.compile(r"[\W\d_]+$")
"""What jobs of one name differ by, at its end."""


@dataclass(frozen=True)
class ShortestJobFirst:
    """Start whole jobs by their true duration and let each run to its end."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep what runs, then start the waiting by duration."""
        duration = partial(remaining_time, gpus_per_node=view.node_size)
        return gangs_by(view, duration, lambda job: {"remaining_time": duration(job)}, preemptive=False)


@dataclass
class QuasiShortestService:
    """Start whole jobs by the GPU time that like jobs took before, and let each run to its end.

    A job is expected to run as long as its user's jobs of that name (but for a number at its end) did, else as long as
    that user's with as many GPUs, else anybody's with as many, else anybody's: each as a mean that forgets. Before any
    job has ended, all are alike.

    Parameters
    ----------
    forgetting
        Weight of the last job in such a mean, in (0, 1].

    Source: Hu et al., "Characterization and Prediction" of Helios (SC '21), §4.2: its rolling estimate, without the
    boosted trees that it mixes with it.
    """

    forgetting: float = 0.5
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    _means: dict[Hashable, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.forgetting", self.forgetting, 0 < self.forgetting <= 1, "a number in (0, 1]")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep what runs, then start the waiting by what they are expected to take."""
        self._jobs |= {job.job_id: job for job in view.changes.arrived}
        for job_id in view.changes.ended:
            self._learn(self._jobs.pop(job_id))

        def service(job: JobView) -> float:
            return self._expected(job) * job.num_replicas

        return gangs_by(view, service, lambda job: {"expected_service": service(job)}, preemptive=False)

    def _learn(self, job: JobView) -> None:
        """Take note of how long a job held its GPUs."""
        time = job.attained_service / job.num_replicas
        for kind in _kinds(job) if time else ():
            before = self._means.get(kind, time)
            self._means[kind] = before + self.forgetting * (time - before)

    def _expected(self, job: JobView) -> float:
        return next((self._means[kind] for kind in _kinds(job) if kind in self._means), 0.0)


def _kinds(job: JobView) -> tuple[Hashable, ...]:
    """Return what a job has in common with others, the closest kin first."""
    name = _NUMBER.sub("", job.job_id)
    return (job.user, "name", name), (job.user, "GPUs", job.num_replicas), ("GPUs", job.num_replicas), ()
