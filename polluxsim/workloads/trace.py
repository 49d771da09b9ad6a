"""Replay of a cluster log: rigid jobs, each with the GPUs and the duration of the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from polluxsim.common.dates import FORMS, Date, Origin, read_date
from polluxsim.common.durations import HOUR
from polluxsim.common.errors import (
    InvalidConfigError,
    InvalidInputError,
    bad_line,
    did_you_mean,
    invalid_setting,
    listed,
)
from polluxsim.common.values import FiniteFloat, NonNegativeInt, OneOf, PositiveFloat, PositiveInt, PositiveShare, Range
from polluxsim.common.written import Hours, Name, takes_settings
from polluxsim.hardware.gpu_types import NamedTypes
from polluxsim.logs.formats.base import JobStatus
from polluxsim.logs.trace_table import TraceInfo, TraceJob, dates_of, read_info, read_trace
from polluxsim.models.profile import Profile
from polluxsim.workloads.past import Past, StateAtStart, at_cut
from polluxsim.workloads.selection import AT_START, UniqueNames, shared
from polluxsim.workloads.source import LENGTH, START, check_gpu_types
from polluxsim.workloads.workload import InvalidJobError, Job, Workload

QUEUES = ("tenant", "partition", "user", "qos")  # fields of a log that can name the queue of a job

OUTSIDE = "jobs submitted outside the window left out"

LEAST_SHARE = 0.95  # share of the last piece of a resampled log that must be in the log


@takes_settings("workload")
@dataclass(frozen=True)
class TraceReplay:
    """Jobs of an imported trace.

    Jobs without GPUs or without a known duration are left out. A job with a share of a GPU gets a whole GPU. The notes
    of the workload count both.

    Jobs that were submitted before the window and run or wait at its start are in the replay too, with their state at
    that time (`Job.past`). They compete with the jobs of the window, and no metric counts them. All settings apply to
    them but `load_factor` and `most_jobs`.

    Raise InvalidConfigError if a parameter is invalid.
    """

    path: str  # file that `polluxsim log import` or `polluxsim workload` wrote (.parquet)
    # GPUs of the largest job; larger jobs are left out and counted. With None, all jobs must fit the cluster.
    most_gpus: PositiveInt | None = None
    most_jobs: PositiveInt | None = None  # largest number of jobs, counted from the first job; None uses all
    # Whether cancelled jobs of the log are cancelled at their time in the log, even if they wait longer. Otherwise they
    # run for their time in the log.
    cancel: bool = False
    start: Annotated[Hours, START] = 0.0  # start of the window, counted from the first submission of the log [h]
    hours: Annotated[Hours, LENGTH] | None = None  # length of the window [h]; None is to the end
    since: str | None = None  # date of the start of the window, like 2026-03-02, in place of `start`
    until: str | None = None  # date of the end of the window, like 2026-03-09T12:00, in place of `hours`
    load_factor: PositiveFloat = 1.0  # arrival-rate multiplier [1]
    # Part of the jobs to draw [1]: a quarter of the log for a cluster of a quarter of its size.
    share: PositiveShare = 1.0
    # Length of the pieces into which the log is cut [h], like 168 for weeks. The same number of pieces is drawn with
    # replacement for each seed and replayed one after the other. The last piece counts if the log contains 95 % of it.
    # None replays the log in its order.
    resample_hours: Annotated[Hours, Range(above=0)] | None = None
    seed: NonNegativeInt = 0  # seed of both draws
    queue: Annotated[str, OneOf(*QUEUES)] = "tenant"  # field of the log with the queues of the jobs
    # GPU type for each type in the log, in addition to the known names (`polluxsim.hardware.gpu_types.OTHER_NAMES`); an
    # empty name means any type. None lets all jobs use any type.
    gpu_types: Mapping[Name, Name] | None = field(default_factory=dict)
    # Priority of each QOS of the log, in place of the priority in the log. A job whose QOS is missing here keeps the
    # priority in the log, or 0.
    priorities: Mapping[Name, FiniteFloat] = field(default_factory=dict)
    # Whether jobs request the nodes and the GPUs per task that the log states. Otherwise they request only GPUs.
    node_requests: bool = True

    def __post_init__(self) -> None:
        self._check_dates()
        check_gpu_types(self.gpu_types)
        if not isinstance(self.priorities, Mapping):
            raise invalid_setting("workload.priorities", self.priorities, "a mapping, like {LS: 2, BE: 0}")

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Return the jobs of the window, and those that run or wait at its start.

        Raise InvalidInputError if the file is no trace or has no such job, and InvalidConfigError if a setting
        contradicts the trace.
        """
        if self.since is not None or self.until is not None:
            return self._in_dates(read_info(Path(self.path))).load(profiles)
        notes = Counter[str]()
        info, logged = read_trace(Path(self.path))
        self._check_priorities(logged)
        self._check_queue(logged)
        reading = self._reading_of(logged)
        before = tuple(self._jobs_before(reading, self.start * HOUR))
        rows_before = set[int]()
        if self.resample_hours is None:
            rows_before = {job.line for job in before}
        jobs = tuple(self._jobs(reading, rows_before, notes))
        if not jobs:
            raise InvalidInputError(f"{self.path}: the log has no job with GPUs and a known duration in this window")
        if self.resample_hours is not None:
            length = self.resample_hours * HOUR / self.load_factor
            end = max(job.submit_time for job in jobs)
            if self.hours is not None:  # pieces after the end of the log do not count
                whole = (max(map(self._submit_time, logged)) // length + 1) * length
                end = min(self.hours * HOUR / self.load_factor, whole)
            pieces = self._drawn_pieces(jobs, length, end, notes)
            first, _ = pieces[0]
            cut = (self.start + first * self.resample_hours) * HOUR
            before = tuple(self._jobs_before(self._reading_of(logged), cut))
            jobs = tuple(_one_after_the_other(pieces, length, before))
        else:
            jobs = (*before, *jobs)
        words = tuple(f"{count} {noun}" for noun, count in notes.items())
        return Workload(jobs, source=self.path, notes=words, origin=self._origin(info))

    def _check_queue(self, jobs: Sequence[TraceJob]) -> None:
        """Raise InvalidConfigError if the queue is a field that no job of the log has. Many logs have no tenants."""
        if self.queue != "tenant" and not any(getattr(job, self.queue) for job in jobs):
            raise InvalidConfigError(
                f"workload.queue is {self.queue!r}, but no job of the log {self.path} has a {self.queue}; leave it out"
            )

    def _check_dates(self) -> None:
        """Raise InvalidConfigError if an end of the window is no date, or is given twice."""
        for name, other in (("since", "start"), ("until", "hours")):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str) or read_date(value) is None:
                raise invalid_setting(f"workload.{name}", value, FORMS)
            if getattr(self, other):
                raise InvalidConfigError(f"workload.{name} and workload.{other} contradict each other; leave one out")

    def _in_dates(self, info: TraceInfo) -> TraceReplay:
        """Return the same replay, with the start and the length of the window in hours in place of their dates.

        Raise InvalidConfigError if the log has no dates, or the window begins before the log or is empty.
        """
        origin = dates_of(Path(self.path), info)
        if origin is None:
            dates = " and ".join(f"workload.{name}" for name in ("since", "until") if getattr(self, name) is not None)
            raise InvalidConfigError(
                f"{dates} cannot be used, because the log {self.path} has no dates; write workload.start and "
                "workload.hours"
            )
        start = self.start
        hours = self.hours
        if self.since is not None:
            start = _seconds("workload.since", self.since, origin) / HOUR
            if start < 0:
                raise InvalidConfigError(
                    f"workload.since is {self.since}, before the first submission of the log at {origin.text(0.0)}; "
                    "leave it out to begin there"
                )
        if self.until is not None:
            hours = _seconds("workload.until", self.until, origin) / HOUR - start
            if hours <= 0:
                begin = origin.text(start * HOUR)
                raise InvalidConfigError(
                    f"workload.until is {self.until}, must be later than the start of the window at {begin}"
                )
        return replace(self, start=start, hours=hours, since=None, until=None)

    def _origin(self, info: TraceInfo) -> Origin | None:
        """Return the date of second 0 of the replay; None if its times are not those of the log."""
        origin = dates_of(Path(self.path), info)
        if origin is None or self.load_factor != 1 or self.resample_hours is not None:
            return None
        return origin.later(self.start * HOUR)

    def _drawn_pieces(
        self, jobs: Sequence[Job], length: float, end: float, notes: Counter[str]
    ) -> list[tuple[int, list[Job]]]:
        """Return the numbers and the jobs of the drawn pieces of a length [s]; the log ends at `end` [s].

        Count the jobs after the last piece in `notes`. Raise InvalidConfigError if there are fewer than two pieces.
        """
        count = int(end / length + 1 - LEAST_SHARE)
        if count < 2:
            largest = f"{end * self.load_factor / HOUR / 2:.3g}"
            why = f"it needs two pieces of {self.resample_hours:g} h or more; give at most {largest}"
            raise InvalidConfigError(
                f"{self.path} is too short for workload.resample_hours={self.resample_hours:g}: {why}"
            )
        pieces: list[list[Job]] = [[] for _ in range(count)]
        for job in jobs:
            piece = int(job.submit_time // length)
            if piece < count:
                pieces[piece].append(job)
            else:
                notes["jobs after the last whole piece left out"] += 1
        # Another stream than that of `share`, so that neither draw depends on the other.
        drawn = np.random.default_rng([self.seed, 1]).integers(count, size=count).tolist()
        return [(piece, pieces[piece]) for piece in drawn]

    def _reading_of(self, jobs: Sequence[TraceJob]) -> _Reading:
        """Return a new reading of a log from its first job on."""
        drawn = np.random.default_rng(self.seed).random(len(jobs)) < self.share
        types = NamedTypes(self.gpu_types, (job.gpu_type for job in jobs))
        unique = UniqueNames(job.job for job in jobs)
        # A job keeps its name whatever other jobs are left out, so that replays can be compared job by job.
        names = [unique.next_of(job.job) for job in jobs]
        return _Reading(jobs, names, _Arrays(), types, drawn.tolist())

    def _jobs_before(self, reading: _Reading, cut: float) -> Iterator[Job]:
        """Yield the jobs that were submitted before a time of the log [s] and run or wait then.

        Their times count from then on. A job without a recorded wait counts as if it started at its submission.
        """
        for row, job in enumerate(reading.jobs, start=1):
            if job.submit_time >= cut:
                return
            if self._why_not(job, is_drawn=reading.is_drawn[row - 1]):
                continue
            name = reading.names[row - 1]
            state_and_start = at_cut(job.submit_time, job.queueing_delay, job.duration, cut)
            if state_and_start is None:
                continue
            state, start = state_and_start
            after = reading.arrays.before(job, name)
            past = Past.pending()
            if state == StateAtStart.RUNNING:
                past = Past.running(start, ceil(job.num_gpus))
                after = ()
            yield self._job(job, name, row, reading, job.submit_time - cut, after, past)

    def _jobs(self, reading: _Reading, rows_before: Collection[int], notes: Counter[str]) -> Iterator[Job]:
        """Yield the jobs of the window, and count the jobs that are left out or changed in `notes`.

        `_jobs_before` has read the jobs before the window. `rows_before` are the rows of those that are in the replay.
        """
        num_used = 0
        for row, job in enumerate(reading.jobs, start=1):
            if num_used == self.most_jobs:
                notes[f"jobs after the first {self.most_jobs} left out"] += len(reading.jobs) - row + 1
                return
            if row in rows_before:
                continue
            reason = self._why_not(job, is_drawn=reading.is_drawn[row - 1])
            if not self._is_in_window(job):
                reason = self._why_before(job, reason)
            if reason:
                notes[reason] += 1
                continue
            if job.num_gpus != ceil(job.num_gpus):
                notes["jobs with a share of a GPU given a whole one"] += 1
            num_used += 1
            name = reading.names[row - 1]
            yield self._job(job, name, row, reading, self._submit_time(job), reading.arrays.before(job, name), None)

    def _why_before(self, job: TraceJob, reason: str) -> str:
        """Return the reason to leave out a job outside the window, given the reason to leave it out in any window."""
        if reason and self._is_at_start(job):
            return reason + AT_START
        return OUTSIDE

    def _job(
        self,
        job: TraceJob,
        name: str,
        row: int,
        reading: _Reading,
        submit_time: float,
        after: tuple[str, ...],
        past: Past | None,
    ) -> Job:
        """Return the job of a row. Raise InvalidInputError if a value of the row is invalid."""
        num_gpus = ceil(job.num_gpus)
        num_nodes, gpus_per_task = self._node_request(job, num_gpus)
        try:
            return Job.rigid(
                name,
                submit_time,
                num_gpus,
                job.duration or 0.0,
                row,
                user=shared(job.user),
                queue=shared(getattr(job, self.queue)),
                time_limit=job.time_limit or None,
                after=after,
                cancel_time=self._cancel_time(job, submit_time),
                gpu_types=reading.types.of(job.gpu_type),
                cpus=job.cpus or None,
                memory=job.memory or None,
                priority=float(self.priorities.get(job.qos or "", job.priority or 0.0)),
                job_name=shared(job.application),
                qos=shared(job.qos),
                num_nodes=num_nodes,
                gpus_per_task=gpus_per_task,
                past=past,
            )
        except InvalidJobError as error:
            raise bad_line(self.path, row, str(error)) from None

    def _node_request(self, job: TraceJob, num_gpus: int) -> tuple[int | None, int | None]:
        """Return the number of nodes and the GPUs per task that a job requests; None for what the log does not say.

        The nodes count only if each of them can have a GPU of the job: some nodes of a job have no GPUs.
        """
        if not self.node_requests:
            return None, None
        if job.gpus_per_task and num_gpus % job.gpus_per_task == 0:
            return None, job.gpus_per_task
        if job.num_nodes and job.num_nodes <= num_gpus:
            return job.num_nodes, None
        return None, None

    def _check_priorities(self, jobs: Sequence[TraceJob]) -> None:
        """Raise InvalidConfigError if `priorities` names a QOS that is not in the log."""
        if not self.priorities:  # the usual case, in which the QOS of millions of jobs need not be collected
            return
        log_qos = {job.qos for job in jobs if job.qos}
        unknown = sorted(set(self.priorities) - log_qos)
        if unknown:
            existing = "its jobs have no QOS"
            if log_qos:
                existing = f"its QOS are {listed(sorted(log_qos))}"
            raise InvalidConfigError(
                f"workload.priorities names QOS {unknown[0]!r}, which is not in the log: {existing}"
                f"{did_you_mean(unknown[0], log_qos)}"
            )

    def _cancel_time(self, job: TraceJob, submit_time: float) -> float | None:
        """Return the time of the replay at which a job is cancelled, as long after its submission as in the log [s].

        Return None for a job that was not cancelled, or at an unknown time, and if cancellations do not count.
        """
        if not self.cancel or job.status != JobStatus.CANCELLED or job.queueing_delay is None or job.duration is None:
            return None
        # A log can have a wait below 0, because a clock was wrong.
        return max(submit_time, submit_time + job.queueing_delay + job.duration)

    def _submit_time(self, job: TraceJob) -> float:
        """Return the submission of a job in the replay, counted from the start of the window [s]."""
        return (job.submit_time - self.start * HOUR) / self.load_factor

    def _is_in_window(self, job: TraceJob) -> bool:
        """Return whether a job was submitted in the window."""
        end = inf
        if self.hours is not None:
            end = (self.start + self.hours) * HOUR
        return self.start * HOUR <= job.submit_time < end

    def _is_at_start(self, job: TraceJob) -> bool:
        """Return whether a job from before the window runs or waits at its start."""
        cut = self.start * HOUR
        if job.submit_time >= cut or self.resample_hours is not None:
            return False
        return at_cut(job.submit_time, job.queueing_delay, job.duration, cut) is not None

    def _why_not(self, job: TraceJob, *, is_drawn: bool) -> str:
        """Return the reason to leave out a job in any window; empty for a job that a replay can have."""
        if not is_drawn:
            return "jobs not drawn left out"
        if not job.num_gpus:
            return "jobs without a GPU left out"
        if not job.duration:
            return "jobs without a known time on GPUs left out"
        if self.most_gpus is not None and job.num_gpus > self.most_gpus:
            return f"jobs with more than {self.most_gpus} GPUs left out"
        return ""


def _seconds(setting: str, text: str, origin: Origin) -> float:
    """Return the time of the date of a setting [s from the first submission of the log].

    Raise InvalidConfigError if the clocks were moved, so that the date occurs twice or never.
    """
    date = read_date(text)
    assert date is not None  # the settings are checked
    try:
        return origin.seconds(Date(f"{setting} is {text}, which", date.time))
    except InvalidInputError as error:
        raise InvalidConfigError(str(error)) from None


class _Reading(NamedTuple):
    """The jobs of a log, and what remains equal or is counted while they are read in order."""

    jobs: Sequence[TraceJob]
    names: Sequence[str]  # name of each job in the replay
    arrays: _Arrays
    types: NamedTypes
    is_drawn: Sequence[bool]  # whether each job is in the drawn share of the jobs


def _one_after_the_other(
    pieces: Sequence[tuple[int, Sequence[Job]]], length: float, before: Sequence[Job]
) -> Iterator[Job]:
    """Yield the jobs of pieces of a log, one piece after the other; each piece has a number and a length [s].

    `before` are the jobs that run or wait at the start of the first piece.
    """
    for index, (number, jobs) in enumerate(pieces):
        ending = f"~{index + 1}"  # a piece may be drawn several times, and the names of jobs are unique
        earlier: Sequence[Job] = ()
        if index == 0:
            earlier = before
        names = {job.job_id: f"{job.job_id}{ending}" for job in (*earlier, *jobs)}
        yield from _moved(earlier, 0.0, names)
        yield from _moved(jobs, (index - number) * length, names)


def _moved(jobs: Sequence[Job], later: float, names: Mapping[str, str]) -> Iterator[Job]:
    """Yield jobs with later submissions [s] and with new names, given by their present names."""
    for job in jobs:
        cancel_time = job.cancel_time
        if cancel_time is not None:
            cancel_time += later
        # Jobs of another piece cannot be waited for.
        after = tuple(names[name] for name in job.after if name in names)
        submit_time = job.submit_time + later
        yield replace(job, job_id=names[job.job_id], submit_time=submit_time, cancel_time=cancel_time, after=after)


class _Arrays:
    """Job arrays with a limit of running jobs: with limit n, each job waits for the n-th job before it."""

    def __init__(self) -> None:
        self._members = defaultdict[str, list[str]](list)

    def before(self, job: TraceJob, name: str) -> tuple[str, ...]:
        """Return the name of the job that a job waits for, and remember the job by its `name` in the replay.

        Return no name for a job that waits for none.
        """
        if not job.array_limit:
            return ()
        members = self._members[job.job.partition("_")[0]]
        members.append(name)
        if len(members) <= job.array_limit:
            return ()
        return (members[-1 - job.array_limit],)
