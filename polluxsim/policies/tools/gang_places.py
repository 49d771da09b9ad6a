"""The nodes of a cluster while gangs get GPUs by precedence, each in its shape.

A shape says how the GPUs of a job must be spread over nodes. So a job that comes first must find nodes, and it may be
necessary to preempt running jobs that come later: `GangPlaces` then takes the nodes of those jobs that come last.

Invariants: a running job keeps its GPUs if no earlier job took them; a job that does not fit takes nothing.

The trap: a GPU is open until a job has taken it, also while a running job that has not had its turn holds it. A GPU is
idle if it is open and no such pending job holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus


def by_preference(view: ClusterView, job: JobView) -> Sequence[str]:
    """Return the GPU types that a job can use: first the type on which it runs, then the fastest."""
    if len(view.types) == 1:
        return list(view.types)
    present_type = view.type_of(job.placement) if job.placement else None
    speeds = job.speeds
    return sorted(speeds, key=lambda name: (name != present_type, -speeds[name]))


class Heads:
    """The first job of each GPU type that does not fit, if no job may overtake it.

    A job that waits for one type does not block the jobs that use other types.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._types = list(view.types)
        self._head_of_type: dict[str, JobView] = {}

    def block(self, job: JobView) -> None:
        """Let a job that does not fit block all later jobs on the types that it can use."""
        for name in by_preference(self._view, job):
            self._head_of_type.setdefault(name, job)

    @property
    def block_all(self) -> bool:
        """Return whether each type has a head."""
        return len(self._head_of_type) == len(self._view.types)

    def open_to(self, job: JobView) -> Sequence[str]:
        """Return the types without a head that a job can use, by its preference."""
        names = self._types if len(self._types) == 1 else by_preference(self._view, job)
        if not self._head_of_type:
            return names
        return [name for name in names if name not in self._head_of_type]

    def of(self, job: JobView) -> JobView | None:
        """Return the head that blocks a job on its preferred type; None if a type is open to it."""
        if not self._head_of_type or self.open_to(job):
            return None
        names = by_preference(self._view, job)
        if not names:
            return None
        return self._head_of_type[names[0]]


