"""The classic orders of a queue: by submission, duration, remaining time, deadline or priority.

Each policy gives GPUs to whole jobs in its order. The policies that never preempt keep their running jobs first and use
a table of the waiting jobs; the others sort all jobs (`gangs_by`).

Invariants: a job gets all GPUs that it requests, or none; jobs that are equal in an order stay in order of submission,
also if their keys differ by rounding (`sort_key`).

The trap: `Srtf`, `Srsf` and `ShortestJobFirst` know the true durations, which no scheduler of a real cluster knows.
They are bounds for other policies.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.common.values import PositiveShare, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId
from polluxsim.models.known_duration import ELASTIC, RIGID
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import unless_jobs_differ
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Traits
from polluxsim.policies.tools.gangs import gangs_by, newcomers
from polluxsim.policies.tools.starting import start_gangs
from polluxsim.policies.tools.waiting_orders import FallingOrder, SubmissionOrder
from polluxsim.policies.tools.waiting_table import WaitingTable
from polluxsim.workloads.job import Job


@dataclass
class Fifo(Policy):
    """Start whole jobs in order of submission and let each run to its end.

    Parameters
    ----------
    backfill
        Whether a job that fits may start before an earlier job that does not fit.
    """

    backfill: bool = False
    traits: ClassVar[Traits] = Traits(never_preempts=True, keeps_shapes=True, obeys_limits=True)
    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, then start waiting jobs in order."""
        self._table.update(view)
        order = SubmissionOrder(self._table)

        def describe(job: JobView) -> dict[str, float]:
            return {"submitted": job.submit_time}

        return start_gangs(view, self._table, order, overtaking=self.backfill, describe=describe)


