"""AntMan: jobs with a guarantee run as if they were alone, and other jobs use the idle time of their GPUs.

Source: Xiao et al., "AntMan" (OSDI '20), in the version of the simulator of Muri (SIGCOMM '22). A job with a priority
of 0 or more has a guarantee and is the host of its GPUs; any other job is a guest on the GPUs that it gets.

Invariants: each GPU has at most one host and one guest; no job is preempted; a host that waits keeps the GPUs that it
has, so that later jobs cannot starve it.

The trap: two hosts that keep GPUs may wait for each other forever. `_resolve_deadlocks` takes the GPUs of the later
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import ClassVar

import numpy as np

from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.models.stages import goes_beside
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.reasons import JobSeen, RoundSeen
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.tools.free_gpus import all_gpus
from polluxsim.policies.tools.reason_kinds import RUNS_ON
from polluxsim.workloads.job import Job


def lacks_kept_gpus(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the idle GPUs that no job keeps are too few, the job keeps some, or another job does not fit.

    The policy keeps GPUs for several jobs, and lets a job wait on the node where it keeps GPUs.
    """
    keeps_some = 0 < reason.numbers.get("gpus", 0) < job.num_replicas
    gpus_of_others = 0.0  # idle GPUs that the policy keeps for other jobs
    for other in seen.jobs:
        waits = other is not job and seen.waits(other)
        if waits and other.reason is not None and other.reason.kind.name == KEEPS_GPUS.name:
            gpus_of_others += other.reason.numbers.get("gpus", 0)
    gpus_left = sum(seen.free.values()) - gpus_of_others
    has_too_few = job.num_replicas > min(seen.most_free, gpus_left)
    return has_too_few or keeps_some or seen.another_does_not_fit(job)


_UNITS = {
    **dict.fromkeys(("gpus", "gpus_needed", "gpus_left", "most_on_node", "gpus_usable"), "GPUs"),
    **dict.fromkeys(("gpus_closed", "gpus_unknown", "closed_by_guests"), "GPUs"),
    "large_nodes": "nodes",
    "submitted": "s",
}

# `common.templates.filled` explains the brackets and braces of a sentence. Parts in f-strings have doubled braces.
_GUARANTEE = "The job has a guarantee by its priority of {priority} (at least 0)"
_NO_GUARANTEE = "The job has no guarantee by its priority of {priority} (below 0)"

GUARANTEED = ReasonKind(
    "guaranteed",
    f"{_GUARANTEE}. Jobs with a guarantee take GPUs in order of submission, this job at {{submitted:clock}}, equal "
    "ones in the order of the list of jobs. At its turn, the {gpus:GPU} that it needs [gpus=1?was|were] free of other "
    "jobs "
    "with a guarantee, so it got [gpus=1?it|them][. Jobs without a guarantee use what "
    "it leaves idle: {others}].",
    _UNITS,
    "A job with a guarantee runs.",
)
BESIDE_GUARANTEED = ReasonKind(
    "beside-guaranteed",
    f"{_NO_GUARANTEE}, and the policy puts it on the {{gpus:GPU}} with the least load. "
    "[It runs while the jobs with a guarantee there leave them idle: {others}|No job with a guarantee runs there now].",
    _UNITS,
    "A job without a guarantee runs, beside other jobs or alone.",
)
KEEPS_GPUS = ReasonKind(
    "keeps-gpus",
    f"{_GUARANTEE}. It needs {{gpus_needed:GPU}} [whole_nodes=1?of whole nodes|on one node] that no other job with a "
    "guarantee holds. [whole_nodes=1?[gpus_left=0?No whole node is|Whole nodes with {gpus_left:GPU} are] free for it"
    "|On the [large_nodes=1?only node|{large_nodes:node}] with so many GPUs, [most_on_node=0?no GPU is free for it"
    "|[large_nodes=1?|at most ]{most_on_node} [most_on_node=1?is|are] free for it]]"
    "[others?. Jobs that hold or keep GPUs [whole_nodes=1?of the other nodes|there]: {others}]"
    "[closed_by_guests>0?. On {closed_by_guests:GPU}[whole_nodes=1?| there], a job without a guarantee would get no "
    "time to run beside this job, or the stages of one of the two are unknown]. So the job waits, and the "
    "policy keeps [gpus=0?no GPU|{gpus:GPU}] for it in the meantime.",
    _UNITS,
    "A job with a guarantee waits, and keeps GPUs.",
    excuses_waiting=lacks_kept_gpus,
)
NO_ROOM_BESIDE = ReasonKind(
    "no-room-beside",
    f"{_NO_GUARANTEE}, and each GPU takes at most one job without a guarantee. It needs {{gpus_needed:GPU}}"
    "[gpus_left<gpus_needed?, and [gpus_left=0?every GPU already has such a job"
    "|only {gpus_left:GPU} [gpus_left=1?has|have] no such job yet], so it waits[others?. The jobs without a guarantee "
    "that have GPUs: {others}]"
    "|. Of the {gpus_left:GPU} without such a job, only {gpus_usable} can take it, so it waits. On the other "
    "{gpus_closed}, it would run beside a job with a guarantee, [gpus_unknown=0?which leaves it no time to run"
    "|gpus_unknown=gpus_closed?which needs the stages of both jobs, and some are unknown"
    "|which leaves it no time to run, or the stages of one of the two are unknown]: {others}].",
    _UNITS,
    "A job without a guarantee waits.",
    excuses_waiting=lacks_kept_gpus,
)


