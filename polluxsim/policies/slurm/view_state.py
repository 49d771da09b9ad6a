"""The view of the simulator as the plain values of Slurm's schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, floor, inf

from polluxsim.common.instants import ROUNDING
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.slurm.association_limits import AssociationLimits, Owner
from polluxsim.policies.slurm.consumption import Needs, needs
from polluxsim.policies.slurm.eligibility import REQUEUE_WAIT
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.values import (
    MUCH_MEMORY,
    NO_LIMITS,
    ClusterState,
    Held,
    Limits,
    Node,
    Part,
    PendingJob,
    Request,
    RunningJob,
    Start,
)
from polluxsim.policies.slurm.view_hosts import HostsOfView
from polluxsim.policies.tools.held_by_limit import HeldByLimit

HIGHEST_PRIORITY = 4_294_901_759  # of the first job under priority/basic; each later one gets 1 less


def whole_second(time: float) -> int:
    """Return a time as slurmctld sees it [s]."""
    return floor(time + abs(time) * ROUNDING)


@dataclass
class JobsOfView:
    """The jobs that a policy has seen, as plain values.

    Parameters
    ----------
    parameters
        Parameters of slurm.conf.
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.
    tasks_by_gpu
        Whether a job has a task for each GPU of a node (--ntasks-per-node), or one on each node.
    """

    parameters: Parameters
    overestimate: float
    tasks_by_gpu: bool
    weights: Mapping[int, int] = field(default_factory=dict)  # `Weight` of nodes by number; 1 for other nodes
    _ends: dict[JobId, int] = field(default_factory=dict)  # expected ends of running jobs [s]
    _pending: dict[JobId, PendingJob] = field(default_factory=dict)
    _num_submitted: int = 0
    # Running jobs as they waited, and the times since which they run [s].
    _begun: dict[JobId, PendingJob] = field(default_factory=dict)
    _starts: dict[JobId, int] = field(default_factory=dict)
    _partitions: dict[JobId, str] = field(default_factory=dict)  # in which running jobs started
    _requeued_until: dict[JobId, int] = field(default_factory=dict)  # when preempted jobs may start again [s]

    def take_note(self, view: ClusterView) -> None:
        """Forget jobs that ended, were evicted or were altered, and note jobs that ran before the policy saw them."""
        changes = view.changes
        for job_id in chain(changes.ended, changes.evicted, changes.altered):
            self._ends.pop(job_id, None)
            self._starts.pop(job_id, None)
            self._begun.pop(job_id, None)
            self._partitions.pop(job_id, None)
            self._pending.pop(job_id, None)
            self._requeued_until.pop(job_id, None)
        for job in view.running if changes.altered else changes.arrived:
            if job.placement and job.job_id not in self._ends:
                ran = job.attained_service / job.num_replicas
                left = max(ceil(self._limit(view, job) - ran), 0)
                self._ends[job.job_id] = whole_second(view.time) + left

    def start(self, start: Start, now: int) -> Placement:
        """Note a job that starts, and return its placement."""
        name = start.job.name
        self._ends[name] = now + start.job.limit
        self._starts[name] = now
        self._begun[name] = self._pending.pop(name)
        self._partitions[name] = start.job.partition
        return tuple((held.node, held.gpus) for held in sorted(start.held))

    def requeue(self, name: JobId, now: int) -> None:
        """Note a job that is preempted. It keeps its place in the queue, and waits before it may start again."""
        self._ends.pop(name)
        self._requeued_until[name] = now + REQUEUE_WAIT
        if name in self._begun:
            self._pending[name] = self._begun.pop(name)._replace(eligible=now + REQUEUE_WAIT)

    def next_requeued(self) -> float:
        """Return when a preempted job may start again [s]; ∞ if none waits for that."""
        return min(self._requeued_until.values(), default=inf)

    @property
    def begin_times(self) -> dict[JobId, int]:
        """Return the times from which preempted jobs may start again [s]."""
        return dict(self._requeued_until)

    def forget_requeued(self, now: int) -> bool:
        """Forget the preempted jobs that may start again now, and return whether there are some."""
        eligible = [name for name, time in self._requeued_until.items() if time <= now]
        for name in eligible:
            del self._requeued_until[name]
        return bool(eligible)

    def state(self, view: ClusterView) -> ClusterState:
        """Return the cluster as plain values, with the pending jobs in order of submission."""
        hosts = HostsOfView(view, self.parameters)
        nodes = [self._node(view, hosts, number) for number in range(len(view.gpus_per_node))]
        running = []
        for job in view.running:
            held = []
            for node, gpus in job.placement:
                needed = self._needs(hosts, job, gpus)
                part = Part(1, gpus, needed.cpus, needed.memory)
                held.append(Held(node, gpus, needed.cpus, part.memory_on(nodes[node])))
            runs = RunningJob.on(job.job_id, tuple(held), self._ends[job.job_id])
            start = self._starts.get(job.job_id, 0)
            partition = self._partitions.get(job.job_id, job.queue or "")
            running.append(runs._replace(start=start, partition=partition, qos=job.qos or ""))
        now = whole_second(view.time)
        pending = []
        for job in view.waiting:
            if job.job_id not in self._requeued_until:
                pending.append(self._pending_job(view, hosts, job))
        limits = UseLimits(view, self._of_associations(view, running))
        preempts = {name: qos.preempts for name, qos in self.parameters.qualities.items()}
        return ClusterState(now, nodes, running, pending, limits=limits, preempts=preempts)

    def _of_associations(self, view: ClusterView, running: Sequence[RunningJob]) -> Limits:
        """Return the limits of accounts and QOS, and what running jobs hold of them."""
        parameters = self.parameters
        if not (parameters.accounts or parameters.qos):
            return NO_LIMITS
        limits = AssociationLimits(parameters.tree, parameters.qualities)
        for job, runs in zip(view.running, running, strict=True):
            user = job.user or ""
            limits.count(Owner(user, parameters.tree.of_user(user), job.qos or ""), runs.held)
        return limits

    def _node(self, view: ClusterView, hosts: HostsOfView, number: int) -> Node:
        """Return a node as a plain value."""
        gpu_type = view.node_types[number].name if view.node_types else ""
        memory = hosts.memory(number) if view.hosts and self.parameters.limits_memory else MUCH_MEMORY
        weight = self.weights.get(number, 1)
        return Node(view.gpus_per_node[number], hosts.cpus(number), weight, gpu_type, memory=memory)

    def _pending_job(self, view: ClusterView, hosts: HostsOfView, job: JobView) -> PendingJob:
        """Return a waiting job as a plain value."""
        pending = self._pending.get(job.job_id)
        if pending is None:
            self._num_submitted += 1
            pending = PendingJob(
                name=job.job_id,
                request=self._request(view, hosts, job),
                limit=self._limit(view, job),
                priority=float(HIGHEST_PRIORITY - self._num_submitted),
                eligible=floor(job.submit_time),
                user=job.user or "",
                partition=job.queue or "",
                qos=job.qos or "",
                account=self.parameters.tree.of_user(job.user or ""),
            )
            self._pending[job.job_id] = pending
        return pending

    def _limit(self, view: ClusterView, job: JobView) -> int:
        """Return the limit of a job [s], rounded up to whole minutes as Slurm does."""
        limit = job.time_limit
        if limit is None:
            limit = self.overestimate * (view.delay_of(job) + _time_left(view, job))
        return max(ceil(limit / 60 - ROUNDING), 1) * 60

    def _request(self, view: ClusterView, hosts: HostsOfView, job: JobView) -> Request:
        """Return what a job asks of nodes.

        A job may ask for one GPU type. A job that allows several types gets nodes of one of them, because a job of the
        simulator runs on one type at a time. A job on one node that allows all types states none, as in Slurm.
        """
        names = usable_types(view, job)
        shapes = [view.shape_of(job, name) for name in names]
        requests = [self._of_shape(hosts, job, shape) for shape in shapes]
        if len(view.types) == 1:
            return requests[0]
        is_on_one_node = all(len(shape.parts) == 1 for shape in shapes)
        if is_on_one_node and len(set(shapes)) == 1 and len(names) == len(view.types):
            return requests[0]
        requests = [request._replace(gpu_type=name) for name, request in zip(names, requests, strict=True)]
        return requests[0] if len(requests) == 1 else Request(alternatives=tuple(requests))

    def _of_shape(self, hosts: HostsOfView, job: JobView, shape: Shape) -> Request:
        """Return what a job of a shape asks of nodes."""
        if not shape.parts:
            needed = self._needs(hosts, job, shape.gpus_per_task)
            task = Part(1, shape.gpus_per_task, needed.cpus, needed.memory)
            return Request(num_tasks=shape.gpus // shape.gpus_per_task, task=task)
        parts = []
        for gpus in dict.fromkeys(shape.parts):
            needed = self._needs(hosts, job, gpus)
            parts.append(Part(shape.parts.count(gpus), gpus, needed.cpus, needed.memory))
        return Request(tuple(parts), states_tasks=self.tasks_by_gpu)

    def _needs(self, hosts: HostsOfView, job: JobView, gpus: int) -> Needs:
        """Return the needs of a job with some GPUs on a node: one task for each of these GPUs, or one for the node."""
        num_tasks = gpus if self.tasks_by_gpu else 1
        return needs(gpus, num_tasks, hosts.stated(job, gpus), self.parameters)


def usable_types(view: ClusterView, job: JobView) -> list[str]:
    """Return the GPU types that a job can use, by name, in the order of their first nodes."""
    if len(view.types) == 1:
        return list(view.types)
    return [name for name in view.types if name in job.speeds and name in (job.gpu_types or view.types)]


def _time_left(view: ClusterView, job: JobView) -> float:
    """Return the longest time to completion among the GPU types that a job can use [s]."""
    if len(view.types) == 1:
        return job.oracle.time_left(job.num_replicas)
    return max(job.oracle.on(name).time_left(job.num_replicas) for name in usable_types(view, job))


class UseLimits:
    """All limits on the jobs that start: those of the settings of the run, and those of accounts and QOS in Slurm.

    Parameters
    ----------
    view
        The view of the cluster.
    of_associations
        Limits of accounts and QOS, which have counted the running jobs.
    """

    def __init__(self, view: ClusterView, of_associations: Limits = NO_LIMITS) -> None:
        self._of_associations = of_associations
        self._held = HeldByLimit(view)
        self._held.add(view.running)
        self._jobs: Mapping[JobId, JobView] = {}
        if self._held:
            self._jobs = {job.job_id: job for job in view.waiting}

    def stops(self, job: PendingJob) -> bool:
        """Return whether a limit stops a pending job now."""
        if self._of_associations.stops(job):
            return True
        return bool(self._held) and self._held.stop(self._jobs[job.name]) is not None

    def add(self, job: PendingJob) -> None:
        """Count a job that starts."""
        self._of_associations.add(job)
        if self._held:
            self._held.add([self._jobs[job.name]])


def held_after(view: ClusterView, starts: Sequence[JobView]) -> HeldByLimit:
    """Return what users, qualities of service and queues hold after the starts of some jobs."""
    held = HeldByLimit(view)
    held.add([*view.running, *starts])
    return held
