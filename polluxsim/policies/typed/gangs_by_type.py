"""Policies that give each gang a GPU type: Hadar by prices, Venn by groups of jobs.

Both decide which jobs get all of their GPUs now, and on which type. The GPUs of a job are never of two types, and the
jobs on a type never request more GPUs than are up. Jobs and types are numbers here: indices of the arrays in
`TypedDemand`. The module has three parts: what both policies use, Hadar, and Venn.

Hadar asks the jobs one after the other, and each takes GPUs of one type, or none. A sequence of these choices is a way.
The search for the best way is a beam search: it maintains a list of ways, the beam, with the GPUs that each way has
taken and its sum of payoffs. For each job, the order of events is:

1. Each way branches: the job takes its best type, or passes. A job that keeps its GPUs may not pass.
2. Of the ways with the same taken GPUs only the best one stays, because all later jobs are offered the same to them.
3. Only the `most_ways` best ways stay. As long as none is dropped here, the result is exact.

The jobs are asked in order of utility per GPU, the largest first. At every step, the ways of the beam are in order of
falling payoffs, so the result is the first way after the last job. Its choices are read backwards: for every job,
`JobChoices.before` refers to the ways after the job before it.

The trap: ways are compared by sums of computed payoffs, which rounding may change in the last digits. All comparisons
use `sort_keys`, which are equal for values that differ by rounding only. Ties go to the earlier way, so every sort is
stable.

Venn needs no search: each group of jobs takes types in a fixed order (`owned_types`), and each job in its group too.

Sources: Sultana et al., "Hadar" (IPDPS '24); Liu et al., "Venn" (MLSys '25).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key, sort_keys
from polluxsim.common.values import PositiveInt, Range
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, Reason
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.tools.gangs import NEAREST
from polluxsim.policies.tools.reason_kinds import GANG_DOES_NOT_FIT, GANG_FITS
from polluxsim.policies.typed.linear_programmes import Array, TypedDemand
from polluxsim.policies.typed.reason_kinds import NOT_WORTH_ITS_PRICE, PASSED_OVER, WORTH_ITS_PRICE

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


def held_types(view: ClusterView, demand: TypedDemand) -> Sequence[int | None]:
    """Return the index of the type on which each job of a demand holds GPUs, None for no GPUs."""
    placements = {job.job_id: job.placement for job in view.jobs}
    types: list[int | None] = []
    for job in demand.jobs:
        if placements[job]:
            types.append(demand.types.index(view.type_of(placements[job])))
        else:
            types.append(None)
    return types


def typed_decision(
    view: ClusterView, demand: TypedDemand, types: Mapping[JobId, int | None], explain: Callable[[JobId], Reason]
) -> Decision:
    """Return the decision that gives jobs their GPUs on these types, by index; None for no GPUs.

    `explain` returns the reason for one job.
    """
    jobs = {job.job_id: job for job in view.jobs}
    running = {job: demand.types[index] for job, index in types.items() if index is not None}

    def explain_jobs(asked: Sequence[JobId]) -> dict[JobId, Reason]:
        # A job that can run on no type now is not in the demand, and has no reason.
        return {job: explain(job) for job in asked if job in types}

    return Decision(place_gangs(view, running, jobs), explain=explain_jobs)


class GangBid(NamedTuple):
    """The choice of a job in its turn."""

    gpu_type: int | None  # index of the type that the job takes, None for none
    price_ratio: float  # largest utility over the price of the GPUs, among the types with room; 0 if no type has room
    gpus_needed: float  # GPUs that the job requests
    gpus_left: float  # most GPUs that are left of a type that the job can use


class Prices:
    """The price of a GPU of each type [1/s].

    The price is U_min / η while all GPUs of the type are free, and U_max when all are taken, where U_min and U_max are
    the smallest and the largest utility on the type. In between, the logarithm of the price rises linearly with the
    taken GPUs. A job pays the price before it takes its GPUs, so the last GPU costs less than U_max.

    `utilities` are those of each job on each type for a GPU, 0 where it cannot run, of shape (jobs, types) [1/s].
    `gpus` has shape (types,), and `eta` is η.
    """

    def __init__(self, utilities: Array, gpus: Array, eta: float) -> None:
        self.highest = utilities.max(axis=0, initial=0.0)
        is_usable = self.highest > 0  # types that no job can use have no utilities, and any finite price will do
        smallest = np.where(utilities > 0, utilities, inf).min(axis=0, initial=inf)
        self.lowest = np.minimum(smallest, np.where(is_usable, self.highest, 1.0)) / eta
        self._rise = np.log(np.where(is_usable, self.highest, self.lowest) / self.lowest)
        self._gpus = gpus

    def at(self, used: Array) -> Array:
        """Return the price of a GPU of each type when `used` GPUs are taken [1/s]."""
        prices: Array = self.lowest * np.exp(self._rise * used / np.maximum(self._gpus, 1.0))
        return prices


class GangQueue(NamedTuple):
    """Jobs request GPUs one after the other, in order of utility per GPU, the largest first."""

    utilities: Array  # utility of each job on each type, 0 where it cannot run, of shape (jobs, types) [1/s]
    widths: Array  # GPUs of each job, shape (jobs,)
    gpus: Array  # GPUs of each type, shape (types,)
    # Index of the present type of each job, None for none. The job keeps the type while its payoff is positive.
    present_types: Sequence[int | None]

    @property
    def utilities_per_gpu(self) -> Array:
        """Return the utilities for a GPU, of shape (jobs, types) [1/s]."""
        return self.utilities / self.widths[:, None]


class JobChoices(NamedTuple):
    """The last choice of each way in the beam after a job's turn, in arrays of shape (ways,)."""

    job: int  # index of the job
    before: Numbers  # index of the way that this way continues, in the beam before the turn
    types: Numbers  # index of the type that the job takes, −1 for none
    price_ratios: Array  # as in `GangBid`
    gpus_left: Array  # as in `GangBid`

    def of_ways(self, ways: Numbers) -> JobChoices:
        """Return the choices of some of the ways, by index."""
        return JobChoices(
            self.job,
            before=self.before[ways],
            types=self.types[ways],
            price_ratios=self.price_ratios[ways],
            gpus_left=self.gpus_left[ways],
        )

    def bid(self, way: int, gpus_needed: float) -> GangBid:
        """Return the choice of one way as a bid for the GPUs that the job needs."""
        gpu_type = int(self.types[way])
        taken_type = None if gpu_type < 0 else gpu_type
        return GangBid(taken_type, float(self.price_ratios[way]), gpus_needed, float(self.gpus_left[way]))


