"""Finding GPUs for configurations: parts of a node are never split, whole nodes are whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.policies.packing import FreeGpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.types import JobId, Placement


def place(
    sizes: Mapping[int, int], wanted: Mapping[JobId, tuple[int, int]], held: Mapping[JobId, Placement]
) -> dict[JobId, Placement]:
    """Return placements on the nodes of one type, of so many nodes and GPUs each; all fit as far as their number goes.

    Jobs that want as many nodes and GPUs as they have keep what they held. Where parts of nodes lie so that another job
    does not fit, jobs on parts move: all are placed anew, the largest first, each where it was if it can be. Gangs of
    odd sizes may be split. Source: Sia (SOSP '23), §3.5.
    """
    kept = {job: held[job] for job in wanted if job in held}
    return _placed(sizes, wanted, kept, kept) or _placed(sizes, wanted, {}, kept, splits=True) or {}


def _placed(
    sizes: Mapping[int, int],
    wanted: Mapping[JobId, tuple[int, int]],
    kept: Mapping[JobId, Placement],
    liked: Mapping[JobId, Placement],
    *,
    splits: bool = False,
) -> dict[JobId, Placement] | None:
    """Return the placements, None if parts of nodes lie so that somebody does not fit and nobody is to be split."""
    nodes = _Nodes(sizes, liked)
    found = dict(kept)
    for placement in kept.values():
        nodes.take(placement)
    new = [job for job in wanted if job not in kept]
    for job in sorted(new, key=lambda job: (-wanted[job][1], job not in liked)):
        placement = nodes.find(*wanted[job], liked.get(job, ()))
        if not placement and splits:
            placement = nodes.split(wanted[job][1])
        if not placement:
            return None
        nodes.take(placement)
        found[job] = placement
    return found


class _Nodes:
    """The free GPUs of a type's nodes, and how many of them somebody would like to keep."""

    def __init__(self, sizes: Mapping[int, int], liked: Mapping[JobId, Placement]) -> None:
        self._sizes = sizes
        self._free = dict(sizes)
        self._liked = dict.fromkeys(sizes, 0)
        for placement in liked.values():
            for node, gpus in placement:
                self._liked[node] += gpus

    def take(self, placement: Placement) -> None:
        for node, gpus in placement:
            self._free[node] -= gpus

    def find(self, num_nodes: int, gpus: int, liked: Placement) -> Placement:
        """Return a part of a node, or whole nodes; empty if there are none."""
        if liked and all(count <= self._free[node] for node, count in liked):
            return liked
        if num_nodes == 1:
            fitting = [node for node, free in self._free.items() if free >= gpus]
            best = min(fitting, key=lambda node: (self._free[node], self._liked[node], node), default=None)
            return () if best is None else ((best, gpus),)
        size = max(self._sizes.values())
        whole = [node for node, free in self._free.items() if free == size]
        if gpus != num_nodes * size or len(whole) < num_nodes:
            return ()
        return tuple((node, size) for node in sorted(sorted(whole, key=self._liked.__getitem__)[:num_nodes]))

    def split(self, gpus: int) -> Placement:
        """Return GPUs on the emptiest nodes."""
        numbers: Sequence[int] = list(self._free)
        found = FreeGpus([self._free[node] for node in numbers]).pack(gpus) or ()
        return tuple((numbers[index], count) for index, count in found)
