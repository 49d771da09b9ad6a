"""Runs side by side, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from polluxsim.durations import HOUR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.metrics.summary import Summary

MOST_NAMES = 3
MOST_COLUMNS = 4
"""More runs than this are easier to compare one below the other."""


def comparison(summaries: Mapping[str, Summary]) -> Table:
    """Return a table of runs side by side, or of a row for each where they are many.

    Parameters
    ----------
    summaries
        Metrics by the run's name. A run with jobs cut off has "≥" before what is a lower bound.
    """
    metrics = metrics_in_words(list(summaries.values()))
    table = Table(title="Times in hours", title_justify="left")
    if len(summaries) <= MOST_COLUMNS:
        table.add_column("", no_wrap=True)
        for name in summaries:
            table.add_column(escape(name), justify="right", overflow="fold")
        for label, cells in metrics.items():
            table.add_row(escape(label), *map(escape, cells))
        return table
    table.add_column("run", overflow="fold")
    for label in metrics:
        table.add_column(escape(label), justify="right")
    for index, name in enumerate(summaries):
        table.add_row(escape(name), *(escape(cells[index]) for cells in metrics.values()))
    return table


def metrics_in_words(runs: Sequence[Summary]) -> dict[str, list[str]]:
    """Return each metric of all runs in words, by its label."""
    metrics = {"jobs": [str(run.num_jobs) for run in runs]}
    if any(run.cut_off for run in runs):
        metrics["cut off"] = [_names(run.cut_off) for run in runs]
    if any(run.cancelled for run in runs):
        metrics["cancelled"] = [_names(run.cancelled) for run in runs]
    if any(run.rejected for run in runs):
        metrics["rejected"] = [_names(run.rejected) for run in runs]
    if any(run.failed for run in runs):
        metrics["failed"] = [_names(run.failed) for run in runs]
    if any(run.not_submitted for run in runs):
        metrics["not even submitted"] = [_names(run.not_submitted) for run in runs]
    metrics |= {
        "average JCT": [_hours(run, run.avg_jct) for run in runs],
        "median JCT": [_hours(run, run.p50_jct) for run in runs],
        "99th percentile JCT": [_hours(run, run.p99_jct) for run in runs],
    }
    for application in sorted({name for run in runs for name in run.jct_by_application}):
        metrics[f"  mean JCT {application}"] = [_hours(run, run.jct_by_application.get(application)) for run in runs]
    metrics |= {
        "makespan": [_hours(run, run.makespan) for run in runs],
        "restarts": [str(run.restarts) for run in runs],
        "  minutes between restarts": [_or_none(run.time_between_restarts, ".1f", 1 / 60) for run in runs],
        "  share of run time in them": [f"{run.restart_share:.1%}" for run in runs],
        "largest finish-time fairness": [_or_none(run.max_fairness, ".2f") for run in runs],
        "  jobs below 2": [_or_none(run.fair_share, ".1%") for run in runs],
    }
    if any(run.unknown_fairness for run in runs):
        metrics["  not known, jobs"] = [str(run.unknown_fairness) for run in runs]
    if any(run.deadlines for run in runs):
        metrics["deadlines met"] = [_met(run) for run in runs]
    if any(run.outages or run.restarts_by_failure or run.gpu_time.get("checkpoint") for run in runs):
        metrics |= _under_failures(runs)
    metrics["GPU-hours"] = [f"{run.gpu_hours:.1f}" for run in runs]
    if any(run.cost for run in runs):
        metrics["cost of nodes"] = [f"{run.cost:.2f}" for run in runs]
    return metrics


def _under_failures(runs: Sequence[Summary]) -> dict[str, list[str]]:
    """Return what is of interest where nodes fail or jobs stop for checkpoints."""
    words = {
        "useful": "useful training",
        "checkpoint": "checkpoints",
        "restart": "starts and restarts",
        "lost": "lost training",
        "idle": "idle",
        "down": "nodes down",
    }
    return {
        "outages of nodes": [str(run.outages) for run in runs],
        "restarts by failure": [str(run.restarts_by_failure) for run in runs],
        "effective training time": [_or_none(run.effective_time_ratio, ".1%") for run in runs],
        **{
            f"  GPU time: {word}": [_or_none(run.gpu_time.get(name), ".2%") for run in runs]
            for name, word in words.items()
        },
        "availability of GPUs": [f"{1 - run.gpu_time['down']:.2%}" if run.gpu_time else "–" for run in runs],
    }


def _met(run: Summary) -> str:
    return f"{run.deadlines_met} of {run.deadlines} ({run.deadlines_met / run.deadlines:.1%})" if run.deadlines else "–"


def _hours(run: Summary, seconds: float | None) -> str:
    return "–" if seconds is None else f"{'≥ ' if run.cut_off else ''}{seconds / HOUR:.3f}"


def _or_none(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else f"{value * factor:{form}}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{len(names)}: {', '.join(names[:MOST_NAMES])}{more}" if names else "0"
