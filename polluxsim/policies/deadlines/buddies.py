"""Buddy placement: each job gets as few nodes as possible. Smaller jobs move to make room.

The module decides which nodes jobs get, after the policy has decided how many GPUs each job gets. `buddies` is the
entry; a `Board` is the state while some jobs move.

If the nodes are equal, and the GPUs of nodes and jobs are powers of two, then each job gets the fewest nodes if enough
GPUs are free. With other numbers, or with jobs that must not move, a job may get more nodes than the fewest.

Trap: a move is a restart for the job that moves. The caller states in `fixed` which jobs cannot afford one.

Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from polluxsim.hardware.placements import JobId, Placement, num_replicas, packed
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.tools.free_gpus import FreeGpus


class Occupant(NamedTuple):
    """A job whose GPUs are all on one node. Occupants are compared by GPUs, then by name."""

    gpus: int
    job_id: JobId


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
        """Put a job on the fewest nodes that are possible; return False, and change nothing, if it does not fit.

        With `makes_room`, smaller jobs move away. Each of these jobs gets its fewest nodes again.
        """
        parts = packed(gpus, self._largest) if gpus else ()
        nodes = self._nodes_with_room(parts)
        if nodes is not None:
            self.put(job_id, tuple(zip(nodes, parts, strict=True)))
            return True
        if not makes_room or gpus > sum(self.free):
            return False
        movers = self._movers(parts, gpus)
        if movers is None:
            return False
        placements_before = self.placements.copy()
        free_before = self.free.copy()
        if self._place_instead_of(movers, job_id, gpus):
            return True
        # The moves may have failed half-way.
        self.placements = placements_before
        self.free = free_before
        return False

    def join(self, job_id: JobId) -> None:
        """Put a job on the fewest nodes if it is on more nodes and the fewest nodes have room."""
        placement = self.placements[job_id]
        gpus = num_replicas(placement)
        if len(placement) > len(packed(gpus, self._largest)):
            # Its own GPUs count as room: one of its nodes may hold it completely.
            self._remove(job_id)
            if not self.place(job_id, gpus, makes_room=False):
                self.put(job_id, placement)

    def _place_instead_of(self, movers: Sequence[JobId], job_id: JobId, gpus: int) -> bool:
        """Put a job where other jobs are, and these on their fewest nodes elsewhere; return False if one does not fit.

        The moves until then are not undone.
        """
        sizes = {mover: num_replicas(self.placements[mover]) for mover in movers}
        for mover in movers:
            self._remove(mover)
        if not self.place(job_id, gpus, makes_room=False):
            return False
        # The largest mover comes first, because it can displace the smaller ones, but not the other way round.
        by_falling_size = sorted(movers, key=lambda mover: -sizes[mover])
        return all(self.place(mover, sizes[mover]) for mover in by_falling_size)

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
        """Return smaller jobs whose moves make room for the parts of a job of `gpus` GPUs, or None."""
        movable = self._movable_by_node(gpus)
        movers: list[JobId] = []
        used_nodes = set[int]()
        for part in parts:
            occupants_in_the_way: dict[int, list[Occupant]] = {}  # by node on which the part can be put
            for node, size in enumerate(self._sizes):
                if node in used_nodes or size < part:
                    continue
                occupants = _fewest_with(part - self.free[node], movable.get(node, []))
                if occupants is not None:
                    occupants_in_the_way[node] = occupants
            if not occupants_in_the_way:
                return None
            gpus_to_move: dict[int, int] = {}
            for node, occupants_there in occupants_in_the_way.items():
                gpus_to_move[node] = sum(occupant.gpus for occupant in occupants_there)
            node = min(gpus_to_move, key=gpus_to_move.__getitem__)
            used_nodes.add(node)
            movers += [occupant.job_id for occupant in occupants_in_the_way[node]]
        return movers

    def _movable_by_node(self, gpus: int) -> dict[int, list[Occupant]]:
        """Return the jobs with fewer than `gpus` GPUs that may move, by their node.

        A job on several nodes is left out, and stays where it is.
        """
        movable: dict[int, list[Occupant]] = {}
        for job_id, placement in self.placements.items():
            if len(placement) != 1 or job_id in self._fixed:
                continue
            node, gpus_of_job = placement[0]
            # Only smaller jobs move, so that the moves of moved jobs come to an end.
            if gpus_of_job < gpus:
                movable.setdefault(node, []).append(Occupant(gpus_of_job, job_id))
        return movable


def _fewest_with(gpus_needed: int, occupants: Sequence[Occupant]) -> list[Occupant] | None:
    """Return a few jobs of a node that together hold at least `gpus_needed` GPUs, or None if all hold fewer.

    >>> [job.job_id for job in _fewest_with(2, [Occupant(1, "a"), Occupant(2, "b"), Occupant(1, "c")])]
    ['b']
    >>> [job.job_id for job in _fewest_with(1, [Occupant(4, "a")])], _fewest_with(5, [Occupant(4, "a")])
    (['a'], None)
    """
    chosen: list[Occupant] = []
    too_large: list[Occupant] = []
    for occupant in sorted(occupants, reverse=True):
        if occupant.gpus <= gpus_needed:
            chosen.append(occupant)
            gpus_needed -= occupant.gpus
        else:
            too_large.append(occupant)
    if gpus_needed <= 0:
        return chosen
    if not too_large:
        return None
    # The chosen jobs are too few, so one job moves that frees more than is needed: the smallest.
    return [*chosen, min(too_large)]


def buddies(
    view: ClusterView, counts: Mapping[JobId, int], fixed: Collection[JobId], anywhere: Collection[JobId]
) -> dict[JobId, Placement]:
    """Return the placement of each job of the view by numbers of GPUs. A job without a number gets no GPUs.

    A job that already holds this number keeps its GPUs, unless it moves to make room for a larger job, finds room on
    fewer nodes, or has shared its GPUs since before a fork. The other jobs take nodes in order of falling size, each
    the nodes with the least room that suffices. A job that does not fit into the fewest nodes gets GPUs of more nodes.
    `fixed` contains the jobs that must not move. `anywhere` contains the jobs that run equally fast on more nodes; no
    other job moves for them.
    """
    board = Board(view.gpus_per_node, fixed)
    for job in view.jobs:
        keeps_count = counts.get(job.job_id, 0) == num_replicas(job.placement)
        # After a fork from a policy that shares GPUs, two jobs can hold the same GPU. The second one must move.
        if keeps_count and board.has(job.placement):
            board.put(job.job_id, job.placement)
    staying = list(board.placements)
    placed = set(staying)
    to_place = [job.job_id for job in view.jobs if job.job_id not in placed]
    for job_id in sorted(to_place, key=lambda job_id: -counts.get(job_id, 0)):
        gpus = counts.get(job_id, 0)
        if not board.place(job_id, gpus, makes_room=job_id not in anywhere):
            board.put(job_id, FreeGpus(board.free).pack(gpus) or ())
    for job_id in staying:
        if job_id not in fixed and job_id not in anywhere:
            board.join(job_id)
    return board.placements
