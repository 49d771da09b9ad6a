"""The view of the simulator as the plain values of Slurm's schedulers.

A view tells neither time limits of all jobs nor their expected ends, which Slurm plans with. `JobsOfView` computes them
when a job arrives or starts, and keeps them until it ends. The limits of the simulator on users and queues stop jobs as
the limits of accounts and QOS do (`LimitsOfView`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, floor, inf

from polluxsim.common.instants import ROUNDING, has_come
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.slurm.association_limits import AssociationLimits, JobOwner
from polluxsim.policies.slurm.consumption import Needs, needs
from polluxsim.policies.slurm.eligibility import REQUEUE_WAIT
from polluxsim.policies.slurm.parameters import CANCEL, SUSPEND, Parameters
from polluxsim.policies.slurm.stated_reservations import NO_RESERVATIONS, StatedReservations
from polluxsim.policies.slurm.suspended import SuspendedJobs
from polluxsim.policies.slurm.values import (
    MUCH_MEMORY,
    NO_LIMITS,
    Allocated,
    Held,
    LimitStop,
    Node,
    NodePart,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    SlurmLimits,
    SlurmStart,
    numbers_of,
)
from polluxsim.policies.slurm.view_hosts import HostsOfView
from polluxsim.policies.tools.held_by_limit import HeldByLimit

HIGHEST_PRIORITY = 4_294_901_759  # of the first job under priority/basic; each later one gets 1 less


def whole_second(time: float) -> int:
    """Return a time as slurmctld sees it [s]: rounded down, but not below the whole second that it nearly reaches."""
    return floor(time + abs(time) * ROUNDING)


def placement_of(allocated: Allocated) -> Placement:
    """Return what a job holds as a placement."""
    return tuple((held.node, held.gpus) for held in sorted(allocated))


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
    suspended: SuspendedJobs = field(default_factory=SuspendedJobs)
    resumed: dict[JobId, RunningJob] = field(default_factory=dict)  # in this decision
    reservations: StatedReservations = NO_RESERVATIONS
    begin: Mapping[JobId, int] = field(default_factory=dict)  # begin times that jobs state [s]
    _last_time: float = 0.0  # of the last decision [s]
    cancelled: set[JobId] = field(default_factory=set)  # preempted jobs that end at the next decision

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
            self.suspended.forget(job_id)
            self.cancelled.discard(job_id)
        self.resumed.clear()
        for node, gpus in enumerate(view.gpus_per_node):
            if not gpus:
                self._requeue_suspended(node)
        now = whole_second(view.time)
        for job in changes.arrived:
            if self.begin.get(job.job_id, 0) > now:
                self._requeued_until[job.job_id] = self.begin[job.job_id]
        # A fork may alter any job. Otherwise, a job whose start the policy has not seen arrives with GPUs.
        for job in view.running if changes.altered else changes.arrived:
            if job.placement and job.job_id not in self._ends:
                ran = job.attained_service / job.num_replicas
                left = max(ceil(self._limit(view, job) - ran), 0)
                self._ends[job.job_id] = whole_second(view.time) + left

    def start(self, start: SlurmStart, now: int) -> Placement:
        """Note a job that starts, and return its placement."""
        name = start.job.name
        self._ends[name] = now + start.job.limit
        self._starts[name] = now
        self._begun[name] = self._pending.pop(name)
        self._partitions[name] = start.job.partition
        return placement_of(start.held)

    def resume(self, view: ClusterView) -> None:
        """Note the suspended jobs whose nodes have room for them now, unless a limit stops them."""
        if not self.suspended:
            return
        waiting = {job.job_id: job for job in view.waiting}
        held = held_after(view, ())
        now = whole_second(view.time)
        for job in self.suspended.that_fit(self._running_state(view).free()):
            if held.stop(waiting[job.name]) is not None:
                continue
            held.add([waiting[job.name]])
            self.resumed[job.name] = self.suspended.resume(job.name, now)
            self._ends[job.name] = self.resumed[job.name].end

    def _requeue_suspended(self, node: int) -> None:
        """Put the jobs that are suspended on a node without GPUs, which is down, back into the queue."""
        for name in self.suspended.on(node):
            self.suspended.forget(name)
            if name in self._begun:
                self._pending[name] = self._begun.pop(name)

    def preempt(self, view: ClusterView, name: JobId) -> None:
        """Note a running or suspended job that is preempted, as `PreemptMode` says."""
        now = whole_second(view.time)
        if self.parameters.preempt_mode == SUSPEND:
            self._suspend(view, name, now)
        elif self.parameters.preempt_mode == CANCEL:
            self._ends.pop(name)
            self.cancelled.add(name)
        else:
            self._requeue(name, now)

    def _suspend(self, view: ClusterView, name: JobId, now: int) -> None:
        """Note a job that is suspended, or stays suspended."""
        if name in self.suspended:
            return
        job = self.resumed.pop(name, None)
        if job is None:
            (job,) = (running for running in self._running_state(view).running if running.name == name)
        self.suspended.suspend(job, now)
        self._ends.pop(name)

    def _requeue(self, name: JobId, now: int) -> None:
        """Note a job that is requeued. It keeps its place in the queue, and waits before it may start again."""
        self._ends.pop(name)
        self._requeued_until[name] = now + REQUEUE_WAIT
        if name in self._begun:
            self._pending[name] = self._begun.pop(name)._replace(eligible=now + REQUEUE_WAIT)

    def passes_reservation(self, now: float) -> bool:
        """Return whether a reservation began or ended since the last decision, and note the time of this one [s]."""
        has_passed = any(self._last_time < time and has_come(time, now) for time in self.reservations.times())
        self._last_time = now
        return has_passed

    def next_reservation(self, now: float) -> float:
        """Return when a reservation begins or ends next [s]; ∞ if none does."""
        return min((time for time in self.reservations.times() if not has_come(time, now)), default=inf)

    def reserved_nodes(self) -> dict[str, bool]:
        """Return the nodes with a reservation, by number."""
        nodes = 0
        for reservation in self.reservations.all:
            nodes |= reservation.nodes
        return {str(number): True for number in numbers_of(nodes)}

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

    def _running_state(self, view: ClusterView) -> SchedulerState:
        """Return the nodes and the jobs that hold GPUs before this decision as plain values."""
        hosts = HostsOfView(view, self.parameters)
        nodes = [self._node(view, hosts, number) for number in range(len(view.gpus_per_node))]
        running = []
        for job in view.running:
            running.append(self._running_job(hosts, job, nodes))
        return SchedulerState(whole_second(view.time), nodes, running, ())

    def state(self, view: ClusterView) -> SchedulerState:
        """Return the cluster as plain values, with the pending jobs in order of submission.

        Jobs that resume in this decision run. Suspended jobs hold what is free of their GPUs.
        """
        state = self._running_state(view)
        hosts = HostsOfView(view, self.parameters)
        pending = []
        for job in view.waiting:
            if job.job_id in self.begin:
                # A job that may start later has its place in the queue from its submission on.
                self._pending_job(view, hosts, job)
            if not self._is_absent(job.job_id):
                pending.append(self._pending_job(view, hosts, job))
        resumed = [job for job in view.waiting if job.job_id in self.resumed]
        limits = LimitsOfView(view, self._of_associations(view, state.running), resumed)
        preempts = {name: qos.preempts for name, qos in self.parameters.qualities.items()}
        state = replace(state, running=[*state.running, *self.resumed.values()])
        if self.suspended:
            # First, because a job that preempts others takes the GPUs of suspended jobs before those of running ones.
            state = replace(state, running=[*self.suspended.holding(state.free(), state.now), *state.running])
        reservations = [reservation for reservation in self.reservations.all if reservation.end > state.now]
        return replace(state, pending=pending, limits=limits, preempts=preempts, reservations=reservations)

    def _is_absent(self, name: JobId) -> bool:
        """Return whether a waiting job takes no part, because it was preempted."""
        return name in self._requeued_until or name in self.suspended or name in self.resumed or name in self.cancelled

    def _running_job(self, hosts: HostsOfView, job: JobView, nodes: Sequence[Node]) -> RunningJob:
        """Return a running job as a plain value."""
        held = []
        for node, gpus in job.placement:
            needed = self._needs(hosts, job, gpus)
            part = NodePart(1, gpus, needed.cpus, needed.memory)
            held.append(Held(node, gpus, needed.cpus, part.memory_on(nodes[node])))
        runs = RunningJob.on(job.job_id, tuple(held), self._ends[job.job_id])
        # The policy has not seen the start of a job that another policy placed before a fork.
        start = self._starts.get(job.job_id, 0)
        partition = self._partitions.get(job.job_id, job.queue or "")
        return runs._replace(start=start, partition=partition, qos=job.qos or "")

    def _of_associations(self, view: ClusterView, running: Sequence[RunningJob]) -> SlurmLimits:
        """Return the limits of accounts and QOS, and what running jobs hold of them."""
        parameters = self.parameters
        if not (parameters.accounts or parameters.qos):
            return NO_LIMITS
        limits = AssociationLimits(parameters.tree, parameters.qualities)
        # A suspended job counts like a running one.
        held = {runs.name: runs.held for runs in (*running, *self.resumed.values(), *self.suspended.all())}
        for job in view.jobs:
            if job.job_id in held:
                user = job.user or ""
                owner = JobOwner(user, parameters.tree.of_user(user), job.qos or "")
                limits.count(owner, held[job.job_id])
        return limits

    def _node(self, view: ClusterView, hosts: HostsOfView, number: int) -> Node:
        """Return a node as a plain value."""
        gpu_type = view.node_types[number].name if view.node_types else ""
        memory = hosts.memory(number) if view.hosts and self.parameters.limits_memory else MUCH_MEMORY
        weight = self.weights.get(number, 1)
        return Node(view.gpus_per_node[number], hosts.cpus(number), weight, gpu_type, memory=memory)

    def _pending_job(self, view: ClusterView, hosts: HostsOfView, job: JobView) -> PendingJob:
        """Return a waiting job as a plain value, which is made once: its limit and priority stay while it waits."""
        pending = self._pending.get(job.job_id)
        if pending is None:
            self._num_submitted += 1
            pending = PendingJob(
                name=job.job_id,
                request=self._request(view, hosts, job),
                limit=self._limit(view, job),
                priority=float(HIGHEST_PRIORITY - self._num_submitted),
                eligible=max(floor(job.submit_time), self.begin.get(job.job_id, 0)),
                user=job.user or "",
                partition=job.queue or "",
                reservation=self.reservations.of_jobs.get(job.job_id, ""),
                qos=job.qos or "",
                account=self.parameters.tree.of_user(job.user or ""),
            )
            self._pending[job.job_id] = pending
        return pending

    def _limit(self, view: ClusterView, job: JobView) -> int:
        """Return the limit of a job [s], rounded up to whole minutes as Slurm does; at least one minute."""
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
            task = NodePart(1, shape.gpus_per_task, needed.cpus, needed.memory)
            return Request(num_tasks=shape.gpus // shape.gpus_per_task, task=task)
        parts = []
        for gpus in dict.fromkeys(shape.parts):
            needed = self._needs(hosts, job, gpus)
            parts.append(NodePart(shape.parts.count(gpus), gpus, needed.cpus, needed.memory))
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


class LimitsOfView:
    """All limits on the jobs that start: those of the settings of the run, and those of accounts and QOS in Slurm.

    Parameters
    ----------
    view
        The view of the cluster.
    of_associations
        Limits of accounts and QOS, which have counted the running jobs.
    resumed
        Jobs that resume in this decision.
    """

    def __init__(
        self, view: ClusterView, of_associations: SlurmLimits = NO_LIMITS, resumed: Sequence[JobView] = ()
    ) -> None:
        self._of_associations = of_associations
        self._held = held_after(view, resumed)
        self._jobs: Mapping[JobId, JobView] = {}
        if self._held:
            self._jobs = {job.job_id: job for job in view.waiting}

    def stops(self, job: PendingJob) -> bool:
        """Return whether a limit stops a pending job now."""
        if self._of_associations.stops(job):
            return True
        return bool(self._held) and self._held.stop(self._jobs[job.name]) is not None

    def stop(self, job: PendingJob) -> LimitStop | None:
        """Return the first limit of an account or a QOS that stops a pending job now; None if none does."""
        return self._of_associations.stop(job)

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
