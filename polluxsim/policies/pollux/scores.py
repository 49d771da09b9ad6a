"""The objective as a sum of scores by job and way of being placed, and upper bounds on the largest sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper, kernel

if TYPE_CHECKING:
    from polluxsim.policies.pollux.problem import Problem

# Terms beyond exp(690) of the scale are cut there: thousands of them still sum to a finite number.
LARGEST_EXPONENT = 690.0

# Terms below exp(−600) of the scale would soon be zero.
LEAST_EXPONENT = -600.0

# Below this |p · log| the terms are taken as (x^p − 1)/p, which keeps its digits where x^p is nearly 1.
SMALL_EXPONENT = 1e-2


@dataclass(frozen=True)
class ScoreScale:
    """How logarithms of speedups become scores, and a sum of scores a fitness.

    The fitness is a rising function of the sum, over jobs, of sign(p)·exp(p·log x − offset); near p = 0 of
    (x^p − 1)/p, which tends to log x.
    """

    power: float  # the exponent p of the power mean
    offset: float  # subtracted from every exponent, so that the terms that decide neither overflow nor vanish
    near_zero: bool  # whether |p| is so small that the second form is used

    def scores(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the score of each logarithm, any shape; larger is better."""
        scores: NDArray[np.float64] = _scores(logs.ravel(), self.power, self.offset, self.near_zero)
        return scores.reshape(logs.shape)

    def fitness(self, total: float, num_jobs: int) -> float:
        """Return the fitness of `num_jobs` jobs whose scores sum to `total`.

        >>> round(ScoreScale(-1.0, 0.0, near_zero=False).fitness(-1.25, 2), 6)
        1.6
        """
        return float(_fitness(total / num_jobs, self.power, self.offset, self.near_zero))

    def refocused(self, logs: NDArray[np.float64]) -> ScoreScale | None:
        """Return a scale for an answer with these logarithms, shape (J,); None if it already fits.

        With p < 0 the largest term decides. If a term was cut, or vanished, other answers look equally good.
        """
        if self.power >= 0 or self.near_zero:
            return None
        largest = float((self.power * logs).max())
        if LEAST_EXPONENT <= largest - self.offset <= LARGEST_EXPONENT:
            return None
        return ScoreScale(self.power, largest, near_zero=False)


@kernel
def _scores(logs, power, offset, near_zero):  # type: ignore[no-untyped-def]
    """Return the score of each logarithm, shape (n,), one by one: NumPy's exponentials depend on the processor."""
    scores = np.empty(logs.size)
    before = np.nan
    score = 0.0
    for i in range(logs.size):
        if logs[i] != before:
            before = logs[i]
            if power == 0.0:
                score = before
            elif near_zero:
                score = np.expm1(power * before) / power
            else:
                score = np.sign(power) * np.exp(min(power * before - offset, LARGEST_EXPONENT))
        scores[i] = score
    return scores


@kernel
def _fitness(mean, power, offset, near_zero):  # type: ignore[no-untyped-def]
    """Return the fitness at a mean score of the jobs."""
    if power == 0.0:
        return np.exp(mean)
    if near_zero:
        return np.exp(np.log1p(power * mean) / power)
    return np.exp((offset + np.log(max(np.sign(power) * mean, 0.0))) / power)


@dataclass(frozen=True)
class ScoreTables:
    """Score of a job by its number of GPUs, −∞ for numbers that it cannot get."""

    keep: NDArray[np.float64]  # score of the present placement, shape (J,)
    single: NDArray[np.float64]  # score of k GPUs of one node in a new placement, shape (J, K + 1)
    several: NDArray[np.float64]  # score of k GPUs of several nodes in a new placement, shape (J, K + 1)


def trim(problem: Problem) -> Problem:
    """Return an equal problem without the GPU counts that no job may have."""
    limits = np.minimum(problem.max_replicas, min(problem.speedups.shape[2] - 1, problem.gpus_per_node.sum()))
    most_gpus = max(int(limits.max()), int(problem.placements.sum(axis=1).max()))
    return replace(problem, speedups=problem.speedups[:, :, : most_gpus + 1], max_replicas=limits)


