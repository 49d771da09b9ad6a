"""The figures that show all runs at once: completion times, and the cluster over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d

from polluxsim.look.report.series import Timeline, bin_width, completion_times, cumulative, spreads, steps, timeline
from polluxsim.look.report.style import moment, plain_figure, run_color, run_dash, tooltip
from polluxsim.metrics.summary import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.plotting import figure

    from polluxsim.look.report.occupancy import Occupancy
    from polluxsim.records import Result

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
    """Return the distribution of completion times."""
    plot = plain_figure("jct-cdf", 300, x_axis_type="log", y_range=Range1d(0, 1.02))
    for number, run in enumerate(runs):
        times, shares = cumulative(completion_times(run.result) / SECONDS_PER_HOUR)
        source = {"x": np.maximum(times, 1e-4), "share": shares, "run": [run.label] * len(times)}
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
    found = [spreads(run.result) for run in runs]
    names = sorted({spread.application for spread_list in found for spread in spread_list})
    plot = plain_figure(
        "jct-by-application",
        max(300, 70 + ROW_HEIGHT * len(names)),
        x_axis_type="log",
        y_range=Range1d(len(names) - 0.5, -0.5),
    )
    for number, spread_list in enumerate(found):
        shift = (number - (len(runs) - 1) / 2) * 0.7 / len(runs)
        source = ColumnDataSource(
            {
                "y": [names.index(spread.application) + shift for spread in spread_list],
                "application": [spread.application for spread in spread_list],
                "jobs": [spread.jobs for spread in spread_list],
                "mean": [max(spread.mean, 1e-4) for spread in spread_list],
                "low": [max(spread.low, 1e-4) for spread in spread_list],
                "high": [max(spread.high, 1e-4) for spread in spread_list],
                "run": [runs[number].label] * len(spread_list),
            }
        )
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
    lines = [timeline(run.result, gpus_held(run.held), width) for run in runs]
    capacity = max(sum(run.held.gpus_per_node) for run in runs)
    figures = [
        _lines("gpus", "GPUs in use", runs, [(line.time, line.gpus) for line in lines], hours),
        _lines("efficiency", "statistical efficiency", runs, [(line.time, line.efficiency) for line in lines], hours),
        _lines("queue", "jobs waiting", runs, [(line.time, line.waiting) for line in lines], hours),
    ]
    figures[0].y_range = Range1d(0, capacity * 1.04)
    figures[1].y_range = Range1d(0, 1.04)
    figures[1].yaxis.formatter = NumeralTickFormatter(format="0 %")
    figures[2].y_range.start = 0
    return figures


def gpus_held(held: Occupancy) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of GPUs held, as times of change [s] and the number from then on."""
    return steps(np.concatenate([held.start, held.end]), np.concatenate([held.rows, -held.rows]))


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


__all__ = ["Shown", "Timeline", "by_application", "distribution", "gpus_held", "over_time"]
