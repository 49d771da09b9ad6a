"""Policies that change the number of nodes: a wrapper of any policy, and a policy for one large job.

`Scaled` decides how many nodes the cluster has, by a rule (`Scale`), and lets an inner policy decide which jobs use
them. `Autoscaler` is `Scaled` with an inner policy and a rule for the first job.

Nodes come and go at the end of the node list. A decision about nodes has three numbers:

- `wanted`: nodes that the rule asks for, within the limits of the cluster. Only these take new jobs.
- settled: `wanted`, and the surplus nodes whose idle time is not over.
- `count`: the nodes to request; more than settled if surplus nodes must wait for their jobs.

Invariants: a released node has no jobs. There are always enough nodes for the largest job.

Trap: the inner policy sees the first nodes only (`FirstNodes`), and must not be asked about a view without jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from typing import Annotated, ClassVar, Protocol

import numpy as np

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.instants import slack, whole_number
from polluxsim.common.values import OneOf, Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.node_shapes import Shape, fits_empty
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy, PolicyAround, inner_policy, traits_of
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobView,
    NodeCounts,
    Reason,
    Traits,
    decision_of,
)
from polluxsim.policies.elastic.first_nodes import FirstNodes
from polluxsim.policies.elastic.reason_kinds import BEHIND_ONLY_JOB
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gpu_counts import fewest_gpus, limit_numbers, most_gpus
from polluxsim.policies.tools.pools import prepared_for_types

DAY = 24  # periods of a forecast [h]
WEEK = 168

IDLE_TIME = 600.0  # default of `idle_time` [s]

MEASURES = ("goodput", "throughput")


class Scale(Protocol):
    """Rule for the number of nodes."""

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the target number of nodes."""

    def until(self, time: float) -> float:
        """Return the time until which the answer stays the same if no event happens [s]; by default the next round."""
        return -inf


