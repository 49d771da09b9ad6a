"""Fairness between users and queues: weighted fair queues, and dominant-resource fairness.

Both policies decide which waiting jobs start, by what the queue or user of a job has: GPU time so far (`FairQueues`),
or resources now (`DominantResourceFairness`). Neither preempts, so a queue gets its share only as jobs end.

Trap: what an owner has changes with each start, so the order is computed again after each start, and the jobs of
different owners are never sorted in one list once and for all. `FairQueues` computes the usage at the turns of all jobs
ahead, because a job adds a known amount to the usage of its queue.

Sources: Goyal et al. (SIGCOMM '96); Ghodsi et al., "Dominant Resource Fairness" (NSDI '11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from polluxsim.common.values import OneOf, PositiveFloat, Range
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import NOTHING, Host, least, shares_of
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import check_owners, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.tenants.reason_kinds import LOWEST_SHARE, NEVER_FITS, SHARE_WAITS
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.ledger import NO_QUEUE, Ledger, queue_of
from polluxsim.policies.tools.reason_kinds import RUNS_ON
from polluxsim.policies.tools.starting import start_gangs, started_by
from polluxsim.policies.tools.waiting_orders import RisingOrder, grouped
from polluxsim.policies.tools.waiting_table import Floats, Ints, WaitingTable
from polluxsim.workloads.job import Job


@takes_settings("policy")
@dataclass
class FairQueues(Policy):
    """Start whole jobs of the queue with the least GPU time for its weight, without preemption.

    A queue without waiting jobs collects no credit. When one of its jobs has to wait again, its usage is raised to the
    virtual time, if it is less. Therefore a queue cannot make up for its absence, nor for a time in which it wanted
    less than its share. A job that fits may overtake a job that does not fit.

    The virtual time never falls. While jobs wait, it is at least the least usage of the queues with waiting jobs, and
    at least the usage of each queue at the start of one of its jobs. While no job waits, it is at least the largest
    usage of all queues: all queues compete from the same point when jobs wait again.

    Parameters
    ----------
    weights
        Weights of queues; other queues have weight 1. Jobs without a queue are in `none`.
    lookahead
        Time that is added to the run time of running jobs, so that one queue does not get all GPUs at once [s].

    Source: start-time fair queueing, Goyal et al. (SIGCOMM '96), with GPUs in place of links. The usage of a queue, its
    GPU time over its weight, is the start tag of its next job.
    """

    weights: Mapping[Name, PositiveFloat] = field(default_factory=dict)
    lookahead: Annotated[Seconds, Range(above=0)] = 3600.0
    traits: ClassVar[Traits] = Traits(never_preempts=True, keeps_shapes=True)
    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)
    _usage: Ledger[str] = field(default_factory=Ledger, init=False, repr=False)
    _virtual_time: float = field(default=0.0, init=False, repr=False)  # [GPU s]
    # Queues with jobs that waited after the last decision.
    _backlogged: Collection[str] = field(default=(), init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if queues have no effect; each weight must be of a queue of a job."""
        check_owners("policy.weights", self.weights, jobs, "queue", NO_QUEUE)
        return unless_jobs_differ(jobs, "queue", "its jobs start in order of submission, wherever they fit")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep the running jobs, then start jobs of the queues with the least usage."""
        table = self._table
        table.update(view)
        self._usage.settle(view)
        self._advance_virtual_time(view.time)
        waiting = table.waiting_queues()
        newly_waiting = [queue for queue in waiting if queue not in self._backlogged]
        self._raise_to_virtual_time(newly_waiting, view.time)
        usage = {queue: self._virtual_usage(queue, view.time) for queue in table.queues}
        expected_usage = dict(usage)  # with the running jobs
        for job in view.running:
            queue = queue_of(job)
            expected_usage[queue] += job.num_replicas * self.lookahead / self._weight(queue)

        # Once, and only if a job may start or a reason is asked for.
        @cache
        def at_turns() -> Floats:
            return self._usage_at_turns(expected_usage, waiting)

        keeps_running = {"keeps_running": 1.0} if view.running else {}

        def describe(job: JobView) -> dict[str, float]:
            numbers = {**keeps_running, "virtual_usage": usage[queue_of(job)], "lookahead": self.lookahead}
            usage_at_turn = float(at_turns()[table.row_of(job.job_id)])
            if usage_at_turn < inf:  # the job waits
                numbers["turn_usage"] = usage_at_turn
            return numbers

        order = RisingOrder(table, at_turns, lambda: ranks_of(table, waiting), view.time)
        decision = start_gangs(view, table, order, describe=describe)
        started = started_by(table, decision)
        self._usage.follow(view, decision, queue_of, started)
        self._take_note_of_starts(started, usage)
        return decision

    def _usage_at_turns(self, expected_usage: Mapping[str, float], waiting: Sequence[str]) -> Floats:
        """Return the usage of its queue at the turn of each waiting job, shape (rows,) [GPU s]; ∞ for other jobs.

        Each job adds its expected usage to that of the later jobs of its queue.
        """
        table = self._table
        usage = np.full(len(table.waits), np.inf)
        rows = table.waits.nonzero()[0]
        rows = rows[grouped(table.queue[rows], len(table.queues))]  # the rows of a queue are next to each other
        indices = [table.queues[queue] for queue in waiting]
        firsts = np.searchsorted(table.queue[rows], indices, side="left")
        ends = np.searchsorted(table.queue[rows], indices, side="right")
        for queue, first, end in zip(waiting, firsts, ends, strict=True):
            rows_of_queue = rows[first:end]
            added_usage = table.gpus[rows_of_queue] * self.lookahead / self._weight(queue)
            after_each_job = np.cumsum(np.concatenate(([expected_usage[queue]], added_usage)))
            usage[rows_of_queue] = after_each_job[:-1]
        return usage

    def _advance_virtual_time(self, now: float) -> None:
        """Raise the virtual time to what it is now, before jobs that arrived since the last decision count."""
        if self._backlogged:
            usage = min(self._virtual_usage(queue, now) for queue in self._backlogged)
        else:
            usages = [self._virtual_usage(queue, now) for queue in self._usage.accounts()]
            usage = max(usages, default=0.0)
        self._virtual_time = max(self._virtual_time, usage)

    def _raise_to_virtual_time(self, queues: Sequence[str], now: float) -> None:
        """Raise the usage of queues to the virtual time."""
        for queue in queues:
            if self._virtual_usage(queue, now) < self._virtual_time:
                self._usage.set_balance(queue, self._virtual_time * self._weight(queue), now)

    def _take_note_of_starts(self, started: Sequence[JobView], usage: Mapping[str, float]) -> None:
        """Raise the virtual time to the usage of the queues that start jobs, and record which queues have to wait."""
        for job in started:
            self._virtual_time = max(self._virtual_time, usage[queue_of(job)])
        self._backlogged = self._table.waiting_queues(without=started)

    def _weight(self, queue: str) -> float:
        return self.weights.get(queue, 1.0)

    def _virtual_usage(self, queue: str, now: float) -> float:
        """Return the GPU time of a queue over its weight [GPU s]."""
        return self._usage.balance(queue, now) / self._weight(queue)


def ranks_of(table: WaitingTable, queues: Sequence[str]) -> Ints:
    """Return the place of the queue of each row of a table in a list of queues, shape (rows,).

    Queues that the list leaves out have the place 0.
    """
    places = np.zeros(len(table.queues), dtype=np.int64)
    for place, queue in enumerate(queues):
        places[table.queues[queue]] = place
    ranks: Ints = places[table.queue]
    return ranks


class OwnedResources(NamedTuple):
    """Amounts of the three resources whose shares count."""

    gpus: float
    cpus: float  # [cores]
    memory: float  # [GB]


class Filling:
    """The free resources, and the use of each owner, while jobs start one after the other."""

    def __init__(self, view: ClusterView, policy: DominantResourceFairness) -> None:
        self._view = view
        self._policy = policy
        self._free = FreeGpus(view.gpus_per_node, view.hosts)
        # CPUs and memory per GPU of a job without a request: every node has this amount for each of its GPUs.
        self._default = NOTHING
        if view.hosts:
            self._default = least(shares_of(view.hosts, view.gpus_per_node))
        # OwnedResources of the cluster. CPUs and memory that it does not state are 0, and do not count.
        self._all = OwnedResources(
            float(sum(view.gpus_per_node)),
            cpus=sum(host.cpus for host in view.hosts),
            memory=sum(host.memory for host in view.hosts),
        )
        self._used = defaultdict[str, OwnedResources](lambda: OwnedResources(0.0, 0.0, 0.0))  # by owner
        self.shares_before: dict[JobId, float] = {}  # dominant share of the owner of each job at its turn
        self._crowded = frozenset[int]()  # while it is empty, `needs_of` returns what users request
        self._crowded = self._too_full()
        for job in view.running:
            self._take(job, job.placement)

    def _too_full(self) -> frozenset[int]:
        """Return the nodes on which another policy placed jobs that request more CPUs or memory than the node has."""
        hosts = self._view.hosts
        if not hosts:
            return frozenset()
        needed = defaultdict[int, Host](lambda: NOTHING)
        for job in self._view.running:
            for node, gpus in job.placement:
                needed[node] = needed[node].plus(self.needs_of(job).times(gpus))
        return frozenset(node for node, needs in needed.items() if not hosts[node].holds(needs))

    def needs_of(self, job: JobView) -> Host:
        """Return the CPUs and memory of a job for each of its GPUs."""
        request = job.host or NOTHING
        needs = Host(request.cpus or self._default.cpus, request.memory or self._default.memory)
        is_on_crowded_node = any(node in self._crowded for node, _ in job.placement)
        return needs.at_most(self._default) if is_on_crowded_node else needs

    def share_of(self, owner: str) -> float:
        """Return an owner's dominant share, over its weight."""
        dominant_share = max(used / total for used, total in zip(self._used[owner], self._all, strict=True) if total)
        return dominant_share / self._policy.weights.get(owner, 1.0)

    @property
    def can_reject(self) -> bool:
        """Return whether a job may fit on no node, and no more nodes may come up."""
        view = self._view
        return bool(view.hosts) and not view.health.down and view.nodes is None

    def can_ever_run(self, job: JobView) -> bool:
        """Return whether a job fits on empty nodes of a type; True if more nodes may come up."""
        view = self._view
        if not self.can_reject:
            return True
        # The GPUs of each empty node for which it has the CPUs and memory that the job needs.
        empty = FreeGpus(FreeGpus(view.gpus_per_node, view.hosts).rooms(self.needs_of(job)))
        types = job.speeds or view.types
        return any(empty.fits(view.shape_of(job, gpu_type), view.nodes_of(gpu_type)) for gpu_type in types)

    def place(self, job: JobView) -> Placement:
        """Take GPUs for a job with its CPUs and memory, and return them; none if it fits nowhere.

        They are of its fastest type with room, in the shape of the job.
        """
        view = self._view
        rooms = FreeGpus(self._rooms_for(job))
        fastest_first = sorted(job.speeds, key=job.speeds.__getitem__, reverse=True)
        for gpu_type in fastest_first or view.types:
            placement = rooms.pack_shape(view.shape_of(job, gpu_type), view.nodes_of(gpu_type))
            if placement:
                self._take(job, placement)
                return placement
        return ()

    def _take(self, job: JobView, placement: Placement) -> None:
        """Charge the owner of a job for its GPUs, CPUs and memory."""
        needs = self.needs_of(job)
        self._free.take(placement, needs)
        owner = self._policy.owner_of(job)
        used = self._used[owner]
        added = needs.times(job.num_replicas)
        self._used[owner] = OwnedResources(
            used.gpus + job.num_replicas, cpus=used.cpus + added.cpus, memory=used.memory + added.memory
        )

    def _rooms_for(self, job: JobView) -> list[int]:
        """Return the free GPUs of each node for which it also has the CPUs and memory that a job needs."""
        # Negative where another policy granted more than the node has.
        return [max(room, 0) for room in self._free.rooms(self.needs_of(job))]

    def reasons(
        self, asked: Iterable[JobView], started: Collection[JobId], heads: Mapping[str, JobId]
    ) -> dict[JobId, Reason]:
        """Return, as reasons of jobs, the dominant shares of their owners.

        The reason of a waiting job names the earlier job of its owner that does not fit, if there is one in `heads`.
        """
        return {job.job_id: self._reason(job, started, heads) for job in asked}

    def _reason(self, job: JobView, started: Collection[JobId], heads: Mapping[str, JobId]) -> Reason:
        owner = self._policy.owner_of(job)
        numbers = {
            "dominant_share": self.share_of(owner),
            "gpus_needed": float(job.num_replicas),
            "by_user": float(self._policy.by == "user"),
        }
        if job.job_id in self.shares_before:
            numbers["share_before"] = self.shares_before[job.job_id]
        if self._view.hosts:
            needs = self.needs_of(job).times(job.num_replicas)
            numbers |= {"cpus_needed": needs.cpus, "memory_part": needs.memory / self._all.memory}
        if job.placement:
            return Reason(RUNS_ON, numbers)
        if job.job_id in started:
            return Reason(LOWEST_SHARE, numbers)
        if not self.can_ever_run(job):
            return Reason(NEVER_FITS, numbers)
        head = self._policy.head_of(job, heads)
        numbers |= self._room_for(head)
        if head is job:
            return Reason(SHARE_WAITS, numbers)
        return Reason(SHARE_WAITS, {**numbers, "head_gpus": float(head.num_replicas)}, (head.job_id,))

    def _room_for(self, job: JobView) -> dict[str, float]:
        """Return the free GPUs, and those with the CPUs and memory that a job needs, as numbers of a reason."""
        rooms = self._rooms_for(job)
        numbers = {"gpus_left": float(self._free.total), "node_gpus_left": float(max(rooms, default=0))}
        if self._view.hosts:
            numbers["gpus_usable"] = float(sum(rooms))
        return numbers


@takes_settings("policy")
@dataclass(frozen=True)
class DominantResourceFairness(Policy):
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

    weights: Mapping[Name, PositiveFloat] = field(default_factory=dict)
    by: Annotated[str, OneOf("queue", "user")] = "queue"
    traits: ClassVar[Traits] = Traits(never_preempts=True, keeps_shapes=True)
    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if shares have no effect; each weight must be for a queue, or user, of a job."""
        check_owners("policy.weights", self.weights, jobs, self.by, NO_QUEUE)
        return unless_jobs_differ(jobs, self.by, "its jobs start by priority and submission, and a job that does not "
                                  "fit blocks later jobs")  # fmt: skip

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Keep running jobs, then fill progressively."""
        self._table.update(view)
        filling = Filling(view, self)
        rejected = self._rejected(view, filling)
        waiting = self._waiting_rows(rejected)
        started: dict[JobId, Placement] = {}
        heads: dict[str, JobId] = {}  # first job of each owner that does not fit
        while waiting:
            # Of equal shares, the owner whose first job comes first: a dict keeps this order, and `min` is stable.
            owner = min(waiting, key=filling.share_of)
            job = self._table.job(waiting[owner][0])
            later_rows = waiting[owner][1:]
            filling.shares_before[job.job_id] = filling.share_of(owner)
            placement = filling.place(job)
            if placement:
                started[job.job_id] = placement
            else:
                heads[owner] = job.job_id
            if placement and len(later_rows):
                waiting[owner] = later_rows
            else:
                del waiting[owner]
        # Jobs that share GPUs since before a fork have equal parts of the CPUs and memory.
        holding = [job for job in view.running if job.job_id not in view.sharing.held]
        started_rows = sorted(self._table.row_of(job_id) for job_id in started)
        holding += [self._table.job(row) for row in started_rows]
        return Decision(
            started,
            others_keep=True,
            hosts={job.job_id: filling.needs_of(job) for job in holding} if view.hosts else {},
            rejected=rejected,
            valid_until=inf,
            outdated_by=Change.JOBS_OR_NODES,
            explain=lambda jobs: filling.reasons(map(self._table.job_named, jobs), started, heads),
        )

    def _rejected(self, view: ClusterView, filling: Filling) -> list[JobId]:
        """Return the waiting jobs that can never run. Each job is checked once, unless the nodes change."""
        table = self._table
        if not filling.can_reject:
            return []
        if view.changes.nodes:
            table.forget_values()
        unchecked = table.waits & np.isnan(table.value)
        rejected = []
        for row in unchecked.nonzero()[0].tolist():
            if filling.can_ever_run(table.job(row)):
                table.value[row] = 1.0
            else:
                rejected.append(table.job(row).job_id)
        return rejected

    def _waiting_rows(self, rejected: Sequence[JobId]) -> dict[str, Ints]:
        """Return the rows of the waiting jobs of each owner, by priority and submission, without rejected jobs.

        The owner whose job comes first in the queue is the first one.
        """
        table = self._table
        waits = table.waits.copy()
        waits[[table.row_of(job_id) for job_id in rejected]] = False
        rows = waits.nonzero()[0]
        priority = table.priority[rows]
        if len(rows) and priority.min() < priority.max():
            rows = rows[np.argsort(-priority, kind="stable")]
        if self.by == "queue":
            names = table.queues
            name_indices = table.queue[rows]
        else:
            names = table.users
            name_indices = table.user[rows]
        # Jobs without an owner belong to the owner with the name for them, so two names can be one owner.
        owners: dict[str, int] = {}
        owner_of_name = [owners.setdefault(name or NO_QUEUE, len(owners)) for name in names]
        owner_of_row = np.array(owner_of_name, dtype=np.int64)[name_indices]
        # Owners with waiting jobs, the first place of each in the order, and its number of jobs.
        present, firsts, counts = np.unique(owner_of_row, return_index=True, return_counts=True)
        rows_by_owner = np.split(rows[grouped(owner_of_row, len(owners))], np.cumsum(counts)[:-1])
        all_owners = list(owners)
        return {all_owners[present[index]]: rows_by_owner[index] for index in np.argsort(firsts)}

    def head_of(self, job: JobView, heads: Mapping[str, JobId]) -> JobView:
        """Return the job of the same owner that does not fit and goes first, by owner in `heads`, or the job itself."""
        head = heads.get(self.owner_of(job), job.job_id)
        return job if head == job.job_id else self._table.job_named(head)

    def owner_of(self, job: JobView) -> str:
        """Return the owner of a job."""
        return (job.queue if self.by == "queue" else job.user) or NO_QUEUE
