"""Training and checkpoints in turn: how much of a stretch of time is trained, and what a failure leaves."""

from __future__ import annotations

from math import ceil, inf
from typing import NamedTuple

from polluxsim.engine.time_rules import Milestone


class Rhythm(NamedTuple):
    """Training that stops for checkpoints; all but the first two are as of the start of a segment."""

    interval: float = inf  # training between two checkpoints; ∞ is none [s]
    cost: float = 0.0  # time of a checkpoint, in which nothing is trained [s]
    due: float = inf  # training until the next one; less than 0 is how long one has been going on already [s]
    since: float = 0.0  # training since the last one that was finished, or since the job got its GPUs [s]
    kept: float = 0.0  # progress that a failure would leave [M0-steps]
    paused: float = 0.0  # time in checkpoints since the job got its GPUs [s]
    at_epochs: bool = False  # whether there is one at the end of every epoch

    def without(self, start: float, now: float) -> float:
        """Return what the time would be without the checkpoints since the start [s]."""
        passed = now - start
        return now if passed <= self.due else start + self._trained(passed)

    def delayed(self, milestone: Milestone, start: float) -> Milestone:
        """Return a milestone of training from the start on, put off by the checkpoints before it.

        >>> Rhythm(interval=10.0, cost=1.0, due=10.0).delayed(Milestone(125.0), 100.0).time
        127.0
        """
        beyond = milestone.time - start - max(self.due, 0.0)
        if beyond <= 0:
            return milestone
        return Milestone(milestone.time + max(ceil(beyond / self.interval), 1) * self.cost + min(self.due, 0.0))

    def last_end(self, passed: float) -> float | None:
        """Return how much was trained by the last checkpoint that was finished within `passed` [s]; None without."""
        if passed <= self.due:
            return None
        cycles, rest = self._cycles(passed)
        later = cycles + (rest >= self.cost) - 1
        return None if later < 0 else max(self.due, 0.0) + _times(later, self.interval)

    def after(self, passed: float, kept: float) -> Rhythm:
        """Return the rhythm as of `passed` seconds later; `kept` is the progress at the last checkpoint by then."""
        if passed <= self.due:
            return self._replace(due=self.due - passed, since=self.since + passed)
        trained, last = self._trained(passed), self.last_end(passed)
        _, rest = self._cycles(passed)
        return self._replace(
            due=self.interval - (rest - self.cost) if rest >= self.cost else -rest,
            since=self.since + trained if last is None else trained - last,
            kept=kept,
            paused=self.paused + (passed - trained),
        )

    def at_epoch_end(self) -> Rhythm:
        """Return the rhythm as an epoch ends."""
        return self._replace(due=0.0) if self.at_epochs else self

    def _trained(self, passed: float) -> float:
        """Return how much of a time that is longer than `due` is training [s]."""
        cycles, rest = self._cycles(passed)
        return max(self.due, 0.0) + _times(cycles, self.interval) + max(rest - self.cost, 0.0)

    def _cycles(self, passed: float) -> tuple[int, float]:
        """Return how often a checkpoint and an interval were over, and the time since the last checkpoint began [s]."""
        cycle = self.interval + self.cost
        number = int((passed - self.due) // cycle)
        return number, passed - self.due - _times(number, cycle)


def _times(number: int, length: float) -> float:
    """Return a number of lengths, of which none of an infinite one is nothing."""
    return number * length if number else 0.0
