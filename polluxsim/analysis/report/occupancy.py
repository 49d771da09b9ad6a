"""Which job held which GPU when: a run's changes of placement as rectangles of GPUs and time."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.records import AllocationRecord, Result


class Occupancy(NamedTuple):
    """Rectangles in order of their start; all arrays have one entry for each.

    Attributes
    ----------
    start, end
        From when to when [s].
    job
        Index of the job among the job records.
    row
        First GPU, counted over all nodes.
    rows
        Number of GPUs, all on one node.
    gpus_per_node
        GPUs of each node: what the cluster has, or what was used of it where that is more.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    job: NDArray[np.int64]
    row: NDArray[np.int64]
    rows: NDArray[np.int64]
    gpus_per_node: tuple[int, ...]


def occupancy(result: Result, gpus_per_node: Sequence[int] = ()) -> Occupancy:
    """Return who held which GPU when.

    A record says how many GPUs of a node a job has and not which; a job keeps those it has, and gets the lowest that
    are free. A change of placement begins a new rectangle also where a GPU stays with its job, as the job restarts.

    Parameters
    ----------
    result
        The run.
    gpus_per_node
        GPUs of each node as far as they are known; the records may need more.
    """
    index = {record.job: number for number, record in enumerate(result.job_records)}
    slots = _Slots(gpus_per_node)
    for time, records in groupby(result.allocation_records, key=lambda record: record.time):
        last = {record.job: _by_node(record) for record in records}
        slots.change(time, {job: placement for job, placement in last.items() if placement != slots.placement(job)})
    slots.change(result.end_time, {job: {} for job in slots.holders()})
    offsets = [0, *accumulate(slots.sizes)]
    rectangles = [(start, end, index[job], offsets[node] + slot, n) for start, end, job, node, slot, n in slots.done]
    rectangles.sort()
    start, end, job, row, rows = np.array(rectangles, dtype=np.float64).reshape(-1, 5).T
    return Occupancy(start, end, job.astype(int), row.astype(int), rows.astype(int), tuple(slots.sizes))


def _by_node(record: AllocationRecord) -> dict[int, int]:
    placement: dict[int, int] = {}
    for node, gpus in zip(record.nodes, record.gpus, strict=True):
        placement[node] = placement.get(node, 0) + gpus
    return placement


class _Slots:
    """The GPUs of every node, and who holds them since when."""

    def __init__(self, gpus_per_node: Sequence[int]) -> None:
        self.sizes = list(gpus_per_node)
        self.done: list[tuple[float, float, str, int, int, int]] = []
        self._free = [list(range(size)) for size in self.sizes]
        self._held: dict[str, tuple[float, dict[int, list[int]]]] = {}

    def placement(self, job: str) -> dict[int, int]:
        """Return the number of GPUs the job holds on each node."""
        return {node: len(slots) for node, slots in self._held[job][1].items()} if job in self._held else {}

    def holders(self) -> list[str]:
        """Return the jobs that hold GPUs."""
        return list(self._held)

    def change(self, time: float, placements: Mapping[str, Mapping[int, int]]) -> None:
        """Give jobs other placements at one moment: all give back what they lose, then each gets what it gains."""
        kept = {job: self._release(time, job, placement) for job, placement in placements.items()}
        for job, placement in placements.items():
            if placement:
                held = {node: self._grown(node, kept[job].get(node, []), gpus) for node, gpus in placement.items()}
                self._held[job] = (time, held)

    def _release(self, time: float, job: str, placement: Mapping[int, int]) -> dict[int, list[int]]:
        since, held = self._held.pop(job, (time, {}))
        kept = {}
        for node, slots in held.items():
            if time > since:
                self.done += [(since, time, job, node, first, count) for first, count in _runs(slots)]
            stays = placement.get(node, 0)
            kept[node] = slots[:stays]
            self._free[node] = sorted(self._free[node] + slots[stays:])
        return kept

    def _grown(self, node: int, slots: list[int], gpus: int) -> list[int]:
        while node >= len(self.sizes):
            self.sizes.append(0)
            self._free.append([])
        free = self._free[node]
        while len(slots) + len(free) < gpus:
            free.append(self.sizes[node])
            self.sizes[node] += 1
        missing = gpus - len(slots)
        self._free[node] = free[missing:]
        return sorted(slots + free[:missing])


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and length of every run of consecutive numbers."""
    for _, run in groupby(enumerate(slots), key=lambda pair: pair[1] - pair[0]):
        numbers = [slot for _, slot in run]
        yield numbers[0], len(numbers)
