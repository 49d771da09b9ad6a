"""A pool of GPUs of each type of a cluster, with a policy of its own, for policies that know one pool."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce, wraps
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.policies.contract.view import Decision, JobProxy, decision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    import numpy as np

    from polluxsim.hardware.placements import Allocation, JobId, Placement
    from polluxsim.models.goodput import Goodput
    from polluxsim.policies.contract.view import ClusterView, JobView, Oracle, Policy, Reason

    MayUse: TypeAlias = Callable[[JobView, str], bool]

Given = TypeVar("Given", bound=type[Any])


class JobOnType(JobProxy):
    """A job in the pool of a GPU type. Its speed, goodput and oracle are those of the type."""

    __slots__ = ("_oracles",)

    def __init__(self, job: JobView, gpu_type: str) -> None:
        super().__init__(job, gpu_type=gpu_type)
        object.__setattr__(self, "_oracles", None)

    @property
    def oracle(self) -> Oracle:
        """Return the oracle on the type."""
        if self._oracles is None or self._oracles[0] is not self.job.oracle:
            object.__setattr__(self, "_oracles", (self.job.oracle, self.job.oracle.on(self.gpu_type)))
        return self._oracles[1]

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return the speed on the type."""
        return {self.gpu_type: self.job.speeds[self.gpu_type]}

    @property
    def goodput(self) -> Goodput | None:
        """Return the goodput on the type."""
        return self.job.goodputs[self.gpu_type]

    def __repr__(self) -> str:
        return f"{self.job!r} on {self.gpu_type}"


