"""Placements of jobs on GPUs, and the batch sizes that jobs choose there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple, TypeAlias

JobId: TypeAlias = str

Placement: TypeAlias = tuple[tuple[int, int], ...]
"""One job's GPUs as (node, number of GPUs) in the order they were taken; the empty tuple is no GPU at all."""

Gpu: TypeAlias = tuple[int, int]
"""One GPU as (node, number on that node)."""

Gpus: TypeAlias = tuple[Gpu, ...]
"""One job's GPUs by number, each once, where others may have the same ones."""

Crew: TypeAlias = tuple[tuple[str, int], ...]
"""How many GPUs of which types, by name, a job has that has several types at once."""

Allocation: TypeAlias = Mapping[JobId, Placement]
"""The placements of all jobs; a job that is absent has no GPU."""


MOST_SECONDS = 1e11
"""Latest time and longest duration of a job [s], about 3,000 years.

Floats there are 1.5e-5 s apart, so that even rounds a millisecond apart are at different times; from 1e16 s on, adding
a second changes nothing, and a clock would stand still.
"""


class BatchChoice(NamedTuple):
    """How a job splits one optimiser step over its replicas."""

    atomic_batch_size: int  # examples per GPU in one forward-backward pass
    accumulation_steps: int  # passes before the one that synchronises; 0 is none

    def batch_size(self, num_replicas: int) -> int:
        """Return the examples of one optimiser step on `num_replicas` GPUs."""
        return num_replicas * self.atomic_batch_size * (self.accumulation_steps + 1)


class DividedBatch(NamedTuple):
    """How a job splits one optimiser step over GPUs of several types, unlike parts for each."""

    parts: tuple[tuple[int, int], ...]  # by type, how many GPUs have how many examples each in one pass
    accumulation_steps: int  # passes before the one that synchronises; 0 is none

    @property
    def atomic_batch_size(self) -> int:
        """Return the most examples that a GPU has in one pass."""
        return max(examples for _, examples in self.parts)

    def batch_size(self, num_replicas: int) -> int:
        """Return the examples of one optimiser step; these are so many GPUs."""
        return sum(gpus * examples for gpus, examples in self.parts) * (self.accumulation_steps + 1)


def num_replicas(placement: Placement) -> int:
    """Return the GPUs of a placement.

    >>> num_replicas(((0, 4), (3, 2)))
    6
    """
    return sum(gpus for _, gpus in placement)


def gpus_by_node(placement: Placement) -> tuple[int, ...]:
    """Return the GPUs on each node of a placement, in the placement's order, without the nodes' names."""
    return tuple(gpus for _, gpus in placement)


def packed(num_replicas: int, gpus_per_node: int = 4) -> tuple[int, ...]:
    """Return the GPUs on each node when full nodes come first; nodes of the measured cluster have 4.

    >>> packed(10)
    (4, 4, 2)
    """
    full, rest = divmod(num_replicas, gpus_per_node)
    return (gpus_per_node,) * full + ((rest,) if rest else ())


def placement_from_nodes(nodes: Iterable[int]) -> Placement:
    """Return the placement of a list with one node for every GPU.

    >>> placement_from_nodes([3, 3, 5])
    ((3, 2), (5, 1))
    """
    return tuple((node, len(list(run))) for node, run in groupby(nodes))
