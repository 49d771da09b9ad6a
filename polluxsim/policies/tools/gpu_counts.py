"""Tools of policies that choose numbers of GPUs: times by GPUs, greedy dealing, placement, and decisions at events.

`TrueTimes` has the remaining times of jobs by numbers of GPUs. `deal` gives GPUs one by one to the job that gains most,
and `reasons_of` explains the numbers. `decision_by` turns numbers into placements on one GPU type, and `Deal` gives out
numbers on several types. `AtEvents` and `AtIntervals` are policies that decide again only when the numbers may change.

Invariants: jobs get their fewest GPUs in order of submission before any job gets more; a job with an unchanged number
keeps its GPUs, because other GPUs would cost a restart.

The trap: the agent of a job may allow fewer GPUs than the minimum of its user. `most_gpus` then returns the minimum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import ceil, inf
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.placements import Crew, JobId, Placement, gpus_by_node, num_replicas
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Change, Changes, ClusterView, Decision, JobView, Reason, ReasonKind
from polluxsim.policies.tools.free_gpus import place
from polluxsim.policies.tools.gangs import NEAREST, Budget
from polluxsim.policies.tools.reason_kinds import ELASTIC_UNITS, NO_LEAST_LEFT

# Function that returns the reasons of some jobs, as `Decision.explain`.
Explain = Callable[[Sequence[JobId]], Mapping[JobId, Reason]]

# Smaller relative differences of times are rounding errors.
ROUNDING = 1e-9

# `common.templates.filled` explains the brackets and braces of a sentence.
NO_GPU_LEFT = ReasonKind(
    "no-gpu-left",
    "The policy gives each job a first GPU in order of submission. The job is number {position} in this order, and "
    "[num_gpus=0?no GPU is up|only {num_gpus:GPU} [num_gpus=1?is|are] up, so none is left for it].",
    ELASTIC_UNITS,
    "As many earlier jobs as there are GPUs have all GPUs.",
)


class TrueTimes:
    """True times to completion by numbers of GPUs, at the batch sizes of the users.

    At a constant batch size the ratio of two of these times is constant, so it is computed once.
    """

    def __init__(self) -> None:
        # By job and number of GPUs: the ratio to the time on the requested GPUs, 0 if the job cannot run; and whether
        # the nodes do not matter.
        self._ratios: dict[JobId, dict[int, float]] = {}
        self._equal_anywhere: dict[JobId, dict[int, bool]] = {}

    def on(self, job: JobView, counts: Iterable[int]) -> dict[int, float]:
        """Return the remaining time of a job on each of these numbers of GPUs on which it can run [s]."""
        ratios = self._ratios.setdefault(job.job_id, {})
        time_as_requested = job.oracle.time_left(job.num_replicas)
        times = {}
        for gpus in counts:
            if gpus not in ratios:
                try:
                    ratios[gpus] = job.oracle.time_left(gpus) / time_as_requested
                except ProfileRangeError:
                    # The job cannot run on this number of GPUs.
                    ratios[gpus] = 0.0
            if ratios[gpus]:
                times[gpus] = time_as_requested * ratios[gpus]
        return times

    def is_equal_anywhere(self, job: JobView, gpus: int) -> bool:
        """Return whether a job is as fast with each GPU on a separate node as with all GPUs on one node.

        Return False if the profile does not know one of these placements.
        """
        if gpus < 2:
            return True
        answers = self._equal_anywhere.setdefault(job.job_id, {})
        if gpus not in answers:
            choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
            try:
                apart = job.oracle.remaining_time((1,) * gpus, choice)
                together = job.oracle.remaining_time((gpus,), choice)
                answers[gpus] = apart <= together
            except ProfileRangeError:
                # Nothing is known, so the nodes may matter.
                answers[gpus] = False
        return answers[gpus]

    def slowdown(self, job: JobView, placement: Placement) -> float:
        """Return the remaining time of a job on some GPUs, divided by the time that `on` returns; ∞ if it cannot run.

        The ratio differs from 1 on more nodes than needed. It also differs a little where the number of GPUs does not
        divide the batch size: the batch is then rounded, and the ratio that `on` keeps changes during training.
        """
        gpus = num_replicas(placement)
        choice = split_batch_size(job.oracle.application, job.batch_size, gpus)
        try:
            time_on_placement = job.oracle.remaining_time(gpus_by_node(placement), choice)
        except ProfileRangeError:
            return inf
        ratio = time_on_placement / self.on(job, [gpus])[gpus]
        is_one_but_for_rounding = abs(ratio - 1.0) <= ROUNDING
        return 1.0 if is_one_but_for_rounding else ratio

    def forget(self, changes: Changes) -> None:
        """Forget jobs that have ended, or that a fork altered."""
        for job_id in chain(changes.ended, changes.altered):
            self._ratios.pop(job_id, None)
            self._equal_anywhere.pop(job_id, None)


def fewest_gpus(job: JobView) -> int:
    """Return the smallest number of GPUs that the user of a job allows, 1 by default."""
    return job.min_replicas or 1


def most_gpus(job: JobView) -> int:
    """Return the largest number of GPUs that a job can be given now.

    An agent that has run on few GPUs may allow fewer GPUs than the user does. The user's minimum holds in this case.
    """
    return max(job.max_replicas, fewest_gpus(job))


def limit_numbers(job: JobView) -> dict[str, float]:
    """Return which limit `most_gpus` is, as numbers of a reason."""
    return {
        "exceeds_agent": float(fewest_gpus(job) > job.max_replicas),
        # Without a limit of the user, the limit of the job is that of its agent.
        "user_limits": float(job.may_grow),
    }


def counts_of(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the numbers of GPUs that a job can be given, in ascending order. A gang has one."""
    gang = job.gang_size
    if gang is not None:
        return [gang]
    return range(fewest_gpus(job), min(most_gpus(job), num_gpus) + 1)


