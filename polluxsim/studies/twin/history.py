"""Earlier jobs of a cluster, and draws of run times and arrivals from them.

Earlier jobs come from an output of sacct, a recorded run, or the jobs in the queue that ended (`PastJob`). What is
known of them at the time of a state is a `JobHistory`. `Draws` draws run times, as shares of the time limit, from jobs
like the one that is drawn for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import DAY
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.phrases import number_of
from polluxsim.logs.formats.base import BadRowError, LogJob
from polluxsim.logs.formats.log_rows import read_rows
from polluxsim.logs.formats.slurm import SLURM
from polluxsim.logs.formats.slurm_jobs import parse_job
from polluxsim.logs.live.jobs import UNLIMITED
from polluxsim.logs.live.state import SlurmState
from polluxsim.studies.decisions.record import RecordedJob
from polluxsim.studies.decisions.sources import read_record
from polluxsim.studies.twin.asks import Ask, NodeNeeds

LONGEST = 3 * DAY  # arrivals are drawn from this time before the state, and for this time after it, at most [s]
MOST_JOBS = 20_000  # latest jobs of a history that are used
OF_GROUP = 4.0  # earlier jobs of a group that have the same weight as all jobs of the next larger group
OF_ALL = 1.0  # weight of the assumption that each share of the limit is equally likely, in jobs
CHECK = 30  # slurmctld checks the limits of jobs after this time [s]


class PastJob(NamedTuple):
    """An earlier job. Times are seconds since 1970-01-01 UTC."""

    name: str
    ask: Ask
    account: str
    submit: int
    end: int  # 0 if it has not ended
    duration: float  # [s]; 0 if it has not ended


@dataclass(frozen=True)
class JobHistory:
    """Earlier jobs that are known at the time of a state."""

    jobs: Sequence[PastJob]  # in the order of submission
    now: int  # [s since 1970-01-01 UTC]
    notes: Sequence[str] = ()

    @property
    def ended(self) -> list[PastJob]:
        """Return the latest jobs that have ended, at most `MOST_JOBS`, in the order of submission."""
        return [job for job in self.jobs if job.end][-MOST_JOBS:]

    @cached_property
    def span(self) -> float:
        """Return the time before the state whose submissions are known [s], at most `LONGEST`."""
        first = min((job.submit for job in self.jobs), default=self.now)
        return float(min(max(self.now - first, 0), LONGEST))

    @cached_property
    def recent(self) -> list[PastJob]:
        """Return the jobs that were submitted within `span` before the state."""
        first = self.now - self.span
        return [job for job in self.jobs if job.submit >= first]


def known_at(jobs: Iterable[PastJob], now: int, notes: Sequence[str] = ()) -> JobHistory:
    """Return what is known of jobs at a time: jobs that were submitted, and ends until then.

    A note counts the jobs that end later, whether or not they were submitted.
    """
    submitted = []
    num_later = 0
    for job in sorted(jobs, key=lambda job: job.submit):
        ends_later = job.end > now
        if ends_later:
            num_later += 1
        if job.submit > now:
            continue
        # At that time, the job waits or runs.
        submitted.append(job._replace(end=0, duration=0.0) if ends_later else job)
    more = []
    if num_later:
        more.append(f"history: {number_of(num_later, 'job')} that end after the state are ignored")
    return JobHistory(submitted, now, [*notes, *more])


def read_history(path: Path, zone: tzinfo = UTC) -> tuple[list[PastJob], list[str]]:
    """Return the jobs of an output of sacct or of a recorded run, and sentences on jobs that are left out.

    Raise InvalidInputError if the file is neither.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; give an output of sacct --parsable2, or a recorded run")
    # A recorded run is CSV with commas, and sacct is asked for bars.
    with path.open("rb") as file:
        is_sacct = b"|" in file.readline()
    if is_sacct:
        return _of_sacct(path, zone)
    record = read_record(path).record
    notes = []
    if record.zero is None:
        notes.append(f"{path.name}: its times have no date, so its jobs count as jobs of the last 3 days; state t0 in "
                     f"{path.with_suffix('.json').name}")  # fmt: skip
    zero = record.zero if record.zero is not None else 0.0
    return [of_record(job, zero + record.fraction) for job in record.jobs], notes


def of_record(job: RecordedJob, zero: float) -> PastJob:
    """Return a job of a recorded run, whose second 0 has an epoch time."""
    kind = NodeNeeds((job.partition,) if job.partition else (), job.gpu_type)
    ask = Ask(len(job.nodes), job.gpus_by_node[0], 1, False, job.limit, job.user, kind)
    submit, end = round(job.submitted + zero), round(job.end + zero)
    return PastJob(job.name, ask, "", submit, end, float(job.end - job.start))


