"""Data that the page draws for all runs together: distributions as columns, and the available figures over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.look.colours import Look, application_colour, on_page
from polluxsim.look.occupancy import Occupancy
from polluxsim.records.results import Result
from polluxsim.statistics.job_values import (
    Spread,
    completion_hours,
    cumulative,
    fairness,
    hours_by_application,
    size_name,
    spread_of,
    waits_and_slowdowns,
)
from polluxsim.statistics.metric_lines import OVER_TIME
from polluxsim.statistics.series import axis_start, is_adaptive

Array = NDArray[np.float64]

MOST_POINTS = 1000  # largest number of points of a line of a distribution


class ReportRun(NamedTuple):
    """A run as the page shows it."""

    label: str
    result: Result
    held: Occupancy
    look: Look
    rented: bool = False  # whether its policy rents nodes


class TimePanel(NamedTuple):
    """A figure of all runs over time."""

    name: str  # of its columns
    title: str
    note: str
    unit: str = ""  # "%", "$" or ""
    top: float | None = None  # end of the axis; None for the largest value


def panels(runs: Sequence[ReportRun]) -> list[TimePanel]:
    """Return the figures over time: GPUs in use and the queue, and between them those that apply to one of the runs."""
    most_gpus = max(sum(run.held.gpus_per_node) for run in runs)
    time_panels = [_panel("gpus", top=most_gpus)]
    for name, num_gpus in _gpus_by_type(runs).items():
        time_panels.append(TimePanel(f"gpus of {name}", f"{name} in use", "", top=num_gpus))
    if any(run.rented for run in runs):
        time_panels.append(_panel("nodes"))
    if any(map(_has_cost, runs)):
        time_panels.append(_panel("cost"))
    if any(is_adaptive(run.result) for run in runs):
        time_panels.append(_panel("efficiency", top=1.0))
    time_panels.append(_panel("queue"))
    return time_panels


def _has_cost(run: ReportRun) -> bool:
    """Return whether the nodes of a run have a price."""
    return run.rented or any(gpu.price for gpu in run.held.node_types)


def _panel(name: str, top: float | None = None) -> TimePanel:
    """Return the figure of a metric over time. Its title begins with a capital letter."""
    metric = OVER_TIME[name]
    title = f"{metric.title[0].upper()}{metric.title[1:]}"
    return TimePanel(name, title, metric.formula, metric.unit, top)


def _gpus_by_type(runs: Sequence[ReportRun]) -> dict[str, int]:
    """Return the largest number of GPUs of each type in a cluster; {} if each cluster has GPUs of one type."""
    if all(len(run.held.node_types.nodes) < 2 for run in runs):
        return {}
    largest: dict[str, int] = {}
    for run in runs:
        for name, nodes in run.held.node_types.nodes.items():
            num_gpus = sum(run.held.gpus_per_node[node] for node in nodes)
            largest[name] = max(largest.get(name, 0), num_gpus)
    return largest


def charts(
    runs: Sequence[ReportRun], forks: Sequence[Mapping[str, Any]] = ()
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the columns of the distributions by figure and index of the run, and the description of all figures.

    Times are in [s]. The description contains the `forks`. The browser computes the curves over time from the tables of
    the runs.
    """
    by_size = are_rigid(runs)
    sizes = set[int]()
    applications = set[str]()
    described_runs = []
    for run in runs:
        spreads = {}
        for name, hours_of_jobs in hours_by_application(run.result).items():
            spreads[name] = _in_seconds(spread_of(hours_of_jobs))
        applications |= spreads.keys()
        waits: dict[int, list[float]] = {}
        slowdowns: dict[int, list[float]] = {}
        if by_size:
            waits, slowdowns = waits_and_slowdowns(run.result)
        sizes |= slowdowns.keys()
        # The style of a line is "-", or an offset and the lengths of its dashes.
        dashes: Sequence[float] = []
        if not isinstance(run.look.linestyle, str):
            _, dashes = run.look.linestyle
        described_runs.append(
            {
                "label": run.label,
                "end": run.result.end_time,
                "color": on_page(run.look.color),
                "dash": dashes,
                "spreads": spreads,
                "waits": _by_size(waits, np.mean),
                "slowdowns": _by_size(slowdowns, np.median),
            }
        )
    head = {
        "start": axis_start(run.result for run in runs),
        "end": max(run.result.end_time for run in runs),
        "forks": list(forks),
        "panels": [panel._asdict() for panel in panels(runs)],
        "sizes": [size_name(size) for size in sorted(sizes)],
        "applications": [{"name": name, "color": application_colour(name)} for name in sorted(applications)],
        "runs": described_runs,
    }
    return _distributions(runs), head


def _distributions(runs: Sequence[ReportRun]) -> dict[str, Array]:
    """Return the columns of the distributions of completion times [s] and of ρ, by figure and index of the run."""
    columns: dict[str, Array] = {}
    for index, run in enumerate(runs):
        hours, num_jobs = completion_hours(run.result)
        times, shares = cumulative(hours * HOUR, num_jobs, most=MOST_POINTS)
        columns[f"jct_{index}"] = times
        columns[f"share_{index}"] = shares
        ratios, ratio_shares = cumulative(fairness(run.result), most=MOST_POINTS)
        columns[f"rho_{index}"] = ratios
        columns[f"rho_share_{index}"] = ratio_shares
    return columns


def are_rigid(runs: Sequence[ReportRun]) -> bool:
    """Return whether views by size are informative: jobs have a fixed number of GPUs, and some run states it."""
    if any(is_adaptive(run.result) for run in runs):
        return False
    return any(map(_states_sizes, runs))


def _states_sizes(run: ReportRun) -> bool:
    """Return whether a run states the GPUs that a job asks for. The records of old versions do not."""
    return any(job.num_replicas for job in run.result.job_records)


def _by_size(values: Mapping[int, Sequence[float]], middle: Callable[[Array], Any]) -> dict[str, list[float]]:
    """Return the middle, the percentiles and the number of values, by the name of the size.

    The middle of slowdowns is their median, as in figures, because a few short jobs with long waits dominate the mean.
    """
    spreads = {}
    for size, values_of_size in values.items():
        array = np.array(values_of_size)
        _, low, high, num_jobs = spread_of(array)
        spreads[size_name(size)] = [float(middle(array)), low, high, num_jobs]
    return spreads


def _in_seconds(spread: Spread) -> list[float]:
    """Return a spread of times as a list: mean and percentiles [s], and the number of jobs."""
    *hours, num_jobs = spread
    seconds = [HOUR * value for value in hours]
    return [*seconds, num_jobs]
