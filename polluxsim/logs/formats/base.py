"""What a reader of cluster logs is, and what it says of each row: a job, a row left out, or a bad row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from polluxsim.errors import InvalidInputError, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import tzinfo
    from pathlib import Path


class JobStatus(StrEnum):
    """How a job ended, in one vocabulary for all logs."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    RUNNING = "running"
    """Was running when it was last seen: its duration is a lower bound."""


class Clock(StrEnum):
    """How a log writes its times."""

    LOCAL = "local"
    """Date and time of day without a zone: the zone is an assumption."""
    ZONED = "zoned"
    """Each time says, or the format defines, which zone it is in."""
    RELATIVE = "relative"
    """Seconds from an unknown instant: there is no time of day."""


class Place(NamedTuple):
    """Where a row stands: the file's name, and the line counted from 1."""

    file: str
    line: int


class LogJob(NamedTuple):
    """One job as a log tells it.

    Attributes
    ----------
    place
        Where it stands.
    job
        Its name in the log.
    submitted
        When it was submitted [s since 1970-01-01 UTC, or on the log's own clock if that is relative].
    duration
        How long it ran on its GPUs [s]; None if the log does not say.
    num_gpus
        GPUs it held or asked for [GPUs; a fraction where the log shares GPUs].
    user, tenant
        Whose it was: a person, and a virtual cluster, account or cluster; None if the log does not say.
    status
        How it ended; None if the log does not say.
    attempts
        How often it was started; None if the log does not say.
    extras
        Values of the format's own columns, in the order of `Format.extras`.
    oddities
        What is suspicious about it though it can be read.
    """

    place: Place
    job: str
    submitted: float
    duration: float | None
    num_gpus: float
    user: str | None = None
    tenant: str | None = None
    status: JobStatus | None = None
    attempts: int | None = None
    extras: tuple[object, ...] = ()
    oddities: tuple[str, ...] = ()


class Dropped(NamedTuple):
    """A row that is well written but is no job with GPUs, and why."""

    place: Place
    reason: str


class BadRowError(InvalidInputError):
    """One row that cannot be read, of a line counted from 1; the rows around it can.

    The reason is what is wrong, without the value found, so that like rows count together.
    """

    def __init__(self, path: Path, line: int, reason: str, found: object = None) -> None:
        super().__init__(path, line, reason, found)  # what it is made of, so that it goes from process to process
        self.place = Place(path.name, line)
        self.reason = reason

    def __str__(self) -> str:
        path, line, reason, found = self.args
        return f"{path}, line {line}: {reason}" + ("" if found is None else f"; found {short(found)}")


Entry: TypeAlias = LogJob | Dropped | BadRowError


@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """A kind of log. An instance is registered by name in `polluxsim.logs.formats.FORMATS`.

    Parameters
    ----------
    name
        What a user calls it.
    citation
        Where such logs come from, and under which licence.
    caveat
        What a reader of the report must know of every such log; may be empty.
    clock
        How its times are written.
    time_zone
        Time zone assumed if the user names none (IANA name).
    extras
        Columns beyond the core ones; names from `polluxsim.logs.schema.EXTRA_COLUMNS`.
    files
        Pattern of its files' names, where the source is a folder.
    cluster_gpus
        Finds the GPUs of the cluster that a log is from, or None if they are not known [GPUs].
    """

    name: str
    citation: str
    caveat: str = ""
    clock: Clock = Clock.RELATIVE
    time_zone: str = "UTC"
    extras: tuple[str, ...] = ()
    files: str = "*.csv"
    cluster_gpus: Callable[[Path], int | None] = field(default=lambda source: None)

    def read(self, source: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield what each row is, in the order of the source, holding a few rows at a time.

        Parameters
        ----------
        source
            A file, or a folder that holds files under their usual names.
        zone
            Zone of times that name none.

        Raises
        ------
        InvalidInputError
            If the source as a whole cannot be such a log. A single bad row is yielded instead.
        """
        for path in source_files(source, self.files):
            yield from self.entries(path, zone)

    @abstractmethod
    def entries(self, path: Path, zone: tzinfo) -> Iterator[Entry]:
        """Yield what each row of one file is."""


def source_files(source: Path, pattern: str) -> list[Path]:
    """Return the files of a log: the source itself, or in a folder those whose name fits, by name.

    Raise InvalidInputError if there is none.
    """
    if not source.is_dir():
        if not source.is_file():
            raise InvalidInputError(f"{source}: no such file or folder")
        return [source]
    files = sorted(path for path in source.glob(pattern) if path.is_file())
    if not files:
        raise InvalidInputError(f"{source}: no file {pattern} in this folder")
    return files
