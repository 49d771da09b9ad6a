"""Elastic policies that know the true times of jobs or need no times: proportional, Optimus+Oracle, AFS and JSA."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from heapq import heappop, heappush, nsmallest
from math import inf
from typing import ClassVar, NamedTuple, cast

import numpy as np

from polluxsim.common.instants import coincide, sort_key
from polluxsim.hardware.placements import JobId, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.elastic.reason_kinds import GAIN_TOO_SMALL, LARGEST_SUM, PROPORTIONAL_SHARE, WON_AGAINST
from polluxsim.policies.tools.gangs import NEAREST
from polluxsim.policies.tools.gpu_counts import (
    AtEvents,
    Candidate,
    Dealt,
    TrueTimes,
    counts_of,
    deal,
    decision_by,
    fewest_gpus,
    most_gpus,
    placements,
    reasons_of,
    served_first,
)
from polluxsim.policies.tools.reason_kinds import AT_LIMIT, BEHIND_HEAD_OF_LINE, NO_GAIN, NO_LEAST_LEFT


@dataclass(frozen=True)
class Proportional(Policy):
    """Give GPUs one by one to the job with the smallest part of its request, up to its limit.

    A job that needs several GPUs at once gets all of them or none. GPUs change only at arrivals and ends.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give the GPUs out."""
        jobs = list(view.jobs)
        choices = [counts_of(job, view.num_gpus) for job in jobs]
        left_at_end: dict[JobId, int] = {}  # GPUs that were left for each job that did not get its next number
        counts, taken, gpus_left = [0] * len(jobs), [0] * len(jobs), view.num_gpus  # `taken` choices of each job
        queue = [(0.0, index) for index, choice in enumerate(choices) if choice]  # a sorted list is a heap
        while queue:
            _, index = heappop(queue)
            more = choices[index][taken[index]]
            if more - counts[index] > gpus_left:
                left_at_end[jobs[index].job_id] = gpus_left
                continue
            gpus_left -= more - counts[index]
            counts[index] = more
            taken[index] += 1
            if taken[index] < len(choices[index]):
                heappush(queue, (more / jobs[index].num_replicas, index))
        gpus_of = {job.job_id: count for job, count in zip(jobs, counts, strict=True)}
        return decision_by(view, gpus_of, lambda asked: _reasons_for_parts(view, gpus_of, left_at_end, asked))


def _reasons_for_parts(
    view: ClusterView, given: Mapping[JobId, int], left_at_end: Mapping[JobId, int], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the GPUs of some jobs beside their fair shares.

    `left_at_end` are the GPUs that were left for each job that did not get its next number.
    """
    wanted = set(asked)
    demand = view.demand
    reasons: dict[JobId, Reason] = {}
    for job in view.jobs:
        if job.job_id in wanted:
            numbers = {
                "gpus": given[job.job_id],
                "gpus_needed": job.num_replicas,
                "fair_share": view.num_gpus * job.num_replicas / demand,
                "num_gpus": view.num_gpus,
                "demand": demand,
            }
            if job.job_id in left_at_end:
                larger = [count for count in counts_of(job, view.num_gpus) if count > given[job.job_id]]
                numbers["next_gpus"] = min(larger) - given[job.job_id]
                numbers["left_at_end"] = left_at_end[job.job_id]
            reasons[job.job_id] = Reason(PROPORTIONAL_SHARE, numbers)
    return reasons


class Remaining(NamedTuple):
    """A job with GPUs, and the time that further GPUs save."""

    job: JobView
    limit: int  # most GPUs of the job
    steps: float  # optimiser steps to completion
    time_saved: list[float]  # time that each GPU saves in an optimiser step, for the first GPUs [s]; `gain` appends
    step_time: Callable[[int], float]  # time of an optimiser step by GPUs, true or estimated [s]
    weight: float = 1.0  # factor on the gains of the job

    def gain(self, replicas: int) -> float:
        """Return the time that one GPU more than `replicas` saves, times the weight [s]; 0 at the limit."""
        if replicas >= self.limit:
            return 0.0
        time_saved = self.time_saved
        while len(time_saved) <= replicas:
            now, then = (self.step_time(count) for count in (len(time_saved), len(time_saved) + 1))
            time_saved.append(0.0 if coincide(now, then) else now - then)
        return time_saved[replicas] * self.steps * self.weight


