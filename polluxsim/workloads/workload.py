"""Workloads: jobs in the order of submission, and their files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polluxsim.common.errors import InvalidInputError, UnknownApplicationError, bad_line, one_of
from polluxsim.common.files import atomic_write
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.models.profile import Profile
from polluxsim.workloads.feasibility import why_not
from polluxsim.workloads.job import KINDS, OPTIONS, InvalidJobError, Job
from polluxsim.workloads.past import COLUMNS as COLUMNS_OF_PAST
from polluxsim.workloads.past import cell_of, past_of

if TYPE_CHECKING:
    import pandas as pd

    from polluxsim.common.dates import Origin

__all__ = [
    "Arrivals", "InvalidJobError", "Job", "NothingFollows", "OneJob", "Workload", "WorkloadFile", "read_workload",
    "workload_from_frame", "write_workload",
]  # fmt: skip

DEFAULT = "philly-like-160.csv"
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
COMMON_COLUMNS = ("name", "time", "num_replicas")
DURATION = "duration"  # column of jobs without a profile
_COLUMN_OF = {"job_id": "name", "submit_time": "time"}  # by field of `Job`, for columns with another name


class Arrivals(Protocol):
    """Rule by which new jobs follow complete jobs. It may have state, so each run needs a new object."""

    def after(self, job: Job, time: float) -> Sequence[Job]:
        """Return the jobs that are submitted, now or later, because `job` was complete at `time` [s]."""


class NothingFollows:
    """Rule by which no job follows."""

    def after(self, job: Job, time: float) -> Sequence[Job]:
        """Return no job."""
        return ()


@dataclass(frozen=True)
class Workload:
    """Jobs in the order of submission. Jobs with equal times keep the order in which they are given.

    Raise InvalidInputError if two jobs have the same name, or a job waits for a missing job or for itself.
    """

    jobs: tuple[Job, ...]  # in the order of submission
    source: str = "workload"  # source of the jobs for messages, like the path of a file
    notes: tuple[str, ...] = ()  # notes on jobs that were left out or changed when the jobs were read, with counts
    # Function that returns, for a run, the rule by which new jobs follow completed jobs.
    new_arrivals: Callable[[], Arrivals] = NothingFollows
    num_followers: int = 0  # expected number of these new jobs, for the display of progress
    origin: Origin | None = None  # date of second 0; None if the times of the jobs have no dates

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.submit_time)))
        first_jobs = dict[str, Job]()
        for job in sorted(self.jobs, key=lambda job: job.line):
            first = first_jobs.setdefault(job.job_id, job)
            if first is not job:
                where = "the name of another job"
                if first.line:
                    where = f"also on line {first.line}"
                raise self.error(job, f"the name {job.job_id!r} is {where}, must be unique")
        self._check_order(first_jobs)

    def __repr__(self) -> str:
        return f"Workload({len(self.jobs)} jobs from {self.source!r})"

    @cached_property
    def by_name(self) -> dict[str, Job]:
        """Return the jobs by name, in order of submission."""
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def first_submission(self) -> float:
        """Return the time of the first submission [s]; 0 without jobs, or with jobs from before the start of the run.

        A job that waits for other jobs is submitted after them, whatever its own time is.
        """
        return max(min((job.submit_time for job in self.jobs if not job.after), default=0.0), 0.0)

    def _check_order(self, jobs: Mapping[str, Job]) -> None:
        """Raise InvalidInputError if a job waits for a job that is not in the workload, or for itself."""
        earlier = {name: job.after for name, job in jobs.items() if job.after}
        for name, names in earlier.items():
            missing = [other for other in names if other not in jobs]
            if missing:
                raise self.error(jobs[name], f"after has {missing[0]!r}, must have names of jobs in this workload")
        try:
            TopologicalSorter(earlier).prepare()
        except CycleError as error:
            circle = error.args[1]
            raise self.error(jobs[circle[0]], f"waits for itself: {' after '.join(reversed(circle))}") from None

    def error(self, job: Job, what: str) -> InvalidInputError:
        """Return an error about one job of this workload."""
        if job.line:
            return bad_line(self.source, job.line, what)
        return InvalidInputError(f"{self.source}, job {job.job_id!r}: {what}")

    @property
    def first_rigid_job(self) -> Job | None:
        """Return the first job without a profile, or None."""
        return next((job for job in self.jobs if job.is_rigid), None)

    def check(self, profiles: Mapping[str, Profile], cluster: Cluster, *, shrinks: bool = False) -> None:
        """Raise InvalidInputError about the first job that cannot run on a cluster, or on the nodes of its partition.

        The error is an UnknownApplicationError if the job has no profile. With `shrinks`, a job may run on a type with
        fewer GPUs than it requests.
        """
        for job in self.jobs:
            if not job.is_rigid and job.application not in profiles:
                requirement = one_of(job.application, sorted(profiles))
                problem = f"application {job.application!r} has no profile, must be {requirement}"
                raise UnknownApplicationError(str(self.error(job, problem)))
            profile = None
            if not job.is_rigid:
                profile = profiles[job.application]
            nodes = cluster.for_queue(job.queue)
            reasons = {name: why_not(job, profile, nodes, name, shrinks=shrinks) for name in nodes.types}
            if not all(reasons.values()):
                continue
            if len(reasons) == 1:
                only_reason = next(iter(reasons.values()))
                raise self.error(job, str(only_reason))
            by_type = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise self.error(job, f"fits no GPU type of the cluster: {by_type}")


@takes_settings("workload")
@dataclass(frozen=True)
class OneJob:
    """A workload of one job: with a duration, or with a profile at its initial batch size."""

    application: Name  # name of the application
    num_replicas: int = 1  # requested GPUs
    duration: Seconds | None = None  # duration on these GPUs [s]; None for a job with the application's profile

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the workload. The job is submitted at 0 s."""
        # The batch size of a job with a duration. An application without a profile is reported when the run is made.
        batch_size = self.num_replicas
        if self.duration is None and self.application in profiles:
            batch_size = profiles[self.application].application.init_batch_size
        job = Job(f"{self.application}-1", 0.0, self.application, self.num_replicas, batch_size, duration=self.duration)
        return Workload((job,), source="one-job")


