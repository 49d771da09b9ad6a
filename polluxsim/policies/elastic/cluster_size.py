"""Policies that change the number of nodes: a wrapper of any policy, and autoscaling for one large job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError, check_choice, check_number
from polluxsim.policies.contract.settings import without_effect
from polluxsim.policies.contract.view import Change, Decision, NodeCounts, Reason, Standing, Traits, traits_of
from polluxsim.policies.tools.free_gpus import pack
from polluxsim.policies.tools.gangs import check_above_zero
from polluxsim.policies.tools.gpu_counts import fewest_gpus, most_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from polluxsim.hardware.clusters import Cluster
    from polluxsim.hardware.placements import JobId, Placement
    from polluxsim.models.goodput import GoodputModel
    from polluxsim.policies.contract.view import Changes, ClusterView, JobView, Policy, Report
    from polluxsim.workloads.job import Job

WEEK, DAY = 168, 24
"""Periods of a forecast [h]."""


class Scale(Protocol):
    """Rule for the number of nodes."""

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the number of nodes that there should be."""

    def until(self, time: float) -> float:
        """Return the time until which the answer stays the same without events [s]."""


class _Shown:
    """A job as the inner policy sees it. A job on nodes that will be released has no GPUs."""

    def __init__(self, job: JobView, scaled: Scaled) -> None:
        self._job, self._scaled = job, scaled

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy asks for these before there is a job
            raise AttributeError(name)
        return getattr(self._job, name)

    @property
    def placement(self) -> Placement:
        """Return the GPUs that the job holds and can keep."""
        return () if self.must_move else self._job.placement

    @property
    def report(self) -> Report | None:
        """Return the log of the job. Without GPUs there is no step time."""
        logged = self._job.report
        return logged._replace(step_time=None) if logged is not None and self.must_move else logged

    @property
    def must_move(self) -> bool:
        """Return whether the job holds GPUs of a node that will be released."""
        return any(node >= self._scaled.nodes_shown for node, _ in self._job.placement)


