"""Finding GPUs for jobs: so many on nodes with free ones, and by number for jobs that share them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Gpu, Gpus, JobId, Placement


class FreeGpus:
    """The free GPUs of each node, as one job after the other takes some."""

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
        """Find GPUs for one job on some nodes, by default on any, and take them.

        Repeatedly as many as needed of the node with the most free ones (the lowest number at a tie); None, and nothing
        taken, if there are too few.
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
        The job's present placement, kept if it has this many GPUs and is free; else it gets what `FreeGpus.pack` finds.
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


def all_gpus(view: ClusterView) -> list[Gpu]:
    """Return the GPUs that are there, by node and number."""
    return [(node, number) for node, gpus in enumerate(view.gpus_per_node) for number in range(gpus)]


def placed_together(
    view: ClusterView, packs: Sequence[Sequence[JobView]], nodes: Collection[int] | None = None
) -> dict[JobId, Gpus]:
    """Return the GPUs of jobs that have all of them in common, pack by pack; no two packs have one in common.

    All GPUs are given anew, of some nodes or of all. The jobs of a pack ask for equally many; all packs have room. One
    stays where the first of its jobs runs that was not taken elsewhere; others take the emptiest nodes first.
    """
    free = {gpu for gpu in all_gpus(view) if nodes is None or gpu[0] in nodes}
    found: dict[int, Gpus] = {}
    for place, pack in enumerate(packs):
        held = (view.shared.get(job.job_id, ()) for job in pack)
        if kept := next((gpus for gpus in held if gpus and free.issuperset(gpus)), ()):
            found[place] = kept
            free.difference_update(kept)
    left = Counter(node for node, _ in free)
    emptiest = FreeGpus([left[node] for node in range(len(view.gpus_per_node))])
    by_node = {node: iter(sorted(gpu for gpu in free if gpu[0] == node)) for node in left}
    for place, pack in enumerate(packs):
        if place not in found and (placement := emptiest.pack(pack[0].num_replicas)) is not None:
            found[place] = tuple(gpu for node, gpus in placement for gpu in islice(by_node[node], gpus))
    return {job.job_id: gpus for place, gpus in found.items() for job in packs[place]}
