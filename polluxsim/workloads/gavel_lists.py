"""Job lists of Gavel's and Shockwave's simulators: rigid jobs with numbers of steps, some with changing batch sizes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

from polluxsim.common.errors import bad_line
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.values import Range
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.logs.formats.job_lists import GAVEL, read_gavel_row
from polluxsim.logs.formats.log_rows import good_rows
from polluxsim.models.known_duration import BatchPlan
from polluxsim.workloads.job import InvalidJobError, Job

Speeds: TypeAlias = Mapping[tuple[str, int], Mapping[tuple[str, int], float]]
"""Steps/s by (model, GPUs), then by (GPU type, batch size)."""

Doublings: TypeAlias = Mapping[tuple[str, int, int], "Sequence[int]"]
"""Epochs at which a job doubles its batch size, by (model, first batch size, GPUs)."""

MOST_EPOCHS = 1_000_000  # limit that catches errors in lists

# Columns of a .csv list.
COLUMNS = ("job_id", "model", "batch_size", "gpus", "mode", "total_steps", "arrival_s")
_JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<size>[1-9][0-9]{0,8})\))?")

MODES = ("static", "accordion", "gns")  # rules for the batch size: fixed, Accordion, by the gradient noise scale


class Sizes(NamedTuple):
    """Sizes of an application, both for one GPU."""

    epoch: int  # [examples]
    largest_batch: int  # [examples]


APPLICATIONS: Mapping[str, Sizes] = {
    "ResNet-18": Sizes(50_000, 256),
    "ResNet-50": Sizes(100_000, 128),
    "Transformer": Sizes(10_000, 128),
    "LM": Sizes(59_675, 80),
    "Recommendation": Sizes(117_907, 8192),
}
"""Source: Shockwave (NSDI '23) and its simulator."""


class Course(NamedTuple):
    """A training whose batch size follows one of `MODES`. Its last epoch may be short."""

    model: str
    mode: str
    first: int  # batch size of the first epoch [examples per GPU]
    num_epochs: int
    doubles_at: Sequence[int] = ()  # epochs, counted from 1, in which mode gns doubles the batch size

    @property
    def largest(self) -> int:
        """Return the largest batch size of the application [examples per GPU]."""
        return APPLICATIONS[self.model].largest_batch

    def size(self, epoch: int) -> int:
        """Return the batch size in an epoch, counted from 0 [examples per GPU]."""
        if self.mode == "accordion" and self.model != "Transformer" and not self._is_critical(epoch):
            return self.largest
        if self.mode == "gns":
            return self._doubled(sum(epoch + 1 >= start for start in self.doubles_at))
        return self.first

    def expected_size(self, epoch: int) -> int:
        """Return the batch size that the user expects in an epoch, counted from 0 [examples per GPU].

        For Accordion, the user expects the first 30 % of all epochs, and some known epochs, to be critical.
        """
        if self.mode == "accordion":
            is_early = epoch <= 0.3 * self.num_epochs
            is_known = self.model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
            if not is_early and not is_known:
                return self.size(epoch)
        if self.mode == "gns":
            steps = sum(epoch >= start for start in self.doubles_at)
            is_odd_end = len(self.doubles_at) > 1 and steps > 1 and epoch == self.num_epochs - 1
            if not is_odd_end:
                return self._doubled(steps)
        return self.first

    def _doubled(self, times: int) -> int:
        """Return the first batch size after it was doubled some times, at most the largest [examples per GPU]."""
        return min(self.first << times, self.largest)

    def _is_critical(self, epoch: int) -> bool:
        """Return whether, by Accordion, gradients change too fast in an epoch for a large batch.

        Source: Shockwave's simulator.
        """
        if self.model == "ResNet-18":
            start = 20 if self.first == 256 else 10
            return epoch < start or 150 <= epoch < 160 or 250 <= epoch < 260
        if self.model == "ResNet-50":
            return epoch % 30 < 10
        return epoch < {512: 30, 1024: 30, 2048: 40}.get(self.first, 10)


class _Listed(NamedTuple):
    """One job of a .trace or .csv list."""

    row: Row
    name: str
    model: str
    size: int  # first batch size [examples per GPU]
    gpus: int  # number of GPUs
    mode: str  # one of `MODES`
    total_steps: int  # optimiser steps at the first batch size
    arrival: float  # [s]
    duration: float | None  # [s]; None if the list does not state it


@takes_settings("workload")
@dataclass(frozen=True)
class GavelList:
    """A file of Gavel's or Shockwave's simulator. In Shockwave's files, jobs may change their batch size.

    Source: Narayanan et al., Gavel (OSDI '20), Zheng et al., Shockwave (NSDI '23), and its simulator.

    Raise InvalidConfigError if a parameter is invalid.
    """

    path: str  # path of a .trace file with 10 or 12 columns, or of a .csv file with the columns `COLUMNS`
    # Table of steps/s by `gpu_type`, `model`, `batch_size` and `gpus`; by default `throughputs_alone.csv` beside the
    # list. Without this file, speeds follow from the durations in the list, on one type and at one batch size.
    throughputs: str | None = None
    # Table of the epochs at which jobs of mode `gns` double their batch size; by default `noise_scale_steps.csv` beside
    # the list. Without this file, these jobs keep their batch size.
    noise_scale_steps: str | None = None
    gpu_type: Name = "v100"  # GPU type on which users expect their jobs to run
    # Training time after which a job counts as complete, relative to its planned time; None for no limit [1].
    overtime: Annotated[float, Range(above=0, most=1e6)] | None = 1.5
    # Training time before a change of batch size takes effect [s]. The change skips the rest of its epoch. A restart
    # takes about one round in Shockwave's simulator.
    lag: Annotated[Seconds, Range(least=0, most=1e9)] = 120.0

    def read(self) -> tuple[tuple[Job, ...], str, tuple[str, ...]]:
        """Return the jobs, the path, and notes about missing tables: the first fields of `Workload`.

        Raise InvalidInputError if a file cannot be read, a row is invalid, or a speed is unknown.
        """
        path = Path(self.path)
        notes = list[str]()
        throughputs = _table(path, self.throughputs, "throughputs_alone.csv")
        steps = _table(path, self.noise_scale_steps, "noise_scale_steps.csv")
        if throughputs is None:
            notes.append("without throughputs, jobs have the durations of the list and keep their batch size")
        elif steps is None:
            notes.append("without noise_scale_steps, jobs of mode gns keep their batch size")
        speeds = None
        if throughputs is not None:
            speeds = read_throughputs(throughputs)
        doublings: Doublings = {}
        if steps is not None:
            doublings = _read_doublings(steps)
        if path.suffix == ".trace":
            listed_jobs = _trace_rows(path)
        else:
            listed_jobs = map(_csv_row, read_rows(path, COLUMNS))
        jobs = tuple(self._job(job, speeds, doublings) for job in listed_jobs)
        return jobs, self.path, tuple(notes)

    def _job(self, job: _Listed, speeds: Speeds | None, doublings: Doublings) -> Job:
        """Return a listed job. Without `speeds`, its speed follows from its duration.

        Raise InvalidInputError if its speed on `gpu_type` is unknown or 0, or it has an invalid value.
        """
        row = job.row
        if speeds is None:
            own_speeds: Mapping[tuple[str, int], float] | None = self._speeds_by_duration(job)
        else:
            own_speeds = speeds.get((job.model, job.gpus))
        if own_speeds is None or not own_speeds.get((self.gpu_type, job.size)):
            request = f"{job.model} with {job.size} examples on {job.gpus} GPUs of type {self.gpu_type}"
            raise bad_line(row.path, row.line, f"the table of throughputs has no speed > 0 of {request}")
        course = _course(job, doublings)
        plan = self._plan(job, course, {key: speed for key, speed in own_speeds.items() if speed})
        fields = (job.name, job.arrival, job.model, job.gpus, job.size * job.gpus, row.line, plan.time)
        try:
            return Job(*fields, type_speeds=plan.type_speeds, plan=plan)
        except InvalidJobError as error:
            raise bad_line(row.path, row.line, str(error)) from None

    def _speeds_by_duration(self, job: _Listed) -> Mapping[tuple[str, int], float]:
        """Return the speed that follows from the duration of a job, on `gpu_type` at its batch size [steps/s].

        Raise InvalidInputError if the list states no duration.
        """
        if not job.duration:
            how = "put throughputs_alone.csv beside the list, or give workload.throughputs=FILE"
            raise bad_line(job.row.path, job.row.line, f"the speed of {job.model} is unknown without a duration; {how}")
        return {(self.gpu_type, job.size): job.total_steps / job.duration}

    def _plan(self, job: _Listed, course: Course, speeds: Mapping[tuple[str, int], float]) -> BatchPlan:
        """Return the plan of a job.

        A batch size without a speed on `gpu_type` is replaced: in the true sizes by the size of the epoch before, and
        in the expected sizes by the first size.
        """
        fitting = {size for gpu_type, size in speeds if gpu_type == self.gpu_type}
        sizes = list[int]()  # of each epoch
        expected = list[int]()
        last_size = course.first
        for epoch in range(course.num_epochs):
            size = course.size(epoch)
            if size in fitting:
                last_size = size
            sizes.append(last_size)
            expected_size = course.expected_size(epoch)
            if expected_size not in fitting:
                expected_size = course.first
            expected.append(expected_size)
        if job.model in APPLICATIONS:
            examples = APPLICATIONS[job.model].epoch
        else:  # the whole training is one epoch
            examples = job.total_steps * course.first
        expected_time = sum(examples / size / speeds[self.gpu_type, size] for size in expected)
        most_time = inf
        if self.overtime is not None:
            # Whole seconds, as in Shockwave's simulator.
            most_time = float(max(floor(floor(expected_time) * self.overtime), 1))
        return BatchPlan(
            tuple(sizes), examples, job.total_steps, speeds, self.gpu_type, tuple(expected), self.lag, most_time
        )


def _table(jobs: Path, named: str | None, beside: str) -> Path | None:
    """Return the path of a table: the given path, the path of an existing file beside a list of jobs, or None."""
    if named is not None:
        return Path(named)
    path = jobs.parent / beside
    if not path.exists():
        return None
    return path


def read_throughputs(path: Path) -> Speeds:
    """Read a table of steps/s by GPU type, model, batch size and GPUs; 0 means that a job does not fit in memory.

    Raise InvalidInputError if the file cannot be read, or a row is invalid.
    """
    speeds = defaultdict[tuple[str, int], dict[tuple[str, int], float]](dict)
    for row in read_rows(path, ("gpu_type", "model", "batch_size", "gpus", "steps_per_s")):
        size = max(row.integer("batch_size", at_least=0), 1)
        key = (row.text("model"), row.integer("gpus", at_least=1))
        speeds[key][row.text("gpu_type"), size] = row.number("steps_per_s", at_least=0)
    return speeds


def _read_doublings(path: Path) -> Doublings:
    """Read a table of the epochs at which jobs of mode `gns` double their batch size."""
    doublings = {}
    for row in read_rows(path, ("model", "batch_size", "gpus", "doubles_at_epochs")):
        key = (row.text("model"), row.integer("batch_size", at_least=1), row.integer("gpus", at_least=1))
        doublings[key] = _epochs(row)
    return doublings


def _epochs(row: Row) -> Sequence[int]:
    """Return the numbers of epochs in a cell. Raise InvalidInputError for another cell."""
    words = row.text("doubles_at_epochs").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise row.error("doubles_at_epochs", "numbers of epochs with spaces between them")
    return [int(word) for word in words]


def _course(job: _Listed, doublings: Doublings) -> Course:
    """Return the course of a listed job. The training of an unknown application is one epoch of a fixed batch size.

    Raise InvalidInputError if an unknown application has another mode, or a job has too many epochs.
    """
    if job.model not in APPLICATIONS:
        if job.mode != "static":
            problem = f"mode is {job.mode!r}, must be static, because the epochs of {job.model} are unknown"
            raise bad_line(job.row.path, job.row.line, problem)
        return Course(job.model, job.mode, job.size, 1)
    steps = ceil(APPLICATIONS[job.model].epoch / job.size)
    epochs = ceil(job.total_steps / steps)
    if epochs > MOST_EPOCHS:
        raise bad_line(job.row.path, job.row.line, f"the job has {epochs} epochs, must be at most {MOST_EPOCHS}")
    return Course(job.model, job.mode, job.size, epochs, doublings.get((job.model, job.size, job.gpus), ()))


def _trace_rows(path: Path) -> Iterator[_Listed]:
    """Yield the jobs of a .trace list. Gavel's lists, of 10 columns, have no modes: their batch sizes are fixed."""
    for number, row in enumerate(good_rows(path, GAVEL.layout)):
        arrival, duration, gpus, job_type, total_steps = read_gavel_row(row)
        match = _JOB_TYPE.fullmatch(job_type)
        if match is None:
            raise row.error("job_type", "a model, or a model (batch size N)")
        mode = "static"
        if "mode" in row.values:
            mode = row.one_of("mode", {mode: mode for mode in MODES})
        size = int(match["size"] or 1)
        # Gavel's simulator numbers the jobs.
        yield _Listed(row, str(number), match["model"], size, gpus, mode, total_steps, arrival, duration)


def _csv_row(row: Row) -> _Listed:
    """Return the job of a row of a .csv list. Raise InvalidInputError if a cell is invalid."""
    mode = row.text("mode")
    if mode not in MODES:
        raise row.error("mode", f"one of {', '.join(MODES)}")
    duration = None
    if row.has("duration_s"):
        duration = row.number("duration_s", at_least=0)
    return _Listed(
        row,
        row.text("job_id"),
        row.text("model"),
        max(row.integer("batch_size", at_least=0), 1),
        row.integer("gpus", at_least=1),
        mode,
        row.integer("total_steps", at_least=1),
        row.number("arrival_s"),
        duration,
    )