@takes_settings("policy")
@dataclass
class Scaled(PolicyAround):
    """Let a policy use a cluster whose number of nodes follows a rule.

    Surplus nodes get no new jobs, and are released after a while, the last node first. Jobs on surplus nodes move,
    which costs a restart, or the nodes wait for the jobs. On a cluster with a fixed number of nodes only the inner
    policy decides.

    Parameters
    ----------
    inner
        Policy that decides which jobs get GPUs.
    scale
        Rule for the number of nodes.
    idle_time
        Time for which a node must be surplus before it is released [s].
    moves
        Whether jobs move away from nodes that are to be released.

    Source: the Kubernetes cluster autoscaler, which takes ten minutes and moves pods.
    """

    inner: Policy
    scale: Scale
    idle_time: Annotated[Seconds, Range(least=0)] = IDLE_TIME
    moves: bool = True
    _inner: Policy = field(init=False, repr=False)
    # Time since which each surplus node is surplus, by node number [s].
    _surplus_since: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _first: FirstNodes = field(default_factory=FirstNodes, init=False, repr=False)

    def __post_init__(self) -> None:
        self._inner = prepared_for_types(inner_policy("policy.inner", self.inner))
        for method in ("wanted", "until"):
            if not callable(getattr(self.scale, method, None)):
                raise InvalidConfigError(
                    f"policy.scale is {self.scale!r}, must be an object with a method {method}: choose one by name"
                )

    @property
    def traits(self) -> Traits:
        """Return the traits of the inner policy. The number of nodes also changes while there are no jobs.

        With `moves`, jobs are moved even if the inner policy never preempts.
        """
        inner = traits_of(self._inner)
        return replace(inner, scales=True, never_preempts=inner.never_preempts and not self.moves)

    @property
    def wrapped(self) -> Policy:
        """Return the inner policy."""
        return self._inner

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose the number of nodes, and let the inner policy use the nodes that stay."""
        self._first.miss(view.changes)
        nodes = view.nodes
        if nodes is None:
            num_nodes = len(view.gpus_per_node)
            return self._decide(view, rng, num_nodes, num_nodes) if view.jobs else Decision({})
        fewest = max(self._for_largest(view, nodes), nodes.least)
        wanted = min(max(self.scale.wanted(view, nodes), fewest), nodes.most)
        settled = self._settled(view, nodes, wanted)
        count = settled
        if not self.moves:
            no_change = Decision({}, others_keep=True)
            count = max(count, _nodes_with_jobs(view, no_change))
        if view.jobs:
            decision = self._decide(view, rng, wanted, count)
        else:
            decision = Decision({}, valid_until=inf)
        until = min(decision.valid_until, self.scale.until(view.time), self._next_release(view))
        leaves_nodes = count > max(settled, _nodes_with_jobs(view, decision))
        if decision.rejected or leaves_nodes:
            until = view.time  # the next decision releases the nodes that jobs leave now, or that rejected jobs needed
        outdated_by = decision.outdated_by | Change.JOBS_OR_NODES
        return replace(decision, num_nodes=count, valid_until=until, outdated_by=outdated_by)

    def _decide(self, view: ClusterView, rng: np.random.Generator, num_open: int, num_nodes: int) -> Decision:
        """Return the decision of the inner policy about the first nodes, of which the first `num_open` are open."""
        self._first.num_open = num_open
        self._first.num_nodes = num_nodes
        parts = self._first.parts(view)
        decisions = {name: decision_of(self._inner.allocate(part, rng)) for name, part in parts.items()}
        return self._first.merge(view, decisions)

    def _for_largest(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the fewest nodes on which each job can run. With fewer, a job could wait for ever."""
        traits = traits_of(self._inner)
        is_elastic = traits.adaptive or traits.needs_profiles
        largest = 0  # GPUs without which a job cannot run
        for job in view.jobs:
            needs_its_request = job.gang_size is not None or not is_elastic
            gpus_needed = job.num_replicas if needs_its_request else 0
            largest = max(largest, gpus_needed, job.min_replicas or 0)
        fewest = nodes_for(nodes, largest)
        if traits.keeps_shapes and not view.shape_rule.anywhere:
            for shape in {view.shape_of(job) for job in view.jobs}:
                fewest = max(fewest, nodes_for_shape(nodes, shape))
        return fewest

    def _settled(self, view: ClusterView, nodes: NodeCounts, wanted: int) -> int:
        """Return the number of nodes to request. Each surplus node stays for the idle time."""
        surplus_since = {node: self._surplus_since.get(node, view.time) for node in range(wanted, nodes.requested)}
        self._surplus_since = surplus_since
        # Earlier nodes became surplus later, so the nodes whose idle time is over are the last ones.
        num_idling = sum(not view.has_come(since + self.idle_time) for since in surplus_since.values())
        return wanted + num_idling

    def _next_release(self, view: ClusterView) -> float:
        """Return the next time at which the idle time of a surplus node is over; ∞ if there is none [s]."""
        releases = [since + self.idle_time for since in self._surplus_since.values()]
        return min((time for time in releases if not view.has_come(time)), default=inf)


def _nodes_with_jobs(view: ClusterView, decision: Decision) -> int:
    """Return the number of nodes up to the last one on which a job has GPUs after a decision."""
    placements = [*decision.allocation.values(), *decision.shared.values()]
    if decision.others_keep:
        placed = decision.allocation.keys() | decision.shared.keys()
        placements += [job.placement for job in view.running if job.job_id not in placed]
    num_nodes = 0
    for placement in placements:
        for node, _ in placement:
            num_nodes = max(num_nodes, node + 1)
    return num_nodes


def nodes_for(nodes: NodeCounts, gpus: float) -> int:
    """Return the smallest number of nodes with this number of GPUs, or all nodes if they have fewer GPUs."""
    return next((count for count in range(nodes.most) if nodes.gpus(count) >= gpus), nodes.most)


