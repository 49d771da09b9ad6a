"""Free GPUs: on nodes now, by number for jobs that share them, and at later times."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
    from polluxsim.policies.contract.view import ClusterView, JobView


class FreeGpus:
    """The free GPUs of each node, while jobs take GPUs one after the other."""

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

        The node with the most free GPUs comes first, the lowest number at a tie. If the free GPUs do not suffice, this
        returns None and takes nothing.
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
    """Find GPUs for one job: its present GPUs if they are free, else GPUs of the nodes with the most free GPUs.

    This function ignores GPU types: on a cluster of several types, the nodes may have different types, or a type that
    the job cannot use. Use `pack_gang` there.

    Parameters
    ----------
    free
        Free GPUs of each node. They are not changed.
    num_replicas
        GPUs to find.
    keep
        Present placement of the job. It is kept if it has `num_replicas` GPUs and they are free.

    Returns
    -------
    Placement | None
        The placement, or None if the free GPUs do not suffice.
    """
    if keep and sum(gpus for _, gpus in keep) == num_replicas and fits(free, keep):
        return keep
    return FreeGpus(free).pack(num_replicas)


def pack_gang(view: ClusterView, free: Sequence[int], job: JobView) -> Placement | None:
    """Find the GPUs that a job requests, on nodes of one GPU type that the job can use.

    The job keeps the GPUs that it holds if they are free. Otherwise it gets GPUs of its fastest type with enough free
    GPUs, on the nodes with the most free GPUs.

    Parameters
    ----------
    view
        The cluster.
    free
        Free GPUs of each node. They are not changed.
    job
        The job.

    Returns
    -------
    Placement | None
        The placement, or None if no type has enough free GPUs.
    """
    if len(view.types) == 1:
        return pack(free, job.num_replicas, keep=job.placement)
    if job.placement and fits(free, job.placement):
        return job.placement
    for name in sorted(job.speeds, key=job.speeds.__getitem__, reverse=True):
        if found := FreeGpus(free).pack(job.num_replicas, view.nodes_of(name)):
            return found
    return None


def remove(free: Sequence[int], placement: Placement) -> tuple[int, ...]:
    """Return the free GPUs of each node after a placement is taken."""
    left = list(free)
    for node, gpus in placement:
        left[node] -= gpus
    return tuple(left)


def all_gpus(view: ClusterView) -> list[Gpu]:
    """Return all GPUs as pairs (node, number)."""
    return [(node, number) for node, gpus in enumerate(view.gpus_per_node) for number in range(gpus)]


def placed_together(
    view: ClusterView, packs: Sequence[Sequence[JobView]], nodes: Collection[int] | None = None
) -> dict[JobId, Gpus]:
    """Return the GPUs of packs of jobs. The jobs of a pack share all of their GPUs, and packs share none.

    All GPUs, or those of some nodes, are free for the packs. The jobs of a pack request equally many GPUs. All packs
    must have room. A pack keeps the GPUs of its first job that runs on GPUs that are free. Other packs get GPUs of the
    nodes with the most free GPUs.
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


ROOM = 64
"""Steps that there is room for at the least beyond those that are known."""


class Timetable:
    """GPUs that are free from now on [s], by what is reserved.

    So many are free at first, others become free at times [s], in order and none before now.
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        freed: dict[float, int] = {now: free}
        for time, gpus in releases:
            freed[time] = freed.get(time, 0) + gpus
        self._steps = len(freed)
        # When each step begins, with ∞ behind the last one, and the GPUs that are free in it; then room for more.
        self._times = np.full(2 * self._steps + ROOM, inf)
        self._free = np.zeros(len(self._times), dtype=np.int64)
        self._times[: self._steps], self._free[: self._steps] = list(freed), list(accumulate(freed.values()))

    @property
    def now(self) -> int:
        """Return the GPUs that are free at the beginning."""
        return int(self._free[0])

    def intervals(self) -> Iterator[tuple[float, float, int]]:
        """Yield from when until when how many GPUs are free; the last interval does not end."""
        times = self._times[: self._steps + 1].tolist()
        return zip(times, times[1:], self._free[: self._steps].tolist(), strict=False)

    def forward(self, now: float) -> None:
        """Forget what is past [s]."""
        past = int(self._times.searchsorted(now, side="right")) - 1
        self._steps -= past
        for values in (self._times, self._free):
            values[: len(values) - past] = values[past:].copy()
        self._times[self._steps :] = inf
        self._times[0] = now

    def earliest(self, num_replicas: int, length: float) -> float:
        """Return the earliest step at which so many GPUs are free for a length of time [s]; ∞ if they never are."""
        times = self._times
        short = (self._free[: self._steps] < num_replicas).nonzero()[0]
        if not len(short):
            return float(times[0])
        if short[0] and times[short[0]] >= times[0] + length:
            return float(times[0])
        # After each step with too few, until the next of them begins.
        begins = times[short + 1]
        ends = np.append(times[short[1:]], inf)
        fits = (begins < ends) & (ends >= begins + length)
        first = int(fits.argmax())
        return float(begins[first]) if fits[first] else inf

    def take(self, num_replicas: int, start: float, end: float) -> None:
        """Reserve GPUs from a step on to another time, at which a step is made if need be."""
        first, last = self._step(start), self._step(end)
        self._free[first:last] -= num_replicas

    def _step(self, time: float) -> int:
        """Return the index of the step at a time, which is made if need be."""
        index, end = int(self._times.searchsorted(time)), self._steps
        if time == inf or self._times[index] == time:
            return min(index, end)
        if end + 1 == len(self._times):
            self._times = np.append(self._times, np.full(end, inf))
            self._free = np.append(self._free, np.zeros(end, dtype=np.int64))
        for values in (self._times, self._free):
            values[index + 1 : end + 1] = values[index:end].copy()
        self._times[index], self._free[index] = time, self._free[index - 1]
        self._steps += 1
        return index
