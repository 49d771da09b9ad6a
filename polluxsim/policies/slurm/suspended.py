"""Jobs that are suspended, because a job that preempted them uses their nodes (`PreemptMode` SUSPEND).

A suspended job keeps its progress, and resumes on its nodes as soon as they have room for it. Meanwhile what is free of
its GPUs stays free for it, except for jobs that may preempt it.
(Specification, "Preemption, reservations, QOS"; slurm.conf(5), `PreemptMode`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from polluxsim.hardware.placements import JobId
from polluxsim.policies.slurm.values import Allocated, FreeNodes, Held, RunningJob


class Suspended(NamedTuple):
    """A suspended job."""

    job: RunningJob  # as it ran
    left: int  # what is left of its time limit [s]


class SuspendedJobs:
    """The suspended jobs, in the order of their suspension."""

    def __init__(self) -> None:
        self._by_name: dict[JobId, Suspended] = {}

    def __contains__(self, name: JobId) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def suspend(self, job: RunningJob, now: int) -> None:
        """Note that a running job is suspended now [s]."""
        self._by_name[job.name] = Suspended(job, max(job.end - now, 0))

    def forget(self, name: JobId) -> None:
        """Forget a job if it is suspended."""
        self._by_name.pop(name, None)

    def on(self, node: int) -> list[JobId]:
        """Return the jobs that are suspended on a node."""
        return [name for name, entry in self._by_name.items() if entry.job.nodes >> node & 1]

    def that_fit(self, free: FreeNodes) -> list[RunningJob]:
        """Return the jobs for which their nodes have room together, and take what they get from `free`."""
        fitting = []
        for entry in self._by_name.values():
            if _fits(entry.job.held, free):
                free.take(entry.job.held)
                fitting.append(entry.job)
        return fitting

    def resume(self, name: JobId, now: int) -> RunningJob:
        """Return a job that resumes now [s], with its new expected end, and forget that it was suspended."""
        entry = self._by_name.pop(name)
        return entry.job._replace(end=now + entry.left)

    def all(self) -> list[RunningJob]:
        """Return the suspended jobs as they ran."""
        return [entry.job for entry in self._by_name.values()]

    def holding(self, free: FreeNodes, now: int) -> list[RunningJob]:
        """Return the suspended jobs with what is free of their GPUs, CPUs and memory, and take that from `free`."""
        holding = []
        for entry in self._by_name.values():
            rest = _rest(entry.job.held, free)
            if rest:
                free.take(rest)
                job = RunningJob.on(entry.job.name, rest, now + entry.left)
                holding.append(entry.job._replace(held=rest, nodes=job.nodes, end=job.end))
        return holding


def _fits(held: Allocated, free: FreeNodes) -> bool:
    """Return whether nodes have room for what a job held."""
    for node, gpus, cpus, memory in held:
        if free.gpus[node] < gpus or free.cpus[node] < cpus or free.memory[node] < memory:
            return False
    return True


def _rest(held: Allocated, free: FreeNodes) -> Allocated:
    """Return what is free of what a job held, on the nodes with a free GPU of it.

    >>> _rest((Held(0, 4, 2), Held(1, 4, 2)), FreeNodes([1, 0], [9, 9]))
    (Held(node=0, gpus=1, cpus=2, memory=0),)
    """
    rest = []
    for node, gpus, cpus, memory in held:
        free_gpus = min(gpus, free.gpus[node])
        if free_gpus > 0:
            free_cpus = max(min(cpus, free.cpus[node]), 0)
            free_memory = max(min(memory, free.memory[node]), 0)
            rest.append(Held(node, free_gpus, free_cpus, free_memory))
    return tuple(rest)
