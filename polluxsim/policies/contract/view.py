"""The interface between the engine and policies: a policy receives a view of the cluster and returns a decision.

`ClusterView` is all that a policy sees: the time, the nodes, the jobs, and what happened since its last decision. The
other classes here are parts of it.

Invariants: a view never changes what the engine has. The engine's views of jobs are live while a policy decides.
Afterwards, attributes that can change during a run raise `ViewClosedError`.

Trap: times are inexact. Compare them by `ClusterView.has_come` and `ClusterView.reaches`, not by `<=`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from polluxsim.common.durations import clock
from polluxsim.common.errors import ViewClosedError
from polluxsim.common.instants import first_round, has_come, reaches
from polluxsim.hardware.clusters import PartitionGroup
from polluxsim.hardware.gpu_types import ANY, UNKNOWN_TYPES, GpuType, NodeTypes
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.node_shapes import ANYWHERE, NodeRequest, Shape, ShapeRule
from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.hardware.restarts import RESTART_DELAY, RestartDelays
from polluxsim.policies.contract.changes import Change
from polluxsim.policies.contract.decision import Decision, Traits, decision_of
from polluxsim.policies.contract.job import JobProxy, JobSnapshot, JobView, Oracle, Report
from polluxsim.policies.contract.reasons import Reason, ReasonKind
from polluxsim.policies.contract.use_limits import NO_LIMITS, LimitsNow

__all__ = [
    "HEALTHY", "Change", "Changes", "ClusterView", "Decision", "Health", "JobProxy", "JobSnapshot", "JobView",
    "NodeCounts", "Oracle", "Reason", "ReasonKind", "Report", "SharedGpus", "Standing", "Traits", "decision_of",
    "largest_node",
]  # fmt: skip

MOST_LINES = 16  # largest number of lines about nodes in the text of a view
MOST_JOBS = 8  # largest number of waiting jobs that the text names


class NodeCounts(NamedTuple):
    """The numbers of nodes of a cluster that a policy can resize."""

    requested: int  # Nodes that were requested and not released, also nodes that start or are down. All are paid for.
    # Smallest and largest number of nodes that a policy may request.
    least: int
    most: int
    gpus_per_node: tuple[int, ...]  # GPUs of each node, including nodes that are not up

    def gpus(self, num_nodes: int) -> int:
        """Return the GPUs of the first `num_nodes` nodes."""
        return sum(self.gpus_per_node[:num_nodes])


@dataclass(frozen=True, slots=True)
class Changes:
    """Events since the last decision. A job that was submitted and ended between two decisions is left out."""

    arrived: Sequence[JobView] = ()  # jobs that were submitted, in order of submission
    ended: Mapping[JobId, float] = field(default_factory=dict)  # names of jobs that ended, with their times [s]
    # Names of jobs that began an epoch, and names of jobs whose agents learnt something.
    passed_epoch: Collection[JobId] = ()
    learnt: Collection[JobId] = ()
    nodes: bool = False  # whether nodes came up or went down, or failures were announced
    # Names of jobs that lost their GPUs by a failure. These events end the validity of every decision.
    evicted: Collection[JobId] = ()
    # Names of jobs to which a fork of the run gave another request, duration or place in the order of submission.
    altered: Collection[JobId] = ()

    @property
    def jobs_or_nodes(self) -> bool:
        """Return whether an event in `Change.JOBS_OR_NODES` happened, or a fork altered jobs."""
        return bool(self.arrived or self.ended or self.nodes or self.altered)

    def among(self, jobs: Container[JobId], **changed: Any) -> Changes:
        """Return the changes with `learnt`, `passed_epoch`, `evicted` and `altered` of some jobs only.

        `changed` contains other values of attributes, by name; without them `arrived` and `ended` have all jobs.
        """
        names = ("learnt", "passed_epoch", "evicted", "altered")
        values: dict[str, Any] = {}
        for name in names:
            values[name] = [job_id for job_id in getattr(self, name) if job_id in jobs]
        return replace(self, **values | changed)


class Health(NamedTuple):
    """Failures of nodes."""

    down: tuple[int, ...] = ()  # numbers of the nodes that are down, in ascending order
    # Failures of each node so far, by node number. Empty in a view without an engine.
    num_failures: tuple[int, ...] = ()
    coming: tuple[tuple[int, float], ...] = ()  # announced failures as pairs (node number, time [s]), by node number
    down_gpus: tuple[int, ...] = ()  # GPUs of the nodes in `down`, which offer none now

    def of(self, nodes: Container[int]) -> Health:
        """Return the failures of some nodes. `num_failures` still has all nodes, because it is read by node number."""
        if not self.down and not self.coming:
            return self
        # Not strict, because a view made by hand may leave the GPUs out.
        down_gpus = zip(self.down, self.down_gpus, strict=False)
        return self._replace(
            down=tuple(node for node in self.down if node in nodes),
            coming=tuple((node, time) for node, time in self.coming if node in nodes),
            down_gpus=tuple(gpus for node, gpus in down_gpus if node in nodes),
        )


HEALTHY = Health()


def largest_node(gpus_per_node: Sequence[int], health: Health) -> int:
    """Return the GPUs of the largest node that is up; if none is, of the largest node that is down.

    Return 1 if neither is known.
    """
    return max(gpus_per_node, default=0) or max(health.down_gpus, default=1)


class SharedGpus(NamedTuple):
    """The use of GPUs that several jobs share."""

    held: Mapping[JobId, Gpus] = MappingProxyType({})  # numbered GPUs of the jobs that can share GPUs
    # Measured speed of each of these jobs since the last round, relative to its speed alone.
    speeds: Mapping[JobId, float] = MappingProxyType({})
    # Function that returns whether two jobs with equal requests can share GPUs, or None without sharing.
    fit_together: Callable[[JobView, JobView], bool] | None = None

    def of(self, jobs: Container[JobId]) -> SharedGpus:
        """Return the use of GPUs by some jobs."""
        return self._replace(
            held={name: gpus for name, gpus in self.held.items() if name in jobs},
            speeds={name: speed for name, speed in self.speeds.items() if name in jobs},
        )

    def in_use(self, running: Iterable[JobView]) -> Counter[int]:
        """Return the GPUs that jobs use, by node. A GPU that several jobs share counts once."""
        shared: set[Gpu] = set()
        used = Counter[int]()
        for job in running:
            gpus = self.held.get(job.job_id)
            if gpus is not None:
                shared.update(gpus)
            else:
                for node, count in job.placement:
                    used[node] += count
        used.update(node for node, _ in shared)
        return used


NOT_SHARED = SharedGpus()
DEFAULT_DELAYS = RestartDelays(RESTART_DELAY)


class Standing(NamedTuple):
    """The use of the GPUs at a decision."""

    # Jobs with and without GPUs, in order of submission.
    running: Sequence[JobView]
    waiting: Sequence[JobView]
    free: Sequence[int]  # free GPUs of each node
    demand: int  # GPUs that all jobs request

    @classmethod
    def of(cls, gpus_per_node: Sequence[int], jobs: Sequence[JobView], sharing: SharedGpus) -> Standing:
        """Return the use of the GPUs according to the placements of the jobs."""
        running = [job for job in jobs if job.placement]
        waiting = [job for job in jobs if not job.placement]
        free = list(gpus_per_node)
        for node, gpus in sharing.in_use(running).items():
            free[node] -= gpus
        return cls(running, waiting, free, sum(job.num_replicas for job in jobs))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster and its jobs at a decision. Values are computed when they are read.

    A first policy needs `time` and `jobs`, and `FreeGpus.of(view)` for the GPUs.
    """

    time: float  # time of the decision [s on the clock of the workload]
    # GPUs of each node that has started, in use or not. 0 for a node that is down. For a node that drains before an
    # outage, only the GPUs in use.
    gpus_per_node: tuple[int, ...]
    jobs: Sequence[JobView]  # jobs that are submitted and have not ended, in order of submission
    changes: Changes = field(default_factory=Changes)  # events since the last decision
    # Time between rounds [s]. Rounds are at its multiples. 0 in a view without an engine, where GPUs can change
    # at any time.
    round_interval: float = 0.0
    # Times without training after a change of a job's GPUs. `delay_of` returns the time of one job [s].
    restarts: RestartDelays = DEFAULT_DELAYS
    free_starts: bool = False  # whether the first start of a job has no restart delay, as in the replay of a log
    # The nodes.
    nodes: NodeCounts | None = None  # requested and allowed numbers of nodes, or None if the number is fixed
    health: Health = HEALTHY  # failures of nodes
    # GPU type of each node. Empty if all GPUs are equal and their type is not stated.
    node_types: NodeTypes = UNKNOWN_TYPES
    hosts: tuple[Host, ...] = ()  # CPUs [cores] and memory [GB] of each node. Empty if they do not limit jobs.
    # How the GPUs of a job must be spread over nodes. `shape_of` returns the shape of one job.
    shape_rule: ShapeRule = ANYWHERE
    # The most GPUs and running jobs of users, qualities of service and queues. `HeldByLimit` counts them.
    limits: LimitsNow = NO_LIMITS
    # Groups of partitions with common nodes. Empty if all jobs can use all nodes. The engine shows a policy each group
    # by itself, as a cluster without partitions.
    partition_groups: tuple[PartitionGroup, ...] = ()
    # Numbers of the nodes of each partition of the cluster, by its name.
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # The use of the GPUs.
    sharing: SharedGpus = NOT_SHARED  # use of GPUs that several jobs share
    # Use of all GPUs, if it is known. Otherwise it follows from the placements of the jobs.
    standing: Standing | None = None

    def __repr__(self) -> str:
        return allocation_text(self)

    @property
    def num_gpus(self) -> int:
        """Return the sum of `gpus_per_node`, which has no GPUs of nodes that are down."""
        return sum(self.gpus_per_node)

    @property
    def nominal_gpus(self) -> int:
        """Return the number of GPUs of all nodes, including nodes that are down and nodes that can be requested.

        If the number of nodes is fixed, the idle GPUs of a draining node do not count.
        """
        if self.nodes is not None:
            return sum(self.nodes.gpus_per_node)
        return self.num_gpus + sum(self.health.down_gpus)

    @property
    def node_size(self) -> int:
        """Return the GPUs of the largest node that is up; if none is, of the largest node that is down."""
        return largest_node(self.gpus_per_node, self.health)

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
        """Return the free GPUs of each node in `gpus_per_node`, 0 for a draining node."""
        return self._standing.free

    @property
    def demand(self) -> int:
        """Return the GPUs that all jobs request, whether they run or wait."""
        return self._standing.demand

    @property
    def _standing(self) -> Standing:
        return self.standing or Standing.of(self.gpus_per_node, self.jobs, self.sharing)

    @property
    def types(self) -> Mapping[str, GpuType]:
        """Return the GPU types by name, in the order of their first nodes.

        A cluster that states no types has one type.
        """
        return self.node_types.types

    def nodes_of(self, gpu_type: str) -> Sequence[int]:
        """Return the numbers of the nodes of a type that have started; of all of them if no types are stated."""
        if not self.node_types:
            return range(len(self.gpus_per_node))
        nodes = self.node_types.nodes[gpu_type]
        if len(self.node_types) == len(self.gpus_per_node):
            return nodes
        return [node for node in nodes if node < len(self.gpus_per_node)]  # the policy may add the other nodes

    def gpus_of(self, gpu_type: str) -> int:
        """Return the number of GPUs of a type on the nodes that are up; of all types if none are stated."""
        if not self.node_types:
            return self.num_gpus
        return sum(self.gpus_per_node[node] for node in self.nodes_of(gpu_type))

    def type_of(self, placement: Placement) -> str:
        """Return the name of the GPU type of a placement, which must not be empty: the type of its first node."""
        if not self.node_types:
            return ANY.name
        first_node, _ = placement[0]
        return self.node_types[first_node].name

    def shape_of(self, job: JobView, gpu_type: str | None = None) -> Shape:
        """Return how the requested GPUs of a job must be spread over nodes of a GPU type, by default of the first one.

        A policy that starts whole jobs finds GPUs of this shape by `FreeGpus.pack_shape`.
        """
        # A shortcut for the most common rule, because policies ask for the shape of every job.
        if self.shape_rule.anywhere:
            return Shape(job.num_replicas)
        request = NodeRequest(job.num_replicas, job.num_nodes, job.gpus_per_task)
        return self.shape_rule.shape(request, gpu_type or next(iter(self.types)))

    @property
    def restart_delay(self) -> float:
        """Return the restart delay of applications without an entry in `restarts` [s]."""
        return self.restarts.otherwise

    def delay_of(self, job: JobView) -> float:
        """Return the restart delay of a job on its GPU type, or the longest delay of a job without GPUs [s].

        Return 0 for a job that never had GPUs if first starts are free.
        """
        if self.free_starts and not job.placement and not job.attained_service:
            return 0.0
        if not self.restarts.known:
            return self.restarts.otherwise
        if not job.placement:
            return self.restarts.of(job.application, None)
        return self.restarts.of(job.application, self.type_of(job.placement))

    def round_at(self, time: float) -> float:
        """Return the time of the first round at or after a time [s]; the time itself if GPUs can change at any time."""
        if not self.round_interval or time == inf:
            return time
        return first_round(time, self.round_interval) * self.round_interval

    def has_come(self, time: float) -> bool:
        """Return whether a time is now or in the past, up to rounding [s].

        A policy that computes a time must compare it in this way. `time <= view.time` is one round late if rounding
        makes the time larger by one unit in the last place.
        """
        return has_come(time, self.time)

    def reaches(self, service: float, limit: float, gpus: int = 1) -> bool:
        """Return whether the service of a job on at most `gpus` GPUs reaches a limit, up to rounding [GPU s].

        With one GPU, it compares times.
        """
        return reaches(service, limit, self.time, gpus)

    def part(  # noqa: PLR0913  (the parts of a view)
        self,
        gpus_per_node: Sequence[int],
        jobs: Mapping[JobId, JobView],
        changes: Changes,
        *,
        nodes: Container[int],
        node_types: NodeTypes | None = None,
        free: Sequence[int] | None = None,
        sharing: SharedGpus | None = None,
        shape_rule: ShapeRule | None = None,
    ) -> ClusterView:
        """Return a view of some jobs on some nodes, for a policy inside another policy.

        The inner policy cannot change the number of nodes.

        Parameters
        ----------
        gpus_per_node
            GPUs of each node that the inner policy sees. Nodes at the end may be left out if `jobs` hold none of their
            GPUs.
        jobs
            Views of the jobs that the inner policy sees, by name.
        changes
            Events that the inner policy sees.
        nodes
            Numbers of the nodes whose failures the inner policy sees.
        node_types
            GPU type of each node; by default as in this view.
        free
            Free GPUs of each node; by default, those that the placements of the jobs leave.
        sharing
            Use of shared GPUs; by default, as in this view.
        shape_rule
            How the GPUs of a job must be spread over nodes; by default, as in this view.
        """
        # In the order of this view, which is that of submission, whatever the order of the mapping is.
        jobs_of_part = [jobs[job.job_id] for job in self.jobs if job.job_id in jobs]
        if sharing is None:
            sharing = self.sharing.of(jobs)
        if node_types is None:
            node_types = self.node_types
        if shape_rule is None:
            shape_rule = self.shape_rule
        standing = Standing.of(gpus_per_node, jobs_of_part, sharing)
        if free is not None:
            standing = standing._replace(free=free)
        return replace(
            self,
            gpus_per_node=tuple(gpus_per_node),
            jobs=jobs_of_part,
            changes=changes,
            nodes=None,
            health=self.health.of(nodes),
            hosts=self.hosts[: len(gpus_per_node)],
            node_types=node_types,
            sharing=sharing,
            shape_rule=shape_rule,
            partition_groups=(),
            standing=standing,
        )


