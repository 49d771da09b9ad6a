"""Replay: gives each job the GPUs that a recorded run gave it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidInputError
from polluxsim.policies.packing import fits, remove
from polluxsim.policies.view import Traits
from polluxsim.storage import read_run
from polluxsim.tables import read_rows
from polluxsim.types import JobId, Placement, placement_from_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from polluxsim.policies.view import ClusterView
    from polluxsim.tables import Row
    from polluxsim.types import Allocation

COLUMNS = ("time", "job", "allocation")


class Replay:
    """Answers with recorded allocations, to check agents and engine apart from any search.

    Parameters
    ----------
    allocations
        The allocation of each round, by the round's time [s]; rounds that are missing give nobody a GPU.
    adaptive
        Whether jobs choose their own batch size, as they did in the recorded run.
    """

    def __init__(self, allocations: Mapping[float, Allocation], *, adaptive: bool = True) -> None:
        self.traits = Traits(adaptive=adaptive)
        self._allocations = allocations

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return what was recorded for this time, of the jobs that are still active."""
        active = {job.job_id for job in view.jobs}
        recorded = self._allocations.get(view.time, {})
        return {job_id: placement for job_id, placement in recorded.items() if job_id in active}


class Change(NamedTuple):
    """What a job holds from some time on.

    Attributes
    ----------
    time
        From when [s].
    job
        Its name.
    placement
        Its GPUs, empty for none.
    batch_size
        The total batch size chosen for it [examples]; 0 where none was, or it was not recorded.
    """

    time: float
    job: JobId
    placement: Placement
    batch_size: int


class Timeline:
    """Answers with what each job was last recorded with.

    A job that takes longer than it did in the recorded run keeps its GPUs while no other is recorded with them.

    Parameters
    ----------
    path
        A run's folder; or a CSV file with `time` [s], `job` and `allocation` (a node for each GPU, blanks between), a
        row whenever a job's GPUs change or more often, and optionally `batch_size` [examples] and `completion_time`
        [s], which only the last row of a job has.
    adaptive
        Whether jobs choose their own batch sizes; null if any of them did in the recorded run.

    Raises
    ------
    InvalidInputError
        If there is no such record, or it is not what it should be.
    """

    def __init__(self, path: str, adaptive: bool | None = None) -> None:
        self._path = path
        self._changes = defaultdict[JobId, list[Change]](list)
        for change in _recorded(Path(path)):
            self._changes[change.job].append(change)
        for changes in self._changes.values():
            changes.sort(key=lambda change: change.time)
        self.traits = Traits(adaptive=self._adapts() if adaptive is None else adaptive)

    def _adapts(self) -> bool:
        return any(len({change.batch_size for change in found} - {0}) > 1 for found in self._changes.values())

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return what was recorded for this time, of the jobs that are still active.

        Raises
        ------
        InvalidInputError
            If a job is not in the record.
        """
        recorded = {job.job_id: self._at(job.job_id, view.time) for job in view.jobs}
        allocation = {job_id: placement for job_id, (placement, _) in recorded.items() if placement}
        free = view.gpus_per_node
        for placement in allocation.values():
            free = remove(free, placement) if fits(free, placement) else free
        for job_id, (placement, last) in recorded.items():
            if not placement and last and fits(free, last):
                allocation[job_id], free = last, remove(free, last)
        return allocation

    def _at(self, job_id: JobId, time: float) -> tuple[Placement, Placement]:
        """Return what a job was last recorded with, and once its record has ended, the last that it had."""
        if not (changes := self._changes.get(job_id)):
            raise InvalidInputError(f"{self._path}: nothing is recorded of job {job_id!r}, which the workload has")
        number = bisect_right(changes, time, key=lambda change: change.time)
        if number < len(changes):
            return changes[number - 1].placement if number else (), ()
        return changes[-1].placement, next((change.placement for change in reversed(changes) if change.placement), ())


def _recorded(path: Path) -> Iterator[Change]:
    if path.is_dir():
        for record in read_run(path).result.allocation_records:
            yield Change(record.time, record.job, tuple(zip(record.nodes, record.gpus, strict=True)), record.batch_size)
        return
    for row in read_rows(path, COLUMNS):
        is_over = bool(row.values.get("completion_time"))
        size = row.integer("batch_size", 0) if row.values.get("batch_size") else 0
        yield Change(row.number("time", at_least=0), row.text("job"), () if is_over else _placement(row), size)


def _placement(row: Row) -> Placement:
    nodes = str(row.values["allocation"]).split()
    if not all(node.isascii() and node.isdigit() for node in nodes):
        raise row.error("allocation", "a node number for each GPU, with blanks between")
    return placement_from_nodes(map(int, nodes))
