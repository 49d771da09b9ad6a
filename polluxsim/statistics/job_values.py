"""Values of the jobs of runs: completion times, fairness, slowdowns by size, and ranks of users and queues."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.summary import counted, of_run, waiting_time
from polluxsim.records.results import JobRecord, Result
from polluxsim.statistics.series import lifetime, submitted

Array = NDArray[np.float64]


def completion_hours(result: Result) -> tuple[Array, int]:
    """Return the completion times of complete jobs, shape (n,) [h], and the number of complete or cut-off jobs."""
    jobs = counted(result)
    # A job that was cut off has no completion time, and counts only in the number.
    jcts = [job.jct for job in jobs if job.jct is not None]
    return np.array(jcts, float) / HOUR, len(jobs)


def hours_by_application(result: Result) -> dict[str, Array]:
    """Return the completion times of the jobs in means, by application [h].

    A job that was cut off counts with its age at the end of the run.
    """
    hours: dict[str, list[float]] = {}
    for job in counted(result):
        time = job.jct
        if time is None:
            time = result.end_time - job.submit_time
        hours.setdefault(job.application, []).append(time / HOUR)
    return {name: np.array(hours[name]) for name in sorted(hours)}


def fairness(result: Result) -> Array:
    """Return the finish-time fairness ρ of the jobs with a known value, shape (n,)."""
    ratios = (job.finish_time_fairness for job in result.job_records)
    return np.array([ratio for ratio in ratios if ratio is not None], float)


def cumulative(values: ArrayLike, count: int | None = None, most: int | None = None) -> tuple[Array, Array]:
    """Return an empirical distribution: sorted values, and the share of values up to each.

    The known values have shape (n,). There are `count` values, by default n; the unknown ones are larger. Of more than
    `most` points, `most` points in equal steps are returned, among them the first and the last.
    """
    points = np.sort(np.asarray(values, float))
    if count is None:
        count = len(points)
    # The unknown values count in the denominator only, so that the last share is below 1 if there are any.
    shares = np.arange(1, len(points) + 1) / max(count, 1)
    if most is None or len(points) <= most:
        return points, shares
    chosen = np.unique(np.linspace(0, len(points) - 1, most).round().astype(int))
    return points[chosen], shares[chosen]


class Spread(NamedTuple):
    """Spread of values of jobs, in the unit of the values."""

    mean: float
    low: float  # 10th percentile
    high: float  # 90th percentile
    jobs: int


def spread_of(values: Array) -> Spread:
    """Return the mean and the percentiles of values, shape (n,), n ≥ 1."""
    low, high = np.percentile(values, (10, 90))
    return Spread(float(values.mean()), float(low), float(high), len(values))


SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # largest numbers of GPUs of groups of jobs of similar size


def size_name(index: int) -> str:
    """Return the numbers of GPUs of a group of jobs, as text. `index` is that of the group in `SIZES`.

    The group after the last has the larger jobs.

    >>> [size_name(index) for index in (0, 2, 9)]
    ['1', '3–4', '> 256']
    """
    if index == len(SIZES):
        return f"> {SIZES[-1]}"
    largest = SIZES[index]
    smallest = 1
    if index > 0:
        smallest = SIZES[index - 1] + 1
    if smallest == largest:
        return f"{largest}"
    return f"{smallest}–{largest}"


def waits_and_slowdowns(result: Result) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Return waiting times in total [s] and slowdowns of complete jobs, by index of the group as in `size_name`.

    Jobs are grouped by the number of GPUs that they ask for; jobs without a known number or without any time with GPUs
    are left out. The slowdown is the JCT over the time with GPUs.
    """
    waits: dict[int, list[float]] = {}
    slowdowns: dict[int, list[float]] = {}
    for job in of_run(result):
        # Without time with GPUs, a slowdown would be infinite.
        if job.jct is not None and job.run_time and job.num_replicas:
            index = bisect_left(SIZES, job.num_replicas)
            waits.setdefault(index, []).append(waiting_time(job, result.end_time))
            slowdowns.setdefault(index, []).append(job.jct / job.run_time)
    return waits, slowdowns


UNNAMED = "(none)"  # name of the jobs without a user or queue


class WaitRank(NamedTuple):
    """The submitted jobs of a user or queue."""

    place: int  # 1 for the longest mean wait
    jobs: int
    wait: float  # mean time from submission to the first GPU, or to the end of a job that never had a GPU [s]
    total_wait: float  # mean time without a GPU [s]
    p90_wait: float  # 90th percentile of the time without a GPU, linear between ranks [s]
    jct: float | None  # mean JCT of completed jobs [s]; None without any
    gpu_seconds: float  # GPU time of all jobs [GPU s]


def ranks(results: Iterable[Result], by: str) -> dict[str, WaitRank]:
    """Return the ranks of users or queues (`by`: "user" or "queue") over the jobs of all runs, by name.

    The longest mean wait comes first. Raise InvalidInputError if no job has a user or queue.
    """
    jobs = defaultdict[str, list[tuple[JobRecord, Result]]](list)
    for result in results:
        for job in submitted(result):
            if job.is_counted:
                jobs[getattr(job, by) or UNNAMED].append((job, result))
    if not jobs.keys() - {UNNAMED}:
        raise InvalidInputError(f"no job of these runs has a {by}; give runs of a workload that names them")
    unplaced = {name: _rank(jobs_of_name) for name, jobs_of_name in jobs.items()}
    # By name among equal waits, so that equal runs have equal ranks.
    order = sorted(unplaced, key=lambda name: (-unplaced[name].wait, name))
    return {name: unplaced[name]._replace(place=place) for place, name in enumerate(order, start=1)}


def _rank(jobs: Sequence[tuple[JobRecord, Result]]) -> WaitRank:
    """Return the means of jobs, with place 0."""
    waits = []
    total_waits = []
    jcts = []
    for job, result in jobs:
        if job.queueing_delay is None:
            start, end = lifetime(result, job)
            waits.append(end - start)
        else:
            waits.append(job.queueing_delay)
        total_waits.append(waiting_time(job, result.end_time))
        if job.jct is not None:
            jcts.append(job.jct)
    mean_jct = None
    if jcts:
        mean_jct = sum(jcts) / len(jcts)
    return WaitRank(
        place=0,
        jobs=len(jobs),
        wait=sum(waits) / len(jobs),
        total_wait=sum(total_waits) / len(jobs),
        p90_wait=float(np.percentile(total_waits, 90)),
        jct=mean_jct,
        gpu_seconds=sum(job.gpu_seconds for job, _ in jobs),
    )