def nodes_for_shape(nodes: NodeCounts, shape: Shape) -> int:
    """Return how many of the first nodes a job of a shape needs; all nodes if it fits on no number of them."""
    for count in range(1, nodes.most):
        if fits_empty(shape, sorted(nodes.gpus_per_node[:count], reverse=True)):
            return count
    return nodes.most


@dataclass(frozen=True)
class PendingGpus(Scale):
    """Request the nodes that hold the GPUs of all jobs, running and waiting.

    Source: the rule of the Kubernetes cluster autoscaler.
    """

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the number of nodes for all jobs."""
        return nodes_for(nodes, view.demand)

    def until(self, time: float) -> float:
        """Return ∞: only jobs change the answer."""
        return inf


def _check_uses(setting: str, aim: float, grow_above: float) -> None:
    """Raise an `InvalidConfigError` unless 0 < aim < grow_above ≤ 1."""
    are_in_order = 0 < aim < grow_above <= 1
    if not are_in_order:
        raise InvalidConfigError(
            f"{setting}.aim is {aim}, {setting}.grow_above {grow_above}, must be 0 < aim < grow_above ≤ 1"
        )


@dataclass(frozen=True)
class GoodputUse(Scale):
    """Request as many nodes as all jobs together use well.

    The use is the sum of the speedups of the jobs, divided by the GPUs; a speedup is the goodput over that on one GPU.
    Each GPU is assigned to the job to which it adds the most. A job without a known goodput uses the requested GPUs in
    full.

    Parameters
    ----------
    grow_above
        Use above which more nodes are requested, in (0, 1].
    aim
        Target use, in (0, grow_above); below it nodes are released.

    Source: Pollux (OSDI '21), §5.4.1, where the rule is for one job; here it is for all jobs.
    """

    grow_above: float = 2 / 3
    aim: float = 0.5

    def __post_init__(self) -> None:
        _check_uses("policy.scale", self.aim, self.grow_above)

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the present number of nodes if jobs use them well, else the number with the use nearest to `aim`.

        Nodes are not released if the use is too high, and not added if it is too low. At a tie, the number is larger.
        Without jobs, it is the smallest number.
        """
        if not view.jobs:
            return nodes.least
        gains: list[float] = []
        for job in view.jobs:
            gains += _gains(job, nodes)
        gains.sort(reverse=True)
        use: dict[int, float] = {}  # by number of nodes
        for count in range(max(nodes.least, 1), nodes.most + 1):
            num_gpus = nodes.gpus(count)
            use[count] = sum(gains[:num_gpus]) / num_gpus
        present_use = use.get(nodes.requested, 0.0)
        if self.aim <= present_use <= self.grow_above:
            return nodes.requested
        nearest = min(use, key=lambda count: (abs(use[count] - self.aim), -count))
        if present_use > self.grow_above:
            return max(nearest, nodes.requested)
        return min(nearest, nodes.requested)


def _gains(job: JobView, nodes: NodeCounts) -> Iterator[float]:
    """Yield the speedup that each GPU adds, interpolated between powers of two; 1 each if the goodput is unknown."""
    model = job.goodput
    if model is None:
        yield from [1.0] * job.num_replicas
        return
    node_size = max(nodes.gpus_per_node)
    largest_count = min(job.max_replicas, nodes.gpus(nodes.most))
    powers_of_two = {2**power for power in range(largest_count.bit_length())}
    goodput_alone = model.best(1, 1)[0]
    speedups: dict[int, float] = {}
    for gpus in sorted(powers_of_two | {largest_count}):
        goodput = model.best(ceil(gpus / node_size), gpus)[0]
        speedups[gpus] = goodput / goodput_alone
    yield 1.0
    for (fewer, slow), (more, fast) in pairwise(speedups.items()):
        added_gpus = more - fewer
        # The goodput can fall with more GPUs. The job then would not use them.
        yield from [max(fast - slow, 0.0) / added_gpus] * added_gpus


@takes_settings("policy.scale")
@dataclass
class Forecast(Scale):
    """Request nodes for all jobs, and for the jobs that are expected to arrive while a node starts.

    The forecast is the mean of two means of the GPUs requested so far: in the same hour of the day, and in the same
    hour of the week. The largest one of the hours from now to the end of `ahead` counts. Hours count from the
    submission of the first job, so that the forecast does not depend on where time 0 is.

    Parameters
    ----------
    headroom
        Additional room, as a share of the forecast, above −1; below 0 for less room than the forecast.
    ahead
        Time within which new jobs should find room, at least the start-up time of a node [s].

    Source: "A Predictive Autoscaler for Elastic Batch Jobs" (2020), with hourly means in place of its neural network.
    """

    headroom: Annotated[float, Range(above=-1)] = 1.0
    ahead: Annotated[Seconds, Range(above=0)] = 600.0
    _start: float | None = field(default=None, init=False, repr=False)  # time from which hours count [s]
    # GPUs that the jobs submitted in each hour request.
    _requested: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the number of nodes that all present and expected jobs need."""
        arrived = [job for job in view.changes.arrived if job.submit_time >= 0]
        # Nothing else is known of the arrivals before the start of the run, at which the jobs from before it arrive.
        if self._start is None:
            self._start = min((job.submit_time for job in arrived), default=view.time)
        present_hour = self._hour(view.time)
        self._requested += [0.0] * (present_hour + 1 - len(self._requested))
        for job in arrived:
            self._requested[self._hour(job.submit_time)] += job.num_replicas
        last_hour = self._hour(view.time + self.ahead)
        expected_by_hour = [self._expected(hour) for hour in range(present_hour, last_hour + 1)]
        expected_gpus = max(expected_by_hour) * self.ahead / HOUR
        return nodes_for(nodes, view.demand + (1 + self.headroom) * expected_gpus)

    def until(self, time: float) -> float:
        """Return the time at which the present hour or the hour of the forecast ends [s]."""
        start = self._start or 0.0
        end_of_present = start + (self._hour(time) + 1) * HOUR
        end_of_forecast = start + (self._hour(time + self.ahead) + 1) * HOUR
        return min(end_of_present, end_of_forecast - self.ahead)

    def _hour(self, time: float) -> int:
        """Return the number of the hour that contains a time [s]."""
        start = self._start or 0.0
        return whole_number((time - start) / HOUR, slack(time) / HOUR)

    def _expected(self, hour: int) -> float:
        """Return the GPUs that the jobs of an hour are expected to request; 0 if no hour of this kind is over."""
        past_hours = self._requested[:-1]  # the present hour is not over
        means: list[float] = []
        for period in (DAY, WEEK):
            similar_hours = past_hours[hour % period :: period]
            if similar_hours:
                means.append(sum(similar_hours) / len(similar_hours))
        return sum(means) / len(means) if means else 0.0


class FirstJobOnly(Policy):
    """Give the first job all GPUs that it can use. The other jobs wait."""

    traits: ClassVar[Traits] = Traits(adaptive=True, needs_profiles=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the GPUs of the first job."""
        job = view.jobs[0]
        free = FreeGpus(view.gpus_per_node)
        gpus_up = free.total
        gpus = min(gpus_up, most_gpus(job))
        placement = free.pack_job(job, gpus) if gpus >= fewest_gpus(job) else None
        gpus_of_first = gpus if placement else 0
        numbers = {
            "gpus": float(gpus_of_first),
            "gpus_up": float(gpus_up),
            "gpus_free": float(gpus_up - gpus_of_first),
            "fewest_gpus": float(fewest_gpus(job)),
            "first_submitted": job.submit_time,
            **limit_numbers(job),
        }

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            submitted = {other.job_id: other.submit_time for other in view.jobs}
            reasons: dict[JobId, Reason] = {}
            for name in asked:
                if name != job.job_id:
                    reasons[name] = Reason(BEHIND_ONLY_JOB, numbers | {"submitted": submitted[name]}, (job.job_id,))
            return reasons

        return Decision({job.job_id: placement or ()}, explain=explain)


@dataclass(frozen=True)
class FirstJobUse(GoodputUse):
    """Request as many nodes as the first job uses well.

    The use of a number of nodes is the predicted goodput per GPU, over the goodput of one GPU alone.

    Source: Pollux (OSDI '21), §5.4.1.
    """

    def wanted(self, view: ClusterView, nodes: NodeCounts) -> int:
        """Return the number of nodes whose use is nearest to `aim`, if the present use is not within the bounds.

        If the use is within them or not known yet, return the present number, or what the job needs if that is more;
        without jobs, the present number. A use that is too high releases no nodes. One that is too low adds none,
        unless the job needs them.
        """
        if not view.jobs:
            return nodes.requested
        job = view.jobs[0]
        fewest = max(nodes_for(nodes, fewest_gpus(job)), nodes.least)
        model = job.goodput
        if model is None:
            return max(nodes.requested, fewest)
        goodput_alone = model.best(1, 1)[0]

        def use(count: int) -> float:
            """Return the goodput per GPU of `count` full nodes, over the goodput of one GPU."""
            gpus = nodes.gpus(count)
            return model.best(count, gpus)[0] / gpus / goodput_alone

        present_use = use(nodes.requested)
        if self.aim <= present_use <= self.grow_above:
            return max(nodes.requested, fewest)
        # The job cannot use more GPUs than its agent allows, so more nodes would be idle.
        counts = [count for count in range(fewest, nodes.most + 1) if nodes.gpus(count) <= most_gpus(job)]
        nearest = min(counts or [fewest], key=lambda count: abs(use(count) - self.aim))
        if present_use > self.grow_above:
            return max(nearest, nodes.requested)
        return min(nearest, max(nodes.requested, fewest))


class _ScaledForFirstJob(Scaled):
    def _for_largest(self, view: ClusterView, nodes: NodeCounts) -> int:
        return 0  # the rule counts the first job, and no other job runs


@takes_settings("policy")
@dataclass
class Autoscaler(Policy):
    """Give the first job all nodes, and change their number if the use is outside its bounds.

    Parameters
    ----------
    measure
        Quantity that determines the number of nodes and the batch sizes: `goodput`, or `throughput` as in the baseline.
    grow_above
        Use above which more nodes are requested, U in (0, 1].
    aim
        Target use, L in (0, U); below it nodes are released.

    Source: Pollux (OSDI '21), §5.4.1; its baseline is from Or et al. (MLSys '20).
    """

    measure: Annotated[str, OneOf(*MEASURES)] = "goodput"
    grow_above: float = 2 / 3
    aim: float = 0.5
    _scaled: Scaled = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_uses("policy", self.aim, self.grow_above)
        self._scaled = _ScaledForFirstJob(FirstJobOnly(), FirstJobUse(self.grow_above, self.aim), idle_time=0.0)

    @property
    def traits(self) -> Traits:
        """Return the traits. If agents maximise throughput, the models in the view of the policy do, too."""
        return Traits(
            adaptive=True,
            needs_profiles=True,
            maximises_throughput=self.measure == "throughput",
            one_type_as="it gives one job all nodes",
        )

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the GPUs for the first job, and the number of nodes to request."""
        decision = self._scaled.allocate(view, rng)
        explain = decision.explain
        if explain is None or decision.num_nodes is None:
            return decision
        nodes = {"num_nodes": float(decision.num_nodes)}

        def explain_with_nodes(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            reasons = explain(asked)
            return {name: reason._replace(numbers={**reason.numbers, **nodes}) for name, reason in reasons.items()}

        return replace(decision, explain=explain_with_nodes)