def beam_search(queue: GangQueue, prices: Prices, most_ways: int) -> dict[int, GangBid]:
    """Return the bid of each job, by index in the order of the queue, with the largest sum of payoffs.

    A job takes the type with the largest payoff, or is skipped to leave room and lower prices to other jobs. If several
    ways leave the same GPUs, only the best way continues. The result is exact if there are at most `most_ways` ways.
    Otherwise the best ways continue. A job that keeps its GPUs is not skipped.
    """
    # The beam: GPUs that each way has taken, shape (ways, types), and its sum of payoffs, shape (ways,).
    used = np.zeros((1, len(queue.gpus)))
    payoffs = np.zeros(1)
    choices_of_jobs: list[JobChoices] = []
    largest = sort_keys(queue.utilities_per_gpu.max(axis=1))
    for job in np.argsort(-largest, kind="stable").tolist():
        choices, gains = _branch(queue, prices, job, used)
        used = used[choices.before]
        payoffs = payoffs[choices.before] + gains
        takers = np.flatnonzero(choices.types >= 0)
        used[takers, choices.types[takers]] += queue.widths[job]
        best = _best(used, payoffs, most_ways)
        used = used[best]
        payoffs = payoffs[best]
        choices_of_jobs.append(choices.of_ways(best))
    return _bids_of_best_way(queue, choices_of_jobs)


def _bids_of_best_way(queue: GangQueue, choices_of_jobs: Sequence[JobChoices]) -> dict[int, GangBid]:
    """Return the bids of the best way, by index of the job in the order of the queue.

    The best way is the first after the last job. Each job refers to the way before it, so the bids are read backwards.
    """
    bids_from_last: dict[int, GangBid] = {}
    way = 0
    for choices in reversed(choices_of_jobs):
        bids_from_last[choices.job] = choices.bid(way, float(queue.widths[choices.job]))
        way = int(choices.before[way])
    return dict(reversed(bids_from_last.items()))