def allocation_text(view: ClusterView) -> str:
    """Return which job holds which GPUs of which node, the free GPUs and the waiting jobs, in at most 20 lines.

    Neighbouring nodes with the same content have one line. After the decision, return one line that says so.
    """
    try:
        lines = [_summary(view), *_shortened(list(_nodes(view))), *_waiting(view)]
    except ViewClosedError:
        return f"ClusterView at {clock(view.time)}: closed, because the decision for which it was made is committed"
    return "\n".join(lines)


def _summary(view: ClusterView) -> str:
    """Return the first line of the text: the time, and numbers of jobs and GPUs."""
    gpus_in_use = view.num_gpus - sum(view.free)
    num_running = len(view.running)
    num_waiting = len(view.waiting)
    jobs_hold = "1 job holds" if num_running == 1 else f"{num_running} jobs hold"
    jobs_wait = "1 waits" if num_waiting == 1 else f"{num_waiting} wait"
    return (
        f"ClusterView at {clock(view.time)} ({view.time:g} s): {jobs_hold} {gpus_in_use} of {view.num_gpus} GPUs, "
        f"{jobs_wait}"
    )


def _nodes(view: ClusterView) -> Iterator[str]:
    """Yield a line for each group of neighbouring nodes with the same content."""
    jobs_on_node: defaultdict[int, list[str]] = defaultdict(list)
    for job in view.running:
        shared = " shared" if job.job_id in view.sharing.held else ""
        for node, gpus in job.placement:
            jobs_on_node[node].append(f"{job.job_id} {gpus}{shared}")
    contents = [_content(view, node, jobs_on_node[node]) for node in range(len(view.gpus_per_node))]
    for content, group in groupby(enumerate(contents), key=lambda pair: pair[1]):
        numbers = [node for node, _ in group]
        if len(numbers) == 1:
            yield f"node {numbers[0]}, {content}"
        else:
            yield f"each of the nodes {numbers[0]} to {numbers[-1]}, {content}"