def score_tables(problem: Problem, values: NDArray[np.float64]) -> ScoreTables:
    """Return the scores of the jobs; values by [job, changed, several nodes, GPUs], shape (J, 2, 2, K + 1)."""
    jobs = np.arange(len(values))
    gpus = np.arange(values.shape[3])
    present = problem.placements.sum(axis=1)
    spread = (problem.placements > 0).sum(axis=1) > 1
    allowed = (gpus == 0) | ((gpus >= problem.fewest[:, None]) & (gpus <= problem.max_replicas[:, None]))
    keep = np.where(allowed[jobs, present], values[jobs, 0, spread.astype(int), present], -np.inf)
    single = np.where(allowed & (gpus <= problem.gpus_per_node.max()), values[:, 1, 0], -np.inf)
    several = np.where(allowed & (gpus >= 2) & (len(problem.gpus_per_node) > 1), values[:, 1, 1], -np.inf)
    single[present == 0, 0] = keep[present == 0]
    return ScoreTables(keep, single, several)


def choose_scale(logs: NDArray[np.float64], problem: Problem) -> ScoreScale:
    """Return a scale at which the terms that decide fit; logarithms have shape (J, 2, 2, K + 1).

    With p < 0 the largest term decides. The terms are measured against the least value that the largest term can have
    with all GPUs in one pool, because no allocation has a smaller one.
    """
    power = problem.fairness_power
    if abs(power) * np.abs(logs).max() < SMALL_EXPONENT:
        return ScoreScale(power, 0.0, near_zero=power != 0.0)
    tables = score_tables(problem, logs)
    best = pooled_scores(tables.keep, tables.single, tables.several, problem.placements.sum(axis=1))
    best = np.maximum.accumulate(best, axis=1) * power
    if power > 0:
        return ScoreScale(power, float(best.max()), near_zero=False)
    low = float(best.min(axis=1).max())
    high = float(best.max())
    if (power * logs).max() - low <= LARGEST_EXPONENT:
        return ScoreScale(power, low, near_zero=False)
    return ScoreScale(power, _least_bottleneck(best, low, high, int(problem.gpus_per_node.sum())), near_zero=False)


@kernel
def pooled_scores(keep, single, several, present):  # type: ignore[no-untyped-def]
    """Return each job's best score at every number of GPUs, whatever the nodes, shape (J, K + 1)."""
    best = np.empty(single.shape)
    for j in range(len(keep)):
        for k in range(single.shape[1]):
            best[j, k] = max(single[j, k], several[j, k])
        best[j, present[j]] = max(best[j, present[j]], keep[j])
    return best


def _least_bottleneck(exponents: NDArray[np.float64], low: float, high: float, num_gpus: int) -> float:
    """Return the smallest t that the falling exponents of all jobs, shape (J, K + 1), reach with all GPUs."""
    for _ in range(60):
        middle = (low + high) / 2
        needed = (exponents > middle).sum(axis=1).sum()
        if needed <= num_gpus:
            high = middle
        else:
            low = middle
    return high


# Steps (jobs × GPUs × GPUs of a job) up to which the pool is dealt out exactly; these take about 30 ms.
MOST_DEALING_STEPS = 40_000_000

EPSILON = float(np.finfo(np.float64).eps)

# Bisections of the price of a GPU; more do not move the bound by a relative 1e-12.
PRICE_STEPS = 60


class Relaxation(NamedTuple):
    """The optimum for a single pool of all GPUs."""

    bound: float  # at least the largest sum of scores that any allocation reaches
    price: float  # score that one more GPU is worth
    gpus: NDArray[np.int64]  # GPUs of each job in the relaxed optimum, or nearly, shape (J,)