def _branch(queue: GangQueue, prices: Prices, job: int, used: Array) -> tuple[JobChoices, Array]:
    """Return the ways that continue the beam by a choice of a job, and the payoff of the job in each, shape (ways,).

    `used` are the GPUs that each way of the beam has taken, shape (ways before, types). First come all ways in which
    the job takes its best type, then all ways in which it passes.
    """
    room = queue.gpus - used
    utilities = queue.utilities[job]
    has_room = queue.widths[job] <= room
    ratios = sort_keys(np.where(has_room, queue.utilities_per_gpu[job] / prices.at(used), 0.0))
    # Utility minus price, computed from the ratio, so that it is positive exactly where the ratio exceeds 1. It is −∞
    # elsewhere, so that the job never takes that type.
    payoffs = np.where(ratios > 1, utilities * (1 - 1 / np.maximum(ratios, 1.0)), -inf)
    types = sort_keys(payoffs).argmax(axis=1)
    keeps = np.zeros(len(used), dtype=bool)
    present_type = queue.present_types[job]
    if present_type is not None:
        keeps = payoffs[:, present_type] > 0
        types = np.where(keeps, present_type, types)
    gains = payoffs[np.arange(len(used)), types]
    takers = np.flatnonzero(gains > 0)
    passers = np.flatnonzero(~keeps)
    before = np.concatenate([takers, passers])
    most_left = np.where(utilities > 0, room, 0.0).max(axis=1)
    choices = JobChoices(
        job,
        before,
        types=np.concatenate([types[takers], np.full(len(passers), -1)]),
        price_ratios=ratios.max(axis=1)[before],
        gpus_left=most_left[before],
    )
    return choices, np.concatenate([gains[takers], np.zeros(len(passers))])


def _best(used: Array, payoffs: Array, most_ways: int) -> Numbers:
    """Return at most `most_ways` ways, the best first. Of several ways that leave the same GPUs only the best stays."""
    order = np.argsort(-sort_keys(payoffs), kind="stable")
    if len(order) > 1:
        # `np.unique` sorts the rows; the indices of their first places restore the order of the payoffs.
        _, first = np.unique(used[order], axis=0, return_index=True)
        order = order[np.sort(first)]
    return order[:most_ways]


def _reason_of_bid(bid: GangBid, position: int) -> Reason:
    """Return the reason for a bid, made at a position in the queue, without the numbers of other jobs."""
    if not bid.price_ratio:
        # The number `utility` selects the sentence about the order by utility.
        numbers = {"position": position, "utility": 1, "gpus_needed": bid.gpus_needed, "gpus_left": bid.gpus_left}
        return Reason(GANG_DOES_NOT_FIT, numbers)
    if bid.gpu_type is not None:
        kind = WORTH_ITS_PRICE
    elif bid.price_ratio > 1:
        kind = PASSED_OVER
    else:
        kind = NOT_WORTH_ITS_PRICE
    return Reason(kind, {"gpus_needed": bid.gpus_needed, "worth": bid.price_ratio})


