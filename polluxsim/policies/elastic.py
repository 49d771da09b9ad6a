"""What policies share that choose how many GPUs a job gets: how long it takes on each number, greed, and packing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.view import Change, Decision
from polluxsim.types import num_replicas, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView, Reason
    from polluxsim.types import JobId, Placement

    Explain = Callable[[Sequence[JobId]], Mapping[JobId, Reason]]


class TrueTimes:
    """True times to completion by GPUs, at the batch sizes that users asked for.

    At a constant batch size each is in proportion to the time on the GPUs asked for, so that it is asked for once.
    """

    def __init__(self) -> None:
        self._factors: dict[JobId, dict[int, float]] = {}

    def on(self, view: ClusterView, job: JobView, counts: Iterable[int]) -> dict[int, float]:
        """Return the time that a job still needs on each of these numbers of GPUs that it can run on [s]."""
        node_size = view.node_size
        known = self._factors.setdefault(job.job_id, {})
        asked_for = _time(job, job.num_replicas, node_size)
        times = {}
        for gpus in counts:
            if gpus not in known:
                known[gpus] = _factor(job, gpus, node_size, asked_for)
            if known[gpus]:
                times[gpus] = asked_for * known[gpus]
        return times

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._factors.pop(job_id, None)


def _factor(job: JobView, gpus: int, node_size: int, asked_for: float) -> float:
    """Return the time on so many GPUs over that on those asked for, 0 where the job cannot run on them."""
    try:
        return _time(job, gpus, node_size) / asked_for
    except ProfileRangeError:
        return 0.0


def _time(job: JobView, gpus: int, node_size: int) -> float:
    choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
    return job.oracle.remaining_time(packed(gpus, node_size), choice)


def counts_of(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the numbers of GPUs that a job may get, rising; of a gang, its own alone."""
    if (gang := job.oracle.application.gang_size) is not None:
        return [gang]
    return range(job.min_replicas or 1, min(job.max_replicas, num_gpus) + 1)


def powers_of_two(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return those of them that are powers of two; of a gang, its own."""
    counts = counts_of(job, num_gpus)
    return counts if len(counts) == 1 else [gpus for gpus in counts if gpus.bit_count() == 1]


class Candidate(Protocol):
    """A job that has a first GPU."""

    @property
    def limit(self) -> int:
        """Return the most GPUs that it may have."""

    def gain(self, replicas: int) -> float:
        """Return what one GPU more than so many is worth to it, 0 at its limit."""


class Dealt(NamedTuple):
    """How many GPUs each job gets, and who won the last one beyond everybody's first, by how much.

    `candidates` are the jobs with GPUs, in order of submission.
    """

    counts: dict[JobId, int]
    candidates: Sequence[Candidate]
    winner: JobId | None
    winning_gain: float


def deal(jobs: Sequence[JobView], candidates: Sequence[Candidate], num_gpus: int) -> Dealt:
    """Return each job's number of GPUs: one for each candidate, the rest by largest gain, ties in order of submission.

    Where each job's gains only fall, their sum is as large as it can be.
    """
    counts = {job.job_id: int(order < len(candidates)) for order, job in enumerate(jobs)}
    heap = [(-candidate.gain(1), order) for order, candidate in enumerate(candidates)]
    heapify(heap)
    winner, winning_gain = None, 0.0
    for _ in range(num_gpus - len(candidates)):
        if not heap or heap[0][0] >= 0:
            break
        winning_gain, order = -heap[0][0], heap[0][1]
        winner = jobs[order].job_id
        counts[winner] += 1
        gain = candidates[order].gain(counts[winner])
        heapreplace(heap, (-gain, order)) if gain > 0 else heappop(heap)
    return Dealt(counts, candidates, winner, winning_gain)


def dealt(view: ClusterView, counts: Mapping[JobId, int], explain: Explain) -> Decision:
    """Return the decision to give jobs so many GPUs until one comes or ends."""
    return Decision(
        placements(view, counts),
        valid_until=inf,
        outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES,
        explain=explain,
    )


def placements(view: ClusterView, counts: Mapping[JobId, int]) -> dict[JobId, Placement]:
    """Return GPUs for jobs by their numbers: who has as many keeps them, the others are packed, the smallest first."""
    kept = {job.job_id: job.placement for job in view.jobs if counts.get(job.job_id, 0) == num_replicas(job.placement)}
    free = FreeGpus(view.gpus_per_node)
    for placement in kept.values():
        free.take(placement)
    moved = [job.job_id for job in view.jobs if job.job_id not in kept]
    return kept | {
        name: free.pack(counts.get(name, 0)) or () for name in sorted(moved, key=lambda name: counts.get(name, 0))
    }


class AtEvents(ABC):
    """A policy that decides anew at arrivals and ends only, though its answer would change with time."""

    _last: Decision | None = None

    @abstractmethod
    def decide(self, view: ClusterView) -> Decision:
        """Return a decision that stands until a job comes or ends."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide where something happened; else all goes on."""
        changes = view.changes
        if self._last is None or changes.arrived or changes.ended or changes.nodes:
            self._last = self.decide(view)
            return self._last
        return replace(self._last, explain=None)


class AtIntervals(AtEvents):
    """A policy that decides anew at arrivals and ends, and when so much time has passed since the last decision."""

    interval: float
    _next: float = inf

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide where something happened or it is time; else all goes on."""
        if view.time >= self._next:
            self._last = None
        before = self._last
        decision = super().allocate(view, rng)
        if self._last is not before:
            self._next = view.time + self.interval
        return replace(decision, valid_until=self._next)
