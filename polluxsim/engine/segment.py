"""A stretch of constant progress in the life of a job."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.time_rules import Milestone

if TYPE_CHECKING:
    from polluxsim.engine.rhythm import Rhythm
    from polluxsim.engine.time_rules import TimeRule

NEVER = Milestone(inf)


class Segment(NamedTuple):
    """A stretch of constant progress, from one change to the next."""

    epoch: int = 0  # that it is in, from 0
    progress: float = 0.0  # work done at its start [M0-steps]
    start: float = 0.0  # time from which it goes on; before it, the job restarts [s]
    rate: float = 0.0  # progress per second, 0 without GPUs [M0-steps/s]
    goodput: float = 0.0  # the same [M0-equivalent examples/s]
    efficiency: float = 0.0  # what a larger batch is worth
    milestone: Milestone = NEVER  # when the epoch ends if nothing changes before
    rhythm: Rhythm | None = None  # how it stops for checkpoints; None where nothing can be lost

    def progress_at(self, now: float, rule: TimeRule) -> float:
        """Return the work done by a time within it [M0-steps]."""
        if now <= self.start or not self.rate:
            return self.progress
        if self.rhythm is not None:
            now = self.rhythm.without(self.start, now)
        return rule.progress_at(self.progress, self.rate, self.start, now)

    def rhythm_at(self, now: float, rule: TimeRule) -> Rhythm | None:
        """Return the rhythm as of a time within it [s]."""
        if self.rhythm is None or now <= self.start:
            return self.rhythm
        passed = now - self.start
        last = self.rhythm.last_end(passed)
        if last is None:
            return self.rhythm.after(passed, self.rhythm.kept)
        return self.rhythm.after(passed, rule.progress_at(self.progress, self.rate, self.start, self.start + last))
