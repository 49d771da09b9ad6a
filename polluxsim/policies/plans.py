"""What an elastic job will hold when: the fewest GPUs that meet its deadline, within what others leave."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.policies.timetable import Timetable

SLACK = 1e-6
"""A plan ends so much before its deadline, for rounding [s]."""


class Demand(NamedTuple):
    """What a job wants of a plan.

    Attributes
    ----------
    times
        Time that it still needs on each number of GPUs, rising numbers, each faster than those before [s].
    deadline
        When it should end, ∞ for as soon as GPUs are to spare [s].
    held
        GPUs it holds now.
    pending
        Time until its last restart is over [s].
    restart_delay
        Time that a change of its GPUs takes [s].
    """

    times: Mapping[int, float]
    deadline: float
    held: int
    pending: float
    restart_delay: float


class Plan(NamedTuple):
    """GPUs over time.

    Attributes
    ----------
    steps
        From when on [s] the job holds how many GPUs, until it ends.
    end
        When it is complete [s], ∞ for never.
    """

    steps: Sequence[tuple[float, int]]
    end: float

    @property
    def gpus(self) -> int:
        """Return what it holds first."""
        return self.steps[0][1]

    def reserve(self, free: Timetable, released: float, *, sign: int = 1) -> None:
        """Take the plan's GPUs until the job has released them [s], or with sign −1 give them back."""
        for (start, gpus), (end, _) in pairwise((*self.steps, (released, 0))):
            if gpus and start < end:
                free.take(sign * gpus, start, end)


def capped(demand: Demand, free: Timetable, cap: int) -> Plan:
    """Return the plan of a job that holds the most GPUs it can use at every time, but for a cap, restarts included."""
    counts = [gpus for gpus in demand.times if gpus <= cap]
    left, held, pending = 1.0, demand.held, demand.pending
    steps: list[tuple[float, int]] = []
    for start, end, available in free.intervals():
        gpus = max((count for count in counts if count <= available), default=0)
        if gpus != held:
            held, pending = gpus, demand.restart_delay if gpus else 0.0
        if not steps or steps[-1][1] != gpus:
            steps.append((start, gpus))
        if not gpus:
            continue
        trained = max(end - start - pending, 0.0)
        if left * demand.times[gpus] <= trained:
            return Plan(steps, start + pending + left * demand.times[gpus])
        left -= trained / demand.times[gpus]
        pending = max(pending - (end - start), 0.0)
    return Plan(steps, inf)


def least(demand: Demand, free: Timetable) -> Plan | None:
    """Return the plan with the least cap that meets the deadline, the minimum satisfactory share; None if none does.

    Source: progressive filling in ElasticFlow (ASPLOS '23), §4.1.
    """
    for cap in demand.times:
        plan = capped(demand, free, cap)
        if plan.end + SLACK <= demand.deadline:
            return plan
    return None


def following(plan: Plan, now: float) -> Plan:
    """Return what is left of a plan."""
    place = max((index for index, (start, _) in enumerate(plan.steps) if start <= now), default=0)
    return Plan(((now, plan.steps[place][1]), *plan.steps[place + 1 :]), plan.end)
