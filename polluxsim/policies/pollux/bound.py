"""Upper bounds: the largest sum of scores if all GPUs were one pool, dealt out exactly or by price."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.kernels import helper, kernel
from polluxsim.policies.pollux.scores import pooled_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polluxsim.policies.pollux.scores import ScoreTables

# Steps (jobs × GPUs × GPUs of a job) up to which the pool is dealt out exactly; these take about 30 ms.
MOST_DEALING_STEPS = 40_000_000

EPSILON = float(np.finfo(np.float64).eps)

# Bisections of the price of a GPU; more do not move the bound by a relative 1e-12.
PRICE_STEPS = 60


class Relaxation(NamedTuple):
    """What a single pool of all GPUs would give."""

    bound: float  # at least the largest sum of scores that any allocation reaches
    price: float  # score that one more GPU is worth
    gpus: NDArray[np.int64]  # GPUs of each job in the relaxed optimum, or nearly, shape (J,)


def relax(tables: ScoreTables, present: NDArray[np.int64], num_gpus: int) -> Relaxation:
    """Return what the jobs, with `present` GPUs before the round, shape (J,), would get from one pool."""
    best = pooled_scores(tables.keep, tables.single, tables.several, present)
    bound, price, gpus = price_gpus(best, num_gpus)
    if best.size * num_gpus <= MOST_DEALING_STEPS:
        dealt, gpus = deal_gpus(best, num_gpus)
        bound = min(bound, dealt)
    return Relaxation(bound, price, gpus)


@kernel
def price_gpus(best, num_gpus):  # type: ignore[no-untyped-def]
    """Return a bound, the price of a GPU at which the jobs ask for no more than there are, and their GPUs.

    For any price λ ≥ 0, λ·G + Σ_j max_k (best[j, k] − λ·k) is an upper bound; the least over λ is found by
    bisection on its slope. Source: Lagrangian relaxation of the capacity, Fisher, Management Science 27
    (1981).
    """
    gpus = np.empty(len(best), dtype=np.int64)
    bound, wanted = _priced_bound(best, 0.0, num_gpus, gpus)
    if wanted <= num_gpus:
        return bound, 0.0, gpus
    low, high = 0.0, 1e-300
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
    """Return a job's largest score per GPU over the score without GPUs (or with the fewest that are possible)."""
    first = 0
    while first < best.shape[1] - 1 and best[j, first] == -np.inf:
        first += 1
    steepest = 0.0
    for k in range(first + 1, best.shape[1]):
        steepest = max(steepest, (best[j, k] - best[j, first]) / (k - first))
    return steepest


@helper
def _priced_bound(best, price, num_gpus, gpus):  # type: ignore[no-untyped-def]
    """Write how many GPUs each job asks for at a price; return the bound that follows from it, and their sum.

    Where scores differ by many orders of magnitude, cost and revenue cancel to far less than their rounding, so what
    rounding may have taken is added.
    """
    total, magnitude, asked = price * num_gpus, price * num_gpus, 0
    for j in range(len(best)):
        most, wanted = -np.inf, 0
        for k in range(best.shape[1]):
            if best[j, k] - price * k > most:
                most, wanted = best[j, k] - price * k, k
        gpus[j] = wanted
        asked += wanted
        total += most
        magnitude += abs(best[j, wanted]) + price * wanted
    return total + (len(best) + 4) * EPSILON * magnitude, asked


@kernel
def deal_gpus(best, num_gpus):  # type: ignore[no-untyped-def]
    """Return the largest sum of scores with all GPUs in one pool, and each job's GPUs then.

    Dynamic programming in J·G·K steps. Source: the multiple-choice knapsack problem, Kellerer, Pferschy,
    Pisinger, "Knapsack Problems" (2004), ch. 11.
    """
    num_jobs = len(best)
    reached, before = np.zeros(num_gpus + 1), np.empty(num_gpus + 1)
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
    gpus, left = np.zeros(num_jobs, dtype=np.int64), num_gpus
    for j in range(num_jobs - 1, -1, -1):
        gpus[j] = choice[j, left]
        left -= gpus[j]
    return reached[num_gpus], gpus
