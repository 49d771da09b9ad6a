"""Runs side by side, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from polluxsim.metrics.summary import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polluxsim.metrics.summary import Summary

MOST_NAMES = 3


def comparison(summaries: Mapping[str, Summary]) -> Table:
    """Return a table with a column per run.

    Parameters
    ----------
    summaries
        Metrics by the run's name. A run with jobs cut off has "≥" before what is a lower bound.
    """
    table = Table(title="Times in hours", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in summaries:
        table.add_column(name, justify="right", overflow="fold")
    columns = summaries.values()
    table.add_row("jobs", *(str(run.num_jobs) for run in columns))
    if any(run.cut_off for run in columns):
        table.add_row("cut off", *(_names(run.cut_off) for run in columns))
    table.add_row("average JCT", *(_hours(run, run.avg_jct) for run in columns))
    table.add_row("median JCT", *(_hours(run, run.p50_jct) for run in columns))
    table.add_row("99th percentile JCT", *(_hours(run, run.p99_jct) for run in columns))
    for application in sorted({name for run in columns for name in run.jct_by_application}):
        cells = (
            _hours(run, run.jct_by_application[application]) if application in run.jct_by_application else "–"
            for run in columns
        )
        table.add_row(f"  mean JCT {application}", *cells)
    table.add_row("makespan", *(_hours(run, run.makespan) for run in columns))
    table.add_row("restarts", *(str(run.restarts) for run in columns))
    table.add_row("GPU-hours", *(f"{run.gpu_hours:.1f}" for run in columns))
    return table


def _hours(run: Summary, seconds: float) -> str:
    return f"{'≥ ' if run.cut_off else ''}{seconds / SECONDS_PER_HOUR:.3f}"


def _names(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{len(names)}: {', '.join(names[:MOST_NAMES])}{more}" if names else "0"
