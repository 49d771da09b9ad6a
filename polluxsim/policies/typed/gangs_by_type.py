"""Policies that give each gang a GPU type: Hadar by prices, Venn by groups of jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.errors import check_range
from polluxsim.common.instants import sort_key, sort_keys
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Decision, Reason
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.typed.linear_programmes import Array, Demand

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


def held_types(view: ClusterView, demand: Demand) -> Sequence[int | None]:
    """Return the index of the type on which each job holds GPUs, None for no GPUs."""
    placed = {job.job_id: job.placement for job in view.jobs}
    return [demand.types.index(view.type_of(placed[job])) if placed[job] else None for job in demand.jobs]


def typed_decision(
    view: ClusterView, demand: Demand, types: Mapping[JobId, int | None], explain: Callable[[JobId], Reason]
) -> Decision:
    """Return the decision that gives jobs their GPUs on these types, by index; None for no GPUs.

    `explain` returns the reason for one job.
    """
    running = {job: demand.types[index] for job, index in types.items() if index is not None}
    return Decision(
        place_gangs(view, running, {job.job_id: job for job in view.jobs}),
        explain=lambda asked: {job: explain(job) for job in asked if job in types},
    )


class Bid(NamedTuple):
    """The offer to a job when its turn came."""

    gpu_type: int | None  # index of the type that the job takes, None for none
    worth: float  # largest utility over the price of the GPUs, among the types with room; 0 if no type has room
    needed: float  # GPUs that the job requests
    left: float  # most GPUs that are left of a type that the job can use


class Prices:
    """The price of a GPU of each type [1/s].

    The first GPU costs U_min / η, and the last one costs U_max, where U_min and U_max are the smallest and the largest
    utility on the type. In between, the logarithm of the price rises linearly with the taken GPUs.

    `utilities` are those of each job on each type for a GPU, 0 where it cannot run, of shape (jobs, types) [1/s].
    `gpus` has shape (types,), and `eta` is η.
    """

    def __init__(self, utilities: Array, gpus: Array, eta: float) -> None:
        self.highest = utilities.max(axis=0, initial=0.0)
        least = np.where(utilities > 0, utilities, inf).min(axis=0, initial=inf)
        self.lowest = np.minimum(least, np.where(self.highest > 0, self.highest, 1.0)) / eta
        self._rise = np.log(np.where(self.highest > 0, self.highest, self.lowest) / self.lowest)
        self._gpus = gpus

    def at(self, used: Array) -> Array:
        """Return the price of a GPU of each type when `used` GPUs are taken [1/s]."""
        prices: Array = self.lowest * np.exp(self._rise * used / np.maximum(self._gpus, 1.0))
        return prices


class Queue(NamedTuple):
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
    """The ways in which the jobs up to this job can choose, in arrays of shape (ways,).

    A way is a type, or none, for each of these jobs.
    """

    job: int  # index of the job
    before: Numbers  # index of the way of the earlier jobs that this way continues
    types: Numbers  # index of the type that the job takes, −1 for none
    # As in `Bid`.
    worth: Array
    left: Array


def bids(queue: Queue, prices: Prices, most_ways: int) -> dict[int, Bid]:
    """Return the bid of each job, by index in the order of the queue, with the largest sum of payoffs.

    A job takes the type with the largest payoff, or is skipped to leave room and lower prices to other jobs. If several
    ways leave the same GPUs, only the best way continues. The result is exact if there are at most `most_ways` ways.
    Otherwise the best ways continue. A job that keeps its GPUs is not skipped.
    """
    # Of each way so far: the GPUs taken, shape (ways, types), and the sum of payoffs.
    used, payoffs = np.zeros((1, len(queue.gpus))), np.zeros(1)
    choices = list[JobChoices]()
    largest = sort_keys(queue.utilities_per_gpu.max(axis=1))
    for job in np.argsort(-largest, kind="stable").tolist():
        choice, gains = _choices_of(queue, prices, job, used)
        used, payoffs = used[choice.before], payoffs[choice.before] + gains
        taken = np.flatnonzero(choice.types >= 0)
        used[taken, choice.types[taken]] += queue.widths[job]
        kept = _best(used, payoffs, most_ways)
        used, payoffs = used[kept], payoffs[kept]
        choices.append(JobChoices(job, choice.before[kept], choice.types[kept], choice.worth[kept], choice.left[kept]))
    # Follow the best way, which is the first, back from the last job.
    found, way = dict[int, Bid](), 0
    for choice in reversed(choices):
        gpu_type, needed = int(choice.types[way]), float(queue.widths[choice.job])
        worth, left = float(choice.worth[way]), float(choice.left[way])
        found[choice.job] = Bid(None if gpu_type < 0 else gpu_type, worth, needed, left)
        way = int(choice.before[way])
    return dict(reversed(found.items()))


def _choices_of(queue: Queue, prices: Prices, job: int, used: Array) -> tuple[JobChoices, Array]:
    """Return the choices of a job by the GPUs that are taken, shape (ways, types), and its payoff for each."""
    room, utilities, held = queue.gpus - used, queue.utilities[job], queue.held[job]
    worth = sort_keys(np.where(queue.widths[job] <= room, queue.utilities_per_gpu[job] / prices.at(used), 0.0))
    payoffs = np.where(worth > 1, utilities * (1 - 1 / np.maximum(worth, 1.0)), -inf)
    types = sort_keys(payoffs).argmax(axis=1)
    stays = np.zeros(len(used), dtype=bool) if held is None else payoffs[:, held] > 0
    types = np.where(stays, held or 0, types)
    gains = payoffs[np.arange(len(used)), types]
    takes, passes = np.flatnonzero(gains > 0), np.flatnonzero(~stays)
    before = np.concatenate([takes, passes])
    types = np.concatenate([types[takes], np.full(len(passes), -1)])
    left = np.where(utilities > 0, room, 0.0).max(axis=1)
    choice = JobChoices(job, before, types, worth.max(axis=1)[before], left[before])
    return choice, np.concatenate([gains[takes], np.zeros(len(passes))])


def _best(used: Array, payoffs: Array, most_ways: int) -> Numbers:
    """Return the best ways, in order. If several ways leave the same GPUs, only the first of the best ways counts."""
    order = np.argsort(-sort_keys(payoffs), kind="stable")
    if len(order) > 1:
        _, first = np.unique(used[order], axis=0, return_index=True)
        order = order[np.sort(first)]
    return order[:most_ways]


@dataclass(frozen=True)
class Hadar:
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

    eta: float = 4.0
    most_ways: int = 64

    def __post_init__(self) -> None:
        check_range("policy.eta", self.eta, above=1)
        check_range("policy.most_ways", self.most_ways, least=1, whole=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let jobs take GPUs at rising prices."""
        demand = Demand.of(view)
        with np.errstate(divide="ignore"):
            utilities = 1 / (demand.ages[:, None] + demand.left[:, None] / demand.speeds)
        queue = Queue(utilities, demand.widths, demand.gpus, held_types(view, demand))
        found = bids(queue, Prices(queue.utilities_per_gpu, demand.gpus, self.eta), self.most_ways)
        made = {demand.jobs[job]: bid for job, bid in found.items()}
        position = {job: index for index, job in enumerate(made, start=1)}
        return typed_decision(
            view,
            demand,
            {job: bid.gpu_type for job, bid in made.items()},
            lambda job: _reason_of_bid(made[job], position[job]),
        )


