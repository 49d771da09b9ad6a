"""Pollux with weights by remaining time: the sooner a job can be complete, the more its speedup counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log, nan
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.errors import InvalidConfigError, check_number
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.policies.pollux.problem import Problem
    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId

LEAST_SHARE = 0.02
"""Of its application's usual work, what a job that has done all of that is taken to have left."""


class _Look(NamedTuple):
    """A job when it was last looked at."""

    application: str
    trained: float
    rate: float
    time: float


@dataclass
class _Lengths:
    """How long jobs are, by those that completed before them: all jobs of an application do alike work.

    A job is gone by the time that a policy is asked, so what it had done is what it had when last looked at, and what
    its goodput then makes of the time to its end.
    """

    _looks: dict[JobId, _Look] = field(default_factory=dict, init=False)
    _totals: dict[str, list[float]] = field(default_factory=dict, init=False)
    _most: dict[str, float] = field(default_factory=dict, init=False)

    def take_note(self, view: ClusterView) -> None:
        """Look at all jobs, and at who is gone."""
        for job_id, end in view.changes.ended.items():
            if (look := self._looks.pop(job_id, None)) is not None:
                done = look.trained + look.rate * (end - look.time)
                self._totals.setdefault(look.application, []).append(done)
        for job in view.jobs:
            look = self._looks[job.job_id] = _Look(job.application, job.trained, _rate(job), view.time)
            self._most[look.application] = max(self._most.get(look.application, 0.0), look.trained)

    def left(self, job: JobView) -> float:
        """Return the work that a job has left [M0-equivalent examples].

        What the median of its application's jobs did, less what it did. Of an application none of whose jobs has ended
        they are taken to do twice what the oldest of them has done, as after a Pareto law.
        """
        totals = self._totals.get(job.application)
        usual = median(totals) if totals else 2 * self._most[job.application]
        return max(usual - job.trained, LEAST_SHARE * usual)


def _rate(job: JobView) -> float:
    """Return the goodput of a job where it runs, as its agent believes [M0-equivalent examples/s]."""
    if not job.placement or job.goodput is None:
        return 0.0
    return job.goodput.best(len(job.placement), num_replicas(job.placement))[0]


@dataclass
class PolluxByRemaining(Pollux):
    """Pollux's objective, in which each job's term has a weight by its rank in remaining time.

    Of n jobs, the one with the i-th longest time left has the weight (i/n)^strength. Where a job's speed is the power s
    of its GPUs, mean completion time is least if shares of GPUs rise with that rank (heSRPT: Berg, Vesilo and
    Harchol-Balter, 2020), for s = 1/2 linearly; the largest power mean gives shares ∝ weight^(1/(1 − ps)), so that this
    is strength 1.25 at p = −1/2. What a job has left is learnt from jobs of its application that completed.

    Parameters
    ----------
    strength
        Exponent of the rank, ≥ 0; at 0 this is Pollux.
    critical
        A job is critical for the makespan if what is left of it, alone on all that it can use, takes this share of the
        time that all that is left takes on the whole cluster, at the least. Critical jobs have their mean rank, so that
        they end together and not one after the other, when few of them have more GPUs than they can use well.
    oracle
        Whether the true remaining work is used, as a bound of what there is to learn.
    """

    p: float = -0.5
    strength: float = 1.0
    critical: float | None = None
    oracle: bool = False
    _lengths: _Lengths = field(default_factory=_Lengths, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p == 0:
            raise InvalidConfigError("policy.p is 0, where terms have no weights; allowed is any other finite number")
        check_number("policy.strength", self.strength, self.strength >= 0, "a finite number ≥ 0")
        if self.critical is not None:
            check_above_zero(critical=self.critical)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Take note of who is gone, also where nobody is left, and decide as Pollux does."""
        self._lengths.take_note(view)
        return super().allocate(view, rng)

    def _problem(self, view: ClusterView) -> Problem:
        problem = super()._problem(view)
        by_name = {job.job_id: job for job in view.jobs}
        ranks = self._ranks(view, problem, [by_name[job_id] for job_id in problem.job_ids])
        shifts = [self.strength / self.p * log(rank) for rank in ranks.tolist()]
        return replace(problem, shifts=np.array(shifts))

    def _ranks(self, view: ClusterView, problem: Problem, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return each job's rank in time left over the number of jobs, shape (J,); the shortest one's is 1."""
        goodputs = [self._tables.fair_goodput(job.job_id) for job in jobs]
        # Time left on the fair share. Of a job that has not run nothing is known: it is in the middle.
        left = np.array([self._work(job) / fair if fair else nan for job, fair in zip(jobs, goodputs, strict=True)])
        known = np.isfinite(left)
        times = np.where(known, left, np.median(left[known]) if known.any() else 1.0)
        ranks = np.empty(len(jobs))
        ranks[np.argsort(-times, kind="stable")] = np.arange(1, len(jobs) + 1) / len(jobs)
        if self.critical is not None and known.any():
            speedups = problem.speedups * (view.num_gpus / len(view.gpus_per_node))
            alone, one_gpu = left / speedups.max(axis=(1, 2)), left / speedups[:, 0, 1]
            last = known & (alone >= self.critical * one_gpu[known].sum() / view.num_gpus)
            if last.any():
                ranks[last] = ranks[last].mean()
        return ranks

    def _work(self, job: JobView) -> float:
        """Return what a job has left [M0-equivalent examples]."""
        if not self.oracle:
            return self._lengths.left(job)
        batch_size = job.oracle.application.init_batch_size
        return job.oracle.remaining_iterations(batch_size) * batch_size
