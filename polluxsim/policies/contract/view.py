"""The interface between the engine and policies: a policy receives a view and returns a decision."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Flag, auto
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.common.durations import first_round
from polluxsim.common.errors import PolicyError, short
from polluxsim.hardware.gpu_types import ANY, NOBODY_SAYS
from polluxsim.policies.contract.job import JobSnapshot, JobView, Oracle, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np

    from polluxsim.hardware.gpu_types import GpuType, NodeTypes
    from polluxsim.hardware.hosts import Host
    from polluxsim.hardware.placements import Allocation, Gpus, JobId, Placement
    from polluxsim.hardware.restarts import RestartDelays

__all__ = [
    "HEALTHY",
    "Change",
    "Changes",
    "ClusterView",
    "Decision",
    "Health",
    "JobSnapshot",
    "JobView",
    "NodeCounts",
    "Oracle",
    "Policy",
    "Reason",
    "Report",
    "Standing",
    "Traits",
    "traits_of",
]


@dataclass(frozen=True)
class Traits:
    """Properties of a policy. A policy without the attribute `traits` has none of them.

    Attributes
    ----------
    adaptive
        Jobs choose their batch sizes. Otherwise they keep the batch sizes of their users.
    known_throughput
        The agents of jobs start with the θ_sys of their application instead of exploring it.
    maximises_throughput
        The agents of jobs maximise throughput instead of goodput.
    needs_profiles
        The policy cannot schedule jobs without a profile.
    scales
        The policy chooses the number of nodes. It also decides when there are no jobs.
    shares_gpus
        The policy puts several jobs on a GPU. It needs `engine.sharing`.
    one_type_as
        Reason, as a clause, why the policy cannot use several GPU types. Empty for policies that can.
    """

    adaptive: bool = False
    known_throughput: bool = False
    maximises_throughput: bool = False
    needs_profiles: bool = False
    scales: bool = False
    shares_gpus: bool = False
    one_type_as: str = ""


def traits_of(policy: object) -> Traits:
    """Return the traits of a policy.

    Raises
    ------
    PolicyError
        If the attribute `traits` has another type, or if the policy has an attribute with the name of a trait.
    """
    traits = getattr(policy, "traits", Traits())
    name = type(policy).__name__
    if not isinstance(traits, Traits):
        raise PolicyError(
            f"policy {name}: traits are {short(traits)}, allowed is a polluxsim.policies.contract.view.Traits"
        )
    stray = [field.name for field in fields(Traits) if getattr(policy, field.name, False)]
    if stray and not hasattr(policy, "traits"):
        raise PolicyError(
            f"policy {name} has an attribute {stray[0]}, which says nothing by itself; write traits = "
            f"Traits({stray[0]}=True), of polluxsim.policies.contract.view"
        )
    return traits


class Policy(Protocol):
    """A policy decides in scheduling rounds which job gets which GPUs.

    A policy may have a state, and must not change other objects. Each run has its own policy. A policy may have an
    attribute `traits`, and a method `without_effect` as in `polluxsim.policies.contract.settings`.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the placements until the next round. A job that is left out gets no GPUs.

        A `Decision` is an allocation with its quality and its validity.
        """


class NodeCounts(NamedTuple):
    """The numbers of nodes of a cluster that a policy can resize.

    Attributes
    ----------
    requested
        Nodes that are up or starting. All of them have a price.
    least, most
        Smallest and largest number that a policy may request.
    gpus_per_node
        GPUs of each node, including nodes that are not up.
    """

    requested: int
    least: int
    most: int
    gpus_per_node: tuple[int, ...]

    def gpus(self, num_nodes: int) -> int:
        """Return the GPUs of the first nodes."""
        return sum(self.gpus_per_node[:num_nodes])


@dataclass(frozen=True, slots=True)
class Changes:
    """Events since the last decision. A job that was submitted and ended in between is left out.

    Attributes
    ----------
    arrived
        Jobs that were submitted, in order.
    ended
        Names of jobs that ended, with their times [s].
    passed_epoch, learnt
        Names of jobs that began an epoch, and names of jobs whose agents learnt something.
    nodes
        Whether nodes came up or went down, or failures were announced.
    evicted
        Names of jobs that lost their GPUs by a failure. This ends the validity of every decision.
    """

    arrived: Sequence[JobView] = ()
    ended: Mapping[JobId, float] = field(default_factory=dict)
    passed_epoch: Collection[JobId] = ()
    learnt: Collection[JobId] = ()
    nodes: bool = False
    evicted: Collection[JobId] = ()


class Health(NamedTuple):
    """Failures of nodes.

    Attributes
    ----------
    down
        Numbers of the nodes that are down, in ascending order.
    num_failures
        Failures of each node so far, by node number. Empty in a view without an engine.
    coming
        Announced failures as pairs (node number, time [s]), by node number.
    down_gpus
        GPUs of the nodes in `down`, which offer none now.
    """

    down: tuple[int, ...] = ()
    num_failures: tuple[int, ...] = ()
    coming: tuple[tuple[int, float], ...] = ()
    down_gpus: tuple[int, ...] = ()


HEALTHY = Health()


class Standing(NamedTuple):
    """The use of the GPUs at a decision.

    Attributes
    ----------
    running, waiting
        Jobs with and without GPUs, in order of submission.
    free
        Free GPUs of each node.
    demand
        GPUs that the running and waiting jobs request.
    """

    running: Sequence[JobView]
    waiting: Sequence[JobView]
    free: Sequence[int]
    demand: int

    @classmethod
    def of(cls, gpus_per_node: Sequence[int], jobs: Sequence[JobView]) -> Standing:
        """Return the use of the GPUs according to the placements of the jobs."""
        running, waiting = [job for job in jobs if job.placement], [job for job in jobs if not job.placement]
        free = list(gpus_per_node)
        for job in running:
            for node, gpus in job.placement:
                free[node] -= gpus
        return cls(running, waiting, free, sum(job.num_replicas for job in jobs))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster and its jobs at a decision. Values are computed when they are read.

    Attributes
    ----------
    time
        Time of the decision [s since the start of the workload].
    gpus_per_node
        GPUs of each node, in use or not; 0 for a node that is down.
    jobs
        Jobs that are submitted and have not ended, in order of submission.
    restart_delay
        Time without training after each change of a job's placement [s].
    restart_delays
        Restart delays by application and GPU type, or None. `delay_of` returns the delay of a job.
    nodes
        Requested and allowed numbers of nodes, or None if the number is fixed.
    changes
        Events since the last decision.
    standing
        The use of the GPUs, if the engine has computed it.
    round_interval
        Time between rounds [s]. Rounds are at its multiples. 0 in a view without an engine, where GPUs can change at
        any time.
    health
        Failures of nodes.
    node_types
        GPU type of each node. Empty if all GPUs are equal and their type is not stated.
    shared
        Numbered GPUs of the jobs that can share GPUs.
    shared_speeds
        Measured speed of each of these jobs since the last round, relative to its speed alone.
    fit_together
        Function that returns whether two jobs with equal requests can share GPUs, or None without sharing.
    hosts
        CPUs and memory of each node. Empty if they do not limit jobs.
    """

    time: float
    gpus_per_node: tuple[int, ...]
    jobs: Sequence[JobView]
    restart_delay: float
    nodes: NodeCounts | None = None
    changes: Changes = field(default_factory=Changes)
    standing: Standing | None = None
    round_interval: float = 0.0
    health: Health = HEALTHY
    node_types: NodeTypes = NOBODY_SAYS
    shared: Mapping[JobId, Gpus] = field(default_factory=dict)
    restart_delays: RestartDelays | None = None
    shared_speeds: Mapping[JobId, float] = field(default_factory=dict)
    fit_together: Callable[[JobView, JobView], bool] | None = None
    hosts: tuple[Host, ...] = ()

    @property
    def types(self) -> Mapping[str, GpuType]:
        """Return the GPU types by name, in the order of their first nodes. Without stated types there is one."""
        return self.node_types.types

    def __repr__(self) -> str:
        return f"ClusterView(at {self.time:g} s, {len(self.jobs)} jobs, {self.num_gpus} GPUs)"

    def nodes_of(self, gpu_type: str) -> Sequence[int]:
        """Return the numbers of the nodes of a type."""
        if not self.node_types:
            return range(len(self.gpus_per_node))
        return self.node_types.nodes[gpu_type]

    def gpus_of(self, gpu_type: str) -> int:
        """Return the number of GPUs of a type."""
        if not self.node_types:
            return self.num_gpus
        return sum(self.gpus_per_node[node] for node in self.nodes_of(gpu_type))

    def type_of(self, placement: Placement) -> str:
        """Return the GPU type of a placement, by name."""
        return self.node_types[placement[0][0]].name if self.node_types else ANY.name

    def delay_of(self, job: JobView) -> float:
        """Return the restart delay of a job on its GPU type, or the longest delay of a job without GPUs [s]."""
        if self.restart_delays is None or not self.restart_delays.known:
            return self.restart_delay
        gpu_type = self.type_of(job.placement) if job.placement else None
        return self.restart_delays.of(job.application, gpu_type)

    def round_at(self, time: float) -> float:
        """Return the time of the first round at or after a time [s]. The time of a round stays."""
        if not self.round_interval or time == inf:
            return time
        return first_round(time, self.round_interval) * self.round_interval

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs on all nodes."""
        return sum(self.gpus_per_node)

    @property
    def nominal_gpus(self) -> int:
        """Return the number of GPUs of all nodes, with nodes that are down and nodes that can be requested."""
        if self.nodes is not None:
            return sum(self.nodes.gpus_per_node)
        return self.num_gpus + sum(self.health.down_gpus)

    @property
    def node_size(self) -> int:
        """Return the GPUs of the largest node; if all nodes are down, of the largest node that is down."""
        return max(self.gpus_per_node, default=0) or max(self.health.down_gpus, default=1)

    @property
    def running(self) -> Sequence[JobView]:
        """Return the jobs with GPUs, in order of submission."""
        return self._standing.running

    @property
    def waiting(self) -> Sequence[JobView]:
        """Return the jobs without GPUs, in order of submission. Each view is made when it is read."""
        return self._standing.waiting

    @property
    def free(self) -> Sequence[int]:
        """Return the free GPUs of each node."""
        return self._standing.free

    @property
    def demand(self) -> int:
        """Return the GPUs that all jobs request."""
        return self._standing.demand

    @property
    def _standing(self) -> Standing:
        return self.standing or Standing.of(self.gpus_per_node, self.jobs)


class Change(Flag):
    """Kinds of events between rounds."""

    ARRIVAL = auto()
    EPOCH = auto()
    COMPLETION = auto()
    LEARNING = auto()
    NODES = auto()
    EVICTION = auto()
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION


class Reason(NamedTuple):
    """The reason for the allocation of a job in a round.

    Attributes
    ----------
    kind
        Kind of the reason, a word that the policy chooses. `look/why/sentences.py` has sentences for the kinds of
        polluxsim, and prints other kinds unchanged.
    numbers
        Numbers by name. `REASON_UNITS` in `record_units.py` has the units of polluxsim's numbers.
    others
        Jobs that caused the decision. Their role depends on `kind`.
    """

    kind: str
    numbers: Mapping[str, float]
    others: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An allocation with its quality and its validity. By default the policy decides again at the next round.

    Attributes
    ----------
    allocation
        GPUs of each job. A job that is left out gets no GPUs, or keeps its GPUs if `others_keep`.
    others_keep
        Whether jobs that the allocation leaves out keep their GPUs.
    shared
        Jobs on numbered GPUs, which they may share with other jobs as `engine.sharing` allows. The allocation must
        not contain them.
    hosts
        CPUs and memory for each GPU of a job, equal on all of its nodes. The cluster must state the CPUs and memory of
        its nodes. A job that is left out gets them in proportion to its GPUs. A change causes no restart.
    rejected
        Jobs that the policy does not admit. They end, and must not hold GPUs. Their end does not call the policy.
    num_nodes
        Number of nodes from now on, on a cluster that can change it. None keeps the number. New nodes come up after
        their start-up time. Surplus nodes are released at once, and the allocation must not use them.
    fitness
        Objective of the policy for this allocation, or None.
    upper_bound
        Upper bound of the objective over all allocations, or None.
    valid_until
        Time until which the policy would give the remaining jobs the same GPUs, unless an event in `outdated_by`
        happens [s]. The policy does not decide again before.
    outdated_by
        Events that end the validity earlier.
    explain
        Function that returns the reasons for the allocations of some jobs, or None. It is called before the decision is
        applied, and only if reasons are recorded. It must not change the policy.
    """

    allocation: Allocation
    others_keep: bool = False
    shared: Mapping[JobId, Gpus] = field(default_factory=dict)
    hosts: Mapping[JobId, Host] = field(default_factory=dict)
    rejected: Collection[JobId] = ()
    num_nodes: int | None = None
    fitness: float | None = None
    upper_bound: float | None = None
    valid_until: float = -inf
    outdated_by: Change = Change.ANY
    explain: Callable[[Sequence[JobId]], Mapping[JobId, Reason]] | None = None
