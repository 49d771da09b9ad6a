"""The view of the simulator as the plain values of Slurm's schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, floor

from polluxsim.common.instants import ROUNDING
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.slurm.values import (
    Allocated,
    ClusterState,
    Held,
    Node,
    Part,
    PendingJob,
    Request,
    RunningJob,
    Start,
)
from polluxsim.policies.tools.held_by_limit import HeldByLimit

CPUS_PER_GPU = 16  # of a node; only ties between nodes depend on it
HIGHEST_PRIORITY = 4_294_901_759  # of the first job under priority/basic; each later one gets 1 less


def whole_second(time: float) -> int:
    """Return a time as slurmctld sees it [s]."""
    return floor(time + abs(time) * ROUNDING)


@dataclass
class JobsOfView:
    """The jobs that a policy has seen, as plain values.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.
    tasks_by_gpu
        Whether a job has a task for each GPU of a node (--ntasks-per-node), or one on each node.
    """

    overestimate: float
    tasks_by_gpu: bool
    _ends: dict[JobId, int] = field(default_factory=dict)  # expected ends of running jobs [s]
    _pending: dict[JobId, PendingJob] = field(default_factory=dict)
    _num_submitted: int = 0

    def take_note(self, view: ClusterView) -> None:
        """Forget jobs that ended, were evicted or were altered, and note jobs that ran before the policy saw them."""
        changes = view.changes
        for job_id in chain(changes.ended, changes.evicted, changes.altered):
            self._ends.pop(job_id, None)
            self._pending.pop(job_id, None)
        for job in view.running if changes.altered else changes.arrived:
            if job.placement and job.job_id not in self._ends:
                ran = job.attained_service / job.num_replicas
                left = max(ceil(self._limit(view, job) - ran), 0)
                self._ends[job.job_id] = whole_second(view.time) + left

    def start(self, start: Start, now: int) -> Placement:
        """Note a job that starts, and return its placement."""
        name = start.job.name
        self._ends[name] = now + start.job.limit
        self._pending.pop(name)
        return tuple((held.node, held.gpus) for held in sorted(start.held))

    def state(self, view: ClusterView, limits: UseLimits) -> ClusterState:
        """Return the cluster as plain values, with the pending jobs in order of submission."""
        nodes = [Node(gpus, CPUS_PER_GPU * gpus) for gpus in view.gpus_per_node]
        running = []
        for job in view.running:
            running.append(RunningJob.on(job.job_id, self._held(job.placement), self._ends[job.job_id]))
        pending = [self._pending_job(view, job) for job in view.waiting]
        return ClusterState(whole_second(view.time), nodes, running, pending, limits=limits)

    def _pending_job(self, view: ClusterView, job: JobView) -> PendingJob:
        """Return a waiting job as a plain value."""
        pending = self._pending.get(job.job_id)
        if pending is None:
            self._num_submitted += 1
            pending = PendingJob(
                name=job.job_id,
                request=self._request(view.shape_of(job)),
                limit=self._limit(view, job),
                priority=float(HIGHEST_PRIORITY - self._num_submitted),
                eligible=floor(job.submit_time),
                user=job.user or "",
                partition=job.queue or "",
            )
            self._pending[job.job_id] = pending
        return pending

    def _limit(self, view: ClusterView, job: JobView) -> int:
        """Return the limit of a job [s], rounded up to whole minutes as Slurm does."""
        limit = job.time_limit
        if limit is None:
            limit = self.overestimate * (view.delay_of(job) + job.oracle.time_left(job.num_replicas))
        return max(ceil(limit / 60 - ROUNDING), 1) * 60

    def _request(self, shape: Shape) -> Request:
        """Return what a job asks of nodes, from its shape."""
        if not shape.parts:
            task = Part(1, shape.gpus_per_task, 1)
            return Request(num_tasks=shape.gpus // shape.gpus_per_task, task=task)
        parts = []
        for gpus in dict.fromkeys(shape.parts):
            parts.append(Part(shape.parts.count(gpus), gpus, self._cpus(gpus)))
        return Request(tuple(parts), states_tasks=self.tasks_by_gpu)

    def _held(self, placement: Placement) -> Allocated:
        """Return what a job holds."""
        return tuple(Held(node, gpus, self._cpus(gpus)) for node, gpus in placement)

    def _cpus(self, gpus: int) -> int:
        """Return the CPUs of a job on a node: one for each task."""
        return gpus if self.tasks_by_gpu else 1


class UseLimits:
    """The limits of the simulator on users, qualities of service and queues, as limits of Slurm."""

    def __init__(self, view: ClusterView) -> None:
        self._held = HeldByLimit(view)
        self._held.add(view.running)
        self._jobs: Mapping[JobId, JobView] = {}
        if self._held:
            self._jobs = {job.job_id: job for job in view.waiting}

    def stops(self, job: PendingJob) -> bool:
        """Return whether a limit stops a pending job now."""
        return bool(self._held) and self._held.stop(self._jobs[job.name]) is not None

    def add(self, job: PendingJob) -> None:
        """Count a job that starts."""
        if self._held:
            self._held.add([self._jobs[job.name]])


def held_after(view: ClusterView, starts: Sequence[JobView]) -> HeldByLimit:
    """Return what users, qualities of service and queues hold after the starts of some jobs."""
    held = HeldByLimit(view)
    held.add([*view.running, *starts])
    return held
