"""Simulate futures of a run in which everything unknown at a time is resampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Protocol

import numpy as np

from polluxsim.common.durations import DAY, clock
from polluxsim.common.errors import InvalidInputError, listed
from polluxsim.engine.futures import Fork
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Decision
from polluxsim.records.results import Status
from polluxsim.records.storage import Run
from polluxsim.run.moment import RunMoment
from polluxsim.run.user_exits import exits_raised
from polluxsim.run.workers import as_finished, workers
from polluxsim.workloads.history import Draw, Seen
from polluxsim.workloads.job import Job

Times = dict[JobId, tuple[float, float]]  # start and completion time of each job [s]; ∞ if it is later than `HORIZON`
LONGEST_ARRIVALS = 3 * DAY  # resampled jobs arrive for this long at most [s]
HORIZON = 30 * DAY  # a future is simulated for this long at most [s]
WORTH_PROCESSES = 20.0  # several processes draw the futures if one process would take longer than this [s]

TRIES = 10
"""Number of times that the durations of waiting jobs are drawn again because the policy would have started the jobs."""

NONE = "none"
RECENT = "recent"


@dataclass(frozen=True)
class FutureArrivals:
    """Jobs that are assumed to arrive after the time of a forecast."""

    # `none`, `recent`, or the name of the file with the jobs. `recent` resamples the jobs that have arrived. They
    # arrive for as long as the time since the first submission, at most three days, and no jobs after that.
    source: str = RECENT
    # The jobs of the file, at their times on the clock of the run. Earlier ones are left out.
    jobs: tuple[Job, ...] = ()

    def after(self, time: float) -> tuple[Job, ...]:
        """Return the jobs of the file that arrive after a time [s], under names that the run does not have."""
        later = [job for job in self.jobs if job.submit_time > time]
        new_names = {job.job_id: f"{job.job_id}~" for job in later}
        renamed = []
        for job in later:
            # Jobs before `time` have ended, or are not a part of this future.
            after = tuple(new_names[name] for name in job.after if name in new_names)
            renamed.append(replace(job, job_id=new_names[job.job_id], after=after, line=0))
        return tuple(renamed)

    def until(self, time: float, start: float) -> float:
        """Return when the last resampled job may arrive, for a forecast at a time [s]. The run began at `start` [s].

        It is `time` if no jobs are resampled.
        """
        if self.source != RECENT:
            return time
        return time + min(time - start, LONGEST_ARRIVALS)

    def in_words(self, time: float, start: float, num_seen: int) -> str:
        """Return a line that states the assumption about arrivals.

        `num_seen` is the number of jobs that arrived until `time`. The arguments `time` and `start` are those of
        `until`.
        """
        if self.source == RECENT:
            until = clock(self.until(time, start))
            words = f"resampled from the {_jobs(num_seen)} before {clock(time)}, until {until}, then none"
        elif self.source == NONE:
            words = f"none after {clock(time)}"
        else:
            num_coming = len(self.after(time))
            left_out = _jobs(len(self.jobs) - num_coming, "earlier ")
            words = f"{_jobs(num_coming)} of {self.source}, {left_out} left out"
        return f"assumed arrivals: {words}"


def _jobs(number: int, adjective: str = "") -> str:
    noun = "job" if number == 1 else "jobs"
    return f"{number} {adjective}{noun}"


_known_states: list[KnownState] = []  # in a worker process: the state from which it draws futures


def futures(known: KnownState, asked: Collection[JobId], forks: int, processes: int) -> Iterator[Times]:
    """Yield the start and completion times of the `asked` jobs in each future, in the order of the futures' numbers.

    Up to `processes` processes draw all futures but the first if one process would take longer than `WORTH_PROCESSES`.
    """
    # The first future is drawn here in any case, and its time tells how long the others take.
    started = monotonic()
    yield known.future(asked, 0)
    further = range(1, forks)
    if processes == 1 or (monotonic() - started) * len(further) < WORTH_PROCESSES:
        for number in further:
            yield known.future(asked, number)
        return
    begin = partial(_begin_worker, known.recipe())
    count = min(processes, len(further))
    tasks = [(number, _future_in_worker, (asked, number)) for number in further]
    finished: dict[int, Times] = {}  # futures that are finished before one with a smaller number
    next_number = 1
    with workers(count, begin) as pool:
        for number, future in as_finished(pool, tasks, count):
            finished[number] = future.result()
            while next_number in finished:
                yield finished.pop(next_number)
                next_number += 1


def _begin_worker(make: Callable[[], KnownState]) -> None:
    """Make the state from which a worker process draws futures."""
    _known_states.append(make())


def _future_in_worker(asked: Collection[JobId], number: int) -> Times:
    with exits_raised():
        return _known_states[-1].future(asked, number)


class DrawnFuture(Protocol):
    """What is drawn for one future. `polluxsim.workloads.history.Draw` describes the attributes."""

    durations: dict[JobId, float]
    length: float

    def arrivals(self, start: float) -> Iterator[Job]:
        """Draw a piece of the past, and yield its jobs, moved in time so that the piece begins at `start` [s]."""


class KnownState(ABC):
    """The information that a forecaster has about a cluster at a time: of a run, or of a real cluster.

    Subclasses set the attributes.
    """

    time: float  # of the forecast [s]
    names: list[JobId]  # jobs that wait or run, in order of submission
    waiting: frozenset[JobId]  # jobs without GPUs
    arrivals: FutureArrivals
    _seed: int
    _active: list[tuple[Job, float]]  # the jobs of `names`, with the work that they have done
    _waited: frozenset[JobId]  # jobs that waited before the time
    _running_since: dict[JobId, float]  # time since which each running job has held GPUs [s]
    _starting: frozenset[JobId]  # jobs that waited, and that the policy starts at once

    @property
    @abstractmethod
    def assumption(self) -> str:
        """Return the line that states the assumed arrivals."""

    @abstractmethod
    def recipe(self) -> Callable[[], KnownState]:
        """Return a function that makes an equal state in another process."""

    @abstractmethod
    def _begun(self, altered: tuple[Job, ...]) -> tuple[Simulation, Policy, Fork]:
        """Return a run just before the round at the time, its policy, and a fork that has yet to be made.

        The run with the fork has altered jobs in place of active jobs of the same names.
        """

    @abstractmethod
    def _draw(self, rng: np.random.Generator) -> DrawnFuture:
        """Draw a future."""

    @abstractmethod
    def _coming(self, draw: DrawnFuture) -> Iterator[tuple[float, Iterable[Job]]]:
        """Yield the assumed arrivals in pieces, each with the time from which on they arrive [s]; the first is now."""

    def check(self, names: Collection[JobId]) -> None:
        """Raise an `InvalidInputError` unless all jobs wait or run at this time."""
        for name in names:
            if name not in self.names:
                present = listed(self.names, 3) or "none"
                raise InvalidInputError(
                    f"job {name!r} neither waits nor runs at {self.time:g} s; name one that does: {present}"
                )

    def future(self, asked: Collection[JobId], number: int) -> Times:
        """Return when each job starts and completes in one future [s]; ∞ for later than the end of the future.

        A running job started in the past. Futures with equal numbers are equal.
        """
        # A generator of its own, so that a future is the same in whichever process and order it is drawn.
        rng = np.random.default_rng([self._seed, number])
        draw = self._draw(rng)
        seed, chance = map(int, rng.integers(2**32, size=2))
        run, policy, fork = self._begun(self._consistent(draw, rng))
        follower = _Follower(run, policy, asked, self._running_since)
        fork = fork._replace(seed=seed, chance=chance)
        # Arrivals are added piece by piece, because a future may end before the last piece is needed.
        for start, jobs in self._coming(draw):
            follower.follow(start)
            if not follower.left or run.is_over:
                break
            run.fork(fork._replace(time=start, added=tuple(jobs)))
            # Only the first fork has the changes of the future; the later ones only add jobs.
            fork = Fork(start, fork.scenario)
        follower.follow(self.time + HORIZON)
        times: Times = {}
        for name in asked:
            times[name] = (follower.starts.get(name, inf), follower.completions.get(name, inf))
        return times

    def _consistent(self, draw: DrawnFuture, rng: np.random.Generator) -> tuple[Job, ...]:
        """Return the active jobs that differ in this future; their durations explain why other jobs still wait.

        A policy that knows durations, like EASY, starts a short job early. If the policy would start a waiting job now
        because of its new duration, it would have started the job before. The duration is drawn again in this case, at
        most `TRIES` times.
        """
        altered = tuple(self._altered(draw))
        for _ in range(TRIES):
            early = self._starting_with(altered) - self._starting
            if not early:
                break
            again = self._draw(rng).durations
            draw.durations.update({name: again[name] for name in early & again.keys()})
            altered = tuple(self._altered(draw))
        return altered

    def _starting_with(self, altered: tuple[Job, ...]) -> frozenset[JobId]:
        """Return the jobs that already waited and that the policy would start at this round if jobs were altered."""
        run, policy, fork = self._begun(altered)
        run.fork(fork)
        # Only to this round. There is no view if the policy need not be called at it.
        view = run.advance(before=self.time + run.scenario.settings.round_interval)
        if view is None:
            return frozenset()
        decision = run.ask(policy, view)
        if not isinstance(decision, Decision):
            return self._waited & decision.keys()
        return self._waited & (decision.allocation.keys() | decision.shared.keys())

    def _altered(self, draw: DrawnFuture) -> Iterator[Job]:
        """Yield the active jobs that differ in this future: with another duration, or without their cancellation."""
        for job, _ in self._active:
            duration = draw.durations.get(job.job_id, job.duration)
            if duration != job.duration or job.cancel_time is not None:
                yield replace(job, duration=duration, cancel_time=None)


class KnownRun(KnownState):
    """The information about a run that a forecaster has at the time of a `RunMoment`."""

    def __init__(self, moment: RunMoment[Any], arrivals: FutureArrivals) -> None:
        self.moment = moment
        self.arrivals = arrivals
        run, _ = moment.copied()
        time = moment.time
        self.time = time
        self._seed = moment.config["seed"]
        self._start = min(run.start_time, time)
        jobs = [job for job in (*run.scenario.workload.jobs, *moment.added) if job.job_id not in moment.left_out]
        # The run is just before the time, so it lacks the jobs that are submitted at exactly this time.
        arriving = [job for job in jobs if job.submit_time == time and not job.after]
        # A fork at this time may leave out a job that is still active just before it.
        self._active = [(job, done) for job, done in run.active(time) if job.job_id not in moment.left_out]
        self._active += [(job, 0.0) for job in arriving]
        # What a forecaster has seen: the jobs that have ended, and the progress of the others.
        self._seen = []
        for end in run.ended():
            job = run.known[end.job]
            # A job that was cancelled before its submission was never seen.
            if job.submit_time <= time:
                self._seen.append(Seen(job, end.work, end.status is Status.COMPLETED))
        self._seen += [Seen(job, progress, False) for job, progress in self._active]
        self._to_come = tuple(job.job_id for job in jobs if job.submit_time > time)
        self._from_file = arrivals.after(time)
        self._running_since = _running_since(moment)
        self.names = [job.job_id for job, _ in self._active]
        self._waited = frozenset(run.waiting)
        self.waiting = self._waited.union(job.job_id for job in arriving)
        self._starting = self._starting_with(())

    @property
    def assumption(self) -> str:
        """Return the line that states the assumed arrivals."""
        num_arrived = sum(seen.job.past is None for seen in self._seen)
        return self.arrivals.in_words(self.time, self._start, num_arrived)

    def recipe(self) -> Callable[[], KnownState]:
        """Return a function that simulates the run up to the time again."""
        return partial(_known_run, self.moment.origin, self.time, self.arrivals)

    def _begun(self, altered: tuple[Job, ...]) -> tuple[Simulation, Policy, Fork]:
        run, policy = self.moment.copied()
        return run, policy, Fork(self.time, self.moment.scenario, without=self._to_come, altered=altered)

    def _draw(self, rng: np.random.Generator) -> Draw:
        return Draw(self._seen, self.time, rng)

    def _coming(self, draw: DrawnFuture) -> Iterator[tuple[float, Iterable[Job]]]:
        until = self.arrivals.until(self.time, self._start)
        if until == self.time:
            yield self.time, self._from_file
            return
        yield from pieces(draw, self.time, until)


def pieces(draw: DrawnFuture, start: float, until: float) -> Iterator[tuple[float, Iterable[Job]]]:
    """Yield resampled arrivals from a start to an end [s] in pieces, each with the time from which on they arrive.

    A piece has the length of the draw, and the number of pieces is rounded, so the last one may end after `until`.
    """
    for piece in range(round((until - start) / draw.length)):
        begin = start + piece * draw.length
        yield begin, draw.arrivals(begin)


def _known_run(run: Run, time: float, arrivals: FutureArrivals) -> KnownRun:
    return KnownRun(RunMoment(run, time), arrivals)


def _running_since(moment: RunMoment[Any]) -> dict[JobId, float]:
    """Return the time since which each running job has held GPUs without a break [s], just before the moment."""
    since: dict[JobId, float] = {}
    # The starts of the jobs that were placed at the start of the run because they ran before.
    jobs = moment.scenario.workload.jobs
    started: dict[JobId, float] = {}
    for job in jobs:
        if job.past is None:
            break  # these jobs come first
        if job.past.is_running:
            started[job.job_id] = job.past.started or 0.0
    for record in moment.origin.result.allocation_records:
        if record.time >= moment.time:
            break
        if not record.nodes:
            since.pop(record.job, None)
        elif record.time == 0:
            since.setdefault(record.job, started.get(record.job, 0.0))
        else:
            since.setdefault(record.job, record.time)  # a move to other GPUs is no new start
    return since


class _Follower:
    """Simulates a future, and notes when some jobs start and complete. `left` has those that have not ended yet."""

    def __init__(self, run: Simulation, policy: Policy, jobs: Collection[JobId], since: dict[JobId, float]) -> None:
        self._run = run
        self._policy = policy
        self.left = set(jobs)
        self.completions: dict[JobId, float] = {}
        self.starts: dict[JobId, float] = {name: since[name] for name in self.left & since.keys()}
        self._num_ended = run.num_ended

    def follow(self, until: float) -> None:
        """Simulate up to a time [s], or until all of the jobs have ended."""
        while self.left and (view := self._run.advance(before=until)) is not None:
            decision = self._run.ask(self._policy, view)
            if isinstance(decision, Decision):
                # Reasons cost time, and no command reads the reasons of a future.
                decision = replace(decision, explain=None)
            self._run.commit(decision)
            self._note()
        self._note()

    def _note(self) -> None:
        """Note the jobs that have started or ended since the last call."""
        run = self._run
        for end in run.ended(self._num_ended):
            self.left.discard(end.job)
            self.completions[end.job] = inf if end.completion_time is None else end.completion_time
        self._num_ended = run.num_ended
        for name in (self.left - self.starts.keys()) & run.allocation.keys():
            self.starts[name] = run.time
