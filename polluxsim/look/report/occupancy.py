"""Which job held which GPU when: a run's stays as rectangles of GPUs and time."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.gpu_types import NOBODY_SAYS, NodeTypes
from polluxsim.look.slots import stays

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from polluxsim.look.slots import Slot, Stay
    from polluxsim.records import Result
    from polluxsim.types import Cluster


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
        GPUs of each node.
    node_types
        GPU type of each node; empty where nobody says.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    job: NDArray[np.int64]
    row: NDArray[np.int64]
    rows: NDArray[np.int64]
    gpus_per_node: tuple[int, ...]
    node_types: NodeTypes = NOBODY_SAYS


def occupancy(result: Result, cluster: Cluster) -> Occupancy:
    """Return who held which GPU when.

    A change of placement begins a new rectangle also where a GPU stays with its job, as the job restarts; a change of
    the batch size alone does not.

    Raises
    ------
    InvalidInputError
        If the records give more GPUs of a node than it has.
    """
    index = {record.job: number for number, record in enumerate(result.job_records)}
    offsets = [0, *accumulate(cluster.gpus_per_node)]
    found = [
        (stay.placed, stay.end, index[stay.job], offsets[node] + first, count)
        for stay in _last_in_place(stays(result.allocation_records, cluster, result.end_time))
        for node, first, count in _runs(stay.slots)
    ]
    start, end, job, row, rows = np.array(sorted(found), dtype=np.float64).reshape(-1, 5).T
    held, first, count = (column.astype(int) for column in (job, row, rows))
    return Occupancy(start, end, held, first, count, cluster.gpus_per_node, cluster.node_types)


def _last_in_place(pieces: Iterable[Stay]) -> Collection[Stay]:
    """Return the last stay of each job in each place: it ends when the job leaves, whatever batch sizes it had."""
    return {(stay.job, stay.placed): stay for stay in pieces}.values()


def _runs(slots: Sequence[Slot]) -> Iterator[tuple[int, int, int]]:
    """Yield node, first GPU and length of every run of neighbouring GPUs of a node."""
    for (node, _), run in groupby(enumerate(slots), key=lambda pair: (pair[1].node, pair[1].gpu - pair[0])):
        gpus = [slot.gpu for _, slot in run]
        yield node, gpus[0], len(gpus)
