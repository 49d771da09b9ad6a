"""Jobs that share: what fits together on a GPU, and how fast each then is, behind one seam."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.engine.job import ActiveJob
    from polluxsim.gpu_types import NodeTypes
    from polluxsim.types import Gpu, Gpus, JobId, Placement
    from polluxsim.workloads.workload import Job


class Tenant(NamedTuple):
    """A job on its GPUs."""

    job: Job
    placement: Placement
    gpus: Gpus  # its placement by number, if it may share them; else empty
    gpu_type: str = ""  # empty where the cluster does not say, or nobody may share them
    epoch: int = 0  # that it is in, from 0

    @property
    def batch_size(self) -> int:
        """Return what it trains at on each of its GPUs, as it planned or its user asked [examples]."""
        plan = self.job.plan
        return self.job.batch_size // self.job.num_replicas if plan is None else plan.stretches[self.epoch][0]


def tenant_of(job: ActiveJob, gpus: Gpus, node_types: NodeTypes) -> Tenant:
    """Return a job that is to have GPUs by number, or if there are none, that shares none of those it has."""
    if not gpus:
        return Tenant(job.job, job.placement, ())
    gpu_type = node_types[gpus[0][0]].name if node_types else ""
    return Tenant(job.job, job.placement, gpus, gpu_type, job.segment.epoch)


def by_gpus(tenants: Iterable[Tenant]) -> Iterable[Sequence[Tenant]]:
    """Return those who have GPUs by number together with all others who have the same ones."""
    packs: dict[Gpus, list[Tenant]] = {}
    for each in tenants:
        if each.gpus:
            packs.setdefault(tuple(sorted(each.gpus)), []).append(each)
    return packs.values()


class Sharing(Protocol):
    """What fits together, and how fast each then is; it remembers nothing that does not follow from the jobs."""

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether two jobs or more can be on one GPU together, which is among the GPUs of each."""
        ...

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the share of its speed that each job loses to others, in [0, 1]; who loses nothing may be left out.

        Tenants are all jobs that hold GPUs, in order of submission.
        """
        ...


class Board:
    """Who holds GPUs by number, which others may hold too; keeps count in `free` of what nobody holds."""

    def __init__(self, free: list[int]) -> None:
        self.held: dict[JobId, Gpus] = {}
        self.num_extra = 0  # by how much the GPUs of all jobs are more than the GPUs that somebody holds
        self._users: Counter[Gpu] = Counter()
        self._free = free

    def take(self, job_id: JobId, gpus: Gpus) -> None:
        """Take note that a job is on these GPUs, be it with others."""
        self.held[job_id] = gpus
        for gpu in gpus:
            self._users[gpu] += 1
            self._count(gpu, used=self._users[gpu] == 1, step=1)

    def leave(self, job_id: JobId) -> None:
        """Take note that a job is on its GPUs no longer."""
        for gpu in self.held.pop(job_id):
            self._users[gpu] -= 1
            self._count(gpu, used=not self._users[gpu], step=-1)

    def _count(self, gpu: Gpu, *, used: bool, step: int) -> None:
        if used:
            self._free[gpu[0]] -= step
        else:
            self.num_extra += step

    def ceded(self, job_id: JobId) -> float:
        """Return how many of a job's GPUs are the others' there: of one with n jobs, each has 1/n."""
        return sum(1 - 1 / self._users[gpu] for gpu in self.held[job_id])
