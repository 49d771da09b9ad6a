"""Which jobs slow each other down: jobs on several nodes that share one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.engine.sharing import Tenant
    from polluxsim.types import JobId, Placement


@dataclass(frozen=True)
class Interference:
    """Whole GPUs for everybody, on nodes that they share.

    Parameters
    ----------
    slowdown
        Share of its speed that a multi-node job loses while it shares a node with another one, in [0, 1).
    """

    slowdown: float

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return that nothing does."""
        return False

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the slowdown for who is on a crowded node."""
        crowded = crowded_nodes(tenant.placement for tenant in tenants)
        return {each.job.job_id: self.slowdown for each in tenants if interferes(each.placement, crowded)}


def crowded_nodes(placements: Iterable[Placement]) -> frozenset[int]:
    """Return the nodes on which more than one multi-node job has GPUs.

    Source: Pollux (OSDI '21), §4.2.1: only jobs that use the network disturb each other.
    """
    users = Counter(node for placement in placements if len(placement) > 1 for node, _ in placement)
    return frozenset(node for node, jobs in users.items() if jobs > 1)


def interferes(placement: Placement, crowded: frozenset[int]) -> bool:
    """Return whether a job is slowed down: it spans nodes and one of them is crowded."""
    return len(placement) > 1 and any(node in crowded for node, _ in placement)
