"""Which job held which GPU when: a run's stays as rectangles of GPUs and time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate, groupby, pairwise, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.gpu_types import NOBODY_SAYS, NodeTypes
from polluxsim.look.slots import runs, tenures
from polluxsim.look.stays import stays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.look.slots import Slot
    from polluxsim.look.stays import Stay
    from polluxsim.records import Result
    from polluxsim.types import Cluster


class Occupancy(NamedTuple):
    """Rectangles in order of their start, from when to when [s]; all arrays have one entry for each.

    A job is an index among the job records, `row` the first GPU, counted over all nodes, `rows` the number of GPUs, all
    on one node. `shared` is None where no jobs share GPUs.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    job: NDArray[np.int64]
    row: NDArray[np.int64]
    rows: NDArray[np.int64]
    gpus_per_node: tuple[int, ...]
    node_types: NodeTypes = NOBODY_SAYS
    shared: Parts | None = None


class Parts(NamedTuple):
    """What rectangles are of GPUs that jobs share; all arrays have one entry for each rectangle.

    It is the part with the number `place`, from 0, `of` so many equal ones: one for each job that is there. The job's
    speed is that beside the others over that alone, and it has the GPU since it was `placed` [s].
    """

    place: NDArray[np.int64]
    of: NDArray[np.int64]
    speed: NDArray[np.float64]
    placed: NDArray[np.float64]


def occupancy(result: Result, cluster: Cluster) -> Occupancy:
    """Return who held which GPU when.

    A change of placement begins a new rectangle also where a GPU stays with its job, as the job restarts; a change of
    the batch size alone does not. On GPUs that jobs share one begins, too, whenever who is there or a speed changes,
    and none overlap: of a GPU with n jobs each has an n-th.

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    index = {record.job: number for number, record in enumerate(result.job_records)}
    offsets = [0, *accumulate(cluster.gpus_per_node)]
    if result.sharing_records:
        pieces = stays(result.allocation_records, cluster, result.end_time, result.sharing_records)
        return _shared(pieces, index, offsets, cluster)
    found = [
        (start, end, index[job], offsets[node] + first, length)
        for start, end, job, node, first, length in tenures(result.allocation_records, cluster, result.end_time)
    ]
    start, end, job, row, rows = np.array(sorted(found), dtype=np.float64).reshape(-1, 5).T
    held, first, count = (column.astype(int) for column in (job, row, rows))
    return Occupancy(start, end, held, first, count, cluster.gpus_per_node, cluster.node_types)


def _shared(pieces: Iterable[Stay], index: Mapping[str, int], offsets: Sequence[int], cluster: Cluster) -> Occupancy:
    on: defaultdict[Slot, list[tuple[int, Stay]]] = defaultdict(list)
    for stay in pieces:
        for slot, lane in zip(stay.slots, stay.lanes or repeat(0), strict=False):
            on[slot].append((lane, stay))
    slots: defaultdict[_Part, list[Slot]] = defaultdict(list)
    for slot in sorted(on):
        for part in _parts(on[slot]):
            slots[part].append(slot)
    found = [
        (part.start, part.end, index[part.job], offsets[node] + first, count, *part[3:])
        for part, there in slots.items()
        for node, first, count in _runs(there)
    ]
    start, end, *columns, speed, placed = np.array(sorted(found), dtype=np.float64).reshape(-1, 9).T
    held, row, rows, place, of = (column.astype(int) for column in columns)
    shared = Parts(place, of, speed, placed)
    return Occupancy(start, end, held, row, rows, cluster.gpus_per_node, cluster.node_types, shared)


class _Part(NamedTuple):
    start: float
    end: float
    job: str
    place: int
    of: int
    speed: float
    placed: float


def _parts(there: Iterable[tuple[int, Stay]]) -> Iterator[_Part]:
    """Yield the parts of a GPU, each for as long as the same jobs are there at the same speeds."""
    by_lane = sorted(there, key=lambda pair: (pair[0], pair[1].start))
    times = sorted({time for _, stay in by_lane for time in (stay.start, stay.end)})
    users: dict[float, tuple[tuple[str, float, float], ...]] = dict.fromkeys(times, ())
    for _, stay in by_lane:
        for time in times[bisect_left(times, stay.start) : bisect_left(times, stay.end)]:
            users[time] += ((stay.job, stay.speed, stay.placed),)
    for jobs, stretch in groupby(pairwise(times), key=lambda pair: users[pair[0]]):
        (start, end), *rest = stretch
        for place, (job, speed, placed) in enumerate(jobs):
            yield _Part(start, rest[-1][1] if rest else end, job, place, len(jobs), speed, placed)


def _runs(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int]]:
    """Yield node, first GPU and length of every run of neighbouring GPUs of a node."""
    for node, there in groupby(slots, key=attrgetter("node")):
        for first, length in runs([slot.gpu for slot in there]):
            yield node, first, length