@takes_settings("policy")
@dataclass(frozen=True)
class Hadar(Policy):
    """Give each job its GPUs on the type with the largest payoff, utility minus price; none if no payoff is positive.

    The utility of a job is 1 over its time from submission to completion on a type.

    Parameters
    ----------
    eta
        η > 1: the smallest utility of all jobs over the price of the first GPU.
    most_ways
        Largest number of partial assignments that the search keeps; with 1 it skips no job.

    Source: Sultana et al., "Hadar" (IPDPS '24), one type at a time.
    """

    eta: Annotated[float, Range(above=1)] = 4.0
    most_ways: PositiveInt = 64

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let jobs take GPUs at rising prices."""
        demand = TypedDemand.of(view)
        # The speed is 0 on a type that a job cannot use. Its utility becomes 1 / ∞ = 0.
        with np.errstate(divide="ignore"):
            utilities = 1 / (demand.ages[:, None] + demand.steps_left[:, None] / demand.speeds)
        queue = GangQueue(utilities, demand.widths, demand.gpus, held_types(view, demand))
        prices = Prices(queue.utilities_per_gpu, demand.gpus, self.eta)
        bids = {demand.jobs[job]: bid for job, bid in beam_search(queue, prices, self.most_ways).items()}
        positions = {job: position for position, job in enumerate(bids, start=1)}
        types = {job: bid.gpu_type for job, bid in bids.items()}
        # Utility per GPU, on the type that a job gets, or else the largest [1/s].
        utility_of: dict[JobId, float] = {}
        for job, on_types in zip(demand.jobs, queue.utilities_per_gpu, strict=True):
            gpu_type = types[job]
            utility = on_types.max() if gpu_type is None else on_types[gpu_type]
            utility_of[job] = float(utility)
        served = [job for job, gpu_type in types.items() if gpu_type is not None]
        lowest = min(served, key=utility_of.__getitem__, default=None)
        usable_gpus = dict(zip(demand.jobs, (utilities > 0) @ demand.gpus, strict=True))
        # Utilities per GPU of the waiting jobs that fit on a type while it is empty, 0 for other jobs [1/s].
        waits = np.array([types[job] is None for job in demand.jobs], dtype=bool)
        may_fit = waits[:, None] & (demand.widths[:, None] <= demand.gpus)
        waiting_utilities = np.where(may_fit, queue.utilities_per_gpu, 0.0)

        def reason(job: JobId) -> Reason:
            bid = bids[job]
            reason_alone = _reason_of_bid(bid, positions[job])
            numbers = dict(reason_alone.numbers)
            if bid.gpu_type is not None and len(demand.types) > 1:
                numbers[f"left_type {demand.types[bid.gpu_type]}"] = bid.gpus_left
            if reason_alone.kind is GANG_DOES_NOT_FIT:
                numbers["utility_per_gpu"] = utility_of[job]
                if not usable_gpus[job]:
                    numbers["gpus_up"] = 0.0
            if bid.gpu_type is not None:
                numbers["utility_per_gpu"] = utility_of[job]
                rivals = waiting_utilities[:, bid.gpu_type]
                rival = int(rivals.argmax())
                if rivals[rival] > 0:
                    numbers["waiting_utility_per_gpu"] = float(rivals[rival])
                    numbers["waiting_gpus"] = float(demand.widths[rival])
                    return Reason(WORTH_ITS_PRICE, numbers, (demand.jobs[rival],))
            if reason_alone.kind is PASSED_OVER and lowest is not None:
                numbers |= {"utility_per_gpu": utility_of[job], "least_utility_per_gpu": utility_of[lowest]}
                return Reason(PASSED_OVER, numbers, (lowest,))
            return reason_alone._replace(numbers=numbers)

        return typed_decision(view, demand, types, reason)


Group = frozenset[int]  # indices of the types that the jobs of the group can use


class Outcome(NamedTuple):
    """The result of a job's turn."""

    gpu_type: int | None  # index of the type, None for none
    numbers: dict[str, float]  # the numbers of the reason
    # The nearest jobs that took GPUs of its types before a job that gets none, the nearest first.
    nearest: tuple[JobId, ...] = ()


class FailedTurn(NamedTuple):
    """A first turn in which a job got no GPUs."""

    job: int
    group: Group
    numbers: dict[str, float]  # the numbers of the reason


def owned_types(queues: Mapping[Group, int], gpus: Sequence[float]) -> dict[Group, Group]:
    """Return the types that each group uses first, in order of the GPUs that the group can use, the fewest first.

    A type belongs to the group with the fewest GPUs that can use it. It moves to a group with more GPUs if that group
    has more jobs for each GPU of its own types. `queues` is the number of jobs of each group, and `gpus` the number of
    GPUs of each type.
    """
    own_types: dict[Group, Group] = {}

    def supply(group: Group) -> float:
        return sum(gpus[gpu_type] for gpu_type in group)

    def pressure(group: Group) -> float:
        """Return the jobs of a group for each GPU of its present own types."""
        own_gpus = supply(own_types[group])
        return queues[group] / own_gpus if own_gpus else inf

    scarcest_first = sorted(queues, key=supply)
    unowned = frozenset(range(len(gpus)))
    for group in scarcest_first:
        own_types[group] = unowned & group
        unowned -= group
    # The group with the most GPUs takes first, from the groups with the next fewer GPUs first.
    for index in reversed(range(len(scarcest_first))):
        taking = scarcest_first[index]
        for giving in reversed(scarcest_first[:index]):
            overlap = own_types[giving] & taking
            if overlap and pressure(taking) > pressure(giving):
                own_types[giving] -= overlap
                own_types[taking] |= overlap
    return own_types


