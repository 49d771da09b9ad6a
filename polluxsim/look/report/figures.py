"""The figures that show all runs at once: completion times, and the cluster over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d

from polluxsim.durations import HOUR
from polluxsim.look.report.style import moment, plain_figure, run_color, run_dash, tooltip
from polluxsim.look.series import (
    Spread,
    bin_edges,
    completion_hours,
    cumulative,
    hours_by_application,
    spread_of,
    usage_by_bin,
    waiting_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.plotting import figure

    from polluxsim.look.report.occupancy import Occupancy
    from polluxsim.records import Result

MOST_POINTS, MOST_BINS = 1000, 240
"""What a line of a figure has."""

BIN_WIDTHS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800]
"""Widths of bins that people read easily [s]."""

LEAST_HOURS = 1e-4
"""Where an axis of powers of ten begins [h]."""

ROW_HEIGHT = 46
"""Of an application in the figure of completion times by application [px]."""


@dataclass(frozen=True)
class Shown:
    """A run as the figures need it.

    Attributes
    ----------
    label
        What the run is called.
    result
        Its records.
    held
        Who held which GPU when.
    """

    label: str
    result: Result
    held: Occupancy


def distribution(runs: Sequence[Shown]) -> figure:
    """Return the distribution of completion times; jobs that were cut off keep a line below 1."""
    plot = plain_figure("jct-cdf", 300, x_axis_type="log", y_range=Range1d(0, 1.02))
    for number, run in enumerate(runs):
        times, shares = cumulative(*completion_hours(run.result), most=MOST_POINTS)
        source = {"x": np.maximum(times, LEAST_HOURS), "share": shares, "run": [run.label] * len(times)}
        plot.step("x", "share", source=ColumnDataSource(source), mode="after", **_line(number))
    plot.xaxis.axis_label = "completion time [h]"
    plot.yaxis.axis_label = "share of jobs"
    plot.yaxis.formatter = NumeralTickFormatter(format="0 %")
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[000]")
    tooltips = tooltip(("run", "@run"), ("within", "@x{0.000} h"), ("jobs", "@share{0.0 %}"))
    plot.add_tools(HoverTool(tooltips=tooltips, point_policy="snap_to_data"))
    return plot


def by_application(runs: Sequence[Shown]) -> figure:
    """Return completion times by application: the mean as a dot, from the 10th to the 90th percentile as a line."""
    found = [{name: spread_of(hours) for name, hours in hours_by_application(run.result).items()} for run in runs]
    names = sorted({name for spreads in found for name in spreads})
    plot = plain_figure(
        "jct-by-application",
        max(300, 70 + ROW_HEIGHT * len(names)),
        x_axis_type="log",
        y_range=Range1d(len(names) - 0.5, -0.5),
    )
    for number, spreads in enumerate(found):
        shift = (number - (len(runs) - 1) / 2) * 0.7 / len(runs)
        source = _spread_source(spreads, [names.index(name) + shift for name in spreads], runs[number].label)
        look = {"source": source, "color": run_color(number), "name": f"run-{number}"}
        plot.segment("low", "y", "high", "y", line_width=3, alpha=0.45, **look)
        dots = plot.scatter("mean", "y", size=10, **look)
        tooltips = tooltip(
            ("run", "@run"),
            ("", "@application, @jobs jobs"),
            ("mean", "@mean{0.000} h"),
            ("10–90 %", "@low{0.000} to @high{0.000} h"),
        )
        plot.add_tools(HoverTool(renderers=[dots], tooltips=tooltips))
    plot.xaxis.axis_label = "completion time [h]"
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[000]")
    plot.yaxis.ticker = FixedTicker(ticks=list(range(len(names))))
    plot.yaxis.major_label_overrides = dict(enumerate(names))
    plot.ygrid.visible = False
    plot.xgrid.visible = True
    return plot


def _spread_source(spreads: Mapping[str, Spread], places: Sequence[float], run: str) -> ColumnDataSource:
    """Return what a run has of each application: in hours, and at least what the axis begins with."""
    *hours, jobs = np.array(list(spreads.values()), float).reshape(-1, len(Spread._fields)).T
    mean, low, high = np.maximum(hours, LEAST_HOURS)
    columns = {"application": list(spreads), "jobs": jobs.astype(int), "run": [run] * len(spreads)}
    return ColumnDataSource({"y": places, "mean": mean, "low": low, "high": high, **columns})


def over_time(runs: Sequence[Shown], hours: Range1d) -> list[figure]:
    """Return GPUs held, efficiency and waiting jobs over time, on one axis of time.

    Parameters
    ----------
    runs
        What to show.
    hours
        The axis of time that these figures share with others [h].
    """
    width = bin_width(max(run.result.end_time for run in runs))
    lines = [_binned(run.result, width) for run in runs]
    figures = [
        _lines("gpus", "GPUs in use", runs, [(line.hours, line.gpus) for line in lines], hours),
        _lines("efficiency", "statistical efficiency", runs, [(line.hours, line.efficiency) for line in lines], hours),
        _lines("queue", "jobs waiting", runs, [(line.hours, line.waiting) for line in lines], hours),
    ]
    figures[0].y_range = Range1d(0, max(sum(run.held.gpus_per_node) for run in runs) * 1.04)
    figures[1].y_range = Range1d(0, 1.04)
    figures[1].yaxis.formatter = NumeralTickFormatter(format="0 %")
    figures[2].y_range.start = 0
    return figures


class _Binned(NamedTuple):
    """The cluster in bins of time: the middle of each [h], and means over it."""

    hours: np.ndarray
    gpus: np.ndarray
    efficiency: np.ndarray
    waiting: np.ndarray


def _binned(result: Result, width: float) -> _Binned:
    edges = bin_edges(result.end_time, width)
    return _Binned((edges[:-1] + edges[1:]) / 2 / HOUR, *usage_by_bin(result, edges), waiting_jobs(result).means(edges))


def bin_width(span: float) -> float:
    """Return a width that cuts a span into at most `MOST_BINS` bins [s]."""
    return float(next((width for width in BIN_WIDTHS if span / width <= MOST_BINS), span / MOST_BINS))


def _lines(
    name: str,
    title: str,
    runs: Sequence[Shown],
    lines: Sequence[tuple[np.ndarray, np.ndarray]],
    hours: Range1d,
) -> figure:
    plot = plain_figure(name, 240, x_range=hours)
    for number, (time, values) in enumerate(lines):
        source = {"time": time, "value": values, "run": [runs[number].label] * len(time)}
        plot.step("time", "value", source=ColumnDataSource(source), mode="center", **_line(number))
    value = "@value{0 %}" if name == "efficiency" else "@value{0,0.0}"
    plot.add_tools(HoverTool(tooltips=tooltip(("run", "@run"), ("at", "@time{0.00} h"), (title, value)), mode="vline"))
    plot.xaxis.axis_label = "time [h]"
    plot.yaxis.axis_label = title
    moment(plot)
    return plot


def _line(number: int) -> dict[str, object]:
    return {"color": run_color(number), "line_dash": run_dash(number), "line_width": 2, "name": f"run-{number}"}
