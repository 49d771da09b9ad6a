"""Replay: gives each job the GPUs that a recorded run gave it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polluxsim.common.errors import InvalidInputError, reading, short
from polluxsim.common.instants import slack
from polluxsim.common.tables import Row, read_number, read_rows
from polluxsim.hardware.placements import Allocation, JobId, Placement, num_replicas, placement_from_nodes
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Traits
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.records.storage import read_run

COLUMNS = ("time", "job", "allocation")


class ReplayedChange(NamedTuple):
    """The GPUs of a job after a time."""

    time: float  # from when [s]
    job: JobId
    placement: Placement  # empty for no GPU
    batch_size: int  # total batch size [examples]; 0 for a job without GPUs, or if it is not recorded


class Timeline(Policy):
    """Gives each job its last recorded GPUs.

    A job that takes longer than in the recorded run keeps its GPUs while no other job is recorded with them. A run in
    which jobs shared GPUs, or whose policy changed the number of nodes, cannot be replayed.

    Parameters
    ----------
    path
        A run's folder; or a recorded run of Gavel's or Shockwave's simulator (.json), whose workers are nodes of one
        GPU; or a CSV file with `time` [s], `job` and `allocation` (a node for each GPU, blanks between), a
        row whenever a job's GPUs change or more often, and optionally `batch_size` [examples] and `completion_time`
        [s], which only the last row of a job has.
    adaptive
        Whether jobs choose their own batch sizes. By default, whether a job changed its batch size in the record.
    late_first
        Whether a job that takes longer than recorded keeps GPUs that the record gives to another job. The other job
        then gets other GPUs, or misses the round. By default true for a record of rounds (.json), and false otherwise.

    Raises
    ------
    InvalidInputError
        If the record is invalid, or if it lacks a job that asks for GPUs.
    """

    def __init__(self, path: str, adaptive: bool | None = None, late_first: bool | None = None) -> None:
        self._path = path
        self._late_first = _is_json(Path(path)) if late_first is None else late_first
        self._changes = defaultdict[JobId, list[ReplayedChange]](list)
        for change in _recorded(Path(path)):
            self._changes[change.job].append(change)
        for changes in self._changes.values():
            changes.sort(key=lambda change: change.time)
        adapts = any(
            len({change.batch_size for change in changes_of_job} - {0}) > 1 for changes_of_job in self._changes.values()
        )
        self._traits = Traits(adaptive=adapts if adaptive is None else adaptive)

    @property
    def traits(self) -> Traits:
        """Return whether jobs choose their own batch sizes."""
        return self._traits

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return the recorded GPUs of the active jobs at this time; the record must have every job."""
        recorded = {job.job_id: self._at(job.job_id, view.time) for job in view.jobs}
        allocation = {job_id: placement for job_id, (placement, _) in recorded.items() if placement}
        late = {job_id: last for job_id, (placement, last) in recorded.items() if last and not placement}
        if self._late_first:
            return _side_by_side(view.gpus_per_node, late | allocation)
        free = FreeGpus(view.gpus_per_node)
        for job_id, placement in (*allocation.items(), *late.items()):
            if free.has(placement):
                free.take(placement)
                allocation[job_id] = placement
        return allocation

    def _at(self, job_id: JobId, time: float) -> tuple[Placement, Placement]:
        """Return the recorded placement of a job at a time, and after the end of its record its last GPUs."""
        changes = self._changes.get(job_id)
        if not changes:
            raise InvalidInputError(f"{self._path}: nothing is recorded of job {job_id!r}, which the workload has")
        index = bisect_right(changes, time + slack(time), key=lambda change: change.time)
        if index < len(changes):
            return changes[index - 1].placement if index else (), ()
        return changes[-1].placement, next((change.placement for change in reversed(changes) if change.placement), ())


def _side_by_side(gpus_per_node: tuple[int, ...], wanted: Allocation) -> Allocation:
    """Return the wanted placements of the first jobs. A later job gets other GPUs if its GPUs are taken."""
    if not all(FreeGpus(gpus_per_node).has(placement) for placement in wanted.values()):
        return wanted  # the record is of another cluster; the engine reports the invalid placement
    free = FreeGpus(gpus_per_node)
    placements = dict[JobId, Placement]()
    for job_id, placement in wanted.items():
        if free.has(placement):
            free.take(placement)
            placements[job_id] = placement
    for job_id, placement in wanted.items():
        if job_id not in placements and (packed := free.pack(num_replicas(placement))) is not None:
            placements[job_id] = packed
    return placements


def _recorded(path: Path) -> Iterator[ReplayedChange]:
    """Yield the changes in a run's folder, a record of rounds or a CSV file."""
    if path.is_dir():
        for record in read_run(path).result.allocation_records:
            yield ReplayedChange(
                record.time, record.job, tuple(zip(record.nodes, record.gpus, strict=True)), record.batch_size
            )
    elif _is_json(path):
        yield from _scheduled(path)
    else:
        for row in read_rows(path, COLUMNS):
            is_over = bool(row.values.get("completion_time"))
            size = row.integer("batch_size", 0) if row.values.get("batch_size") else 0
            yield ReplayedChange(
                row.number("time", at_least=0), row.text("job"), () if is_over else _placement(row), size
            )


def _is_json(path: Path) -> bool:
    return path.suffix.lower() == ".json"


def _placement(row: Row) -> Placement:
    nodes = str(row.values["allocation"]).split()
    if not all(node.isascii() and node.isdigit() for node in nodes):
        raise row.error("allocation", "a node number for each GPU, with blanks between")
    return placement_from_nodes(map(int, nodes))


def _scheduled(path: Path) -> Iterator[ReplayedChange]:
    """Yield the changes in a record of rounds. Rounds are at multiples of their length, from 0."""
    schedule, length = _rounds(path)
    placements = dict[JobId, Placement]()
    for number, entry in enumerate([*schedule, {}]):
        now = _placements_in_round(path, number, entry)
        for job in placements | now:
            if now.get(job) != placements.get(job):
                yield ReplayedChange(number * length, job, now.get(job, ()), 0)
        placements = now


def _rounds(path: Path) -> tuple[list[object], float]:
    """Return the rounds of a record and their length [s]."""
    try:
        with reading(path):
            record = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{path}: not JSON") from None
    record = record if isinstance(record, dict) else {}
    schedule = record.get("schedule")
    length = read_number(record.get("round_s"))
    if not isinstance(schedule, list) or length is None or length <= 0:
        raise InvalidInputError(f"{path}: must have a list schedule, and round_s, a number of seconds above 0")
    return schedule, length


def _placements_in_round(path: Path, number: int, entry: object) -> dict[JobId, Placement]:
    """Return the placements in an entry of a record: jobs with the numbers of their workers."""
    where = f"{path}, round {number}:"
    if not isinstance(entry, dict):
        raise InvalidInputError(f"{where} {short(entry)}, must be jobs with their workers")
    for job, workers in entry.items():
        if not isinstance(workers, list) or not all(type(worker) is int and worker >= 0 for worker in workers):
            raise InvalidInputError(f"{where} job {job!r} has {short(workers)}, must be worker numbers")
        if len(set(workers)) != len(workers):
            raise InvalidInputError(f"{where} job {job!r} has a worker twice")
    return {job: placement_from_nodes(workers) for job, workers in entry.items()}
