"""A record of a cluster: which job was submitted, started and ended in which second, and on which nodes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidInputError, bad_line, reading
from polluxsim.common.tables import Row, read_number, read_rows
from polluxsim.hardware.node_shapes import evenly
from polluxsim.logs.site.hostlist import expanded
from polluxsim.policies.slurm.eligibility import REQUEUE_WAIT
from polluxsim.studies.decisions.asked import ROUNDING, AskedResources, in_seconds, read_asked
from polluxsim.studies.decisions.changes_of_nodes import NO_CHANGES, ChangesOfNodes, changes_in

COLUMNS = ("job", "submitted", "gpus", "limit", "start", "end", "nodes")
"""Columns that a recorded run needs. Times are seconds, and `limit` too."""
PREEMPTED = "PREEMPTED"  # state of a job that ended because another one preempted it


class RecordedJob(NamedTuple):
    """A job of a record. Times are whole seconds on the clock of the record."""

    name: str
    position: int  # in the order of submission
    submitted: int
    start: int
    end: int
    gpus: int
    nodes: tuple[int, ...]  # numbers of its nodes in rising order
    limit: int  # time limit [s]
    user: str = ""
    partition: str = ""
    gpu_type: str = ""  # type that the job asked for; empty for all types
    priority: float | None = None  # as the record states it
    asked: AskedResources = AskedResources()
    is_preempted: bool = False  # whether the job ended because another one preempted it

    @property
    def gpus_by_node(self) -> tuple[int, ...]:
        """Return the GPUs on each node, as evenly as possible."""
        return evenly(self.gpus, len(self.nodes))

    @property
    def earliest(self) -> int:
        """Return the time from which the job may start [s]. A requeued job waits."""
        asked = self.asked
        if asked.first_submitted is not None:
            return self.submitted + REQUEUE_WAIT
        return self.submitted if asked.begin is None else max(int(asked.begin), self.submitted)

    @property
    def queued(self) -> int:
        """Return the time by which priority/basic orders the job [s].

        A held job gets its priority when it is released, and a requeued job keeps its first one. (Measured.)
        """
        if self.asked.first_submitted is not None:
            return int(self.asked.first_submitted)
        return self.earliest if self.asked.is_held else self.submitted


@dataclass(frozen=True)
class Record:
    """A record of a cluster."""

    path: Path
    jobs: Sequence[RecordedJob]  # in the order of submission
    node_names: Sequence[str]  # in the order of their numbers; empty if the record names no nodes
    # Fraction of all recorded starts and ends [s]. Slurm keeps whole seconds, and the record may have another zero.
    fraction: float = 0.0
    zero: float | None = None  # epoch time of the zero of the record [s]; None if unknown
    compares_nodes: bool = True  # whether the record names the nodes of jobs
    changes: ChangesOfNodes = NO_CHANGES  # reservations, and nodes that were drained

    @property
    def gpus_per_node(self) -> int:
        """Return the largest number of GPUs of a node that jobs held at once."""
        return largest_use(self.jobs)


class RawJob(NamedTuple):
    """A job as a file states it, with times that need not be whole."""

    name: str
    submitted: float
    start: float
    end: float
    gpus: int
    nodes: tuple[str, ...]
    limit: int
    user: str = ""
    partition: str = ""
    gpu_type: str = ""
    priority: float | None = None
    num_nodes: int = 1  # if the nodes are unknown
    asked: AskedResources = AskedResources()
    is_preempted: bool = False


def read_run(path: Path) -> Record:
    """Return the record of a CSV file with a row for each job, and the columns of `COLUMNS`.

    The columns `user`, `partition`, `gpu_type` and `state`, and those of `asked`, are optional. A file of the same name
    that ends in .json may state `t0`, the epoch time of second 0, `reservations` and `drains`.

    Raise InvalidInputError if one of the files is invalid, or has no job.
    """
    jobs = [_raw_job(row) for row in read_rows(path, COLUMNS)]
    json_path = path.with_suffix(".json")
    content = _json_of(json_path)
    zero = content.get("t0")
    if zero is not None:
        zero = read_number(zero)
        if zero is None:
            raise InvalidInputError(f"{json_path}: t0 is {content['t0']!r}, must be a time [s]")
    record = record_of(path, jobs, zero)
    return replace(record, changes=changes_in(json_path, content, record.fraction))


def _raw_job(row: Row) -> RawJob:
    """Return the job of a row. Raise InvalidInputError if a value is invalid."""
    nodes = expanded(row.text("nodes"))
    if not nodes:
        raise row.error("nodes", "names of nodes, like n[1,3]")
    start = row.number("start")
    return RawJob(
        name=row.text("job"),
        submitted=row.number("submitted"),
        start=start,
        end=row.number("end", at_least=start),
        gpus=row.integer("gpus", at_least=1),
        nodes=tuple(nodes),
        limit=row.integer("limit", at_least=1),
        user=_word(row, "user"),
        partition=_word(row, "partition"),
        gpu_type=_word(row, "gpu_type"),
        asked=read_asked(row),
        is_preempted=_word(row, "state") == PREEMPTED,
    )


def _word(row: Row, column: str) -> str:
    """Return the text of a column that may be empty or absent."""
    return row.text(column) if row.has(column) else ""


def _json_of(path: Path) -> Mapping[str, Any]:
    """Return the content of the JSON file of a recorded run; empty without such a file, or without an object in it.

    Raise InvalidInputError if the file is not JSON.
    """
    if not path.is_file():
        return {}
    with reading(path):
        text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{path}: not JSON ({error}); correct it, or state t0=SECONDS") from None
    if not isinstance(content, dict):
        return {}
    return content


def record_of(path: Path, jobs: Sequence[RawJob], zero: float | None = None) -> Record:
    """Return the record of jobs. Nodes are compared if a job states them; else the nodes of all jobs are assumed.

    Raise InvalidInputError if there is no job, or two jobs have one name.
    """
    if not jobs:
        raise InvalidInputError(f"{path}: no job ran; give a record of a cluster with jobs")
    names = set[str]()
    # The first row of a file is its header.
    for row, job in enumerate(jobs, start=2):
        if job.name in names:
            raise bad_line(path, row, f"job {job.name} occurs twice; each job must have one row")
        names.add(job.name)
    compares_nodes = any(job.nodes for job in jobs)
    if not compares_nodes:
        jobs = with_assumed_nodes(jobs)
    fraction = common_fraction([job.start for job in jobs] + [job.end for job in jobs])
    node_names = sorted({name for job in jobs for name in job.nodes}, key=natural)
    numbers = {name: number for number, name in enumerate(node_names)}
    in_order = sorted(jobs, key=lambda job: job.submitted)
    recorded = []
    for position, job in enumerate(in_order):
        nodes = tuple(sorted(numbers[name] for name in job.nodes))
        start = floor(job.start - fraction + ROUNDING)
        recorded.append(
            RecordedJob(
                name=job.name,
                position=position,
                # A clock with another fraction may show the submission after the start.
                submitted=min(floor(job.submitted - fraction), start),
                start=start,
                end=floor(job.end - fraction + ROUNDING),
                gpus=job.gpus,
                nodes=nodes,
                limit=job.limit,
                user=job.user,
                partition=job.partition,
                gpu_type=job.gpu_type,
                priority=job.priority,
                asked=in_seconds(job.asked, fraction),
                is_preempted=job.is_preempted,
            )
        )
    return Record(path, recorded, node_names, fraction, zero, compares_nodes)


def with_assumed_nodes(jobs: Sequence[RawJob]) -> list[RawJob]:
    """Return jobs without nodes on the first nodes with room, in the order of their starts.

    A node has as many GPUs as the largest part of a job. There are as many nodes as this packing needs.
    """
    size = max(evenly(job.gpus, job.num_nodes)[0] for job in jobs)
    free: list[int] = []  # GPUs of each node
    running: list[tuple[float, list[tuple[int, int]]]] = []  # a heap of ends, with nodes and GPUs
    placed: dict[str, tuple[str, ...]] = {}
    for job in sorted(jobs, key=lambda job: job.start):
        # The GPUs of a job are free for a start in the second of its end.
        while running and running[0][0] <= job.start:
            _, parts_of_ended = heappop(running)
            for node, gpus in parts_of_ended:
                free[node] += gpus
        parts: list[tuple[int, int]] = []
        for gpus in evenly(job.gpus, job.num_nodes):
            used = {node for node, _ in parts}
            fitting = [node for node, num_free in enumerate(free) if num_free >= gpus and node not in used]
            if not fitting:
                # The cluster was at least as large as this.
                free.append(size)
                fitting = [len(free) - 1]
            free[fitting[0]] -= gpus
            parts.append((fitting[0], gpus))
        heappush(running, (job.end, parts))
        placed[job.name] = tuple(f"node{node}" for node, _ in parts)
    return [job._replace(nodes=placed[job.name]) for job in jobs]


def common_fraction(times: Sequence[float]) -> float:
    """Return the fraction of a second that all times have [s]; 0 if they differ.

    >>> common_fraction([3.25, 17.25]), common_fraction([3.25, 17.5])
    (0.25, 0.0)
    """
    fraction = times[0] % 1
    for time in times:
        # Fractions are on a circle: 0.999 and 0.001 differ by 0.002.
        difference = (time - fraction + 0.5) % 1 - 0.5
        if abs(difference) >= ROUNDING:
            return 0.0
    return fraction


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts the names of nodes by the numbers in them, and otherwise as text.

    >>> sorted(["n10", "n9"], key=natural)
    ['n9', 'n10']
    """
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def largest_use(jobs: Iterable[RecordedJob]) -> int:
    """Return the largest number of GPUs of one node that jobs hold at once, if each job splits evenly on its nodes."""
    changes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for job in jobs:
        for node, gpus in zip(job.nodes, job.gpus_by_node, strict=True):
            changes[node] += [(job.start, gpus), (job.end, -gpus)]
    largest = 0
    for of_node in changes.values():
        used = 0
        # Negative changes first: a job may start in the second in which another one ends.
        for _, change in sorted(of_node):
            used += change
            largest = max(largest, used)
    return largest


