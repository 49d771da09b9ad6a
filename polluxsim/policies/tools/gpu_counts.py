"""Tools of policies that choose numbers of GPUs: times by GPUs, greedy dealing, placement, and decisions at events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from polluxsim.hardware.placements import gpus_by_node, num_replicas, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.view import Change, Decision, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from polluxsim.hardware.placements import JobId, Placement
    from polluxsim.policies.contract.view import ClusterView, JobView

    Explain = Callable[[Sequence[JobId]], Mapping[JobId, Reason]]

ROUNDING = 1e-9
"""Smaller relative differences of times are rounding errors."""


class TrueTimes:
    """True times to completion by numbers of GPUs, at the batch sizes of the users.

    At a constant batch size the ratio of two of these times is constant, so it is computed once.
    """

    def __init__(self) -> None:
        self._factors: dict[JobId, dict[int, float]] = {}
        self._spread: dict[JobId, dict[int, bool]] = {}

    def on(self, view: ClusterView, job: JobView, counts: Iterable[int]) -> dict[int, float]:
        """Return the remaining time of a job on each of these numbers of GPUs on which it can run [s]."""
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

    def is_equal_anywhere(self, job: JobView, gpus: int) -> bool:
        """Return whether a job is as fast with each of its GPUs on another node as with all on one node."""
        known = self._spread.setdefault(job.job_id, {})
        if gpus not in known:
            known[gpus] = gpus < 2 or _is_equal_anywhere(job, gpus)
        return known[gpus]

    def slowdown(self, view: ClusterView, job: JobView) -> float:
        """Return the remaining time of a job on its present GPUs over the one that `on` returns.

        It differs from 1 on more nodes than needed. It also differs a little where the number of GPUs does not divide
        the batch size: the batch is then rounded, and the ratio that `on` keeps changes during training.
        """
        gpus = num_replicas(job.placement)
        choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
        here = job.oracle.remaining_time(gpus_by_node(job.placement), choice)
        ratio = here / self.on(view, job, [gpus])[gpus]
        return ratio if abs(ratio - 1.0) > ROUNDING else 1.0

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._factors.pop(job_id, None)
            self._spread.pop(job_id, None)


def _factor(job: JobView, gpus: int, node_size: int, asked_for: float) -> float:
    """Return the time on `gpus` GPUs over the time `asked_for`, or 0 if the job cannot run on them."""
    try:
        return _time(job, gpus, node_size) / asked_for
    except ProfileRangeError:
        return 0.0


def _is_equal_anywhere(job: JobView, gpus: int) -> bool:
    try:
        return _time(job, gpus, 1) <= _time(job, gpus, gpus)
    except ProfileRangeError:  # the profile does not know one of these placements
        return False


def _time(job: JobView, gpus: int, node_size: int) -> float:
    choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
    return job.oracle.remaining_time(packed(gpus, node_size), choice)


def fewest_gpus(job: JobView) -> int:
    """Return the smallest number of GPUs that the user of a job allows, 1 by default."""
    return job.min_replicas or 1


def most_gpus(job: JobView) -> int:
    """Return the largest number of GPUs that a job can be given now.

    An agent that has seen few GPUs may allow fewer than the user does. The user's minimum then holds.
    """
    return max(job.max_replicas, fewest_gpus(job))


def counts_of(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the numbers of GPUs that a job can be given, in ascending order. A gang has one."""
    if (gang := job.oracle.application.gang_size) is not None:
        return [gang]
    return range(fewest_gpus(job), min(most_gpus(job), num_gpus) + 1)


