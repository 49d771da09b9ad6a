"""AntMan: jobs with a guarantee run as if they were alone, and other jobs use the idle time of their GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import ClassVar

import numpy as np

from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Gpu, Gpus, JobId
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
    gpus_of_guests = 0.0
    for other in seen.jobs:
        waits = other is not job and seen.waits(other)
        if waits and other.reason is not None and other.reason.kind.name == KEEPS_GPUS.name:
            gpus_of_guests += other.reason.numbers.get("gpus", 0)
    has_too_few = job.num_replicas > min(seen.most_free, sum(seen.free.values()) - gpus_of_guests)
    return has_too_few or keeps_some or seen.another_does_not_fit(job)


_UNITS = dict.fromkeys(("gpus", "gpus_needed", "gpus_left", "most_on_node", "gpus_usable"), "GPUs")

_GUARANTEE = "The job has a guarantee by its priority of {priority} (at least 0)"
_NO_GUARANTEE = "The job has no guarantee by its priority of {priority} (below 0)"

GUARANTEED = ReasonKind(
    "guaranteed",
    f"{_GUARANTEE}, and gets its {{gpus:GPU}} as if it were alone[. Jobs without a guarantee use what it leaves idle: "
    "{others}].",
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
    "|most_on_node=0?No GPU is free for it|The best node has {most_on_node} free for it]. So the job waits, and the "
    "policy keeps [gpus=0?no GPU|{gpus:GPU}] for it in the meantime.",
    _UNITS,
    "A job with a guarantee waits, and keeps GPUs.",
    excuses_waiting=lacks_kept_gpus,
)
NO_ROOM_BESIDE = ReasonKind(
    "no-room-beside",
    f"{_NO_GUARANTEE}, and each GPU takes at most one job without a guarantee. It needs {{gpus_needed:GPU}}, and "
    "[gpus_left=0?every GPU already has such a job|only {gpus_left:GPU} [gpus_left=1?has|have] no such job yet]"
    "[gpus_left>=gpus_needed?. The jobs with a guarantee leave time to run on only {gpus_usable} of these].",
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
        if not jobs or len({_is_guest(job) for job in jobs}) > 1:
            return []
        return ["all jobs have a priority of 0 or more, or all have less: none runs beside another on the same GPUs"]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start all jobs that can start."""
        for job_id in (*view.changes.ended, *view.changes.evicted):
            self._release(job_id)
        gpus = self._usable(view)
        started: dict[JobId, Gpus] = {}
        self._resolve_deadlocks(view)
        for job in sorted(view.waiting, key=_is_guest):
            found_gpus = self._found(view, gpus, job)
            if len(found_gpus) == job.num_replicas:
                started[job.job_id] = found_gpus

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            jobs_by_name = {job.job_id: job for job in view.jobs}
            return {name: self._reason(view, jobs_by_name[name], gpus) for name in jobs}

        events = Change.JOBS_OR_NODES | Change.EVICTION
        return Decision({}, others_keep=True, shared=started, valid_until=inf, outdated_by=events, explain=explain)

    def _resolve_deadlocks(self, view: ClusterView) -> None:
        """Release the GPUs of guaranteed jobs that can only wait for GPUs that an earlier guaranteed job keeps."""
        waiting = [job for job in view.waiting if not _is_guest(job)]
        busy = {gpu[0] for job in view.running if not _is_guest(job) for gpu in self._gpus.get(job.job_id, ())}
        if all(map(_is_guest, view.running)):
            for job in [job for job in waiting if job.num_replicas > view.node_size][1:]:
                self._release(job.job_id)
        kept_nodes: set[int] = set()
        for job in waiting:
            nodes = {gpu[0] for gpu in self._gpus.get(job.job_id, ())} - busy
            if nodes & kept_nodes:
                self._release(job.job_id)
            else:
                kept_nodes |= nodes

    def _usable(self, view: ClusterView) -> list[Gpu]:
        """Return all GPUs except those of jobs that ran before the first decision."""
        gpus = all_gpus(view)
        for job in view.running:
            if job.job_id not in self._gpus and job.job_id not in self._others:
                taken = set(chain(*self._others.values(), *view.sharing.held.values()))
                free = [gpu for gpu in gpus if gpu not in taken]
                gpus_of_nodes = ([gpu for gpu in free if gpu[0] == node][:count] for node, count in job.placement)
                self._others[job.job_id] = view.sharing.held.get(job.job_id) or tuple(chain(*gpus_of_nodes))
        taken = set(chain(*self._others.values()))
        return [gpu for gpu in gpus if gpu not in taken]

    def _reason(self, view: ClusterView, job: JobView, gpus: Sequence[Gpu]) -> Reason:
        """Return the reason for the share of a job in some GPUs, with the jobs on the same GPUs."""
        if job.job_id in self._others:
            return Reason(RUNS_ON, {})
        mine = self._gpus.get(job.job_id, ())
        guest = _is_guest(job)
        other_side = self._hosts if guest else self._guests
        neighbours = tuple(dict.fromkeys(other_side[gpu].job_id for gpu in mine if gpu in other_side))
        if len(mine) == job.num_replicas:
            numbers = {"gpus": float(len(mine)), "priority": job.priority}
            return Reason(BESIDE_GUARANTEED if guest else GUARANTEED, numbers, neighbours)
        needed = {"gpus_needed": float(job.num_replicas), "priority": job.priority}
        if guest:
            without_guest = [gpu for gpu in gpus if gpu not in self._guests]
            usable = float(len(self._beside_hosts(without_guest, job)))
            return Reason(NO_ROOM_BESIDE, {**needed, "gpus_left": float(len(without_guest)), "gpus_usable": usable})
        on_nodes = {node: len(open_gpus) for node, open_gpus in self._open(gpus, job, mine).items()}
        if job.num_replicas > view.node_size:
            on_nodes = {node: count for node, count in on_nodes.items() if count == view.gpus_per_node[node]}
        room = {
            "gpus": float(len(mine)),
            "whole_nodes": float(job.num_replicas > view.node_size),
            "gpus_left": float(sum(on_nodes.values())),
            "most_on_node": float(max(on_nodes.values(), default=0)),
        }
        return Reason(KEEPS_GPUS, {**needed, **room})

    def _release(self, job_id: JobId) -> None:
        """Take all GPUs from a job."""
        self._others.pop(job_id, None)
        for gpu in self._gpus.pop(job_id, ()):
            for users in (self._hosts, self._guests):
                if gpu in users and users[gpu].job_id == job_id:
                    del users[gpu]

    def _found(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Return the GPUs that a job keeps: all, some or none."""
        users = self._guests if _is_guest(job) else self._hosts
        present_gpus = self._gpus.get(job.job_id, ())
        if len(users) == len(gpus) and not present_gpus:
            return ()
        self._release(job.job_id)
        gpus_found = self._least_loaded(gpus, job) if _is_guest(job) else self._kept(view, gpus, job, present_gpus)
        self._gpus[job.job_id] = gpus_found
        users |= dict.fromkeys(gpus_found, job)
        return gpus_found

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
        """Return the GPUs whose jobs with a guarantee leave a job time to run."""
        hosts = self._hosts
        return [gpu for gpu in gpus if gpu not in hosts or goes_beside(job.stages, hosts[gpu].stages)]

    def _kept(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView, before: Gpus) -> Gpus:
        """Return the GPUs that a job with a guarantee keeps from now on: all GPUs that it needs, or fewer."""
        free = self._open(gpus, job)
        if job.num_replicas > view.node_size:
            whole = (
                gpus_of_node for node, gpus_of_node in free.items() if len(gpus_of_node) == view.gpus_per_node[node]
            )
            return tuple(gpu for gpus_of_node in whole for gpu in gpus_of_node)[: job.num_replicas]
        large = {
            node: gpus_of_node for node, gpus_of_node in free.items() if view.gpus_per_node[node] >= job.num_replicas
        }
        on_present_node = large.get(before[0][0]) if before else None
        return tuple((on_present_node or _first_with(large, job.num_replicas))[: job.num_replicas])

    def _least_loaded(self, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Return the GPUs for a job without a guarantee, those with the least load first; none if there are too few."""
        hosts = self._hosts

        def load(gpu: Gpu) -> int:
            """Return the load of a GPU: 0 without a job, 1 kept by a waiting job, 2 with a running job."""
            host = hosts.get(gpu)
            if host is None:
                return 0
            return 2 if len(self._gpus[host.job_id]) == host.num_replicas else 1

        usable = [gpu for gpu in gpus if gpu not in self._guests]
        if len(usable) >= job.num_replicas:
            usable = self._beside_hosts(usable, job)
        return tuple(sorted(usable, key=load)[: job.num_replicas]) if len(usable) >= job.num_replicas else ()


def _is_guest(job: JobView | Job) -> bool:
    """Return whether a job has no guarantee."""
    return job.priority < 0


def _first_with(free: Mapping[int, Sequence[Gpu]], wanted: int) -> Sequence[Gpu]:
    """Return the GPUs of the first node with enough GPUs, or of the node with the most GPUs."""
    enough = next((gpus for gpus in free.values() if len(gpus) >= wanted), None)
    return max(free.values(), key=len, default=()) if enough is None else enough
