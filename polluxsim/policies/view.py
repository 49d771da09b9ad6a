"""The contract between engine and policies: a view of the cluster in, a decision out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Flag, auto
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.errors import PolicyError, short
from polluxsim.gpu_types import ANY, NOBODY_SAYS
from polluxsim.policies.job_view import JobSnapshot, JobView, Oracle, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np

    from polluxsim.gpu_types import GpuType, NodeTypes
    from polluxsim.hosts import Host
    from polluxsim.restarts import RestartDelays
    from polluxsim.types import Allocation, Gpus, JobId, Placement

__all__ = [
    "HEALTHY", "Change", "Changes", "ClusterView", "Decision", "Health", "JobSnapshot", "JobView", "NodeCounts",
    "Oracle", "Policy", "Reason", "Report", "Standing", "Traits", "traits_of",
]  # fmt: skip


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
    """Return what a policy is.

    Raises
    ------
    PolicyError
        If its traits are none, or it says what it is in another way.
    """
    traits = getattr(policy, "traits", Traits())
    name = type(policy).__name__
    if not isinstance(traits, Traits):
        raise PolicyError(f"policy {name}: traits are {short(traits)}, allowed is a polluxsim.policies.view.Traits")
    stray = [field.name for field in fields(Traits) if getattr(policy, field.name, False)]
    if stray and not hasattr(policy, "traits"):
        raise PolicyError(
            f"policy {name} has an attribute {stray[0]}, which says nothing by itself; write traits = "
            f"Traits({stray[0]}=True), of polluxsim.policies.view"
        )
    return traits


class Policy(Protocol):
    """Says at scheduling rounds who gets which GPUs.

    A policy may remember things in itself between rounds and changes nothing else; a run gets a fresh one. It may have
    an attribute `traits`, which says what it is, and a method `without_effect`, as `polluxsim.policies.effects` has it.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the placements to hold until the next round; a job left out holds no GPU.

        A `Decision` is an allocation that also says how good it is, and how long it stands.
        """


class NodeCounts(NamedTuple):
    """The nodes of a cluster whose number a policy may change.

    Attributes
    ----------
    requested
        Nodes that are up or coming, all of them paid for.
    least, most
        How few and how many may be asked for.
    gpus_per_node
        GPUs of each node, of those that are not up too.
    """

    requested: int
    least: int
    most: int
    gpus_per_node: tuple[int, ...]

    def gpus(self, num_nodes: int) -> int:
        """Return the GPUs of so many nodes."""
        return sum(self.gpus_per_node[:num_nodes])


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since the policy was last asked. A job that came and went meanwhile is not in it.

    Attributes
    ----------
    arrived
        Jobs that were submitted, in this order.
    ended
        When jobs ended that are gone [s], by name: complete, or otherwise.
    passed_epoch, learnt
        Names of jobs that began another epoch, and of those whose agents observed something.
    nodes
        Whether nodes came up or went down, or it became known that some will go down.
    evicted
        Names of jobs that lost their GPUs as a node went down; that ends any decision.
    """

    arrived: Sequence[JobView] = ()
    ended: Mapping[JobId, float] = field(default_factory=dict)
    passed_epoch: Collection[JobId] = ()
    learnt: Collection[JobId] = ()
    nodes: bool = False
    evicted: Collection[JobId] = ()


class Health(NamedTuple):
    """How nodes are and were.

    Attributes
    ----------
    down
        Numbers of those that are down, rising.
    num_failures
        How often each has gone down so far, by number; empty in a view made by hand.
    coming
        Nodes that go down soon, as far as that is known, each with when [s], by number.
    """

    down: tuple[int, ...] = ()
    num_failures: tuple[int, ...] = ()
    coming: tuple[tuple[int, float], ...] = ()


HEALTHY = Health()


