"""The clock of a run: the queue of events, their order at one instant, the rules of time, and random draws by key.

Events happen in the order of time, then `Rank`, then the order of submission of their jobs, then age. A run with the
same input therefore has the same events in the same order.

The trap is the rounding of times. Two events that mean the same instant can have times that differ in the last bits, if
they were computed in two ways: 3 × 0.1 s and 0.3 s. By time alone, the one with the lower rank could come second: a
round would take place before the job arrives that is due at the round. Times of one instant are therefore made equal,
at two places:

- `Clock.at` puts an event on the round of its instant, or on the present instant. Most events are one of the two.
- `Clock.step` joins the other events of the next instant, if their times are not in the order of their ranks. Only
  then: times that are in order stay as they are, to the last bit.

Progress has the same trap. A `TimeRule` turns a rate of progress into the times at which a job reaches boundaries, and
times back into progress. `ExactTime` is the rule of continuous time; `WholeSeconds` is the rule of Pollux's artifact.
The sums of a rule have a fixed order of additions: another order would change the last bits of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np
import simpy

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.instants import on_rounds, slack

Action: TypeAlias = Callable[["Event"], None]

NUMBER_BITS = 48
"""Bits for the number of an event. No run has 2^48 events."""

JOINED = 0.5
"""Largest difference of the times of one instant, as a share of `slack`.

It is below 1. Events within `slack` of a round are at the round already, and no other event may move the round.
"""

MOST_ROUNDS = 2.0**52
"""Number of rounds below which all multiples of an interval are different floats."""


class Rank(IntEnum):
    """The order of events at one instant. Events of one rank happen in the order of submission of their jobs."""

    PROGRESS = 1  # epochs end, jobs complete
    ARRIVAL = 2  # jobs are submitted or cancelled, nodes fail or come up, a fork begins
    HORIZON = 3  # the run ends
    ROUND = 4  # the policy decides
    AFTER_ROUND = 5  # epochs end that belong to the interval that begins at this instant


class Event(simpy.Event):
    """An action at a known time: a bound method, which is called with the event, so that a copy acts on itself."""

    def __init__(self, clock: Clock, rank: Rank, action: Action, about: Any) -> None:
        # Like a SimPy timeout, it does not call the constructor of the base class, and its outcome is known at once.
        self.env = clock
        self.callbacks: list[Action] = [action]
        self._ok = True
        self._value = None
        self.rank = rank
        self.about = about

    def __deepcopy__(self, memo: dict[int, Any]) -> Event:
        # The copy of a bound method is bound to the copy of its object, so the copy of a run has its own events.
        (action,) = self.callbacks
        clock = cast("Clock", self.env)
        return Event(deepcopy(clock, memo), self.rank, deepcopy(action, memo), deepcopy(self.about, memo))


class Clock(simpy.Environment):
    """SimPy's clock and queue. `step` processes the next event, and `peek` returns its time.

    Events are pushed into SimPy's queue directly, because `timeout` takes a delay, and `now + (time - now)` is not
    always `time`. `schedule` has two priorities, and the order of events needs five.

    Events whose times differ by rounding only happen in the order of their ranks. `interval` is the
    time between rounds [s].
    """

    def __init__(self, interval: float) -> None:
        super().__init__()
        self._interval = interval

    if not TYPE_CHECKING:  # SimPy's property is a Python function, which takes twice as long
        now = property(attrgetter("_now"), doc="Time of the run [s].")

    def at(self, time: float, rank: Rank, action: Action, about: Any = None, *, order: int = 0) -> None:
        """Call an action at this time [s], or at the round or the present time if that is the same instant.

        Events of one rank happen by `order`, then by age.
        """
        time = on_rounds(time, self._interval)
        now = self._now
        if time != now and abs(time - now) <= JOINED * slack(now):
            time = now
        # One number orders events by `order`, then by age: comparing two numbers in a heap would take longer.
        place = (order << NUMBER_BITS) + next(self._eid)
        heappush(self._queue, (time, rank, place, Event(self, rank, action, about)))  # type: ignore[misc]

    def step(self) -> None:
        """Process the next event."""
        if self._queue and self._may_be_split() and self._is_split():
            self._join()
        super().step()

    def _may_be_split(self) -> bool:
        """Return whether events of the next instant can be out of order: a quick test before the exact one.

        An event of this instant can have called for a round at once, while arrivals of this instant are still to come.
        """
        # Events of the present instant were joined before the first of them.
        time, rank, *_ = self._queue[0]
        return time != self._now or int(rank) == Rank.ROUND

    def _is_split(self) -> bool:
        """Return whether events of the next instant have different times."""
        queue = self._queue
        first = queue[0][0]
        latest = first + JOINED * slack(first)
        # The queue is a heap: no event is earlier than its parent, so the branch below a later event is left out.
        unseen = [1, 2]  # positions in the queue
        while unseen:
            position = unseen.pop()
            if position >= len(queue) or queue[position][0] > latest:
                continue
            if queue[position][0] != first:
                return True
            unseen += (2 * position + 1, 2 * position + 2)
        return False

    def _join(self) -> None:
        """Give the events of the next instant the same time if their times are not in the order of their ranks.

        This is the time of the horizon, or else the first time. No round is among these events: `at` puts every event
        at the instant of a round on the round.
        """
        first = self._queue[0][0]
        latest = first + JOINED * slack(first)
        events = []
        while self._queue and self._queue[0][0] <= latest:
            events.append(heappop(self._queue))
        # Times in the order of the ranks stay as they are, to the last bit.
        ranks = [rank for _, rank, _, _ in events]
        if ranks == sorted(ranks):
            instants = [time for time, _, _, _ in events]
        else:
            instant = first
            for time, _, _, event in events:
                if cast("Event", event).rank is Rank.HORIZON:
                    instant = time  # the user named this time, and others were computed
                    break
            instants = [instant] * len(events)
        for instant, (_, rank, place, event) in zip(instants, events, strict=True):
            heappush(self._queue, (instant, rank, place, event))


def check_range(time: float, interval: float, what: str, *names: str) -> None:
    """Raise an `InvalidConfigError` about `what`, with its `names`, if rounds around a time [s] are equal floats."""
    # Written with `not`, so that a time that is not a number raises too.
    if not time < MOST_ROUNDS * interval:
        subject = " ".join([what, *map(repr, names)])
        raise InvalidConfigError(
            f"{subject} comes to {time:g} s, must be below {MOST_ROUNDS * interval:.4g} s: later rounds cannot be told "
            f"apart where engine.round_interval is {interval:g}"
        )


class Stream(IntEnum):
    """Uses of random numbers. The random generator of the policy is the first child of the seed."""

    OUTAGES = 1
    CRASHES = 2


def uniforms(seed: int, key: tuple[int, ...], count: int) -> list[float]:
    """Return numbers in (0, 1) that depend only on the seed of the run and on a key. The key begins with a `Stream`."""
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(count, np.uint64)
    # The largest word would be rounded to 1.
    return [min(((int(word) >> 11) + 0.5) * 2.0**-53, 1 - 2.0**-53) for word in words]


Milestone: TypeAlias = tuple[float, bool]
"""When a job reaches a boundary of progress [s], and whether a scheduling round at the same instant comes first.

