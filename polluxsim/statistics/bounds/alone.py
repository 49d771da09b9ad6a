"""Bounds that need no prices: each job alone, one machine for all jobs, and the work that is left at a time."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from polluxsim.statistics.bounds.problem import Array, BoundProblem, Capacity


def mean_alone(problem: BoundProblem) -> float:
    """Return the mean JCT if each job ran alone at its highest speed [s]."""
    return float(np.mean([job.jct_alone for job in problem.jobs]))


def percentile_alone(problem: BoundProblem, percent: float) -> float:
    """Return a percentile (linear between ranks) of the JCTs if each job ran alone [s].

    No JCT is shorter, so that no percentile is either.
    """
    return float(np.percentile([job.jct_alone for job in problem.jobs], percent))


def makespan_alone(problem: BoundProblem) -> float:
    """Return the time from the first submission until the last job completes, if each job ran alone [s]."""
    first = min(job.submit for job in problem.jobs)
    return max(job.ready + job.shortest for job in problem.jobs) - first


def deadlines_alone(problem: BoundProblem, slack: float) -> int:
    """Return the number of jobs that alone would complete by their deadlines.

    `slack` is the share of a time by which rounding may change it.
    """
    met = 0
    for job in (*problem.jobs, *problem.others):
        if job.deadline is not None and job.ready + job.shortest <= job.deadline * (1 + slack):
            met += 1
    return met


def mean_on_one_machine(problem: BoundProblem) -> float:
    """Return the least mean JCT if any job could use all GPUs at once, and would then finish earlier [s].

    The machine works on the job with the least work left (SRPT), which is best on one machine.
    """
    means = []
    for weights in problem.weightings:
        sizes = [job.least_gpu_time(weights) for job in problem.jobs]
        ends = _ends_on_one_machine([job.ready for job in problem.jobs], sizes, problem.capacity.weighted(weights))
        means.append(float(np.mean(ends)) - float(np.mean([job.submit for job in problem.jobs])))
    return max(means)


def makespan_of_work(problem: BoundProblem) -> float:
    """Return the least makespan by the work that arrives at or after each arrival [s]."""
    order = sorted(problem.jobs, key=lambda job: -job.ready)
    first = min(job.submit for job in problem.jobs)
    latest = first
    for weights in problem.weightings:
        clock = WorkClock(problem.capacity.weighted(weights))
        work = 0.0
        for job in order:
            work += job.least_gpu_time(weights)
            latest = max(latest, clock.end(job.ready, work))
    return latest - first


class WorkClock:
    """The GPU time of one pool up to a time, and back."""

    def __init__(self, capacity: Capacity) -> None:
        self._gpus = capacity.gpus[0]
        # The capacity before the first change is never asked for; any start will do.
        times = capacity.times.copy()
        times[0] = min(times[1] - 1.0, 0.0) if len(times) > 1 else 0.0
        self._times = times
        self._totals: Array = np.concatenate([[0.0], np.cumsum(self._gpus[:-1] * np.diff(times))])

    def total(self, time: float) -> float:
        """Return the GPU time up to a time [GPU s]."""
        place = max(int(np.searchsorted(self._times, time, side="right")) - 1, 0)
        return float(self._totals[place] + self._gpus[place] * (time - self._times[place]))

    def end(self, start: float, work: float) -> float:
        """Return when some work is done that begins at a time [s]. After the last change, some GPUs are up."""
        wanted = self.total(start) + work
        place = max(int(np.searchsorted(self._totals, wanted, side="left")) - 1, 0)
        while self._gpus[place] <= 0:
            place += 1
        return max(float(self._times[place] + (wanted - self._totals[place]) / self._gpus[place]), start)


def _ends_on_one_machine(starts: Sequence[float], sizes: Sequence[float], capacity: Capacity) -> Array:
    """Return the ends of jobs on one machine that works on the job with the least work left [s].

    The loop counts in GPU time since the start of the clock (`done`, `until`), in which the machine has a constant
    speed however many GPUs are up.
    """
    clock = WorkClock(capacity)
    order = sorted(range(len(starts)), key=lambda job: starts[job])
    ends = np.zeros(len(starts))
    waiting: list[tuple[float, int]] = []
    done = clock.total(starts[order[0]])
    for place, job in enumerate(order):
        heappush(waiting, (sizes[job], job))
        until = np.inf
        if place + 1 < len(order):
            until = clock.total(starts[order[place + 1]])
        # Between two arrivals no job can overtake another: the one with the least work left stays it.
        while waiting and done < until:
            left, running = heappop(waiting)
            if done + left > until:
                heappush(waiting, (left - (until - done), running))
                done = until
            else:
                done += left
                ends[running] = clock.end(starts[running], done - clock.total(starts[running]))
        # Without a waiting job, the machine is idle until the next arrival.
        if until < np.inf:
            done = max(done, until)
    return ends
