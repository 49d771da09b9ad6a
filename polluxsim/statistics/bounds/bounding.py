"""The bounds on the metrics of a world, each as the sharpest of its parts."""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic

import numpy as np

from polluxsim.common.instants import ROUNDING
from polluxsim.records.bounds import MetricBound
from polluxsim.statistics.bounds.alone import (
    deadlines_alone,
    makespan_alone,
    makespan_of_work,
    mean_alone,
    mean_on_one_machine,
    percentile_alone,
)
from polluxsim.statistics.bounds.deadlines import deadlines_met
from polluxsim.statistics.bounds.prices import PriceSearch, price
from polluxsim.statistics.bounds.problem import BoundProblem
from polluxsim.statistics.bounds.programme import programme_prices, programme_value
from polluxsim.statistics.bounds.slots import PricedSlots, slots_of

MEAN = "avg_jct"
MAKESPAN = "makespan"
DEADLINES = "deadlines_met"
PERCENTILES = {"p50_jct": 50.0, "p99_jct": 99.0}
METRICS = (MEAN, *PERCENTILES, MAKESPAN, DEADLINES)
"""Metrics with a bound. The number of deadlines met has an upper bound, and all others have lower bounds."""

TIME_LIMIT = 30.0  # longest time of the search for prices [s]
SHARE_OF_PROGRAMME = 0.4  # share of this time that the programme may take


def bounds_of(
    problem: BoundProblem, metrics: Collection[str] = METRICS, time_limit: float = TIME_LIMIT
) -> dict[str, MetricBound]:
    """Return the bounds on metrics by name. A metric without a job has none.

    The search for prices takes at most about `time_limit` [s], and has no effect on the other metrics.
    """
    if not problem.jobs:
        return {}
    bounds: dict[str, MetricBound] = {}
    slots = slots_of(problem) if problem.has_measures else None
    if MEAN in metrics:
        bounds[MEAN] = MetricBound(_mean_parts(problem, slots, time_limit))
    for name, percent in PERCENTILES.items():
        if name in metrics:
            bounds[name] = MetricBound({"alone": percentile_alone(problem, percent)})
    if MAKESPAN in metrics:
        parts = {"alone": makespan_alone(problem)}
        if slots is not None:
            parts["work"] = makespan_of_work(problem)
        bounds[MAKESPAN] = MetricBound(parts)
    if DEADLINES in metrics and any(job.deadline is not None for job in (*problem.jobs, *problem.others)):
        most = deadlines_alone(problem, ROUNDING)
        parts = {"alone": float(most)}
        if slots is not None and most:
            parts["prices"] = float(deadlines_met(problem, slots, most, SHARE_OF_PROGRAMME * time_limit))
        bounds[DEADLINES] = MetricBound(parts, is_upper=True)
    return bounds


def _mean_parts(problem: BoundProblem, slots: PricedSlots | None, time_limit: float) -> dict[str, float]:
    """Return the bounds on the mean JCT by part [s]. Without `slots`, only the jobs alone bound it."""
    parts = {"alone": mean_alone(problem)}
    if slots is None:
        return parts
    until = monotonic() + time_limit
    parts["SRPT"] = mean_on_one_machine(problem)
    starts = [np.zeros(slots.gpu_seconds.shape)]
    prices = programme_prices(problem, slots, SHARE_OF_PROGRAMME * time_limit)
    if prices is not None:
        parts["programme"] = programme_value(problem, slots, prices)
        starts.append(prices)
    start = max(starts, key=lambda given: price(problem, slots, given).mean)
    search = PriceSearch(problem, slots, start)
    search.improve(until)
    parts["prices"] = search.best
    return parts
