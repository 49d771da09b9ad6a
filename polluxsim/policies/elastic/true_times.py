"""Elastic policies that know the true times of jobs or need no times: proportional, Optimus+Oracle, AFS and JSA.

All of them decide how many GPUs each job gets, at most what it can use, and never more GPUs than are up. They differ in
how the GPUs are dealt: by requests (`Proportional`), by the time that a GPU saves (`Optimus`), by comparisons of two
jobs (`Afs`), or by the largest sum of speedups (`EffectiveScaling`).

Trap: equal jobs must get equal times, or a tie becomes a decision. Times that differ by rounding only are therefore
compared by `sort_key` or `coincide`.

Sources: see each policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import ClassVar, NamedTuple, cast

import numpy as np

from polluxsim.common.instants import coincide, sort_key
from polluxsim.hardware.placements import JobId, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.elastic.largest_sum import Head, best_counts, reasons_by_speedup
from polluxsim.policies.elastic.reason_kinds import GAIN_TOO_SMALL, PROPORTIONAL_SHARE, WON_AGAINST
from polluxsim.policies.tools.gpu_counts import (
    AtEvents,
    Candidate,
    Dealt,
    TrueTimes,
    counts_of,
    deal,
    decision_by,
    fewest_gpus,
    limit_numbers,
    most_gpus,
    placements,
    reasons_of,
    served_first,
)
from polluxsim.policies.tools.reason_kinds import AT_LIMIT, NO_GAIN


@dataclass(frozen=True)
class Proportional(Policy):
    """Give GPUs one by one to the job with the smallest part of its request, up to its limit.

    A job that needs several GPUs at once gets all of them or none. GPUs change only at arrivals and ends, at changes of
    nodes, and when an agent learns.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give the GPUs out."""
        jobs = list(view.jobs)
        choices = [counts_of(job, view.num_gpus) for job in jobs]
        next_choice = [0] * len(jobs)  # index in `choices` of the next number of each job
        counts = {job.job_id: 0 for job in jobs}
        left_at_end: dict[JobId, int] = {}  # GPUs that were left for each job that did not get its next number
        gpus_left = view.num_gpus
        # At equal parts, the job with the lower index comes first: the one that was submitted first.
        # Pairs (part of its request that a job has, index of the job). A sorted list is a heap.
        queue = [(0.0, index) for index, numbers in enumerate(choices) if numbers]
        while queue:
            _, index = heappop(queue)
            job = jobs[index]
            next_count = choices[index][next_choice[index]]
            added_gpus = next_count - counts[job.job_id]
            if added_gpus > gpus_left:
                left_at_end[job.job_id] = gpus_left
                continue
            gpus_left -= added_gpus
            counts[job.job_id] = next_count
            next_choice[index] += 1
            if next_choice[index] < len(choices[index]):
                heappush(queue, (next_count / job.num_replicas, index))
        return decision_by(view, counts, lambda asked: _reasons_for_parts(view, counts, left_at_end, asked))


def _reasons_for_parts(
    view: ClusterView, counts: Mapping[JobId, int], left_at_end: Mapping[JobId, int], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of the jobs in `asked`: their GPUs beside their fair shares.

    `counts` contains the GPUs of each job. `left_at_end` contains the GPUs that were left for each job that did not get
    its next number.
    """
    wanted = set(asked)
    demand = view.demand
    holders = sorted((job_id for job_id, gpus in counts.items() if gpus), key=lambda job_id: -counts[job_id])
    reasons: dict[JobId, Reason] = {}
    for job in view.jobs:
        if job.job_id not in wanted:
            continue
        gpus = counts[job.job_id]
        numbers = {
            "gpus": gpus,
            "gpus_needed": job.num_replicas,
            "fair_share": view.num_gpus * job.num_replicas / demand,
            "num_gpus": view.num_gpus,
            "demand": demand,
            "num_jobs": len(view.jobs),
        }
        if job.job_id in left_at_end:
            next_count = min(count for count in counts_of(job, view.num_gpus) if count > gpus)
            numbers["next_gpus"] = next_count - gpus
            numbers["left_at_end"] = left_at_end[job.job_id]
        other_holders = [other for other in holders[:4] if other != job.job_id]
        for index, other in enumerate(other_holders[:3], start=1):
            numbers[f"has_{index} {other}"] = counts[other]
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
            gpus = len(time_saved)
            before = self.step_time(gpus)
            after = self.step_time(gpus + 1)
            time_saved.append(0.0 if coincide(before, after) else before - after)
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
        """Return a job with the time that further GPUs save. Equal jobs share what was computed."""
        oracle = job.oracle
        name = oracle.application.name
        batch_size = job.batch_size
        key = (name, batch_size, oracle.epoch)
        steps_left = self._remaining.get(key)
        if steps_left is None:
            steps_left = oracle.remaining_iterations(batch_size)
            self._remaining[key] = steps_left
        # The time that the first GPU saves is never used, so it may be ∞.
        time_saved = self._time_saved.setdefault((name, batch_size, node_size), [inf])
        step_time = partial(true_step_time, job, node_size=node_size)
        return Remaining(job, most_gpus(job), steps_left, time_saved, step_time)