def _reason_of_bid(bid: Bid, position: int) -> Reason:
    """Return the reason: `worth-its-price`, `not-worth-its-price`, `passed-over` or `gang-does-not-fit`."""
    if not bid.worth:
        return Reason("gang-does-not-fit", {"position": position, "gpus_needed": bid.needed, "gpus_left": bid.left})
    kind = "worth-its-price"
    if bid.gpu_type is None:
        kind = "passed-over" if bid.worth > 1 else "not-worth-its-price"
    return Reason(kind, {"gpus_needed": bid.needed, "worth": bid.worth})


Group = frozenset[int]  # indices of the types that the jobs of the group can use


class Outcome(NamedTuple):
    """The result of a job's turn."""

    gpu_type: int | None  # index of the type, None for none
    numbers: Mapping[str, float]  # the numbers of the reason


def owned_types(queues: Mapping[Group, int], gpus: Sequence[float]) -> dict[Group, Group]:
    """Return the types that each group uses first. Groups with fewer GPUs come first.

    A type belongs to the group with the fewest GPUs that can use it. It moves to a group with more GPUs if that group
    has more jobs for each GPU of its own types. `queues` is the number of jobs of each group, and `gpus` the number of
    GPUs of each type.
    """
    own = dict[Group, Group]()

    def supply(group: Group) -> float:
        return sum(gpus[gpu_type] for gpu_type in group)

    def pressure(group: Group) -> float:
        """Return the jobs of a group for each GPU of its present own types."""
        return queues[group] / supply(own[group]) if supply(own[group]) else inf

    scarcest = sorted(queues, key=supply)
    unowned = frozenset(range(len(gpus)))
    for group in scarcest:
        own[group], unowned = unowned & group, unowned - group
    for index, more in reversed(list(enumerate(scarcest))):
        for fewer in reversed(scarcest[:index]):
            overlap = own[fewer] & more
            if overlap and pressure(more) > pressure(fewer):
                own[fewer], own[more] = own[fewer] - overlap, own[more] | overlap
    return own


