"""Pools: on a cluster of several GPU types, each type has its own copy of a policy for one type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import reduce, wraps
from itertools import chain
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import Allocation, JobId, Placement, num_replicas
from polluxsim.policies.contract.view import (
    ClusterView,
    Decision,
    JobProxy,
    JobView,
    Oracle,
    Policy,
    Reason,
    decision_of,
)
from polluxsim.policies.tools.free_gpus import FreeGpus

if TYPE_CHECKING:
    from polluxsim.models.goodput import GoodputModel


MayUse: TypeAlias = Callable[[JobView, str], bool]  # whether a job may get GPUs of a type

PolicyClass = TypeVar("PolicyClass", bound=type[Any])


class JobOnType(JobProxy):
    """A job in the pool of a GPU type. Its speed, goodput and oracle are those for the type."""

    __slots__ = ("_oracle", "_oracle_on_type")
    gpu_type: str
    _oracle: Oracle | None
    _oracle_on_type: Oracle

    def __init__(self, job: JobView, gpu_type: str) -> None:
        super().__init__(job, gpu_type=gpu_type)
        object.__setattr__(self, "_oracle", None)

    @property
    def oracle(self) -> Oracle:
        """Return the oracle on the type. It is made when it is first read."""
        if self._oracle is not self.job.oracle:
            object.__setattr__(self, "_oracle", self.job.oracle)
            object.__setattr__(self, "_oracle_on_type", self.job.oracle.on(self.gpu_type))
        return self._oracle_on_type

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return the speed on the type."""
        return {self.gpu_type: self.job.speeds[self.gpu_type]}

    @property
    def goodput(self) -> GoodputModel | None:
        """Return the goodput on the type."""
        return cast("GoodputModel | None", self.job.goodputs[self.gpu_type])

    def __repr__(self) -> str:
        return f"{self.job!r} on {self.gpu_type}"


