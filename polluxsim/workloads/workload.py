"""A workload: the jobs that arrive, in order of submission, each with what its user asked for."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from polluxsim.errors import InvalidInputError, UnknownApplicationError, bad_line
from polluxsim.files import Row, appearing_whole, read_rows
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.models.rigid import RIGID
from polluxsim.shipped import shipped
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from polluxsim.models.profile import Profile
    from polluxsim.types import Cluster, JobId

DEFAULT = "philly-like-160.csv"
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
COMMON_COLUMNS = ("name", "time", "num_replicas")
DURATION = "duration"


@dataclass(frozen=True)
class Job:
    """One job as its user submits it.

    Parameters
    ----------
    job_id
        Its name, unique in the workload.
    submit_time
        When it arrives [s since the start of the workload].
    application
        Name of the application it trains; `RIGID` for a job without a profile.
    num_replicas
        GPUs its user asks for.
    batch_size
        Total batch size its user asks for [examples].
    line
        Where it stands in the file it came from, for messages; 0 if in none.
    duration
        Time that a job without a profile needs on its GPUs [s]; None for one with a profile.
    """

    job_id: JobId
    submit_time: float
    application: str
    num_replicas: int
    batch_size: int
    line: int = 0
    duration: float | None = None

    @classmethod
    def rigid(cls, job_id: JobId, submit_time: float, num_replicas: int, duration: float, line: int = 0) -> Job:
        """Return a job without a profile: it needs so many GPUs for so long [s]."""
        return cls(job_id, submit_time, RIGID, num_replicas, num_replicas, line, duration)


class Arrivals(Protocol):
    """Says which jobs follow when one completes; it may remember things, so that each run needs its own."""

    def after(self, job: Job, time: float) -> Sequence[Job]:
        """Return the jobs that are submitted, now or later, because `job` was complete at `time` [s]."""
        ...


class NothingFollows:
    """All jobs are known from the start."""

    def after(self, job: Job, time: float) -> Sequence[Job]:
        """Return none."""
        return ()


@dataclass(frozen=True)
class Workload:
    """Jobs in order of submission (ties in the order given).

    Parameters
    ----------
    jobs
        The jobs.
    source
        Where they come from, for messages: a file's path, or what made them.
    notes
        What was left out or altered on the way, with counts; empty if nothing was.
    new_arrivals
        Makes what says, in one run, which further jobs follow when one completes.
    num_followers
        How many will follow, if all goes well; for who shows progress.
    """

    jobs: tuple[Job, ...]
    source: str = "workload"
    notes: tuple[str, ...] = ()
    new_arrivals: Callable[[], Arrivals] = NothingFollows
    num_followers: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.submit_time)))
        seen = dict[str, Job]()
        for job in sorted(self.jobs, key=lambda job: job.line):
            if (first := seen.setdefault(job.job_id, job)) is not job:
                raise self.error(job, f"name {job.job_id!r} stands on line {first.line} already, allowed is once")

    def error(self, job: Job, what: str) -> InvalidInputError:
        """Return the error for one job of this workload."""
        if job.line:
            return bad_line(self.source, job.line, what)
        return InvalidInputError(f"{self.source}, job {job.job_id!r}: {what}")

    @property
    def first_rigid_job(self) -> Job | None:
        """Return the first job without a profile, None if every job has one."""
        return next((job for job in self.jobs if job.duration is not None), None)

    def check(self, profiles: Mapping[str, Profile], cluster: Cluster) -> None:
        """Check that every job can run.

        Raises
        ------
        UnknownApplicationError
            If a job's application has no profile.
        InvalidInputError
            If a job asks for more GPUs than there are, or for a batch size outside its profile.
        """
        for job in self.jobs:
            if job.duration is None:
                self._check_profile(job, profiles)
            if job.num_replicas > cluster.num_gpus:
                raise self.error(
                    job,
                    f"num_replicas is {job.num_replicas}, allowed are the {cluster.num_gpus} GPUs there are",
                )
            if job.duration is None:
                self._check_batch_size(job, profiles[job.application], max(cluster.gpus_per_node))

    def _check_profile(self, job: Job, profiles: Mapping[str, Profile]) -> None:
        if job.application not in profiles:
            what = f"application {job.application!r} has no profile, allowed are {', '.join(sorted(profiles))}"
            raise UnknownApplicationError(str(self.error(job, what)))

    def _check_batch_size(self, job: Job, profile: Profile, gpus_per_node: int) -> None:
        limits = profile.application
        if not limits.init_batch_size <= job.batch_size <= limits.max_batch_size:
            raise self.error(
                job,
                f"batch_size is {job.batch_size}, allowed for {job.application} are "
                f"{limits.init_batch_size} to {limits.max_batch_size}",
            )
        if job.batch_size < limits.min_atomic_batch_size * job.num_replicas:
            raise self.error(
                job,
                f"batch_size {job.batch_size} over {job.num_replicas} GPUs is too little for each, "
                f"allowed for {job.application} are {limits.min_atomic_batch_size} or more",
            )
        choice = split_batch_size(limits, job.batch_size, job.num_replicas)
        try:
            profile.step_time(packed(job.num_replicas, gpus_per_node), choice.atomic_batch_size)
        except ProfileRangeError as error:
            raise self.error(job, str(error)) from None


@dataclass(frozen=True)
class OneJob:
    """A workload of one job that starts at its initial batch size on one GPU.

    Parameters
    ----------
    application
        What it trains.
    """

    application: str

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload."""
        profile = profiles.get(self.application)
        batch_size = 1 if profile is None else profile.application.init_batch_size
        return Workload((Job(f"{self.application}-1", 0.0, self.application, 1, batch_size),), source="one-job")