class Started(NamedTuple):
    """A job that starts, or is preempted, in a second: of a record, or of a policy."""

    job: str
    nodes: tuple[int, ...]  # numbers in rising order; empty if nodes are not compared, or the job is preempted
    is_preempted: bool = False


@dataclass(frozen=True)
class Second:
    """The recorded state before a second, its events and its starts."""

    second: int
    running: tuple[RecordedJob, ...]  # jobs that started before, and did not end before
    pending: tuple[RecordedJob, ...]  # jobs submitted before, and not started before
    submitted: tuple[RecordedJob, ...]  # in this second, in order
    ended: tuple[RecordedJob, ...]  # in this second; preempted jobs are among `started`
    started: frozenset[Started]  # the recorded starts, and the preempted jobs
    next_jobs: frozenset[str]  # names of the jobs that start one second later
    compares_nodes: bool = True

    @property
    def is_decision(self) -> bool:
        """Return whether a job starts or is preempted."""
        return bool(self.started)

    def differing(self, starts: frozenset[Started]) -> set[str]:
        """Return the names of the jobs about which the starts of a policy and the recorded ones differ."""
        if self.compares_nodes:
            return {start.job for start in starts ^ self.started}
        return {start.job for start in starts} ^ {start.job for start in self.started}

    def is_begun_by(self, starts: frozenset[Started]) -> bool:
        """Return whether starts are some, but not all, of the recorded ones."""
        if not starts or len(starts) >= len(self.started):
            return False
        # A wrong start would be among the differing ones, in addition to those that lack.
        return len(self.differing(starts)) == len(self.started) - len(starts)


