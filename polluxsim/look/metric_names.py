"""What metrics are called where people read them, the units they are shown in, and which way is better."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from polluxsim.durations import HOUR

LESS, MORE, NEITHER = "less", "more", ""


class Metric(NamedTuple):
    """How a metric is shown: its name for people, its unit, which way is better, and if it says more of the one before.

    Shares of 1 are shown in %; which way is better is empty where that depends.
    """

    name: str
    unit: str = ""
    better: str = LESS
    is_part: bool = False


METRICS = {
    "num_jobs": Metric("jobs", better=NEITHER),
    "cut_off": Metric("cut off"),
    "cancelled": Metric("cancelled", better=NEITHER),
    "rejected": Metric("rejected"),
    "failed": Metric("failed"),
    "not_submitted": Metric("not even submitted", better=NEITHER),
    "avg_jct": Metric("average JCT", "h"),
    "p50_jct": Metric("median JCT", "h"),
    "p99_jct": Metric("99th percentile JCT", "h"),
    "jct_by_application": Metric("mean JCT", "h", is_part=True),
    "avg_queueing_delay": Metric("average queueing delay", "h"),
    "makespan": Metric("makespan", "h"),
    "utilisation": Metric("GPUs in use", "%", NEITHER),
    "restarts": Metric("restarts"),
    "time_between_restarts": Metric("time between restarts", "h", MORE, is_part=True),
    "restart_share": Metric("share of run time in them", "%", is_part=True),
    "max_fairness": Metric("largest finish-time fairness ρ"),
    "p99_fairness": Metric("99th percentile ρ", is_part=True),
    "fair_share": Metric("jobs below 2", "%", MORE, is_part=True),
    "unknown_fairness": Metric("not known, jobs", better=NEITHER, is_part=True),
    "deadlines_met": Metric("deadlines met", "%", MORE),
    "outages": Metric("outages of nodes", better=NEITHER),
    "restarts_by_failure": Metric("restarts by failure"),
    "effective_time_ratio": Metric("effective training time", "%", MORE),
    "gpu_time.useful": Metric("GPU time: useful training", "%", MORE, is_part=True),
    "gpu_time.checkpoint": Metric("GPU time: checkpoints", "%", is_part=True),
    "gpu_time.restart": Metric("GPU time: starts and restarts", "%", is_part=True),
    "gpu_time.lost": Metric("GPU time: lost training", "%", is_part=True),
    "gpu_time.idle": Metric("GPU time: idle", "%", NEITHER, is_part=True),
    "gpu_time.down": Metric("GPU time: nodes down", "%", is_part=True),
    "availability": Metric("availability of GPUs", "%", MORE),
    "gpu_hours": Metric("GPU time", "GPU h"),
    "cost": Metric("cost of nodes", "$"),
}
"""All metrics, in the order in which they are listed."""

WHERE_ANY = {"cut_off", "cancelled", "rejected", "failed", "not_submitted", "unknown_fairness", "deadlines_met", "cost"}
"""Metrics that are listed where a run has any of it."""

UNDER_FAILURES = {"outages", "restarts_by_failure", "effective_time_ratio", "gpu_time", "availability"}
"""Those, with their parts, that are listed where nodes fail or jobs stop for checkpoints."""


def unit_of(metric: str) -> tuple[str, str]:
    """Return what a metric is called and its unit, in which a column of a table has it.

    >>> unit_of("jct_by_application.bert")
    ('mean JCT of bert', 'h')
    """
    group, _, name = metric.partition(".")
    found = METRICS.get(metric) or METRICS.get(group, Metric(metric))
    title = f"{found.name} of {name}" if name and metric not in METRICS else found.name
    return title, "" if found.unit == "%" else found.unit


def in_unit(metric: str) -> str:
    """Return a metric's name with its unit.

    >>> in_unit("makespan")
    'makespan [h]'
    """
    name, unit = unit_of(metric)
    return f"{name} [{unit}]" if unit else name


def factor_of(metric: str) -> float:
    """Return what a column is divided by to be in its unit."""
    return HOUR if unit_of(metric)[1] == "h" else 1.0


def limits_of(metric: str) -> tuple[float, float]:
    """Return the smallest and largest possible value of a metric, in its unit."""
    is_share = metric in METRICS and METRICS[metric].unit == "%" and metric != "deadlines_met"  # its column has jobs
    return 0.0, 1.0 if is_share else inf
