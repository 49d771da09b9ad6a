"""The plain values of a decision: nodes, requests, running and pending jobs, and the state of a cluster.

Times are whole seconds since the epoch, because slurmctld keeps times as whole seconds and two rules depend on their
remainder (the edge of `will_run`, and `bf_resolution`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

NodeSet: TypeAlias = int
"""A set of nodes. Bit i stands for node i in the order of slurm.conf."""

JobName: TypeAlias = str

MUCH_MEMORY = 10**12  # memory of a node if memory does not limit jobs [MB]
ALL_MEMORY = -1  # memory of a job that needs all memory of its nodes


class Node(NamedTuple):
    """A node as slurm.conf and gres.conf state it."""

    gpus: int
    cpus: int
    weight: int = 1  # `Weight`: nodes with a lower weight are allocated first
    gpu_type: str = ""  # type in `Gres=gpu:TYPE:N`; empty without a type
    features: frozenset[str] = frozenset()  # `Feature`
    memory: int = MUCH_MEMORY  # `RealMemory` [MB]


class NodePart(NamedTuple):
    """A number of nodes on which a job needs equal amounts."""

    nodes: int
    gpus: int  # GPUs on each of these nodes
    cpus: int  # CPUs on each of these nodes
    memory: int = 0  # on each of these nodes [MB]; ALL_MEMORY for all of it

    def memory_on(self, node: Node) -> int:
        """Return the memory that the job needs on a node [MB]."""
        return node.memory if self.memory == ALL_MEMORY else self.memory


class Request(NamedTuple):
    """What a job asks of nodes.

    Without `task`, the job needs all of its `parts`, each on other nodes. With `task`, it consists of `num_tasks`
    tasks, which may share nodes. With `alternatives`, the job needs one of them, and the other fields are unused.
    """

    parts: tuple[NodePart, ...] = ()
    # Whether a node offers only the CPUs that the tasks need, as with --ntasks-per-node.
    states_tasks: bool = False
    num_tasks: int = 0
    task: NodePart | None = None  # what a task needs on one node
    gpu_type: str = ""  # type in `--gres=gpu:TYPE:N`; empty for all types
    features: frozenset[str] = frozenset()  # `--constraint`: the node needs all of them
    alternatives: tuple[Request, ...] = ()
    exclusive: bool = False  # `--exclusive`: no other job may be on its nodes

    @property
    def gpus(self) -> int:
        """Return the GPUs of the job."""
        # All alternatives have as many GPUs, on other nodes.
        if self.alternatives:
            return self.alternatives[0].gpus
        if self.task is not None:
            return self.num_tasks * self.task.gpus
        return sum(part.nodes * part.gpus for part in self.parts)

    @property
    def cpus(self) -> int:
        """Return the CPUs of the job."""
        if self.alternatives:
            return self.alternatives[0].cpus
        if self.task is not None:
            return self.num_tasks * self.task.cpus
        return sum(part.nodes * part.cpus for part in self.parts)

    @property
    def nodes(self) -> int:
        """Return the fewest nodes that the job asks for."""
        if self.alternatives:
            return min(alternative.nodes for alternative in self.alternatives)
        return sum(part.nodes for part in self.parts) or 1


class Held(NamedTuple):
    """What a job holds on one node."""

    node: int
    gpus: int
    cpus: int
    memory: int = 0  # [MB]


Allocated: TypeAlias = tuple[Held, ...]


class PendingJob(NamedTuple):
    """A job that waits."""

    name: JobName
    request: Request
    limit: int  # time limit [s]
    priority: float = 0.0
    eligible: int = 0  # time since which the job may start [s]
    user: str = ""
    partition: str = ""
    reservation: str = ""  # `--reservation`; empty for none
    qos: str = ""
    account: str = ""


class RunningJob(NamedTuple):
    """A job that runs, or that slurmctld believes to run."""

    name: JobName
    held: Allocated
    end: int  # start + limit [s], not the true end
    nodes: NodeSet  # of `held`
    # What preemption and limits depend on.
    start: int = 0  # [s]
    partition: str = ""
    qos: str = ""
    priority: float = 0.0

    @classmethod
    def on(cls, name: JobName, held: Allocated, end: int) -> RunningJob:
        """Return a running job."""
        return cls(name, held, end, node_set(on_node.node for on_node in held))

    @classmethod
    def begun(cls, start: SlurmStart, now: int) -> RunningJob:
        """Return a job that starts now [s]."""
        job = start.job
        running = cls.on(job.name, start.held, now + job.limit)
        return running._replace(start=now, partition=job.partition, qos=job.qos, priority=job.priority)


class SlurmPartition(NamedTuple):
    """A partition of slurm.conf."""

    nodes: NodeSet
    tier: int = 1  # `PriorityTier`


class SlurmReservation(NamedTuple):
    """A reservation of whole nodes."""

    name: str
    nodes: NodeSet
    start: int  # [s]
    end: int  # [s]


class LimitStop(NamedTuple):
    """A limit of an account or a QOS that stops a job now."""

    name: str  # as sacctmgr names it, like GrpTRES
    resource: str  # gpu, cpu, mem [MB], node or jobs
    whose: str  # whose jobs count together, in words
    most: int
    held: int  # what these jobs hold
    needed: int  # what the job needs


class SlurmLimits(Protocol):
    """Limits of associations and QOS on what jobs hold at once."""

    def stops(self, job: PendingJob) -> bool:
        """Return whether a limit stops a pending job now."""

    def stop(self, job: PendingJob) -> LimitStop | None:
        """Return the first limit of an account or a QOS that stops a pending job now; None if none does."""

    def add(self, job: PendingJob) -> None:
        """Count a job that starts."""


class NoLimits:
    """No limits."""

    def stops(self, job: PendingJob) -> bool:
        """Return False: no limit stops the job."""
        return False

    def stop(self, job: PendingJob) -> LimitStop | None:
        """Return None: no limit stops the job."""
        return None

    def add(self, job: PendingJob) -> None:
        """Count nothing."""


NO_LIMITS = NoLimits()


class SlurmStart(NamedTuple):
    """A job that starts now."""

    job: PendingJob
    held: Allocated
    preempts: tuple[JobName, ...] = ()  # running jobs that lose their nodes for it


class FreeNodes:
    """The free GPUs, CPUs and memory [MB] of each node."""

    __slots__ = ("cpus", "gpus", "memory")

    def __init__(self, gpus: Sequence[int], cpus: Sequence[int], memory: Sequence[int] | None = None) -> None:
        self.gpus = list(gpus)
        self.cpus = list(cpus)
        self.memory = [MUCH_MEMORY] * len(self.gpus) if memory is None else list(memory)

    def copy(self) -> FreeNodes:
        """Return a copy."""
        return FreeNodes(self.gpus, self.cpus, self.memory)

    def take(self, allocated: Allocated) -> None:
        """Take what a job holds."""
        for node, gpus, cpus, memory in allocated:
            self.gpus[node] -= gpus
            self.cpus[node] -= cpus
            self.memory[node] -= memory

    def give_back(self, allocated: Allocated) -> None:
        """Give back what a job holds."""
        for node, gpus, cpus, memory in allocated:
            self.gpus[node] += gpus
            self.cpus[node] += cpus
            self.memory[node] += memory


@dataclass(frozen=True)
class SchedulerState:
    """What slurmctld knows when a scheduler runs."""

    now: int  # [s]
    nodes: Sequence[Node]
    running: Sequence[RunningJob]
    pending: Sequence[PendingJob]  # in the order of the queue
    completing: NodeSet = 0  # nodes on which a job ended whose epilog has not ended
    down: NodeSet = 0  # nodes that are down, or drain: they accept no job
    partitions: Mapping[str, SlurmPartition] = field(
        default_factory=dict
    )  # by name; empty for one partition of all nodes
    limits: SlurmLimits = NO_LIMITS
    reservations: Sequence[SlurmReservation] = ()
    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)  # for each QOS, those that it may preempt

    @property
    def up(self) -> NodeSet:
        """Return the nodes that are up."""
        return ((1 << len(self.nodes)) - 1) & ~self.down

    def nodes_of(self, job: PendingJob) -> NodeSet:
        """Return the nodes of the partition of a job that are up."""
        if not self.partitions:
            return self.up
        return self.partitions[job.partition].nodes & self.up

    def tier_of(self, partition: str) -> int:
        """Return the `PriorityTier` of a partition."""
        return self.partitions[partition].tier if partition in self.partitions else 1

    def free(self) -> FreeNodes:
        """Return what no running job holds."""
        free = FreeNodes(
            [node.gpus for node in self.nodes],
            [node.cpus for node in self.nodes],
            [node.memory for node in self.nodes],
        )
        for job in self.running:
            free.take(job.held)
        return free

    def after(self, starts: Sequence[SlurmStart]) -> SchedulerState:
        """Return the state after the starts of jobs."""
        if not starts:
            return self
        names = {start.job.name for start in starts}
        # A preempted job is not in this queue, even if it may start again later.
        preempted = {name for start in starts for name in start.preempts}
        running = [job for job in self.running if job.name not in preempted]
        running += [RunningJob.begun(start, self.now) for start in starts]
        pending = [job for job in self.pending if job.name not in names]
        return replace(self, running=running, pending=pending)


def node_set(numbers: Iterable[int]) -> NodeSet:
    """Return the set of nodes with the given numbers.

    >>> bin(node_set([0, 2]))
    '0b101'
    """
    nodes = 0
    for number in numbers:
        nodes |= 1 << number
    return nodes


def numbers_of(nodes: NodeSet) -> Iterator[int]:
    """Yield the numbers of the nodes of a set, in rising order.

    >>> list(numbers_of(0b101))
    [0, 2]
    """
    # A step for each node of the set, and not for each of the cluster.
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
