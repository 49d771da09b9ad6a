"""Planning ahead by time limits: when running jobs end at the latest, and when enough GPUs are free by that."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.srtf import remaining_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


@dataclass
class Limits:
    """How long each job may run, and when those that run end at the latest.

    Parameters
    ----------
    overestimate
        Limit of a job whose user promised none, as a multiple of the time that it truly takes.
    """

    overestimate: float = 1.0
    _limits: dict[JobId, float] = field(default_factory=dict)
    # The rounds at which running jobs have ended by their limits, in order, with their GPUs.
    _releases: list[tuple[float, JobId, int]] = field(default_factory=list)
    _of: dict[JobId, tuple[float, JobId, int]] = field(default_factory=dict)

    def of(self, view: ClusterView, job: JobView) -> float:
        """Return the longest time that a job which waits says to hold its GPUs [s]."""
        if (limit := self._limits.get(job.job_id)) is None:
            limit = job.time_limit or self.overestimate * self._true_time(view, job)
            self._limits[job.job_id] = limit
        return limit

    def _true_time(self, view: ClusterView, job: JobView) -> float:
        return view.delay_of(job) + remaining_time(job, max(view.gpus_per_node))

    def started(self, view: ClusterView, job: JobView) -> None:
        """Take note of a job that gets its GPUs now."""
        release = view.round_at(view.time + self.of(view, job)), job.job_id, job.num_replicas
        self._of[job.job_id] = release
        insort(self._releases, release)

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._limits.pop(job_id, None)
            if (release := self._of.pop(job_id, None)) is not None:
                del self._releases[bisect_left(self._releases, release)]

    def as_promised(self, view: ClusterView) -> bool:
        """Return whether all that ended since the last round did so when it was due, and nobody outlives a limit.

        It is asked before jobs that have ended are forgotten.
        """
        ended = view.changes.ended
        due = (self._of.get(job_id) for job_id in ended)
        if not all(release is not None and release[0] <= view.time for release in due):
            return False
        over = takewhile(lambda each: each[0] <= view.time, self._releases)
        return all(job_id in ended for _, job_id, _ in over)

    def releases(self, view: ClusterView) -> Iterator[tuple[float, int]]:
        """Yield at which rounds GPUs of running jobs can be given anew at the latest [s], and how many, in order.

        A job that outlives its limit is expected to end before the next round, each time again.
        """
        soonest = view.time + view.round_interval
        return ((max(time, soonest), gpus) for time, _, gpus in self._releases)


def shadow(gpus_needed: int, free: int, releases: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Return when so many GPUs are free, if running jobs end at their limits [s], and how many more are free then.

    >>> shadow(4, 1, [(60.0, 2), (120.0, 2), (120.0, 3)])
    (120.0, 4)
    """
    time = -inf
    for time_free, gpus in releases:
        if free >= gpus_needed and time_free > time:
            break
        time, free = time_free, free + gpus
    return (time, free - gpus_needed) if free >= gpus_needed else (inf, free)
