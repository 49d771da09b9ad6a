"""The usage of users: what their jobs held, weighted and decayed.

Usage counts the billing weight of a job, which is its CPUs unless `TRESBillingWeights` says otherwise, times its run
time. It halves in `PriorityDecayHalfLife`. Slurm brings it up to date every `PriorityCalcPeriod`, and so does this
module; within a period, usage decays continuously here. (Specification, "priority/multifactor"; slurm.conf(5),
`PriorityDecayHalfLife`, `PriorityCalcPeriod` and `TRESBillingWeights`.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple


class CountedUse(NamedTuple):
    """What a running job uses since its use was last counted."""

    user: str
    rate: float  # billing weight
    since: float  # [s]


@dataclass
class Usage:
    """The usage of users up to a time.

    Parameters
    ----------
    half_life
        Time in which usage halves [s]; 0 if it never does.
    """

    half_life: float
    _at: float = 0.0  # time up to which all usage is counted [s]
    _used: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _running: dict[str, CountedUse] = field(default_factory=dict)
    _ended: list[tuple[CountedUse, float]] = field(default_factory=list)  # with the time of the end [s]

    def begin(self, job: str, user: str, rate: float, now: float) -> None:
        """Note a job that starts."""
        self._running[job] = CountedUse(user, rate, now)
        self.add_user(user)

    def end(self, job: str, now: float) -> None:
        """Note a job that ends, or loses its nodes."""
        use = self._running.pop(job, None)
        if use is not None:
            self._ended.append((use, now))

    def add_user(self, user: str) -> None:
        """Note a user with a job. A user without usage takes part in the fair share."""
        self._used[user] += 0.0

    def at(self, now: float) -> dict[str, float]:
        """Return the usage of each user up to a time, which must not be before the last one [s].

        Usage is in seconds of billing weight.
        """
        if now > self._at:
            kept = self._kept(now - self._at)
            for user in self._used:
                self._used[user] *= kept
            self._at = now
        ended_later = []
        for use, end in self._ended:
            # Priorities are computed for the start of a period, so a job may have ended after it.
            if end > now:
                ended_later.append((self._counted(use, now), end))
            else:
                self._used[use.user] += use.rate * self._seconds(end - use.since) * self._kept(now - end)
        self._ended = ended_later
        # A running job is counted up to now, so that its next part decays from here.
        for job, use in self._running.items():
            self._running[job] = self._counted(use, now)
        return dict(self._used)

    def _counted(self, use: CountedUse, now: float) -> CountedUse:
        """Count a use up to a time, and return the rest of it."""
        if use.since >= now:
            return use
        self._used[use.user] += use.rate * self._seconds(now - use.since)
        return use._replace(since=now)

    def _kept(self, passed: float) -> float:
        """Return the part of a usage that is left after a time [s]."""
        if not self.half_life:
            return 1.0
        part_left: float = 0.5 ** (passed / self.half_life)
        return part_left

    def _seconds(self, length: float) -> float:
        """Return the seconds of a constant use of some length that are left at its end [s].

        >>> round(Usage(3600.0)._seconds(3600.0))
        2597
        """
        if not self.half_life:
            return length
        # The integral of what is left of each second of the use.
        return (1 - self._kept(length)) * self.half_life / log(2)
