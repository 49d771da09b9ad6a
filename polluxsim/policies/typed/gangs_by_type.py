"""Policies that give each gang a GPU type: Hadar by prices, Venn by groups of jobs.

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
from polluxsim.policies.contract.reasons import JobSeen, RoundSeen
from polluxsim.policies.contract.view import ClusterView, Decision, Reason, ReasonKind
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.tools.reason_kinds import GANG_DOES_NOT_FIT, GANG_FITS, GANG_UNITS
from polluxsim.policies.typed.linear_programmes import Array, TypedDemand

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


def held_types(view: ClusterView, demand: TypedDemand) -> Sequence[int | None]:
    """Return the index of the type on which each job holds GPUs, None for no GPUs."""
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
    running = {job: demand.types[index] for job, index in types.items() if index is not None}
    return Decision(
        place_gangs(view, running, {job.job_id: job for job in view.jobs}),
        explain=lambda asked: {job: explain(job) for job in asked if job in types},
    )


class GangBid(NamedTuple):
    """The choice of a job in its turn."""

    gpu_type: int | None  # index of the type that the job takes, None for none
    worth: float  # largest utility over the price of the GPUs, among the types with room; 0 if no type has room
    needed: float  # GPUs that the job requests
    left: float  # most GPUs that are left of a type that the job can use


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
    held: Sequence[int | None]  # index of the present type of each job, which keeps it while its payoff is positive

    @property
    def utilities_per_gpu(self) -> Array:
        """Return the utilities for a GPU, of shape (jobs, types) [1/s]."""
        return self.utilities / self.widths[:, None]


class JobChoices(NamedTuple):
    """The last choice of each way in the beam after a job's turn, in arrays of shape (ways,)."""

    job: int  # index of the job
    before: Numbers  # index of the way that this way continues, in the beam before the turn
    types: Numbers  # index of the type that the job takes, −1 for none
    worth: Array  # as in `GangBid`
    left: Array  # as in `GangBid`

    def of_ways(self, ways: Numbers) -> JobChoices:
        """Return the choices of some of the ways, by index."""
        return JobChoices(self.job, self.before[ways], self.types[ways], self.worth[ways], self.left[ways])

    def bid(self, way: int, needed: float) -> GangBid:
        """Return the choice of one way as a bid for the `needed` GPUs of the job."""
        gpu_type = int(self.types[way])
        taken_type = None if gpu_type < 0 else gpu_type
        return GangBid(taken_type, float(self.worth[way]), needed, float(self.left[way]))