@dataclass(frozen=True)
class WorkloadFile:
    """A workload in a file."""

    # CSV or Parquet with the columns of `read_workload`, or a job list of Gavel's simulator (.trace); by default the
    # workload that comes with polluxsim.
    path: str | None = None

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the workload. Raise InvalidInputError as `read_workload` does."""
        if self.path is not None and Path(self.path).suffix == ".trace":
            from polluxsim.workloads.gavel_lists import GavelList  # noqa: PLC0415  (imports readers of logs)

            return Workload(*GavelList(self.path).read())
        if self.path is None:
            return read_workload(shipped("workloads") / DEFAULT)
        return read_workload(Path(self.path))


@dataclass(frozen=True)
class ShippedFile:
    """A workload in a file that comes with polluxsim."""

    name: str = DEFAULT  # name of the file in the folder `workloads`

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the workload. Raise InvalidInputError if no file of this name comes with polluxsim."""
        return read_workload(shipped("workloads") / self.name)


def read_workload(path: Path) -> Workload:
    """Read a workload from CSV or Parquet.

    The columns are name, time, application, num_replicas and batch_size. A job without a profile has a duration instead
    of application and batch_size. A file may have jobs of both kinds. Optional columns have the names of the other
    fields of `Job`, from user to memory_speeds. A job that was submitted before the start of the run, at a time below
    0, has the columns of `polluxsim.workloads.past`. Other columns are named in the notes of the workload. In CSV,
    names in after and gpu_types are separated by spaces or semicolons.

    Raise InvalidInputError if the file cannot be read or has no rows, a row is invalid, a name is not unique, or a job
    waits for a missing job or for itself.
    """
    return _workload(read_rows(path, COMMON_COLUMNS), str(path))


def workload_from_frame(frame: pd.DataFrame) -> Workload:
    """Return the workload of a table with the columns of `read_workload`; without jobs if the table has no rows.

    Raise InvalidInputError about its values as `read_workload` does. The messages count rows from 1.
    """
    needed: tuple[str, ...] = COLUMNS
    if DURATION in frame.columns:
        needed = COMMON_COLUMNS  # each row states whether its job has a profile
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        missing_names = ", ".join(map(repr, missing))
        raise InvalidInputError(f"DataFrame: missing column {missing_names}; it must have {', '.join(needed)}")
    if len({*map(str, frame.columns)}) < len(frame.columns):
        raise InvalidInputError("DataFrame: two columns have the same name; rename one")
    columns = {str(name): _values(column) for name, column in frame.items()}
    records = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    rows = (Row(Path("DataFrame"), line, record) for line, record in enumerate(records, start=1))
    return _workload(rows, "DataFrame")


def _values(column: pd.Series[Any]) -> list[Any]:
    """Return the values of a column: None if missing, and lists for arrays, which `pd.read_parquet` makes."""
    values = column.astype(object).where(column.notna(), None).tolist()
    for index, value in enumerate(values):
        if isinstance(value, np.ndarray):
            values[index] = value.tolist()
    return values


