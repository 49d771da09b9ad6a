"""Buddy placement: each job gets as few nodes as possible. Smaller jobs move to make room.

If the nodes are equal, and the GPUs of nodes and jobs are powers of two, then each job gets the fewest nodes if enough
GPUs are free. Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polluxsim.hardware.placements import JobId, Placement, num_replicas, packed
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.tools.free_gpus import FreeGpus


def buddies(
    view: ClusterView, counts: Mapping[JobId, int], fixed: Collection[JobId], anywhere: Collection[JobId]
) -> dict[JobId, Placement]:
    """Return GPUs for jobs by their numbers of GPUs.

    A job that already holds this number keeps its GPUs, unless it moves to make room for a larger job, finds room on
    fewer nodes, or has shared its GPUs since before a fork. The other jobs take nodes in order of falling size, each
    the nodes with the least room that suffices. A job that does not fit into the fewest nodes gets GPUs of more nodes.
    `fixed` contains the jobs that must not move. `anywhere` contains the jobs that run equally fast on more nodes; no
    other job moves for them.
    """
    board = Board(view.gpus_per_node, fixed)
    staying = []
    for job in view.jobs:
        if counts.get(job.job_id, 0) == num_replicas(job.placement) and board.has(job.placement):
            board.put(job.job_id, job.placement)
            staying.append(job)
    placed = {job.job_id for job in staying}
    waiting = (job.job_id for job in view.jobs if job.job_id not in placed)
    for job_id in sorted(waiting, key=lambda job_id: -counts.get(job_id, 0)):
        gpus = counts.get(job_id, 0)
        if not board.place(job_id, gpus, makes_room=job_id not in anywhere):
            board.put(job_id, FreeGpus(board.free).pack(gpus) or ())
    for job in staying:
        if job.job_id not in fixed and job.job_id not in anywhere:
            board.join(job.job_id)
    return board.placements


class Board:
    """The placements of jobs while some of them move, and the free GPUs of each node."""

    def __init__(self, gpus_per_node: Sequence[int], fixed: Collection[JobId]) -> None:
        self.placements: dict[JobId, Placement] = {}
        self._sizes = gpus_per_node
        self._largest = max(gpus_per_node)
        self.free = list(gpus_per_node)
        self._fixed = fixed

    def has(self, placement: Placement) -> bool:
        """Return whether the GPUs of a placement are free."""
        return all(gpus <= self.free[node] for node, gpus in placement)

    def put(self, job_id: JobId, placement: Placement) -> None:
        """Give GPUs to a job."""
        self.placements[job_id] = placement
        for node, gpus in placement:
            self.free[node] -= gpus

    def place(self, job_id: JobId, gpus: int, *, makes_room: bool = True) -> bool:
        """Put a job on the fewest nodes that are possible; return False if it does not fit.

        With `makes_room`, smaller jobs move away. Each of these jobs gets its fewest nodes again.
        """
        parts = packed(gpus, self._largest) if gpus else ()
        nodes = self._nodes_with_room(parts)
        if nodes is not None:
            self.put(job_id, tuple(zip(nodes, parts, strict=True)))
            return True
        if not makes_room or gpus > sum(self.free):
            return False
        before = self.placements.copy(), self.free.copy()
        movers = self._movers(parts, gpus)
        if movers is not None:
            sizes = {name: num_replicas(self.placements[name]) for name in movers}
            for name in movers:
                self._remove(name)
            if self.place(job_id, gpus, makes_room=False) and all(
                self.place(name, sizes[name]) for name in sorted(movers, key=lambda name: -sizes[name])
            ):
                return True
        self.placements, self.free = before
        return False

    def join(self, job_id: JobId) -> None:
        """Put a job on the fewest nodes if it is on more nodes and the fewest nodes have room."""
        placement = self.placements[job_id]
        gpus = num_replicas(placement)
        if len(placement) > len(packed(gpus, self._largest)):
            self._remove(job_id)
            if not self.place(job_id, gpus, makes_room=False):
                self.put(job_id, placement)

    def _remove(self, job_id: JobId) -> None:
        for node, gpus in self.placements.pop(job_id):
            self.free[node] += gpus

    def _nodes_with_room(self, parts: Sequence[int]) -> list[int] | None:
        """Return a node with the least sufficient room for each part of a job, or None."""
        with_room: list[int] = []
        for part in parts:
            fitting = [node for node, free in enumerate(self.free) if free >= part and node not in with_room]
            if not fitting:
                return None
            with_room.append(min(fitting, key=self.free.__getitem__))
        return with_room

    def _movers(self, parts: Sequence[int], gpus: int) -> list[JobId] | None:
        """Return smaller jobs whose moves make room for the parts of a job, or None."""
        movable: dict[int, list[tuple[int, JobId]]] = {}
        for name, placement in self.placements.items():
            if len(placement) == 1 and placement[0][1] < gpus and name not in self._fixed:
                movable.setdefault(placement[0][0], []).append((placement[0][1], name))
        chosen: list[JobId] = []
        used = set[int]()
        for part in parts:
            fewest: dict[int, list[tuple[int, JobId]]] = {}  # jobs that make room on each node
            for node, size in enumerate(self._sizes):
                if node not in used and size >= part:
                    jobs = _fewest(movable.get(node, []), part - self.free[node])
                    if jobs is not None:
                        fewest[node] = jobs
            if not fewest:
                return None
            node = min(fewest, key=lambda node: sum(size for size, _ in fewest[node]))
            used.add(node)
            chosen += [name for _, name in fewest[node]]
        return chosen


def _fewest(jobs: Sequence[tuple[int, JobId]], needed: int) -> list[tuple[int, JobId]] | None:
    """Return a few jobs, as pairs (GPUs, name), that together hold at least `needed` GPUs, or None.

    >>> _fewest([(1, "a"), (2, "b"), (1, "c")], 2), _fewest([(4, "a")], 1), _fewest([(4, "a")], 5)
    ([(2, 'b')], [(4, 'a')], None)
    """
    chosen: list[tuple[int, JobId]] = []
    neighbours: list[tuple[int, JobId]] = []
    for job in sorted(jobs, reverse=True):
        if job[0] <= needed:
            chosen.append(job)
            needed -= job[0]
        else:
            neighbours.append(job)
    if needed > 0 and not neighbours:
        return None
    return [*chosen, min(neighbours)] if needed > 0 else chosen