A plain tuple, because a named tuple takes ten times as long, and jobs have many boundaries.
"""

NEVER: Milestone = (inf, False)


@dataclass(frozen=True)
class ExactTime:
    """A rule that turns a constant rate of progress into times and back. Time is continuous.

    `has_intervals` says whether progress is added interval by interval.
    """

    has_intervals: ClassVar[bool] = False

    def course(
        self, progress: float, start: float, rates: Sequence[float], boundaries: Sequence[float]
    ) -> list[Milestone]:
        """Return when a job reaches each boundary in turn.

        `progress` is the work done [M0-steps] at the time `start` [s]. `boundaries` rise [M0-steps]; `rates` are the
        speeds up to each boundary [M0-steps/s], above 0.
        """
        course: list[Milestone] = []
        for rate, boundary in zip(rates, boundaries, strict=True):
            start += max(boundary - progress, 0.0) / rate
            progress = boundary
            course.append((start, False))
        return course

    def last_boundary(self, progress: float, rate: float, start: float, now: float) -> tuple[float, float]:
        """Return `progress` and `start`: continuous time has no boundaries of intervals."""
        return progress, start

    def progress_at(self, progress: float, rate: float, start: float, now: float) -> float:
        """Return the progress at `now`, before the next boundary of progress."""
        return progress + rate * (now - start)


@dataclass(frozen=True)
class WholeSeconds:
    """Epochs end at whole seconds, and progress is added interval by interval.

    Source: the artifact of Pollux (OSDI '21). Its rounding is kept to reproduce its results to the second.
    """

    round_interval: float  # Length of an interval [s]. Intervals start at its multiples.
    has_intervals: ClassVar[bool] = True

    def course(
        self, progress: float, start: float, rates: Sequence[float], boundaries: Sequence[float]
    ) -> list[Milestone]:
        """Return when a job reaches each boundary in turn, as in `ExactTime.course`.

        The time since the start of training or of the last interval is rounded to a whole second, half to even. A time
        that is rounded down to the first instant of an interval is still within it: the round of that instant is over.
        """
        interval = self.round_interval
        course: list[Milestone] = []
        for rate, boundary in zip(rates, boundaries, strict=True):
            remaining = interval - start % interval
            step = rate * remaining
            if progress + step < boundary:
                progress += step
                start += remaining
                # From here on, each step is a whole interval. The sums are added one by one, as the artifact does it.
                remaining = interval
                step = rate * interval
                while progress + step < boundary:
                    progress += step
                    start += interval
            # Python rounds halves to even, as the artifact does.
            seconds = round((boundary - progress) / rate)
            start += seconds
            is_first_instant = not seconds and remaining == interval
            course.append((start, is_first_instant))
            progress = boundary
        return course

    def last_boundary(self, progress: float, rate: float, start: float, now: float) -> tuple[float, float]:
        """Return the progress after the intervals that are complete at `now`, added in order, and their end."""
        remaining = self.round_interval - start % self.round_interval
        step = rate * self.round_interval
        while start + remaining <= now:
            # Whole intervals add the same number each, as in `course`: their sums must be equal to the last bit.
            if remaining == self.round_interval:
                progress += step
            else:
                progress += rate * remaining
            start += remaining
            remaining = self.round_interval
        return progress, start

    def progress_at(self, progress: float, rate: float, start: float, now: float) -> float:
        """Return the progress after the complete intervals, plus the progress since then."""
        progress, start = self.last_boundary(progress, rate, start, now)
        if now <= start:
            return progress
        return progress + rate * (now - start)


TimeRule: TypeAlias = ExactTime | WholeSeconds
