"""Placements of jobs on GPUs, and the batch sizes that jobs choose there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, TypeAlias

JobId: TypeAlias = str

Placement: TypeAlias = tuple[tuple[int, int], ...]
"""A job's GPUs as pairs (node, number of GPUs) in the order of allocation; empty without GPUs."""

Gpu: TypeAlias = tuple[int, int]  # a GPU as (node, number on this node)
Gpus: TypeAlias = tuple[Gpu, ...]  # a job's GPUs by number, which it may share with other jobs
Crew: TypeAlias = tuple[tuple[str, int], ...]  # pairs (name of a GPU type, number of GPUs) of a job on several types
Allocation: TypeAlias = Mapping[JobId, Placement]  # placements by job; a missing job has no GPU

MOST_SECONDS = 1e11
"""Latest time and longest duration of a job [s], about 3,000 years.

Floats near this time are 1.5e-5 s apart, so that rounds of a millisecond have different times. From 1e16 s on, adding a
second would change nothing.
"""


class BatchChoice(NamedTuple):
    """Division of one optimiser step over the replicas of a job."""

    atomic_batch_size: int  # examples per GPU in one forward-backward pass
    accumulation_steps: int  # passes before the pass that synchronises

    def batch_size(self, num_replicas: int) -> int:
        """Return the examples of one optimiser step on `num_replicas` GPUs."""
        return num_replicas * self.atomic_batch_size * (self.accumulation_steps + 1)


class DividedBatch(NamedTuple):
    """Division of one optimiser step over GPUs of several types, with different parts for each type."""

    parts: tuple[tuple[int, int], ...]  # number of GPUs, and examples per GPU in one pass, of each type
    accumulation_steps: int  # passes before the pass that synchronises

    @property
    def atomic_batch_size(self) -> int:
        """Return the largest number of examples per GPU in one pass."""
        return max(examples for _, examples in self.parts)

    def batch_size(self, num_replicas: int) -> int:
        """Return the examples of one optimiser step on all GPUs of the job."""
        return sum(gpus * examples for gpus, examples in self.parts) * (self.accumulation_steps + 1)


def num_replicas(placement: Placement) -> int:
    """Return the number of GPUs of a placement.

    >>> num_replicas(((0, 4), (3, 2)))
    6
    """
    if len(placement) == 1:  # the usual case, and faster
        return placement[0][1]
    return sum([gpus for _, gpus in placement])  # a list, which is faster than a generator


def gpus_by_node(placement: Placement) -> tuple[int, ...]:
    """Return the number of GPUs on each node of a placement, in the order of the placement."""
    return tuple(gpus for _, gpus in placement)


def packed(num_replicas: int, gpus_per_node: int = 4) -> tuple[int, ...]:
    """Return the number of GPUs on each node of a packed placement: full nodes, and the rest on one further node.

    The nodes of the measured cluster have 4 GPUs.

    >>> packed(10)
    (4, 4, 2)
    """
    num_full_nodes, on_last_node = divmod(num_replicas, gpus_per_node)
    parts = (gpus_per_node,) * num_full_nodes
    return (*parts, on_last_node) if on_last_node else parts


def placement_from_nodes(nodes: Iterable[int]) -> Placement:
    """Return the placement of a list with the node of each GPU. The GPUs of a node must be neighbours in the list.

    >>> placement_from_nodes([3, 3, 5])
    ((3, 2), (5, 1))
    """
    return tuple((node, len(list(run))) for node, run in groupby(nodes))


def partitions_of_queue(queue: str | None) -> list[str]:
    """Return the partitions that a queue names, like those of `sbatch --partition=gpu,short`.

    >>> partitions_of_queue("gpu,short"), partitions_of_queue(None)
    (['gpu', 'short'], [''])
    """
    return (queue or "").split(",")