def beam_search(queue: GangQueue, prices: Prices, most_ways: int) -> dict[int, GangBid]:
    """Return the bid of each job, by index in the order of the queue, with the largest sum of payoffs.

    A job takes the type with the largest payoff, or is skipped to leave room and lower prices to other jobs. If several
    ways leave the same GPUs, only the best way continues. The result is exact if there are at most `most_ways` ways.
    Otherwise the best ways continue. A job that keeps its GPUs is not skipped.
    """
    # The beam: GPUs that each way has taken, shape (ways, types), and its sum of payoffs, shape (ways,).
    used = np.zeros((1, len(queue.gpus)))
    payoffs = np.zeros(1)
    choices_of_jobs = list[JobChoices]()
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
    bids_from_last = dict[int, GangBid]()
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
    fits = queue.widths[job] <= room
    ratios = sort_keys(np.where(fits, queue.utilities_per_gpu[job] / prices.at(used), 0.0))
    # Utility minus price. −∞ where the price is not below the utility, so that the job never takes that type.
    payoffs = np.where(ratios > 1, utilities * (1 - 1 / np.maximum(ratios, 1.0)), -inf)
    types = sort_keys(payoffs).argmax(axis=1)
    keeps = np.zeros(len(used), dtype=bool)
    present_type = queue.held[job]
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
        worth=ratios.max(axis=1)[before],
        left=most_left[before],
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
            utilities = 1 / (demand.ages[:, None] + demand.left[:, None] / demand.speeds)
        queue = GangQueue(utilities, demand.widths, demand.gpus, held_types(view, demand))
        prices = Prices(queue.utilities_per_gpu, demand.gpus, self.eta)
        bids = {demand.jobs[job]: bid for job, bid in beam_search(queue, prices, self.most_ways).items()}
        positions = {job: position for position, job in enumerate(bids, start=1)}
        types = {job: bid.gpu_type for job, bid in bids.items()}
        # Utility per GPU, on the type that a job gets, or else the largest [1/s].
        utility_of: dict[JobId, float] = {}
        for job, on_types in zip(demand.jobs, queue.utilities_per_gpu, strict=True):
            gpu_type = types[job]
            utility_of[job] = float(on_types.max() if gpu_type is None else on_types[gpu_type])
        served = [job for job, gpu_type in types.items() if gpu_type is not None]
        lowest = min(served, key=utility_of.__getitem__, default=None)
        usable_gpus = dict(zip(demand.jobs, (utilities > 0) @ demand.gpus, strict=True))
        # Utilities per GPU of the waiting jobs that fit on a type while it is empty, 0 for other jobs [1/s].
        waits = np.array([types[job] is None for job in demand.jobs], dtype=bool)
        may_fit = waits[:, None] & (demand.widths[:, None] <= demand.gpus)
        waiting_utilities = np.where(may_fit, queue.utilities_per_gpu, 0.0)

        def reason(job: JobId) -> Reason:
            bid = bids[job]
            told = _reason_of_bid(bid, positions[job])
            numbers = dict(told.numbers)
            if bid.gpu_type is not None and len(demand.types) > 1:
                numbers[f"left_type {demand.types[bid.gpu_type]}"] = bid.left
            if told.kind is GANG_DOES_NOT_FIT:
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
            if told.kind is not PASSED_OVER or lowest is None:
                return told._replace(numbers=numbers)
            numbers |= {"utility_per_gpu": utility_of[job], "least_utility_per_gpu": utility_of[lowest]}
            return Reason(PASSED_OVER, numbers, (lowest,))

        return typed_decision(view, demand, types, reason)


