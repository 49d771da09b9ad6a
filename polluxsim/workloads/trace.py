"""A cluster's log replayed as it is: rigid jobs, each with the GPUs and the duration that the log says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, InvalidInputError, bad_line
from polluxsim.gpu_types import types_in
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.trace_table import read_trace
from polluxsim.workloads.workload import InvalidJobError, Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polluxsim.logs.trace_table import TraceJob
    from polluxsim.models.profile import Profile


@dataclass(frozen=True)
class TraceReplay:
    """Jobs of an imported trace, replayed as they were.

    Jobs that held no GPU, or none for a known time, are left out; a share of a GPU becomes a whole one. Both are
    counted in the workload's notes.

    Parameters
    ----------
    path
        What `polluxsim import` or `polluxsim generate` wrote (.parquet).
    most_gpus
        Jobs with more GPUs are left out, and counted; None keeps all, and then all must fit the cluster.
    most_jobs
        The first so many jobs only; None takes all.
    cancel
        Whether jobs that the log says were cancelled are cancelled at the same time here, where the log says when,
        even if they wait longer; otherwise they run for as long as they did.
    """

    path: str
    most_gpus: int | None = None
    most_jobs: int | None = None
    cancel: bool = False

    def __post_init__(self) -> None:
        for name, value in (("most_gpus", self.most_gpus), ("most_jobs", self.most_jobs)):
            if value is not None and value < 1:
                raise InvalidConfigError(f"workload.{name} is {value}, allowed is a whole number ≥ 1, or null")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs.

        Raises
        ------
        InvalidInputError
            If the file is no imported trace, or no job is left.
        """
        notes = Counter[str]()
        jobs = tuple(self._jobs(Path(self.path), notes))
        if not jobs:
            raise InvalidInputError(f"{self.path}: no job that held a GPU for a known time, needed is one or more")
        return Workload(jobs, source=self.path, notes=tuple(f"{count} {what}" for what, count in notes.items()))

    def _jobs(self, path: Path, notes: Counter[str]) -> Iterator[Job]:
        jobs = read_trace(path)[1]
        names = _Names(job.job for job in jobs)
        taken = 0
        for row, job in enumerate(jobs, start=1):
            if taken == self.most_jobs:
                return
            if what := self._why_not(job.num_gpus, job.duration):
                notes[what] += 1
                continue
            if job.num_gpus != ceil(job.num_gpus):
                notes["jobs with a share of a GPU given a whole one"] += 1
            taken += 1
            try:
                yield self._job(job, names.next_of(job.job), row)
            except InvalidJobError as error:
                raise bad_line(path, row, str(error)) from None

    def _job(self, job: TraceJob, name: str, row: int) -> Job:
        return Job.rigid(
            name,
            job.submit_time,
            ceil(job.num_gpus),
            job.duration or 0.0,
            row,
            user=_shared(job.user),
            queue=_shared(job.tenant),
            time_limit=job.time_limit or None,
            cancel_time=self._cancel_time(job),
            gpu_types=_types(job.gpu_type),
        )

    def _cancel_time(self, job: TraceJob) -> float | None:
        """Return when the log says that the job was cancelled, if that counts [s]."""
        if not self.cancel or job.status != JobStatus.CANCELLED or job.queueing_delay is None or job.duration is None:
            return None
        return max(job.submit_time, job.submit_time + job.queueing_delay + job.duration)

    def _why_not(self, num_gpus: float, duration: float | None) -> str:
        """Return why a job is left out, nothing if it is not."""
        if not num_gpus:
            return "jobs without a GPU left out"
        if not duration:
            return "jobs without a known time on GPUs left out"
        if self.most_gpus is not None and num_gpus > self.most_gpus:
            return f"jobs with more than {self.most_gpus} GPUs left out"
        return ""


class _Names:
    """Names for jobs of a log, in which some logs use a name again: the first job keeps it, the others get a number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._given = set(names)
        self._seen = Counter[str]()

    def next_of(self, name: str) -> str:
        """Return the name of the next job that the log calls so."""
        self._seen[name] += 1
        if self._seen[name] == 1:
            return name
        while (numbered := f"{name}#{self._seen[name]}") in self._given:
            self._seen[name] += 1
        self._given.add(numbered)
        return numbered


@lru_cache
def _types(said: str | None) -> tuple[str, ...]:
    return tuple(gpu.name for gpu in types_in(said))


def _shared(name: str | None) -> str | None:
    """Return a name such that many jobs share one copy of it; None if it says nothing."""
    return intern(name) if name and name.strip() else None
