"""Futures of a run in which all that was unknown at a moment is drawn anew, and when jobs start and complete there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.durations import DAY
from polluxsim.engine.diversion import Diversion
from polluxsim.engine.guests import guest
from polluxsim.errors import InvalidInputError
from polluxsim.policies.view import Decision
from polluxsim.records import Status
from polluxsim.run.interrupt import exits_raised
from polluxsim.run.moment import Moment
from polluxsim.run.workers import starting, workers
from polluxsim.workloads.history import Draw, Seen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from polluxsim.engine.simulation import Simulation
    from polluxsim.policies.view import Policy
    from polluxsim.storage import Run
    from polluxsim.types import JobId

    Times = dict[JobId, tuple[float, float]]
    """When jobs start and complete [s]; ∞ is not within three days."""

LONGEST = 3 * DAY
"""No future is followed for longer [s]."""

WORTH_PROCESSES = 20.0
"""Futures that take longer than this together are drawn by several processes [s]."""


_THERE: list[Here] = []
"""In a process that draws futures: what it draws them from."""


def futures(here: Here, asked: Collection[JobId], forks: int, processes: int) -> Iterator[Times]:
    """Yield what comes of each future, the first from here, the others from processes where these take long."""
    started = monotonic()
    yield here.future(asked, 0)
    rest = range(1, forks)
    if processes == 1 or (monotonic() - started) * len(rest) < WORTH_PROCESSES:
        yield from (here.future(asked, number) for number in rest)
        return
    with workers(min(processes, len(rest)), partial(_be_there, here.moment.origin, here.moment.time)) as pool:
        with starting():
            tasks = [pool.submit(_there, asked, number) for number in rest]
        yield from (task.result() for task in tasks)


def _be_there(run: Run, time: float) -> None:
    """Make the past of a run again, in another process."""
    _THERE.append(Here(Moment(run, time)))


def _there(asked: Collection[JobId], number: int) -> Times:
    with exits_raised():
        return _THERE[-1].future(asked, number)


class Here:
    """What is known at a moment."""

    def __init__(self, moment: Moment[Any]) -> None:
        self.moment = moment
        run, _ = moment.copied()
        known, time = run.known, moment.time
        self._active = run.active(time)
        self._seen = [Seen(known[end.job], end.work, end.status is Status.COMPLETED) for end in run.ended()]
        self._seen += [Seen(job, progress, False) for job, progress in self._active]
        self._to_come = tuple(job.job_id for job in run.scenario.workload.jobs if job.submit_time > time)
        self.names = [job.job_id for job, _ in self._active]
        self.waiting = frozenset(run.waiting)

    def check(self, names: Collection[JobId]) -> None:
        """Check that jobs wait or run now."""
        for name in names:
            if name not in self.names:
                there = ", ".join(self.names[:3]) or "none"
                raise InvalidInputError(
                    f"job {name!r} neither waits nor runs at {self.moment.time:g} s, allowed are {there}, …"
                )

    def future(self, asked: Collection[JobId], number: int) -> Times:
        """Return when each job starts and completes in one future [s]."""
        run, policy = self.moment.copied()
        rng = np.random.default_rng([self.moment.config.seed, number])
        start = now = self.moment.time
        draw, follower = Draw(self._seen, now, rng), _Follower(run, policy, asked, now)
        drawn = ((job, draw.durations.get(job.job_id, job.duration)) for job, _ in self._active)
        altered = tuple(replace(job, duration=duration, cancel_time=None) for job, duration in drawn)
        seed, chance = map(int, rng.integers(2**32, size=2))
        diversion = Diversion(now, run.scenario, without=self._to_come, seed=seed, altered=altered, chance=chance)
        while follower.left and start < now + LONGEST:
            run.divert(diversion._replace(time=start, added=tuple(draw.arrivals(start))))
            diversion, start = Diversion(start, run.scenario), start + draw.length
            follower.follow(start)
        return {name: (follower.starts.get(name, inf), follower.completions.get(name, inf)) for name in asked}


class _Follower:
    """Lets a run go on, and notes when jobs start and complete."""

    def __init__(self, run: Simulation, policy: Policy, jobs: Collection[JobId], now: float) -> None:
        self._run, self._policy = run, policy
        self.left = set(jobs)
        self.completions: dict[JobId, float] = {}
        self.starts: dict[JobId, float] = dict.fromkeys(self.left & run.allocation.keys(), now)
        self._num_ended = run.num_ended

    def follow(self, until: float) -> None:
        """Go on to a time [s], or to when all have ended."""
        while self.left and (view := self._run.advance(before=until)) is not None:
            with guest(self._run.scenario.policy_name, view.time):
                decision = self._policy.allocate(view, self._run.rng)
            # Nobody will read why.
            self._run.commit(replace(decision, explain=None) if isinstance(decision, Decision) else decision)
            self._note()
        self._note()

    def _note(self) -> None:
        run = self._run
        for end in run.ended(self._num_ended):
            self.left.discard(end.job)
            self.completions[end.job] = inf if end.completion_time is None else end.completion_time
        self._num_ended = run.num_ended
        for name in (self.left - self.starts.keys()) & run.allocation.keys():
            self.starts[name] = run.time
