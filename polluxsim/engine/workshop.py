"""When failed nodes are up again, by the crews and spare nodes there are."""

from __future__ import annotations

from heapq import heappushpop, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polluxsim.types import Outage, Repairs


class Workshop:
    """Repairs nodes in order of failure, so that it is known at once when each is up again.

    Parameters
    ----------
    repairs
        Crews and spare nodes; None is a crew for every failure, and no spare.
    """

    def __init__(self, repairs: Repairs | None) -> None:
        # Heaps of when each crew, and each spare node, is free.
        self._crews = [0.0] * ((repairs and repairs.crews) or 0)
        self._spares = [0.0] * (repairs.spare_nodes if repairs else 0)

    def until(self, now: float, outage: Outage) -> float:
        """Return when the nodes of an outage that begins now are up again [s].

        Of a group, only what failed is repaired: no spare node helps.
        """
        repaired = now + outage.duration
        if not outage.is_repair:
            return repaired
        if self._crews:
            repaired = max(now, self._crews[0]) + outage.duration
            heapreplace(self._crews, repaired)
        if self._spares and len(outage.nodes) == 1:
            return max(now, heappushpop(self._spares, repaired))
        return repaired
