"""Likely causes of waits that no replay explains, with the evidence that the log has for each of them.

A log does not say why a job waited. Each cause has a state of the cluster in which it makes jobs wait, and its share is
that of the waiting time which falls into this state. A state may have several causes, so shares do not add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import DAY, HOUR, length
from polluxsim.logs.formats.base import RowReason
from polluxsim.logs.trace_table import TraceJob
from polluxsim.metrics.outcomes import how_often, number_of

Array = NDArray[np.float64]

LEAST_SHARE = 0.05  # share of the waiting time below which a cause is not named [1]
LEAST_TIMES = 3  # a limit that was reached less often may be chance
LEAST_CPU_SHARE = 0.02  # share of the rows of a log below which jobs without GPUs are not named [1]
FEW_GPUS = 0.9  # share of the GPUs of a cluster: a day whose peak use is below it hints at missing nodes [1]
MOST_NAMES = 3  # largest number of names in a sentence
PLANNING = ("easy", "conservative", "slurm", "multifactor")
"""Policies that plan with time limits."""


class Cause(NamedTuple):
    """A likely cause of waits."""

    name: str  # of the kind of cause
    share: float  # of the waiting time of all jobs that is consistent with this cause and not with busy GPUs [1]
    sentence: str  # the cause with its evidence
    is_symptom: bool = False  # whether the other causes may be the reason of this one


class Use(NamedTuple):
    """The jobs of a log that waited for a known time and held GPUs for a known time. All arrays have shape (jobs,)."""

    jobs: Sequence[TraceJob]
    submit: Array  # [s]
    start: Array  # [s]
    end: Array  # [s]
    gpus: Array

    @classmethod
    def of(cls, jobs: Sequence[TraceJob]) -> Use:
        """Return the use by the jobs whose waits and durations are known."""
        chosen = [job for job in jobs if _has_known_times(job)]
        submit = np.array([job.submit_time for job in chosen])
        start = submit + np.array([job.queueing_delay for job in chosen], dtype=float)
        end = start + np.array([job.duration for job in chosen], dtype=float)
        gpus = np.array([job.num_gpus for job in chosen])
        return cls(chosen, submit, start, end, gpus)

    def only(self, which: NDArray[np.bool_]) -> Use:
        """Return the use by some of the jobs; `which` has shape (jobs,)."""
        jobs = [self.jobs[index] for index in np.flatnonzero(which).tolist()]
        return Use(jobs, self.submit[which], self.start[which], self.end[which], self.gpus[which])

    @property
    def peak(self) -> float:
        """Return the largest number of GPUs in use at once; 0 without jobs."""
        if not self.jobs:
            return 0.0
        times = np.concatenate([self.start, self.end])
        changes = np.concatenate([self.gpus, -self.gpus])
        _, in_use = _sums(times, changes)
        return float(in_use.max())


def _has_known_times(job: TraceJob) -> bool:
    """Return whether a job waited for a known time and then held GPUs for a known time."""
    wait = job.queueing_delay
    return wait is not None and wait >= 0 and job.num_gpus > 0 and bool(job.duration)


def _sums(times: Array, changes: Array) -> tuple[Array, Array]:
    """Return the distinct times, rising, and the running sum of the changes from each time on.

    Changes at the same time count together, so GPUs that pass from one job to the next are never counted twice.
    """
    distinct, index = np.unique(times, return_inverse=True)
    return distinct, np.cumsum(np.bincount(index, changes))


def _at(times: Array, sums: Array, grid: Array) -> Array:
    """Return running sums, which change at `times`, from each time of a grid on; 0 before the first change."""
    index = np.searchsorted(times, grid, side="right")
    return np.concatenate([[0.0], sums])[index]


class WaitOccupancy:
    """GPUs in use over time, and how long jobs wait in a given state of the cluster.

    `grid` has the times at which the state changes: each submission, start and end, rising [s]. The state is constant
    from each time of the grid to the next one, so conditions on it are arrays of shape (times of the grid,).
    """

    def __init__(self, use: Use) -> None:
        self.use = use
        self.grid = np.unique(np.concatenate([use.submit, use.start, use.end]))
        # Nothing waits or runs after the last time, so the state from then on has no length.
        self.lengths = np.append(np.diff(self.grid), 0.0)
        self.in_use = self.held_by(use)
        # Submissions and starts are times of the grid, so these are the indices of the equal times.
        self._first = np.searchsorted(self.grid, use.submit)
        self._last = np.searchsorted(self.grid, use.start)
        self.waiting_time = float((use.start - use.submit).sum())

    def held_by(self, use: Use) -> Array:
        """Return the GPUs that some jobs hold from each time of the grid on."""
        return self._over_time(use.start, use.end, use.gpus)

    def largest_waiting(self, use: Use) -> Array:
        """Return the GPUs of the largest of some jobs that wait from each time of the grid on; 0 if none waits."""
        largest = np.zeros(len(self.grid))
        # The sizes rise, so a larger job that waits replaces the smaller ones.
        for gpus in np.unique(use.gpus):
            has_size = use.gpus == gpus
            waiting = self._over_time(use.submit[has_size], use.start[has_size], np.ones(int(has_size.sum())))
            largest = np.where(waiting > 0, gpus, largest)
        return largest

    def _over_time(self, first: Array, last: Array, values: Array) -> Array:
        """Return the sum of the values that count from `first` to `last` [s], from each time of the grid on."""
        times, sums = _sums(np.concatenate([first, last]), np.concatenate([values, -values]))
        return _at(times, sums, self.grid)

    def wait_while(self, which: NDArray[np.bool_], holds: NDArray[np.bool_]) -> float:
        """Return how long some jobs wait in all while a condition holds [job s].

        `which` has shape (jobs,), and `holds` has the condition from each time of the grid on.
        """
        # How long the condition held up to each time of the grid. The wait of a job is the difference of two values,
        # which takes one step for each job, however many times of the grid the wait contains.
        passed = np.concatenate([[0.0], np.cumsum(self.lengths * holds)])
        return float((passed[self._last[which]] - passed[self._first[which]]).sum())

    def share_of_waits_while(self, holds: NDArray[np.bool_]) -> float:
        """Return the share of the waiting time of all jobs in which a condition holds [1]."""
        everything = np.ones(len(self.use.jobs), dtype=bool)
        return self.wait_while(everything, holds) / self.waiting_time


def likely_causes(jobs: Sequence[TraceJob], gpus: int, left_out: Mapping[str, int]) -> list[Cause]:
    """Return the likely causes of the waits of a log, those with the largest share of the waiting time first.

    Symptoms, like idle GPUs, follow the causes. If no job waited, only dependencies and holds are named.

    `gpus` is the size of the cluster of the replay, and `left_out` has the number of rows of the log that are not jobs
    of the trace, by reason.
    """
    causes: list[Cause] = []
    use = Use.of(jobs)
    if use.jobs and (use.start > use.submit).any():
        occupancy = WaitOccupancy(use)
        causes += _limits(occupancy, gpus, "users", lambda job: job.user)
        causes += _limits(occupancy, gpus, "QOS", lambda job: job.qos)
        causes += _partitions(occupancy, gpus)
        causes += _without_gpus(occupancy, gpus, len(jobs), left_out)
        causes += _more_gpus(occupancy, gpus)
        causes += _fewer_gpus(occupancy, gpus)
        causes += _idle(occupancy, gpus)
    causes += _held_back(jobs)
    return sorted(causes, key=lambda cause: (cause.is_symptom, -cause.share))


def inferred_user_limit(jobs: Sequence[TraceJob], gpus: int) -> int | None:
    """Return the limit on the GPUs of each user that a log hints at; None if it hints at none.

    The limit is the largest number of GPUs that users held at once, among users who waited at this number while enough
    GPUs were idle. If these users have different numbers, the one with the longest waiting time counts. There is no
    limit if a job has more GPUs, if less than half of this waiting time belongs to the number, or if this waiting time
    is less than 5 % of that of all jobs.

    `gpus` is the size of the cluster.
    """
    use = Use.of(jobs)
    if not use.jobs or not (use.start > use.submit).any():
        return None
    occupancy = WaitOccupancy(use)
    limited = _owners_at_limit(occupancy, gpus, np.array([job.user or "" for job in use.jobs]))
    total = sum(owner.waited for owner in limited.values())
    if not limited or total / occupancy.waiting_time < LEAST_SHARE:
        return None
    waited_at: dict[int, float] = {}  # by the number of GPUs that the users held [job s]
    for owner in limited.values():
        # Jobs may hold parts of a GPU, but a limit is a whole number.
        number = int(owner.largest)
        waited_at[number] = waited_at.get(number, 0.0) + owner.waited
    limit = max(waited_at, key=waited_at.__getitem__)
    # Users who stop at different numbers have no common limit; their own demand may end there.
    is_common = waited_at[limit] >= total / 2
    largest_job = max(job.num_gpus for job in jobs)
    if not is_common or largest_job > limit:
        return None
    return limit


class AtLimit(NamedTuple):
    """An owner of jobs that waited while the owner held its largest number of GPUs and enough GPUs were idle."""

    waited: float  # waiting time of its jobs at these times [job s]
    largest: float  # largest number of GPUs held at once
    times: int  # how often the owner reached it


def _owners_at_limit(occupancy: WaitOccupancy, gpus: int, owners: NDArray[np.str_]) -> dict[str, AtLimit]:
    """Return the owners that seem to have a limit, by name. `owners` of the jobs has shape (jobs,); "" is no owner."""
    use = occupancy.use
    limited: dict[str, AtLimit] = {}
    for name in dict.fromkeys(owners.tolist()):
        if not name:
            continue
        is_own = owners == name
        gpus_held = occupancy.held_by(use.only(is_own))
        largest = float(gpus_held.max())
        waited = 0.0
        # The state depends on the size of a job: a smaller one may still fit below the limit, or among the idle GPUs.
        for size in np.unique(use.gpus[is_own]):
            is_limited = gpus_held + size > largest
            has_room = gpus - occupancy.in_use >= size
            waited += occupancy.wait_while(is_own & (use.gpus == size), is_limited & has_room)
        reached = gpus_held == largest
        # Each time at which the owner comes to its largest number, and the first time if it begins with it.
        times = int((reached[1:] & ~reached[:-1]).sum()) + int(reached[0])
        if times >= LEAST_TIMES and waited > 0:
            limited[name] = AtLimit(waited, largest, times)
    return limited


def _limits(occupancy: WaitOccupancy, gpus: int, kind: str, owner: Callable[[TraceJob], str | None]) -> Iterator[Cause]:
    """Yield limits of users or QOS as a cause, if jobs wait while their owner seems to be at its limit.

    This is while the owner holds its largest number of GPUs, and enough GPUs are idle.
    """
    owners = np.array([owner(job) or "" for job in occupancy.use.jobs])
    distinct = [name for name in dict.fromkeys(owners.tolist()) if name]
    if len(distinct) < 2 and kind != "users":
        return  # a single QOS is the cluster
    limited = _owners_at_limit(occupancy, gpus, owners)
    share = sum(at_limit.waited for at_limit in limited.values()) / occupancy.waiting_time
    if share < LEAST_SHARE:
        return
    longest_first = sorted(limited, key=lambda name: -limited[name].waited)
    examples = []
    for name in longest_first[:MOST_NAMES]:
        at_limit = limited[name]
        examples.append(f"{name} {at_limit.largest:g} GPUs (reached {how_often(at_limit.times)})")
    words = ", ".join(examples)
    yield Cause(
        f"limits of {kind}",
        share,
        f"limits of {kind}: in {percent(share)} of the waiting time, enough GPUs were idle, and the owner of the job "
        f"held as many GPUs as it ever did; {len(limited)} of {len(distinct)} {kind}, like {words}",
    )


def _partitions(occupancy: WaitOccupancy, gpus: int) -> Iterator[Cause]:
    """Yield pooled partitions as a cause, if jobs wait while their partition is full and enough other GPUs are idle."""
    use = occupancy.use
    partitions = np.array([job.partition or "" for job in use.jobs])
    distinct = [name for name in dict.fromkeys(partitions.tolist()) if name]
    if len(distinct) < 2:
        return
    total = 0.0
    words = []
    for name in distinct:
        is_own = partitions == name
        part = use.only(is_own)
        gpus_held = occupancy.held_by(part)
        largest = float(gpus_held.max())
        # The partition counts as full if its largest waiting job would raise its peak.
        is_full = gpus_held + occupancy.largest_waiting(part) > largest
        for size in np.unique(part.gpus):
            has_room = is_full & (gpus - occupancy.in_use >= size)
            total += occupancy.wait_while(is_own & (use.gpus == size), has_room)
        wait = float((part.start - part.submit).mean())
        words.append(f"{name} (at most {largest:g} GPUs at once, mean wait {length(wait)})")
    share = total / occupancy.waiting_time
    if share >= LEAST_SHARE:
        yield Cause(
            "partitions",
            share,
            f"partitions that the replay pools: in {percent(share)} of the waiting time, the partition of the job was "
            f"full and enough GPUs of other partitions were idle; {', '.join(words[:MOST_NAMES])}; "
            "replay one partition with --partition NAME",
        )


def _without_gpus(occupancy: WaitOccupancy, gpus: int, num_jobs: int, left_out: Mapping[str, int]) -> Iterator[Cause]:
    """Yield jobs without GPUs as a cause, if they are at least 2 % of the rows of the log; the import left them out."""
    count = left_out.get(RowReason.NO_GPU, 0)
    share = count / (num_jobs + sum(left_out.values()))
    if share >= LEAST_CPU_SHARE:
        # The log does not say where these jobs ran, so their share of the rows scales the time with idle GPUs.
        idle = _idle_share(occupancy, gpus)
        yield Cause(
            "jobs without GPUs",
            idle * share,
            f"jobs without GPUs: the import left out {number_of(count, 'row')} of them, {percent(share)} of the log; "
            "they may hold the nodes or the CPUs that jobs with GPUs wait for",
        )


def _idle_share(occupancy: WaitOccupancy, gpus: int) -> float:
    """Return the share of the waiting time in which even the largest waiting job would have had enough GPUs."""
    has_room = gpus - occupancy.in_use >= occupancy.largest_waiting(occupancy.use)
    return occupancy.share_of_waits_while(has_room)


def _idle(occupancy: WaitOccupancy, gpus: int) -> Iterator[Cause]:
    """Yield waits with idle GPUs, for whatever reason, if they are at least 5 % of the waiting time."""
    share = _idle_share(occupancy, gpus)
    if share >= LEAST_SHARE:
        empty_share = occupancy.share_of_waits_while(occupancy.in_use == 0)
        words = ""
        if empty_share >= LEAST_SHARE:
            words = f"; in {percent(empty_share)} of it no job ran at all"
        yield Cause(
            "idle GPUs",
            share,
            f"jobs wait although GPUs are idle: in {percent(share)} of the waiting time, even the largest waiting job "
            f"had enough idle GPUs{words}; holds, licences, reservations or a limit of the scheduler may stop it",
            is_symptom=True,
        )


def _more_gpus(occupancy: WaitOccupancy, gpus: int) -> Iterator[Cause]:
    """Yield that the log had more GPUs in use at once than the replay has, if it had."""
    peak = float(occupancy.in_use.max())
    if peak > gpus:
        busy = occupancy.in_use > gpus
        share = float((occupancy.lengths * busy).sum() / occupancy.lengths.sum())
        share_of_waits = share
        if share >= LEAST_SHARE:
            share_of_waits = 1.0  # first of all causes: waits on too small a cluster say little about the others
        yield Cause(
            "more GPUs",
            share_of_waits,
            f"more GPUs than the {gpus} of the replay: up to {peak:g} were in use at once, and more than {gpus} in "
            f"{percent(share)} of the time",
        )


def _fewer_gpus(occupancy: WaitOccupancy, gpus: int) -> Iterator[Cause]:
    """Yield days on which jobs wait and the peak of GPUs in use is far below the GPUs of the cluster, if any."""
    grid = occupancy.grid
    in_use = occupancy.in_use
    is_waiting = occupancy.largest_waiting(occupancy.use) > 0
    day = np.floor(grid / DAY).astype(int)
    peaks = np.zeros(day.max() + 1)
    np.maximum.at(peaks, day, in_use)
    waited = np.bincount(day, is_waiting * occupancy.lengths, minlength=len(peaks))
    has_wait = waited > HOUR  # without waiting jobs, a low peak only means a low demand
    few = has_wait & (peaks < FEW_GPUS * gpus)
    if not few.any():
        return
    on_few = occupancy.share_of_waits_while(few[day])
    if on_few < LEAST_SHARE:
        return
    yield Cause(
        "fewer GPUs",
        on_few,
        f"fewer GPUs than the {gpus} of the replay: on {number_of(int(few.sum()), 'day')} of {int(has_wait.sum())} "
        f"with waiting jobs, at most {peaks[few].max():g} GPUs were in use at once, with {percent(on_few)} of the "
        "waiting time; nodes may have been down or reserved",
        is_symptom=True,
    )


def without_limits(count: int, num_jobs: int, policy: str) -> str:
    """Return a sentence on the jobs without a time limit under a policy that plans with limits."""
    return (
        f"{count:,} of {number_of(num_jobs, 'job')} have no time limit, and {policy} plans with limits: for these jobs "
        "it knows the true run time, which backfills better than a real cluster"
    )


def _held_back(jobs: Sequence[TraceJob]) -> Iterator[Cause]:
    """Yield jobs that a dependency, a begin time or the limit of their array held back."""
    delays = [job.eligibility_delay for job in jobs if job.eligibility_delay]
    in_arrays = sum(job.array_limit is not None for job in jobs)
    words = []
    if delays:
        mean_delay = length(float(np.mean(delays)))
        words.append(f"{number_of(len(delays), 'job')} became eligible {mean_delay} late on average")
    if in_arrays:
        words.append(f"{number_of(in_arrays, 'job')} are in arrays with a limit")
    if words:
        # The share is 0, because recorded waits begin when a job becomes eligible: they do not contain these delays.
        yield Cause("dependencies and holds", 0.0, f"dependencies, begin times or limits of arrays: {'; '.join(words)}")


def percent(share: float) -> str:
    """Return a share as text.

    >>> percent(0.845), percent(0.004)
    ('84 %', '0.4 %')
    """
    digits = 0
    if share < 0.01:
        digits = 1  # a whole number would be 0 or 1 for all of these shares
    return f"{100 * share:.{digits}f} %"