def outcomes(demand: TypedDemand, held: Sequence[int | None]) -> Iterator[tuple[int, Outcome]]:
    """Yield the index of each job, and the result of its turn: of the first one if it brings GPUs, else of the second.

    In the first turn a job may use the own types of its group, in the second turn all types of the group. `held` is the
    index of the present type of each job, which the job keeps if possible.
    """
    # True GPU time left on the fastest type of each job [GPU s].
    service = demand.widths * demand.steps_left / demand.speeds.max(axis=1, initial=0.0)
    order = [sort_key(value) for value in service.tolist()]
    groups = defaultdict[Group, list[int]](list)
    for job in np.argsort(order, kind="stable").tolist():
        usable_types = frozenset(np.flatnonzero(demand.speeds[job]).tolist())
        groups[usable_types].append(job)
    free = demand.gpus.copy()
    without_gpus: list[FailedTurn] = []
    served: list[tuple[int, int]] = []  # each job that took GPUs, and the index of their type
    group_sizes = {group: len(jobs) for group, jobs in groups.items()}
    for group, own_types in owned_types(group_sizes, demand.gpus.tolist()).items():
        for position, job in enumerate(groups[group], start=1):
            numbers = {
                "position": position,
                "remaining_service": float(service[job]),
                "group_jobs": len(groups[group]),
                "group_gpus": float(demand.gpus[list(group)].sum()),
                "gpus_needed": float(demand.widths[job]),
                "group_types": float(len(group)),
            }
            if not numbers["group_gpus"]:
                numbers["gpus_up"] = 0.0
            outcome = _take_type(demand, job, held[job], own_types, free, numbers)
            if outcome.gpu_type is None:
                without_gpus.append(FailedTurn(job, group, numbers))
            else:
                served.append((job, outcome.gpu_type))
                yield job, outcome
    # The second turns are in one queue of all groups. Groups no longer protect their types.
    without_gpus.sort(key=lambda turn: order[turn.job])
    for job, group, numbers in without_gpus:
        outcome = _take_type(demand, job, held[job], group, free, numbers)
        if outcome.gpu_type is not None:
            served.append((job, outcome.gpu_type))
            yield job, outcome
            continue
        ahead = [other for other, gpu_type in served if gpu_type in group][-NEAREST:]
        # The jobs of another group come before or after this one by more than their GPU time.
        if ahead and ahead[-1] in groups[group]:
            outcome.numbers["ahead_remaining_service"] = float(service[ahead[-1]])
        yield job, outcome._replace(nearest=tuple(demand.jobs[other] for other in reversed(ahead)))


def _take_type(
    demand: TypedDemand, job: int, held: int | None, allowed: Group, free: Array, numbers: dict[str, float]
) -> Outcome:
    """Take GPUs for a job: of its present type, or else of the fastest allowed type with room.

    `held` is the index of the present type, and `free` the free GPUs of each type.
    """
    with_room = [gpu_type for gpu_type in sorted(allowed) if free[gpu_type] >= demand.widths[job]]
    best = max(with_room, key=lambda gpu_type: (gpu_type == held, demand.speeds[job, gpu_type]), default=None)
    # The type that the reason names: if no type has room, the one that comes closest.
    named_type = best
    if best is None:
        named_type = max(allowed, key=free.__getitem__, default=None)
    gpus_left = 0.0
    if named_type is not None:
        gpus_left = float(free[named_type])
    numbers = {**numbers, "gpus_left": gpus_left}
    if named_type is not None and len(demand.types) > 1:
        numbers[f"left_type {demand.types[named_type]}"] = gpus_left
    if best is not None:
        free[best] -= demand.widths[job]
    return Outcome(best, numbers)


@dataclass(frozen=True)
class Venn(Policy):
    """Serve groups of jobs that can use the same types, each on its own types first, by the least true GPU time left.

    If groups overlap, the group that can use the fewest GPUs goes first, unless another group has more jobs for each
    GPU. Other groups may use the GPUs that a group leaves.

    Source: Liu et al., "Venn" (MLSys '25), where jobs request edge devices.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs, group by group."""
        demand = TypedDemand.of(view)
        outcome_of = {demand.jobs[job]: outcome for job, outcome in outcomes(demand, held_types(view, demand))}
        types = {job: outcome.gpu_type for job, outcome in outcome_of.items()}

        def reason(job: JobId) -> Reason:
            kind = GANG_DOES_NOT_FIT if types[job] is None else GANG_FITS
            return Reason(kind, outcome_of[job].numbers, outcome_of[job].nearest)

        return typed_decision(view, demand, types, reason)
