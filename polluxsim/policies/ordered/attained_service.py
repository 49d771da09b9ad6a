"""Orders by attained service: LAS, the Gittins index, and both forms of Tiresias.

Attained service is the GPU time that a job has had. A scheduler that does not know durations gives GPUs first to the
jobs with the least of it, because most jobs are short. Sources: Gu et al., "Tiresias" (NSDI '19); Gittins (1979).

Invariants: whole jobs get the GPUs that they request, or none; the order changes only at events, and when a running job
completes a quantum or reaches a threshold, so that the policies need not decide at each round.

The trap: attained service is a sum of rounded times. A job that reaches a limit exactly may be a rounding error below
it, so `quanta` and `view.reaches` allow for this error.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, pairwise
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.instants import slack, sort_key, whole_number
from polluxsim.common.values import Range
from polluxsim.common.written import GpuSeconds, takes_settings
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Traits
from polluxsim.policies.tools.gangs import gangs_by, newcomers, schedule_gangs


@takes_settings("policy")
@dataclass(frozen=True)
class LeastAttainedService(Policy):
    """Gang-schedule whole jobs by attained service, preemptively.

    Parameters
    ----------
    quantum
        Jobs within one quantum count as equal and stay in order of submission [GPU s].

    Source: the continuous form of the queues of Tiresias (NSDI '19).
    """

    quantum: Annotated[GpuSeconds, Range(above=0)] = 3600.0
    traits: ClassVar[Traits] = Traits(slices_time=True, keeps_shapes=True, obeys_limits=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by quanta of attained service."""
        return gangs_by(
            view,
            lambda job: quanta(view, job, self.quantum),
            lambda job: {
                "attained_service": job.attained_service,
                "quanta": quanta(view, job, self.quantum),
                "quantum": self.quantum,
            },
            lasts_until=next_quantum(view, self.quantum),
        )


def quanta(view: ClusterView, job: JobView, quantum: float) -> int:
    """Return the number of whole quanta that a job has attained, with quanta of this service [GPU s]."""
    error = job.num_replicas * slack(view.time) / quantum
    return whole_number(job.attained_service / quantum, error)


def next_quantum(view: ClusterView, quantum: float) -> float:
    """Return a time before which no job can complete its quantum, also if it starts now [s]; ∞ without jobs."""
    least_time_left = inf
    for job in view.jobs:
        end_of_quantum = (quanta(view, job, quantum) + 1) * quantum
        time_left = (end_of_quantum - job.attained_service) / job.num_replicas
        least_time_left = min(least_time_left, time_left)
    return view.time + least_time_left


def gittins_index(services: np.ndarray, attained: float) -> float:
    """Return the largest probability of completion per GPU time, at some attained service [1/GPU s].

    The index is the largest P(S − a ≤ Δ | S > a) / E[min(S − a, Δ) | S > a] over all Δ. The index is 0 if no job needed
    more service. `services` are the total services of earlier jobs, ascending, shape (jobs,) [GPU s]; a is `attained`
    [GPU s].

    Source: Gittins (1979), as in Tiresias (NSDI '19), §3.3.
    """
    num_shorter = np.searchsorted(services, attained, side="right")
    remaining = services[num_shorter:] - attained
    if not len(remaining):
        return 0.0
    # The largest quotient is at a Δ after which a job completes: so many are done then, and so much is spent on all.
    num_done = np.arange(1, len(remaining) + 1)
    num_not_done = len(remaining) - num_done
    spent = np.cumsum(remaining) + num_not_done * remaining
    return float((num_done / spent).max())


@takes_settings("policy")
@dataclass
class Gittins(Policy):
    """Gang-schedule whole jobs by the Gittins index of their attained service, preemptively.

    The distribution is the GPU time of the jobs that have ended in this run after they had GPUs. Before the first end,
    jobs run in order of submission.

    Parameters
    ----------
    quantum
        Attained service is counted in whole quanta [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19), where it is Tiresias-G without its queues.
    """

    traits: ClassVar[Traits] = Traits(
        slices_time=True,
        keeps_shapes=True,
        obeys_limits=True,
        remembers="the service that ended jobs needed, as a distribution",
    )

    quantum: Annotated[GpuSeconds, Range(above=0)] = 3600.0
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    _services: list[float] = field(default_factory=list, init=False, repr=False)  # of ended jobs, rising [GPU s]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by falling index."""
        self._learn(view)
        services = np.array(self._services)

        # Many jobs have had equally many quanta.
        @cache
        def index_at(level: int) -> float:
            return gittins_index(services, level * self.quantum)

        def index(job: JobView) -> float:
            return index_at(quanta(view, job, self.quantum))

        return gangs_by(
            view,
            lambda job: -sort_key(index(job)),
            lambda job: self._describe(job, quanta(view, job, self.quantum), index(job)),
            lasts_until=next_quantum(view, self.quantum),
        )

    def _describe(self, job: JobView, level: int, index: float) -> dict[str, float]:
        """Return the numbers of the reason of a job with a number of whole quanta and an index [1/GPU s]."""
        return {
            "attained_service": job.attained_service,
            "quanta": level,
            "quantum": self.quantum,
            "gittins_index": index,
            "services": len(self._services),
            "longer_services": len(self._services) - bisect_right(self._services, level * self.quantum),
        }

    def _learn(self, view: ClusterView) -> None:
        """Record the service of the jobs that have ended."""
        self._jobs |= {job.job_id: job for job in newcomers(view, self._jobs)}
        for job_id in view.changes.ended:
            ended = self._jobs.pop(job_id, None)
            # A job that ended without service says nothing about the service that jobs need.
            if ended is not None and ended.attained_service > 0:
                insort(self._services, ended.attained_service)


@takes_settings("policy")
@dataclass
class Tiresias(Policy):
    """Discretised two-queue least attained service, preemptive, without promotion of starved jobs.

    Parameters
    ----------
    queue_threshold
        Attained service at which a job moves from the first queue to the end of the second; may be infinite [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19); threshold of 16 GPU-hours and packing from the artifact of Pollux
    (OSDI '21).
    """

    queue_threshold: Annotated[GpuSeconds, Range(above=0, most=inf)] = 16 * 3600.0
    traits: ClassVar[Traits] = Traits(slices_time=True, keeps_shapes=True, obeys_limits=True)
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # Time of the next demotion of a job with GPUs [s].
    _due: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _demoted: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by submission, then by demotion. A gang that fits may overtake."""
        self._demote(view)
        first_queue = (job for job in view.jobs if job.job_id not in self._demoted)
        order = chain(first_queue, self._demoted.values())
        decision = schedule_gangs(view, order, describe=self._describe)
        self._expect_demotions(view, decision)
        return replace(decision, valid_until=min(self._due.values(), default=inf))

    def _describe(self, job: JobView) -> dict[str, float]:
        """Return the numbers of the reason of a job."""
        return {
            "queue": 2 if job.job_id in self._demoted else 1,
            "attained_service": job.attained_service,
            "queue_threshold": self.queue_threshold,
        }

    def _demote(self, view: ClusterView) -> None:
        """Move jobs at the threshold to the second queue, and forget jobs that ended."""
        for job in newcomers(view, self._jobs):
            self._jobs[job.job_id] = job
            # A new job has attained service if another policy ran it before a fork.
            if self._is_at_threshold(view, job):
                self._demoted[job.job_id] = job
        for job_id in view.changes.ended:
            for by_job in (self._jobs, self._demoted, self._due):
                by_job.pop(job_id, None)
        due = [self._jobs[job_id] for job_id, time in self._due.items() if view.has_come(time)]
        for job in sorted(due, key=lambda job: job.submit_time):
            if self._is_at_threshold(view, job):
                self._demoted[job.job_id] = job
                del self._due[job.job_id]
            else:
                # The job was without GPUs for a time, for example after a failure.
                self._due[job.job_id] = self._due_time(view, job)

    def _expect_demotions(self, view: ClusterView, decision: Decision) -> None:
        """Record when the jobs with GPUs will be demoted."""
        if not decision.others_keep:
            self._due = {job_id: time for job_id, time in self._due.items() if job_id in decision.allocation}
        for job_id in decision.allocation:
            if job_id not in self._demoted and job_id not in self._due:
                self._due[job_id] = self._due_time(view, self._jobs[job_id])

    def _is_at_threshold(self, view: ClusterView, job: JobView) -> bool:
        """Return whether the service of a job reaches the threshold."""
        return view.reaches(job.attained_service, self.queue_threshold, job.num_replicas)

    def _due_time(self, view: ClusterView, job: JobView) -> float:
        """Return when a job reaches the threshold if it has its GPUs from now on [s]."""
        return view.time + (self.queue_threshold - job.attained_service) / job.num_replicas


@takes_settings("policy")
@dataclass
class TiresiasL(Policy):
    """Discretised least attained service in any number of queues. In a queue, running jobs stay ahead of waiting jobs.

    A preempted job therefore waits behind all running jobs of its queue. Starved jobs are not promoted.

    Parameters
    ----------
    queue_limits
        Attained service at which a job moves from each queue but the last to the end of the next, rising [GPU s].

    Source: Gu et al., "Tiresias" (NSDI '19), §3.3; three queues with these limits from the simulator of Muri
    (SIGCOMM '22).
    """

    queue_limits: Sequence[GpuSeconds] = (3250.0, 7200.0)
    traits: ClassVar[Traits] = Traits(slices_time=True, keeps_shapes=True, obeys_limits=True)
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # Index of the queue of each job. The order of the jobs is their precedence within a queue.
    _queue_of: dict[JobId, int] = field(default_factory=dict, init=False, repr=False)
    _entered: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)  # when it entered the queue [s]
    _limits: Sequence[float] = field(init=False, repr=False)  # limit of each queue; infinite for the last [GPU s]

    def __post_init__(self) -> None:
        # Between 0 and infinity, the limits are rising numbers above 0 if each is larger than the one before.
        bounds = [0, *self.queue_limits, inf]
        are_numbers = all(isinstance(bound, int | float) for bound in bounds)
        if not are_numbers or not all(lower < upper for lower, upper in pairwise(bounds)):
            raise InvalidConfigError(f"policy.queue_limits is {bounds[1:-1]}, must be rising numbers > 0")
        self._limits = bounds[1:]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs, queue by queue. A gang that fits may overtake."""
        self._update_jobs(view)
        # The job that reached the limit first comes first.
        for job in sorted(view.running, key=lambda job: sort_key(self._time_left(job), view.time)):
            self._demote(view, job)
        order = sorted(self._queue_of, key=self._queue_of.__getitem__)
        decision = schedule_gangs(view, map(self._jobs.__getitem__, order), describe=self._describe)
        placements: dict[JobId, Placement] = {}
        if decision.others_keep:
            placements = {job.job_id: job.placement for job in view.running}
        placements |= decision.allocation
        running = [job_id for job_id in self._queue_of if placements.get(job_id)]
        # Running jobs stay ahead of waiting jobs in their queues. A mapping keeps the place of the first key.
        self._queue_of = {job_id: self._queue_of[job_id] for job_id in running} | self._queue_of
        times_left = [self._time_left(self._jobs[job_id]) for job_id in running]
        return replace(decision, valid_until=view.time + min(times_left, default=inf))

    def _update_jobs(self, view: ClusterView) -> None:
        """Put new jobs at the end of the first queue, or of a later one after a fork, and forget jobs that ended."""
        for job in newcomers(view, self._jobs):
            self._jobs[job.job_id] = job
            self._queue_of[job.job_id] = self._queue_at(view, job)
            self._entered[job.job_id] = view.time if self._queue_of[job.job_id] else job.submit_time
        for job_id in view.changes.ended:
            for by_job in (self._jobs, self._queue_of, self._entered):
                by_job.pop(job_id, None)

    def _demote(self, view: ClusterView, job: JobView) -> None:
        """Move a job to the end of a later queue if it has reached the limit of its queue."""
        queue = self._queue_at(view, job)
        if queue > self._queue_of[job.job_id]:
            # Deleted first, so that the job comes last.
            del self._queue_of[job.job_id]
            self._queue_of[job.job_id] = queue
            self._entered[job.job_id] = view.time

    def _queue_at(self, view: ClusterView, job: JobView) -> int:
        """Return the index of the first queue whose limit a job has not reached."""
        service = job.attained_service
        queue = 0
        # The loop ends at the last queue, whose limit is infinite.
        while view.reaches(service, self._limits[queue], job.num_replicas):
            queue += 1
        return queue

    def _time_left(self, job: JobView) -> float:
        """Return the time that a job can run until it is demoted [s]; ∞ in the last queue."""
        limit = self._limits[self._queue_of[job.job_id]]
        return (limit - job.attained_service) / job.num_replicas

    def _describe(self, job: JobView) -> dict[str, float]:
        """Return the numbers of the reason of a job."""
        queue = self._queue_of[job.job_id]
        numbers = {"queue": queue + 1, "queues": len(self._limits), "attained_service": job.attained_service}
        # The sentence of a job in the last queue names no limit.
        if self._limits[queue] < inf:
            numbers["queue_threshold"] = self._limits[queue]
        numbers["queue_entered"] = self._entered[job.job_id]
        return numbers
