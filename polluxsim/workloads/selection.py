"""Select the jobs of a log, and give each of them a name of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
from sys import intern
from typing import TYPE_CHECKING

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError
from polluxsim.logs.formats.base import JobStatus
from polluxsim.workloads.source import check_window, is_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polluxsim.logs.trace_table import TraceJob


@dataclass(frozen=True)
class Selection:
    """Which jobs of a trace are used.

    Parameters
    ----------
    start, hours
        The window: from when on, counted from the trace's first submission, and for how long; null is to the end [h].
    min_duration
        Shortest jobs used [s].
    max_gpu_hours
        Jobs of so much GPU time or more are not used [GPU h].
    statuses
        How jobs must have ended; null is any way. Jobs of which the trace does not say are used.
    """

    start: float = 0.0
    hours: float | None = None
    min_duration: float = 60.0
    max_gpu_hours: float = 1000.0
    statuses: Sequence[str] | None = ("completed",)

    def __post_init__(self) -> None:
        check_window(self.start, self.hours)
        if not is_number(self.min_duration) or not 0 <= self.min_duration < inf:
            raise InvalidConfigError(f"min_duration is {self.min_duration!r}, allowed is a finite number ≥ 0")
        if not is_number(self.max_gpu_hours) or not self.max_gpu_hours > 0:
            raise InvalidConfigError(f"max_gpu_hours is {self.max_gpu_hours!r}, allowed is a number > 0")
        known = [status.value for status in JobStatus]
        for status in self.statuses or ():
            if status not in known:
                raise InvalidConfigError(f"statuses has {status!r}, allowed are {', '.join(known)}")

    def select(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """Return the jobs that are used, in their order."""
        return [job for job in jobs if not self.objection(job)]

    def left_out(self, jobs: Iterable[TraceJob]) -> Counter[str]:
        """Return how many jobs are not used, by reason."""
        return Counter(reason for job in jobs if (reason := self.objection(job)))

    def in_window(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """Return the jobs with their submissions counted from the start of the window [s]."""
        return [job._replace(submit_time=job.submit_time - self.start * HOUR) for job in jobs]

    def objection(self, job: TraceJob) -> str:
        """Return why a job is not used, the first reason there is; empty if it is."""
        end = inf if self.hours is None else self.hours * HOUR
        if not 0 <= job.submit_time - self.start * HOUR < end:
            return "submitted outside the window"
        if self.statuses is not None and job.status is not None and job.status not in self.statuses:
            return f"status {job.status}"
        return "no GPU" if job.num_gpus <= 0 else self._objection_to_size(job)

    def _objection_to_size(self, job: TraceJob) -> str:
        if job.duration is None:
            return "no duration in the trace"
        if job.duration < self.min_duration:
            return f"shorter than {self.min_duration:g} s"
        if job.gpu_time >= self.max_gpu_hours * HOUR:
            return f"{self.max_gpu_hours:g} GPU-hours or more"
        return ""


class UniqueNames:
    """Names for jobs of a log, in which some logs use a name again: the first job keeps it, the others get a number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._given = set(names)
        self._seen = Counter[str]()

    def next_of(self, name: str) -> str:
        """Return the name of the next job that the log calls so."""
        self._seen[name] += 1
        if self._seen[name] == 1:
            return name
        while (numbered := f"{name}#{self._seen[name]}") in self._given:
            self._seen[name] += 1
        self._given.add(numbered)
        return numbered


def shared(name: str | None) -> str | None:
    """Return a name such that many jobs share one copy of it; None if it says nothing."""
    return intern(name) if name and name.strip() else None
