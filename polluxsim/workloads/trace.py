"""A cluster's log replayed as it is: rigid jobs, each with the GPUs and the duration that the log says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.traces.table import read_trace
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """

    path: str
    most_gpus: int | None = None
    most_jobs: int | None = None

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
        taken = 0
        names = Counter[str]()
        for row, job in enumerate(read_trace(path)[1], start=1):
            if taken == self.most_jobs:
                return
            if what := self._why_not(job.num_gpus, job.duration):
                notes[what] += 1
                continue
            if job.num_gpus != ceil(job.num_gpus):
                notes["jobs with a share of a GPU given a whole one"] += 1
            taken += 1
            names[job.job] += 1
            # Some logs use a name again.
            name = job.job if names[job.job] == 1 else f"{job.job}#{names[job.job]}"
            yield Job.rigid(name, job.submit_time, ceil(job.num_gpus), job.duration or 0.0, row)

    def _why_not(self, num_gpus: float, duration: float | None) -> str:
        """Return why a job is left out, nothing if it is not."""
        if not num_gpus:
            return "jobs without a GPU left out"
        if not duration:
            return "jobs without a known time on GPUs left out"
        if self.most_gpus is not None and num_gpus > self.most_gpus:
            return f"jobs with more than {self.most_gpus} GPUs left out"
        return ""