@dataclass(frozen=True)
class Srtf(Policy):
    """Run the jobs with the least true remaining time, on the GPUs and batch sizes that their users requested."""

    traits: ClassVar[Traits] = Traits(keeps_shapes=True, obeys_limits=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by remaining time. A gang that fits may overtake."""
        return gangs_by(
            view,
            lambda job: sort_key(remaining_time(job), view.time),
            lambda job: {"remaining_time": remaining_time(job)},
        )


def remaining_time(job: JobView) -> float:
    """Return the true time to completion at the user's batch size on the requested GPUs, on the fewest nodes [s]."""
    return job.oracle.time_left(job.num_replicas)


def remaining_service(job: JobView) -> float:
    """Return the true remaining time, multiplied by the requested GPUs [GPU s]."""
    return remaining_time(job) * job.num_replicas


@dataclass(frozen=True)
class Srsf(Policy):
    """Run the jobs with the least true remaining time × GPUs, on the GPUs and batch sizes that their users requested.

    Source: Gu et al., "Tiresias" (NSDI '19), whose least attained service approximates this policy.
    """

    traits: ClassVar[Traits] = Traits(keeps_shapes=True, obeys_limits=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by remaining service."""
        return gangs_by(
            view,
            lambda job: sort_key(remaining_service(job), view.time),
            lambda job: {"remaining_service": remaining_service(job)},
        )


@dataclass
class ShortestJobFirst(Policy):
    """Start whole jobs by their true duration and let each run to its end."""

    traits: ClassVar[Traits] = Traits(never_preempts=True, keeps_shapes=True, obeys_limits=True)
    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, and start waiting jobs in order of duration."""
        table = self._table
        table.update(view)
        # Remaining times depend on the sizes of the nodes that are up.
        if view.changes.nodes:
            table.forget_values()
        unknown = table.waits & np.isnan(table.value)
        for row in unknown.nonzero()[0].tolist():
            # Negative, because the order is by falling values.
            table.value[row] = -remaining_time(table.job(row))
        order = FallingOrder(table, lambda: table.value)
        keeps_running = {"keeps_running": 1.0} if view.running else {}

        def describe(job: JobView) -> dict[str, float]:
            return {**keeps_running, "remaining_time": remaining_time(job)}

        return start_gangs(view, table, order, describe=describe)


@takes_settings("policy")
@dataclass
class QuasiShortestService(Policy):
    """Start whole jobs in order of their expected GPU time, and let each run to its end.

    The expected run time of a job is a moving mean over ended jobs of the same user and name. Without ended jobs of
    this kind, the mean is over jobs of the same user and number of GPUs, then of the same number of GPUs, then over all
    jobs. The name of a job is its name in the log, or its application. A job without a name and an application uses its
    job id, without a counter as in `train-17`. An id without a letter does not count as a name. Before the first job
    has ended, all jobs have equal expected times.

    Parameters
    ----------
    forgetting
        Weight of the last job in a moving mean, in (0, 1].

    Source: the rolling estimate of Hu et al., "Characterization and Prediction of Deep Learning Workloads in
    Large-Scale GPU Datacenters" (SC '21), §4.2, without its boosted trees.
    """

    traits: ClassVar[Traits] = Traits(
        never_preempts=True,
        keeps_shapes=True,
        obeys_limits=True,
        remembers="the run times of ended jobs, as moving means of similar jobs",
    )

    forgetting: PositiveShare = 0.5
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # Mean run time of each group of jobs [s].
    _means: dict[Hashable, float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, and start waiting jobs in order of expected GPU time."""
        self._jobs |= {job.job_id: job for job in newcomers(view, self._jobs)}
        for job_id in view.changes.ended:
            ended = self._jobs.pop(job_id, None)
            if ended is not None:
                self._learn(ended)

        def service(job: JobView) -> float:
            return self._expected(job) * job.num_replicas

        return gangs_by(
            view,
            lambda job: sort_key(service(job), view.time),
            lambda job: {"expected_service": service(job), "learnt_jobs": len(self._means)},
            preemptive=False,
        )

    def _learn(self, job: JobView) -> None:
        """Update the means with the time for which a job held its GPUs."""
        time = job.attained_service / job.num_replicas
        # A job that ended without GPUs says nothing about run times.
        if time == 0:
            return
        for group in _groups_of(job):
            mean_before = self._means.get(group, time)
            self._means[group] = mean_before + self.forgetting * (time - mean_before)

    def _expected(self, job: JobView) -> float:
        """Return the expected run time of a job [s]; 0 if no job with GPUs has ended yet."""
        for group in _groups_of(job):
            if group in self._means:
                return self._means[group]
        return 0.0


def _groups_of(job: JobView) -> tuple[Hashable, ...]:
    """Return the groups of jobs that predict the run time of a job, the most similar group first."""
    all_jobs = ()
    by_size = (job.user, "GPUs", job.num_replicas), ("GPUs", job.num_replicas), all_jobs
    name = _job_name(job)
    if name is None:
        return by_size
    return (job.user, "name", name), *by_size


# Numbers at the end of a job id, each after a separator, as in `train-17`. The number in `resnet18` has no separator.
_COUNTER = re.compile(r"([\W_]+\d+)+$")

_WITHOUT_PROFILE = (RIGID, ELASTIC)  # applications of jobs without a profile, which do not say what a job trains


def _job_name(job: JobView) -> str | None:
    """Return the name of a job in its log, its application, or its id without a counter; None if the id has no letter.

    >>> from types import SimpleNamespace as Job
    >>> [_job_name(Job(job_name=None, application="rigid", job_id=each)) for each in ("run-17", "resnet18", "123")]
    ['run', 'resnet18', None]
    """
    if job.job_name is not None:
        return job.job_name
    if job.application and job.application not in _WITHOUT_PROFILE:
        return job.application
    name = _COUNTER.sub("", job.job_id)
    return name if any(letter.isalpha() for letter in name) else None


@dataclass(frozen=True)
class EarliestDeadline(Policy):
    """Gang-schedule whole jobs by deadline, preemptively; jobs without a deadline come last, in order of submission.

    Source: Liu and Layland (1973), with gangs in place of single processors.
    """

    traits: ClassVar[Traits] = Traits(keeps_shapes=True, obeys_limits=True)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if deadlines have no effect."""
        return unless_jobs_differ(jobs, "deadline", "its jobs start in order of submission")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by deadline."""
        return gangs_by(
            view,
            lambda job: sort_key(due(job)),
            lambda job: {"no_deadline": 1} if job.deadline is None else {"deadline": job.deadline},
        )


def due(job: JobView) -> float:
    """Return the deadline of a job, ∞ if it has none [s]."""
    return inf if job.deadline is None else job.deadline


@takes_settings("policy")
@dataclass
class Priority(Policy):
    """Gang-schedule whole jobs by the priorities of their users, larger first.

    Jobs with equal priorities do not preempt each other.

    Parameters
    ----------
    min_run_time
        Time that a job runs before it may be preempted [s].

    Source: a run time of two hours, as in the clusters of Kokolis et al., "Revisiting Reliability in Large-Scale
    Machine Learning Research Clusters" (HPCA '25).
    """

    traits: ClassVar[Traits] = Traits(keeps_shapes=True, obeys_limits=True)

    min_run_time: Annotated[Seconds, Range(least=0)] = 7200.0
    # Start time of each running job [s].
    _since: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if priorities have no effect."""
        return unless_jobs_differ(jobs, "priority", "its jobs start in order of submission, and none is preempted")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to jobs that must not be preempted, then by priority."""
        running = {job.job_id for job in view.running}
        self._since = {job_id: since for job_id, since in self._since.items() if job_id in running}
        protected = {name for name, since in self._since.items() if not view.has_come(since + self.min_run_time)}

        # False comes before True: protected jobs first, and running jobs before waiting jobs of equal priority.
        def rank(job: JobView) -> tuple[bool, float, bool]:
            return job.job_id not in protected, -job.priority, job.job_id not in running

        def describe(job: JobView) -> dict[str, float]:
            numbers = {"priority": job.priority, "min_run_time": self.min_run_time}
            if job.job_id in protected:
                numbers["protected_until"] = self._since[job.job_id] + self.min_run_time
            return numbers

        decision = gangs_by(view, rank, describe)
        valid_until = decision.valid_until
        for name in protected:
            valid_until = min(valid_until, self._since[name] + self.min_run_time)
        for name, placement in decision.allocation.items():
            if placement and name not in running:
                self._since[name] = view.time
                valid_until = min(valid_until, view.time + self.min_run_time)
        # At the end of its minimum, a job may be preempted.
        return replace(decision, valid_until=valid_until)