class Pools:
    """Sends each job to the pool of one GPU type, as in a system with a partition for each type.

    A new job is sent to the type with the largest speed / max(1, demand / GPUs), where the demand includes the job. A
    waiting job that does not fit on the idle GPUs of its type moves to the fastest type that has enough spare GPUs, if
    the same rule prefers that type.

    `may_use` returns whether a job may get GPUs of a type; by default it may use all types that it can. `stays` returns
    whether a job stays in the pool to which it was sent while it waits; by default no job does.
    """

    def __init__(self, may_use: MayUse | None = None, stays: Callable[[JobView], bool] | None = None) -> None:
        self._may_use = may_use
        self._stays = stays
        self._seen: dict[JobId, JobOnType] = {}  # each job as the policy of its pool sees it
        self._taken_over: set[JobId] = set()  # jobs that another policy started, before a fork
        self._types: dict[str, NodeTypes] = {}  # node types of each pool
        self._moves_next = False  # whether a job that was preempted could move at the next round

    def views(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return the view of each pool. In it, the nodes of other types have no GPUs."""
        ended: dict[str, dict[JobId, float]] = {name: {} for name in view.types}
        arrived: dict[str, list[JobId]] = {name: [] for name in view.types}
        for job_id, end in view.changes.ended.items():
            if job_id in self._seen:
                ended[self.of(job_id)][job_id] = end
        self._send(view)
        for job in view.changes.arrived:
            arrived[self.of(job.job_id)].append(job.job_id)
        if view.changes.jobs_or_nodes or self._moves_next:
            self._moves_next = False
            for job_id, before, after in list(self._moved(view)):
                if job_id in arrived[before]:  # the policy of that pool has not seen the job
                    arrived[before].remove(job_id)
                else:
                    ended[before][job_id] = view.time
                arrived[after].append(job_id)
        return {name: self._view(view, name, arrived[name], ended[name]) for name in view.types}

    def of(self, job_id: JobId) -> str:
        """Return the type of the pool that contains a job."""
        return self._seen[job_id].gpu_type

    def seen(self, jobs: Iterable[JobView], name: str) -> list[JobView]:
        """Return the jobs of a pool in the view of its policy, in their order."""
        return [self._seen[job.job_id] for job in jobs if self.of(job.job_id) == name]

    def preempted(self, view: ClusterView, decision: Decision) -> dict[JobId, Reason]:
        """Return reasons of the jobs that a decision preempts although GPUs of another type are idle.

        These jobs may move at the next round.

        Kind: `preempted-on-type`, with the jobs on the type, those that get other GPUs than before first.
        """
        placed = {job: placement for job, placement in decision.allocation.items() if placement}
        lost = [job for job in view.running if decision.allocation.get(job.job_id) == ()]
        if not lost:
            return {}
        free = FreeGpus(view.gpus_per_node)
        before = {job.job_id: job.placement for job in view.running}
        held = {name: placement for name, placement in before.items() if name not in decision.allocation}
        for placement in (held | placed).values():
            free.take(placement)
        order = sorted(placed, key=lambda name: set(placed[name]) <= set(before.get(name, ())))
        reasons: dict[JobId, Reason] = {}
        for job in lost:
            mine = self.of(job.job_id)
            takers = tuple(name for name in order if name in self._seen and self.of(name) == mine)
            if takers and any(free.on(view.nodes_of(name)) >= job.num_replicas for name in self._others(job)):
                reasons[job.job_id] = Reason("preempted-on-type", {}, takers)
        self._moves_next = bool(reasons)
        return reasons

    def _send(self, view: ClusterView) -> None:
        """Send new jobs to pools, and forget jobs that ended."""
        for job in view.jobs:
            if (seen := self._seen.get(job.job_id)) is not None and seen.job is not job:
                self._seen[job.job_id] = JobOnType(job, seen.gpu_type)
        new = [job for job in view.jobs if job.job_id not in self._seen]
        demand = self._demand(view) if new else {}
        gpus = {name: view.gpus_of(name) for name in view.types} if new else {}
        for job in new:
            if job.placement:
                self._taken_over.add(job.job_id)
            name = view.type_of(job.placement) if job.placement else self._soonest(job, demand, gpus)
            demand[name] += self._gpus_for(job)
            self._seen[job.job_id] = JobOnType(job, name)
        if len(self._seen) > len(view.jobs):
            self._seen = {job.job_id: self._seen[job.job_id] for job in view.jobs}

    def _demand(self, view: ClusterView) -> dict[str, int]:
        """Return the GPUs for the jobs of each pool."""
        demand = dict.fromkeys(view.types, 0)
        for job in view.jobs:
            if job.job_id in self._seen:
                demand[self.of(job.job_id)] += self._gpus_for(job)
        return demand

    def _gpus_for(self, job: JobView) -> int:
        """Return the GPUs that a job requests, or those that it holds since before a fork from another policy."""
        held = num_replicas(job.placement) if job.job_id in self._taken_over else 0
        return held or job.num_replicas

    def _usable(self, job: JobView) -> Sequence[str]:
        """Return the types that a job may use; if it may use no type, return all types that it can use."""
        allowed = [name for name in job.speeds if self._may_use is None or self._may_use(job, name)]
        return allowed or list(job.speeds)

    def _others(self, job: JobView) -> list[str]:
        """Return the types to whose pools a waiting job may move."""
        if self._stays is not None and self._stays(job):
            return []
        return [name for name in self._usable(job) if name != self.of(job.job_id)]

    def _soonest(self, job: JobView, demand: Mapping[str, int], gpus: Mapping[str, int]) -> str:
        """Return the type on which a job would end first; a type whose nodes are all down comes last."""

        def worth(name: str) -> float:
            load = (demand[name] + job.num_replicas) / gpus[name] if gpus[name] else inf
            return sort_key(job.speeds[name] / max(load, 1.0))

        return max(self._usable(job), key=worth)

    def _moved(self, view: ClusterView) -> Iterator[tuple[JobId, str, str]]:
        """Move waiting jobs to other pools; yield the name of each, with its types before and after."""
        idle = {name: sum(view.free[node] for node in view.nodes_of(name)) for name in view.types}
        spare, demand = dict(idle), self._demand(view)  # `spare` GPUs are idle, and no job of the pool needs them
        late: list[JobView] = []  # jobs that do not fit in their pools
        for job in view.waiting:
            name, gpus = self.of(job.job_id), job.num_replicas
            spare[name] -= gpus
            if gpus <= idle[name]:
                idle[name] -= gpus
            else:
                late.append(job)
        for job in late:
            before, gpus = self.of(job.job_id), job.num_replicas
            load = max(demand[before] / max(view.gpus_of(before), 1), 1.0)
            speed_here = sort_key(job.speeds[before] / load)
            others = [
                name for name in self._others(job) if gpus <= spare[name] and sort_key(job.speeds[name]) > speed_here
            ]
            if others:
                after = max(others, key=job.speeds.__getitem__)
                demand[before] -= gpus
                demand[after] += gpus
                spare[before] += gpus
                spare[after] -= gpus
                self._seen[job.job_id] = JobOnType(job, after)
                yield job.job_id, before, after

    def _view(
        self, view: ClusterView, name: str, arrived: Sequence[JobId], ended: Mapping[JobId, float]
    ) -> ClusterView:
        """Return the view of the pool of a type, with its jobs that arrived and ended [s]."""
        nodes = set(view.nodes_of(name))
        sizes = [gpus if node in nodes else 0 for node, gpus in enumerate(view.gpus_per_node)]
        jobs = {job_id: job for job_id, job in self._seen.items() if job.gpu_type == name}
        changes = view.changes.among(jobs, arrived=[self._seen[job_id] for job_id in arrived], ended=ended)
        node_types = self._types.setdefault(name, NodeTypes([view.types[name]] * len(sizes)))
        free = [gpus if node in nodes else 0 for node, gpus in enumerate(view.free)]
        return view.part(sizes, jobs, changes, nodes=nodes, node_types=node_types, free=free)


def together(view: ClusterView, pools: Pools, decisions: Mapping[str, Decision]) -> Decision:
    """Return one decision for the cluster from the decisions for its pools, by type."""
    allocation: dict[JobId, Placement] = {}
    for name, decision in decisions.items():
        allocation |= decision.allocation
        if not decision.others_keep:
            held = (job.job_id for job in view.running if pools.of(job.job_id) == name)
            stay = decision.allocation.keys() | decision.shared.keys()
            allocation |= {job_id: () for job_id in held if job_id not in stay}
    made = decisions.values()

    def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
        reasons: dict[JobId, Reason] = {}
        for name, decision in decisions.items():
            if decision.explain is not None and (mine := [job_id for job_id in asked if pools.of(job_id) == name]):
                reasons |= decision.explain(mine)
        return reasons

    return Decision(
        allocation,
        others_keep=True,
        shared=dict(chain.from_iterable(decision.shared.items() for decision in made)),
        rejected=[job_id for decision in made for job_id in decision.rejected],
        valid_until=min(decision.valid_until for decision in made),
        outdated_by=reduce(or_, (decision.outdated_by for decision in made)),
        explain=explain,
        delays=dict(chain.from_iterable(decision.delays.items() for decision in made)),
    )


class PolicyPerType:
    """A copy of a policy for each GPU type of a cluster.

    A method `on_type(name, types)` of the policy returns its copy for a type. `may_use` and `stays` of the policy
    are those of `Pools`. The policy must not have decided before.
    """

    def __init__(self, policy: Policy, view: ClusterView) -> None:
        on_type = getattr(policy, "on_type", lambda name, types: deepcopy(policy))
        self._policies: dict[str, Policy] = {name: on_type(name, view.types) for name in view.types}
        self._pools = Pools(getattr(policy, "may_use", None), getattr(policy, "stays", None))

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let each copy decide about its pool."""
        parts = self._pools.views(view)
        made = {name: decision_of(self._policies[name].allocate(part, rng)) for name, part in parts.items()}
        decision = together(view, self._pools, made)
        if not (preempted := self._pools.preempted(view, decision)):
            return decision
        explain = decision.explain

        def with_preempted(asked: Sequence[JobId]) -> Mapping[JobId, Reason]:
            others = {} if explain is None else explain([job for job in asked if job not in preempted])
            return {**others, **{job: preempted[job] for job in asked if job in preempted}}

        return replace(decision, valid_until=view.time, explain=with_preempted)


def pool_per_type(policy: PolicyClass) -> PolicyClass:
    """Decorate a class of policies that know one GPU type, so that on several types a copy decides for each type.

    On a cluster of one type nothing changes. The decorator is for policies that need only the jobs and GPUs in their
    view. A policy that adds up values over the whole cluster uses `Pools` itself.
    """
    alone = policy.allocate

    @wraps(alone)
    def allocate(self: Any, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        if len(view.types) == 1:
            decision: Allocation | Decision = alone(self, view, rng)
            return decision
        per_type: PolicyPerType | None = self.__dict__.get("_per_type")
        if per_type is None:
            per_type = PolicyPerType(self, view)
            object.__setattr__(self, "_per_type", per_type)  # also for frozen policies
        return per_type.allocate(view, rng)

    policy.allocate = allocate
    return policy