def reason_by_gain(candidate: Candidate, dealt: Dealt) -> Reason:
    """Return the reason for the GPUs of a job that has its fewest GPUs."""
    gpus = dealt.counts[candidate.job.job_id]
    next_gain = candidate.gain(gpus)
    numbers = {"gpus": gpus, "max_replicas": candidate.limit, "next_gain": next_gain}
    if gpus > fewest_gpus(candidate.job):
        numbers["last_gain"] = candidate.gain(gpus - 1)
    if gpus >= candidate.limit:
        return Reason(AT_LIMIT, numbers | limit_numbers(candidate.job))
    if next_gain <= 0:
        remaining = cast("Remaining", candidate)
        numbers["remaining_time"] = remaining.steps * remaining.step_time(gpus)
        numbers["next_time"] = remaining.steps * remaining.step_time(gpus + 1)
        return Reason(NO_GAIN, numbers)
    numbers["num_gpus"] = sum(dealt.counts.values())
    if dealt.winner is None:
        numbers["other_holders"] = len(dealt.candidates) - 1
        # The counts are in order of submission, and have the jobs that wait too.
        numbers["position"] = list(dealt.counts).index(candidate.job.job_id) + 1
        numbers["num_jobs"] = len(dealt.counts)
        return Reason(GAIN_TOO_SMALL, numbers)
    numbers |= {"winning_gain": dealt.winning_gain, "won_last": float(dealt.winner == candidate.job.job_id)}
    return Reason(GAIN_TOO_SMALL, numbers, (dealt.winner,))


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
        self._next_counts = list(times)  # numbers of GPUs above the present one

    @property
    def cost(self) -> float:
        """Return the GPUs that the next step of the job takes, ∞ if the job is at its maximum."""
        return self._next_counts[0] - self.gpus if self._next_counts else inf

    @property
    def time_left(self) -> float:
        """Return the time to completion on the GPUs of the job, or on the fewest GPUs that it can use [s]."""
        return self._times[self.gpus or self._next_counts[0]]

    @property
    def speed(self) -> float:
        """Return the part of the remaining work that the job does per second now [1/s]."""
        return 1.0 / self._times[self.gpus] if self.gpus else 0.0

    @property
    def next_time(self) -> float:
        """Return the time to completion with the next GPU [s]."""
        return self._times[self._next_counts[0]]

    @property
    def next_speed(self) -> float:
        """Return the part of the remaining work per second with the next GPU [1/s]."""
        return 1.0 / self.next_time

    def take(self) -> None:
        """Take the next GPU, or all GPUs that the job must get at once."""
        self.gpus = self._next_counts.pop(0)


class WonTurn(NamedTuple):
    """A turn in which a job got GPUs."""

    bid: Bid
    gpus: int  # that the job got
    left_before: int  # GPUs that were left at this turn
    time_before: float  # time to completion on the GPUs that the job had before this turn, ∞ without GPUs [s]
    time_after: float  # time to completion on the GPUs that the job had after this turn [s]

    def compared_with(self, other: Bid) -> dict[str, float]:
        """Return the gains that decided between the job and another one, as numbers of a reason.

        They are left out if the job did not win against the other one itself.
        """
        if not other.gpus or other.cost == inf:
            return {}
        time = self.time_after
        # As in `goes_first`: the gain of the job that ends sooner is in speed, that of the other one in time.
        speed_gain = self.time_before / time - 1
        time_saved = 1 - time / self.time_before
        speed_gain_of_other = other.time_left / other.next_time - 1
        time_saved_of_other = 1 - other.next_time / other.time_left
        if self.time_before <= other.time_left and speed_gain >= time_saved_of_other:
            return {"winner_speed_gain": speed_gain, "time_saved": time_saved_of_other}
        if self.time_before >= other.time_left and time_saved >= speed_gain_of_other:
            return {"winner_time_saved": time_saved, "speed_gain": speed_gain_of_other}
        return {}


def goes_first(one: Bid, other: Bid) -> bool:
    """Return whether the first job, not the other job, should get the next GPU.

    Let a be the job that ends sooner, b the other job, p their speeds now, and p′ their speeds with the GPU. Job b gets
    the GPU if (p′_b − p_b) / p′_b > (p′_a − p_a) / p_a, and not while a has no GPU (p_a = 0). This rule minimises the
    mean completion time of the two jobs if b gets the GPU at the latest when a has ended.

    Source: Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21), §4.
    """
    # Equal times but for rounding count as equal: the first job then goes first.
    one_is_shorter = sort_key(one.time_left) <= sort_key(other.time_left)
    a, b = (one, other) if one_is_shorter else (other, one)
    if a.speed <= 0:
        return one_is_shorter
    gain_of_b = sort_key((b.next_speed - b.speed) / b.next_speed, now=1.0)
    gain_of_a = sort_key((a.next_speed - a.speed) / a.speed, now=1.0)
    b_wins = gain_of_b > gain_of_a
    return not b_wins if one_is_shorter else b_wins