def _of_sacct(path: Path, zone: tzinfo) -> tuple[list[PastJob], list[str]]:
    """Return the jobs of an output of sacct. Rows that cannot be read are counted."""
    jobs = []
    left_out = Counter[str]()
    for row in read_rows(path, SLURM.layout, zone):
        if isinstance(row, BadRowError):
            left_out["cannot be read"] += 1
            continue
        try:
            job = parse_job(row)
        except BadRowError:
            left_out["cannot be read"] += 1
            continue
        if not isinstance(job, LogJob):
            left_out[job.reason] += 1
            continue
        # Without the column, the state of a job tells whether it ended.
        has_ended = row.has("End") if "End" in row.values else row.values.get("State", "") != "RUNNING"
        jobs.append(_past(job, has_ended=has_ended))
    return jobs, [f"{path.name}: {count} rows are left out: {reason}" for reason, count in left_out.items()]


def _past(job: LogJob, *, has_ended: bool) -> PastJob:
    """Return a job of sacct. A job without a number of nodes counts as one on a single node."""
    values = dict(zip(SLURM.extras, job.extras, strict=True))

    def number(key: str) -> float | None:
        value = values.get(key)
        return float(value) if isinstance(value, int | float) else None

    num_nodes = int(number("num_nodes") or 1)
    limit = int(number("time_limit") or UNLIMITED)
    cpus = max(int(number("cpus") or num_nodes) // num_nodes, 1)
    partition = values.get("partition")
    kind = NodeNeeds((str(partition),) if partition else ())
    ask = Ask(num_nodes, ceil(job.num_gpus / num_nodes), cpus, False, limit, job.user or "", kind)
    duration = job.duration or 0.0
    end = 0
    if has_ended and duration:
        end = round(job.submitted + (number("queueing_delay") or 0.0) + duration)
    return PastJob(job.job, ask, job.tenant or "", round(job.submitted), end, duration)


def of_queue(state: SlurmState, ask_of: Callable[..., Ask]) -> list[PastJob]:
    """Return the jobs of the queue as earlier jobs: those that ended are still there for some minutes."""
    jobs = []
    for job in state.jobs:
        end = 0
        duration = 0.0
        # A job that was cancelled before it started has no run time.
        has_run = job.start and job.end >= job.start
        if has_run and not job.is_pending and not job.is_running:
            end = job.end
            duration = float(job.end - job.start)
        jobs.append(PastJob(job.name, ask_of(job), job.account, job.submit, end, duration))
    return jobs


# Draws


@dataclass
class _Group:
    """Ended jobs of a group by the share of their limit that they ran."""

    shares: NDArray[np.float64]  # rising
    places: NDArray[np.int64]  # in the history


class Draws:
    """Draws of run times for one future. Each future weights the earlier jobs differently, as a bootstrap does.

    A run time is a share of the limit. It comes from the earlier jobs of the same user and size, of the same user, of
    the same account, of the same size, or of all. Large groups win, because each has the weight of its jobs.
    """

    def __init__(self, groups: Groups, rng: np.random.Generator) -> None:
        self._groups = groups
        self._rng = rng
        self._weights = rng.exponential(size=groups.num_jobs)
        self._sums: dict[tuple[object, ...], NDArray[np.float64]] = {}

    def duration(self, ask: Ask, account: str, elapsed: float = 0.0) -> int:
        """Return the whole run time of a job that has run for some time [s], as whole seconds above that time."""
        rng = self._rng
        if ask.limit >= UNLIMITED:
            return self._without_limit(elapsed)
        # A job that is over its limit, or reaches it, ends when slurmctld next checks.
        if elapsed >= ask.limit:
            return int(elapsed + rng.uniform(1, CHECK))
        share = self._share(self._groups.keys_of(ask, account), elapsed / ask.limit)
        if share >= 1:
            return int(ask.limit + rng.uniform(0, CHECK))
        return max(int(share * ask.limit), int(elapsed) + 1, 1)

    def _share(self, keys: Sequence[tuple[object, ...]], least: float) -> float:
        """Return a drawn share of the limit that is above `least`. `keys` are groups of the job, the smallest first.

        The distribution of each group is mixed with that of the next larger group. Given that the job still runs, a
        group counts by the weight of its jobs that ran longer.
        """
        u = self._rng.uniform()
        ahead = [self._ahead(key, least) for key in keys]
        # Probability that a job of each mixture runs longer, from the largest group to the smallest.
        survival = 1.0 - min(least, 1.0)
        rest = OF_ALL
        beyond: list[float] = []
        for total, longer in reversed(ahead):
            beyond.append(survival)
            survival = (longer + rest * survival) / (total + rest) if total + rest else survival
            rest = OF_GROUP
        beyond.reverse()
        # One uniform number decides all: which group, and then which job of it.
        for level, (key, (_, longer)) in enumerate(zip(keys, ahead, strict=True)):
            other = (OF_ALL if level + 1 == len(keys) else OF_GROUP) * beyond[level]
            if longer + other <= 0:
                continue
            part = longer / (longer + other)
            if u < part:
                return self._drawn(key, least, u / part)
            u = (u - part) / (1 - part)
        return least + (1.0 - least) * u

    def _sum(self, key: tuple[object, ...]) -> NDArray[np.float64]:
        """Return the sums of the weights of a group, in the order of the shares."""
        if key not in self._sums:
            group = self._groups.by_key[key]
            self._sums[key] = np.concatenate(([0.0], np.cumsum(self._weights[group.places])))
        return self._sums[key]

    def _ahead(self, key: tuple[object, ...], least: float) -> tuple[float, float]:
        """Return the weight of a group, and of its jobs with a larger share."""
        group = self._groups.by_key.get(key)
        if group is None:
            return 0.0, 0.0
        sums = self._sum(key)
        first = int(np.searchsorted(group.shares, least, side="right"))
        return float(sums[-1]), float(sums[-1] - sums[first])

    def _drawn(self, key: tuple[object, ...], least: float, u: float) -> float:
        """Return the share of a drawn job of a group, among those with a share above `least`.

        `u` is a uniform number in [0, 1), which is looked up among the weights.
        """
        group = self._groups.by_key[key]
        sums = self._sum(key)
        first = int(np.searchsorted(group.shares, least, side="right"))
        weight = sums[first] + u * (sums[-1] - sums[first])
        place = int(np.searchsorted(sums, weight, side="right")) - 1
        # Rounding must not lead out of the jobs with a larger share.
        place = min(max(place, first), len(group.shares) - 1)
        return float(group.shares[place])

    def _without_limit(self, elapsed: float) -> int:
        """Return the run time of a job without a limit: that of an earlier job that ran longer.

        If none ran longer, the job runs twice as long as it has so far, and an hour more.
        """
        longer = self._groups.durations[self._groups.durations > elapsed]
        if not len(longer):
            return int(2 * elapsed) + 3600
        return int(self._rng.choice(longer))


@dataclass
class Groups:
    """Ended jobs by group. Jobs without a limit are in no group, because they have no share of it."""

    jobs: Sequence[PastJob]
    by_key: dict[tuple[object, ...], _Group] = field(init=False)
    durations: NDArray[np.float64] = field(init=False)  # of all jobs, rising [s]

    def __post_init__(self) -> None:
        members: dict[tuple[object, ...], list[tuple[float, int]]] = {}
        for place, job in enumerate(self.jobs):
            if job.ask.limit >= UNLIMITED:
                continue
            share = job.duration / job.ask.limit
            for key in self.keys_of(job.ask, job.account):
                members.setdefault(key, []).append((share, place))
        self.by_key = {}
        for key, pairs in members.items():
            shares, places = zip(*sorted(pairs), strict=True)
            self.by_key[key] = _Group(np.array(shares), np.array(places))
        self.durations = np.sort(np.array([job.duration for job in self.jobs], float))

    @property
    def num_jobs(self) -> int:
        """Return the number of jobs."""
        return len(self.jobs)

    @staticmethod
    def keys_of(ask: Ask, account: str) -> list[tuple[object, ...]]:
        """Return the groups of a job, the smallest first."""
        # Sizes between two powers of two are alike.
        size = (ask.num_nodes * ask.gpus).bit_length()
        keys: list[tuple[object, ...]] = []
        if ask.user:
            keys += [("user", ask.user, size), ("user", ask.user)]
        if account:
            keys.append(("account", account))
        return [*keys, ("size", size), ("all",)]


class Arrival(NamedTuple):
    """A job that arrives in a future."""

    ask: Ask
    account: str
    submit: int  # [s]
    duration: int | None = None  # [s]; None to draw it


def drawn_arrivals(history: JobHistory, rng: np.random.Generator) -> list[Arrival]:
    """Return later jobs, drawn from the recent ones, for as long as these are known; in the order of submission."""
    recent = history.recent
    span = history.span
    if not recent or span <= 0:
        return []
    # The rate is uncertain too, most of all after few arrivals.
    expected = rng.gamma(len(recent))
    times = np.sort(rng.uniform(0, span, rng.poisson(expected)))
    arrivals = []
    for time in times:
        job = recent[int(rng.integers(len(recent)))]
        arrivals.append(Arrival(job.ask, job.account, history.now + 1 + int(time)))
    return arrivals


def shifted(jobs: Sequence[PastJob], now: int) -> list[PastJob]:
    """Return jobs without dates as if the last one had just been submitted. No end is then later than now."""
    last = max((job.submit for job in jobs), default=0)
    moved = []
    for job in jobs:
        end = job.end + now - last
        moved.append(job._replace(submit=job.submit + now - last, end=min(end, now) if job.end else 0))
    return moved