def relax(tables: ScoreTables, present: NDArray[np.int64], num_gpus: int) -> Relaxation:
    """Return the optimum, or nearly, for a single pool; `present` are the GPUs of jobs before the round, shape (J,)."""
    best = pooled_scores(tables.keep, tables.single, tables.several, present)
    bound, price, gpus = price_gpus(best, num_gpus)
    if best.size * num_gpus <= MOST_DEALING_STEPS:
        dealt, gpus = deal_gpus(best, num_gpus)
        bound = min(bound, dealt)
    return Relaxation(bound, price, gpus)


@kernel
def price_gpus(best, num_gpus):  # type: ignore[no-untyped-def]
    """Return a bound, the price of a GPU at which the jobs request at most the existing GPUs, and these requests.

    For any price λ ≥ 0, λ·G + Σ_j max_k (best[j, k] − λ·k) is an upper bound; the least over λ is found by
    bisection on its slope. Source: Lagrangian relaxation of the capacity, Fisher, Management Science 27
    (1981).
    """
    gpus = np.empty(len(best), dtype=np.int64)
    bound, wanted = _priced_bound(best, 0.0, num_gpus, gpus)
    if wanted <= num_gpus:
        return bound, 0.0, gpus
    low = 0.0
    high = 1e-300
    for j in range(len(best)):
        high = max(high, _steepest(best, j))
    high *= 1.001
    for _ in range(PRICE_STEPS):
        middle = (low + high) / 2
        other, wanted = _priced_bound(best, middle, num_gpus, gpus)
        bound = min(bound, other)
        if wanted > num_gpus:
            low = middle
        else:
            high = middle
    other, _ = _priced_bound(best, high, num_gpus, gpus)
    return min(bound, other), high, gpus


@helper
def _steepest(best, j):  # type: ignore[no-untyped-def]
    """Return the largest score of a job per GPU, above its score without GPUs or with its fewest GPUs."""
    first = 0
    while first < best.shape[1] - 1 and best[j, first] == -np.inf:
        first += 1
    steepest = 0.0
    for k in range(first + 1, best.shape[1]):
        steepest = max(steepest, (best[j, k] - best[j, first]) / (k - first))
    return steepest


@helper
def _priced_bound(best, price, num_gpus, gpus):  # type: ignore[no-untyped-def]
    """Write how many GPUs each job requests at a price; return the resulting bound, and the sum of the requests.

    Where scores differ by many orders of magnitude, cost and revenue cancel to far less than their rounding, so what
    rounding may have taken is added.
    """
    total = price * num_gpus
    magnitude = price * num_gpus
    asked = 0
    for j in range(len(best)):
        highest = -np.inf
        wanted = 0
        for k in range(best.shape[1]):
            if best[j, k] - price * k > highest:
                highest = best[j, k] - price * k
                wanted = k
        gpus[j] = wanted
        asked += wanted
        total += highest
        magnitude += abs(best[j, wanted]) + price * wanted
    return total + (len(best) + 4) * EPSILON * magnitude, asked


@kernel
def deal_gpus(best, num_gpus):  # type: ignore[no-untyped-def]
    """Return the largest sum of scores with all GPUs in one pool, and the GPUs of each job in this optimum.

    Dynamic programming in J·G·K steps. Source: the multiple-choice knapsack problem, Kellerer, Pferschy,
    Pisinger, "Knapsack Problems" (2004), ch. 11.
    """
    num_jobs = len(best)
    reached = np.zeros(num_gpus + 1)
    before = np.empty(num_gpus + 1)
    choice = np.zeros((num_jobs, num_gpus + 1), dtype=np.int32)
    for j in range(num_jobs):
        before, reached = reached, before
        for g in range(num_gpus + 1):
            reached[g] = -np.inf
        for k in range(best.shape[1]):
            gain = best[j, k]
            if gain == -np.inf:
                continue
            for g in range(k, num_gpus + 1):
                if before[g - k] + gain > reached[g]:
                    reached[g] = before[g - k] + gain
                    choice[j, g] = k
    gpus = np.zeros(num_jobs, dtype=np.int64)
    gpus_left = num_gpus
    for j in range(num_jobs - 1, -1, -1):
        gpus[j] = choice[j, gpus_left]
        gpus_left -= gpus[j]
    return reached[num_gpus], gpus
