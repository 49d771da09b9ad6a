"""Metrics of a run: completion times, fairness, cost, and the shares of GPU time.

Metrics are over three sets of jobs. Counts are over `of_run`, which leaves out jobs that were submitted before the
start of the run. Totals also leave out jobs that were not submitted before its end. Means are over `counted`: submitted
jobs that completed or were cut off. Only the GPU time of the cluster is over all jobs, because jobs from before the run
hold GPUs too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.instants import has_come
from polluxsim.metrics.outcomes import NEVER_STARTED, outcome
from polluxsim.records.results import GpuSeconds, JobRecord, Result, Status, down_gpu_seconds


def shares_of_gpu_time(result: Result) -> Mapping[str, float]:
    """Return the shares of all GPU time of a run, as `shares`; empty if the GPU time is unknown or 0."""
    if not result.gpu_seconds:
        return {}
    jobs = result.job_records  # also the jobs from before the run, which hold GPUs too
    return shares(
        GpuSeconds(
            all=result.gpu_seconds,
            held=sum(job.gpu_seconds for job in jobs),
            checkpoint=sum(job.checkpoint_gpu_seconds for job in jobs),
            restart=sum(job.restart_gpu_seconds for job in jobs),
            lost=sum(job.lost_gpu_seconds for job in jobs),
            down=down_gpu_seconds(result.outage_records, result.start_time, result.end_time),
        )
    )


def shares(spent: GpuSeconds) -> Mapping[str, float]:
    """Return the shares of all GPU time, which add up to 1; empty without GPU time.

    The shares are useful training, checkpoints, starts and restarts, lost training, idle GPUs, and GPUs of nodes that
    were down.
    """
    if not spent.all:
        return {}
    overhead = {"checkpoint": spent.checkpoint, "restart": spent.restart, "lost": spent.lost}
    idle = spent.all - spent.held - spent.down
    # What remains of the held GPU time is useful, so that the shares add up to 1.
    useful = spent.held - sum(overhead.values())
    parts = {"useful": useful, **overhead, "idle": idle, "down": spent.down}
    return {name: seconds / spent.all for name, seconds in parts.items()}


def effective_time_ratio(jobs: Iterable[JobRecord], end: float) -> float | None:
    """Return the useful training time of jobs over the time since they first started; None if no job started.

    Incomplete jobs count up to the end of the run [s].

    Source: Kokolis et al. (HPCA '25), ETTR, with the time in the queue before the first start left out.
    """
    useful = 0.0
    since_start = 0.0
    for job in jobs:
        if job.start_time is None:
            continue
        left_at = end if job.left_at is None else job.left_at
        useful += job.run_time - job.restart_time - job.checkpoint_time - job.lost_time
        since_start += left_at - job.start_time
    return _ratio(useful, since_start)


def _ratio(dividend: float, divisor: float) -> float | None:
    """Return the ratio of two sums; None if the divisor is 0."""
    if not divisor:
        return None
    return dividend / divisor


FAIR = 2.0
"""Below this ρ a job counts as fairly treated in the summary. Source: Pollux (OSDI '21), §5.2.2."""


@dataclass(frozen=True)
class Summary:
    """Metrics of one run.

    A job that was cut off counts with its age at the end of the run. Completion times and the makespan are then lower
    bounds. Means leave out the jobs that ended without completion: cancelled, rejected and failed jobs.

    Jobs that were submitted before the start of the run are in no metric of jobs. `gpu_time`, `cost` and `outages` are
    metrics of the cluster, on which these jobs run too.
    """

    num_jobs: int  # jobs of the workload, without jobs from before the run
    cut_off: tuple[str, ...]  # names of jobs that were not complete when the run ended
    # Names of jobs that were not submitted before the end of the run. They are in no mean.
    not_submitted: tuple[str, ...]
    # Mean and percentiles (linear between ranks) of the job completion time [s]; None if no job counts.
    avg_jct: float | None
    p50_jct: float | None
    p99_jct: float | None
    jct_by_application: Mapping[str, float]  # mean completion time by application [s]
    makespan: float | None  # last completion less first submission [s]; None if `avg_jct` is None
    restarts: int  # re-allocations of all jobs that the policy ordered, without starts after failures
    gpu_hours: float  # GPUs held, over time [GPU h]
    # Time with GPUs over re-allocations, of all jobs [s]; None without re-allocations.
    time_between_restarts: float | None = None
    # Time for starts and restarts over the time with GPUs; 0 if no job ran.
    restart_share: float = 0.0
    max_fairness: float | None = None  # largest finish-time fairness ρ of complete jobs; None if no job has a ρ
    fair_share: float | None = None  # share of jobs with ρ < 2 among jobs with a ρ; None if no job has a ρ
    # Price of all nodes from the first submission to the end of the run, in the unit of the cluster's `node_price`.
    cost: float = 0.0
    # Complete jobs without a ρ, because their profiles lack step times on their share of the cluster.
    unknown_fairness: int = 0
    # Names of jobs that their users cancelled, and of jobs that depend on a cancelled job.
    cancelled: tuple[str, ...] = ()
    # 99th percentile of the ρ of complete jobs (linear between ranks); None if no job has a ρ.
    p99_fairness: float | None = None
    rejected: tuple[str, ...] = ()  # names of jobs that the policy did not admit
    # Jobs with a deadline, and jobs that were complete by their deadline; all others missed their deadline.
    deadlines: int = 0
    deadlines_met: int = 0
    failed: tuple[str, ...] = ()  # names of jobs that failed too often
    outages: int = 0  # number of outages of nodes that end after the first submission
    # Number of times that failures took the GPUs of jobs, also if a job did not start again; not in `restarts`.
    restarts_by_failure: int = 0
    # Useful training time over the time since the first start, of all jobs together; None if no job ran.
    effective_time_ratio: float | None = None
    # Shares of all GPU time from the first submission to the end of the run, which add up to 1: useful, checkpoint,
    # restart, lost, idle, down. Empty if the GPU time of the cluster is unknown.
    gpu_time: Mapping[str, float] = field(default_factory=dict)
    # Mean time from submission to the first GPU [s], of the jobs in the mean JCT. A job that never got a GPU counts
    # with its age at the end of the run. None if `avg_jct` is None.
    avg_queueing_delay: float | None = None
    # Mean time without a GPU from submission to the end of the job or of the run [s], of the jobs in the mean JCT. It
    # contains the time to the first GPU. None if `avg_jct` is None.
    avg_waiting_time: float | None = None
    # GPU time of jobs from before the run between the first submission and the last completion, in which they hold
    # GPUs beside the jobs that `gpu_hours` counts [GPU h]; None without such jobs.
    earlier_gpu_hours: float | None = None
    never_started: tuple[str, ...] = ()  # names of the jobs of `cut_off` that were submitted and never got a GPU
    # Percentiles (linear between ranks) of the time without a GPU whose mean is `avg_waiting_time` [s].
    p50_waiting_time: float | None = None
    p90_waiting_time: float | None = None
    p95_waiting_time: float | None = None
    p99_waiting_time: float | None = None

    def values(self) -> dict[str, Any]:
        """Return the metrics by name, without `earlier_gpu_hours` if no job is from before the run."""
        values = asdict(self)
        if self.earlier_gpu_hours is None:
            del values["earlier_gpu_hours"]
        return values

    @property
    def left_out(self) -> frozenset[str]:
        """Return the names of the jobs that are in no mean."""
        return frozenset((*self.not_submitted, *self.cancelled, *self.rejected, *self.failed))


def summarise(result: Result) -> Summary | None:
    """Return the metrics of a run; None if it has no jobs, or only jobs from before its start."""
    records = of_run(result)
    if not records:
        return None
    jobs, not_submitted = _split(records, result.end_time)
    # Means leave out jobs that were cancelled, rejected or failed, because these jobs may have ended without any work.
    in_means = counted(result)
    jcts = np.array([jct(job, result.end_time) for job in in_means])
    queueing_delays = np.array([queueing_delay(job, result.end_time) for job in in_means])
    waits = np.array([waiting_time(job, result.end_time) for job in in_means])
    fairness = np.array(_known_ratios(jobs))
    run_time = sum(job.run_time for job in jobs)
    restart_time = sum(job.restart_time for job in jobs)
    restarts = sum(job.num_restarts for job in jobs)
    first, last = _first_and_last(in_means, result.end_time)
    makespan = None
    if in_means:
        makespan = last - first
    earlier_gpu_hours = None
    if records is not result.job_records:  # some jobs are from before the run
        earlier_gpu_hours = _earlier_gpu_seconds(result, first, last) / HOUR
    return Summary(
        num_jobs=len(records),
        not_submitted=not_submitted,
        cut_off=_named(records, Status.CUT_OFF),
        cancelled=_named(records, Status.CANCELLED),
        rejected=_named(records, Status.REJECTED),
        failed=_named(records, Status.FAILED),
        deadlines=sum(job.deadline is not None for job in records),
        deadlines_met=sum(map(_met, records)),
        avg_jct=_statistic(np.mean, jcts),
        p50_jct=_statistic(np.percentile, jcts, 50),
        p99_jct=_statistic(np.percentile, jcts, 99),
        jct_by_application=_means_by_application(in_means, jcts),
        makespan=makespan,
        restarts=restarts,
        gpu_hours=sum(job.gpu_seconds for job in jobs) / HOUR,
        time_between_restarts=_ratio(run_time, restarts),
        restart_share=_ratio(restart_time, run_time) or 0.0,
        max_fairness=_statistic(np.max, fairness),
        p99_fairness=_statistic(np.percentile, fairness, 99),
        fair_share=_statistic(np.mean, fairness < FAIR),
        cost=_cost(result),
        outages=sum(outage.until > result.start_time for outage in result.outage_records),
        restarts_by_failure=sum(job.num_failures for job in jobs),
        effective_time_ratio=effective_time_ratio(jobs, result.end_time),
        gpu_time=shares_of_gpu_time(result),
        avg_queueing_delay=_statistic(np.mean, queueing_delays),
        avg_waiting_time=_statistic(np.mean, waits),
        p50_waiting_time=_statistic(np.percentile, waits, 50),
        p90_waiting_time=_statistic(np.percentile, waits, 90),
        p95_waiting_time=_statistic(np.percentile, waits, 95),
        p99_waiting_time=_statistic(np.percentile, waits, 99),
        never_started=_never_started(records, result.end_time),
        unknown_fairness=sum(job.status is Status.COMPLETED and job.finish_time_fairness is None for job in jobs),
        earlier_gpu_hours=earlier_gpu_hours,
    )


def _split(records: Sequence[JobRecord], end_time: float) -> tuple[list[JobRecord], tuple[str, ...]]:
    """Return the jobs that were submitted before the end of the run [s], and the names of the other jobs."""
    jobs = []
    not_submitted = []
    for job in records:
        if has_come(job.submit_time, end_time):
            jobs.append(job)
        else:
            not_submitted.append(job.job)
    return jobs, tuple(not_submitted)


def _means_by_application(jobs: Sequence[JobRecord], times: NDArray[np.float64]) -> dict[str, float]:
    """Return the means of times of jobs, shape (jobs,) [s], by application in order of name."""
    by_application = defaultdict[str, list[float]](list)
    for job, time in zip(jobs, times.tolist(), strict=True):
        by_application[job.application].append(time)
    return {name: float(np.mean(by_application[name])) for name in sorted(by_application)}


def _first_and_last(jobs: Sequence[JobRecord], end_time: float) -> tuple[float, float]:
    """Return the first submission of jobs and their last completion [s], or the end of the run if some are incomplete.

    Without jobs, both are 0.
    """
    submissions = [job.submit_time for job in jobs]
    ends = [end_time if job.completion_time is None else job.completion_time for job in jobs]
    return min(submissions, default=0.0), max(ends, default=0.0)


def _earlier_gpu_seconds(result: Result, first: float, last: float) -> float:
    """Return the GPU time of jobs from before the run, from one time to another [GPU s]."""
    ends = {job.job: job.left_at for job in result.job_records if not job.is_counted}
    placed: dict[str, tuple[float, int]] = {}  # since when each of them holds its GPUs, and their number
    total = 0.0

    def end_placement(name: str, time: float) -> None:
        """Add the GPU time of the last placement of a job, which ends at a time [s]."""
        nonlocal total
        since, gpus = placed.pop(name, (time, 0))
        total += gpus * max(min(time, last) - max(since, first), 0.0)

    for record in result.allocation_records:
        if record.job in ends:
            end_placement(record.job, record.time)
            placed[record.job] = (record.time, sum(record.gpus))
    # No record ends the last placement of a job that holds GPUs when the run ends.
    for name in list(placed):
        left_at = ends[name]
        if left_at is None:
            left_at = result.end_time
        end_placement(name, left_at)
    return total


def _statistic(function: Callable[..., Any], values: NDArray[Any], *options: float) -> float | None:
    """Return a statistic of values; None without values."""
    if not values.size:
        return None
    return float(function(values, *options))


def _named(jobs: Sequence[JobRecord], status: Status) -> tuple[str, ...]:
    """Return the names of the jobs with a status."""
    return tuple(job.job for job in jobs if job.status is status)


def _never_started(jobs: Sequence[JobRecord], end_time: float) -> tuple[str, ...]:
    """Return the names of the submitted jobs that had no GPU until the end of the run [s]."""
    return tuple(job.job for job in jobs if outcome(job, end_time) == NEVER_STARTED)


def _known_ratios(jobs: Sequence[JobRecord]) -> list[float]:
    """Return the finish-time fairness ρ of the jobs that have one."""
    ratios = []
    for job in jobs:
        if job.finish_time_fairness is not None:
            ratios.append(job.finish_time_fairness)
    return ratios


def _met(job: JobRecord) -> bool:
    """Return whether a job completed by its deadline."""
    if job.completion_time is None or job.deadline is None:
        return False
    return has_come(job.completion_time, job.deadline)


def _cost(result: Result) -> float:
    """Return the price of all nodes from the start of the run to its end."""
    if not result.round_records:
        return 0.0
    # A round records the price up to its time. The nodes keep their price until the end.
    last = result.round_records[-1]
    return last.cost + last.hourly_cost * (result.end_time - last.time) / HOUR


def counted(result: Result) -> list[JobRecord]:
    """Return the jobs that are in means: complete jobs and jobs that were cut off."""
    counted_jobs = []
    for job in of_run(result):
        is_submitted = has_come(job.submit_time, result.end_time)
        if is_submitted and job.status in (Status.COMPLETED, Status.CUT_OFF):
            counted_jobs.append(job)
    return counted_jobs


def of_run(result: Result) -> Sequence[JobRecord]:
    """Return the jobs that metrics count: without the jobs that were submitted before the start of the run."""
    jobs = result.job_records
    if not jobs or jobs[0].is_counted:  # the records are in order of submission
        return jobs
    return [job for job in jobs if job.is_counted]


def queueing_delay(job: JobRecord, end_time: float) -> float:
    """Return the time from submission to the first GPU, or to the end of the run if the job never had one [s]."""
    start = end_time if job.start_time is None else job.start_time
    return max(start - job.submit_time, 0.0)


def waiting_time(job: JobRecord, end_time: float) -> float:
    """Return the time without a GPU, from submission to the end of the job or of the run [s].

    For a job that was submitted before the start of the run, count from the start of the run, as `run_time` does.
    """
    end = end_time if job.left_at is None else job.left_at
    return max(end - max(job.submit_time, 0.0) - job.run_time, 0.0)


def jct(job: JobRecord, end_time: float) -> float:
    """Return the completion time, or the age at the end of the run if the job was cut off [s]."""
    if job.jct is not None:
        return job.jct
    return max(end_time - job.submit_time, 0.0)
