"""When jobs will start and complete, from futures in which all that was not known at a time is drawn anew."""

from __future__ import annotations

from dataclasses import replace
from math import floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from polluxsim.durations import DAY
from polluxsim.engine.diversion import Diversion
from polluxsim.engine.guests import guest
from polluxsim.errors import InvalidInputError
from polluxsim.policies.view import Decision
from polluxsim.records import Status
from polluxsim.run.moment import Moment
from polluxsim.workloads.history import Draw, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from polluxsim.engine.simulation import Simulation
    from polluxsim.policies.view import Policy
    from polluxsim.storage import Run
    from polluxsim.types import JobId

FORKS = 29
"""By default; the 3rd and the 27th are then the ends of an 80 % interval exactly."""

LONGEST = 3 * DAY
"""No future is followed for longer [s]."""

QUANTILES = (0.1, 0.5, 0.9)


class Outlook(NamedTuple):
    """When one job may start and complete.

    Attributes
    ----------
    job
        Its name.
    waits
        Whether it holds no GPUs now.
    starts, completions
        In each future [s], in no order; ∞ is not within three days. A job that holds GPUs starts now.
    """

    job: JobId
    waits: bool
    starts: tuple[float, ...]
    completions: tuple[float, ...]


def outlooks(
    moment: Moment[Any],
    jobs: Collection[JobId] | None = None,
    forks: int = FORKS,
    told: Callable[[int], None] = lambda number: None,
) -> list[Outlook]:
    """Return when jobs that wait or run may start and complete, in order of submission.

    Parameters
    ----------
    moment
        Now, of a run.
    jobs
        Which; None for all.
    forks
        Futures to draw, the same ones each time.
    told
        Called after each of them with how many there are.

    Raises
    ------
    InvalidInputError
        If a job neither waits nor runs then, or there are no futures.
    """
    if forks < 1:
        raise InvalidInputError(f"{forks} futures are to be drawn, allowed is a whole number ≥ 1")
    here = _Here(moment)
    found: list[dict[JobId, tuple[float, float]]] = []
    here.check(jobs or ())
    asked = [name for name in here.names if jobs is None or name in jobs]
    for number in range(forks):
        found.append(here.future(asked, number))
        told(number + 1)
    columns = {name: tuple(zip(*(times[name] for times in found), strict=True)) for name in asked}
    return [Outlook(name, name in here.waiting, *columns[name]) for name in asked]


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time that another future would be below with such a chance; ∞ may be among them.

    >>> quantile([3.0, 1.0, 2.0, 7.0], 0.5)
    2.5
    """
    ordered = sorted(times)
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = floor(place + 1e-9)
    rest = place - below
    return ordered[below] if rest < 1e-9 else (1 - rest) * ordered[below] + rest * ordered[below + 1]


def as_frame(found: Sequence[Outlook], time: float) -> pd.DataFrame:
    """Return a row for each job: whether it waits, and the 10 %, 50 % and 90 % quantiles of both its times [s]."""
    rows = [
        {
            "job": each.job,
            "waits": each.waits,
            **{f"start_p{share:.0%}".rstrip("%"): quantile(each.starts, share) for share in QUANTILES},
            **{f"completion_p{share:.0%}".rstrip("%"): quantile(each.completions, share) for share in QUANTILES},
        }
        for each in found
    ]
    frame = pd.DataFrame(rows, columns=None if rows else ["job", "waits"])
    frame.attrs["time"] = time
    return frame


class _Here:
    """What is known at a moment."""

    def __init__(self, moment: Moment[Any]) -> None:
        self._moment = moment
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
                    f"job {name!r} neither waits nor runs at {self._moment.time:g} s, allowed are {there}, …"
                )

    def future(self, asked: Collection[JobId], number: int) -> dict[JobId, tuple[float, float]]:
        """Return when each job starts and completes in one future [s]."""
        run, policy = self._moment.copied()
        rng = np.random.default_rng([self._moment.config.seed, number])
        start = now = self._moment.time
        draw, follower = Draw(self._seen, now, rng), _Follower(run, policy, asked, now)
        altered = tuple(
            replace(job, duration=draw.durations.get(job.job_id, job.duration), cancel_time=None)
            for job, _ in self._active
        )
        policy_seed, chance = map(int, rng.integers(2**32, size=2))
        diversion = Diversion(now, run.scenario, without=self._to_come, seed=policy_seed)
        diversion = diversion._replace(altered=altered, chance=chance)
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


class Check(NamedTuple):
    """How intervals held that were said of one kind of time.

    Attributes
    ----------
    what
        Starts or completions.
    known
        Times that are the same in all futures, to the second.
    uncertain
        The others.
    held
        Of these, those in their interval.
    """

    what: str
    known: int
    uncertain: int
    held: int


def checked(found: Sequence[Outlook], run: Run, time: float) -> Iterator[Check]:
    """Yield how intervals of 80 % held in what came of a run after a time [s]."""
    ends = {job.job: job.completion_time for job in run.result.job_records}
    begins: dict[JobId, float] = {}
    for change in run.result.allocation_records:
        if change.time >= time and change.nodes:
            begins.setdefault(change.job, change.time)
    waiting = [(each.starts, begins.get(each.job)) for each in found if each.waits]
    for what, pairs in (("starts", waiting), ("completions", [(each.completions, ends[each.job]) for each in found])):
        known = uncertain = held = 0
        for times, came in pairs:
            low, _, high = (quantile(times, share) for share in QUANTILES)
            if came is None:
                continue
            if max(times) - min(times) < 1:
                known += 1
            else:
                uncertain += 1
                held += low <= came <= high
        yield Check(what, known, uncertain, held)


def calibration(
    run: Run, moments: int, forks: int = FORKS, told: Callable[[int], None] = lambda number: None
) -> list[Check]:
    """Return how intervals hold that are said at moments of a run, from a quarter of its arrivals on to three.

    Parameters
    ----------
    run
        A finished run.
    moments
        At how many.
    forks, told
        As of `outlooks`; told how many moments are done.
    """
    found: list[Check] = []
    first, last = (pick(job.submit_time for job in run.result.job_records) for pick in (min, max))
    for number in range(moments):
        moment = Moment(run, first + (last - first) * (0.25 + 0.5 * number / moments))
        found += checked(outlooks(moment, None, forks), run, moment.time)
        told(number + 1)
    whats = dict.fromkeys(check.what for check in found)
    return [
        Check(what, *map(sum, zip(*(each[1:] for each in found if each.what == what), strict=True))) for what in whats
    ]