def _content(view: ClusterView, node: int, jobs: Sequence[str]) -> str:
    """Return the GPUs of a node and who holds them, or that it is down. `jobs` are its jobs with their GPUs there."""
    if node in view.health.down:
        return "down"
    gpus = view.gpus_per_node[node]
    type_name = f"{view.node_types[node].name} " if view.node_types else ""
    unit = "GPU" if gpus == 1 else "GPUs"
    parts = list(jobs)
    if view.free[node]:
        parts.append(f"{view.free[node]} free")
    return f"{gpus} {type_name}{unit}: {', '.join(parts) or 'none is free'}"


def _shortened(lines: Sequence[str]) -> list[str]:
    """Return at most `MOST_LINES` lines about nodes."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    shortened = list(lines[: MOST_LINES - 1])  # one line fewer, for the line about the others
    shortened.append(f"… {len(lines) - len(shortened)} more lines about nodes")
    return shortened


def _waiting(view: ClusterView) -> Iterator[str]:
    """Yield a line about the waiting jobs, with the GPUs that they request; no line if no job waits."""
    names = [f"{job.job_id} ({job.num_replicas})" for job in view.waiting[:MOST_JOBS]]
    if not names:
        return
    num_more = len(view.waiting) - len(names)
    more = f" and {num_more} more" if num_more else ""
    yield f"waiting, with requested GPUs: {', '.join(names)}{more}"
