"""Quotas: each queue owns GPUs, borrows idle GPUs of other queues, and takes its own GPUs back by preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, short
from polluxsim.policies.effects import check_names, check_owners, values_of
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Cluster, JobId, Placement
    from polluxsim.workloads.job import Job

NO_QUEUE = "none"
"""Where jobs are that name no queue."""


@pool_per_type
@dataclass(frozen=True)
class Quotas:
    """Start whole jobs by priority and submission, first those within the quotas of their queues, then borrowers.

    A job within its queue's quota that finds no GPUs preempts jobs of queues that exceed theirs: the lowest priority
    first, and among equal priorities the newest. No other job is preempted. A job that fits may overtake a job that
    does not fit.

    Parameters
    ----------
    gpus
        GPUs of each queue, by name; 0 for a queue that is not named. Jobs without a queue are in `none`. On a cluster
        of several GPU types, GPUs of each queue by type, as Kueue has quotas for each flavour of a resource.
    borrowing
        Whether queues may use idle GPUs of other queues.

    Source: cohorts of Kueue with `reclaimWithinCohort`; likewise the capacity queues of YARN and Volcano.
    """

    gpus: Mapping[str, int | Mapping[str, int]] = field(default_factory=dict)
    borrowing: bool = True

    def __post_init__(self) -> None:
        for name, said in self.gpus.items():
            each = {f"{name}.{of}": count for of, count in said.items()} if isinstance(said, Mapping) else {name: said}
            for what, count in each.items():
                if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                    raise InvalidConfigError(f"policy.gpus.{what} is {count!r}, allowed is a whole number ≥ 0")

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if the quotas decide nothing; their queues and GPU types must exist."""
        queues = values_of(jobs, "queue", NO_QUEUE)
        check_owners("policy.gpus", self.gpus, jobs, "queue", NO_QUEUE)
        for queue, said in self.gpus.items():
            if isinstance(said, Mapping):
                check_names(f"policy.gpus.{queue}", said, "GPU type", cluster.types)
        quotas = [said for queue, said in self.gpus.items() if queue in queues]
        if not any(sum(said.values()) if isinstance(said, Mapping) else said for said in quotas):
            if jobs and not self.borrowing:
                raise InvalidConfigError(
                    "policy.gpus gives GPUs to no queue of a job and policy.borrowing is false, so no job could start; "
                    f"give GPUs to queues, as policy.gpus={{{min(queues)}: {cluster.num_gpus}}}"
                )
            return ["policy.gpus gives GPUs to no queue of a job, so each job borrows: a backfill without quotas"]
        if self.borrowing and len(queues) == 1:
            return [f"all jobs are in queue {min(queues)!r}, so no job is preempted and its quota decides nothing"]
        return []

    def on_type(self, gpu_type: str, types: Collection[str]) -> Quotas:
        """Return the quotas for one of the GPU types of a cluster."""
        for queue, said in self.gpus.items():
            if not isinstance(said, Mapping) or said.keys() - set(types):
                raise InvalidConfigError(
                    f"policy.gpus.{queue} is {short(said)}, allowed on a cluster of several GPU types are numbers by "
                    f"type: {', '.join(types)}"
                )
        return Quotas(self._of(gpu_type), self.borrowing)

    def may_use(self, job: JobView, gpu_type: str) -> bool:
        """Return whether a job can start on GPUs of a type."""
        return self.borrowing or job.num_replicas <= self._of(gpu_type).get(queue_of(job), 0)

    def _of(self, gpu_type: str) -> dict[str, int]:
        """Return the quotas of a type, by queue."""
        items = self.gpus.items()
        return {queue: said.get(gpu_type, 0) if isinstance(said, Mapping) else said for queue, said in items}

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start jobs within their quotas, then jobs that borrow."""
        quotas = self._of(next(iter(view.types)))
        if sum(quotas.values()) > view.num_gpus:
            raise InvalidConfigError(
                f"policy.gpus comes to {sum(quotas.values())} GPUs, allowed are the {view.num_gpus} there are"
            )
        cohort = Cohort(quotas, view)
        order = sorted(view.waiting, key=lambda job: -job.priority)
        borrowers = [job for job in order if not cohort.starts_within_quota(job)]
        for job in borrowers if self.borrowing else ():
            if job.num_replicas <= cohort.free and job.job_id not in cohort.preempted:
                cohort.start(job, "borrows")
        return Decision(
            cohort.placements(view),
            others_keep=True,
            valid_until=inf,
            outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES,
            explain=lambda jobs: cohort.reasons(view, jobs),
        )


class Cohort:
    """The GPUs that all queues share, and the jobs that hold them, during one decision."""

    def __init__(self, quotas: Mapping[str, int], view: ClusterView) -> None:
        self._quotas = quotas
        self._used = Counter[str]()
        for job in view.running:
            self._used[queue_of(job)] += job.num_replicas
        self.free = sum(view.free)
        # Jobs that may be preempted; the last one is preempted first.
        self._victims = sorted(view.running, key=lambda job: -job.priority)
        self._started: dict[JobId, str] = {}
        self._new: list[JobView] = []
        self.preempted: dict[JobId, JobId] = {}

    def starts_within_quota(self, job: JobView) -> bool:
        """Start the job within its quota, preempting borrowers if needed; return whether it starts."""
        queue = queue_of(job)
        if self._used[queue] + job.num_replicas > self._quotas.get(queue, 0):
            return False
        while job.num_replicas > self.free:
            over = {name for name, used in self._used.items() if used > self._quotas.get(name, 0)}
            victim = next(victim for victim in reversed(self._victims) if queue_of(victim) in over)
            self._victims.remove(victim)
            self._used[queue_of(victim)] -= victim.num_replicas
            self.free += victim.num_replicas
            self.preempted[victim.job_id] = job.job_id
        self.start(job, "within-quota")
        return True

    def start(self, job: JobView, how: str) -> None:
        """Give a job free GPUs."""
        self.free -= job.num_replicas
        self._used[queue_of(job)] += job.num_replicas
        self._started[job.job_id] = how
        self._new.append(job)

    def placements(self, view: ClusterView) -> dict[JobId, Placement]:
        """Return the changed placements: none for preempted jobs, the emptiest nodes for jobs that start."""
        free = FreeGpus(view.free)
        for job in view.running if self.preempted else ():
            if job.job_id in self.preempted:
                free.give_back(job.placement)
        gone: dict[JobId, Placement] = dict.fromkeys(self.preempted, ())
        return gone | {job.job_id: free.pack(job.num_replicas) or () for job in self._new}

    def reasons(self, view: ClusterView, asked: Sequence[JobId]) -> dict[JobId, Reason]:
        """Return for each job asked about how its queue uses its quota.

        Kinds: `within-quota`, `borrows`, `runs-on`, `no-quota-left`, and `reclaimed`, with the job that took the GPUs.
        """
        wanted = set(asked)
        return {job.job_id: self._reason(job) for job in view.jobs if job.job_id in wanted}

    def _reason(self, job: JobView) -> Reason:
        queue = queue_of(job)
        numbers = {
            "gpus_needed": job.num_replicas,
            "quota": self._quotas.get(queue, 0),
            "queue_gpus": self._used[queue],
            "gpus_free": self.free,
        }
        if job.job_id in self.preempted:
            return Reason("reclaimed", numbers, (self.preempted[job.job_id],))
        return Reason(self._started.get(job.job_id, "runs-on" if job.placement else "no-quota-left"), numbers)


def queue_of(job: JobView) -> str:
    """Return the queue that a job is in."""
    return job.queue or NO_QUEUE