@dataclass
class Scaled:
    """Let a policy use a cluster whose number of nodes follows a rule.

    Surplus nodes get no new jobs, and are released after a while, the last one first. Jobs on them move, which costs a
    restart, or the nodes wait for the jobs. On a cluster with a fixed number of nodes the inner policy decides alone.

    Parameters
    ----------
    inner
        Policy that decides which jobs get GPUs.
    scale
        Rule for the number of nodes.
    idle_time
        Time for which nodes must be surplus before they are released [s].
    moves
        Whether jobs move away from nodes that are to be released.

    Source: the Kubernetes cluster autoscaler, which takes ten minutes and moves pods.
    """

    inner: Policy
    scale: Scale
    idle_time: float = 600.0
    moves: bool = True
    _surplus_since: float = field(default=inf, init=False, repr=False)
    # Number of nodes that the inner policy sees, and the GPUs of each node that takes new jobs.
    nodes_shown: int = field(default=0, init=False, repr=False)
    _open_nodes: tuple[int, ...] = field(default=(), init=False, repr=False)
    _jobs: dict[JobId, _Shown] = field(default_factory=dict, init=False, repr=False)
    # Events since the inner policy last decided. It does not decide while there are no jobs.
    _missed: list[Changes] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, value, method in (("inner", self.inner, "allocate"), ("scale", self.scale, "wanted")):
            if not callable(getattr(value, method, None)):
                raise InvalidConfigError(f"policy.{name} is {value!r}, allowed is what has a method {method}")
        check_number("policy.idle_time", self.idle_time, self.idle_time >= 0, "a finite number ≥ 0")

    @property
    def traits(self) -> Traits:
        """Return the traits of the inner policy. The number of nodes also changes while there are no jobs."""
        return replace(traits_of(self.inner), scales=True)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return the settings of the inner policy that have no effect."""
        return without_effect(self.inner, jobs, cluster)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose the number of nodes, and let the inner policy use those that stay."""
        self._missed.append(view.changes)
        if (nodes := view.nodes) is None:
            every = len(view.gpus_per_node)
            return self._inside(self._shown(view, every, every), rng) if view.jobs else Decision({})
        wanted = min(max(self.scale.wanted(view, nodes), self._for_largest(view, nodes), nodes.least), nodes.most)
        count = settled = self._settled(view, nodes, wanted)
        if not self.moves:
            count = max(count, _nodes_with_jobs(view, Decision({}, others_keep=True)))
        decision = self._inside(self._shown(view, wanted, count), rng) if view.jobs else Decision({}, valid_until=inf)
        until = min(decision.valid_until, self.scale.until(view.time), self._surplus_since + self.idle_time)
        if count > max(settled, _nodes_with_jobs(view, decision)):
            until = view.time  # the jobs leave the last nodes by this decision, which releases them at the next round
        outdated_by = decision.outdated_by | Change.ARRIVAL | Change.COMPLETION | Change.NODES
        return replace(decision, num_nodes=count, valid_until=until, outdated_by=outdated_by)

    def _for_largest(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the fewest nodes on which each job can run. With fewer, a job could wait for ever."""
        traits = traits_of(self.inner)
        is_elastic = traits.adaptive or traits.needs_profiles
        needed = (job.min_replicas or 0 if is_elastic else job.num_replicas for job in view.jobs)
        return nodes_for(nodes, max(needed, default=0))

    def _inside(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        answer = self.inner.allocate(view, rng)
        return answer if isinstance(answer, Decision) else Decision(answer)

    def _settled(self, view: ClusterView, nodes: NodeCounts, wanted: int) -> int:
        """Return the number of nodes to request. Surplus nodes stay for the idle time."""
        if wanted >= nodes.requested:
            self._surplus_since = inf
            return wanted
        self._surplus_since = min(self._surplus_since, view.time)
        if view.time < self._surplus_since + self.idle_time:
            return nodes.requested
        self._surplus_since = inf
        return wanted

    def _shown(self, view: ClusterView, wanted: int, count: int) -> ClusterView:
        """Return a view of the nodes that stay. Nodes beyond the wanted ones show no free GPUs.

        It is a change of nodes if other nodes take new jobs than before, or if a job must leave its node. That job is
        evicted. Otherwise a policy that repeats its last decision would use nodes that are gone.
        """
        arrived = [job for missed in self._missed for job in missed.arrived]
        ended = {job_id: end for missed in self._missed for job_id, end in missed.ended.items()}
        self._jobs |= {job.job_id: _Shown(job, self) for job in arrived}
        self.nodes_shown = count
        jobs = [self._jobs[job.job_id] for job in view.jobs]
        held = Counter(node for job in jobs for node, gpus in job.placement for _ in range(gpus))
        sizes = tuple(
            size if node < wanted else held[node] for node, size in enumerate(view.gpus_per_node[: max(count, 0)])
        )
        leaving = [job.job_id for job in jobs if job.must_move]
        open_nodes = view.gpus_per_node[: max(min(wanted, count), 0)]
        is_news = any(missed.nodes for missed in self._missed) or open_nodes != self._open_nodes or bool(leaving)
        changes = replace(
            view.changes,
            arrived=[self._jobs[job.job_id] for job in arrived],
            ended=ended,
            nodes=is_news,
            evicted=[*view.changes.evicted, *leaving],
        )
        standing = Standing.of(sizes, jobs)
        self._missed, self._open_nodes = [], open_nodes
        for job_id in ended:
            del self._jobs[job_id]
        return replace(view, gpus_per_node=sizes, jobs=jobs, nodes=None, standing=standing, changes=changes)


def _nodes_with_jobs(view: ClusterView, decision: Decision) -> int:
    """Return the number of nodes up to the last one on which a job has GPUs after a decision."""
    placements = [*decision.allocation.values(), *decision.shared.values()]
    if decision.others_keep:
        known = decision.allocation.keys() | decision.shared.keys()
        placements += [job.placement for job in view.running if job.job_id not in known]
    return max((node + 1 for placement in placements for node, _ in placement), default=0)


def nodes_for(nodes: NodeCounts, gpus: float) -> int:
    """Return the fewest nodes that have this number of GPUs, or all nodes if they have fewer."""
    return next((count for count in range(nodes.most) if nodes.gpus(count) >= gpus), nodes.most)


@dataclass(frozen=True)
class PendingGpus:
    """As many nodes as hold all that users asked for: nodes are added for jobs that cannot be placed.

    Source: the Kubernetes cluster autoscaler's rule.
    """

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the nodes for all jobs that are here."""
        return nodes_for(nodes, view.demand)

    def until(self, time: float) -> float:
        """Return that only jobs change it."""
        return inf


@dataclass(frozen=True)
class GoodputUse:
    """As many nodes as are put to good use by all jobs together.

    Use is the sum of the jobs' goodput, each over its own on one GPU, per GPU; GPUs go where they add most. A job of
    which no goodput is known uses what it asked for in full.

    Parameters
    ----------
    grow_above
        Use above which more nodes are asked for, in (0, 1].
    aim
        Use that is aimed at, in (0, grow_above); below it nodes are given back.

    Source: Pollux (OSDI '21), §5.4.1 for one job, here over all.
    """

    grow_above: float = 2 / 3
    aim: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.aim < self.grow_above <= 1:
            said = f"policy.scale.aim is {self.aim}, policy.scale.grow_above {self.grow_above}"
            raise InvalidConfigError(f"{said}, allowed are 0 < aim < grow_above ≤ 1")

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return as many nodes as before where their use is good, else those whose use is nearest to the aim."""
        gains = sorted((gain for job in view.jobs for gain in _gains(job, nodes)), reverse=True)
        use = {count: _use(gains, nodes.gpus(count)) for count in range(max(nodes.least, 1), nodes.most + 1)}
        if self.aim <= use.get(nodes.requested, 0.0) <= self.grow_above:
            return nodes.requested
        return min(use, key=lambda count: abs(use[count] - self.aim))

    def until(self, time: float) -> float:
        """Return that it is to be asked at every round, as goodputs change."""
        return -inf


def _use(gains: list[float], gpus: int) -> float:
    return sum(gains[:gpus]) / gpus


def _gains(job: JobView, nodes: NodeCounts) -> Iterator[float]:
    """Yield what each GPU adds to a job's goodput over that on one GPU."""
    if (model := job.goodput) is None:
        yield from [1.0] * job.num_replicas
        return
    size, most = max(nodes.gpus_per_node), min(job.max_replicas, nodes.gpus(nodes.most))
    alone = model.best(1, 1)[0]
    counts = [1, *(2**power for power in range(1, most.bit_length()) if 2**power <= most)]
    speedups = [model.best(-(-gpus // size), gpus)[0] / alone for gpus in counts]
    yield 1.0
    for (fewer, slow), (more, fast) in pairwise(zip(counts, speedups, strict=True)):
        yield from [max(fast - slow, 0.0) / (more - fewer)] * (more - fewer)


@dataclass
class Forecast:
    """Nodes for all jobs that are here, and for those that will come while a node starts, by hours and weekdays so far.

    What comes is the mean of the GPUs asked for in the hours of the day alike and in those of the week alike.

    Parameters
    ----------
    headroom
        How much more than the forecast there is room for, as a share of it; below 0 for less.
    ahead
        For how long new jobs are to find room [s]; a node's start-up time at least.

    Source: "A Predictive Autoscaler for Elastic Batch Jobs" (2020), with means by the hour for its neural network.
    """

    headroom: float = 1.0
    ahead: float = 600.0
    # GPUs asked for in each hour so far, by its number from the start.
    _asked: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(**{"scale.ahead": self.ahead, "scale.headroom + 1": self.headroom + 1})

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the nodes for who is here and who is to be expected."""
        now = int(view.time // HOUR)
        self._asked += [0.0] * (now + 1 - len(self._asked))
        for job in view.changes.arrived:
            self._asked[int(job.submit_time // HOUR)] += job.num_replicas
        later = int((view.time + self.ahead) // HOUR)
        coming = max(self._expected(now), self._expected(later)) * self.ahead / HOUR
        return nodes_for(nodes, view.demand + (1 + self.headroom) * coming)

    def until(self, time: float) -> float:
        """Return when another hour begins, or comes into sight [s]."""
        return min((at // HOUR + 1) * HOUR - (at - time) for at in (time, time + self.ahead))

    def _expected(self, hour: int) -> float:
        """Return the GPUs that are asked for in such an hour on average, 0 where there was none yet."""
        past = self._asked[:-1]
        alike = [past[hour % period :: period] for period in (DAY, WEEK)]
        means = [sum(found) / len(found) for found in alike if found]
        return sum(means) / len(means) if means else 0.0


MEASURES = ("goodput", "throughput")


@dataclass(frozen=True)
class Autoscaler:
    """Give the first job all nodes, and change their number if it uses its GPUs too well or too badly.

    The use of a number of nodes is the predicted measure per GPU, over the measure of one GPU alone.

    Parameters
    ----------
    measure
        Measure that decides on nodes and batch sizes: `goodput`, or `throughput` as in the baseline.
    grow_above
        Use above which more nodes are requested, U in (0, 1].
    aim
        Target use, L in (0, U); below it nodes are released.

    Source: Pollux (OSDI '21), §5.4.1; the baseline there is Or et al. (MLSys '20).
    """

    measure: str = "goodput"
    grow_above: float = 2 / 3
    aim: float = 0.5

    def __post_init__(self) -> None:
        check_choice("policy.measure", self.measure, MEASURES)
        if not 0 < self.aim < self.grow_above <= 1:
            raise InvalidConfigError(
                f"policy.aim is {self.aim}, policy.grow_above {self.grow_above}, allowed are 0 < aim < grow_above ≤ 1"
            )

    @property
    def traits(self) -> Traits:
        """Return its traits. If agents maximise throughput, the models that a policy sees do, too."""
        return Traits(
            adaptive=True,
            needs_profiles=True,
            maximises_throughput=self.measure == "throughput",
            one_type_as="it gives one job all nodes",
        )

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the GPUs for the first job, and the number of nodes to request."""
        if not view.jobs:
            return Decision({})
        job = view.jobs[0]
        num_nodes = None if view.nodes is None else self._num_nodes(job, view.nodes)
        up = view.gpus_per_node[:num_nodes]
        gpus = min(sum(up), most_gpus(job))
        placement = pack(up, gpus, keep=job.placement) if gpus >= fewest_gpus(job) else None
        return Decision(
            {job.job_id: placement or ()},
            num_nodes=num_nodes,
            explain=lambda asked: {
                name: Reason("behind-only-job", {}, (job.job_id,)) for name in asked if name != job.job_id
            },
        )

    def _num_nodes(self, job: JobView, nodes: NodeCounts) -> int:
        """Return the number of nodes to request. It stays if the nodes are used well and suffice for the job."""
        fewest = max(nodes_for(nodes, fewest_gpus(job)), nodes.least)
        if (model := job.goodput) is None:
            return max(nodes.requested, fewest)
        now = self._use(model, nodes, nodes.requested)
        if self.aim <= now <= self.grow_above:
            return max(nodes.requested, fewest)
        # The job cannot use more GPUs than its agent allows, and no node should be idle.
        counts = [count for count in range(fewest, nodes.most + 1) if nodes.gpus(count) <= most_gpus(job)]
        wanted = min(counts or [fewest], key=lambda count: abs(self._use(model, nodes, count) - self.aim))
        return max(wanted, nodes.requested) if now > self.grow_above else min(wanted, max(nodes.requested, fewest))

    def _use(self, model: GoodputModel, nodes: NodeCounts, count: int) -> float:
        """Return the measure per GPU of `count` full nodes, over the measure of one GPU."""
        gpus = nodes.gpus(count)
        return model.best(count, gpus)[0] / gpus / model.best(1, 1)[0]
