"""Job lists of Gavel's and Shockwave's simulators: rigid jobs by steps, some of which change their batch size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from polluxsim.common.errors import InvalidConfigError, bad_line, check_number
from polluxsim.common.tables import Row, read_rows
from polluxsim.logs.formats.job_lists import GAVEL
from polluxsim.logs.formats.log_rows import good_rows
from polluxsim.models.known_duration import BatchPlan
from polluxsim.workloads.job import InvalidJobError, Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Speeds: TypeAlias = Mapping[tuple[str, int], Mapping[tuple[str, int], float]]
"""Steps a second, by model and GPUs, and then by GPU type and batch size."""

Doublings: TypeAlias = Mapping[tuple[str, int, int], "Sequence[int]"]
"""Epochs at which a job doubles its batch size, by model, first batch size and GPUs."""

MOST_EPOCHS = 1_000_000
"""More are slips of the hand."""

COLUMNS = ("job_id", "model", "batch_size", "gpus", "mode", "total_steps", "arrival_s")
_JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<size>[1-9][0-9]{0,8})\))?")

MODES = ("static", "accordion", "gns")


class Trained(NamedTuple):
    """What is known of an application: examples of an epoch, and its largest batch size."""

    examples: int
    largest: int


APPLICATIONS: Mapping[str, Trained] = {
    "ResNet-18": Trained(50_000, 256),
    "ResNet-50": Trained(100_000, 128),
    "Transformer": Trained(10_000, 128),
    "LM": Trained(59_675, 80),
    "Recommendation": Trained(117_907, 8192),
}
"""Source: Shockwave (NSDI '23) and its simulator."""


class Course(NamedTuple):
    """A training whose batch sizes are asked for, by one of `MODES`; its last epoch may be short.

    Noise-scale steps double at epochs, from 1, from which the batch size is 2, 4, 8, … times the first [examples].
    """

    model: str
    mode: str
    first: int
    num_epochs: int
    doubles_at: Sequence[int] = ()

    @property
    def largest(self) -> int:
        """Return the largest batch size of its application [examples]."""
        return APPLICATIONS[self.model].largest

    def size(self, epoch: int) -> int:
        """Return the batch size that it trains at in an epoch, from 0 [examples]."""
        if self.mode == "accordion" and self.model != "Transformer" and not _is_critical(self, epoch):
            return self.largest
        if self.mode == "gns":
            return self._doubled(sum(epoch + 1 >= start for start in self.doubles_at))
        return self.first

    def expected_size(self, epoch: int) -> int:
        """Return the batch size that its user expects in an epoch, from 0 [examples].

        A plan of Accordion's trusts the first 30 % of all epochs to be critical, and knows some more that are.
        """
        if self.mode == "accordion":
            is_early = epoch <= 0.3 * self.num_epochs
            is_known = self.model == "Recommendation" and (60 <= epoch < 70 or 80 <= epoch < 90)
            return self.first if is_early or is_known else self.size(epoch)
        if self.mode == "gns":
            steps = sum(epoch >= start for start in self.doubles_at)
            is_odd_end = len(self.doubles_at) > 1 and steps > 1 and epoch == self.num_epochs - 1
            return self.first if is_odd_end else self._doubled(steps)
        return self.first

    def _doubled(self, times: int) -> int:
        return min(self.first << times, self.largest)


def _is_critical(course: Course, epoch: int) -> bool:
    """Return whether gradients change too fast for a large batch. Source: as `APPLICATIONS`."""
    model, first = course.model, course.first
    if model == "ResNet-18":
        return epoch < (20 if first == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
    if model == "ResNet-50":
        return epoch % 30 < 10
    return epoch < {512: 30, 1024: 30, 2048: 40}.get(first, 10)


class _Listed(NamedTuple):
    """One row, of either kind of list."""

    row: Row
    name: str
    model: str
    size: int
    gpus: int
    mode: str
    total_steps: int
    arrival: float
    duration: float | None


@dataclass(frozen=True)
class GavelList:
    """A file of Gavel's simulator, or of Shockwave's, whose jobs may change their batch size by themselves.

    Parameters
    ----------
    path
        The file: a .trace with 10 or 12 columns; or a .csv with `job_id`, `model`, `batch_size`, `gpus`, `mode`,
        `total_steps` and `arrival_s`.
    throughputs
        Table of steps a second, by `gpu_type`, `model`, `batch_size` and `gpus`; by default `throughputs_alone.csv`
        beside the list, or if there is none the list's own durations: jobs then keep their batch size on one type.
    noise_scale_steps
        Table of the epochs at which jobs of mode `gns` double their batch size; by default `noise_scale_steps.csv`
        beside the list, or if there is none they keep it.
    gpu_type
        The type on which users expect their jobs to run.
    overtime
        A job counts as complete when it has trained so many times as long as planned; None lets all finish.
    lag
        Time of training until a change of batch size is carried out, which skips what is left of its epoch: about a
        round in Shockwave's simulator [s].

    Source: Narayanan et al., Gavel (OSDI '20), Zheng et al., Shockwave (NSDI '23), and its simulator.
    """

    path: str
    throughputs: str | None = None
    noise_scale_steps: str | None = None
    gpu_type: str = "v100"
    overtime: float | None = 1.5
    lag: float = 120.0

    def __post_init__(self) -> None:
        if self.overtime is not None and not 0 < self.overtime < 1e6:
            raise InvalidConfigError(f"workload.overtime is {self.overtime:g}, allowed is a number > 0, or null")
        check_number("workload.lag", self.lag, 0 <= self.lag < 1e9, "a number of seconds ≥ 0")

    def read(self) -> tuple[tuple[Job, ...], tuple[str, ...]]:
        """Read the jobs, and what there is to say of how they were read.

        Raises
        ------
        InvalidInputError
            If a file cannot be read, a row is not what it should be, or a job's speed is not known.
        """
        path, notes = Path(self.path), list[str]()
        tables = (self.throughputs, "throughputs_alone.csv"), (self.noise_scale_steps, "noise_scale_steps.csv")
        throughputs, steps = (_table(path, named, beside) for named, beside in tables)
        if throughputs is None:
            notes.append("jobs last as long as their list says and keep their batch size: no throughputs are known")
        elif steps is None:
            notes.append("jobs of mode gns keep their batch size: no noise_scale_steps are known")
        speeds = None if throughputs is None else read_throughputs(throughputs)
        doublings = {} if steps is None else _read_doublings(steps)
        listed = _trace_rows(path) if path.suffix == ".trace" else map(_csv_row, read_rows(path, COLUMNS))
        return tuple(self._job(job, speeds, doublings) for job in listed), tuple(notes)

    def _job(self, job: _Listed, speeds: Speeds | None, doublings: Doublings) -> Job:
        row = job.row
        known = self._speeds_by_duration(job) if speeds is None else speeds.get((job.model, job.gpus))
        if known is None or not known.get((self.gpu_type, job.size)):
            what = f"{job.model} with {job.size} examples on {job.gpus} GPUs of type {self.gpu_type}"
            raise bad_line(row.path, row.line, f"nothing was measured of {what}, needed is a speed > 0")
        course = _course(job, doublings)
        plan = self._plan(job, course, {key: speed for key, speed in known.items() if speed})
        try:
            total = max(job.size, 1) * job.gpus
            types = plan.type_speeds
            return Job(
                job.name, job.arrival, job.model, job.gpus, total, row.line, plan.time, type_speeds=types, plan=plan
            )  # fmt: skip
        except InvalidJobError as error:
            raise bad_line(row.path, row.line, str(error)) from None

    def _speeds_by_duration(self, job: _Listed) -> Mapping[tuple[str, int], float]:
        """Return the one speed that a list with durations tells [steps/s]."""
        if not job.duration:
            needed = "a duration in each row, or throughputs_alone.csv beside the list, or workload.throughputs=FILE"
            raise bad_line(job.row.path, job.row.line, f"nothing tells how fast {job.model} is, needed is {needed}")
        return {(self.gpu_type, job.size): job.total_steps / job.duration}

    def _plan(self, job: _Listed, course: Course, speeds: Mapping[tuple[str, int], float]) -> BatchPlan:
        sizes = [course.first]
        known = {size for gpu_type, size in speeds if gpu_type == self.gpu_type}
        epochs = range(course.num_epochs)
        for size in map(course.size, epochs):
            sizes.append(size if size in known else sizes[-1])
        expected = [size if size in known else course.first for size in map(course.expected_size, epochs)]
        examples = APPLICATIONS[job.model].examples if job.model in APPLICATIONS else job.total_steps * course.first
        planned = sum(examples / max(size, 1) / speeds[self.gpu_type, size] for size in expected)
        most = inf if self.overtime is None else float(max(floor(floor(planned) * self.overtime), 1))
        return BatchPlan(
            tuple(sizes[1:]), examples, job.total_steps, speeds, self.gpu_type, tuple(expected), self.lag, most
        )


def _table(jobs: Path, named: str | None, beside: str) -> Path | None:
    """Return a table that is named, or lies beside a list of jobs; None if there is none."""
    path = jobs.with_name(beside) if named is None else Path(named)
    return path if named is not None or path.exists() else None


def read_throughputs(path: Path) -> Speeds:
    """Read a table of steps a second by GPU type, model, batch size and GPUs; 0 is what does not fit in memory."""
    found: dict[tuple[str, int], dict[tuple[str, int], float]] = {}
    for row in read_rows(path, ("gpu_type", "model", "batch_size", "gpus", "steps_per_s")):
        size = max(row.integer("batch_size", at_least=0), 1)
        of_job = found.setdefault((row.text("model"), row.integer("gpus", at_least=1)), {})
        of_job[row.text("gpu_type"), size] = row.number("steps_per_s", at_least=0)
    return found


def _read_doublings(path: Path) -> Doublings:
    return {
        (row.text("model"), row.integer("batch_size", at_least=1), row.integer("gpus", at_least=1)): _epochs(row)
        for row in read_rows(path, ("model", "batch_size", "gpus", "doubles_at_epochs"))
    }


def _epochs(row: Row) -> Sequence[int]:
    words = row.text("doubles_at_epochs").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise row.error("doubles_at_epochs", "numbers of epochs with blanks between")
    return [int(word) for word in words]


def _course(job: _Listed, doublings: Doublings) -> Course:
    if job.model not in APPLICATIONS:
        if job.mode != "static":
            allowed = f"static for {job.model}, of which no epochs are known"
            raise bad_line(job.row.path, job.row.line, f"mode is {job.mode!r}, allowed is {allowed}")
        return Course(job.model, job.mode, job.size, 1)
    steps = ceil(APPLICATIONS[job.model].examples / job.size)
    if (epochs := ceil(job.total_steps / steps)) > MOST_EPOCHS:
        raise bad_line(job.row.path, job.row.line, f"it has {epochs} epochs, allowed are at most {MOST_EPOCHS}")
    return Course(job.model, job.mode, job.size, epochs, doublings.get((job.model, job.size, job.gpus), ()))


def _trace_rows(path: Path) -> Iterator[_Listed]:
    for number, row in enumerate(good_rows(path, GAVEL.layout)):
        if (said := _JOB_TYPE.fullmatch(row.name("job_type"))) is None:
            raise row.error("job_type", "a model, with (batch size N) behind it where it has several")
        mode = row.one_of("mode", {mode: mode for mode in MODES}) if "mode" in row.values else "static"
        yield _Listed(
            row,
            str(number),  # as Gavel calls them
            said["model"],
            int(said["size"] or 1),
            row.count("scale_factor", at_least=1),
            mode,
            row.count("total_steps", at_least=1),
            row.instant("arrival_time"),
            row.seconds("duration") if row.has("duration") else None,
        )


def _csv_row(row: Row) -> _Listed:
    if (mode := row.text("mode")) not in MODES:
        raise row.error("mode", f"one of {', '.join(MODES)}")
    return _Listed(
        row,
        row.text("job_id"),
        row.text("model"),
        max(row.integer("batch_size", at_least=0), 1),
        row.integer("gpus", at_least=1),
        mode,
        row.integer("total_steps", at_least=1),
        row.number("arrival_s"),
        row.number("duration_s", at_least=0) if row.has("duration_s") else None,
    )
