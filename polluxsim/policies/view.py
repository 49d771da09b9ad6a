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
    """What a policy is; one without `traits` is none of this.

    Attributes
    ----------
    adaptive
        Jobs choose their own batch sizes under it; else they keep what their users asked for.
    known_throughput
        Their agents start with the θ_sys of their application instead of exploring it.
    maximises_throughput
        Their agents take throughput for goodput.
    needs_profiles
        It can do nothing with a job that has no profile but a known duration.
    scales
        It says how many nodes there are, and is asked when no job is here, too.
    shares_gpus
        It puts several jobs on a GPU, and can do nothing where `engine.sharing` does not say which fit together.
    one_type_as
        Why it can do nothing on a cluster of several GPU types, in a clause; empty for one that can.
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
    """An allocation, and what the policy knows of it. By default the policy is asked again at the next round.

    Attributes
    ----------
    allocation
        Who is to hold which GPUs; a job left out holds none, or what it held where `others_keep`.
    others_keep
        Whether jobs that the allocation leaves out keep their GPUs.
    shared
        Jobs that get GPUs by number, as others may have the same ones, where `engine.sharing` says that they fit
        together; the allocation leaves them out.
    hosts
        CPUs and memory for each GPU of a job, on all of its nodes alike, where the cluster says what nodes have. Who is
        left out has as much of its nodes' as it has of their GPUs. To change it is no restart.
    rejected
        Jobs that will never get a GPU, as the policy does not admit them: they end here. None may hold GPUs. The policy
        is not told of their end.
    num_nodes
        Nodes to have from now on, where their number can change; None leaves it. New ones come up after their start-up
        time; nodes beyond the number are released at once, and the allocation must do without them.
    fitness
        The policy's objective at this allocation, None if it does not say.
    upper_bound
        What the objective cannot exceed at any allocation, None if it does not know.
    valid_until
        Time until which the policy, asked again after this allocation was carried out, would answer the same for the
        jobs that are left, unless something in `outdated_by` happens [s]. It is not asked before then.
    outdated_by
        What ends that earlier.
    explain
        Says of some jobs what decided about them, None if the policy gives no reasons. It is called, if at all, before
        the decision is carried out and for few jobs, so reasons cost nothing until then. It may change nothing in the
        policy.
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