class GangPlaces:
    """The GPUs of each node that are open to further jobs, while jobs take GPUs in order of precedence.

    A running job keeps its GPUs if no earlier job took them. Another job gets idle nodes, and otherwise nodes whose
    running jobs come late in the order: these jobs then get other GPUs, or none.

    Parameters
    ----------
    view
        The cluster.
    order
        Function that returns all jobs by precedence.
    """

    def __init__(self, view: ClusterView, order: Callable[[], Iterable[JobView]]) -> None:
        self.placements: dict[JobId, Placement] = {}  # of the jobs that got GPUs
        self._view = view
        self._order = order
        self._open = FreeGpus(view.gpus_per_node)  # GPUs that no job has taken
        # Running jobs that have not taken GPUs yet, and the number of their GPUs on each node.
        self._pending = {job.job_id: job for job in view.running}
        self._pending_gpus = [0] * len(view.gpus_per_node)
        for job in view.running:
            self._count_pending(job.placement, 1)
        self._ranked: list[list[tuple[int, int, JobId]]] | None = None  # see `_pending_on`
        self.heads = Heads(view)
        self._too_large: set[tuple[Shape, str]] = set()  # what does not fit any more

    @property
    def left(self) -> int:
        """Return the number of open GPUs."""
        return self._open.total

    def left_for(self, job: JobView) -> int:
        """Return the most open GPUs of one type that a job can use."""
        open_by_type = [self._open.on(self._view.nodes_of(name)) for name in by_preference(self._view, job)]
        return max(open_by_type, default=0)

    def types_left(self, job: JobView) -> Mapping[str, int]:
        """Return the open GPUs of each type that a job can use; empty on a cluster of one type."""
        if len(self._view.types) == 1:
            return {}
        return {name: self._open.on(self._view.nodes_of(name)) for name in job.speeds}

    def take(self, job: JobView) -> bool:
        """Take GPUs for a job, those that it holds if possible; return False if it does not fit."""
        present = job.placement
        if present:
            self._stop_pending(job)
            if num_replicas(present) == job.num_replicas and self._open.has(present):
                self._open.take(present)
                self.placements[job.job_id] = present
                return True
        for name in self.heads.open_to(job):
            placement = self._place(self._view.shape_of(job, name), name)
            if placement:
                self.placements[job.job_id] = placement
                return True
        return False

    def pass_over(self, job: JobView) -> None:
        """Give the GPUs of a job that must not keep them to later jobs."""
        if job.placement:
            self._stop_pending(job)

    def node_numbers(self, job: JobView) -> Mapping[str, float]:
        """Return what the open nodes lack for a job, as numbers of a reason; empty if they lack GPUs in all."""
        name = next(iter(by_preference(self._view, job)), None)
        if name is None:
            return {}
        open_gpus = [self._open.gpus[node] for node in self._view.nodes_of(name)]
        return node_numbers(self._view.shape_of(job, name), open_gpus)

    def _stop_pending(self, job: JobView) -> None:
        """Record that it is the turn of a running job."""
        del self._pending[job.job_id]
        self._count_pending(job.placement, -1)

    def _count_pending(self, placement: Placement, sign: int) -> None:
        """Add the GPUs of a pending job to its nodes, or remove them with a `sign` of −1."""
        for node, gpus in placement:
            # A policy that adds and removes nodes may have removed the node.
            if node < len(self._pending_gpus):
                self._pending_gpus[node] += sign * gpus

    def _place(self, shape: Shape, gpu_type: str) -> Placement:
        """Take GPUs of a shape on nodes of a type; return () if the shape does not fit."""
        if (shape, gpu_type) in self._too_large:
            return ()
        nodes = self._view.nodes_of(gpu_type)
        if not self._open.fits(shape, nodes):
            self._too_large.add((shape, gpu_type))
            return ()
        placement = self._on_idle(shape, nodes)
        if placement is None:
            placement = self._with_preemption(shape, nodes)
        self._open.take(placement)
        return placement

    def _on_idle(self, shape: Shape, nodes: Sequence[int]) -> Placement | None:
        """Return idle GPUs of a shape on some nodes; None if the shape does not fit on them."""
        idle_gpus = []
        for node in nodes:
            # An earlier job may have taken GPUs of a pending job, so that the pending GPUs exceed the open ones.
            idle_gpus.append(max(self._open.gpus[node] - self._pending_gpus[node], 0))
        placement = FreeGpus(idle_gpus).pack_shape(shape)
        if placement is None:
            return None
        # The list of idle GPUs has a place for each of these nodes, not for each node of the cluster.
        return tuple((nodes[place], gpus) for place, gpus in placement)

    def _with_preemption(self, shape: Shape, nodes: Sequence[int]) -> Placement:
        """Return open GPUs of a shape on nodes whose pending jobs come as late as possible in the order."""
        if not shape.parts:
            return self._tasks_with_preemption(shape, nodes)
        used: list[int] = []
        # The parts are in falling order, so a large part gets one of the few nodes that suit it.
        for part in shape.parts:
            enough = [node for node in nodes if self._open.gpus[node] >= part and node not in used]
            used.append(max(enough, key=lambda node: self._preference(node, part)))
        return tuple(zip(used, shape.parts, strict=True))

    def _tasks_with_preemption(self, shape: Shape, nodes: Sequence[int]) -> Placement:
        """Return open GPUs for a job of tasks on nodes whose pending jobs come as late as possible in the order."""
        size = shape.gpus_per_task
        placement = []
        missing = shape.gpus
        for node in sorted(nodes, key=lambda node: self._preference(node, size), reverse=True):
            # A task stays on one node, so GPUs that are too few for a task are of no use.
            gpus_of_whole_tasks = self._open.gpus[node] // size * size
            taken = min(gpus_of_whole_tasks, missing)
            if taken:
                placement.append((node, taken))
                missing -= taken
        return tuple(placement)

    def _preference(self, node: int, gpus: int) -> tuple[float, int, int]:
        """Return a key that is larger for a node whose GPUs should rather be taken.

        The first number is the place in the order of the first job that would lose its GPUs; ∞ if no job would. Among
        equal nodes, the one with the fewest idle GPUs comes first, then the lowest number.
        """
        idle = self._open.gpus[node] - self._pending_gpus[node]
        first_loser = inf
        missing = gpus - idle
        for rank, held_gpus in self._pending_on(node):
            if missing <= 0:
                break
            missing -= held_gpus
            first_loser = rank
        return first_loser, -max(idle, 0), -node

    def _pending_on(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the place in the order and the GPUs of each pending job on a node, the last job first."""
        # The order is read only when a job must preempt others, because it may be slow to compute.
        if self._ranked is None:
            self._ranked = self._by_node()
        for place, gpus, job_id in self._ranked[node]:
            if job_id in self._pending:
                yield place, gpus

    def _by_node(self) -> list[list[tuple[int, int, JobId]]]:
        """Return, for each node, its pending jobs with their places in the order and their GPUs, the last job first."""
        on_node: list[list[tuple[int, int, JobId]]] = [[] for _ in self._pending_gpus]
        for place, job in enumerate(self._order()):
            if job.job_id not in self._pending:
                continue
            for node, gpus in job.placement:
                # As in `_count_pending`, the node may have been removed.
                if node < len(on_node):
                    on_node[node].append((place, gpus, job.job_id))
        for jobs in on_node:
            jobs.reverse()
        return on_node


def gpus_up(view: ClusterView) -> dict[str, float]:
    """Return the available GPUs as a number of a reason if some GPUs of the cluster are not available, else nothing."""
    if len(view.types) == 1 and view.num_gpus < view.nominal_gpus:
        return {"gpus_up": view.num_gpus}
    return {}


def none_up(view: ClusterView, job: JobView) -> dict[str, float]:
    """Return 0 available GPUs as a number of a reason if no node of the types that a job can use is available."""
    if len(view.types) > 1 and not any(view.gpus_of(name) for name in job.speeds):
        return {"gpus_up": 0}
    return {}


def node_numbers(shape: Shape, free: Sequence[int]) -> dict[str, float]:
    """Return what nodes lack for a job, as numbers of a reason; empty if all GPUs together are too few.

    >>> node_numbers(Shape(16, (8, 8)), [8, 6, 4])
    {'node_gpus_needed': 8, 'nodes_needed': 2, 'nodes_left': 1, 'node_gpus_left': 8}
    """
    needed = shape.largest_part
    # A job whose GPUs may be anywhere lacks GPUs, and no nodes.
    if sum(free) < shape.gpus or needed == 1:
        return {}
    return {
        "node_gpus_needed": needed,
        # A job of tasks can run on one node with enough GPUs for a task.
        "nodes_needed": shape.parts.count(needed) if shape.parts else 1,
        "nodes_left": sum(gpus >= needed for gpus in free),
        "node_gpus_left": max(free, default=0),
    }