@dataclass
class Optimus(Policy):
    """Greedy marginal gains by the true remaining iterations and the true throughput, at a fixed batch size.

    Source: Peng et al., "Optimus" (EuroSys '18), with the oracle of Pollux (OSDI '21), §5.2, and its artifact.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True, per_type=True)
    # Times that each GPU saves in an optimiser step, by application, batch size and size of a node [s].
    _time_saved: dict[tuple[str, int, int], list[float]] = field(default_factory=dict, init=False, repr=False)
    # Remaining optimiser steps, by application, batch size and epoch.
    _remaining: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose numbers of GPUs greedily, and place the jobs whose number changes."""
        node_size = view.node_size
        num_gpus = view.num_gpus
        candidates = [self._candidate(job, node_size) for job in served_first(view.jobs, num_gpus)]
        dealt = deal(view.jobs, candidates, num_gpus)
        placed = placements(view, dealt.counts)
        # Remaining iterations are counted by whole epochs, so that nothing changes before the next one.
        return Decision(placed, valid_until=inf, explain=lambda jobs: reasons_of(view, dealt, jobs, reason_by_gain))

    def _candidate(self, job: JobView, node_size: int) -> Remaining:
        name = job.oracle.application.name
        batch_size = job.batch_size
        oracle = job.oracle
        key = (name, batch_size, oracle.epoch)
        remaining = self._remaining.get(key)
        if remaining is None:
            remaining = self._remaining[key] = oracle.remaining_iterations(batch_size)
        # The time that the first GPU saves is never used, so it may be ∞.
        time_saved = self._time_saved.setdefault((name, batch_size, node_size), [inf])
        step_time = partial(true_step_time, job, node_size=node_size)
        return Remaining(job, most_gpus(job), remaining, time_saved, step_time)


def reason_by_gain(candidate: Candidate, dealt: Dealt) -> Reason:
    """Return the reason for the GPUs of a job that has its fewest GPUs."""
    gpus = dealt.counts[candidate.job.job_id]
    next_gain = candidate.gain(gpus)
    numbers = {"gpus": gpus, "max_replicas": candidate.limit, "next_gain": next_gain}
    if gpus > fewest_gpus(candidate.job):
        numbers["last_gain"] = candidate.gain(gpus - 1)
    if gpus >= candidate.limit:
        return Reason(AT_LIMIT, numbers)
    if next_gain <= 0:
        remaining = cast("Remaining", candidate)
        for name, count in (("remaining_time", gpus), ("next_time", gpus + 1)):
            numbers[name] = remaining.steps * remaining.step_time(count)
        return Reason(NO_GAIN, numbers)
    numbers["num_gpus"] = sum(dealt.counts.values())
    if dealt.winner is None:
        return Reason(GAIN_TOO_SMALL, numbers)
    return Reason(GAIN_TOO_SMALL, {**numbers, "winning_gain": dealt.winning_gain}, (dealt.winner,))


def true_step_time(job: JobView, replicas: int, node_size: int) -> float:
    """Return the true time of an optimiser step at the user's batch size, on as few nodes as possible [s]."""
    choice = split_batch_size(job.oracle.application, job.batch_size, replicas, accumulate_alone=True)
    return job.oracle.optimiser_step_time(packed(replicas, node_size), choice)


class Bid:
    """A job that bids for its next GPU, with its remaining times on ascending numbers of GPUs [s]."""

    def __init__(self, job_id: JobId, times: Mapping[int, float]) -> None:
        self.job_id = job_id
        self.gpus = 0
        self._times = times
        self._ladder = list(times)

    @property
    def cost(self) -> float:
        """Return the GPUs that the next step of the job takes, ∞ if the job is at its maximum."""
        return self._ladder[0] - self.gpus if self._ladder else inf

    @property
    def time_left(self) -> float:
        """Return the time to completion on the GPUs of the job, or on the fewest GPUs that it can use [s]."""
        return self._times[self.gpus or self._ladder[0]]

    @property
    def speed(self) -> float:
        """Return the part of the remaining work that the job does per second now [1/s]."""
        return 1.0 / self._times[self.gpus] if self.gpus else 0.0

    @property
    def next_time(self) -> float:
        """Return the time to completion with the next GPU [s]."""
        return self._times[self._ladder[0]]

    @property
    def next_speed(self) -> float:
        """Return the part of the remaining work per second with the next GPU [1/s]."""
        return 1.0 / self.next_time

    def take(self) -> None:
        """Take the next GPU, or all GPUs that the job must get at once."""
        self.gpus = self._ladder.pop(0)


def goes_first(one: Bid, other: Bid) -> bool:
    """Return whether the first job, not the other job, should get the next GPU.

    Let a be the job that ends sooner, b the other job, p their speeds now, and p′ their speeds with the GPU. Job b gets
    the GPU if (p′_b − p_b) / p′_b > (p′_a − p_a) / p_a. This rule minimises the mean completion time of the two jobs if
    b gets the GPU at the latest when a has ended.

    Source: Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21), §4.
    """
    one_is_shorter = sort_key(one.time_left) <= sort_key(other.time_left)
    a, b = (one, other) if one_is_shorter else (other, one)
    if a.speed <= 0:
        return one_is_shorter
    gain_of_b = sort_key((b.next_speed - b.speed) / b.next_speed, now=1.0)
    gain_of_a = sort_key((a.next_speed - a.speed) / a.speed, now=1.0)
    b_wins = gain_of_b > gain_of_a
    return b_wins != one_is_shorter


