"""Free GPUs: on nodes now, by number for jobs that share them, and at later times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from math import inf

import numpy as np

from polluxsim.common.instants import ROUNDING, has_come
from polluxsim.hardware.hosts import NOTHING, Host
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import Crew, Gpu, Gpus, JobId, Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobView


def anywhere(job: JobView, gpu_type: str | None) -> Shape:
    """Return the shape of a job whose GPUs may be anywhere."""
    return Shape(job.num_replicas)


class FreeGpus:
    """The free GPUs of each node while jobs take GPUs one after the other, with CPUs and memory if nodes limit them.

    `FreeGpus.of(view)` begins with all GPUs of a cluster, including those that jobs hold now. `FreeGpus.free_in(view)`
    begins with those that no job holds.

    Parameters
    ----------
    gpus_per_node
        Free GPUs of each node.
    hosts
        Free CPUs and memory of each node. Empty if they are not limited.
    nodes_by_type
        Numbers of the nodes of each GPU type. Empty if there is one type.
    shape_of
        Function that returns the shape of a job on a GPU type. By default, the GPUs of a job may be anywhere.

    Attributes
    ----------
    gpus, hosts
        Free GPUs, and free CPUs and memory, of each node now. Negative CPUs or memory mean that jobs were granted more
        than the node has.
    total
        Free GPUs of all nodes.
    """

    def __init__(
        self,
        gpus_per_node: Sequence[int],
        hosts: Sequence[Host] = (),
        nodes_by_type: Mapping[str, Sequence[int]] | None = None,
        shape_of: Callable[[JobView, str | None], Shape] = anywhere,
    ) -> None:
        self.gpus = list(gpus_per_node)
        self.hosts = list(hosts)
        self.total = sum(self.gpus)
        self._most = max(self.gpus, default=0)  # no node has more free GPUs
        self._nodes_by_type = nodes_by_type or {}
        self._shape_of = shape_of
        # Number of nodes by their free GPUs. It is made when it is first needed.
        self._num_nodes: Counter[int] | None = None

    @classmethod
    def of(cls, view: ClusterView) -> FreeGpus:
        """Return all GPUs of a cluster."""
        return cls._in(view, view.gpus_per_node)

    @classmethod
    def free_in(cls, view: ClusterView) -> FreeGpus:
        """Return the GPUs of a cluster that no job holds."""
        return cls._in(view, view.free)

    @classmethod
    def _in(cls, view: ClusterView, gpus_per_node: Sequence[int]) -> FreeGpus:
        nodes_by_type = view.node_types.nodes if len(view.types) > 1 else {}
        return cls(gpus_per_node, nodes_by_type=nodes_by_type, shape_of=view.shape_of)

    def __copy__(self) -> FreeGpus:
        """Return the same free GPUs, which can be taken independently."""
        return type(self)(self.gpus, self.hosts, self._nodes_by_type, self._shape_of)

    def take(self, placement: Placement, needs: Host = NOTHING) -> None:
        """Take the GPUs of a placement, with CPUs and memory for each GPU."""
        for node, gpus in placement:
            self._change(node, -gpus)
            if self.hosts:
                self.hosts[node] = self.hosts[node].less(needs.times(gpus))

    def give_back(self, placement: Placement) -> None:
        """Give back the GPUs of a placement."""
        for node, gpus in placement:
            self._change(node, gpus)
            self._most = max(self._most, self.gpus[node])

    def _change(self, node: int, gpus: int) -> None:
        """Add free GPUs to a node; a negative number takes them."""
        before = self.gpus[node]
        after = before + gpus
        self.gpus[node] = after
        self.total += gpus
        if self._num_nodes is not None:
            self._num_nodes[before] -= 1
            self._num_nodes[after] += 1

    def has(self, placement: Placement) -> bool:
        """Return whether the GPUs of a placement are free. Its nodes may no longer exist."""
        return all(node < len(self.gpus) and gpus <= self.gpus[node] for node, gpus in placement)

    def on(self, nodes: Iterable[int]) -> int:
        """Return the free GPUs of some nodes."""
        return sum(self.gpus[node] for node in nodes)

    def rooms(self, needs: Host) -> list[int]:
        """Return the free GPUs of each node for which the node has CPUs and memory, `needs` for each GPU."""
        if not self.hosts:
            return list(self.gpus)
        return [min(gpus, host.count(needs)) if gpus else 0 for gpus, host in zip(self.gpus, self.hosts, strict=True)]

    def pack(self, num_replicas: int, nodes: Sequence[int] = ()) -> Placement | None:
        """Find GPUs for one job on some nodes, by default on any, and take them.

        The node with the most free GPUs comes first, the lowest number at a tie. If there are not enough free GPUs,
        this method returns None and takes nothing.
        """
        if num_replicas > (self.on(nodes) if nodes else self.total):
            return None
        placement = []
        while num_replicas:
            node = max(nodes, key=self.gpus.__getitem__) if nodes else self._emptiest()
            taken = min(self.gpus[node], num_replicas)
            placement.append((node, taken))
            self._change(node, -taken)
            num_replicas -= taken
        return tuple(placement)

    def fits(self, shape: Shape, nodes: Sequence[int] = ()) -> bool:
        """Return whether a job of a shape fits on some nodes, by default on any."""
        if not shape.parts:
            if shape.gpus_per_task == 1:
                return shape.gpus <= (self.on(nodes) if nodes else self.total)
            return shape.gpus <= sum(gpus // shape.gpus_per_task for gpus in self._gpus_of(nodes)) * shape.gpus_per_task
        num_nodes = Counter(self._gpus_of(nodes)) if nodes else self._counts()
        # The n largest parts need n nodes that have as many free GPUs as the smallest of these parts.
        for position, part in enumerate(shape.parts, start=1):
            is_last_of_size = position == len(shape.parts) or shape.parts[position] < part
            if is_last_of_size and sum([num_nodes[gpus] for gpus in num_nodes if gpus >= part]) < position:
                return False
        return True

    def pack_shape(self, shape: Shape, nodes: Sequence[int] = ()) -> Placement | None:
        """Find GPUs for a job of a shape on some nodes, by default on any, and take them.

        Each part of the job gets the node with the fewest free GPUs that are enough, the lowest number at a tie. Tasks
        get the nodes with the most free GPUs. If the job does not fit, this method returns None and takes nothing.
        """
        if not shape.parts:
            if shape.gpus_per_task == 1:
                return self.pack(shape.gpus, nodes)
            return self._pack_tasks(shape, nodes)
        if not self.fits(shape, nodes):
            return None
        used: list[int] = []
        for part in shape.parts:
            used.append(self._best_fit(part, used, nodes))
        placement = tuple(zip(used, shape.parts, strict=True))
        self.take(placement)
        return placement

    def _pack_tasks(self, shape: Shape, nodes: Sequence[int]) -> Placement | None:
        """Find GPUs for a job whose tasks stay on one node each, and take them."""
        size = shape.gpus_per_task
        whole_tasks = FreeGpus([gpus // size * size for gpus in self.gpus])
        placement = whole_tasks.pack(shape.gpus, nodes)
        if placement is not None:
            self.take(placement)
        return placement

    def _best_fit(self, part: int, used: Sequence[int], nodes: Sequence[int]) -> int:
        """Return the unused node with the fewest free GPUs that are enough, the lowest number at a tie."""
        if nodes:
            enough = [node for node in nodes if self.gpus[node] >= part and node not in used]
            return min(enough, key=lambda node: (self.gpus[node], node))
        num_nodes = self._counts()
        for gpus in sorted([gpus for gpus in num_nodes if gpus >= part and num_nodes[gpus]]):
            node = -1
            for _ in range(num_nodes[gpus]):
                node = self.gpus.index(gpus, node + 1)
                if node not in used:
                    return node
        raise LookupError(f"no node has {part} free GPUs")

    def _counts(self) -> Counter[int]:
        """Return the number of nodes by their free GPUs."""
        if self._num_nodes is None:
            self._num_nodes = Counter(self.gpus)
        return self._num_nodes

    def _gpus_of(self, nodes: Sequence[int]) -> Sequence[int]:
        """Return the free GPUs of some nodes, by default of all."""
        return [self.gpus[node] for node in nodes] if nodes else self.gpus

    def _emptiest(self) -> int:
        """Return the node with the most free GPUs, the lowest number at a tie."""
        try:
            return self.gpus.index(self._most)
        except ValueError:
            self._most = max(self.gpus)
            return self.gpus.index(self._most)

    def pack_job(self, job: JobView, gpus: int | None = None) -> Placement | None:
        """Find GPUs for a job on one type that it can use, and take them. By default, find the requested number.

        The job keeps its present GPUs if their number is right and they are free. Otherwise it gets GPUs of its fastest
        type with enough free GPUs, on the nodes with the most. If no type has enough GPUs, this method returns None and
        takes nothing.
        """
        wanted = job.num_replicas if gpus is None else gpus
        present = job.placement
        if present and num_replicas(present) == wanted and self.has(present):
            self.take(present)
            return present
        is_gang = wanted == job.num_replicas
        if not self._nodes_by_type:
            return self.pack_shape(self._shape_of(job, None) if is_gang else Shape(wanted))
        for name in sorted(job.speeds, key=job.speeds.__getitem__, reverse=True):
            shape = self._shape_of(job, name) if is_gang else Shape(wanted)
            placement = self.pack_shape(shape, self._nodes_by_type[name])
            if placement:
                return placement
        return None


def place(view: ClusterView, chosen: Iterable[tuple[JobView, Crew]]) -> dict[JobId, Placement]:
    """Return placements of jobs on GPUs of given types, by the number of GPUs of each type that each job gets.

    A job that already has these GPUs keeps them, unless an earlier job keeps the same ones. The other jobs are packed
    in order, each type on the nodes with the most free GPUs. A job is left out if no GPUs are left for it. All jobs
    that are not chosen lose their GPUs.
    """
    placements: dict[JobId, Placement] = {}
    new: list[tuple[JobView, Crew]] = []
    nodes = view.node_types.nodes if len(view.types) > 1 else {}
    # GPUs that no job keeps. It is needed only after a fork from a policy under which jobs share GPUs.
    unkept = FreeGpus(view.gpus_per_node) if view.sharing.held else None
    for job, crew in chosen:
        present = job.placement
        keeps = present and (view.node_types.crew(present) == crew if nodes else num_replicas(present) == crew[0][1])
        if keeps and (unkept is None or unkept.has(present)):
            placements[job.job_id] = present
            if unkept is not None:
                unkept.take(present)
        else:
            new.append((job, crew))
    free = FreeGpus(view.free) if unkept is None else unkept
    if unkept is None and len(placements) < len(view.running):
        for job in view.running:
            if job.job_id not in placements:
                free.give_back(job.placement)
    for job, crew in new:
        parts = [free.pack(gpus, nodes.get(name, ())) or () for name, gpus in crew]
        placement = tuple(chain.from_iterable(parts))
        if placement:
            placements[job.job_id] = placement
    return placements


def place_gangs(view: ClusterView, types: Mapping[JobId, str], jobs: Mapping[JobId, JobView]) -> dict[JobId, Placement]:
    """Return placements of gangs on the GPU types chosen for them, each in its shape; the widest gang is packed first.

    A gang that already has GPUs of its type keeps them, unless an earlier gang keeps the same ones. A gang is left out
    if its shape does not fit.
    """
    gangs = sorted((jobs[name] for name in types), key=lambda job: -job.num_replicas)
    if view.shape_rule.anywhere:
        return place(view, [(job, ((types[job.job_id], job.num_replicas),)) for job in gangs])
    free = FreeGpus(view.gpus_per_node)
    placements: dict[JobId, Placement] = {}
    for job in gangs:
        present = job.placement
        if not present or num_replicas(present) != job.num_replicas or view.type_of(present) != types[job.job_id]:
            continue
        if free.has(present):
            free.take(present)
            placements[job.job_id] = present
    for job in gangs:
        if job.job_id in placements:
            continue
        gpu_type = types[job.job_id]
        placement = free.pack_shape(view.shape_of(job, gpu_type), view.nodes_of(gpu_type))
        if placement is not None:
            placements[job.job_id] = placement
    return placements


def pack(free: Sequence[int], num_replicas: int, keep: Placement = ()) -> Placement | None:
    """Find GPUs for one job: its present GPUs if they are free, else GPUs of the nodes with the most free GPUs.

    This function ignores GPU types. Use `FreeGpus.of(view)` and `pack_job` on a cluster of several types.
    """
    remaining = FreeGpus(free)
    if keep and sum(gpus for _, gpus in keep) == num_replicas and remaining.has(keep):
        return keep
    return remaining.pack(num_replicas)


def pack_gang(view: ClusterView, free: Sequence[int], job: JobView) -> Placement | None:
    """Find the requested GPUs of a job among the free GPUs of each node, as `FreeGpus.pack_job` does."""
    nodes_by_type = view.node_types.nodes if len(view.types) > 1 else {}
    return FreeGpus(free, nodes_by_type=nodes_by_type, shape_of=view.shape_of).pack_job(job)


def remove(free: Sequence[int], placement: Placement) -> tuple[int, ...]:
    """Return the free GPUs of each node after a placement is taken."""
    remaining = FreeGpus(free)
    remaining.take(placement)
    return tuple(remaining.gpus)


def all_gpus(view: ClusterView) -> list[Gpu]:
    """Return all GPUs as pairs (node, number)."""
    return [(node, number) for node, gpus in enumerate(view.gpus_per_node) for number in range(gpus)]


def place_packs(view: ClusterView, types: Mapping[tuple[JobView, ...], str]) -> dict[JobId, Gpus]:
    """Return the GPUs of packs of jobs on their GPU types. The jobs of a pack share all GPUs; packs share no GPUs.

    The jobs of a pack request equally many GPUs. All GPUs of the cluster are free for the packs, and all packs should
    have room; a pack without room is left out. A pack keeps the GPUs of its first running job whose GPUs are free. Then
    the widest pack is placed first, on the nodes with the most free GPUs or in the shape of its first job.
    """
    placed: dict[JobId, Gpus] = {}
    for name in dict.fromkeys(types.values()):
        packs = sorted((pack for pack in types if types[pack] == name), key=lambda pack: -pack[0].num_replicas)
        placed |= _placed_packs(view, packs, name)
    return placed


def _placed_packs(view: ClusterView, packs: Sequence[Sequence[JobView]], gpu_type: str) -> dict[JobId, Gpus]:
    """Return the GPUs of packs on the nodes of a type, in order of precedence."""
    nodes = set(view.nodes_of(gpu_type))
    free = {gpu for gpu in all_gpus(view) if gpu[0] in nodes}
    placed: dict[int, Gpus] = {}  # by index of the pack
    for index, pack in enumerate(packs):
        present_gpus = (view.sharing.held.get(job.job_id, ()) for job in pack)
        kept_gpus = next((gpus for gpus in present_gpus if gpus and free.issuperset(gpus)), ())
        if kept_gpus:
            placed[index] = kept_gpus
            free.difference_update(kept_gpus)
    num_free = Counter(node for node, _ in free)
    counts = FreeGpus([num_free[node] for node in range(len(view.gpus_per_node))])
    by_node = {node: iter(sorted(gpu for gpu in free if gpu[0] == node)) for node in num_free}
    for index, pack in enumerate(packs):
        if index in placed:
            continue
        placement = counts.pack_shape(view.shape_of(pack[0], gpu_type))
        if placement is not None:
            placed[index] = tuple(gpu for node, gpus in placement for gpu in islice(by_node[node], gpus))
    return {job.job_id: gpus for index, gpus in placed.items() for job in packs[index]}


ROOM = 64  # fewest unused entries of the arrays of a new timetable


class Timetable:
    """The number of free GPUs from now on, according to known releases and reservations.

    It is a step function in arrays, because there may be thousands of jobs. `releases` are pairs (time, GPUs) of the
    further GPUs that become free [s; GPUs], in order of time, not before now.
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]] = ()) -> None:
        added: dict[float, int] = {now: free}  # GPUs that become free, by time [s]
        for time, gpus in releases:
            added[time] = added.get(time, 0) + gpus
        self._steps = len(added)
        # Start of each step [s], with ∞ after the last one, and its free GPUs. Unused entries follow.
        self._times = np.full(2 * self._steps + ROOM, inf)
        self._free = np.zeros(len(self._times), dtype=np.int64)
        self._times[: self._steps] = list(added)
        self._free[: self._steps] = list(accumulate(added.values()))

    @property
    def now(self) -> int:
        """Return the GPUs that are free now."""
        return int(self._free[0])

    def intervals(self) -> Iterator[tuple[float, float, int]]:
        """Yield the start, the end and the free GPUs of each step; the last step ends at ∞ [s]."""
        times = self._times[: self._steps + 1].tolist()
        return zip(times, times[1:], self._free[: self._steps].tolist(), strict=False)

    def forward(self, now: float) -> None:
        """Drop the steps before a time [s]."""
        past = int(self._times.searchsorted(now, side="right")) - 1
        self._steps -= past
        for values in (self._times, self._free):
            values[: len(values) - past] = values[past:].copy()
        self._times[self._steps :] = inf
        self._times[0] = now

    def earliest(self, num_replicas: int, length: float) -> float:
        """Return the start of the first step from which GPUs are free for a length of time; ∞ if there is none [s]."""
        times = self._times
        too_few = (self._free[: self._steps] < num_replicas).nonzero()[0]  # indices of steps
        if not len(too_few) or (too_few[0] and has_come(times[0] + length, times[too_few[0]])):
            return float(times[0])
        # Intervals between the steps that have too few GPUs.
        begins = times[too_few + 1]
        ends = np.append(times[too_few[1:]], inf)
        fits = (begins < ends) & (ends * (1 + ROUNDING) >= begins + length)
        first = int(fits.argmax())
        return float(begins[first]) if fits[first] else inf

    def take(self, num_replicas: int, start: float, end: float) -> None:
        """Reserve GPUs from one time to another; a step begins at each of them [s]."""
        first = self._step(start)
        last = self._step(end)
        self._free[first:last] -= num_replicas

    def _step(self, time: float) -> int:
        """Return the index of the step that begins at a time, and insert it if there is none."""
        index = int(self._times.searchsorted(time))
        end = self._steps
        if time == inf or self._times[index] == time:
            return min(index, end)
        if end + 1 == len(self._times):
            self._times = np.append(self._times, np.full(end, inf))
            self._free = np.append(self._free, np.zeros(end, dtype=np.int64))
        for values in (self._times, self._free):
            values[index + 1 : end + 1] = values[index:end].copy()
        self._times[index] = time
        self._free[index] = self._free[index - 1]
        self._steps += 1
        return index