@dataclass(frozen=True)
class WorkloadFile:
    """A workload in a file.

    Parameters
    ----------
    path
        CSV or Parquet, with the columns of `read_workload`; by default the workload that comes with polluxsim.
    """

    path: str | None = None

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the workload."""
        return read_workload(shipped("workloads") / DEFAULT if self.path is None else Path(self.path))


def read_workload(path: Path) -> Workload:
    """Read a workload from CSV or Parquet with the columns name, time, application, num_replicas, batch_size.

    A file may have a column duration besides, or in place of application and batch_size: a row that has one [s] is a
    job without a profile.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, a row is not what it should be, or a name stands twice.
    """
    return Workload(tuple(map(_job, read_rows(path, COMMON_COLUMNS))), source=str(path))


def workload_from_frame(frame: pd.DataFrame) -> Workload:
    """Return the workload of a table with the columns of `read_workload`.

    Raises
    ------
    InvalidInputError
        If a column is missing, a row is not what it should be, or a name stands twice; rows are counted from 1.
    """
    needed = COMMON_COLUMNS if DURATION in frame.columns else COLUMNS
    if missing := [name for name in needed if name not in frame.columns]:
        named = ", ".join(map(repr, missing))
        raise InvalidInputError(f"DataFrame: missing column {named}, needed are {', '.join(needed)}")
    present = [name for name in (*COLUMNS, DURATION) if name in frame.columns]
    columns = zip(*(frame[name].tolist() for name in present), strict=True)
    records = (dict(zip(present, values, strict=True)) for values in columns)
    rows = (Row(Path("DataFrame"), line, record) for line, record in enumerate(records, start=1))
    return Workload(tuple(map(_job, rows)), source="DataFrame")


def _job(row: Row) -> Job:
    job_id, submit_time = row.text("name"), row.number("time", at_least=0)
    num_replicas = row.integer("num_replicas", at_least=1)
    # An empty cell is "" in CSV, None in Parquet and NaN in pandas.
    if str(row.values.get(DURATION, "")) not in ("", "None", "nan"):
        return Job.rigid(job_id, submit_time, num_replicas, row.number(DURATION, above=0), row.line)
    if missing := [name for name in COLUMNS if name not in row.values]:
        named, needed = ", ".join(map(repr, missing)), ", ".join(COLUMNS)
        what = f"missing column {named}, needed are {needed}; or {DURATION} for jobs without a profile"
        raise bad_line(row.path, 1 if DURATION not in row.values else row.line, what)
    return Job(
        job_id=job_id,
        submit_time=submit_time,
        application=row.text("application"),
        num_replicas=num_replicas,
        batch_size=row.integer("batch_size", at_least=1),
        line=row.line,
    )


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload as CSV, in the form that `read_workload` reads."""
    with appearing_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        with_durations = workload.first_rigid_job is not None
        writer.writerow((*COLUMNS, DURATION) if with_durations else COLUMNS)
        for job in workload.jobs:
            time = int(job.submit_time) if job.submit_time.is_integer() else job.submit_time
            if job.duration is None:
                row = (job.job_id, time, job.application, job.num_replicas, job.batch_size)
                writer.writerow((*row, "") if with_durations else row)
            else:
                writer.writerow((job.job_id, time, "", job.num_replicas, "", job.duration))