def powers_of_two(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the powers of two among `counts_of`, or the largest number if no number is a power of two."""
    counts = counts_of(job, num_gpus)
    powers = [gpus for gpus in counts if gpus.bit_count() == 1]
    # Without this, a job whose limits have no power of two between them would never start.
    return powers or counts[-1:]


class Candidate(Protocol):
    """A job that has its fewest GPUs and can be given more."""

    @property
    def job(self) -> JobView:
        """Return the job."""

    @property
    def limit(self) -> int:
        """Return the largest number of GPUs that the job can get."""

    def gain(self, replicas: int) -> float:
        """Return the value of one GPU more than `replicas`, 0 at the limit."""


class Dealt(NamedTuple):
    """Numbers of GPUs, and the job that got the last GPU beyond the fewest GPUs of all candidates."""

    counts: dict[JobId, int]  # GPUs of each job, 0 for a job that waits
    candidates: Mapping[JobId, Candidate]  # the jobs with GPUs, by name, in order of submission
    winner: JobId | None  # the job that got the last GPU; None if no job got more than its fewest GPUs
    winning_gain: float  # its gain by this GPU, 0 without a winner


def served_first(jobs: Iterable[JobView], num_gpus: int) -> Iterator[JobView]:
    """Yield the jobs that get their fewest GPUs, in order of submission. A job that does not fit is skipped."""
    gpus_left = num_gpus
    for job in jobs:
        if not gpus_left:
            return
        fewest = fewest_gpus(job)
        if fewest <= gpus_left:
            gpus_left -= fewest
            yield job


def deal(jobs: Sequence[JobView], candidates: Sequence[Candidate], num_gpus: int) -> Dealt:
    """Give each candidate its fewest GPUs, and each further GPU to the job with the largest gain.

    The earlier job wins a tie. If the gains of each job decrease, the sum of the gains is as large as possible.
    """
    counts = [fewest_gpus(candidate.job) for candidate in candidates]
    gains: list[float] = []
    heap: list[tuple[float, int]] = []
    for index, candidate in enumerate(candidates):
        gain = candidate.gain(counts[index])
        gains.append(gain)
        # The heap has the least pair first, so the gain is negated; the index lets the earlier job win a tie.
        heap.append((-sort_key(gain), index))
    heapify(heap)
    winner: JobId | None = None
    winning_gain = 0.0
    for _ in range(num_gpus - sum(counts)):
        if not heap or heap[0][0] >= 0:
            break
        index = heap[0][1]
        winner = candidates[index].job.job_id
        winning_gain = gains[index]
        counts[index] += 1
        next_gain = candidates[index].gain(counts[index])
        gains[index] = next_gain
        if next_gain > 0:
            heapreplace(heap, (-sort_key(next_gain), index))
        else:
            heappop(heap)
    by_name = {candidate.job.job_id: candidate for candidate in candidates}
    counts_by_name = dict.fromkeys([job.job_id for job in jobs], 0)
    counts_by_name |= zip(by_name, counts, strict=True)
    return Dealt(counts_by_name, by_name, winner, winning_gain)


def reasons_of(
    view: ClusterView, dealt: Dealt, asked: Sequence[JobId], reason: Callable[[Candidate, Dealt], Reason]
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs: `reason` of the candidates, and one of two kinds for jobs that wait.

    A waiting job came after as many jobs as there are GPUs, or too few GPUs were left for its minimum.
    """
    wanted = set(asked)
    num_gpus = view.num_gpus
    gpus_left = num_gpus
    just_ahead = deque[JobId](maxlen=NEAREST)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(view.jobs, start=1):
        candidate = dealt.candidates.get(job.job_id)
        is_asked = job.job_id in wanted
        if candidate is not None:
            if is_asked:
                reasons[job.job_id] = reason(candidate, dealt)
            just_ahead.append(job.job_id)
            gpus_left -= fewest_gpus(job)
        elif is_asked and gpus_left == 0 and position > num_gpus:
            reasons[job.job_id] = Reason(NO_GPU_LEFT, {"position": position, "num_gpus": num_gpus})
        elif is_asked:
            numbers = {"gpus_left": gpus_left, "fewest_gpus": fewest_gpus(job), "num_gpus": num_gpus}
            nearest_first = tuple(just_ahead)[::-1]
            reasons[job.job_id] = Reason(NO_LEAST_LEFT, numbers, nearest_first)
    return reasons


def decision_by(view: ClusterView, counts: Mapping[JobId, int], explain: Explain) -> Decision:
    """Return the decision that gives jobs these numbers of GPUs until an event in `Change.JOBS_OR_NODES`, or learning.

    The cluster must have one GPU type.
    """
    return Decision(
        placements(view, counts),
        valid_until=inf,
        outdated_by=Change.JOBS_OR_NODES | Change.LEARNING,
        explain=explain,
    )


def placements(view: ClusterView, counts: Mapping[JobId, int]) -> dict[JobId, Placement]:
    """Return placements on one GPU type. A job with an unchanged number keeps its GPUs; small jobs are packed first."""
    (gpu_type,) = view.types
    started = [job for job in view.jobs if counts.get(job.job_id)]
    # The sort is stable, so jobs with equal numbers stay in order of submission.
    started.sort(key=lambda job: counts[job.job_id])
    return place(view, [(job, ((gpu_type, counts[job.job_id]),)) for job in started])


class Deal:
    """Numbers of GPUs of jobs, each on one GPU type, while all GPUs of a cluster are given out."""

    def __init__(self, view: ClusterView) -> None:
        self.gpus: dict[JobId, int] = {}  # GPUs of each started job
        self._view = view
        self._budget = Budget(view)
        self._types: dict[JobId, str] = {}

    def start(self, job: JobView) -> bool:
        """Give a job the fewest GPUs on which it can run; return False if they do not fit."""
        counts = counts_of(job, self._view.num_gpus)
        if not counts:
            return False
        crew = self._budget.take(job, counts[0])
        if not crew:
            return False
        # A budget that does not mix types returns GPUs of one type.
        ((gpu_type, gpus),) = crew
        self._types[job.job_id] = gpu_type
        self.gpus[job.job_id] = gpus
        return True

    def grow(self, job: JobView) -> bool:
        """Give a started job one more GPU; return False if it cannot use the GPU, or if no GPU of its type is left."""
        gpus = self.gpus[job.job_id] + 1
        if gpus not in counts_of(job, self._view.num_gpus):
            return False
        if not self._budget.take_one_more(self._types[job.job_id]):
            return False
        self.gpus[job.job_id] = gpus
        return True

    def gain(self, job: JobView) -> float:
        """Return the speedup (goodput over that on one GPU) that one GPU more adds; 1 while the goodput is unknown."""
        gpu_type = self._types[job.job_id]
        gpus = self.gpus[job.job_id]
        # On one type, the goodputs by type may be empty.
        model = job.goodput if len(self._view.types) == 1 else job.goodputs[gpu_type]
        if model is None:
            return 1.0
        node_size = max(self._view.gpus_per_node[node] for node in self._view.nodes_of(gpu_type))
        goodput = model.best(ceil(gpus / node_size), gpus)[0]
        goodput_with_one_more = model.best(ceil((gpus + 1) / node_size), gpus + 1)[0]
        goodput_on_one = model.best(1, 1)[0]
        return (goodput_with_one_more - goodput) / goodput_on_one

    def placements(self) -> dict[JobId, Placement]:
        """Return placements. A job with an unchanged number keeps its GPUs; the other jobs are packed in order."""
        crews: list[tuple[JobView, Crew]] = []
        for job in self._view.jobs:
            if job.job_id in self.gpus:
                crews.append((job, ((self._types[job.job_id], self.gpus[job.job_id]),)))
        return place(self._view, crews)


class AtEvents(Policy):
    """Policy that decides at arrivals, completions and changes of nodes, and repeats its decision otherwise.

    An elastic policy also decides when an agent that has learnt allows its job another number of GPUs.
    """

    is_elastic: ClassVar[bool] = True
    _last: Decision | None = None
    _limits: Mapping[JobId, int] = MappingProxyType({})  # most GPUs of each job at the last decision

    @abstractmethod
    def decide(self, view: ClusterView) -> Decision:
        """Return a decision that is valid until the next of these events."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide after an event, or repeat the last decision."""
        if self._last is None or view.changes.jobs_or_nodes or self._other_limits(view):
            self._last = self.decide(view)
            self._limits = limits(view) if self.is_elastic else {}
            return self._last
        # The engine has the reasons already, and they are true of the time of the decision only.
        return replace(self._last, explain=None)

    def _other_limits(self, view: ClusterView) -> bool:
        """Return whether an agent that has learnt allows its job another number of GPUs than at the last decision."""
        if not self.is_elastic or not view.changes.learnt:
            return False
        return limits(view) != self._limits


def limits(view: ClusterView) -> dict[JobId, int]:
    """Return the most GPUs of each job."""
    return {job.job_id: most_gpus(job) for job in view.jobs}


class AtIntervals(AtEvents):
    """Policy that also decides when an interval has passed since its last decision."""

    interval: float  # longest time between decisions [s]
    _next: float = inf  # time of the next decision without an event [s]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Decide after an event or the interval, or repeat the last decision."""
        # Without a last decision, `AtEvents` decides again.
        if view.has_come(self._next):
            self._last = None
        before = self._last
        decision = super().allocate(view, rng)
        has_decided = self._last is not before
        if has_decided:
            self._next = view.time + self.interval
        return replace(decision, valid_until=self._next)
