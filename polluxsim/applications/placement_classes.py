"""How tightly a placement is packed: cards are exact on packed placements and rougher on others."""

from __future__ import annotations

PLACEMENT_CLASSES = ("one_gpu", "one_node", "few_nodes", "many_nodes", "unpacked")
"""Kinds of placements by which errors are told apart, see `placement_class`."""

FEW_NODES = 4


def compactness(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> float:
    """Return the fewest nodes that could hold a placement's GPUs over the nodes that do, at most 1.

    Corrections are learnt on packed placements, and count so much on others.

    >>> compactness((4, 2), 4), compactness((1, 1, 1, 1), 4)
    (1.0, 0.25)
    """
    return min(-(-sum(gpus_by_node) // gpus_per_node) / len(gpus_by_node), 1.0)


def placement_class(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> str:
    """Return which of `PLACEMENT_CLASSES` a placement belongs to.

    `few_nodes` are placements on up to four nodes of which all but one are full; `unpacked` are the others on
    up to four; `many_nodes` are all on more.

    >>> placement_class((4, 2), 4), placement_class((3, 3), 4)
    ('few_nodes', 'unpacked')
    """
    if sum(gpus_by_node) == 1:
        return "one_gpu"
    if len(gpus_by_node) == 1:
        return "one_node"
    if len(gpus_by_node) > FEW_NODES:
        return "many_nodes"
    return "few_nodes" if is_packed(gpus_by_node, gpus_per_node) else "unpacked"


def is_packed(gpus_by_node: tuple[int, ...], gpus_per_node: int) -> bool:
    """Return whether all nodes but one are full."""
    return all(gpus >= gpus_per_node for gpus in sorted(gpus_by_node)[1:])
