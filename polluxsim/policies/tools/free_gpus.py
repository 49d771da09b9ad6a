"""Free GPUs of nodes: for one job after the other, and for all jobs that a policy has chosen.

`FreeGpus` finds GPUs for one job after the other. `place`, `place_gangs` and `place_packs` return placements of all
chosen jobs at once, `place_packs` by number for jobs that share GPUs.

Invariants: a job that has the right GPUs already keeps them, because another placement costs a restart; ties go to the
node with the lowest number, so that equal runs have equal placements.

The trap: after a fork from a policy under which jobs share GPUs, several jobs hold the same GPUs, and only one of them
can keep them. `view.sharing.held` is empty on all other clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

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
        """Return some GPUs of a cluster, with its types and its rule for shapes."""
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
        # Updated here, because to count all nodes again at each change would be slow on a large cluster.
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
        rooms = []
        for gpus, host in zip(self.gpus, self.hosts, strict=True):
            # Most nodes are full, and a count of CPUs and memory takes longer than this check.
            rooms.append(min(gpus, host.count(needs)) if gpus else 0)
        return rooms

    def pack(self, num_replicas: int, nodes: Sequence[int] = ()) -> Placement | None:
        """Find GPUs for one job on some nodes, by default on any, and take them.

        The node with the most free GPUs comes first, the lowest number at a tie. If there are not enough free GPUs,
        this method returns None and takes nothing.
        """
        if num_replicas > self._total_on(nodes):
            return None
        placement = []
        missing = num_replicas
        while missing:
            node = self._emptiest(nodes)
            taken = min(self.gpus[node], missing)
            placement.append((node, taken))
            self._change(node, -taken)
            missing -= taken
        return tuple(placement)

    def fits(self, shape: Shape, nodes: Sequence[int] = ()) -> bool:
        """Return whether a job of a shape fits on some nodes, by default on any."""
        if not shape.parts:
            size = shape.gpus_per_task
            if size == 1:
                return shape.gpus <= self._total_on(nodes)
            num_tasks = sum([gpus // size for gpus in self._gpus_of(nodes)])
            return shape.gpus <= num_tasks * size
        num_nodes = Counter(self._gpus_of(nodes)) if nodes else self._counts()
        # The n largest parts need n nodes that have as many free GPUs as the smallest of these parts.
        for position, part in enumerate(shape.parts, start=1):
            is_last_of_size = position == len(shape.parts) or shape.parts[position] < part
            if is_last_of_size:
                num_enough = sum([num_nodes[gpus] for gpus in num_nodes if gpus >= part])
                if num_enough < position:
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
        # Nothing may be taken if a later part has no node.
        if not self.fits(shape, nodes):
            return None
        used: list[int] = []
        for part in shape.parts:
            used.append(self._best_fit(part, used, nodes))
        placement = tuple(zip(used, shape.parts, strict=True))
        self.take(placement)
        return placement

    def pack_job(self, job: JobView, gpus: int | None = None) -> Placement | None:
        """Find GPUs for a job on one type that it can use, and take them. By default, find the requested number.

        The job keeps its present GPUs if their number is right and they are free. Otherwise it gets GPUs of its fastest
        type with enough free GPUs, in its shape or on the nodes with the most free GPUs. If no type has enough GPUs,
        this method returns None and takes nothing.
        """
        wanted = job.num_replicas if gpus is None else gpus
        present = job.placement
        if present and num_replicas(present) == wanted and self.has(present):
            self.take(present)
            return present
        if not self._nodes_by_type:
            return self.pack_shape(self._shape_for(job, wanted, None))
        for name in sorted(job.speeds, key=job.speeds.__getitem__, reverse=True):
            placement = self.pack_shape(self._shape_for(job, wanted, name), self._nodes_by_type[name])
            if placement:
                return placement
        return None

    def _shape_for(self, job: JobView, gpus: int, gpu_type: str | None) -> Shape:
        """Return the shape of a job on a number of GPUs. Users state the shape of the requested number only."""
        if gpus == job.num_replicas:
            return self._shape_of(job, gpu_type)
        return Shape(gpus)

    def _total_on(self, nodes: Sequence[int]) -> int:
        """Return the free GPUs of some nodes, by default of all."""
        return self.on(nodes) if nodes else self.total

    def _emptiest(self, nodes: Sequence[int]) -> int:
        """Return the node with the most free GPUs among some nodes, by default among all.

        At a tie, return the first of `nodes`, or the lowest number.
        """
        if nodes:
            return max(nodes, key=self.gpus.__getitem__)
        try:
            return self.gpus.index(self._most)
        except ValueError:
            # `_most` falls only here: GPUs are taken far more often than the most free GPUs change.
            self._most = max(self.gpus)
            return self.gpus.index(self._most)

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
        # By numbers of free GPUs, of which there are few, and not by nodes.
        for gpus in sorted(num_nodes):
            if gpus < part:
                continue
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


def place(view: ClusterView, chosen: Iterable[tuple[JobView, Crew]]) -> dict[JobId, Placement]:
    """Return placements of jobs on GPUs of given types, by the number of GPUs of each type that each job gets.

    A job that already has these GPUs keeps them, unless an earlier job keeps the same ones. The other jobs are packed
    in order, each type on the nodes with the most free GPUs. A job is left out if no GPUs are left for it. All jobs
    that are not chosen lose their GPUs.
    """
    placements: dict[JobId, Placement] = {}
    new: list[tuple[JobView, Crew]] = []
    nodes_by_type = view.node_types.nodes if len(view.types) > 1 else {}
    # GPUs that no job keeps. It is needed only after a fork from a policy under which jobs share GPUs.
    unkept = FreeGpus(view.gpus_per_node) if view.sharing.held else None
    for job, crew in chosen:
        present = job.placement
        if not present:
            has_crew = False
        elif nodes_by_type:
            has_crew = view.node_types.crew(present) == crew
        else:
            has_crew = num_replicas(present) == crew[0][1]
        if has_crew and (unkept is None or unkept.has(present)):
            placements[job.job_id] = present
            if unkept is not None:
                unkept.take(present)
        else:
            new.append((job, crew))
    free = _free_beside(view, placements) if unkept is None else unkept
    for job, crew in new:
        placement: list[tuple[int, int]] = []
        for name, gpus in crew:
            placement.extend(free.pack(gpus, nodes_by_type.get(name, ())) or ())
        if placement:
            placements[job.job_id] = tuple(placement)
    return placements


def _free_beside(view: ClusterView, kept: Mapping[JobId, Placement]) -> FreeGpus:
    """Return the free GPUs if the running jobs in `kept` keep their GPUs, and all other running jobs lose theirs."""
    free = FreeGpus(view.free)
    # All running jobs keep their GPUs in most rounds, and to read all jobs then would be slow.
    if len(kept) < len(view.running):
        for job in view.running:
            if job.job_id not in kept:
                free.give_back(job.placement)
    return free


def place_gangs(view: ClusterView, types: Mapping[JobId, str], jobs: Mapping[JobId, JobView]) -> dict[JobId, Placement]:
    """Return placements of gangs on the GPU types chosen for them, each in its shape; the widest gang is packed first.

    A gang that already has GPUs of its type keeps them, unless an earlier gang keeps the same ones. A gang is left out
    if its shape does not fit.
    """
    gangs = sorted((jobs[name] for name in types), key=lambda job: -job.num_replicas)
    if view.shape_rule.anywhere:
        chosen: list[tuple[JobView, Crew]] = []
        for job in gangs:
            chosen.append((job, ((types[job.job_id], job.num_replicas),)))
        return place(view, chosen)
    free = FreeGpus(view.gpus_per_node)
    placements: dict[JobId, Placement] = {}
    for job in gangs:
        present = job.placement
        if not present or not free.has(present):
            continue
        is_whole = num_replicas(present) == job.num_replicas
        if is_whole and view.type_of(present) == types[job.job_id]:
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
    num_kept = sum(gpus for _, gpus in keep)
    if keep and num_kept == num_replicas and remaining.has(keep):
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
    """Return all GPUs of the nodes that are up, as pairs (node, number)."""
    gpus: list[Gpu] = []
    for node, num_gpus in enumerate(view.gpus_per_node):
        gpus += [(node, number) for number in range(num_gpus)]
    return gpus


def place_packs(view: ClusterView, types: Mapping[tuple[JobView, ...], str]) -> dict[JobId, Gpus]:
    """Return the GPUs of packs of jobs on their GPU types. The jobs of a pack share all GPUs; packs share no GPUs.

    The jobs of a pack request equally many GPUs. All GPUs of the cluster are free for the packs, and all packs should
    have room; a pack without room is left out. A pack keeps the GPUs of its first running job whose GPUs are free. Then
    the widest pack is placed first, on the nodes with the most free GPUs or in the shape of its first job.
    """
    packs_of_type: dict[str, list[tuple[JobView, ...]]] = {}
    for pack, name in types.items():
        packs_of_type.setdefault(name, []).append(pack)
    placed: dict[JobId, Gpus] = {}
    for name, packs in packs_of_type.items():
        # The sort is stable, so packs of equal width stay in their order.
        packs.sort(key=lambda pack: -pack[0].num_replicas)
        placed |= _placed_packs(view, packs, name)
    return placed


def _placed_packs(view: ClusterView, packs: Sequence[Sequence[JobView]], gpu_type: str) -> dict[JobId, Gpus]:
    """Return the GPUs of packs on the nodes of a type, in order of precedence."""
    nodes = set(view.nodes_of(gpu_type))
    free = {gpu for gpu in all_gpus(view) if gpu[0] in nodes}
    gpus_of_pack: dict[int, Gpus] = {}  # by index of the pack
    # All packs that keep GPUs come first, so that no new pack takes these GPUs.
    for index, pack in enumerate(packs):
        kept_gpus = _kept_by(view, pack, free)
        if kept_gpus:
            gpus_of_pack[index] = kept_gpus
            free.difference_update(kept_gpus)
    free_on_node: list[list[Gpu]] = [[] for _ in view.gpus_per_node]
    for gpu in sorted(free):
        free_on_node[gpu[0]].append(gpu)
    counts = FreeGpus([len(free_gpus) for free_gpus in free_on_node])
    for index, pack in enumerate(packs):
        if index in gpus_of_pack:
            continue
        placement = counts.pack_shape(view.shape_of(pack[0], gpu_type))
        if placement is None:
            continue
        gpus: list[Gpu] = []
        for node, num_gpus in placement:
            gpus += free_on_node[node][:num_gpus]
            del free_on_node[node][:num_gpus]
        gpus_of_pack[index] = tuple(gpus)
    gpus_of_job: dict[JobId, Gpus] = {}
    for index, pack_gpus in gpus_of_pack.items():
        gpus_of_job |= dict.fromkeys((job.job_id for job in packs[index]), pack_gpus)
    return gpus_of_job


def _kept_by(view: ClusterView, pack: Sequence[JobView], free: AbstractSet[Gpu]) -> Gpus:
    """Return the GPUs of the first running job of a pack whose GPUs are all free; nothing if there is none."""
    for job in pack:
        present_gpus = view.sharing.held.get(job.job_id, ())
        if present_gpus and free >= set(present_gpus):
            return present_gpus
    return ()
