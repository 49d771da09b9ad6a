"""A cluster's log replayed as it is: rigid jobs, each with the GPUs and the duration that the log says."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.durations import HOUR
from polluxsim.errors import InvalidConfigError, InvalidInputError, bad_line, check_choice
from polluxsim.gpu_types import NamedTypes
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.trace_table import read_trace
from polluxsim.workloads.names import UniqueNames, shared
from polluxsim.workloads.source import check_whole, check_window
from polluxsim.workloads.workload import InvalidJobError, Job, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.logs.trace_table import TraceJob
    from polluxsim.models.profile import Profile


QUEUES = ("tenant", "partition")


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
    start, hours
        The window: from when on, counted from the log's first submission, and for how long; None is to the end [h].
    load_factor
        Jobs arrive so many times as fast as they did.
    share
        Part of the jobs that is kept, drawn at random: a quarter of the log for a cluster of a quarter of its size.
    seed
        Of that draw.
    queue
        What jobs' queues are: the log's `tenant`, or its `partition`.
    gpu_types
        What GPU types of the log stand for here, beside the names that are known (`polluxsim.gpu_types.OTHER_NAMES`);
        nothing for any type. None lets all jobs have any.
    """

    path: str
    most_gpus: int | None = None
    most_jobs: int | None = None
    cancel: bool = False
    start: float = 0.0
    hours: float | None = None
    load_factor: float = 1.0
    share: float = 1.0
    seed: int = 0
    queue: str = "tenant"
    gpu_types: Mapping[str, str] | None = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_window(self.start, self.hours)
        for name, number, most in (("load_factor", self.load_factor, inf), ("share", self.share, 1.0)):
            if not 0 < number <= most or number == inf:
                what = "a number > 0" if most == inf else "a number > 0 and ≤ 1"
                raise InvalidConfigError(f"workload.{name} is {number}, allowed is {what}")
        check_whole("seed", self.seed)
        check_choice("workload.queue", self.queue, QUEUES)
        for name, value in (("most_gpus", self.most_gpus), ("most_jobs", self.most_jobs)):
            if value is not None and value < 1:
                raise InvalidConfigError(f"workload.{name} is {value}, allowed is a whole number ≥ 1, or null")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs."""
        notes = Counter[str]()
        jobs = tuple(self._jobs(Path(self.path), notes))
        if not jobs:
            raise InvalidInputError(f"{self.path}: no job that held a GPU for a known time, needed is one or more")
        return Workload(jobs, source=self.path, notes=tuple(f"{count} {what}" for what, count in notes.items()))

    def _jobs(self, path: Path, notes: Counter[str]) -> Iterator[Job]:
        jobs = read_trace(path)[1]
        names, arrays = UniqueNames(job.job for job in jobs), _Arrays()
        types = NamedTypes(self.gpu_types, (job.gpu_type for job in jobs))
        drawn = np.random.default_rng(self.seed).random(len(jobs)) < self.share
        taken = 0
        for row, job in enumerate(jobs, start=1):
            if taken == self.most_jobs:
                return
            if what := self._why_not(job, is_drawn=bool(drawn[row - 1])):
                notes[what] += 1
                continue
            if job.num_gpus != ceil(job.num_gpus):
                notes["jobs with a share of a GPU given a whole one"] += 1
            taken += 1
            try:
                yield self._job(job, names.next_of(job.job), row, arrays, types)
            except InvalidJobError as error:
                raise bad_line(path, row, str(error)) from None

    def _job(self, job: TraceJob, name: str, row: int, arrays: _Arrays, types: NamedTypes) -> Job:
        return Job.rigid(
            name,
            self._submit_time(job),
            ceil(job.num_gpus),
            job.duration or 0.0,
            row,
            user=shared(job.user),
            queue=shared(job.tenant if self.queue == "tenant" else job.partition),
            time_limit=job.time_limit or None,
            after=arrays.before(job, name),
            cancel_time=self._cancel_time(job),
            gpu_types=types.of(job.gpu_type),
            cpus=job.cpus or None,
            memory=job.memory or None,
        )

    def _cancel_time(self, job: TraceJob) -> float | None:
        """Return when the log says that the job was cancelled, if that counts [s]."""
        if not self.cancel or job.status != JobStatus.CANCELLED or job.queueing_delay is None or job.duration is None:
            return None
        submitted = self._submit_time(job)
        return max(submitted, submitted + job.queueing_delay + job.duration)

    def _submit_time(self, job: TraceJob) -> float:
        """Return when a job is submitted here [s]."""
        return (job.submit_time - self.start * HOUR) / self.load_factor

    def _why_not(self, job: TraceJob, *, is_drawn: bool) -> str:
        """Return why a job is left out, nothing if it is not."""
        end = inf if self.hours is None else (self.start + self.hours) * HOUR
        if not self.start * HOUR <= job.submit_time < end:
            return "jobs submitted outside the window left out"
        if not is_drawn:
            return "jobs not drawn left out"
        if not job.num_gpus:
            return "jobs without a GPU left out"
        if not job.duration:
            return "jobs without a known time on GPUs left out"
        if self.most_gpus is not None and job.num_gpus > self.most_gpus:
            return f"jobs with more than {self.most_gpus} GPUs left out"
        return ""


class _Arrays:
    """Job arrays of which only so many jobs may run at once: each waits for the one so many before it."""

    def __init__(self) -> None:
        self._members = defaultdict[str, list[str]](list)

    def before(self, job: TraceJob, name: str) -> tuple[str, ...]:
        """Return the job that this one waits for, and remember it."""
        if not job.array_limit:
            return ()
        members = self._members[job.job.partition("_")[0]]
        members.append(name)
        return (members[-1 - job.array_limit],) if len(members) > job.array_limit else ()
