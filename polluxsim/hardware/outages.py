"""Times when nodes are down, and the sources of these times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol


class Outage(NamedTuple):
    """A time in which nodes are down."""

    nodes: tuple[int, ...]  # numbers of the nodes
    start: float  # [s on the clock of the workload]
    duration: float  # [s]; ∞ if the nodes do not come up again
    kind: str  # cause, one word
    warning: float = 0.0  # time between the announcement and the start [s]
    is_repair: bool = False  # whether a repair crew is needed, and a spare node can replace a node
    drain: float = 0.0  # time before the start in which the nodes start no jobs [s]


class Outages(Protocol):
    """Source of outages. A unit is a node, or a group of nodes that fail together, and has a number.

    A source with a last outage has an attribute `recurs`, which is False.
    """

    def units(self, num_nodes: int) -> Iterable[int]:
        """Return the units of a cluster with this number of nodes.

        A larger cluster has the same units and additional ones.

        Raise InvalidInputError if the cluster has fewer nodes than the source.
        """

    def outage(self, unit: int, number: int, since: float, draw: Callable[[int], Sequence[float]]) -> Outage | None:
        """Return the next outage of a unit, or None.

        `number` is the number of its outages so far. `since` is the end of the last outage, and 0 before the first [s].
        `draw` returns a given number of random numbers in (0, 1), which are always the same for an outage.
        """