def seconds_of(record: Record) -> Iterator[Second]:
    """Yield the seconds with a submission, a start or an end, in order."""
    starts: defaultdict[int, list[RecordedJob]] = defaultdict(list)
    ends: defaultdict[int, list[RecordedJob]] = defaultdict(list)
    submissions: defaultdict[int, list[RecordedJob]] = defaultdict(list)
    for job in record.jobs:
        submissions[job.submitted].append(job)
        starts[job.start].append(job)
        ends[job.end].append(job)
    running: dict[str, RecordedJob] = {}
    pending: dict[str, RecordedJob] = {}
    for second in sorted({*submissions, *starts, *ends}):
        started = {Started(job.name, job.nodes) for job in starts[second]}
        started |= {Started(job.name, (), is_preempted=True) for job in ends[second] if job.is_preempted}
        # A preemption is a decision of the policy, and an end is an event that it sees.
        ended = [job for job in ends[second] if job.name in running and not job.is_preempted]
        yield Second(
            second,
            tuple(running.values()),
            tuple(pending.values()),
            tuple(submissions[second]),
            tuple(ended),
            frozenset(started),
            frozenset(job.name for job in starts.get(second + 1, ())),
            record.compares_nodes,
        )
        for job in submissions[second]:
            pending[job.name] = job
        for job in starts[second]:
            pending.pop(job.name, None)
            running[job.name] = job
        # After the starts, because a job may end in the second of its start.
        for job in ends[second]:
            running.pop(job.name, None)
