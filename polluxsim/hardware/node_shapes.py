"""How the GPUs of a job must be spread over nodes: the shape of a job, and the two rules that give shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias


class Shape(NamedTuple):
    """How the GPUs of a job must be spread over the nodes of a GPU type.

    A job with `parts` gets each part on another node. A job without parts consists of tasks, each on one node; tasks
    may share a node.
    """

    gpus: int  # GPUs of the job
    parts: tuple[int, ...] = ()  # GPUs on each of its nodes, in falling order; empty for a job of tasks
    gpus_per_task: int = 1  # a divisor of `gpus`; 1 if the GPUs may be anywhere

    @property
    def largest_part(self) -> int:
        """Return the GPUs that must be together on one node."""
        return self.parts[0] if self.parts else self.gpus_per_task


class NodeRequest(NamedTuple):
    """What a job requests about nodes. The fields are those of `Job`."""

    gpus: int
    num_nodes: int | None = None
    gpus_per_task: int | None = None


class ShapeRule(Protocol):
    """A rule that gives the shape of each job."""

    anywhere: bool  # whether the GPUs of all jobs may be anywhere

    def shape(self, request: NodeRequest, gpu_type: str) -> Shape:
        """Return the shape of a job on a GPU type."""

    def within(self, nodes: Sequence[int]) -> ShapeRule:
        """Return the rule for jobs that can use only some nodes, given by number."""


class AnywhereRule:
    """The GPUs of a job may be on any nodes, as in most published simulators."""

    anywhere = True

    def shape(self, request: NodeRequest, gpu_type: str) -> Shape:
        """Return the shape of a job, which is the same on all GPU types."""
        return Shape(request.gpus)

    def within(self, nodes: Sequence[int]) -> AnywhereRule:
        """Return the rule for jobs that can use only some nodes."""
        return self


ANYWHERE = AnywhereRule()

Sizes: TypeAlias = Sequence[int]  # GPUs of each node


class ConsolidatedRule:
    """A job gets what it requests about nodes, and otherwise as few nodes as possible.

    A job that requests only GPUs gets one node if its GPUs fit on the largest node. A larger job gets whole nodes, the
    largest first, and its rest on one further node.

    Parameters
    ----------
    gpus_per_node
        GPUs of each node. Nodes that are down count.
    types
        Name of the GPU type of each node.
    numbers
        Number of each node; by default, in order from 0.
    """

    anywhere = False

    def __init__(self, gpus_per_node: Sizes, types: Sequence[str], numbers: Iterable[int] | None = None) -> None:
        sizes_and_types = list(zip(gpus_per_node, types, strict=True))
        numbers = range(len(sizes_and_types)) if numbers is None else numbers
        self._nodes = dict(zip(numbers, sizes_and_types, strict=True))
        self._sizes: dict[str, list[int]] = {}  # GPUs of the nodes of each type, in falling order
        for size, name in sorted(sizes_and_types, reverse=True):
            self._sizes.setdefault(name, []).append(size)
        self._shapes: dict[tuple[NodeRequest, str], Shape] = {}

    def within(self, nodes: Sequence[int]) -> ConsolidatedRule:
        """Return the rule for jobs that can use only some nodes, given by number.

        Nodes that this rule does not know are left out.
        """
        inside = {node: self._nodes[node] for node in nodes if node in self._nodes}
        sizes = [size for size, _ in inside.values()]
        return ConsolidatedRule(sizes, [name for _, name in inside.values()], inside)

    def shape(self, request: NodeRequest, gpu_type: str) -> Shape:
        """Return the shape of a job on a GPU type."""
        key = (request, gpu_type)
        shape = self._shapes.get(key)
        if shape is None:
            shape = shape_of(request, self._sizes[gpu_type])
            self._shapes[key] = shape
        return shape


def shape_of(request: NodeRequest, falling_sizes: Sizes) -> Shape:
    """Return the shape of a job on nodes of the given sizes [GPUs], the largest first.

    >>> shape_of(NodeRequest(6), [8, 4, 4])
    Shape(gpus=6, parts=(6,), gpus_per_task=1)
    >>> shape_of(NodeRequest(14), [8, 4, 4])
    Shape(gpus=14, parts=(8, 4, 2), gpus_per_task=1)
    >>> shape_of(NodeRequest(5, num_nodes=2), [8, 4, 4])
    Shape(gpus=5, parts=(3, 2), gpus_per_task=1)
    >>> shape_of(NodeRequest(6, gpus_per_task=2), [8, 4, 4])
    Shape(gpus=6, parts=(), gpus_per_task=2)
    """
    if request.gpus_per_task is not None:
        return Shape(request.gpus, (), request.gpus_per_task)
    if request.num_nodes is not None:
        # A policy may show another number of GPUs than the user requested.
        return Shape(request.gpus, evenly(request.gpus, min(request.num_nodes, request.gpus)))
    parts = []
    missing = request.gpus
    for size in falling_sizes:
        part = min(size, missing)
        parts.append(part)
        missing -= part
        if not missing:
            return Shape(request.gpus, tuple(parts))
    # The cluster is too small for the job, which therefore never starts, whatever its shape.
    return Shape(request.gpus)


def evenly(gpus: int, num_nodes: int) -> tuple[int, ...]:
    """Return GPUs spread over nodes as evenly as possible, in falling order.

    >>> evenly(8, 3)
    (3, 3, 2)
    """
    smaller_part, num_larger = divmod(gpus, num_nodes)
    return (smaller_part + 1,) * num_larger + (smaller_part,) * (num_nodes - num_larger)


def fits_empty(shape: Shape, falling_sizes: Sizes) -> bool:
    """Return whether a job fits on empty nodes of the given sizes [GPUs], the largest first.

    >>> fits_empty(Shape(8, (4, 4)), [8]), fits_empty(Shape(8, (), 4), [8])
    (False, True)
    """
    if not shape.parts:
        tasks = sum(size // shape.gpus_per_task for size in falling_sizes)
        return tasks * shape.gpus_per_task >= shape.gpus
    if len(shape.parts) > len(falling_sizes):
        return False
    return all(part <= size for part, size in zip(shape.parts, falling_sizes, strict=False))


def shape_in_words(shape: Shape) -> str:
    """Return the nodes that a shape needs, in words.

    >>> shape_in_words(Shape(8, (8,))), shape_in_words(Shape(16, (8, 8))), shape_in_words(Shape(10, (8, 2)))
    ('8 GPUs on one node', '2 nodes with 8 GPUs', '2 nodes with 8 + 2 GPUs')
    >>> shape_in_words(Shape(6, (), 2)), shape_in_words(Shape(6))
    ('3 tasks with 2 GPUs, each on one node', '6 GPUs')
    """
    if not shape.parts:
        if shape.gpus_per_task == 1:
            return f"{shape.gpus} GPUs"
        return f"{shape.gpus // shape.gpus_per_task} tasks with {shape.gpus_per_task} GPUs, each on one node"
    if len(shape.parts) == 1:
        return f"{shape.gpus} GPUs on one node"
    if shape.parts[0] == shape.parts[-1]:
        return f"{len(shape.parts)} nodes with {shape.parts[0]} GPUs"
    return f"{len(shape.parts)} nodes with {' + '.join(map(str, shape.parts))} GPUs"
