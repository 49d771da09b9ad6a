"""Select the jobs of a log, and give each job a unique name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from sys import intern
from typing import TYPE_CHECKING, Annotated

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import invalid_setting
from polluxsim.common.values import OneOf, Range
from polluxsim.common.written import GpuHours, Hours, Seconds, takes_settings
from polluxsim.logs.formats.base import JobStatus
from polluxsim.workloads.past import at_cut
from polluxsim.workloads.source import LENGTH, START

if TYPE_CHECKING:
    from polluxsim.logs.trace_table import TraceJob


OUTSIDE = "submitted outside the window"
AT_START = ", running or waiting at the start of the window"  # addition to the reason for a job from before the window


@takes_settings("workload.select")
@dataclass(frozen=True)
class Selection:
    """Selection of the jobs of a trace. Raise InvalidConfigError if a parameter is invalid."""

    start: Annotated[Hours, START] = 0.0  # start of the window, counted from the trace's first submission [h]
    hours: Annotated[Hours, LENGTH] | None = None  # length of the window [h]; null is to the end
    min_duration: Annotated[Seconds, Range(least=0)] = 60.0  # shortest duration [s]
    # Jobs with this GPU time or more are left out [GPU h].
    max_gpu_hours: Annotated[GpuHours, Range(above=0, most=inf)] = 1000.0
    # States of jobs at their end; null is any state. Jobs without a state in the trace are used.
    statuses: Sequence[Annotated[str, OneOf(*(status.value for status in JobStatus))]] | None = ("completed",)

    def __post_init__(self) -> None:
        if isinstance(self.statuses, str) or not isinstance(self.statuses, Sequence | None):
            raise invalid_setting("workload.select.statuses", self.statuses, "a list like [completed], or null")

    def select(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """Return the selected jobs in their order."""
        return [job for job in jobs if not self.objection(job)]

    def left_out(self, jobs: Iterable[TraceJob]) -> Counter[str]:
        """Return the number of jobs that are left out, by reason."""
        return Counter(filter(None, map(self.objection, jobs)))

    def before(self, jobs: Iterable[TraceJob]) -> list[tuple[TraceJob, str, float]]:
        """Return the selected jobs from before the window that run or wait at its start.

        Each has its state and its start, as `at_cut` returns them, and its submission from the start of the window [s].
        """
        cut = self.start * HOUR
        jobs_before = []
        for job in jobs:
            if job.submit_time >= cut:
                break  # the jobs are in order of submission
            state = self._at_start(job)
            if state is not None and not self._objection_in_any_window(job):
                jobs_before.append((job._replace(submit_time=job.submit_time - cut), *state))
        return jobs_before

    def in_window(self, jobs: Iterable[TraceJob]) -> list[TraceJob]:
        """Return the jobs with submissions from the start of the window [s]."""
        return [job._replace(submit_time=job.submit_time - self.start * HOUR) for job in jobs]

    def objection(self, job: TraceJob) -> str:
        """Return the first reason to leave out a job; empty for a selected job."""
        length = inf
        if self.hours is not None:
            length = self.hours * HOUR
        objection = self._objection_in_any_window(job)
        if 0 <= job.submit_time - self.start * HOUR < length:
            return objection
        if objection and self._at_start(job) is not None:
            return objection + AT_START
        return OUTSIDE

    def _at_start(self, job: TraceJob) -> tuple[str, float] | None:
        """Return the state and the start of a job from before the window, as `at_cut` does; None for other jobs."""
        cut = self.start * HOUR
        if job.submit_time >= cut:
            return None
        return at_cut(job.submit_time, job.queueing_delay, job.duration, cut)

    def _objection_in_any_window(self, job: TraceJob) -> str:
        """Return the first reason to leave out a job whenever it was submitted; empty if there is none."""
        if self.statuses is not None and job.status is not None and job.status not in self.statuses:
            return f"status {job.status}"
        if job.num_gpus <= 0:
            return "no GPU"
        if job.duration is None:
            return "no duration in the trace"
        if job.duration < self.min_duration:
            return f"shorter than {self.min_duration:g} s"
        if job.gpu_time >= self.max_gpu_hours * HOUR:
            return f"{self.max_gpu_hours:g} GPU-hours or more"
        return ""


class UniqueNames:
    """Unique names for the jobs of a log: the first job with a name keeps it, and later jobs get a number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._given = set(names)
        self._seen = Counter[str]()

    def next_of(self, name: str) -> str:
        """Return the unique name of the next job with this name in the log."""
        self._seen[name] += 1
        if self._seen[name] == 1:
            return name
        numbered = f"{name}#{self._seen[name]}"
        while numbered in self._given:  # another job of the log may have this name
            self._seen[name] += 1
            numbered = f"{name}#{self._seen[name]}"
        self._given.add(numbered)
        return numbered


def shared(name: str | None) -> str | None:
    """Return an interned name, to save memory; None if it is blank."""
    if not name or not name.strip():
        return None
    return intern(name)