class Standing(NamedTuple):
    """Who holds what when the policy is asked.

    Attributes
    ----------
    running, waiting
        The jobs that hold GPUs, and those that do not, in order of submission.
    free
        GPUs of each node that nobody holds.
    demand
        GPUs that the users of all jobs asked for, of running and waiting ones.
    """

    running: Sequence[JobView]
    waiting: Sequence[JobView]
    free: Sequence[int]
    demand: int

    @classmethod
    def of(cls, gpus_per_node: Sequence[int], jobs: Sequence[JobView]) -> Standing:
        """Return what the jobs themselves say of it."""
        running, waiting = [job for job in jobs if job.placement], [job for job in jobs if not job.placement]
        free = list(gpus_per_node)
        for job in running:
            for node, gpus in job.placement:
                free[node] -= gpus
        return cls(running, waiting, free, sum(job.num_replicas for job in jobs))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a policy sees when it is asked. Nothing of it is computed before it is looked at.

    Attributes
    ----------
    time
        Now [s since the start of the workload].
    gpus_per_node
        GPUs of each node, all of them free to be given anew; 0 of one that is down.
    jobs
        Jobs submitted and not ended, in order of submission.
    restart_delay
        Time a job loses whenever its placement changes [s].
    restart_delays
        The same by application and GPU type, where more is known; `delay_of` a job looks there.
    nodes
        How many nodes are requested and may be, None where their number cannot change.
    changes
        What happened since the policy was last asked.
    standing
        Who holds what, where it is known already.
    round_interval
        Time between rounds, which are at its multiples [s]; 0 in a view made by hand, as if GPUs could be given at any
        time.
    health
        Which nodes are down, and how often each was.
    node_types
        GPU type of each node; empty where nobody says, and all are alike.
    shared
        GPUs by number of the jobs that may share theirs.
    shared_speeds
        How fast each of these was since the last round, over alone: what a scheduler measures of them.
    fit_together
        Says whether two jobs that ask for as many GPUs can have the same ones; None where nobody shares any.
    hosts
        CPUs and memory of each node; empty where nobody says, and they hold nobody up.
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
        """Return the GPU types there are by name, in order of their first nodes; one where nobody says."""
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
        """Return what another start costs a job on GPUs of its type; of one that has none, the most it can [s]."""
        if self.restart_delays is None or not self.restart_delays.known:
            return self.restart_delay
        gpu_type = self.type_of(job.placement) if job.placement else None
        return self.restart_delays.of(job.application, gpu_type)

    def round_at(self, time: float) -> float:
        """Return the time of the first round that is not before a time [s]."""
        return ceil(time / self.round_interval) * self.round_interval if self.round_interval and time < inf else time

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs on all nodes."""
        return sum(self.gpus_per_node)

    @property
    def running(self) -> Sequence[JobView]:
        """Return the jobs that hold GPUs, in order of submission."""
        return self._standing.running

    @property
    def waiting(self) -> Sequence[JobView]:
        """Return the jobs without GPUs, in order of submission; only as many are looked up as are gone through."""
        return self._standing.waiting

    @property
    def free(self) -> Sequence[int]:
        """Return the GPUs of each node that nobody holds."""
        return self._standing.free

    @property
    def demand(self) -> int:
        """Return the GPUs that the users of all jobs asked for."""
        return self._standing.demand

    @property
    def _standing(self) -> Standing:
        return self.standing or Standing.of(self.gpus_per_node, self.jobs)


class Change(Flag):
    """What happens between rounds that a policy can see."""

    ARRIVAL = auto()
    EPOCH = auto()
    COMPLETION = auto()
    LEARNING = auto()
    NODES = auto()
    EVICTION = auto()
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION


class Reason(NamedTuple):
    """What decided about one job in a round.

    Attributes
    ----------
    kind
        What it was, in a word that the policy chooses; `look/why/words.py` has sentences for those of ours, and
        says any other as it is.
    numbers
        The figures that it came down to, by name; `REASON_UNITS` in `record_units.py` has the units of ours.
    others
        The jobs it came down to, as `kind` says.
    """

    kind: str
    numbers: Mapping[str, float]
    others: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An allocation, and what the policy knows about it. By default the policy decides again at the next round.

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
