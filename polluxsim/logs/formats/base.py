"""Interface of a reader of cluster logs, and functions of several readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from math import gcd
from pathlib import Path
from typing import NamedTuple, TypeAlias

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, short
from polluxsim.common.tables import read_number
from polluxsim.logs.formats.opening import COMPRESSED_ENDINGS


class JobStatus(StrEnum):
    """State of a job at its end, in the same words for all logs."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    RUNNING = "running"  # the job had not ended, so its duration is a lower bound


class LogClock(StrEnum):
    """Form of the times in a log."""

    LOCAL = "local"  # Dates and times of day without a zone. The zone is an assumption.
    ZONED = "zoned"  # times with a zone, or in a zone that the format defines
    RELATIVE = "relative"  # seconds from an unknown instant, without a time of day


class Place(NamedTuple):
    """Place of a row: the name of the file, and the line, counted from 1."""

    file: str
    line: int


class LogJob(NamedTuple):
    """One job of a log. The fields from `job` to `attempts` become the core columns of a trace, in their order."""

    place: Place  # place of the row
    job: str
    submitted: float  # submission [s since 1970-01-01 UTC, or on the clock of the log if its times are relative]
    duration: float | None  # time on GPUs [s]; None if the log does not say
    num_gpus: float  # GPUs held or requested; a fraction if shared
    user: str | None = None
    tenant: str | None = None
    status: JobStatus | None = None
    attempts: int | None = None  # number of starts; None if the log does not say
    extras: tuple[object, ...] = ()  # values of the further columns of the format, in the order of `Format.extras`
    oddities: tuple[str, ...] = ()  # suspicious values, by a constant text for each kind


class Dropped(NamedTuple):
    """A readable row that gives no job of the trace, and the reason, like `no GPU` or `no end`."""

    place: Place
    reason: str


class BadRowError(InvalidInputError):
    """One row that cannot be read. Rows after this row can still be read.

    The line is counted from 1. The reason does not contain the value, so that equal mistakes are counted together.
    """

    def __init__(self, path: Path, line: int, reason: str, value: object = None) -> None:
        super().__init__(path, line, reason, value)  # all arguments, because errors are pickled
        self.place = Place(path.name, line)
        self.reason = reason

    def __str__(self) -> str:
        path, line, reason, value = self.args
        text = f"{path}, line {line}: {reason}"
        if value is not None:
            text += f"; found {short(value)}"
        return text


Entry: TypeAlias = LogJob | Dropped | BadRowError


class CountedResource(NamedTuple):
    """A resource that counts as GPUs."""

    resource: str  # GPU, CPU, or the resource's name in the log, like gres/shard or google.com/tpu
    gpus: float = 1.0  # GPUs that one of it counts as


GPU = "gpus"
CPU = "cpus"
ONLY_GPUS = (CountedResource(GPU),)


def parse_units(text: str) -> tuple[CountedResource, ...]:
    """Return the resources that a user writes as NAME,NAME*GPUS. Raise InvalidConfigError if the text is invalid.

    >>> parse_units("gpus,gres/shard*0.125")
    (CountedResource(resource='gpus', gpus=1.0), CountedResource(resource='gres/shard', gpus=0.125))
    """
    units = []
    for part in text.split(","):
        name, star, factor = (word.strip() for word in part.partition("*"))
        gpus: float | None = 1.0
        if star:
            gpus = read_number(factor)
        if not name or gpus is None or gpus <= 0:
            raise InvalidConfigError(
                f"--unit has {part.strip()!r}, which is not {GPU}, {CPU}, or the name of a resource like "
                "google.com/tpu or gres/shard*0.125; correct it"
            )
        units.append(CountedResource(name, gpus))
    names = [unit.resource for unit in units]
    if len(set(names)) < len(names):
        raise InvalidConfigError(f"--unit names a resource twice in {text!r}; name it once")
    return tuple(units)


