"""A cluster's log replayed as it is: rigid jobs, each with the GPUs and the duration that the log says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.traces.schema import read_info
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.models.profile import Profile

NEEDED = ("job", "submit_time", "duration", "num_gpus")

LONGEST_DURATION = 1e9
"""Thirty years; longer ones are slips of the clock [s]."""


@dataclass(frozen=True)
class TraceReplay:
    """Jobs of an imported trace, replayed as they were.

    Jobs that held no GPU or none for a known time are left out and counted in the workload's notes; a share of a GPU
    becomes a whole one.

    Parameters
    ----------
    path
        What `polluxsim import` wrote (.parquet).
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
        path = Path(self.path)
        if not path.is_file():
            raise InvalidInputError(f"{path}: no such file")
        read_info(path)
        notes = Counter[str]()
        jobs = tuple(self._jobs(path, notes))
        if not jobs:
            raise InvalidInputError(f"{path}: no job that held a GPU for a known time, needed is at least one")
        return Workload(jobs, source=str(path), notes=tuple(f"{count} {what}" for what, count in notes.items()))

    def _jobs(self, path: Path, notes: Counter[str]) -> Iterator[Job]:
        taken = 0
        for row, (job_id, submit_time, duration, num_gpus) in enumerate(_rows(path), start=1):
            if self.most_jobs is not None and taken == self.most_jobs:
                return
            if num_gpus <= 0:
                notes["jobs without a GPU left out"] += 1
            elif duration is None or duration <= 0:
                notes["jobs without a known time on GPUs left out"] += 1
            elif self.most_gpus is not None and num_gpus > self.most_gpus:
                notes[f"jobs with more than {self.most_gpus} GPUs left out"] += 1
            else:
                if num_gpus != ceil(num_gpus):
                    notes["jobs with a share of a GPU given a whole one"] += 1
                taken += 1
                yield Job.rigid(job_id, submit_time, ceil(num_gpus), min(duration, LONGEST_DURATION), row)


def _rows(path: Path) -> Iterator[tuple[str, float, float | None, float]]:
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(NEEDED)):
                yield from zip(*(batch.column(name).to_pylist() for name in NEEDED), strict=True)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InvalidInputError(f"{path}: not an imported trace ({str(error).splitlines()[0]})") from None
