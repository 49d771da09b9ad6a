"""When the policy is asked: rounds at multiples of the interval, held only where there is something to do."""

from __future__ import annotations

from collections import defaultdict
from math import ceil, inf
from typing import TYPE_CHECKING

from polluxsim.engine.agenda import Rank
from polluxsim.errors import InvalidConfigError
from polluxsim.policies.view import Change, Changes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.agenda import Action, Agenda
    from polluxsim.engine.views import JobWindow
    from polluxsim.policies.view import Decision
    from polluxsim.types import JobId

MOST_ROUNDS = 2.0**52
"""Up to here the multiples of an interval are all different numbers in double precision."""

AT_ONCE = 0
"""Stands for the number of a round between the others."""


def first_round(time: float, interval: float) -> int:
    """Return the number of the first round not before a time [s]; rounds are at multiples of the interval, from 1 on.

    >>> first_round(0.0, 60.0), first_round(60.0, 60.0), first_round(60.1, 60.0), first_round(52 * 0.71, 0.71)
    (1, 1, 2, 52)
    """
    index = max(ceil(time / interval), 1)
    # The quotient may have been rounded to, or across, a whole number.
    while index > 1 and (index - 1) * interval >= time:
        index -= 1
    return index if index * interval >= time else index + 1


def check_range(time: float, interval: float, what: str) -> None:
    """Check that rounds around a time can be told apart.

    Raises
    ------
    InvalidConfigError
        If they cannot, in double precision.
    """
    if not time < MOST_ROUNDS * interval:
        raise InvalidConfigError(
            f"{what} comes to {time:g} s, allowed are times below {MOST_ROUNDS * interval:.4g} s where "
            f"engine.round_interval is {interval:g}: rounds beyond cannot be told apart"
        )


class Rounds:
    """Calls the next round when it is needed, and says whether the decision that stands is out of date.

    A round is needed after something happened, where a decision ends, or where agents observe; all others would change
    nothing and are not held. The `action` is what is done in one; with `ask_at_failures`, one is held besides as soon
    as a job lost its GPUs.
    """

    def __init__(self, agenda: Agenda, interval: float, action: Action, *, ask_at_failures: bool = False) -> None:
        self.has_changed = True
        self._agenda = agenda
        self._interval = interval
        self._action = action
        self._ask_at_failures = ask_at_failures
        self._has_progressed = False
        self._due: int | None = None
        self._last = 0
        self._stands_until = -inf
        self._outdated_by = Change.ANY.value
        self._arrived: list[JobWindow] = []
        # By the change's value: an enumeration's own hash is slow.
        self._named: defaultdict[int, dict[JobId, float]] = defaultdict(dict)

    def arrived(self, view: JobWindow) -> None:
        """Take note of an arrival."""
        self._arrived.append(view)
        self.note(Change.ARRIVAL)

    def evicted(self, job_id: JobId, *, was_training: bool) -> None:
        """Take note that a job lost its GPUs."""
        self._has_progressed |= was_training
        self.note(Change.EVICTION, job_id)
        if self._ask_at_failures:
            self._agenda.at(self._agenda.now, Rank.ROUND, self._action, AT_ONCE)

    def note(self, change: Change, job_id: JobId = "") -> None:
        """Take note of a change, which calls a round and may put the present decision out of date."""
        value = change.value
        self._named[value][job_id] = self._agenda.now
        self.has_changed = True
        if value & self._outdated_by:
            self._stands_until = -inf
        self.call(self._agenda.now)

    def call(self, time: float) -> None:
        """Hold a round at the first multiple of the interval that is not before `time` and not over, or before that."""
        due = self._due
        if due is not None and (due == self._last + 1 or time > (due - 1) * self._interval):
            return
        check_range(time, self._interval, "the simulation")
        self._due = index = max(first_round(time, self._interval), self._last + 1)
        self._agenda.at(index * self._interval, Rank.ROUND, self._action, index)

    def pass_over(self) -> None:
        """Take note that the round of this instant is over, be it that none was held."""
        self._last = max(self._last, first_round(self._agenda.now, self._interval))

    def begin(self, index: int) -> bool:
        """Return whether this round is to be held: it is not if an earlier one was called after it, or saw all."""
        if index == AT_ONCE:
            return self.has_changed
        if index != self._due:
            return False
        self._due, self._last = None, index
        return True

    @property
    def is_news(self) -> bool:
        """Return whether something happened since the last round that may let jobs progress, or one that failed did."""
        failing = self._named.keys() <= {Change.NODES.value, Change.EVICTION.value}
        return self._has_progressed or (self.has_changed and not failing)

    @property
    def policy_is_due(self) -> bool:
        """Return whether the decision that stands is out of date."""
        return self._agenda.now >= self._stands_until

    def changes(self) -> Changes:
        """Return what happened since the policy was last asked."""
        named, arrived = self._named, self._arrived
        ended = dict(named.get(Change.COMPLETION.value, {}))
        if ended and (both := ended.keys() & [view.job_id for view in arrived]):
            arrived = [view for view in arrived if view.job_id not in both]
            ended = {job_id: time for job_id, time in ended.items() if job_id not in both}
        return Changes(
            arrived=arrived,
            ended=ended,
            passed_epoch=tuple(named.get(Change.EPOCH.value, ())),
            learnt=tuple(named.get(Change.LEARNING.value, ())),
            nodes=Change.NODES.value in named,
            evicted=tuple(named.get(Change.EVICTION.value, ())),
        )

    def decided(self, decision: Decision) -> None:
        """Let a decision stand for as long as it says."""
        self._stands_until = decision.valid_until
        self._outdated_by = (decision.outdated_by | Change.EVICTION).value
        self._arrived, self._named = [], defaultdict(dict)
        if decision.rejected:  # which is of its own doing, and news for the next
            self._named[Change.COMPLETION.value] = dict.fromkeys(decision.rejected, self._agenda.now)

    def ask_anew(self, unseen: Iterable[JobWindow] | None) -> None:
        """Ask at the next round whatever was decided; a new policy, to which all jobs are unseen, if they are given."""
        if unseen is not None:
            self._arrived, self._named = list(unseen), defaultdict(dict)
        self.has_changed, self._stands_until = True, -inf
        self.call(self._agenda.now)

    def end(self, next_needed: float) -> None:
        """Call the next round: when the decision ends, or when something needs one [s]; ∞ is never."""
        self.has_changed = self._has_progressed = False
        if (first := min(self._stands_until, next_needed)) < inf:
            self.call(max(first, self._agenda.now))