def unit_word(units: Sequence[CountedResource]) -> str:
    """Return the word for what a trace counts: GPUs if they are among the resources, else CPUs, or their names."""
    names = [unit.resource for unit in units]
    # With GPUs among them, the other resources have factors that make them GPUs.
    if GPU in names:
        return "GPUs"
    if names == [CPU]:
        return "CPUs"
    return "+".join(names)


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """A kind of log. An instance is registered by name in `polluxsim.logs.formats.FORMATS`."""

    name: str  # name on the command line
    citation: str  # source and licence of logs of this format
    caveat: str = ""  # note in the report of every log of this format; may be empty
    clock: LogClock = LogClock.RELATIVE  # form of its times
    time_zone: str = "UTC"  # time zone if the user names none (IANA name)
    extras: tuple[str, ...] = ()  # columns beyond the core ones; names from `polluxsim.logs.trace_table.EXTRA_COLUMNS`
    # Patterns of the names of its files in a folder, separated by spaces. Only files of the first pattern that matches
    # are read.
    files: str = "*.csv"
    units: tuple[CountedResource, ...] = ONLY_GPUS  # what counts as a GPU
    # Function that returns the GPUs of the cluster of a log, or None if unknown [GPUs].
    cluster_gpus: Callable[[Path], int | None] = field(default=lambda source: None)

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row, in the order of the source.

        `source` is a file, or a folder with files under their usual names; `zone` is the time zone for times that state
        no zone. Raise InvalidInputError if the source is not a log of this format. Yield the error of a bad row.
        """
        for path in source_files(source, self.files):
            yield from self.entries(path, zone)

    def for_source(self, source: Path, columns: str) -> Format:
        """Return the format adapted to one source, with the columns that `--columns` maps; empty if not given.

        Raise InvalidConfigError if the format has fixed columns.
        """
        if columns:
            raise InvalidConfigError(
                f"--columns needs the format table, because {self.name} has fixed columns; leave it out"
            )
        return self

    def counting(self, units: tuple[CountedResource, ...]) -> Format:
        """Return the format with other resources that count as GPUs.

        Raise InvalidConfigError if the logs of this format state no other resources.
        """
        if units != self.units:
            allowed = "slurm, pbs, swf, kueue, volcano, pods and table"
            raise InvalidConfigError(
                f"--unit needs a format whose logs state resources other than GPUs: {allowed}; {self.name} logs do not"
            )
        return self

    @abstractmethod
    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield a job, a dropped row or an error for each row of one file."""


def source_files(source: Path, patterns: str) -> list[Path]:
    """Return the files of a log: the source itself, or the files of a folder that match a pattern, sorted by name.

    `patterns` are separated by spaces. Only the first pattern that matches a file is used. A compressed file may have
    the ending of its compression after a matching name. Raise InvalidInputError if there is no file.
    """
    if not source.is_dir():
        if not source.is_file():
            raise InvalidInputError(f"{source}: no such file or folder; check the path")
        return [source]
    for pattern in patterns.split():
        files = []
        for ending in COMPRESSED_ENDINGS:
            files += [path for path in source.glob(pattern + ending) if path.is_file()]
        if files:
            return sorted(files)  # the order of a folder differs from machine to machine, and the trace must not
    raise InvalidInputError(f"{source}: no file {' or '.join(patterns.split())} in this folder")


ENDED = {
    "COMPLETED": JobStatus.COMPLETED,
    "CANCELLED": JobStatus.CANCELLED,
    "FAILED": JobStatus.FAILED,
    "TIMEOUT": JobStatus.TIMEOUT,
    "NODE_FAIL": JobStatus.NODE_FAIL,
}
"""The five states in which the Helios and Acme logs count a job as ended."""


class RowReason(StrEnum):
    """Reasons to drop rows, and suspicious values, of several formats."""

    NO_GPU = "no GPU (CPU-only)"
    NEVER_RAN = "never ran (no start)"
    NO_END = "no end"
    END_BEFORE_START = "end before start"
    START_BEFORE_SUBMISSION = "start before submission"
    DURATION_DIFFERS = "duration is not end - start"
    STATUS_NUMBER = "a status that is a number of unknown meaning; say which with status=COLUMN:slurm or :swf"
    REPEATED = "a repeat of a run: equal job, submission and start"
    SEVERAL_TYPES = "GPUs of several types, which can be replayed on any one"


