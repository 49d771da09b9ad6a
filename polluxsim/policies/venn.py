"""Venn: jobs that can use the same GPU types are a group, and groups share the types that they overlap in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.policies.by_type import decided, held
from polluxsim.policies.shares.demand import Demand
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.policies.shares.demand import Array
    from polluxsim.policies.view import ClusterView, Decision

Group = frozenset[int]
"""Numbers of the types that its jobs can use."""


class Turn(NamedTuple):
    """What a job got."""

    gpu_type: int | None  # number of the type, None for none
    numbers: Mapping[str, float]  # what decided, as a reason has it


def owned(queues: Mapping[Group, int], gpus: Sequence[float]) -> dict[Group, Group]:
    """Return the types on which each group goes first, by groups that can use fewer GPUs.

    A type is of the group with the fewest GPUs among those that can use it, and goes on to one with more GPUs that has
    more jobs for each GPU of its own.
    """

    def supply(group: Group) -> float:
        return sum(gpus[gpu_type] for gpu_type in group)

    def pressure(group: Group) -> float:
        return queues[group] / supply(own[group]) if supply(own[group]) else inf

    scarcest, own, left = sorted(queues, key=supply), dict[Group, Group](), frozenset(range(len(gpus)))
    for group in scarcest:
        own[group], left = left & group, left - group
    for place, more in reversed(list(enumerate(scarcest))):
        for fewer in reversed(scarcest[:place]):
            overlap = own[fewer] & more
            if overlap and pressure(more) > pressure(fewer):
                own[fewer], own[more] = own[fewer] - overlap, own[more] | overlap
    return own


@dataclass(frozen=True)
class Venn:
    """Serve groups of jobs that can use the same types, each on its own types first, by the least true GPU time left.

    Where groups overlap, those that can use the fewest GPUs go first, unless more jobs wait for each GPU of another.
    What a group leaves goes to anybody who can use it.

    Source: Liu et al., "Venn" (MLSys '25), whose jobs ask for devices of edge users.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs, group by group."""
        demand = Demand.of(view)
        turns = {demand.jobs[job]: turn for job, turn in turns_in(demand, held(view, demand))}
        types = {job: turn.gpu_type for job, turn in turns.items()}
        return decided(view, demand, types, lambda job: _reason(turns[job]))


def turns_in(demand: Demand, now: Sequence[int | None]) -> Iterator[tuple[int, Turn]]:
    """Go through the groups, then once more through who got nothing, and say of each job what it got last.

    `now` is the type that each job has GPUs of, which it takes again where it can.
    """
    service = demand.widths * demand.left / demand.speeds.max(axis=1, initial=0.0)
    groups = defaultdict[Group, list[int]](list)
    for job in np.argsort(service, kind="stable").tolist():
        groups[frozenset(np.flatnonzero(demand.speeds[job]).tolist())].append(job)
    free, without = demand.gpus.copy(), list[tuple[int, Group, dict[str, float]]]()
    for group, own in owned({group: len(jobs) for group, jobs in groups.items()}, demand.gpus.tolist()).items():
        for position, job in enumerate(groups[group], start=1):
            numbers = {
                "position": position,
                "remaining_service": float(service[job]),
                "group_jobs": len(groups[group]),
                "group_gpus": float(demand.gpus[list(group)].sum()),
                "gpus_needed": float(demand.widths[job]),
            }
            turn = _turn(demand, job, now[job], own, free, numbers)
            if turn.gpu_type is None:
                without.append((job, group, numbers))
            else:
                yield job, turn
    for job, group, numbers in sorted(without, key=lambda each: float(service[each[0]])):
        yield job, _turn(demand, job, now[job], group, free, numbers)


def _turn(demand: Demand, job: int, here: int | None, allowed: Group, free: Array, numbers: dict[str, float]) -> Turn:
    """Take the GPUs of a job: of the type it runs on, else of the fastest allowed one with room."""
    left = float(max((free[name] for name in allowed), default=0.0))
    with_room = [name for name in sorted(allowed) if free[name] >= demand.widths[job]]
    found = max(with_room, key=lambda name: (name == here, demand.speeds[job, name]), default=None)
    if found is not None:
        free[found] -= demand.widths[job]
    return Turn(found, numbers | {"gpus_left": left})


def _reason(turn: Turn) -> Reason:
    return Reason("gang-does-not-fit" if turn.gpu_type is None else "gang-fits", turn.numbers)
