"""Pools: on a cluster of several GPU types, each type has its own copy of a policy for one type.

`ByType` decides which pool a job is in: the pool where it would end first when it arrives, and another pool later if it
waits there while GPUs of that pool are idle. `PerType` has a copy of a policy for each pool.

Invariants: a job is in one pool; a running job never changes its pool.

The trap: the policy of a pool may preempt a job although GPUs of another pool are idle. The job can move there only at
the next decision, so this decision is then valid no longer than until now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.placements import Allocation, JobId, num_replicas
from polluxsim.policies.contract.policy import Allocates, Policy, QuotaRules, as_policy, traits_of
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.parts import DisjointParts, JobInPart, PerPart
from polluxsim.policies.tools.reason_kinds import was_preempted

PREEMPTED_ON_TYPE = ReasonKind(
    "preempted-on-type",
    "{first} takes the GPUs of this job. GPUs of another type are idle, and the job may move there at the next round.",
    meaning="A job loses its GPUs, and may move to idle GPUs of another type.",
    excuses_waiting=was_preempted,
)

# `pool_gpus` is the number of GPUs of the type, and its label is the type: the number is named "pool_gpus t4".
ON_TYPE = (
    "[ The policy decides about each GPU type on its own: this is about the {pool_gpus:GPU} of type {pool_gpus:label}."
    "[usable_types=1? The job fits on no other type that it may use."
    "|moved? The job moved here at {moved:clock}, because its type before had too few idle GPUs, and this type had "
    "enough."
    "|other_load? The job joined this type at its submission. The policy divides the speed on a type by the GPUs that "
    "jobs request for each of its GPUs (at least 1), and takes the largest. The speed here was {relative_speed:.3g} "
    "times that on {other_load:label}, and jobs requested {load:.3g} GPUs for each GPU here and {other_load:.3g} there."
    "|load? The job joined this type at its submission, because no node of its other types was available.]]"
)
"""Sentence on the GPU type of a job, if each type has its own copy of a policy."""


@lru_cache(1 << 10)
def _with_type(kind: ReasonKind) -> ReasonKind:
    """Return a kind of the policy of a type with a further sentence on the type."""
    # All numbers of a kind without a sentence are printed, so this one too.
    if not kind.sentence:
        return kind
    loads = dict.fromkeys(("load", "other_load"), "requested GPUs per GPU")
    units = {**kind.units, "pool_gpus": "GPUs", "usable_types": "types", "moved": "s", **loads}
    return replace(kind, sentence=kind.sentence + ON_TYPE, units=units)


def _stays_nowhere(job: JobView) -> bool:
    """Return that a job may move. A lambda could not be sent to another process."""
    return False


class ByType(DisjointParts):
    """Sends each job to the pool of one GPU type, as in a system with a partition for each type.

    A new job is sent to the type with the largest speed / max(1, demand / GPUs), where the demand includes the job. A
    waiting job that does not fit on the idle GPUs of its type moves to the fastest type that has enough spare GPUs, if
    the same rule prefers that type. In a pool, the speed, goodput and oracle of a job are those for the type.

    Parameters
    ----------
    quota_rules
        Quotas: a job is sent to no type on which its queue can never hold enough GPUs. By default there are none.
    stays
        Function that returns whether a job stays in its pool while it waits. By default, no job does.
    """

    def __init__(
        self, quota_rules: QuotaRules | None = None, stays: Callable[[JobView], bool] = _stays_nowhere
    ) -> None:
        super().__init__()
        self._stays = stays
        self._quota_rules = quota_rules
        self._taken_over: set[JobId] = set()  # jobs that another policy started, before a fork
        self._why: dict[JobId, dict[str, float]] = {}  # why each job is on its type, as numbers of a reason
        self._moves_next = False  # whether a job that was preempted could move at the next round

    def nodes(self, view: ClusterView) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes of each type, by its name."""
        if view.node_types:
            return view.node_types.nodes
        return {name: view.nodes_of(name) for name in view.types}

    def shown(self, view: ClusterView, job: JobView, part: str) -> JobInPart:
        """Return a job with its speed, goodput and oracle on a type."""
        return JobInPart(job, part, (part,), part)

    def placed(self, view: ClusterView, new: Sequence[JobView]) -> Mapping[JobId, str]:
        """Return the type of each new job, by the name of the job."""
        type_of_job: dict[JobId, str] = {}
        demand = self._demand(view)
        num_gpus = {name: view.gpus_of(name) for name in view.types}
        self._why = {job_id: numbers for job_id, numbers in self._why.items() if job_id in self._jobs}
        for job in new:
            if job.placement:
                self._taken_over.add(job.job_id)
                gpu_type = view.type_of(job.placement)
            else:
                gpu_type = self._soonest(job, demand, num_gpus)
                self._why[job.job_id] = self._numbers(job, gpu_type, demand, num_gpus)
            # The next job finds this one in the pool.
            demand[gpu_type] += self._gpus_for(job)
            type_of_job[job.job_id] = gpu_type
        return type_of_job

    def moved(self, view: ClusterView) -> Sequence[tuple[JobId, str, str]]:
        """Return the waiting jobs that move to other pools, with their types before and after."""
        # Only these events, and a preemption in the last decision, let jobs move.
        if not (view.changes.jobs_or_nodes or self._moves_next):
            return ()
        self._moves_next = False
        late_jobs, spare = self._late_jobs(view)
        demand = self._demand(view)
        moves: list[tuple[JobId, str, str]] = []
        for job in late_jobs:
            before = self.of(job.job_id)
            gpus = job.num_replicas
            load = max(demand[before] / max(view.gpus_of(before), 1), 1.0)
            speed_here = sort_key(job.speeds[before] / load)
            better_types = []
            for name in self._others(job):
                # The job would start there at once, so its speed there is divided by no load.
                if gpus <= spare[name] and sort_key(job.speeds[name]) > speed_here:
                    better_types.append(name)
            if better_types:
                after = max(better_types, key=job.speeds.__getitem__)
                demand[before] -= gpus
                demand[after] += gpus
                spare[before] += gpus
                spare[after] -= gpus
                moves.append((job.job_id, before, after))
                self._why[job.job_id] = {"moved": view.time}
        return moves

    def _late_jobs(self, view: ClusterView) -> tuple[list[JobView], dict[str, int]]:
        """Return the waiting jobs that do not fit in their pools, and the spare GPUs of each type.

        Spare GPUs are idle, and no waiting job of the pool needs them. The number is negative in a pool with too few.
        """
        idle: dict[str, int] = {}
        for name in view.types:
            idle[name] = sum([view.free[node] for node in view.nodes_of(name)])
        spare = dict(idle)
        late_jobs: list[JobView] = []
        for job in view.waiting:
            name = self.of(job.job_id)
            gpus = job.num_replicas
            spare[name] -= gpus
            if gpus <= idle[name]:
                idle[name] -= gpus
            else:
                late_jobs.append(job)
        return late_jobs, spare

    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return one decision for the cluster, with the reasons of jobs that may move at the next round."""
        decision = super().merge(view, decisions)
        reasons_of_preempted = self.preempted(view, decision)

        def explain(asked: Sequence[JobId]) -> Mapping[JobId, Reason]:
            reasons: dict[JobId, Reason] = {}
            not_preempted = []
            for job_id in asked:
                if job_id in reasons_of_preempted:
                    reasons[job_id] = reasons_of_preempted[job_id]
                else:
                    not_preempted.append(job_id)
            if decision.explain is None:
                return reasons
            for job_id, reason in decision.explain(not_preempted).items():
                gpu_type = self.of(job_id)
                numbers = {**reason.numbers, f"pool_gpus {gpu_type}": view.gpus_of(gpu_type)}
                numbers |= self._why.get(job_id, {})
                reasons[job_id] = Reason(_with_type(reason.kind), numbers, reason.others)
            return reasons

        # Decide again at the next round, when the preempted jobs may move.
        valid_until = view.time if reasons_of_preempted else decision.valid_until
        return replace(decision, valid_until=valid_until, explain=explain)

    def preempted(self, view: ClusterView, decision: Decision) -> dict[JobId, Reason]:
        """Return reasons of the jobs that a decision preempts although GPUs of another type are idle.

        These jobs may move at the next round, which is recorded. A reason names the jobs on the type, those that get
        other GPUs than before first.
        """
        allocation = decision.allocation
        losers = [job for job in view.running if allocation.get(job.job_id) == ()]
        # The usual case, in which no further job is read.
        if not losers:
            return {}
        placed = {job_id: placement for job_id, placement in allocation.items() if placement}
        before = {job.job_id: job.placement for job in view.running}
        free = FreeGpus(view.gpus_per_node)
        for placement in placed.values():
            free.take(placement)
        for job_id, placement in before.items():
            if job_id not in allocation:
                free.take(placement)

        def gets_no_new_gpus(job_id: JobId) -> bool:
            return set(placed[job_id]) <= set(before.get(job_id, ()))

        takers = sorted(placed, key=gets_no_new_gpus)
        reasons: dict[JobId, Reason] = {}
        for job in losers:
            gpu_type = self.of(job.job_id)
            takers_on_type = tuple(name for name in takers if name in self._jobs and self.of(name) == gpu_type)
            may_move = any(free.on(view.nodes_of(name)) >= job.num_replicas for name in self._others(job))
            if takers_on_type and may_move:
                reasons[job.job_id] = Reason(PREEMPTED_ON_TYPE, {}, takers_on_type)
        self._moves_next = bool(reasons)
        return reasons

    def _demand(self, view: ClusterView) -> dict[str, int]:
        """Return the GPUs for the jobs of each pool."""
        demand = dict.fromkeys(view.types, 0)
        for job in view.jobs:
            if job.job_id in self._jobs:
                demand[self.of(job.job_id)] += self._gpus_for(job)
        return demand

    def _gpus_for(self, job: JobView) -> int:
        """Return the GPUs that a job requests, or those that it holds since before a fork from another policy."""
        present_gpus = num_replicas(job.placement) if job.job_id in self._taken_over else 0
        return present_gpus or job.num_replicas

    def _usable(self, job: JobView) -> Sequence[str]:
        """Return the types that a job may use; if it may use no type, return all types that it can use."""
        usable = list(job.speeds)
        rules = self._quota_rules
        if rules is None:
            return usable
        allowed = [name for name in usable if rules.can_ever_hold(job, name)]
        # A job that may use no type is in a pool too, and waits there.
        return allowed or usable

    def _others(self, job: JobView) -> list[str]:
        """Return the types to whose pools a waiting job may move."""
        if self._stays(job):
            return []
        return [name for name in self._usable(job) if name != self.of(job.job_id)]

    def _soonest(self, job: JobView, demand: Mapping[str, int], num_gpus: Mapping[str, int]) -> str:
        """Return the type on which a job would end first; a type whose nodes are all down comes last.

        `demand` are the GPUs for the jobs of each type, without this job, and `num_gpus` all GPUs of each type.
        """

        def speed_beside_others(name: str) -> float:
            # A pool that is not full does not make a job faster than it is alone.
            return sort_key(job.speeds[name] / max(_load(job, name, demand, num_gpus), 1.0))

        return max(self._usable(job), key=speed_beside_others)

    def _numbers(
        self, job: JobView, name: str, demand: Mapping[str, int], num_gpus: Mapping[str, int]
    ) -> dict[str, float]:
        """Return why a job joins a type, as numbers of a reason: its own load, and that of the next best type."""
        usable = self._usable(job)
        numbers = {"usable_types": float(len(usable))}
        load = _load(job, name, demand, num_gpus)
        if load == inf:
            return numbers
        numbers["load"] = load
        others = [other for other in usable if other != name and num_gpus[other]]
        if others:
            other = max(others, key=lambda other: job.speeds[other] / max(_load(job, other, demand, num_gpus), 1.0))
            numbers[f"other_load {other}"] = _load(job, other, demand, num_gpus)
            numbers["relative_speed"] = job.speeds[name] / job.speeds[other]
        return numbers


def _load(job: JobView, name: str, demand: Mapping[str, int], num_gpus: Mapping[str, int]) -> float:
    """Return the GPUs that jobs request for each GPU of a type if a job joins it; ∞ if no GPU of the type is up."""
    if not num_gpus[name]:
        return inf
    return (demand[name] + job.num_replicas) / num_gpus[name]


class PerType(PerPart):
    """A policy that has a copy of a policy for one GPU type for each type of a cluster.

    On a cluster of one type, the policy itself decides. A run wraps a policy with the trait `per_type` by itself.

    Parameters
    ----------
    policy
        A policy that needs only the jobs and GPUs in its view. A policy that adds up values over the whole cluster
        uses `ByType` itself.
    """

    def __init__(self, policy: Allocates) -> None:
        adapted = as_policy(policy)
        super().__init__(adapted, ByType(adapted.quota_rules, adapted.stays_on_type))

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy, which is prepared for several types now."""
        return replace(super().traits, per_type=False)

    def copy_for(self, part: str, view: ClusterView) -> Policy:
        """Return the policy for a type."""
        return self.wrapped.on_type(part, view.types)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Let each copy decide about its type."""
        if len(view.types) == 1:
            return self.wrapped.allocate(view, rng)
        return super().allocate(view, rng)


def prepared_for_types(policy: Allocates) -> Policy:
    """Return a policy that can decide about several GPU types: `PerType` of a policy with the trait `per_type`."""
    adapted = as_policy(policy)
    if traits_of(adapted).per_type:
        return PerType(adapted)
    return adapted