def is_priced_out(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether another job holds GPUs, which raises the price."""
    return any(gpus > 0 for name, gpus in seen.held.items() if name != job.job_id)


_WORTH = "The utility of the job is {worth:.3g} times the price of its {gpus_needed:GPU}"

WORTH_ITS_PRICE = ReasonKind(
    "worth-its-price",
    f"{_WORTH}[left_type? on type {{left_type:label}}], so the policy gives it [gpus_needed=1?this GPU|these GPUs]."
    "[ Its utility for each GPU is {utility_per_gpu:per hour} per hour.][ The GPUs go to the jobs with the largest sum "
    "of utility less price. Of the waiting jobs, {first} has the largest utility for each GPU[left_type? of this "
    "type], {waiting_utility_per_gpu:per hour} per hour, and needs {waiting_gpus:GPU}.]",
    {**GANG_UNITS, "utility_per_gpu": "1/s", "waiting_utility_per_gpu": "1/s", "waiting_gpus": "GPUs"},
    "The utility of a job exceeds the price of its GPUs.",
)
NOT_WORTH_ITS_PRICE = ReasonKind(
    "not-worth-its-price",
    f"{_WORTH}, so the job waits for lower prices.",
    GANG_UNITS,
    "The utility of a job is below the price of its GPUs.",
    excuses_waiting=is_priced_out,
)
PASSED_OVER = ReasonKind(
    "passed-over",
    f"{_WORTH}. The GPUs go to the jobs with the largest sum of utility less price, and this sum is not larger with "
    "this job.[ Its utility for each GPU is {utility_per_gpu:per hour} per hour. The least such utility of a job that "
    "gets GPUs is {least_utility_per_gpu:per hour} per hour, of {first}.]",
    {**GANG_UNITS, "utility_per_gpu": "1/s", "least_utility_per_gpu": "1/s"},
    "The utility of a job exceeds the price of its GPUs, but other jobs gain more.",
    excuses_waiting=is_priced_out,
)


def _reason_of_bid(bid: GangBid, position: int) -> Reason:
    """Return the reason for a bid."""
    if not bid.worth:
        numbers = {"position": position, "utility": 1, "gpus_needed": bid.needed, "gpus_left": bid.left}
        return Reason(GANG_DOES_NOT_FIT, numbers)
    if bid.gpu_type is not None:
        kind = WORTH_ITS_PRICE
    elif bid.worth > 1:
        kind = PASSED_OVER
    else:
        kind = NOT_WORTH_ITS_PRICE
    return Reason(kind, {"gpus_needed": bid.needed, "worth": bid.worth})


Group = frozenset[int]  # indices of the types that the jobs of the group can use


class Outcome(NamedTuple):
    """The result of a job's turn."""

    gpu_type: int | None  # index of the type, None for none
    numbers: Mapping[str, float]  # the numbers of the reason


def owned_types(queues: Mapping[Group, int], gpus: Sequence[float]) -> dict[Group, Group]:
    """Return the types that each group uses first, in order of the GPUs that the group can use, the fewest first.

    A type belongs to the group with the fewest GPUs that can use it. It moves to a group with more GPUs if that group
    has more jobs for each GPU of its own types. `queues` is the number of jobs of each group, and `gpus` the number of
    GPUs of each type.
    """
    own_types = dict[Group, Group]()

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
    for index, more in reversed(list(enumerate(scarcest_first))):
        for fewer in reversed(scarcest_first[:index]):
            overlap = own_types[fewer] & more
            if overlap and pressure(more) > pressure(fewer):
                own_types[fewer] -= overlap
                own_types[more] |= overlap
    return own_types


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
            return Reason(GANG_DOES_NOT_FIT if types[job] is None else GANG_FITS, outcome_of[job].numbers)

        return typed_decision(view, demand, types, reason)


def outcomes(demand: TypedDemand, held: Sequence[int | None]) -> Iterator[tuple[int, Outcome]]:
    """Yield the index and the result of each job: of its turn in its group, or else of a second turn without GPUs.

    In the first turn a job may use the own types of its group, in the second turn all types of the group. `held` is the
    index of the present type of each job, which the job keeps if possible.
    """
    service = demand.widths * demand.left / demand.speeds.max(axis=1, initial=0.0)
    order = [sort_key(value) for value in service.tolist()]
    groups = defaultdict[Group, list[int]](list)
    for job in np.argsort(order, kind="stable").tolist():
        groups[frozenset(np.flatnonzero(demand.speeds[job]).tolist())].append(job)
    free = demand.gpus.copy()
    without_gpus = list[tuple[int, Group, dict[str, float]]]()
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
                without_gpus.append((job, group, numbers))
            else:
                yield job, outcome
    without_gpus.sort(key=lambda waiting: order[waiting[0]])
    for job, group, numbers in without_gpus:
        yield job, _take_type(demand, job, held[job], group, free, numbers)


def _take_type(
    demand: TypedDemand, job: int, held: int | None, allowed: Group, free: Array, numbers: dict[str, float]
) -> Outcome:
    """Take GPUs for a job: of its present type, or else of the fastest allowed type with room.

    `held` is the index of the present type, and `free` the free GPUs of each type.
    """
    with_room = [gpu_type for gpu_type in sorted(allowed) if free[gpu_type] >= demand.widths[job]]
    best = max(with_room, key=lambda gpu_type: (gpu_type == held, demand.speeds[job, gpu_type]), default=None)
    shown = max(allowed, key=free.__getitem__, default=None) if best is None else best
    left = 0.0 if shown is None else float(free[shown])
    numbers = {**numbers, "gpus_left": left}
    if shown is not None and len(demand.types) > 1:
        numbers[f"left_type {demand.types[shown]}"] = left
    if best is not None:
        free[best] -= demand.widths[job]
    return Outcome(best, numbers)
