"""Finding GPUs for jobs on nodes with free GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.types import Placement


class FreeGpus:
    """The free GPUs of each node, as one job after the other takes some.

    Parameters
    ----------
    gpus_per_node
        Free GPUs of each node at first.
    """

    def __init__(self, gpus_per_node: Sequence[int]) -> None:
        self._free = list(gpus_per_node)
        self._total = sum(self._free)

    def take(self, placement: Placement) -> None:
        """Take the GPUs of a placement."""
        for node, gpus in placement:
            self._free[node] -= gpus
            self._total -= gpus

    def give_back(self, placement: Placement) -> None:
        """Give back the GPUs of a placement."""
        for node, gpus in placement:
            self._free[node] += gpus
            self._total += gpus

    def has(self, placement: Placement) -> bool:
        """Return whether the GPUs of a placement are free."""
        return fits(self._free, placement)

    def on(self, nodes: Sequence[int]) -> int:
        """Return the free GPUs of some nodes."""
        return sum(self._free[node] for node in nodes)

    def pack(self, num_replicas: int, nodes: Sequence[int] = ()) -> Placement | None:
        """Find GPUs for one job, and take them.

        Parameters
        ----------
        num_replicas
            GPUs to find.
        nodes
            Where; by default on any.

        Returns
        -------
        Placement or None
            Repeatedly as many GPUs as needed of the node with the most free ones (the lowest number at a tie);
            None, and nothing taken, if there are too few.
        """
        if num_replicas > (self.on(nodes) if nodes else self._total):
            return None
        placement = []
        while num_replicas:
            most = max(map(self._free.__getitem__, nodes)) if nodes else max(self._free)
            node = next(node for node in nodes if self._free[node] == most) if nodes else self._free.index(most)
            taken = min(most, num_replicas)
            placement.append((node, taken))
            self._free[node] -= taken
            self._total -= taken
            num_replicas -= taken
        return tuple(placement)


def fits(free: Sequence[int], placement: Placement) -> bool:
    """Return whether the free GPUs of each node include the placement; its nodes may be gone."""
    return all(node < len(free) and gpus <= free[node] for node, gpus in placement)


def pack(free: Sequence[int], num_replicas: int, keep: Placement = ()) -> Placement | None:
    """Find GPUs for one job: those it holds if they still fit, else the emptiest nodes first.

    Parameters
    ----------
    free
        Free GPUs of each node, left as they are.
    num_replicas
        GPUs to find.
    keep
        The job's present placement, kept if it has this many GPUs and is free.

    Returns
    -------
    Placement or None
        What it holds, or what `FreeGpus.pack` finds.
    """
    if keep and sum(gpus for _, gpus in keep) == num_replicas and fits(free, keep):
        return keep
    return FreeGpus(free).pack(num_replicas)


def remove(free: Sequence[int], placement: Placement) -> tuple[int, ...]:
    """Return the GPUs of each node that are free once the placement is taken."""
    left = list(free)
    for node, gpus in placement:
        left[node] -= gpus
    return tuple(left)
