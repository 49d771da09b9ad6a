"""Declarations of the metrics that come with polluxsim: title, unit and better direction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polluxsim.metrics.declared import MORE, NEITHER, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""All of them, in the order in which reports list them."""

WHERE_ANY = {"cut_off", "cancelled", "rejected", "failed", "not_submitted", "unknown_fairness", "deadlines_met", "cost"}
"""Metrics that are listed where a run has any of it."""

UNDER_FAILURES = {"outages", "restarts_by_failure", "effective_time_ratio", "gpu_time", "availability"}
"""Those, with their parts, that are listed where nodes fail or jobs stop for checkpoints."""


def metric_of(column: str, declared: Mapping[str, Metric] | None = None) -> Metric:
    """Return the declaration of a column of a table, from polluxsim's metrics and the user's declared ones.

    A column without a declaration is called by its name.

    >>> metric_of("jct_by_application.bert").heading
    'mean JCT of bert [h]'
    """
    if declared and column in declared:
        return declared[column]
    if column == "deadlines_met":  # tables have the number of jobs, reports their share
        return replace(METRICS[column], unit="jobs")
    if column in METRICS:
        return METRICS[column]
    group, _, name = column.partition(".")
    return replace(METRICS[group], title=f"{METRICS[group].title} of {name}") if group in METRICS else Metric(column)
