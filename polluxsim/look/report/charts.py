"""Data that the page draws for all runs together: distributions as columns, and the available figures over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Shown(NamedTuple):
    """A run as the page shows it."""

    label: str
    result: Result
    held: Occupancy
    look: Look
    rented: bool = False  # whether its policy rents nodes


class Panel(NamedTuple):
    """A figure of all runs over time."""

    name: str  # of its columns
    title: str
    note: str
    unit: str = ""  # "%", "$" or ""
    top: float | None = None  # end of the axis; None for the largest value


def panels(runs: Sequence[Shown]) -> list[Panel]:
    """Return the figures over time whose values differ from a constant in these runs."""
    found = [_panel("gpus", top=max(sum(run.held.gpus_per_node) for run in runs))]
    found += [Panel(f"gpus of {name}", f"{name} in use", "", top=most) for name, most in _gpus_by_type(runs).items()]
    if any(run.rented for run in runs):
        found.append(_panel("nodes"))
    if any(run.rented or any(gpu.price for gpu in run.held.node_types) for run in runs):
        found.append(_panel("cost"))
    if any(is_adaptive(run.result) for run in runs):
        found.append(_panel("efficiency", top=1.0))
    return [*found, _panel("queue")]


def _panel(name: str, top: float | None = None) -> Panel:
    metric = OVER_TIME[name]
    return Panel(name, f"{metric.title[0].upper()}{metric.title[1:]}", metric.formula, metric.unit, top)


def _gpus_by_type(runs: Sequence[Shown]) -> dict[str, int]:
    """Return the largest number of GPUs of each type in a cluster; {} if each cluster has GPUs of one type."""
    if all(len(run.held.node_types.nodes) < 2 for run in runs):
        return {}
    most: dict[str, int] = {}
    for held in (run.held for run in runs):
        for name, nodes in held.node_types.nodes.items():
            most[name] = max(most.get(name, 0), sum(held.gpus_per_node[node] for node in nodes))
    return most


def charts(runs: Sequence[Shown], forks: Sequence[Mapping[str, Any]] = ()) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the columns of the distributions by figure and index of the run, and the description of all figures.

    Times are in [s]. The description contains the `forks`. The browser computes the curves over time from the tables of
    the runs.
    """
    end = max(run.result.end_time for run in runs)
    columns: dict[str, Array] = {}
    for index, run in enumerate(runs):
        hours, count = completion_hours(run.result)
        times, shares = cumulative(hours * HOUR, count, most=MOST_POINTS)
        columns |= {f"jct_{index}": times, f"share_{index}": shares}
        ratios, fair = cumulative(fairness(run.result), most=MOST_POINTS)
        columns |= {f"rho_{index}": ratios, f"rho_share_{index}": fair}
    jcts = [hours_by_application(run.result) for run in runs]
    by_size = [waits_and_slowdowns(run.result) if are_rigid(runs) else ({}, {}) for run in runs]
    names = sorted({name for hours in jcts for name in hours})
    head = {
        "start": axis_start(run.result for run in runs),
        "end": end,
        "forks": list(forks),
        "panels": [panel._asdict() for panel in panels(runs)],
        "sizes": [size_name(size) for size in sorted({size for _, slowdowns in by_size for size in slowdowns})],
        "applications": [{"name": name, "color": application_colour(name)} for name in names],
        "runs": [
            {
                "label": run.label,
                "end": run.result.end_time,
                "color": on_page(run.look.color),
                "dash": [] if isinstance(run.look.linestyle, str) else run.look.linestyle[1],
                "spreads": {name: _in_seconds(spread_of(own)) for name, own in jct.items()},
                "waits": _by_size(waits),
                "slowdowns": _by_size(slowdowns),
            }
            for run, jct, (waits, slowdowns) in zip(runs, jcts, by_size, strict=True)
        ],
    }  # fmt: skip
    return columns, head


def are_rigid(runs: Sequence[Shown]) -> bool:
    """Return whether the jobs of all runs have a fixed number of GPUs, so that views by size are informative."""
    asked = any(job.num_replicas for run in runs for job in run.result.job_records)
    return asked and not any(is_adaptive(run.result) for run in runs)


def _by_size(values: Mapping[int, Sequence[float]]) -> dict[str, list[float]]:
    """Return the spread of values as a list of numbers, by the name of the size."""
    return {size_name(size): [float(part) for part in spread_of(np.array(found))] for size, found in values.items()}


def _in_seconds(spread: Spread) -> list[float]:
    """Return a spread of times as a list: mean and percentiles [s], and the number of jobs."""
    *hours, jobs = spread
    return [*(HOUR * part for part in hours), jobs]
