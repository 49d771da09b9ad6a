"""What metrics are called where people read them, and the units they are shown in."""

from __future__ import annotations

from polluxsim.durations import HOUR

METRICS = {
    "avg_jct": ("average JCT", "h"),
    "p50_jct": ("median JCT", "h"),
    "p99_jct": ("99th percentile JCT", "h"),
    "makespan": ("makespan", "h"),
    "max_fairness": ("largest ρ", ""),
    "p99_fairness": ("99th percentile ρ", ""),
    "restarts": ("restarts", ""),
    "gpu_hours": ("GPU time", "GPU h"),
    "cost": ("cost of nodes", ""),
}
"""What metrics are called, and the unit they are shown in."""


def unit_of(metric: str) -> tuple[str, str]:
    """Return what a metric is called and its unit.

    >>> unit_of("jct_by_application.bert")
    ('mean JCT of bert', 'h')
    """
    group, _, name = metric.partition(".")
    return (f"mean JCT of {name}", "h") if group == "jct_by_application" else METRICS.get(metric, (metric, ""))


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
