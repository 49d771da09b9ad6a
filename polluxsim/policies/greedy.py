"""GPUs go one by one to the job that gains most by another: what Optimus, with an oracle or without, and SLAQ share."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.policies.view import JobView
    from polluxsim.types import JobId


class Candidate(Protocol):
    """A job that has a first GPU."""

    @property
    def job(self) -> JobView:
        """Return the job."""
        ...

    @property
    def limit(self) -> int:
        """Return the most GPUs that it may have."""
        ...

    def gain(self, replicas: int) -> float:
        """Return what one GPU more than so many is worth to it, 0 at its limit."""
        ...


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
        winner = candidates[order].job.job_id
        counts[winner] += 1
        gain = candidates[order].gain(counts[winner])
        heapreplace(heap, (-gain, order)) if gain > 0 else heappop(heap)
    return Dealt(counts, candidates, winner, winning_gain)
