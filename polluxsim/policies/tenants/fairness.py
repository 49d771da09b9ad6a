"""Fairness between users and queues: weighted fair queues, and dominant-resource fairness."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf

import numpy as np

from polluxsim.common.errors import check_choice
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import NOTHING, Host, least, shares_of
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.settings import check_owners, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gangs import check_above_zero, schedule_gangs
from polluxsim.policies.tools.ledger import NO_QUEUE, Ledger, queue_of
from polluxsim.workloads.job import Job


@takes_settings("policy")
@dataclass
class FairQueues:
    """Start whole jobs of the queue with the least GPU time for its weight, without preemption.

    A queue whose first job arrives after a time without jobs starts at the least usage of the other queues. Therefore
    it cannot make up for its absence. A job that fits may overtake a job that does not fit.

    Parameters
    ----------
    weights
        Weights of queues; other queues have weight 1. Jobs without a queue are in `none`.
    lookahead
        Time that is added to the run time of running jobs, so that one queue does not get all GPUs at once [s].

    Source: start-time fair queueing, Goyal et al. (SIGCOMM '96), with GPUs in place of links.
    """

    weights: Mapping[Name, float] = field(default_factory=dict)
    lookahead: Seconds = 3600.0
    _usage: Ledger[str] = field(default_factory=Ledger, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(lookahead=self.lookahead, **{f"weights.{name}": value for name, value in self.weights.items()})

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if queues have no effect; each weight must be of a queue of a job."""
        check_owners("policy.weights", self.weights, jobs, "queue", NO_QUEUE)
        return unless_jobs_differ(jobs, "queue", "its jobs start in order of submission, wherever they fit")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep the running jobs, then start jobs of the queues with the least usage."""
        self._usage.settle(view)
        self._raise_new_queues(view)
        usage = {queue: self._virtual_usage(queue, view.time) for queue in dict.fromkeys(map(queue_of, view.jobs))}

        def cost(job: JobView) -> float:
            return job.num_replicas * self.lookahead / self._weight(queue_of(job))

        decision = schedule_gangs(
            view,
            chain(view.running, in_turn(view, usage, cost)),
            order_lasts_until=inf,
            describe=lambda job: {"virtual_usage": usage[queue_of(job)]},
        )
        self._usage.follow(view, decision, queue_of)
        return decision

    def _raise_new_queues(self, view: ClusterView) -> None:
        """Raise the usage of queues that had no jobs to the least usage of the queues that had jobs."""
        arrived = {job.job_id for job in view.changes.arrived}
        if not arrived:
            return
        before = {queue_of(job) for job in view.jobs if job.job_id not in arrived}
        least = min((self._virtual_usage(queue, view.time) for queue in before), default=0.0)
        for queue in dict.fromkeys(map(queue_of, view.changes.arrived)):
            if queue not in before and self._virtual_usage(queue, view.time) < least:
                self._usage.set_balance(queue, least * self._weight(queue), view.time)

    def _weight(self, queue: str) -> float:
        return self.weights.get(queue, 1.0)

    def _virtual_usage(self, queue: str, now: float) -> float:
        """Return the GPU time of a queue over its weight [GPU s]."""
        return self._usage.balance(queue, now) / self._weight(queue)


def in_turn(view: ClusterView, usage: Mapping[str, float], cost: Callable[[JobView], float]) -> Iterator[JobView]:
    """Yield the waiting jobs, each time the first job of the queue with the least usage for its weight [GPU s].

    The `cost` of running jobs, and of jobs that were yielded before, is added to the usage of their queues [GPU s].
    """
    queues: dict[str, deque[JobView]] = {}
    for job in view.waiting:
        queues.setdefault(queue_of(job), deque()).append(job)
    used = {queue: usage[queue] for queue in queues}
    for job in view.running:
        if (queue := queue_of(job)) in used:
            used[queue] += cost(job)
    while queues:
        queue = min(queues, key=used.__getitem__)
        job = queues[queue].popleft()
        used[queue] += cost(job)
        if not queues[queue]:
            del queues[queue]
        yield job


@takes_settings("policy")
@dataclass(frozen=True)
class DominantResourceFairness:
    """Start whole jobs of the queue with the least dominant share relative to its weight, without preemption.

    A queue's dominant share is the largest of its parts of all GPUs, CPUs and memory. Its jobs start in order of
    priority, then submission. If the next job fits nowhere, the queue waits and other queues continue. A job gets the
    CPUs and memory that its user requests, or by default the smallest share per GPU of all nodes. A job that requests
    more than its node has for it is not admitted. If the cluster does not state the CPUs and memory of its nodes, only
    GPUs count.

    Parameters
    ----------
    weights
        Weights of owners by name; other owners have weight 1. Jobs without an owner have the owner `none`.
    by
        Owners: each `queue`, or each `user`.

    Source: Ghodsi et al., "Dominant Resource Fairness" (NSDI '11), algorithm 1, in which no owner is skipped.
    """

    weights: Mapping[Name, float] = field(default_factory=dict)
    by: str = "queue"

    def __post_init__(self) -> None:
        check_above_zero(**{f"weights.{name}": value for name, value in self.weights.items()})
        check_choice("policy.by", self.by, ("queue", "user"))

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if shares have no effect; each weight must be for a queue, or user, of a job."""
        check_owners("policy.weights", self.weights, jobs, self.by, NO_QUEUE)
        return unless_jobs_differ(jobs, self.by, "its jobs start by priority and submission, and a job that does not "
                                  "fit blocks later jobs")  # fmt: skip

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, then fill progressively."""
        filling = _Filling(view, self)
        rejected = [job.job_id for job in view.waiting if not filling.can_ever_run(job)]
        waiting: defaultdict[str, deque[JobView]] = defaultdict(deque)
        for job in sorted(view.waiting, key=lambda job: -job.priority):
            if job.job_id not in rejected:
                waiting[self.owner_of(job)].append(job)
        started: dict[JobId, Placement] = {}
        heads: dict[str, JobId] = {}  # first job of each owner that does not fit
        while waiting:
            owner = min(waiting, key=filling.share_of)
            job = waiting[owner].popleft()
            if placement := filling.place(job):
                started[job.job_id] = placement
            else:
                heads[owner] = job.job_id
            if not placement or not waiting[owner]:
                del waiting[owner]
        # Jobs that share GPUs since before a fork have equal parts of the CPUs and memory.
        holding = [job for job in view.running if job.job_id not in view.sharing.held]
        holding += [job for job in view.waiting if job.job_id in started]
        return Decision(
            started,
            others_keep=True,
            hosts={job.job_id: filling.needs_of(job) for job in holding} if view.hosts else {},
            rejected=rejected,
            valid_until=inf,
            outdated_by=Change.JOBS_OR_NODES,
            explain=lambda jobs: filling.reasons(jobs, started, heads),
        )

    def owner_of(self, job: JobView) -> str:
        """Return the owner of a job."""
        return (job.queue if self.by == "queue" else job.user) or NO_QUEUE


class _Filling:
    """The free resources, and the use of each owner, while jobs start one after the other."""

    def __init__(self, view: ClusterView, policy: DominantResourceFairness) -> None:
        self._view, self._policy = view, policy
        self._free = FreeGpus(view.gpus_per_node, view.hosts)
        # CPUs and memory per GPU of a job without a request: every node has this amount for each of its GPUs.
        self._default = least(shares_of(view.hosts, view.gpus_per_node)) if view.hosts else NOTHING
        # GPUs, CPUs and memory of the cluster, and of each owner.
        self._all = (float(sum(view.gpus_per_node)), *map(sum, zip(*view.hosts, strict=True)))
        self._used: defaultdict[str, tuple[float, ...]] = defaultdict(lambda: (0.0, 0.0, 0.0))
        self._crowded = frozenset[int]()  # while it is empty, `needs_of` returns what users request
        self._crowded = self._too_full()
        for job in view.running:
            self._take(job, job.placement)

    def _too_full(self) -> frozenset[int]:
        """Return the nodes on which another policy placed jobs that request more CPUs or memory than the node has."""
        needed: defaultdict[int, Host] = defaultdict(lambda: NOTHING)
        for job in self._view.running if self._view.hosts else ():
            for node, gpus in job.placement:
                needed[node] = needed[node].plus(self.needs_of(job).times(gpus))
        return frozenset(node for node, needs in needed.items() if not self._view.hosts[node].holds(needs))

    def needs_of(self, job: JobView) -> Host:
        """Return the CPUs and memory of a job for each of its GPUs."""
        request = job.host or NOTHING
        needs = Host(request.cpus or self._default.cpus, request.memory or self._default.memory)
        is_crowded = any(node in self._crowded for node, _ in job.placement)
        return needs.at_most(self._default) if is_crowded else needs

    def share_of(self, owner: str) -> float:
        """Return an owner's dominant share, over its weight."""
        parts = (used / total for used, total in zip(self._used[owner], self._all, strict=False) if total)
        return max(parts) / self._policy.weights.get(owner, 1.0)

    def can_ever_run(self, job: JobView) -> bool:
        """Return whether a job fits on empty nodes of a type; True if more nodes may come up."""
        view, needs = self._view, self.needs_of(job)
        if not view.hosts or view.health.down or view.nodes is not None:
            return True
        rooms = FreeGpus(view.gpus_per_node, view.hosts).rooms(needs)
        types = job.speeds or view.types
        return any(sum(rooms[node] for node in view.nodes_of(name)) >= job.num_replicas for name in types)

    def place(self, job: JobView) -> Placement:
        """Take GPUs for a job with its CPUs and memory, and return them; none if it fits nowhere.

        They are of its fastest type with room, first on the nodes with room for most of the job.
        """
        rooms = FreeGpus([max(room, 0) for room in self._free.rooms(self.needs_of(job))])
        for name in sorted(job.speeds, key=job.speeds.__getitem__, reverse=True) or self._view.types:
            if placement := rooms.pack(job.num_replicas, self._view.nodes_of(name)):
                self._take(job, placement)
                return placement
        return ()

    def _take(self, job: JobView, placement: Placement) -> None:
        """Charge the owner of a job for its GPUs, CPUs and memory."""
        needs = self.needs_of(job)
        self._free.take(placement, needs)
        owner, whole = self._policy.owner_of(job), needs.times(job.num_replicas)
        used = zip(self._used[owner], (job.num_replicas, *whole), strict=True)
        self._used[owner] = tuple(before + more for before, more in used)

    def reasons(
        self, asked: Sequence[JobId], started: Collection[JobId], heads: Mapping[str, JobId]
    ) -> dict[JobId, Reason]:
        """Return, as reasons of jobs, the dominant shares of their owners.

        Kinds: `least-share` for a starting job; `runs-on`; `never-fits` for a rejected job; and `share-waits` for a
        waiting job, with the earlier job of its owner that does not fit, if there is one in `heads`.
        """
        wanted = set(asked)
        return {job.job_id: self._reason(job, started, heads) for job in self._view.jobs if job.job_id in wanted}

    def _reason(self, job: JobView, started: Collection[JobId], heads: Mapping[str, JobId]) -> Reason:
        owner = self._policy.owner_of(job)
        numbers = {"dominant_share": self.share_of(owner), "gpus_needed": float(job.num_replicas)}
        if self._view.hosts:
            needs = self.needs_of(job).times(job.num_replicas)
            numbers |= {"cpus_needed": needs.cpus, "memory_part": needs.memory / self._all[2]}
        if job.placement or job.job_id in started:
            return Reason("runs-on" if job.placement else "least-share", numbers)
        if not self.can_ever_run(job):
            return Reason("never-fits", numbers)
        return Reason("share-waits", numbers, tuple({heads.get(owner, job.job_id)} - {job.job_id}))
