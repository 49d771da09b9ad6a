"""Several GPU types for policies that know one pool of GPUs: each type is a pool, with a policy of its own."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import reduce, wraps
from math import inf
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar, cast

from polluxsim.gpu_types import NodeTypes
from polluxsim.policies.view import Changes, Decision, Health, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from polluxsim.models.goodput import Goodput
    from polluxsim.policies.view import ClusterView, JobView, Oracle, Policy, Reason
    from polluxsim.types import Allocation, JobId, Placement

Given = TypeVar("Given", bound=type[Any])


class JobOnType:
    """A `JobView` of a job that is in the pool of a GPU type: what it shows of types is of that one.

    Parameters
    ----------
    job
        The job as it is seen on the whole cluster.
    gpu_type
        The type, by name.
    """

    __slots__ = ("_gpu_type", "_oracles", "job")

    def __init__(self, job: JobView, gpu_type: str) -> None:
        self.job = job
        self._gpu_type = gpu_type
        self._oracles: tuple[Oracle, Oracle] | None = None

    @property
    def oracle(self) -> Oracle:
        """Return the truth on the type."""
        if self._oracles is None or self._oracles[0] is not self.job.oracle:
            self._oracles = self.job.oracle, self.job.oracle.on(self._gpu_type)
        return self._oracles[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> JobOnType:
        return JobOnType(deepcopy(self.job, memo), self._gpu_type)

    def __repr__(self) -> str:
        return f"{self.job!r} on {self._gpu_type}"

    @property
    def speeds(self) -> Mapping[str, float]:
        """Return its speed on the type."""
        return {self._gpu_type: self.job.speeds[self._gpu_type]}

    @property
    def goodput(self) -> Goodput | None:
        """Return what its agent knows of the type."""
        return self.job.goodputs[self._gpu_type]


class Pools:
    """Sends each job, when it comes, to the pool of one GPU type of the cluster, where it stays.

    It goes where it would be soonest done if all jobs of the pool shared its GPUs in proportion to what they ask for:
    to the type with the largest speed / max(1, demand / GPUs), its own demand counted; to the first of equals. So it is
    in a system with a partition for each type.
    """

    def __init__(self) -> None:
        self._pool: dict[JobId, str] = {}
        self._seen: dict[JobId, JobOnType] = {}
        self._types: dict[str, NodeTypes] = {}

    def views(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return what each pool is to its policy: a cluster on which all other nodes are down."""
        ended = {name: [job for job in view.changes.ended if self._pool.get(job) == name] for name in view.types}
        self._send(view)
        return {name: self._view(view, name, ended[name]) for name in view.types}

    def of(self, job_id: JobId) -> str:
        """Return the type whose pool a job is in."""
        return self._pool[job_id]

    def seen(self, jobs: Iterable[JobView], name: str) -> list[JobView]:
        """Return those of some jobs that are in a pool, as its policy sees them, in their order."""
        here = (self._seen[job.job_id] for job in jobs if self._pool[job.job_id] == name)
        return [cast("JobView", job) for job in here]

    def _send(self, view: ClusterView) -> None:
        """Send jobs that are new, and see to it that all are shown as they are now."""
        new: list[JobView] = []
        demand = dict.fromkeys(view.types, 0)
        for job in view.jobs:
            if (name := self._pool.get(job.job_id)) is None:
                new.append(job)
                continue
            demand[name] += job.num_replicas
            self._seen[job.job_id].job = job
        gpus = {name: view.gpus_of(name) for name in view.types} if new else {}
        for job in new:
            name = view.type_of(job.placement) if job.placement else _soonest(job, demand, gpus)
            demand[name] += job.num_replicas
            self._pool[job.job_id] = name
            self._seen[job.job_id] = JobOnType(job, name)
        if len(self._pool) > len(view.jobs):
            self._pool = {job.job_id: self._pool[job.job_id] for job in view.jobs}
            self._seen = {job_id: self._seen[job_id] for job_id in self._pool}

    def _view(self, view: ClusterView, name: str, ended: Sequence[JobId]) -> ClusterView:
        nodes = set(view.nodes_of(name))
        there = tuple(gpus if node in nodes else 0 for node, gpus in enumerate(view.gpus_per_node))
        jobs = self.seen(view.jobs, name)
        mine = {job.job_id for job in jobs}
        return replace(
            view,
            gpus_per_node=there,
            jobs=jobs,
            changes=self._changes(view.changes, name, mine, ended),
            standing=Standing(
                self.seen(view.running, name),
                self.seen(view.waiting, name),
                [gpus if node in nodes else 0 for node, gpus in enumerate(view.free)],
                sum(job.num_replicas for job in jobs),
            ),
            health=Health(
                tuple(node for node in view.health.down if node in nodes),
                view.health.num_failures,
                tuple((node, time) for node, time in view.health.coming if node in nodes),
            ),
            node_types=self._types.setdefault(name, NodeTypes([view.types[name]] * len(there))),
            shared={job_id: gpus for job_id, gpus in view.shared.items() if job_id in mine},
            shared_speeds={job_id: speed for job_id, speed in view.shared_speeds.items() if job_id in mine},
        )

    def _changes(self, changes: Changes, name: str, mine: set[JobId], ended: Sequence[JobId]) -> Changes:
        def of(names: Iterable[JobId]) -> list[JobId]:
            return [job_id for job_id in names if job_id in mine]

        return Changes(
            self.seen(changes.arrived, name),
            ended,
            of(changes.passed_epoch),
            of(changes.learnt),
            changes.nodes,
            of(changes.evicted),
        )


def _soonest(job: JobView, demand: Mapping[str, int], gpus: Mapping[str, int]) -> str:
    """Return the type on which a job would be soonest done; one without a GPU that is up comes last."""

    def worth(name: str) -> float:
        load = (demand[name] + job.num_replicas) / gpus[name] if gpus[name] else inf
        return job.speeds[name] / max(load, 1.0)

    return max(job.speeds, key=worth)


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

    Parameters
    ----------
    policy
        One that was not asked yet. Where it has a method `on_type`, that returns the policy for a type, by name, of a
        cluster; else each is a copy of it.
    view
        The cluster.
    """

    def __init__(self, policy: Policy, view: ClusterView) -> None:
        on_type = getattr(policy, "on_type", lambda name, types: deepcopy(policy))
        self._policies: dict[str, Policy] = {name: on_type(name, view.types) for name in view.types}
        self._pools = Pools()

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Ask each of them about its pool."""
        made = dict[str, Decision]()
        for name, part in self._pools.views(view).items():
            answer = self._policies[name].allocate(part, rng)
            made[name] = answer if isinstance(answer, Decision) else Decision(answer)
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
