"""The contract between engine and policies: a view of the cluster in, a decision out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Flag, auto
from math import ceil, inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.errors import PolicyError, short
from polluxsim.gpu_types import ANY, NOBODY_SAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np

    from polluxsim.gpu_types import GpuType, NodeTypes
    from polluxsim.hosts import Host
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.models.planned import BatchPlan
    from polluxsim.models.profile import Application
    from polluxsim.models.sensitivity import Sensitivity
    from polluxsim.models.stages import Stages
    from polluxsim.restarts import RestartDelays
    from polluxsim.types import Allocation, BatchChoice, Gpus, JobId, Placement


class Oracle(Protocol):
    """What no scheduler of a real cluster can know: a job's true speed and how much it has left."""

    @property
    def application(self) -> Application:
        """Return the properties of the job's application."""
        ...

    @property
    def epoch(self) -> int:
        """Return the epoch that the job is in, from 0."""
        ...

    @property
    def progress(self) -> float:
        """Return the work done [M0-steps]."""
        ...

    @property
    def batch_choice(self) -> BatchChoice:
        """Return how it would split its batch now on the GPUs that its user asked for."""
        ...

    def optimiser_step_time(
        self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None
    ) -> float:
        """Return the true time of one optimiser step on a placement [s]; by default on the type measured first."""
        ...

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps to completion at a fixed batch size, by whole epochs."""
        ...

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None) -> float:
        """Return the true time to completion if this placement and batch choice were kept [s]; type as above."""
        ...

    def on(self, gpu_type: str) -> Oracle:
        """Return the truth on GPUs of a type, where nothing else is said."""
        ...


class Report(NamedTuple):
    """What a job logs as it trains: nothing of it is ahead of now.

    Attributes
    ----------
    epochs
        Statistical epochs done, with the part done of the present one.
    losses
        The loss after each complete epoch, in a unit of its own.
    steps_per_epoch
        Optimiser steps of the last complete epoch at the batch size its user asked for; before there is one, the
        examples of an epoch over that.
    step_time
        Time of an optimiser step on the GPUs it holds, as it is now [s]; None while it does not train.
    last_drop
        What its user said when submitting it: training is complete once the loss falls by less in an epoch.
    """

    epochs: float
    losses: tuple[float, ...]
    steps_per_epoch: float
    step_time: float | None
    last_drop: float


class JobView(Protocol):
    """One job that is submitted and has not ended, as a policy sees it.

    It is a window on the run: it costs nothing until it is looked at, shows the present whenever the policy is asked,
    and raises `ViewClosedError` at any other time. `JobSnapshot` is the same as a value.

    Attributes
    ----------
    job_id
        Its name.
    submit_time
        When it was submitted [s].
    num_replicas, batch_size
        GPUs and total batch size its user asked for [1; examples].
    application
        What it trains, by name; all jobs of an application do alike work.
    user, queue
        Who pays, and the queue (virtual cluster, partition, tenant) it was submitted to; None if not said.
    priority
        Larger goes first, for policies that look at it; 0 if not said.
    deadline
        When it should be complete [s since the start of the workload]; None if not said.
    time_limit
        Time of running that its user promised not to exceed [s]; None if not said.
    gpu_types
        Types of GPUs it can use, by name; empty for any.
    stages
        What a step of it takes on which resource; None if not known.
    host
        CPUs and memory that its user asks for, for each GPU; None if not said.
    sensitivity
        How fast it is by CPUs and memory, as users profile what they submit; None if not known.
    min_replicas
        Least GPUs its user lets it run on; None if not said.
    plan
        How it changes its batch size by itself; None for one that does not.
    placement
        The GPUs it holds, empty if none.
    attained_service
        Time held × GPUs so far [GPU s].
    num_restarts
        Re-allocations since its first start.
    max_replicas
        Most GPUs it should be given now, by what its agent has seen and its user allows.
    goodput
        What its agent has learnt of its goodput; None before the first fit, and for jobs that do not adapt. Of several
        GPU types, it is that of the type it ran on last.
    goodputs
        The same by the types of the cluster that it can use: of one that it never ran on, by what it learnt on others
        and the ratio of its speeds on one GPU; None before it ran on any.
    speeds
        How fast it is as its user submitted it, by the types of the cluster that it can use [optimiser steps/s].
    trained
        Work done, as its agent counts it [M0-equivalent examples].
    report
        What it has logged so far; None where nobody knows its losses.
    mixes_types
        Whether it can have GPUs of several of these types at once, as its agent divides its batch among them.
    may_grow
        Whether its user says up to how many GPUs it may have beyond those asked for: as many as `max_replicas`.
    oracle
        The truth, for policies that say openly that they use it.
    """

    @property
    def job_id(self) -> JobId: ...
    @property
    def submit_time(self) -> float: ...
    @property
    def num_replicas(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def application(self) -> str: ...
    @property
    def user(self) -> str | None: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def priority(self) -> float: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def time_limit(self) -> float | None: ...
    @property
    def gpu_types(self) -> tuple[str, ...]: ...
    @property
    def min_replicas(self) -> int | None: ...
    @property
    def plan(self) -> BatchPlan | None: ...
    @property
    def stages(self) -> Stages | None: ...
    @property
    def host(self) -> Host | None: ...
    @property
    def sensitivity(self) -> Sensitivity | None: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def attained_service(self) -> float: ...
    @property
    def num_restarts(self) -> int: ...
    @property
    def max_replicas(self) -> int: ...
    @property
    def goodput(self) -> GoodputModel | None: ...
    @property
    def goodputs(self) -> Mapping[str, Goodput | None]: ...
    @property
    def speeds(self) -> Mapping[str, float]: ...
    @property
    def trained(self) -> float: ...
    @property
    def report(self) -> Report | None: ...
    @property
    def mixes_types(self) -> bool: ...
    @property
    def may_grow(self) -> bool: ...
    @property
    def oracle(self) -> Oracle: ...


class JobSnapshot(NamedTuple):
    """What a `JobView` shows, as a value: for what a policy keeps, and for views made by hand."""

    job_id: JobId
    submit_time: float
    num_replicas: int
    batch_size: int
    placement: Placement
    attained_service: float
    num_restarts: int
    max_replicas: int
    goodput: GoodputModel | None
    oracle: Oracle
    user: str | None = None
    queue: str | None = None
    priority: float = 0.0
    deadline: float | None = None
    time_limit: float | None = None
    gpu_types: tuple[str, ...] = ()
    min_replicas: int | None = None
    goodputs: Mapping[str, Goodput | None] = MappingProxyType({})
    speeds: Mapping[str, float] = MappingProxyType({})
    plan: BatchPlan | None = None
    stages: Stages | None = None
    application: str = ""
    report: Report | None = None
    mixes_types: bool = False
    may_grow: bool = False
    host: Host | None = None
    sensitivity: Sensitivity | None = None
    trained: float = 0.0

    @classmethod
    def of(cls, job: JobView) -> JobSnapshot:
        """Return what a view shows now."""
        return cls(*(getattr(job, name) for name in cls._fields))


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


class Change(Flag):
    """What happens between rounds that a policy can see."""

    ARRIVAL = auto()
    EPOCH = auto()
    COMPLETION = auto()
    LEARNING = auto()
    NODES = auto()
    EVICTION = auto()
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since the policy was last asked.

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


class Reason(NamedTuple):
    """What decided about one job in a round.

    Attributes
    ----------
    kind
        What it was, in a word that the policy chooses; `look/why/words.py` has sentences for those of ours, and
        says any other as it is.
    numbers
        The figures that it came down to, by name; `REASON_UNITS` in `records.py` has the units of ours.
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


class Policy(Protocol):
    """Says at scheduling rounds who gets which GPUs.

    A policy may remember things in itself between rounds and changes nothing else; a run gets a fresh one. It may have
    an attribute `traits`, which says what it is.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the placements to hold until the next round; a job left out holds no GPU.

        A `Decision` is an allocation that also says how good it is, and how long it stands.
        """
        ...


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
