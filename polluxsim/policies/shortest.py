"""Shortest job first without preemption, by the true duration or by the run times of similar jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from polluxsim.errors import check_number
from polluxsim.models.rigid import RIGID
from polluxsim.models.scaling import ELASTIC
from polluxsim.policies.orders import gangs_by
from polluxsim.policies.srtf import remaining_time

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId

_COUNTER = re.compile(r"([\W_]+\d+)+$")
"""Numbers at the end of a job id, each after a separator, as in `train-17`. The number in `resnet18` has none."""

_WITHOUT_PROFILE = (RIGID, ELASTIC)
"""Applications of jobs without a profile. They do not tell what a job trains."""


@dataclass(frozen=True)
class ShortestJobFirst:
    """Start whole jobs by their true duration and let each run to its end."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, and start waiting jobs in order of duration."""
        duration = partial(remaining_time, gpus_per_node=view.node_size)
        return gangs_by(view, duration, lambda job: {"remaining_time": duration(job)}, preemptive=False)


@dataclass
class QuasiShortestService:
    """Start whole jobs in order of their expected GPU time, and let each run to its end.

    The expected run time of a job is a moving mean over ended jobs: those of the same user and name, or, if there are
    none, those of the same user and number of GPUs, those of the same number of GPUs, or all jobs. The name of a job is
    its name in the log, or its application. A job with neither has as its name the job id, without a counter as in
    `train-17`. An id without a letter is no name. Before the first job has ended, all jobs are expected to take equally
    long.

    Parameters
    ----------
    forgetting
        Weight of the last job in a moving mean, in (0, 1].

    Source: the rolling estimate of Hu et al., "Characterization and Prediction of Deep Learning Workloads in
    Large-Scale GPU Datacenters" (SC '21), §4.2, without its boosted trees.
    """

    forgetting: float = 0.5
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    _means: dict[Hashable, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.forgetting", self.forgetting, 0 < self.forgetting <= 1, "a number in (0, 1]")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, and start waiting jobs in order of expected GPU time."""
        self._jobs |= {job.job_id: job for job in view.changes.arrived}
        for job_id in view.changes.ended:
            self._learn(self._jobs.pop(job_id))

        def service(job: JobView) -> float:
            return self._expected(job) * job.num_replicas

        return gangs_by(view, service, lambda job: {"expected_service": service(job)}, preemptive=False)

    def _learn(self, job: JobView) -> None:
        """Update the means with the time for which a job held its GPUs."""
        time = job.attained_service / job.num_replicas
        for kind in _kinds(job) if time else ():
            before = self._means.get(kind, time)
            self._means[kind] = before + self.forgetting * (time - before)

    def _expected(self, job: JobView) -> float:
        return next((self._means[kind] for kind in _kinds(job) if kind in self._means), 0.0)


def _kinds(job: JobView) -> tuple[Hashable, ...]:
    """Return the groups of jobs that predict the run time of a job, the most similar group first."""
    name = _name(job)
    by_name = () if name is None else ((job.user, "name", name),)
    return *by_name, (job.user, "GPUs", job.num_replicas), ("GPUs", job.num_replicas), ()


def _name(job: JobView) -> str | None:
    """Return the name of a job in its log, its application, or its id without a counter; None if the id has no letter.

    >>> from types import SimpleNamespace as Job
    >>> [_name(Job(job_name=None, application="rigid", job_id=each)) for each in ("train-17", "resnet18", "1234567")]
    ['train', 'resnet18', None]
    """
    if job.job_name is not None:
        return job.job_name
    if job.application and job.application not in _WITHOUT_PROFILE:
        return job.application
    name = _COUNTER.sub("", job.job_id)
    return name if any(letter.isalpha() for letter in name) else None
