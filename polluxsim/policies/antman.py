"""AntMan: jobs with a guarantee have their GPUs as if alone, others use what those leave idle on the same ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.models.stages import goes_beside
from polluxsim.policies.numbered import all_gpus
from polluxsim.policies.view import Change, Decision, Traits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Gpu, Gpus, JobId


@dataclass
class AntMan:
    """Start jobs of priority 0 or more first, and beside them jobs of less, one on a GPU; nobody is preempted.

    Jobs with a guarantee go in order of submission. One that finds too few GPUs without a guaranteed job keeps those of
    one node for itself until the rest comes free; one of more GPUs than a node has keeps whole nodes. Others take the
    GPUs with the least on them, and run there as fast as what is on them leaves room for.

    Source: Xiao et al., "AntMan" (OSDI '20), as the simulator of Muri (SIGCOMM '22) has it.
    """

    traits: ClassVar[Traits] = Traits(shares_gpus=True)
    _jobs: dict[JobId, JobView] = field(default_factory=dict, init=False, repr=False)
    # GPUs of jobs with a guarantee, kept for them or in use; and of the others.
    _guaranteed: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)
    _beside: dict[JobId, Gpus] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start who can start."""
        for job in view.changes.arrived:
            self._jobs[job.job_id] = job
        for job_id in (*view.changes.ended, *view.changes.evicted):
            self._guaranteed.pop(job_id, None)
            self._beside.pop(job_id, None)
        for job_id in view.changes.ended:
            del self._jobs[job_id]
        started: dict[JobId, Gpus] = {}
        waiting = sorted(view.waiting, key=lambda job: job.priority < 0)
        for job in waiting:
            if gpus := self._start(view, job):
                started[job.job_id] = gpus
        return Decision({}, others_keep=True, shared=started, valid_until=inf, outdated_by=EVENTS)

    def _start(self, view: ClusterView, job: JobView) -> Gpus:
        """Return the GPUs that a job starts on, none if it has to wait."""
        if job.priority < 0:
            gpus = self._least_loaded(view, job)
            if gpus:
                self._beside[job.job_id] = gpus
            return gpus
        gpus = self._guaranteed[job.job_id] = self._kept(view, job)
        return gpus if len(gpus) == job.num_replicas else ()

    def _kept(self, view: ClusterView, job: JobView) -> Gpus:
        """Return the GPUs that a job with a guarantee keeps from now on, all it needs or fewer."""
        before = self._guaranteed.pop(job.job_id, ())
        taken = {gpu for gpus in self._guaranteed.values() for gpu in gpus}
        free: defaultdict[int, list[Gpu]] = defaultdict(list)
        for gpu in all_gpus(view):
            if gpu not in taken and self._may_join(gpu, job):
                free[gpu[0]].append(gpu)
        if job.num_replicas > max(view.gpus_per_node):
            whole = (gpus for node, gpus in free.items() if len(gpus) == view.gpus_per_node[node])
            return tuple(gpu for gpus in whole for gpu in gpus)[: job.num_replicas]
        large = {node: gpus for node, gpus in free.items() if view.gpus_per_node[node] >= job.num_replicas}
        here = large.get(before[0][0]) if before else None
        return tuple((here or _first_with(large, job.num_replicas))[: job.num_replicas])

    def _least_loaded(self, view: ClusterView, job: JobView) -> Gpus:
        """Return the GPUs for a job without a guarantee, those first on which nobody is."""
        taken = {gpu for gpus in self._beside.values() for gpu in gpus}
        load: dict[Gpu, int] = {}
        for job_id, gpus in self._guaranteed.items():
            load |= dict.fromkeys(gpus, 2 if self._runs(job_id, gpus) else 1)
        hosts = {gpu: self._jobs[job_id] for job_id, gpus in self._guaranteed.items() for gpu in gpus}
        open_ = [
            gpu
            for gpu in all_gpus(view)
            if gpu not in taken and (gpu not in hosts or goes_beside(job.stages, hosts[gpu].stages))
        ]
        open_.sort(key=lambda gpu: load.get(gpu, 0))
        return tuple(open_[: job.num_replicas]) if len(open_) >= job.num_replicas else ()

    def _runs(self, job_id: JobId, gpus: Gpus) -> bool:
        """Return whether a job has all that it keeps."""
        return len(gpus) == self._jobs[job_id].num_replicas

    def _may_join(self, gpu: Gpu, job: JobView) -> bool:
        """Return whether who is on a GPU without a guarantee can be there beside a job with one."""
        others = (self._jobs[job_id] for job_id, gpus in self._beside.items() if gpu in gpus)
        return all(goes_beside(other.stages, job.stages) for other in others)


EVENTS = Change.ARRIVAL | Change.COMPLETION | Change.NODES | Change.EVICTION


def _first_with(free: Mapping[int, Sequence[Gpu]], wanted: int) -> Sequence[Gpu]:
    """Return the GPUs of the first node with so many, else of the node with most."""
    enough = next((gpus for gpus in free.values() if len(gpus) >= wanted), None)
    return max(free.values(), key=len, default=()) if enough is None else enough
