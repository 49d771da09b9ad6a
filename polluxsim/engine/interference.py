"""Which jobs slow each other down: jobs on several nodes that share one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.engine.sharing import Tenant
    from polluxsim.types import JobId


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
        """Return the slowdown for who spans nodes, on one of which another job is that does.

        Source: Pollux (OSDI '21), §4.2.1: only jobs that use the network disturb each other.
        """
        spanning = [each for each in tenants if len(each.placement) > 1]
        users = Counter(node for each in spanning for node, _ in each.placement)
        slowed = (each for each in spanning if any(users[node] > 1 for node, _ in each.placement))
        return {each.job.job_id: self.slowdown for each in slowed}
