"""What the jobs of a log so far say of those to come, and of how long those that have not ended will take."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.durations import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from polluxsim.types import JobId
    from polluxsim.workloads.job import Job

LEAST_ALIKE = 5
"""So many jobs have to have run for longer, or jobs that are less alike are looked at."""

LEAST_DURATION = 60.0
"""Where nobody has run yet [s]."""

LEAST_PIECES = 24
"""The past is cut into so many at least: out of a few, a rate seems better known than it is."""


class Seen(NamedTuple):
    """A job that was submitted, and how much of its duration it has run [s], of a job with a profile in M0-steps.

    Where it is complete it has run all of it, and only then do others know its duration.
    """

    job: Job
    ran: float
    is_complete: bool


class Draw:
    """One future, drawn from the past.

    How long an unfinished job will take is drawn from like jobs that ran for longer: of the same user (or queue) and
    GPUs, of the user, of the same GPUs, or from all. It is as likely to come between any two of them as to be the
    longest; a quarter of those that are longer than all take twice as long. A job with a profile does its work.

    Jobs come as in pieces of the past drawn at random, out of as many pieces drawn from it: a rate is known no better.
    They are hours, or shorter where the past is less than a day.

    Parameters
    ----------
    seen
        The jobs submitted so far.
    time
        Now [s].
    rng
        What draws.

    Attributes
    ----------
    durations
        Of the jobs that are not complete and have no profile [s].
    length
        Of a piece, such that a whole number of them is the past [s].

    Source: Künsch, "The jackknife and the bootstrap for general stationary observations" (Annals of Statistics 1989),
    for pieces; Hill, "Posterior distribution of percentiles" (JASA 1968), for the gaps; Efron, "The two sample problem
    with censored data" (1967), for jobs that have not ended.
    """

    def __init__(self, seen: Sequence[Seen], time: float, rng: np.random.Generator) -> None:
        self._rng = rng
        self._alike: defaultdict[object, list[tuple[float, bool]]] = defaultdict(list)
        # Drawn from itself as well: who is mistaken about some jobs is about all that are like them.
        again = [seen[place] for place in rng.integers(len(seen), size=len(seen))] if seen else []
        for each in sorted(again, key=lambda each: each.ran):
            for kind in _kinds(each.job) if _is_unknown(each.job) else ():
                self._alike[kind].append((each.ran, each.is_complete))
        self.durations: dict[JobId, float] = {
            each.job.job_id: self._duration(each) for each in seen if _is_unknown(each.job) and not each.is_complete
        }
        count = max(round(time / HOUR), LEAST_PIECES)
        self.length = time / count
        self._pieces: list[list[Job]] = [[] for _ in range(count)]
        for each in seen:
            self._pieces[min(int(each.job.submit_time / self.length), count - 1)].append(each.job)
        self._world = rng.integers(count, size=count)
        self._number = 0

    def arrivals(self, start: float) -> Iterator[Job]:
        """Yield the jobs of another piece, from a time on [s]."""
        piece = int(self._rng.choice(self._world))
        for job in self._pieces[piece]:
            self._number += 1
            later = start - piece * self.length
            yield replace(
                job,
                job_id=f"{job.job_id}~{self._number}",
                submit_time=job.submit_time + later,
                duration=self.durations.get(job.job_id, job.duration),
                deadline=None if job.deadline is None else job.deadline + later,
                after=(),
                cancel_time=None,
                line=0,
            )

    def _duration(self, seen: Seen) -> float:
        """Return how long a job that is not complete takes in all [s]."""
        ran, rng = seen.ran, self._rng
        while longer := self._longer(seen.job, ran):
            place = int(rng.integers(len(longer) + 1))
            before = longer[place - 1][0] if place else ran
            if place == len(longer):
                ran = before
                break
            upper, is_complete = longer[place]
            if is_complete:
                share, lower = rng.random(), max(before, 1.0)
                return float(max(lower, ran) ** (1 - share) * upper**share)
            ran = upper  # which will take longer than that
        return float(max(ran, LEAST_DURATION) / (1 - rng.random()) ** 0.5)

    def _longer(self, job: Job, ran: float) -> list[tuple[float, bool]]:
        """Return how long like jobs ran that ran for longer, rising, and whether that was all."""
        for kind in _kinds(job):
            alike = self._alike[kind]
            longer = alike[bisect_right(alike, (ran, True)) :]
            if len(longer) >= LEAST_ALIKE:
                break
        return longer


def _is_unknown(job: Job) -> bool:
    return job.duration is not None and job.plan is None


def _kinds(job: Job) -> tuple[object, ...]:
    """Return the kinds of jobs that a job is one of, the narrowest first."""
    who = job.user or job.queue
    return (*(((who, job.num_replicas), who) if who else ()), job.num_replicas, None)