def oddities_of_times(submitted: float, start: float | None, end: float | None, duration: float) -> tuple[str, ...]:
    """Return the suspicious relations between the times of a job [s]. Unknown times are None.

    >>> [str(oddity) for oddity in oddities_of_times(submitted=10, start=5, end=8, duration=3)]
    ['start before submission']
    """
    oddities = []
    if start is not None and start < submitted:
        oddities.append(RowReason.START_BEFORE_SUBMISSION)
    if start is not None and end is not None:
        if end < start:
            oddities.append(RowReason.END_BEFORE_START)
        elif abs(end - start - duration) > 1:  # logs round times to whole seconds
            oddities.append(RowReason.DURATION_DIFFERS)
    return tuple(oddities)


def gpus_together(gpus_of_tasks: Iterable[float]) -> int | None:
    """Return the largest number of GPUs of which the GPUs of each task are a multiple.

    Return None if a task shares a GPU, or no task has GPUs.
    The GPUs of a task are on one node. Tasks without GPUs do not count.

    >>> gpus_together([8, 4, 0]), gpus_together([0.5, 1])
    (4, None)
    """
    whole = 0
    for gpus in gpus_of_tasks:
        if gpus % 1:
            return None
        # gcd(0, n) is n, so a task without GPUs changes nothing.
        whole = gcd(whole, int(gpus))
    return whole or None


ADDED = ("num_nodes", "num_instances", "cpus", "memory")  # extra columns that are added for the parts of a gang


def as_gang(first: LogJob, part: LogJob, extras: Sequence[str]) -> LogJob:
    """Return a job with the GPUs of a further row of the same gang.

    The duration of the gang is the longest duration of its parts. If the parts have different GPU types, the type of
    the gang is unknown. Nodes, instances, CPUs and memory are added. `extras` names the extra columns of both.
    """
    durations = [job.duration for job in (first, part) if job.duration is not None]
    oddities = [*first.oddities, *part.oddities]
    # A column without a rule has the value of the first part.
    values = list(first.extras)
    for column, name in enumerate(extras):
        one = first.extras[column]
        other = part.extras[column]
        if name in ADDED:
            values[column] = _sum_of_known(one, other)
        elif name == "gpu_type" and one != other:
            values[column] = None
            oddities.append(RowReason.SEVERAL_TYPES)
        elif name == "gpus_per_task":
            values[column] = _gpus_per_task_of_parts(first, part, extras)
    return first._replace(
        num_gpus=first.num_gpus + part.num_gpus,
        duration=max(durations, default=None),
        extras=tuple(values),
        # Both parts may have the same kind of oddity, which counts once for a job.
        oddities=tuple(dict.fromkeys(oddities)),
    )


def _sum_of_known(one: object, other: object) -> float | None:
    """Return the sum of the numbers among two values; None if neither is a number."""
    numbers = [value for value in (one, other) if isinstance(value, int | float)]
    if not numbers:
        return None
    return sum(numbers)


def _gpus_per_task_of_parts(first: LogJob, part: LogJob, extras: Sequence[str]) -> int | None:
    """Return the GPUs that are together on a node, for both of two parts of a gang.

    Return None if a part does not say, if a part shares a GPU, or if no part states its tasks and the nodes of both
    have equal numbers of GPUs: the number of nodes says enough then.
    """
    parts = (first, part)
    if all(_value(job, extras, "gpus_per_task") is None for job in parts):
        gpus_of_nodes = {_gpus_of_node(job, extras) for job in parts}
        if len(gpus_of_nodes) == 1:
            return None
    gpus_of_tasks = []
    for job in parts:
        # Without tasks, the equal nodes of a job stand for them: the GPUs of a node are together too.
        gpus = _value(job, extras, "gpus_per_task") or _gpus_of_node(job, extras)
        if gpus is None:
            return None
        gpus_of_tasks.append(gpus)
    return gpus_together(gpus_of_tasks)


def _gpus_of_node(job: LogJob, extras: Sequence[str]) -> float | None:
    """Return the GPUs of a job on each of its nodes if they are spread evenly; None if the nodes are unknown."""
    nodes = _value(job, extras, "num_nodes")
    if not nodes:
        return None
    return job.num_gpus / nodes


def _value(job: LogJob, extras: Sequence[str], name: str) -> int | None:
    """Return a whole number among the further columns of a job; None if the log has none, or no whole number."""
    value = dict(zip(extras, job.extras, strict=True)).get(name)
    if isinstance(value, int):
        return value
    return None
