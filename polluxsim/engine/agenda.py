"""The clock and what is due when: a SimPy environment in which everything has an exact time and a rank."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from enum import IntEnum
from heapq import heappush
from typing import Any, TypeAlias, cast

import simpy

Action: TypeAlias = Callable[["Happening"], None]


AGES = 48
"""Bits for the age of what is due; no run has that many events."""


class Rank(IntEnum):
    """The tie law: what is due at one instant happens in this order; within a rank, jobs in order of submission."""

    PROGRESS = 1
    """Epochs end, jobs complete."""
    ARRIVAL = 2
    """Jobs are submitted or cancelled, nodes fail or come up."""
    HORIZON = 3
    """The run ends."""
    ROUND = 4
    """The policy is asked."""
    AFTER_ROUND = 5
    """Epochs end that belong to the interval which this instant begins."""


class Happening(simpy.Event):
    """Something that is due at a known time.

    Parameters
    ----------
    agenda
        Where it is due.
    rank
        Its place among what is due at that time.
    action
        What to do then, with this happening; a bound method, so that a copy of the run acts on itself.
    about
        What the action needs to know.
    """

    def __init__(self, agenda: Agenda, rank: Rank, action: Action, about: Any) -> None:
        super().__init__(agenda)
        # As of a SimPy timeout, it is certain from the start that it will happen.
        self._ok, self._value = True, None
        self.callbacks: list[Action] = [action]
        self.rank = rank
        self.about = about

    def __deepcopy__(self, memo: dict[int, Any]) -> Happening:
        (action,), agenda = self.callbacks, cast("Agenda", self.env)
        return Happening(deepcopy(agenda, memo), self.rank, deepcopy(action, memo), deepcopy(self.about, memo))


class Agenda(simpy.Environment):
    """SimPy's clock and queue; `step` makes the next thing happen, `peek` says when that is."""

    def at(self, time: float, rank: Rank, action: Action, about: Any = None, *, order: int = 0) -> None:
        """Have an action happen at exactly this time [s]; of one rank in this order, then by age."""
        place = (order << AGES) + next(self._eid)
        heappush(self._queue, (time, rank, place, Happening(self, rank, action, about)))  # type: ignore[misc]