@dataclass
class AntMan(Policy):
    """Start jobs with a priority of 0 or more, which have a guarantee, and beside them other jobs, without preemption.

    Jobs with a guarantee start in order of submission. If a node has too few free GPUs for a job with a guarantee, the
    job keeps these GPUs until enough GPUs are free. A job with more GPUs than a node keeps whole nodes. If two jobs
    that keep GPUs can only wait for each other, the later job gives up its GPUs. Each GPU has at most one job without a
    guarantee. These jobs take the GPUs with the least load, and run as fast as the other job on a GPU allows.

    Source: Xiao et al., "AntMan" (OSDI '20), in the version of the simulator of Muri (SIGCOMM '22).
    """

    traits: ClassVar[Traits] = Traits(shares_gpus=True, never_preempts=True, per_type=True)
    # GPUs of each job, kept for it or in use.
    _gpus: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)
    # The job with a guarantee, and the job without a guarantee, on each GPU.
    _hosts: dict[Gpu, JobView] = field(default_factory=dict, init=False, repr=False)
    _guests: dict[Gpu, JobView] = field(default_factory=dict, init=False, repr=False)
    # GPUs of jobs that ran before the first decision. These jobs do not share their GPUs.
    _others: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if priorities have no effect."""
        num_guests = sum(_is_guest(job) for job in jobs)
        has_both = 0 < num_guests < len(jobs)
        if not jobs or has_both:
            return []
        return ["all jobs have a priority of 0 or more, or all have less: none runs beside another on the same GPUs"]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start all jobs that can start."""
        for job_id in (*view.changes.ended, *view.changes.evicted):
            self._release(job_id)
        gpus = self._usable(view)
        started: dict[JobId, Gpus] = {}
        self._resolve_deadlocks(view)
        # Jobs with a guarantee come first; the sort is stable, so each kind is in order of submission.
        for job in sorted(view.waiting, key=_is_guest):
            gpus_of_job = self._keep(view, gpus, job)
            if len(gpus_of_job) == job.num_replicas:
                started[job.job_id] = gpus_of_job

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            jobs_by_name = {job.job_id: job for job in view.jobs}
            return {name: self._reason(view, jobs_by_name[name], gpus) for name in jobs}

        events = Change.JOBS_OR_NODES | Change.EVICTION
        return Decision({}, others_keep=True, shared=started, valid_until=inf, outdated_by=events, explain=explain)

    def _resolve_deadlocks(self, view: ClusterView) -> None:
        """Release the GPUs of guaranteed jobs that can only wait for GPUs that an earlier guaranteed job keeps."""
        waiting_hosts = [job for job in view.waiting if not _is_guest(job)]
        running_hosts = [job for job in view.running if not _is_guest(job)]
        if not running_hosts:
            # No end of a job frees further nodes, so jobs that keep some whole nodes could wait for each other forever.
            wide_hosts = [job for job in waiting_hosts if job.num_replicas > view.node_size]
            for job in wide_hosts[1:]:
                self._release(job.job_id)
        # On a node with a running job, its end frees further GPUs for the waiting jobs.
        busy_nodes: set[int] = set()
        for job in running_hosts:
            busy_nodes |= self._nodes_of(job)
        kept_nodes: set[int] = set()
        for job in waiting_hosts:
            nodes = self._nodes_of(job) - busy_nodes
            if nodes & kept_nodes:
                self._release(job.job_id)
            else:
                kept_nodes |= nodes

    def _nodes_of(self, job: JobView) -> set[int]:
        """Return the nodes of the GPUs of a job, kept for it or in use."""
        return {node for node, _ in self._gpus.get(job.job_id, ())}

    def _usable(self, view: ClusterView) -> list[Gpu]:
        """Return the GPUs of the nodes that are up, except those of jobs that ran before the first decision."""
        gpus = all_gpus(view)
        for job in view.running:
            if job.job_id not in self._gpus and job.job_id not in self._others:
                self._others[job.job_id] = view.sharing.held.get(job.job_id) or self._numbered(
                    view, gpus, job.placement
                )
        taken = set(chain(*self._others.values()))
        return [gpu for gpu in gpus if gpu not in taken]

    def _numbered(self, view: ClusterView, gpus: Sequence[Gpu], placement: Placement) -> Gpus:
        """Return free GPUs by number for a placement that states how many GPUs of each node a job has."""
        taken = set(chain(*self._others.values(), *view.sharing.held.values()))
        numbered: list[Gpu] = []
        for node, count in placement:
            free_on_node = [gpu for gpu in gpus if gpu[0] == node and gpu not in taken]
            numbered += free_on_node[:count]
        return tuple(numbered)

    def _reason(self, view: ClusterView, job: JobView, gpus: Sequence[Gpu]) -> Reason:
        """Return the reason for the share of a job in some GPUs, with the jobs on the same GPUs."""
        if job.job_id in self._others:
            return Reason(RUNS_ON, {})
        own_gpus = self._gpus.get(job.job_id, ())
        is_guest = _is_guest(job)
        if len(own_gpus) == job.num_replicas:
            beside = self._hosts if is_guest else self._guests
            neighbours = dict.fromkeys(beside[gpu].job_id for gpu in own_gpus if gpu in beside)
            numbers = {"gpus": float(len(own_gpus)), "priority": job.priority, "submitted": job.submit_time}
            return Reason(BESIDE_GUARANTEED if is_guest else GUARANTEED, numbers, tuple(neighbours))
        needed = {"gpus_needed": float(job.num_replicas), "priority": job.priority}
        if is_guest:
            without_guest = [gpu for gpu in gpus if gpu not in self._guests]
            usable = set(self._beside_hosts(without_guest, job))
            closed = [self._hosts[gpu] for gpu in without_guest if gpu not in usable]
            num_unknown = sum(job.stages is None or host.stages is None for host in closed)
            left = {
                "gpus_left": float(len(without_guest)),
                "gpus_usable": float(len(usable)),
                "gpus_closed": float(len(closed)),
                "gpus_unknown": float(num_unknown),
            }
            has_too_few = len(without_guest) < job.num_replicas
            in_the_way = list(self._guests.values()) if has_too_few else closed
            names = dict.fromkeys(other.job_id for other in in_the_way)
            return Reason(NO_ROOM_BESIDE, {**needed, **left}, tuple(names))
        return self._reason_of_waiting_host(view, job, gpus, needed)

    def _reason_of_waiting_host(
        self, view: ClusterView, job: JobView, gpus: Sequence[Gpu], needed: Mapping[str, float]
    ) -> Reason:
        """Return the reason of a waiting job with a guarantee, with the jobs that hold GPUs of the nodes it could use.

        `needed` are the numbers of the job itself.
        """
        own_gpus = self._gpus.get(job.job_id, ())
        needs_whole_nodes = job.num_replicas > view.node_size
        # The same nodes as in `_kept`: whole nodes are made of all nodes, and one node must be large enough.
        fewest_on_node = 1 if needs_whole_nodes else job.num_replicas
        large_nodes = {node for node, count in enumerate(view.gpus_per_node) if count >= fewest_on_node}
        open_on_node = self._open(gpus, job, own_gpus)
        most_on_node = 0
        gpus_of_whole_nodes = 0
        for node in large_nodes:
            num_open = len(open_on_node.get(node, ()))
            most_on_node = max(most_on_node, num_open)
            if num_open == view.gpus_per_node[node]:
                gpus_of_whole_nodes += num_open
        in_the_way: list[JobId] = []
        for job_id, gpus_of_job in self._others.items():
            if any(node in large_nodes for node, _ in gpus_of_job):
                in_the_way.append(job_id)
        closed_by_guests = 0
        for gpu in gpus:
            host = self._hosts.get(gpu)
            if gpu[0] not in large_nodes or gpu in own_gpus:
                continue
            if host is not None:
                in_the_way.append(host.job_id)
            elif gpu not in open_on_node.get(gpu[0], ()):
                closed_by_guests += 1
        room = {
            "gpus": float(len(own_gpus)),
            "whole_nodes": float(needs_whole_nodes),
            "large_nodes": float(len(large_nodes)),
            "gpus_left": float(gpus_of_whole_nodes),
            "most_on_node": float(most_on_node),
            "closed_by_guests": float(closed_by_guests),
        }
        return Reason(KEEPS_GPUS, {**needed, **room}, tuple(dict.fromkeys(in_the_way)))

    def _release(self, job_id: JobId) -> None:
        """Take all GPUs from a job."""
        self._others.pop(job_id, None)
        for gpu in self._gpus.pop(job_id, ()):
            for users in (self._hosts, self._guests):
                # The other job on the GPU stays.
                if gpu in users and users[gpu].job_id == job_id:
                    del users[gpu]

    def _keep(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Keep GPUs for a waiting job, in place of those that it kept before; return them: all, some or none."""
        users = self._guests if _is_guest(job) else self._hosts
        present_gpus = self._gpus.get(job.job_id, ())
        # Without this, each of many waiting jobs would search all GPUs of a full cluster.
        is_full = len(users) == len(gpus)
        if is_full and not present_gpus:
            return ()
        self._release(job.job_id)
        if _is_guest(job):
            new_gpus = self._least_loaded(gpus, job)
        else:
            new_gpus = self._kept(view, gpus, job, present_gpus)
        self._gpus[job.job_id] = new_gpus
        users |= dict.fromkeys(new_gpus, job)
        return new_gpus

    def _open(self, gpus: Sequence[Gpu], job: JobView, own: Gpus = ()) -> Mapping[int, list[Gpu]]:
        """Return the GPUs of each node that a job with a guarantee could use, among them its own ones."""
        free: defaultdict[int, list[Gpu]] = defaultdict(list)
        for gpu in gpus:
            guest = self._guests.get(gpu)
            has_no_host = gpu not in self._hosts or gpu in own
            if has_no_host and (guest is None or goes_beside(guest.stages, job.stages)):
                free[gpu[0]].append(gpu)
        return free

    def _beside_hosts(self, gpus: Sequence[Gpu], job: JobView) -> list[Gpu]:
        """Return the GPUs without a job with a guarantee, and those on which this job leaves such a job time to run."""
        hosts = self._hosts
        return [gpu for gpu in gpus if gpu not in hosts or goes_beside(job.stages, hosts[gpu].stages)]

    def _kept(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView, before: Gpus) -> Gpus:
        """Return the GPUs that a job with a guarantee keeps from now on: all GPUs that it needs, or fewer."""
        open_on_node = self._open(gpus, job)
        if job.num_replicas > view.node_size:
            gpus_of_whole_nodes: list[Gpu] = []
            for node, gpus_of_node in open_on_node.items():
                if len(gpus_of_node) == view.gpus_per_node[node]:
                    gpus_of_whole_nodes += gpus_of_node
            return tuple(gpus_of_whole_nodes[: job.num_replicas])
        # A smaller node could never run the job.
        on_large_node = {
            node: gpus_of_node
            for node, gpus_of_node in open_on_node.items()
            if view.gpus_per_node[node] >= job.num_replicas
        }
        chosen: Sequence[Gpu] = ()
        if before:
            present_node = before[0][0]
            chosen = on_large_node.get(present_node, ())
        if not chosen:
            chosen = _first_with(on_large_node, job.num_replicas)
        return tuple(chosen[: job.num_replicas])

    def _least_loaded(self, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Return the GPUs for a job without a guarantee, those with the least load first; none if there are too few."""
        hosts = self._hosts

        def load(gpu: Gpu) -> int:
            """Return the load of a GPU: 0 without a job, 1 kept by a waiting job, 2 with a running job."""
            host = hosts.get(gpu)
            if host is None:
                return 0
            has_all_gpus = len(self._gpus[host.job_id]) == host.num_replicas
            return 2 if has_all_gpus else 1

        without_guest = [gpu for gpu in gpus if gpu not in self._guests]
        # The check of each host takes time, and is not needed if the GPUs are too few anyway.
        if len(without_guest) < job.num_replicas:
            return ()
        usable = self._beside_hosts(without_guest, job)
        if len(usable) < job.num_replicas:
            return ()
        return tuple(sorted(usable, key=load)[: job.num_replicas])


def _is_guest(job: JobView | Job) -> bool:
    """Return whether a job has no guarantee."""
    return job.priority < 0


def _first_with(free: Mapping[int, Sequence[Gpu]], wanted: int) -> Sequence[Gpu]:
    """Return the GPUs of the first node with enough GPUs, or of the node with the most GPUs."""
    for gpus in free.values():
        if len(gpus) >= wanted:
            return gpus
    return max(free.values(), key=len, default=())