@dataclass
class Afs(AtEvents):
    """Give GPUs one by one to the job that wins against all other jobs, by true speeds and remaining work.

    GPUs change only at arrivals and ends; the policy does not consider future arrivals.

    Source: AFS-L in Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21).
    """

    traits: ClassVar[Traits] = Traits(per_type=True)
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Deal the GPUs out."""
        self._times.forget(view.changes)
        times_by_gpus = {job.job_id: self._times.on(job, counts_of(job, view.num_gpus)) for job in view.jobs}
        bids = {job_id: Bid(job_id, times) for job_id, times in times_by_gpus.items() if times}
        last = _deal_by_bids(list(bids.values()), view.num_gpus)
        counts = {job_id: bid.gpus for job_id, bid in bids.items()}
        gpus_left = view.num_gpus - sum(counts.values())

        def reason(bid: Bid) -> Reason:
            """Return the reason for the GPUs of a job."""
            numbers = {"gpus": bid.gpus, "remaining_time": bid.time_left, "gpus_left": gpus_left}
            numbers["num_gpus"] = view.num_gpus
            if bid.cost < inf:
                numbers |= {"next_gpus": bid.cost, "next_time": bid.next_time}
            if last is None or last.bid is bid:
                return Reason(WON_AGAINST, numbers)
            numbers |= {"winner_time": last.bid.time_left, "winner_gpus": last.gpus, "left_before": last.left_before}
            if last.time_before < inf:
                numbers["winner_before"] = last.time_before
                numbers |= last.compared_with(bid)
            return Reason(WON_AGAINST, numbers, (last.bid.job_id,))

        return decision_by(view, counts, lambda asked: {name: reason(bids[name]) for name in asked if name in bids})


class LastTurn(NamedTuple):
    """The last turn in which a job got GPUs."""

    bid: Bid
    gpus: int  # that the job got
    left_before: int  # GPUs that were left at this turn
    time_before: float  # time to completion of the job on its GPUs before this turn, ∞ without GPUs [s]

    def compared_with(self, other: Bid) -> dict[str, float]:
        """Return the gains that decided between the job and another one, as numbers of a reason.

        They are left out if the job did not win against the other one itself.
        """
        if not other.gpus or other.cost == inf:
            return {}
        time = self.bid.time_left
        winner = {"speed_gain": self.time_before / time - 1, "time_saved": 1 - time / self.time_before}
        loser = {
            "speed_gain": other.time_left / other.next_time - 1,
            "time_saved": 1 - other.next_time / other.time_left,
        }
        if self.time_before <= other.time_left and winner["speed_gain"] >= loser["time_saved"]:
            return {"winner_speed_gain": winner["speed_gain"], "time_saved": loser["time_saved"]}
        if self.time_before >= other.time_left and winner["time_saved"] >= loser["speed_gain"]:
            return {"winner_time_saved": winner["time_saved"], "speed_gain": loser["speed_gain"]}
        return {}


def _deal_by_bids(bids: list[Bid], left: int) -> LastTurn | None:
    """Assign `left` GPUs while a GPU makes a job faster. Return the last turn.

    A job that a GPU does not make faster is removed from the list.
    """
    last = None
    while contenders := [bid for bid in bids if bid.cost <= left]:
        best = reduce(lambda one, other: other if goes_first(other, one) else one, contenders)
        if best.next_speed > best.speed:
            gpus = int(best.cost)
            last = LastTurn(best, gpus, left, best.time_left if best.gpus else inf)
            left -= gpus
            best.take()
        else:
            bids.remove(best)
    return last


def best_counts(values: Sequence[Mapping[int, float]], num_gpus: int) -> list[int]:
    """Return the number of GPUs of each job that maximises the sum of values.

    `values` contains the value of each number of GPUs that a job can get. There must be enough GPUs for the smallest
    number of each job.
    """
    best = np.zeros(num_gpus + 1)  # largest sum by the number of GPUs
    choices = []
    for values_of_job in values:
        reached = np.full(num_gpus + 1, -np.inf)
        chosen = np.zeros(num_gpus + 1, dtype=int)
        for gpus, exact in values_of_job.items():
            value = sort_key(exact, now=1.0)  # multiples of one unit: their sums are exact, and so are ties
            with_these = np.full(num_gpus + 1, -np.inf)
            with_these[gpus:] = best[: max(num_gpus + 1 - gpus, 0)] + value
            better = with_these > reached
            reached[better] = with_these[better]
            chosen[better] = gpus
        best = reached
        choices.append(chosen)
    counts = []
    gpus_left = int(best.argmax())
    for chosen in reversed(choices):
        counts.append(int(chosen[gpus_left]))
        gpus_left -= counts[-1]
    return counts[::-1]


class Head(NamedTuple):
    """The first job that does not fit. No job may overtake it."""

    job_id: JobId
    gpus: int  # its fewest GPUs
    left: int  # GPUs that earlier jobs leave


def _reason_in_sum(
    job_id: JobId,
    gpus: int,
    values: Mapping[JobId, Mapping[int, float]],
    losses: Sequence[tuple[float, JobId]],
    num_gpus: int,
    gpus_left: int,
) -> Reason:
    """Return the speedup of a job on its GPUs and on one more, and the other job that would lose least by one fewer.

    `values` are the speedups of each job by GPUs. `losses` are at least the two least losses, with their jobs.
    `gpus_left` are the GPUs that no job gets.
    """
    speedups = values[job_id]
    numbers = {"num_gpus": num_gpus, "gpus": gpus, "speedup": speedups[gpus], "gpus_left": gpus_left}
    numbers |= {"fewest_gpus": min(speedups), "most_gpus": max(speedups)}
    if gpus + 1 not in speedups:
        return Reason(LARGEST_SUM, numbers)
    numbers["speedup_more"] = speedups[gpus + 1]
    for loss, other in losses:
        if other != job_id:
            return Reason(LARGEST_SUM, {**numbers, "loss_other": loss}, (other,))
    return Reason(LARGEST_SUM, numbers)


@dataclass
class EffectiveScaling(AtEvents):
    """Admit jobs in order of submission while each gets its fewest GPUs, and share the GPUs for the largest speedup.

    No job overtakes: the first job that does not fit blocks later jobs. A job that cannot run on the GPUs that
    are up is skipped. The speedup of a job is relative to its fewest GPUs, by true speeds. GPUs change only at arrivals
    and completions.

    Source: JSA in Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads" (MASCOTS '20), at the batch
    sizes of the users.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Admit jobs, and solve the programme."""
        self._times.forget(view.changes)
        values = dict[str, dict[int, float]]()
        gpus_left = view.num_gpus
        head = None
        for job in view.jobs:
            times = self._times.on(job, counts_of(job, view.num_gpus))
            fewest = min(times, default=0)
            if gpus_left < fewest <= view.num_gpus:
                head = Head(job.job_id, fewest, gpus_left)
                break
            if 0 < fewest <= gpus_left:
                gpus_left -= fewest
                values[job.job_id] = {gpus: times[fewest] / time for gpus, time in times.items()}
        counts = dict(zip(values, best_counts(list(values.values()), view.num_gpus), strict=True))
        return decision_by(view, counts, lambda asked: _reasons_by_speedup(view, values, counts, head, asked))


def _reasons_by_speedup(
    view: ClusterView,
    values: Mapping[JobId, Mapping[int, float]],
    counts: Mapping[JobId, int],
    head: Head | None,
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return why jobs get their GPUs."""
    wanted = set(asked)
    gpus_left = view.num_gpus - sum(counts.values())
    is_behind = False
    ahead = deque[JobId](maxlen=NEAREST)
    # Losses of speedup by one GPU fewer, the least first. Two are enough: a job is compared with another one.
    losses = nsmallest(
        2,
        (
            (values[name][gpus] - values[name][gpus - 1], name)
            for name, gpus in counts.items()
            if gpus - 1 in values[name]
        ),
    )
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(view.jobs, start=1):
        if job.job_id not in wanted:
            pass
        elif (gpus := counts.get(job.job_id)) is not None:
            reasons[job.job_id] = _reason_in_sum(job.job_id, gpus, values, losses, view.num_gpus, gpus_left)
        elif head is None or not is_behind:
            left = view.num_gpus if head is None else head.left
            fewest = job.gang_size or fewest_gpus(job)
            numbers = {"gpus_left": left, "fewest_gpus": fewest, "num_gpus": view.num_gpus}
            reasons[job.job_id] = Reason(NO_LEAST_LEFT, numbers, tuple(ahead)[::-1])
        else:
            needed = min(counts_of(job, view.num_gpus), default=fewest_gpus(job))
            numbers = {"position": position, "gpus_needed": needed, "gpus_left": head.left}
            reasons[job.job_id] = Reason(BEHIND_HEAD_OF_LINE, numbers | {"head_gpus_needed": head.gpus}, (head.job_id,))
        if job.job_id in counts:
            ahead.append(job.job_id)
        is_behind = is_behind or (head is not None and job.job_id == head.job_id)
    return reasons
