"""The Pollux policy, and its variant that weighs jobs by their remaining time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, nan
from statistics import median
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.values import FiniteFloat, NonNegativeFloat, OneOf, PositiveFloat
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Traits
from polluxsim.policies.pollux.annealing import AnnealingSearch
from polluxsim.policies.pollux.explanation import Explanation
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.one_type import LikeNodes
from polluxsim.policies.pollux.problem import Problem, Search, SpeedupTables, as_of, build_problem, placements_of

# Searches by their number of threads.
SEARCHES: Mapping[str, Callable[[int], Search]] = {
    "annealing": lambda threads: AnnealingSearch(),
    "genetic": lambda threads: GeneticSearch(threads=threads),
}


FORESIGHT = 600.0  # time ahead for which the policy tries to prove that no change is worth its restarts [s]


@takes_settings("policy")
@dataclass
class Pollux(Policy):
    """Co-adaptive, goodput-optimised allocation.

    Parameters
    ----------
    search
        Search for an allocation: a name in `SEARCHES`, or an object.
    p
        Exponent of the power mean of all jobs' speedups: 1 is the arithmetic mean, 0 the geometric mean; towards −∞ it
        approaches the minimum.
    avoid_interference
        Whether a node may have at most one multi-node job.
    threads
        Threads of the search `genetic`. The result does not depend on their number.
    known_throughput
        Whether agents start with the θ_sys of their application instead of exploring it.

    Source: Pollux (OSDI '21), §4.2; known θ_sys, §5.3.
    """

    search: Annotated[str, OneOf(*SEARCHES)] | Search = "annealing"
    p: FiniteFloat = -1.0
    avoid_interference: bool = True
    threads: int = 1
    known_throughput: bool = False
    _foresight: ClassVar[float] = FORESIGHT
    _tables: SpeedupTables = field(default_factory=SpeedupTables, init=False, repr=False)
    _search: Search = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._search = SEARCHES[self.search](self.threads) if isinstance(self.search, str) else self.search

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy."""
        return Traits(adaptive=True, needs_profiles=True, known_throughput=self.known_throughput)

    @property
    def slow_kernels(self) -> tuple[str, ...]:
        """Return the modules whose kernels the policy and its agents need and that take long to compile."""
        uses_annealing = isinstance(self._search, AnnealingSearch)
        search = ("polluxsim.policies.pollux.annealing",) if uses_annealing else ()
        return ("polluxsim.models.fitting", *search)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the best allocation found.

        The search ignores GPU types, so jobs with GPUs of several types lose some of them. The fitness, its bound and
        the reasons are those of the allocation before this cut.
        """
        if not view.jobs:
            return Decision({})
        if len(view.types) == 1:
            return self._allocate(view, rng)
        nodes = LikeNodes()
        decisions = {name: self._allocate(part, rng) for name, part in nodes.parts(view).items()}
        return nodes.merge(view, decisions)

    def _problem(self, view: ClusterView) -> Problem:
        """Return the optimisation problem of a round."""
        return build_problem(view, self._tables, self.p, avoid_interference=self.avoid_interference)

    def _allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the best allocation found on nodes whose types do not matter."""
        problem = self._problem(view)
        # Restarts cost less as jobs grow older, so if no change is worth its restarts later, none is now.
        stands_until = view.time + self._foresight
        stands = self._search.stands_still(as_of(problem, view, stands_until))
        valid_until = -inf
        if stands:
            answer = problem.unchanged()
            valid_until = stands_until
        else:
            answer = self._search.solve(problem, rng)
        return Decision(
            dict(zip(problem.job_ids, placements_of(answer.allocation), strict=True)),
            fitness=answer.fitness,
            upper_bound=answer.upper_bound,
            valid_until=valid_until,
            explain=lambda jobs: Explanation(view, problem, answer).reasons(jobs),
        )


# Assumed remaining work of a job that exceeds the usual work of its application, as a share of that work.
LEAST_SHARE = 0.02


class _LastSeen(NamedTuple):
    """A job when the policy last decided."""

    application: str
    trained: float  # [M0-equivalent examples]
    rate: float  # goodput [M0-equivalent examples/s]
    time: float  # [s]


@dataclass
class _WorkEstimates:
    """Predicted work of jobs, from ended jobs: all jobs of an application do similar work.

    The policy does not see ended jobs, so it does not know whether they were complete or cancelled. The estimated work
    of an ended job is its work when the policy last saw it, plus its goodput at that time, multiplied by the time from
    then to its end.
    """

    _last_seen: dict[JobId, _LastSeen] = field(default_factory=dict, init=False)
    # Work of the ended jobs of each application [M0-equivalent examples].
    _totals: dict[str, list[float]] = field(default_factory=dict, init=False)
    # Most work that a job of each application had done at a decision [M0-equivalent examples].
    _most: dict[str, float] = field(default_factory=dict, init=False)

    def take_note(self, view: ClusterView) -> None:
        """Record the work of the jobs in the view, and estimate the work of the jobs that ended."""
        for job_id, end in view.changes.ended.items():
            last_seen = self._last_seen.pop(job_id, None)
            if last_seen is not None:
                done = last_seen.trained + last_seen.rate * (end - last_seen.time)
                self._totals.setdefault(last_seen.application, []).append(done)
        for job in view.jobs:
            last_seen = self._last_seen[job.job_id] = _LastSeen(job.application, job.trained, _rate(job), view.time)
            self._most[last_seen.application] = max(self._most.get(last_seen.application, 0.0), last_seen.trained)

    def left(self, job: JobView) -> float:
        """Return the remaining work of a job [M0-equivalent examples].

        The median work of the ended jobs of its application, less the work that the job has done. If no job of an
        application has ended, its jobs are assumed to do twice the most work that one has done, as for a Pareto
        distribution; 0 if none has run. A job that exceeds the usual work has a small share of it left.
        """
        totals = self._totals.get(job.application)
        usual = median(totals) if totals else 2 * self._most[job.application]
        return max(usual - job.trained, LEAST_SHARE * usual)


def _rate(job: JobView) -> float:
    """Return the goodput of a job on its present GPUs, as its agent estimates it [M0-equivalent examples/s].

    It is 0 for a job without GPUs, or without an estimate.
    """
    if not job.placement or job.goodput is None:
        return 0.0
    return job.goodput.best(len(job.placement), num_replicas(job.placement))[0]


@takes_settings("policy")
@dataclass
class PolluxByRemaining(Pollux):
    """Pollux's objective, in which each job's term has a weight by its rank in remaining time.

    Of n jobs, the job with the i-th longest remaining time has the weight (i/n)^strength. If the speed of a job on k
    GPUs is k^s, the mean completion time is least if the shares of GPUs rise with i; they rise linearly for s = 1/2
    (heSRPT: Berg, Vesilo and Harchol-Balter, 2020). The largest power mean gives shares ∝ weight^(1/(1 − ps)). At
    p = −1/2, strength 1.25 therefore gives the optimal shares. The remaining work of a job is learnt from ended
    jobs of its application.

    Parameters
    ----------
    strength
        Exponent of the rank, ≥ 0. With 0 the policy equals Pollux with this p.
    critical
        A job is critical for the makespan if its remaining time, alone on all GPUs that it can use, is at least this
        share of the time that all remaining work takes on the whole cluster. Critical jobs get their mean rank. They
        then end together, and few of them have more GPUs than they can use well.
    oracle
        Whether to use the true remaining work, which bounds the benefit of learning.
    """

    p: FiniteFloat = -0.5
    strength: NonNegativeFloat = 1.0
    critical: PositiveFloat | None = None
    oracle: bool = False
    _foresight: ClassVar[float] = 0.0  # ranks change while jobs train
    _estimates: _WorkEstimates = field(default_factory=_WorkEstimates, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p == 0:
            raise InvalidConfigError("policy.p is 0, where terms have no weights; choose another finite number")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Record the jobs that ended, and decide like Pollux."""
        self._estimates.take_note(view)
        return super().allocate(view, rng)

    def _problem(self, view: ClusterView) -> Problem:
        problem = super()._problem(view)
        by_name = {job.job_id: job for job in view.jobs}
        ranks = self._ranks(view, problem, [by_name[job_id] for job_id in problem.job_ids])
        shifts = [self.strength / self.p * log(rank) for rank in ranks.tolist()]
        return replace(problem, shifts=np.array(shifts))

    def _ranks(self, view: ClusterView, problem: Problem, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return the rank of each job by falling remaining time, over the number of jobs, shape (J,)."""
        goodputs = [self._tables.fair_goodput(job.job_id) for job in jobs]
        # Remaining time on the fair share. It is unknown for a job that has not run, and for the jobs of an application
        # of which no job has run. Such a job gets the middle rank.
        times_left = _times_left([self._work(job) for job in jobs], goodputs)
        is_finite = np.isfinite(times_left)
        middle = 1.0  # any time will do if all are unknown
        if is_finite.any():
            middle = float(np.median(times_left[is_finite]))
        times = np.where(is_finite, times_left, middle)
        ranks = np.empty(len(jobs))
        ranks[np.argsort(-times, kind="stable")] = np.arange(1, len(jobs) + 1) / len(jobs)
        if self.critical is not None and is_finite.any():
            speedups = problem.speedups * (view.num_gpus / len(view.gpus_per_node))
            # Remaining time on all GPUs that the job can use, and remaining GPU time on one GPU [s; GPU s].
            alone = times_left / speedups.max(axis=(1, 2))
            one_gpu = times_left / speedups[:, 0, 1]
            last = is_finite & (alone >= self.critical * one_gpu[is_finite].sum() / view.num_gpus)
            if last.any():
                ranks[last] = ranks[last].mean()
        return ranks

    def _work(self, job: JobView) -> float:
        """Return the remaining work of a job [M0-equivalent examples]."""
        if not self.oracle:
            return self._estimates.left(job)
        batch_size = job.oracle.application.init_batch_size
        return job.oracle.remaining_iterations(batch_size) * batch_size


def _times_left(works: Sequence[float | None], goodputs: Sequence[float | None]) -> NDArray[np.float64]:
    """Return the times that jobs need for their works at their goodputs [s], shape (J,); nan if one is unknown or 0."""
    times_left = []
    for work, goodput in zip(works, goodputs, strict=True):
        time_left = nan
        if work and goodput:
            time_left = work / goodput
        times_left.append(time_left)
    return np.array(times_left)