def _workload(rows: Iterable[Row], source: str) -> Workload:
    """Return the workload of rows, the first of which has the columns of all."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return Workload((), source)
    unused = [repr(name) for name in first.values if name not in (*COLUMNS, DURATION, *OPTIONS, *COLUMNS_OF_PAST)]
    notes: tuple[str, ...] = ()
    if unused:
        notes = (f"columns that are not used: {', '.join(unused)}",)
    options = [name for name in OPTIONS if name in first.values]
    return Workload(tuple(_job(row, options) for row in chain((first,), rows)), source, notes)


def _job(row: Row, options: Sequence[str]) -> Job:
    """Return the job of a row. `options` are the columns with optional fields that the file has.

    Raise InvalidInputError about the column of an invalid value.
    """
    stated = {name: KINDS[name].read(row, name) for name in options if row.has(name)}
    past = past_of(row)
    if past is not None:
        stated["past"] = past
    try:
        if row.has(DURATION):
            return _rigid(row, stated)
        return _profiled(row, stated)
    except InvalidJobError as error:
        column = _COLUMN_OF.get(error.field, error.field)
        if column not in row.values:
            raise bad_line(row.path, row.line, str(error)) from None
        raise row.error(column, error.allowed) from None


def _profiled(row: Row, given: Mapping[str, Any]) -> Job:
    """Return the job of a row without a duration; `given` has its optional fields."""
    missing = [name for name in COLUMNS if name not in row.values]
    if missing:
        missing_names = ", ".join(map(repr, missing))
        needed = ", ".join(COLUMNS)
        problem = (
            f"missing column {missing_names}; the row must have {needed}, or {DURATION} for a job without a profile"
        )
        line = row.line
        if DURATION not in row.values:
            line = 1  # the header lacks the column
        raise bad_line(row.path, line, problem)
    application = intern(row.text("application"))
    batch_size = row.integer("batch_size")
    num_replicas = row.integer("num_replicas")
    return Job(row.text("name"), row.number("time"), application, num_replicas, batch_size, row.line, **given)


def _rigid(row: Row, given: Mapping[str, Any]) -> Job:
    """Return the job of a row with a duration; `given` has its optional fields."""
    for name in ("application", "batch_size"):
        if row.has(name):
            raise row.error(name, f"empty in a row with a {DURATION}, because the job has no profile")
    duration = row.number(DURATION)
    return Job.rigid(row.text("name"), row.number("time"), row.integer("num_replicas"), duration, row.line, **given)


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload as CSV, in the form that `read_workload` reads.

    Raise InvalidInputError if a name of a job in `after`, or of a GPU type, has a semicolon, or a job has a plan.
    """
    planned = next((job for job in workload.jobs if job.plan is not None), None)
    if planned:
        raise workload.error(planned, "the job has a plan of batch sizes, which a workload file cannot have")
    defaults = {field.name: field.default for field in fields(Job)}
    options = []
    for name in (DURATION, *OPTIONS):
        if any(getattr(job, name) != defaults[name] for job in workload.jobs):
            options.append(name)
    columns_of_past: tuple[str, ...] = ()
    if any(job.past is not None for job in workload.jobs):
        columns_of_past = COLUMNS_OF_PAST
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")  # equal bytes on all systems
        writer.writerow((*COLUMNS, *options, *columns_of_past))
        for job in workload.jobs:
            cells = _common_cells(job)
            cells += [_cell(workload, job, name) for name in options]
            cells += [cell_of(job.past, name) for name in columns_of_past]
            writer.writerow(cells)


def _common_cells(job: Job) -> list[object]:
    """Return the cells of a job in `COLUMNS`; a job with a duration has no application and no batch size."""
    application = job.application
    batch_size: int | str = job.batch_size
    if job.is_rigid:
        application = ""
        batch_size = ""
    time = job.submit_time
    if float(time).is_integer():
        time = int(time)  # a file has whole seconds without a point
    return [job.job_id, time, application, job.num_replicas, batch_size]


def _cell(workload: Workload, job: Job, name: str) -> object:
    """Return the value of a job in an optional column of a workload file."""
    value = getattr(job, name)
    if value is None:
        return ""
    if not isinstance(value, tuple):
        return value
    if name.endswith("speeds"):
        texts = [f"{key}:{float(speed)!r}" for key, speed in value]
    elif name == "stages":
        texts = [repr(float(time)) for time in value]
    else:
        texts = list(value)
    for text in texts:
        if ";" in text:
            raise workload.error(job, f"{name} has {text!r}, must have names without a semicolon in a file")
    cell = ";".join(texts)
    has_blanks = texts != cell.split()
    if len(texts) == 1 and has_blanks:
        cell += ";"  # without it, the parts of the text would be several names
    return cell