@dataclass(frozen=True)
class Venn:
    """Serve groups of jobs that can use the same types, each on its own types first, by the least true GPU time left.

    If groups overlap, the group that can use the fewest GPUs goes first, unless another group has more jobs for each
    GPU. Other groups may use the GPUs that a group leaves.

    Source: Liu et al., "Venn" (MLSys '25), where jobs request edge devices.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs, group by group."""
        demand = Demand.of(view)
        found = {demand.jobs[job]: outcome for job, outcome in outcomes(demand, held_types(view, demand))}
        types = {job: outcome.gpu_type for job, outcome in found.items()}

        def reason(job: JobId) -> Reason:
            return Reason("gang-does-not-fit" if types[job] is None else "gang-fits", found[job].numbers)

        return typed_decision(view, demand, types, reason)


def outcomes(demand: Demand, held: Sequence[int | None]) -> Iterator[tuple[int, Outcome]]:
    """Go through the groups, then once more through the jobs without GPUs; yield the last result of each job, by index.

    `held` is the index of the present type of each job, which the job keeps if possible.
    """
    service = demand.widths * demand.left / demand.speeds.max(axis=1, initial=0.0)
    groups = defaultdict[Group, list[int]](list)
    order = [sort_key(value) for value in service.tolist()]
    for job in np.argsort(order, kind="stable").tolist():
        groups[frozenset(np.flatnonzero(demand.speeds[job]).tolist())].append(job)
    free, without = demand.gpus.copy(), list[tuple[int, Group, dict[str, float]]]()
    for group, own in owned_types({group: len(jobs) for group, jobs in groups.items()}, demand.gpus.tolist()).items():
        for position, job in enumerate(groups[group], start=1):
            numbers = {
                "position": position,
                "remaining_service": float(service[job]),
                "group_jobs": len(groups[group]),
                "group_gpus": float(demand.gpus[list(group)].sum()),
                "gpus_needed": float(demand.widths[job]),
            }
            outcome = _take_type(demand, job, held[job], own, free, numbers)
            if outcome.gpu_type is None:
                without.append((job, group, numbers))
            else:
                yield job, outcome
    for job, group, numbers in sorted(without, key=lambda each: order[each[0]]):
        yield job, _take_type(demand, job, held[job], group, free, numbers)


def _take_type(
    demand: Demand, job: int, held: int | None, allowed: Group, free: Array, numbers: dict[str, float]
) -> Outcome:
    """Take GPUs for a job: of its present type, or else of the fastest allowed type with room.

    `held` is the index of the present type, and `free` the free GPUs of each type.
    """
    left = float(max((free[gpu_type] for gpu_type in allowed), default=0.0))
    with_room = [gpu_type for gpu_type in sorted(allowed) if free[gpu_type] >= demand.widths[job]]
    found = max(with_room, key=lambda gpu_type: (gpu_type == held, demand.speeds[job, gpu_type]), default=None)
    if found is not None:
        free[found] -= demand.widths[job]
    return Outcome(found, numbers | {"gpus_left": left})