class Pools:
    """Sends each job to the pool of one GPU type of the cluster.

    When it comes, it goes where it would be soonest done if all jobs of the pool shared its GPUs in proportion to what
    they ask for: to the type with the largest speed / max(1, demand / GPUs), its own demand counted; to the first of
    equals. While it has no GPUs, as too few of its type are idle, it goes on to the fastest type that has enough to
    spare, if it would be sooner done there by the same rule. So it is in a system with a partition for each type, of
    which users name several.

    `may_use` says whether a job may have GPUs of a type, beside what it can use: by default it may. Where `jobs_stay`,
    those without GPUs stay where they were sent.
    """

    def __init__(self, may_use: MayUse | None = None, *, jobs_stay: bool = False) -> None:
        self._may_use = may_use
        self._jobs_stay = jobs_stay
        self._seen: dict[JobId, JobOnType] = {}
        self._types: dict[str, NodeTypes] = {}

    def views(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return what each pool is to its policy: a cluster on which all other nodes are down."""
        gone = [(job, self.of(job), end) for job, end in view.changes.ended.items() if job in self._seen]
        ended = {name: {job: end for job, pool, end in gone if pool == name} for name in view.types}
        arrived: dict[str, list[JobId]] = {name: [] for name in view.types}
        self._send(view)
        for job in view.changes.arrived:
            arrived[self.of(job.job_id)].append(job.job_id)
        changes = view.changes
        if not self._jobs_stay and changes.jobs_or_nodes:
            for name, before, after in list(self._sent_on(view)):
                # One that has just come was never in the pool it was sent to first.
                if name in arrived[before]:
                    arrived[before].remove(name)
                else:
                    ended[before][name] = view.time
                arrived[after].append(name)
        return {name: self._view(view, name, arrived[name], ended[name]) for name in view.types}

    def of(self, job_id: JobId) -> str:
        """Return the type whose pool a job is in."""
        return self._seen[job_id].gpu_type

    def seen(self, jobs: Iterable[JobView], name: str) -> list[JobView]:
        """Return those of some jobs that are in a pool, as its policy sees them, in their order."""
        return [self._seen[job.job_id] for job in jobs if self.of(job.job_id) == name]

    def _send(self, view: ClusterView) -> None:
        """Send jobs that are new, and see to it that all are shown as they are now."""
        for job in view.jobs:
            if (seen := self._seen.get(job.job_id)) is not None and seen.job is not job:
                self._seen[job.job_id] = JobOnType(job, seen.gpu_type)
        new = [job for job in view.jobs if job.job_id not in self._seen]
        demand = self._demand(view) if new else {}
        gpus = {name: view.gpus_of(name) for name in view.types} if new else {}
        for job in new:
            name = view.type_of(job.placement) if job.placement else self._soonest(job, demand, gpus)
            demand[name] += job.num_replicas
            self._seen[job.job_id] = JobOnType(job, name)
        if len(self._seen) > len(view.jobs):
            self._seen = {job.job_id: self._seen[job.job_id] for job in view.jobs}

    def _demand(self, view: ClusterView) -> dict[str, int]:
        """Return the GPUs that the jobs of each pool ask for."""
        demand = dict.fromkeys(view.types, 0)
        for job in view.jobs:
            if job.job_id in self._seen:
                demand[self.of(job.job_id)] += job.num_replicas
        return demand

    def _usable(self, job: JobView) -> Sequence[str]:
        """Return the types that a job may have; all that it can use where it may have none of these."""
        allowed = [name for name in job.speeds if self._may_use is None or self._may_use(job, name)]
        return allowed or list(job.speeds)

    def _soonest(self, job: JobView, demand: Mapping[str, int], gpus: Mapping[str, int]) -> str:
        """Return the type on which a job would be soonest done; one without a GPU that is up comes last."""

        def worth(name: str) -> float:
            load = (demand[name] + job.num_replicas) / gpus[name] if gpus[name] else inf
            return job.speeds[name] / max(load, 1.0)

        return max(self._usable(job), key=worth)

    def _sent_on(self, view: ClusterView) -> Iterator[tuple[JobId, str, str]]:
        """Send on the jobs that wait where too few GPUs are idle; yield each, with the types before and after."""
        idle = {name: sum(view.free[node] for node in view.nodes_of(name)) for name in view.types}
        spare, demand = dict(idle), self._demand(view)
        late: list[JobView] = []
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
            others = [
                name
                for name in self._usable(job)
                if name != before and gpus <= spare[name] and job.speeds[name] > job.speeds[before] / load
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
        nodes = set(view.nodes_of(name))
        sizes = [gpus if node in nodes else 0 for node, gpus in enumerate(view.gpus_per_node)]
        jobs = {job_id: job for job_id, job in self._seen.items() if job.gpu_type == name}
        changes = view.changes.among(jobs, arrived=[self._seen[job_id] for job_id in arrived], ended=ended)
        node_types = self._types.setdefault(name, NodeTypes([view.types[name]] * len(sizes)))
        free = [gpus if node in nodes else 0 for node, gpus in enumerate(view.free)]
        return view.part(sizes, jobs, changes, nodes=nodes, node_types=node_types, free=free)


def together(view: ClusterView, pools: Pools, made: Mapping[str, Decision]) -> Decision:
    """Return one decision for the cluster of those for its pools, by type."""
    allocation: dict[JobId, Placement] = {}
    for name, decision in made.items():
        allocation |= decision.allocation
        if not decision.others_keep:
            held = (job.job_id for job in view.running if pools.of(job.job_id) == name)
            stay = decision.allocation.keys() | decision.shared.keys()
            allocation |= {job_id: () for job_id in held if job_id not in stay}
    rejected = [job_id for decision in made.values() for job_id in decision.rejected]

    def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
        reasons: dict[JobId, Reason] = {}
        for name, decision in made.items():
            if decision.explain is not None and (mine := [job_id for job_id in asked if pools.of(job_id) == name]):
                reasons |= decision.explain(mine)
        return reasons

    return Decision(
        allocation,
        others_keep=True,
        shared={job_id: gpus for decision in made.values() for job_id, gpus in decision.shared.items()},
        rejected=rejected,
        valid_until=min(decision.valid_until for decision in made.values()),
        outdated_by=reduce(or_, (decision.outdated_by for decision in made.values())),
        explain=explain,
    )


class PolicyPerType:
    """A policy of one kind for each GPU type of a cluster.

    The policy given was not asked yet. It may have a method `on_type`, which returns the policy for a type, by name, of
    those of a cluster; else each is a copy of it. `may_use` and `jobs_stay` are as of `Pools`, where it has them.
    """

    def __init__(self, policy: Policy, view: ClusterView) -> None:
        on_type = getattr(policy, "on_type", lambda name, types: deepcopy(policy))
        self._policies: dict[str, Policy] = {name: on_type(name, view.types) for name in view.types}
        self._pools = Pools(getattr(policy, "may_use", None), jobs_stay=getattr(policy, "jobs_stay", False))

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Ask each of them about its pool."""
        made = dict[str, Decision]()
        for name, part in self._pools.views(view).items():
            made[name] = decision_of(self._policies[name].allocate(part, rng))
        return together(view, self._pools, made)


def pool_per_type(policy: Given) -> Given:
    """Let a class of policies that know one pool of GPUs decide on clusters of several types: for each by itself.

    On a cluster of one type nothing changes. It is for policies whose every decision is about the jobs and GPUs that
    they see; one that counts something over the whole cluster asks `Pools` itself.
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
            object.__setattr__(self, "_per_type", per_type)  # of frozen policies, too
        return per_type.allocate(view, rng)

    policy.allocate = allocate
    return policy