def powers_of_two(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the powers of two among `counts_of`, or the largest number if no number is a power of two."""
    counts = counts_of(job, num_gpus)
    return [gpus for gpus in counts if gpus.bit_count() == 1] or counts[-1:]


class Candidate(Protocol):
    """A job that has its fewest GPUs and can be given more."""

    @property
    def job(self) -> JobView:
        """Return the job."""

    @property
    def limit(self) -> int:
        """Return the most GPUs that the job can be given."""

    def gain(self, replicas: int) -> float:
        """Return the value of one GPU more than `replicas`, 0 at the limit."""


class Dealt(NamedTuple):
    """Numbers of GPUs, and the winner of the last GPU beyond the fewest GPUs of all candidates.

    Attributes
    ----------
    counts
        GPUs of each job, 0 for a job that waits.
    candidates
        The jobs with GPUs, by name, in order of submission.
    winner, winning_gain
        The job that got the last GPU, and the gain for which it got it. None and 0 if no job got more than its fewest.
    """

    counts: dict[JobId, int]
    candidates: Mapping[JobId, Candidate]
    winner: JobId | None
    winning_gain: float


def served_first(jobs: Iterable[JobView], num_gpus: int) -> Iterator[JobView]:
    """Yield the jobs that get their fewest GPUs, in order of submission. A job that does not fit is passed over."""
    left = num_gpus
    for job in jobs:
        if not left:
            return
        if (fewest := fewest_gpus(job)) <= left:
            left -= fewest
            yield job


def deal(jobs: Sequence[JobView], candidates: Sequence[Candidate], num_gpus: int) -> Dealt:
    """Give each candidate its fewest GPUs, and each further GPU to the job with the largest gain.

    The earlier job wins a tie. If the gains of each job fall, the sum of the gains is as large as possible.
    """
    counts = {job.job_id: 0 for job in jobs}
    counts |= {candidate.job.job_id: fewest_gpus(candidate.job) for candidate in candidates}
    heap = [(-each.gain(counts[each.job.job_id]), order) for order, each in enumerate(candidates)]
    heapify(heap)
    winner, winning_gain = None, 0.0
    for _ in range(num_gpus - sum(counts.values())):
        if not heap or heap[0][0] >= 0:
            break
        winning_gain, order = -heap[0][0], heap[0][1]
        winner = candidates[order].job.job_id
        counts[winner] += 1
        gain = candidates[order].gain(counts[winner])
        heapreplace(heap, (-gain, order)) if gain > 0 else heappop(heap)
    return Dealt(counts, {each.job.job_id: each for each in candidates}, winner, winning_gain)


def reasons_of(
    view: ClusterView, dealt: Dealt, asked: Sequence[JobId], reason: Callable[[Candidate, Dealt], Reason]
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs: `reason` of the candidates, and one of two kinds for jobs that wait.

    Kinds: `no-gpu-left`, if there are more jobs than GPUs; `no-least-left`, if the fewest GPUs of earlier jobs leave
    too few.
    """
    wanted, left = set(asked), view.num_gpus
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(view.jobs, start=1):
        candidate = dealt.candidates.get(job.job_id)
        if job.job_id in wanted:
            if candidate is not None:
                reasons[job.job_id] = reason(candidate, dealt)
            elif position > view.num_gpus:
                reasons[job.job_id] = Reason("no-gpu-left", {"position": position, "num_gpus": view.num_gpus})
            else:
                reasons[job.job_id] = Reason("no-least-left", {"gpus_left": left})
        if candidate is not None:
            left -= fewest_gpus(job)
    return reasons


def dealt(view: ClusterView, counts: Mapping[JobId, int], explain: Explain) -> Decision:
    """Return the decision that gives jobs these numbers of GPUs until the next arrival or completion."""
    return Decision(
        placements(view, counts),
        valid_until=inf,
        outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES | Change.LEARNING,
        explain=explain,
    )


def placements(view: ClusterView, counts: Mapping[JobId, int]) -> dict[JobId, Placement]:
    """Return placements. A job with an unchanged number keeps its GPUs; the others are packed, the smallest first."""
    kept = {job.job_id: job.placement for job in view.jobs if counts.get(job.job_id, 0) == num_replicas(job.placement)}
    free = FreeGpus(view.gpus_per_node)
    for placement in kept.values():
        free.take(placement)
    moved = [job.job_id for job in view.jobs if job.job_id not in kept]
    return kept | {
        name: free.pack(counts.get(name, 0)) or () for name in sorted(moved, key=lambda name: counts.get(name, 0))
    }


class AtEvents(ABC):
    """Policy that decides at arrivals, completions and changes of nodes only, and repeats its decision otherwise."""

    _last: Decision | None = None

    @abstractmethod
    def decide(self, view: ClusterView) -> Decision:
        """Return a decision for the time until the next of these events."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide after an event, or repeat the last decision."""
        changes = view.changes
        if self._last is None or changes.arrived or changes.ended or changes.nodes:
            self._last = self.decide(view)
            return self._last
        return replace(self._last, explain=None)


class AtIntervals(AtEvents):
    """Policy that also decides when `interval` has passed since its last decision."""

    interval: float
    _next: float = inf

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide after an event or the interval, or repeat the last decision."""
        if view.time >= self._next:
            self._last = None
        before = self._last
        decision = super().allocate(view, rng)
        if self._last is not before:
            self._next = view.time + self.interval
        return replace(decision, valid_until=self._next)
