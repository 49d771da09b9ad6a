"""The clock and what is due when: a SimPy environment in which everything has an exact time and a rank."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappush
from typing import Any, TypeAlias

import simpy

Action: TypeAlias = Callable[["Happening"], None]


class Rank(IntEnum):
    """The tie law: what is due at one instant happens in this order, and by age within a rank."""

    PROGRESS = 1
    """Epochs end, jobs complete."""
    ARRIVAL = 2
    """Jobs are submitted or cancelled, nodes come up."""
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
    action
        What to do then, with this happening; a bound method, so that a copy of the run acts on itself.
    about
        What the action needs to know.
    """

    def __init__(self, agenda: Agenda, action: Action, about: Any) -> None:
        super().__init__(agenda)
        # As of a SimPy timeout, it is certain from the start that it will happen.
        self._ok, self._value = True, None
        self.callbacks: list[Action] = [action]  # type: ignore[assignment]  # SimPy's take any event
        self.about = about


class Agenda(simpy.Environment):
    """SimPy's clock and queue; `step` makes the next thing happen, `peek` says when that is."""

    def at(self, time: float, rank: Rank, action: Action, about: Any = None) -> None:
        """Have an action happen at exactly this time [s]."""
        heappush(self._queue, (time, rank, next(self._eid), Happening(self, action, about)))  # type: ignore[misc]