@dataclass
class Afs(AtEvents):
    """Give GPUs one by one to the job that wins against all other jobs, by true speeds and remaining work.

    GPUs change at arrivals, ends and changes of nodes, and when an agent allows its job another number. The policy does
    not consider future arrivals.

    Source: AFS-L in Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21).
    """

    traits: ClassVar[Traits] = Traits(per_type=True)
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Deal the GPUs out."""
        self._times.forget(view.changes)
        times_by_gpus = {job.job_id: self._times.on(job, counts_of(job, view.num_gpus)) for job in view.jobs}
        bids = {job_id: Bid(job_id, times) for job_id, times in times_by_gpus.items() if times}
        turns = _deal_by_bids(list(bids.values()), view.num_gpus)
        counts = {job_id: bid.gpus for job_id, bid in bids.items()}
        gpus_left = view.num_gpus - sum(counts.values())

        def reason(bid: Bid) -> Reason:
            """Return the reason for the GPUs of a job."""
            numbers = {
                "gpus": bid.gpus,
                "remaining_time": bid.time_left,
                "gpus_left": gpus_left,
                "num_gpus": view.num_gpus,
            }
            if bid.cost < inf:
                numbers |= {"next_gpus": bid.cost, "next_time": bid.next_time}
            lost = _lost_turn(turns, bid)
            if lost is None:
                return Reason(WON_AGAINST, numbers)
            numbers |= {
                "winner_time": lost.time_after,
                "winner_gpus": lost.gpus,
                "left_before": lost.left_before,
                "left_at_end": lost.left_before - lost.gpus,
            }
            if lost.time_before < inf:
                numbers["winner_before"] = lost.time_before
                numbers |= lost.compared_with(bid)
            return Reason(WON_AGAINST, numbers, (lost.bid.job_id,))

        return decision_by(view, counts, lambda asked: {name: reason(bids[name]) for name in asked if name in bids})


def _lost_turn(turns: Sequence[WonTurn], bid: Bid) -> WonTurn | None:
    """Return the last turn at which enough GPUs were left for a job and another job took some.

    If the job took the last of such turns itself, return the last turn of all; None if that is its own too.
    """
    for turn in reversed(turns):
        if turn.bid is bid:
            break
        if turn.left_before >= bid.cost:
            return turn
    if not turns or turns[-1].bid is bid:
        return None
    return turns[-1]


def _deal_by_bids(bids: list[Bid], gpus_left: int) -> list[WonTurn]:
    """Assign `gpus_left` GPUs while a GPU makes a job faster. Return the turns in order.

    A job that a GPU does not make faster is removed from the list.
    """
    turns: list[WonTurn] = []
    while True:
        contenders = [bid for bid in bids if bid.cost <= gpus_left]
        if not contenders:
            return turns
        best = contenders[0]
        for bid in contenders[1:]:
            if goes_first(bid, best):
                best = bid
        # The best contender gains nothing, so it would block the others for ever.
        if best.next_speed <= best.speed:
            bids.remove(best)
            continue
        gpus = int(best.cost)
        time_before = best.time_left if best.gpus else inf
        left_before = gpus_left
        gpus_left -= gpus
        best.take()
        turns.append(WonTurn(best, gpus, left_before, time_before, best.time_left))


@dataclass
class EffectiveScaling(AtEvents):
    """Admit jobs in order of submission while each gets its fewest GPUs, and share the GPUs for the largest speedup.

    No job overtakes: the first job that does not fit blocks later jobs. A job that cannot run on the GPUs that
    are up is skipped. The speedup of a job is relative to its fewest GPUs, by true speeds. GPUs change at arrivals,
    ends and changes of nodes, and when an agent allows its job another number.

    Source: JSA in Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads" (MASCOTS '20), at the batch
    sizes of the users.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Admit jobs, and solve the programme."""
        self._times.forget(view.changes)
        speedups: dict[JobId, dict[int, float]] = {}  # by job and number of GPUs
        gpus_left = view.num_gpus
        head = None
        for job in view.jobs:
            times = self._times.on(job, counts_of(job, view.num_gpus))
            if not times:
                continue
            fewest = min(times)
            # A job that is too large for all GPUs blocks no other one.
            if gpus_left < fewest <= view.num_gpus:
                head = Head(job.job_id, fewest, gpus_left)
                break
            if fewest <= gpus_left:
                gpus_left -= fewest
                speedups[job.job_id] = {gpus: times[fewest] / time for gpus, time in times.items()}
        counts = dict(zip(speedups, best_counts(list(speedups.values()), view.num_gpus), strict=True))
        return decision_by(view, counts, lambda asked: reasons_by_speedup(view, speedups, counts, head, asked))
