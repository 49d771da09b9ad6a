"""Simulate the jobs of a record under Slurm's rules, with their true run times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.policies.slurm.turns import Turns
from polluxsim.studies.decisions.orders import SeenState
from polluxsim.studies.decisions.record import Record, RecordedJob, Started
from polluxsim.studies.decisions.slurm import BACKFILL, MAIN, Installation, SlurmDecider, started

# Errors add up along a simulation, so they are measured soon after a recorded state.
AHEAD = 60  # largest time from a recorded state to a start whose error counts [s]
EVERY = 120  # time between two recorded states from which the simulation begins [s]
LONGEST = 3600  # longest simulation from a recorded state; a job that does not start in it counts as starting then [s]


class RecordReplay(NamedTuple):
    """Two comparisons of simulated with recorded starts."""

    recorded_wait: float  # mean over all jobs [s]
    simulated_wait: float  # mean over the jobs that start, in one simulation of the whole record [s]
    errors: Sequence[int]  # |simulated − recorded start| of the starts at most `AHEAD` after a recorded state [s]

    @property
    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 90th percentile of the errors [s]; nan without errors."""
        if not self.errors:
            return np.nan, np.nan
        median, high = np.percentile(self.errors, [50, 90], method="inverted_cdf")
        return float(median), float(high)


def best_replay(record: Record, installations: Iterable[Installation]) -> RecordReplay:
    """Return the replay with the least sum of errors of starts, among installations that agree equally well."""
    replays = [replayed(record, installation) for installation in installations]
    return min(replays, key=lambda replay: sum(replay.errors))


def replayed(record: Record, installation: Installation) -> RecordReplay:
    """Return how far simulations with true run times are from a record.

    One of them begins with the first submission, and the others from recorded states each `EVERY` seconds.
    """
    first = min(job.submitted for job in record.jobs)
    starts = _Simulation(installation, first, (), record.jobs).run(inf)
    waits = [starts[job.name] - job.submitted for job in record.jobs if job.name in starts]
    recorded_waits = [job.start - job.submitted for job in record.jobs]
    errors: list[int] = []
    last = max(job.start for job in record.jobs)
    for now in range(first, last, EVERY):
        errors += _errors_from(record, installation, now)
    return RecordReplay(float(np.mean(recorded_waits)), float(np.mean(waits)), errors)


def _errors_from(record: Record, installation: Installation, now: int) -> list[int]:
    """Return the errors of the starts soon after a recorded state."""
    # A job submitted later depends on more decisions than those that follow from this state.
    starting = [job for job in record.jobs if job.submitted <= now < job.start <= now + AHEAD]
    if not starting:
        return []
    running = [job for job in record.jobs if job.start <= now < job.end]
    coming = [job for job in record.jobs if job.start > now]
    starts = _Simulation(installation, now, running, coming).run(now + LONGEST)
    errors = []
    for job in starting:
        simulated = starts.get(job.name, now + LONGEST)
        errors.append(abs(simulated - job.start))
    return errors


@dataclass(frozen=True)
class _Placed:
    """A job that runs in a simulation."""

    job: RecordedJob  # with the simulated start
    nodes: tuple[int, ...]


class _Simulation:
    """A simulation in whole seconds. Ends are seen in their second, before the schedulers run."""

    def __init__(
        self, installation: Installation, now: int, running: Iterable[RecordedJob], coming: Iterable[RecordedJob]
    ) -> None:
        self._decider = SlurmDecider(installation)
        self._turns = Turns(installation.parameters)
        self._zero = installation.zero
        self._now = now
        # In reverse, because the next job is taken from the end of the list.
        self._coming = sorted(coming, key=lambda job: (job.earliest, job.position), reverse=True)
        self._running = {job.name: _Placed(job, job.nodes) for job in running}
        self._pending: list[RecordedJob] = []
        self._ends: list[tuple[int, str]] = []  # a heap
        for job in self._running.values():
            heappush(self._ends, (job.job.end, job.job.name))
        self._starts: dict[str, int] = {}
        # Jobs may already wait, so the schedulers run at once.
        self._turns.note_change()

    def run(self, until: float) -> dict[str, int]:
        """Return the start [s] of each job that starts by a time, by name."""
        while self._now <= until:
            self._take_events()
            self._schedule()
            next_time = self._next_time()
            if next_time == inf:
                break
            # A scheduler that is due at once had its turn in this second.
            self._now = int(max(next_time, self._now + 1))
        return self._starts

    def _take_events(self) -> None:
        """Take the ends and the submissions up to now."""
        while self._ends and self._ends[0][0] <= self._now:
            _, name = heappop(self._ends)
            # A preempted job keeps its end in the heap, but does not run any more.
            self._running.pop(name, None)
            self._turns.note_change()
        while self._coming and self._coming[-1].earliest <= self._now:
            self._pending.append(self._coming.pop())
            self._turns.note_change()

    def _schedule(self) -> None:
        """Let the schedulers run that are due."""
        epoch = float(self._now + self._zero)
        if self._turns.main_runs(epoch):
            depth = self._turns.depth(epoch)
            # Before the starts, which shorten the queue.
            is_whole_queue = not depth or depth >= len(self._pending)
            self._start(MAIN, depth)
            self._turns.note_main(epoch, is_whole_queue=is_whole_queue)
        if self._turns.backfill_runs(epoch):
            # Before the starts, which make the next cycle due.
            self._turns.note_backfill(epoch)
            self._start(BACKFILL)

    def _start(self, scheduler: str, depth: int = 0) -> None:
        """Start the jobs that a scheduler starts now; the main scheduler considers `depth` jobs, 0 for all."""
        if not self._pending:
            return
        running = [placed.job for placed in self._running.values()]
        nodes = tuple(Started(placed.job.name, placed.nodes) for placed in self._running.values())
        moment = SeenState(self._now, tuple(running), (), tuple(self._pending), nodes)
        starts, _ = self._decider.decide(moment, scheduler, depth)
        by_name = {job.name: job for job in self._pending}
        for decided in starts:
            # The record states a preempted job again as another one, from its requeue on.
            for name in decided.preempts:
                self._running.pop(name)
            start = started(decided)
            job = by_name[start.job]
            # The recorded run time, but at least until the next second.
            end = self._now + max(job.end - job.start, 1)
            self._running[job.name] = _Placed(job._replace(start=self._now, end=end), start.nodes)
            heappush(self._ends, (end, job.name))
            self._pending.remove(job)
            self._starts[job.name] = self._now
            self._turns.note_starts()

    def _next_time(self) -> float:
        """Return the time of the next event, or run of a scheduler [s]; ∞ if nothing is left to happen."""
        times = [inf]
        if self._ends:
            times.append(self._ends[0][0])
        if self._coming:
            times.append(self._coming[-1].earliest)
        if self._pending:
            times.append(self._turns.next_run(float(self._now + self._zero)) - self._zero)
        return min(times)
