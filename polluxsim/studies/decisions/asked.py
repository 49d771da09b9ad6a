"""What a job of a record asked for, other than GPUs, time limit, partition and GPU type."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

from polluxsim.common.tables import Row
from polluxsim.policies.slurm.eligibility import KINDS, Dependency

ROUNDING = 0.01  # largest difference between the fractions of times that are whole seconds on another clock [s]


class AskedResources(NamedTuple):
    """What a job asked for, as far as a record states it."""

    cpus: int = 0  # CPUs on each node; 0 if the job states none
    memory: int = 0  # memory on each node [MB]; 0 if the job states none
    exclusive: bool = False  # --exclusive
    features: frozenset[str] = frozenset()  # --constraint with &: a node needs all of them
    begin: float | None = None  # --begin, or the release of a held job [s]
    is_held: bool = False  # whether the job was submitted with --hold
    dependencies: tuple[Dependency, ...] = ()
    array: str = ""  # array of a task
    most_at_once: int = 0  # `%N` of the array; 0 for no limit
    reservation: str = ""  # --reservation
    account: str = ""  # --account; empty for the account of the user
    qos: str = ""  # --qos
    # Submission of a requeued job before its first run [s]; its own submission is the time of the requeue.
    first_submitted: float | None = None


def read_asked(row: Row) -> AskedResources:
    """Return what the optional columns of a row state. Raise InvalidInputError if one is invalid.

    The columns are `cpus`, `memory` [MB] and `exclusive` (0 or 1) of each node, `constraint` (A&B), `begin` [s] and
    `held` (0 or 1), `after` (KIND:JOB, several with semicolons), `array` (NAME or NAME%N), `reservation`, `account`,
    `qos`, and `first_submitted` [s] of a requeued job.
    """
    array, sign, most_at_once = _word(row, "array").partition("%")
    if sign and not most_at_once.isdecimal():
        raise row.error("array", "the name of an array, like 21%4 for at most 4 tasks at once")
    return AskedResources(
        cpus=_number(row, "cpus"),
        memory=_number(row, "memory"),
        exclusive=bool(_number(row, "exclusive")),
        features=frozenset(filter(None, _word(row, "constraint").split("&"))),
        begin=_time(row, "begin"),
        is_held=bool(_number(row, "held")),
        dependencies=_dependencies(row),
        array=array,
        most_at_once=int(most_at_once or 0),
        reservation=_word(row, "reservation"),
        account=_word(row, "account"),
        qos=_word(row, "qos"),
        first_submitted=_time(row, "first_submitted"),
    )


def in_seconds(asked: AskedResources, fraction: float) -> AskedResources:
    """Return the request with whole seconds on a clock that is behind by a fraction [s]."""
    begin = asked.begin
    if begin is not None:
        # --begin is a whole second of this clock, so only rounding separates it from one.
        begin = floor(begin - fraction + ROUNDING)
    first_submitted = asked.first_submitted
    if first_submitted is not None:
        first_submitted = floor(first_submitted - fraction)
    return asked._replace(begin=begin, first_submitted=first_submitted)


def _dependencies(row: Row) -> tuple[Dependency, ...]:
    """Return the dependencies of a row, each on one or several jobs. Raise InvalidInputError if one is invalid.

    Semicolons separate the dependencies, and commas the jobs of one.
    """
    dependencies = []
    for text in _word(row, "after").split(";"):
        # A row without dependencies gives one empty text, and so does a semicolon at the end.
        if not text:
            continue
        kind, _, jobs = text.partition(":")
        if kind not in KINDS or not jobs:
            raise row.error("after", f"dependencies like afterok:JOB; a kind is {', '.join(KINDS)}")
        dependencies.append(Dependency(kind, tuple(jobs.split(","))))
    return tuple(dependencies)


def _word(row: Row, column: str) -> str:
    """Return the text of a column; empty if the row has none."""
    return row.text(column) if row.has(column) else ""


def _number(row: Row, column: str) -> int:
    """Return the whole number of a column, 0 if the row has none. Raise InvalidInputError if it is invalid."""
    return row.integer(column, at_least=0) if row.has(column) else 0


def _time(row: Row, column: str) -> float | None:
    """Return the time of a column [s], None if the row has none. Raise InvalidInputError if it is invalid."""
    return row.number(column) if row.has(column) else None
