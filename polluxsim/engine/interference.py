"""Which jobs slow each other down: jobs on several nodes that share one of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.types import Placement


def crowded_nodes(placements: Iterable[Placement]) -> frozenset[int]:
    """Return the nodes on which more than one multi-node job has GPUs.

    Source: Pollux (OSDI '21), §4.2.1: only jobs that use the network disturb each other.
    """
    users = Counter(node for placement in placements if len(placement) > 1 for node, _ in placement)
    return frozenset(node for node, jobs in users.items() if jobs > 1)


def interferes(placement: Placement, crowded: frozenset[int]) -> bool:
    """Return whether a job is slowed down: it spans nodes and one of them is crowded."""
    return len(placement) > 1 and any(node in crowded for node, _ in placement)
