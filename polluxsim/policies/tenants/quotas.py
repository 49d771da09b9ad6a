"""Quotas: each queue owns GPUs, borrows idle GPUs of other queues, and takes its own GPUs back by preemption.

The policy decides which whole jobs run. This module has its parameters, their checks, and what it remembers: the times
at which jobs started. `polluxsim.policies.tenants.cohort` makes the decision, and proves that decisions end.

Invariants: a queue never holds more than its quota and its borrowing limit. No job within its quota waits while another
queue borrows GPUs that would make room for it, if `reclaim` is `any`.

Trap: on a cluster of several GPU types, each type has its own copy of the policy (`on_type`), with the quotas there.

Source: cohorts of Kueue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Any, TypeAlias

import numpy as np

from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.common.values import NonNegativeInt, OneOf, PositiveFloat
from polluxsim.common.written import Name, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Asking, Policy, QuotaRules
from polluxsim.policies.contract.settings import check_names, check_owners, values_of
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Traits
from polluxsim.policies.tenants.cohort import Cohort
from polluxsim.policies.tenants.terms import ANY, LOWER_PRIORITY, NEVER, Rules, Terms, most_gpus
from polluxsim.policies.tools.ledger import NO_QUEUE, Ledger, queue_of
from polluxsim.workloads.job import Job

ByQueue: TypeAlias = Mapping[Name, int | Mapping[Name, int]]  # GPUs of each queue, or of each GPU type of each queue


@takes_settings("policy")
@dataclass
class Quotas(Policy):
    """Start whole jobs within the quotas of their queues, and let queues borrow idle GPUs of other queues.

    In a queue, jobs start in order of priority and submission. A job that fits may overtake a job that does not fit. A
    job that does not fit may preempt jobs of its own queue with a lower priority. If the queue of a job holds less than
    its quota, the job may also preempt jobs of queues that exceed their quotas. Jobs of other queues are preempted
    first. Then the job with the lowest priority comes first, and among equal priorities the job that was admitted last.
    A job is spared if the new job fits without its preemption. Other queues do not preempt the first jobs of a queue,
    by priority and submission, that fit into its quota.

    A job that preempts to borrow GPUs must keep them: it does not preempt if another queue would then take back GPUs
    within its quota. Thus the jobs that run change only after an arrival, an end or a change of nodes.

    Parameters
    ----------
    gpus
        GPUs of each queue, by name; 0 for other queues. Jobs without a queue are in `none`. On a cluster of several
        GPU types, this parameter and the limits have the GPUs of each queue by type, as Kueue has quotas for each
        flavour of a resource. A queue owns no GPUs of a type that is left out.
    borrowing
        Whether queues may use idle GPUs of other queues.
    borrowing_limits
        Most GPUs that a queue may hold beyond its quota. Other queues, and other GPU types, have no limit.
    lending_limits
        Most GPUs of its quota that a queue lends. Other queues, and other GPU types, have no limit.
    within_queue
        Preemption in the own queue: `lower-priority` or `never`.
    reclaim
        Preemption of jobs of queues that hold more than their quotas: `any`, `lower-priority` or `never`.
    fair_sharing
        Whether queues that borrow share fairly: the queue with the smallest share comes first, and may preempt jobs of
        queues with larger shares. The share of a queue is its GPUs beyond its quota, over its weight. A preemption must
        make the shares fairer together with all starts and preemptions that follow: the largest share falls, or at a
        tie the next one.
    weights
        Weights of queues for fair sharing; other queues have weight 1.

    Source: cohorts of Kueue, without nested cohorts, `borrowWithinCohort` and `LowerOrNewerEqualPriority`. Kueue judges
    each preemption alone. The capacity queues of YARN and Volcano are similar.
    """

    gpus: Mapping[Name, NonNegativeInt | Mapping[Name, NonNegativeInt]] = field(default_factory=dict)
    borrowing: bool = True
    borrowing_limits: Mapping[Name, NonNegativeInt | Mapping[Name, NonNegativeInt]] = field(default_factory=dict)
    lending_limits: Mapping[Name, NonNegativeInt | Mapping[Name, NonNegativeInt]] = field(default_factory=dict)
    within_queue: Annotated[str, OneOf(LOWER_PRIORITY, NEVER)] = LOWER_PRIORITY
    reclaim: Annotated[str, OneOf(ANY, LOWER_PRIORITY, NEVER)] = ANY
    fair_sharing: bool = False
    weights: Mapping[Name, PositiveFloat] = field(default_factory=dict)
    _ledger: Ledger[str] = field(default_factory=Ledger, init=False, repr=False, compare=False)

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy, which depend on its rules of preemption."""
        never_preempts = self.within_queue == NEVER and self.reclaim == NEVER
        return Traits(never_preempts=never_preempts, keeps_shapes=True, per_type=True)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if the quotas have no effect.

        Raise an `InvalidConfigError` if a queue or GPU type does not exist, if the quotas exceed the cluster, or if no
        job could start.
        """
        queues = values_of(jobs, "queue", NO_QUEUE)
        for name, by_queue in self._by_queue():
            check_owners(f"policy.{name}", by_queue, jobs, "queue", NO_QUEUE)
            for queue, gpu_type, _ in _each(by_queue):
                if gpu_type:
                    check_names(f"policy.{name}.{queue}", [gpu_type], "GPU type", cluster.types)
        check_owners("policy.weights", self.weights, jobs, "queue", NO_QUEUE)
        self._check_sum(cluster)
        has_quota = any(gpus for queue, _, gpus in _each(self.gpus) if queue in queues)
        if not has_quota:
            if jobs and not self.borrowing:
                raise InvalidConfigError(
                    "policy.gpus gives GPUs to no queue of a job and policy.borrowing is false, so no job could start; "
                    f"give GPUs to queues, as policy.gpus={{{min(queues)}: {cluster.num_gpus}}}"
                )
            if self.fair_sharing or self.borrowing_limits:
                return ["policy.gpus gives GPUs to no queue of a job, so each job borrows"]
            return ["policy.gpus gives GPUs to no queue of a job, so each job borrows: a backfill without quotas"]
        is_one_class = len(queues) == 1 and len({job.priority for job in jobs}) == 1
        if self.borrowing and not self.borrowing_limits and is_one_class:
            return [f"all jobs are in queue {min(queues)!r}, so no job is preempted and its quota decides nothing"]
        return []

    def _check_sum(self, cluster: Cluster) -> None:
        """Check that the quotas do not exceed the GPUs of the cluster, including nodes that are down."""
        for gpu_type, sizes in cluster.by_type.items():
            quotas = sum(_on(self.gpus, gpu_type).values())
            gpus = sum(sizes)
            if quotas > gpus:
                of_type = f" of {gpu_type}" if len(cluster.by_type) > 1 else ""
                raise InvalidConfigError(
                    f"policy.gpus comes to {quotas} GPUs{of_type}, but the cluster has {gpus}; reduce the quotas"
                )

    def _by_queue(self) -> Iterator[tuple[str, ByQueue]]:
        """Yield the names and values of the parameters that are GPUs by queue."""
        for name in ("gpus", "borrowing_limits", "lending_limits"):
            yield name, getattr(self, name)

    def on_type(self, gpu_type: str, types: Collection[str]) -> Quotas:
        """Return the policy for one GPU type.

        Raise an `InvalidConfigError` if the GPUs of a queue are one number for all types, or are of another type.
        """
        for name, by_queue in self._by_queue():
            for queue, gpus in by_queue.items():
                is_by_type = isinstance(gpus, Mapping) and not gpus.keys() - set(types)
                if not is_by_type:
                    raise InvalidConfigError(
                        f"policy.{name}.{queue} is {short(gpus)}, but the cluster has several GPU types; give a number "
                        f"for each of {', '.join(types)}"
                    )
        on_this_type: dict[str, Any] = {name: _on(by_queue, gpu_type) for name, by_queue in self._by_queue()}
        return replace(self, **on_this_type)

    @property
    def quota_rules(self) -> QuotaRules:
        """Return the policy itself, which states its quotas."""
        return self

    @property
    def takes_back(self) -> bool:
        """Return whether a queue preempts any job beyond the quota of another queue."""
        return self.reclaim == ANY

    def can_ever_hold(self, job: Asking, gpu_type: str, num_gpus: float = inf) -> bool:
        """Return whether the queue of a job can hold enough GPUs for the job, if there are `num_gpus` of a type."""
        queue = job.queue or NO_QUEUE
        terms = {queue: self._other(), **self._terms(gpu_type)}
        return job.num_replicas <= most_gpus(terms, queue, num_gpus)

    def quota_of(self, queue: str | None, gpu_type: str) -> int:
        """Return the quota of a queue on a GPU type [GPUs]."""
        return _on(self.gpus, gpu_type).get(queue or NO_QUEUE, 0)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start jobs within their quotas, then jobs that borrow."""
        self._ledger.settle(view)
        rules = Rules(self.within_queue, self.reclaim, self.fair_sharing)
        gpu_type = next(iter(view.types))  # the only one, because each type has its own copy of the policy
        cohort = Cohort(self._terms(gpu_type), self._other(), rules, view, self._start_of)
        cohort.admit()
        placements = cohort.placements()
        # Since before a fork, a job may share GPUs that another job gave back. A started job then lacks GPUs.
        is_complete = all(placements[job_id] for job_id in cohort.started)
        decision = Decision(
            placements,
            others_keep=True,
            valid_until=inf if is_complete else view.time,
            outdated_by=Change.JOBS_OR_NODES,
            explain=cohort.reasons,
        )
        self._ledger.follow(view, decision, queue_of)
        return decision

    def _start_of(self, job: JobView) -> float:
        """Return when a running job got its GPUs [s]; −∞ if it got them before this policy decided."""
        holding = self._ledger.holding(job.job_id)
        return -inf if holding is None else holding.start

    def _terms(self, gpu_type: str) -> dict[str, Terms]:
        """Return the terms of the queues that a parameter names."""
        quotas = _on(self.gpus, gpu_type)
        lending = _on(self.lending_limits, gpu_type)
        limits = _on(self.borrowing_limits, gpu_type)
        terms: dict[str, Terms] = {}
        for queue in [*quotas, *limits, *lending, *self.weights]:
            terms[queue] = Terms(
                quota=quotas.get(queue, 0),
                borrowing_limit=limits.get(queue, inf) if self.borrowing else 0,
                lending_limit=lending.get(queue, inf),
                weight=self.weights.get(queue, 1.0),
            )
        return terms

    def _other(self) -> Terms:
        """Return the terms of all other queues."""
        return Terms(borrowing_limit=inf if self.borrowing else 0)


def _each(by_queue: ByQueue) -> Iterator[tuple[str, str, int]]:
    """Yield the queue, GPU type and GPUs of each number. The type is empty if a queue has one number for all types."""
    for queue, gpus in by_queue.items():
        by_type = gpus if isinstance(gpus, Mapping) else {"": gpus}
        for gpu_type, number in by_type.items():
            yield queue, gpu_type, number


def _on(by_queue: ByQueue, gpu_type: str) -> dict[str, int]:
    """Return the GPUs on a GPU type of each queue for which they are stated."""
    return {queue: gpus for queue, name, gpus in _each(by_queue) if name in ("", gpu_type)}
