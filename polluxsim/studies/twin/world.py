"""The state of a live cluster as the arrays of the kernels, and as the values of `polluxsim.policies.slurm`.

The kernels know nodes, partitions, kinds and users by numbers. A `TwinWorld` gives out these numbers as jobs come, so
`sets_of_kinds` must be called after the rows of all jobs are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polluxsim.logs.live.jobs import StateJob
from polluxsim.logs.live.state import SlurmState
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.priority import in_order
from polluxsim.policies.slurm.values import (
    Held,
    Node,
    NodePart,
    NodeSet,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    SlurmPartition,
    node_set,
    numbers_of,
)
from polluxsim.studies.twin.asks import Ask, NodeNeeds, ask_of
from polluxsim.studies.twin.fitting_kernels import (
    BITS,
    CPUS,
    ELIGIBLE,
    GPUS,
    KIND,
    LIMIT,
    NODES,
    NUM_COLUMNS,
    PARAMETERS,
    PARTITION,
    PRIORITY,
    STATES_TASKS,
    SUBMIT,
    TIER,
    USER,
)
from polluxsim.studies.twin.later_priorities import PriorityOf, later_priority

COMPLETION = 5  # assumed time until the completing nodes of a state take jobs [s]
ALL = ""  # name of the partition of a job that names none

Table = NDArray[np.int64]


@dataclass
class TwinWorld:
    """A cluster with its jobs, ready for the kernels."""

    state: SlurmState
    parameters: Parameters
    nodes: tuple[Node, ...] = field(init=False)
    running: list[StateJob] = field(init=False)  # without jobs whose nodes are unknown
    pending: list[StateJob] = field(init=False)  # in the order of their ids
    kept_out: dict[str, str] = field(init=False)  # why pending jobs have no estimate
    up: NodeSet = field(init=False)  # nodes in use, which take jobs
    _numbers: dict[str, int] = field(init=False)  # of the nodes, by name
    _tiers: Mapping[str, int] = field(init=False)
    # Numbers in the order in which the kernels need them. The partitions of a job count as one partition.
    _partitions: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    _kinds: dict[NodeNeeds, int] = field(default_factory=dict, init=False)
    _users: dict[str, int] = field(default_factory=dict, init=False)
    # Answers that many jobs have in common.
    _suitable: dict[NodeNeeds, NodeSet] = field(default_factory=dict, init=False)
    _runnable: dict[Ask, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        state = self.state
        self.nodes = tuple(
            Node(node.gpus, node.cpus, node.weight, node.gpu_type, node.features) for node in state.nodes
        )
        self._numbers = {node.name: number for number, node in enumerate(state.nodes)}
        self._tiers = {partition.name: partition.tier for partition in state.partitions}
        self.up = node_set(number for number, node in enumerate(state.nodes) if not node.out)
        self.running = [job for job in state.running if job.nodes]
        self.kept_out = {job.name: job.kept_out for job in state.jobs if job.is_pending and job.kept_out}
        self.pending = []
        for job in sorted(state.waiting, key=order_of_id):
            if self.can_run(ask_of(job)):
                self.pending.append(job)
            else:
                self.kept_out[job.name] = "ask for more than the nodes in use have"

    def can_run(self, ask: Ask) -> bool:
        """Return whether the nodes in use suffice for a job when no other job runs."""
        # Jobs that differ only in their limit or user have one answer.
        key = ask._replace(limit=0, user="")
        if key not in self._runnable:
            suitable = self.suitable(ask.kind)
            cpus = max(ask.cpus, 1)
            fitting = [node for node in numbers_of(suitable) if self._has(self.nodes[node], ask.gpus, cpus)]
            self._runnable[key] = len(fitting) >= ask.num_nodes
        return self._runnable[key]

    @staticmethod
    def _has(node: Node, gpus: int, cpus: int) -> bool:
        """Return whether a node has as many GPUs and CPUs in all."""
        return node.gpus >= gpus and node.cpus >= cpus

    def of_partitions(self, names: tuple[str, ...]) -> NodeSet:
        """Return the nodes in use of partitions; of all partitions without a name.

        A node without partitions, as in an incomplete list of nodes, is in each of them.
        """
        listed = {partition.name: partition.nodes for partition in self.state.partitions}
        numbers: list[int] = []
        for number, node in enumerate(self.state.nodes):
            in_list = any(node.name in listed.get(name, ()) for name in names)
            if in_list or not names or not node.partitions or set(names) & set(node.partitions):
                numbers.append(number)
        return node_set(numbers) & self.up

    def suitable(self, kind: NodeNeeds) -> NodeSet:
        """Return the nodes in use that suit a kind of jobs."""
        if kind not in self._suitable:
            self._suitable[kind] = self._suiting(kind)
        return self._suitable[kind]

    def _suiting(self, kind: NodeNeeds) -> NodeSet:
        """Return the nodes in use that suit a kind of jobs, found by looking at each."""
        suitable = self.of_partitions(kind.partitions)
        for number in numbers_of(suitable):
            node = self.state.nodes[number]
            is_right = kind.gpu_type in ("", node.gpu_type) and kind.features <= node.features
            if kind.required and node.name not in kind.required:
                is_right = False
            if not is_right or node.name in kind.excluded:
                suitable &= ~(1 << number)
        return suitable

    def row(self, ask: Ask, submit: int, priority: float) -> Table:
        """Return the row of a job for the kernels, without its run time."""
        row = np.zeros(NUM_COLUMNS, np.int64)
        row[[NODES, GPUS, CPUS]] = ask.num_nodes, ask.gpus, ask.cpus
        # A job that has its nodes for itself asks for as many CPUs as the largest node has.
        if ask.cpus < 0:
            row[CPUS] = max(node.cpus for node in self.nodes)
        row[[STATES_TASKS, LIMIT, SUBMIT, ELIGIBLE]] = ask.states_tasks, ask.limit, submit, submit
        row[TIER] = max([self._tiers.get(name, 1) for name in ask.kind.partitions], default=1)
        row[PRIORITY] = int(priority)
        row[PARTITION] = self._partitions.setdefault(ask.kind.partitions, len(self._partitions))
        row[KIND] = self._kinds.setdefault(ask.kind, len(self._kinds))
        row[USER] = self._users.setdefault(ask.user, len(self._users))
        return row

    def rows_of_state(self) -> Table:
        """Return the rows of the running jobs, then of the pending jobs."""
        rows = [self.row(ask_of(job), job.submit, job.priority) for job in self.running]
        for job in self.pending:
            rows.append(self.row(ask_of(job), max(job.eligible, job.submit), job.priority))
        return np.array(rows, np.int64).reshape(-1, NUM_COLUMNS)

    def sets_of_kinds(self) -> tuple[Table, Table]:
        """Return the nodes of each kind of jobs and of each partition so far, as words, shape (kinds, words)."""
        kinds = [self.words(self.suitable(kind)) for kind in self._kinds]
        partitions = [self.words(self.of_partitions(names)) for names in self._partitions]
        shape = (-1, self.num_words)
        return np.array(kinds, np.int64).reshape(shape), np.array(partitions, np.int64).reshape(shape)

    @property
    def num_words(self) -> int:
        """Return the number of words of a set of nodes, at least 1."""
        return len(self.nodes) // BITS + 1

    def words(self, nodes: NodeSet) -> list[int]:
        """Return a set of nodes as words."""
        return [nodes >> (BITS * word) & ((1 << BITS) - 1) for word in range(self.num_words)]

    def held(self, job: StateJob) -> list[Held]:
        """Return what a running job holds."""
        held = []
        for name in job.nodes:
            node = self._numbers[name]
            cpus = job.cpus if job.cpus >= 0 else self.nodes[node].cpus
            held.append(Held(node, job.gpus, cpus))
        return held

    @property
    def completing(self) -> NodeSet:
        """Return the nodes that complete a job, as the queue or the list of nodes says."""
        names = {name for job in self.state.jobs if job.state == "COMPLETING" for name in job.nodes}
        return node_set(
            number for number, node in enumerate(self.state.nodes) if node.is_completing or node.name in names
        )

    def priority_of(self) -> PriorityOf:
        """Return the function that tells the priority of a job that arrives later."""
        return later_priority(self.state)

    def cluster_state(self) -> SchedulerState:
        """Return the state in the form of the policy's functions. Jobs that wait for a time or a job are left out."""
        pending = []
        partitions: dict[str, SlurmPartition] = {}
        for job in self.pending:
            name = ",".join(job.partitions)
            tier = max([self._tiers.get(part, 1) for part in job.partitions], default=1)
            partitions[name] = SlurmPartition(self.of_partitions(job.partitions), tier)
            cpus = job.cpus if job.cpus >= 0 else max(node.cpus for node in self.nodes)
            request = Request(
                (NodePart(job.num_nodes, job.gpus, cpus),),
                job.states_tasks,
                gpu_type=job.gpu_type,
                features=job.features,
            )
            submit = max(job.eligible, job.submit)
            if submit <= self.state.now and not job.after:
                pending.append(PendingJob(job.name, request, job.limit, job.priority, submit, job.user, name))
        running = []
        for job in self.running:
            running.append(RunningJob.on(job.name, tuple(self.held(job)), job.start + job.limit))
        return SchedulerState(
            self.state.now,
            self.nodes,
            running,
            in_order(pending, partitions),
            self.completing,
            ((1 << len(self.nodes)) - 1) & ~self.up,
            partitions,
        )


def order_of_id(job: StateJob) -> tuple[int, str]:
    """Return a key that sorts jobs by their ids. Tasks of one array are in the order of the text."""
    number = job.name.partition("_")[0]
    return (int(number) if number.isdecimal() else 0), job.name


def parameter_row(parameters: Parameters) -> Table:
    """Return the parameters as the kernels take them, in the order of `PARAMETERS`."""
    values: dict[str, Any] = {name: getattr(parameters, name) for name in PARAMETERS if name != "pause"}
    least = 1 if parameters.sched_min_interval else 0  # the kernels count whole seconds
    values["pause"] = max(parameters.batch_sched_delay, least)
    return np.array([int(values[name]) for name in PARAMETERS], np.int64)


def free_of(nodes: Sequence[Node], held: Sequence[Sequence[Held]]) -> Table:
    """Return a row of free GPUs and a row of free CPUs, by node."""
    free = np.array([[node.gpus for node in nodes], [node.cpus for node in nodes]], np.int64)
    for of_job in held:
        for on_node in of_job:
            free[0, on_node.node] -= on_node.gpus
            free[1, on_node.node] -= on_node.cpus
    return free
