"""An upper bound on the number of deadlines that any schedule meets, from prices of GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.statistics.bounds.problem import Array, BoundProblem
from polluxsim.statistics.bounds.programme import Linear, linear
from polluxsim.statistics.bounds.slots import PricedSlots

ROUNDING = 1e-6  # by which the sum of parts of jobs may exceed a whole number, or be below it
MOST_COLUMNS = 200_000  # of the programme; with more, only the jobs alone bound the number


class _Part(NamedTuple):
    """The slots in which a job can run on a pool before its deadline."""

    job: int
    pool: int
    places: slice  # numbers of the slots
    lengths: Array  # part of each slot between the earliest start and the deadline [s]
    gpus: float
    rate: float


def deadlines_met(problem: BoundProblem, slots: PricedSlots, most: int, time_limit: float) -> int:
    """Return a number of deadlines that no schedule exceeds.

    `most` is the number of jobs that would meet their deadlines alone, which is returned if no prices prove less. Each
    job has a part z of its work done by its deadline, and counts z. For any prices, the sum is at most the price of all
    GPU time, and 1 less its least price for each job that costs less than 1.
    """
    jobs = []
    free = 0  # jobs with a deadline after the slots with prices
    for limits in (*problem.jobs, *problem.others):
        deadline = limits.deadline
        if deadline is None or deadline <= limits.ready:
            continue
        if deadline > slots.priced[-1]:
            free += 1
        else:
            jobs.append((linear(limits), deadline))
    parts = _parts(jobs, slots)
    if not parts or sum(len(part.lengths) for part in parts) > MOST_COLUMNS:
        return most
    prices = _prices(jobs, parts, slots, time_limit)
    if prices is None:
        return most
    total = free + float((prices * slots.gpu_seconds).sum())
    for number, (job, _) in enumerate(jobs):
        total += max(1.0 - _least_price(job, [part for part in parts if part.job == number], prices), 0.0)
    return min(most, int(np.floor(total + ROUNDING)))


def _parts(jobs: list[tuple[Linear, float]], slots: PricedSlots) -> list[_Part]:
    """Return the parts of jobs, given with their deadlines, on each pool that they can use."""
    ends = slots.priced
    parts = []
    for number, (job, deadline) in enumerate(jobs):
        first = max(int(np.searchsorted(ends, job.ready, side="right")) - 1, 0)
        last = int(np.searchsorted(ends, deadline, side="left"))
        places = slice(first, min(last, len(ends) - 1))
        starts = np.maximum(ends[:-1][places], job.ready)
        lengths = np.maximum(np.minimum(ends[1:][places], deadline) - starts, 0.0)
        for pool, gpus, rate in job.gpus:
            parts.append(_Part(number, pool, places, lengths, gpus, rate))
    return parts


def _prices(
    jobs: list[tuple[Linear, float]], parts: list[_Part], slots: PricedSlots, time_limit: float
) -> Array | None:
    """Return the dual values of the capacity in the programme, shape (pools, S); None if it has no solution."""
    from scipy.optimize import linprog  # noqa: PLC0415  (slow to load)
    from scipy.sparse import csr_array, hstack  # noqa: PLC0415

    # The variables are the time of each part in each of its slots, and then the part z of each job. The sum of z is the
    # largest that the GPU time of each slot (`use`) allows; the work of a job in time is z of its whole work (`done`).
    sizes = [len(part.lengths) for part in parts]
    num_slots = len(slots.lengths)
    of_job = np.repeat([part.job for part in parts], sizes)
    rates = np.repeat([part.rate for part in parts], sizes)
    gpus = np.repeat([part.gpus for part in parts], sizes)
    rows = np.concatenate([part.pool * num_slots + np.arange(num_slots)[part.places] for part in parts])
    number = np.arange(len(of_job))
    shortest = np.array([job.shortest for job, _ in jobs])
    work = csr_array((rates, (of_job, number)), shape=(len(jobs), len(number)))
    use = csr_array((gpus, (rows, number)), shape=(slots.gpu_seconds.size, len(number)))
    places = np.arange(len(jobs))
    done = csr_array((-shortest, (places, places)), shape=(len(jobs), len(jobs)))
    no_use = csr_array((slots.gpu_seconds.size, len(jobs)))
    solution = linprog(
        np.concatenate([np.zeros(len(number)), -np.ones(len(jobs))]),
        A_ub=hstack([use, no_use]),
        b_ub=slots.gpu_seconds.ravel(),
        A_eq=hstack([work, done]),
        b_eq=np.zeros(len(jobs)),
        bounds=np.column_stack(
            [
                np.zeros(len(number) + len(jobs)),
                np.concatenate([*(part.lengths for part in parts), np.ones(len(jobs))]),
            ]
        ),
        method="highs-ds",
        options={"time_limit": time_limit},
    )
    if solution.status != 0:
        return None
    prices: Array = np.maximum(-solution.ineqlin.marginals, 0.0).reshape(slots.gpu_seconds.shape)
    return prices


def _least_price(job: Linear, parts: list[_Part], prices: Array) -> float:
    """Return the least price of the work of a job before its deadline; infinite if there is too little time."""
    cost = np.concatenate([prices[part.pool, part.places] * part.gpus / part.rate for part in parts])
    seconds = np.concatenate([part.lengths * part.rate for part in parts])
    if float(seconds.sum()) < job.shortest * (1 - ROUNDING):
        return np.inf
    order = np.argsort(cost, kind="stable")
    room = seconds[order]
    taken = np.clip(job.shortest - (np.cumsum(room) - room), 0.0, room)
    return float((taken * cost[order]).sum())
