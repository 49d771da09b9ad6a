"""AntMan: jobs with a guarantee have their GPUs as if alone, others use what those leave idle on the same ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.models.stages import goes_beside
from polluxsim.policies.packing import all_gpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Change, Decision, Reason, Traits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Cluster, Gpu, Gpus, JobId
    from polluxsim.workloads.job import Job


@pool_per_type
@dataclass
class AntMan:
    """Start jobs of priority 0 or more first, and beside them jobs of less, one on a GPU; nobody is preempted.

    Jobs with a guarantee go in order of submission. One that finds too few GPUs without a guaranteed job keeps those of
    one node for itself until the rest comes free; one of more GPUs than a node has keeps whole nodes. Others take the
    GPUs with the least on them, and run there as fast as what is on them leaves room for.

    Source: Xiao et al., "AntMan" (OSDI '20), as the simulator of Muri (SIGCOMM '22) has it.
    """

    traits: ClassVar[Traits] = Traits(shares_gpus=True)
    # GPUs of each job, kept for it or in use; and whose each is, of jobs with a guarantee and of the others.
    _gpus: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)
    _hosts: dict[Gpu, JobView] = field(default_factory=dict, init=False, repr=False)
    _guests: dict[Gpu, JobView] = field(default_factory=dict, init=False, repr=False)
    # GPUs of jobs that ran before it was asked first: they are left alone on them.
    _others: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether priorities decide nothing."""
        if not jobs or len({_is_guest(job) for job in jobs}) > 1:
            return []
        return ["all jobs have a priority of 0 or more, or all have less: none runs beside another on the same GPUs"]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start who can start."""
        for job_id in (*view.changes.ended, *view.changes.evicted):
            self._release(job_id)
        gpus = self._mine(view)
        started: dict[JobId, Gpus] = {}
        for job in sorted(view.waiting, key=_is_guest):
            if len(found := self._found(view, gpus, job)) == job.num_replicas:
                started[job.job_id] = found

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            known = {job.job_id: job for job in view.jobs}
            return {name: self._reason(known[name], len(gpus)) for name in jobs}

        return Decision({}, others_keep=True, shared=started, valid_until=inf, outdated_by=EVENTS, explain=explain)

    def _mine(self, view: ClusterView) -> list[Gpu]:
        """Return the GPUs that are there but for those of others' jobs, of which only the nodes need be known."""
        gpus = all_gpus(view)
        for job in view.running:
            if job.job_id not in self._gpus and job.job_id not in self._others:
                taken = set(chain(*self._others.values(), *view.shared.values()))
                free = [gpu for gpu in gpus if gpu not in taken]
                there = ([gpu for gpu in free if gpu[0] == node][:count] for node, count in job.placement)
                self._others[job.job_id] = view.shared.get(job.job_id) or tuple(chain(*there))
        taken = set(chain(*self._others.values()))
        return [gpu for gpu in gpus if gpu not in taken]

    def _reason(self, job: JobView, num_gpus: int) -> Reason:
        """Return why a job has what it has, beside whom."""
        if job.job_id in self._others:
            return Reason("runs-on", {})
        mine, guest = self._gpus.get(job.job_id, ()), _is_guest(job)
        there = self._hosts if guest else self._guests
        others = tuple(dict.fromkeys(there[gpu].job_id for gpu in mine if gpu in there))
        if len(mine) == job.num_replicas:
            return Reason("beside-guaranteed" if guest else "guaranteed", {"gpus": float(len(mine))}, others)
        needed = {"gpus_needed": float(job.num_replicas)}
        if not guest:
            return Reason("keeps-gpus", {**needed, "gpus": float(len(mine))})
        return Reason("no-room-beside", {**needed, "gpus_left": float(num_gpus - len(self._guests))})

    def _release(self, job_id: JobId) -> None:
        self._others.pop(job_id, None)
        for gpu in self._gpus.pop(job_id, ()):
            for users in (self._hosts, self._guests):
                if gpu in users and users[gpu].job_id == job_id:
                    del users[gpu]

    def _found(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Return the GPUs that a job has from now on: all it needs, those kept for it, or none."""
        users = self._guests if _is_guest(job) else self._hosts
        kept = self._gpus.get(job.job_id, ())
        if len(users) == len(gpus) and not kept:
            return ()
        self._release(job.job_id)
        found = self._least_loaded(gpus, job) if _is_guest(job) else self._kept(view, gpus, job, kept)
        self._gpus[job.job_id] = found
        users |= dict.fromkeys(found, job)
        return found

    def _kept(self, view: ClusterView, gpus: Sequence[Gpu], job: JobView, before: Gpus) -> Gpus:
        """Return the GPUs that a job with a guarantee keeps from now on, all it needs or fewer."""
        free: defaultdict[int, list[Gpu]] = defaultdict(list)
        for gpu in gpus:
            guest = self._guests.get(gpu)
            if gpu not in self._hosts and (guest is None or goes_beside(guest.stages, job.stages)):
                free[gpu[0]].append(gpu)
        if job.num_replicas > view.node_size:
            whole = (there for node, there in free.items() if len(there) == view.gpus_per_node[node])
            return tuple(gpu for there in whole for gpu in there)[: job.num_replicas]
        large = {node: there for node, there in free.items() if view.gpus_per_node[node] >= job.num_replicas}
        here = large.get(before[0][0]) if before else None
        return tuple((here or _first_with(large, job.num_replicas))[: job.num_replicas])

    def _least_loaded(self, gpus: Sequence[Gpu], job: JobView) -> Gpus:
        """Return the GPUs for a job without a guarantee, those first on which nobody is; none if they are too few."""
        hosts = self._hosts

        def load(gpu: Gpu) -> int:
            """Return 0 for nobody, 1 for a job that waits for more GPUs, 2 for one that runs."""
            return 0 if (host := hosts.get(gpu)) is None else 1 + (len(self._gpus[host.job_id]) == host.num_replicas)

        there = [gpu for gpu in gpus if gpu not in self._guests]
        if len(there) >= job.num_replicas:
            there = [gpu for gpu in there if gpu not in hosts or goes_beside(job.stages, hosts[gpu].stages)]
        return tuple(sorted(there, key=load)[: job.num_replicas]) if len(there) >= job.num_replicas else ()


def _is_guest(job: JobView | Job) -> bool:
    return job.priority < 0


EVENTS = Change.ARRIVAL | Change.COMPLETION | Change.NODES | Change.EVICTION


def _first_with(free: Mapping[int, Sequence[Gpu]], wanted: int) -> Sequence[Gpu]:
    """Return the GPUs of the first node with so many, else of the node with most."""
    enough = next((gpus for gpus in free.values() if len(gpus) >= wanted), None)
    return max(free.values(), key=len, default=()) if enough is None else enough
