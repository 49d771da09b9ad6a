"""Pollux with weights by remaining time: the sooner a job can be complete, the more its speedup counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, log, nan
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.pollux.lengths import Lengths
from polluxsim.policies.pollux.policy import Pollux

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.policies.pollux.problem import Problem
    from polluxsim.policies.view import ClusterView, Decision, JobView


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
    _lengths: Lengths = field(default_factory=Lengths, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p == 0:
            raise InvalidConfigError("policy.p is 0, where terms have no weights; allowed is any other finite number")
        if not 0 <= self.strength < inf:
            raise InvalidConfigError(f"policy.strength is {self.strength:g}, allowed is a finite number ≥ 0")
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
