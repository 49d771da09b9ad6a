"""A metric of many runs against one setting, with intervals (Figure 8 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from polluxsim.look.colours import looks
from polluxsim.look.metric_names import metric_of
from polluxsim.look.plot.lines import name_lines
from polluxsim.look.plot.style import GREY, ONE_COLUMN, new_figure, styled
from polluxsim.look.sweep_series import POLICIES, drawn_of
from polluxsim.metrics.declared import declared_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from polluxsim.look.colours import Look
    from polluxsim.look.plot.style import Drawing
    from polluxsim.look.sweep_series import Drawn, Series

    Array = NDArray[np.float64]

AXES = {
    "policy.p": "fairness power p",
    "engine.round_interval": "scheduling interval [s]",
    "engine.restart_delay": "restart delay [s]",
    "engine.interference": "slowdown by interference",
    "cluster.num_nodes": "nodes",
    "workload.num_jobs": "jobs",
    "workload.hours": "window of submissions [h]",
    "workload.load": "load",
}

MOST_LETTERS = 11
"""Of names and numbers along the axis, for each inch of the figure; more are slanted."""

CROWDED = 0.06
"""Share of the axis between neighbours below which their numbers would overlap."""


@styled
def sweep(
    frame: pd.DataFrame, x: str, metric: str = "avg_jct", by: Sequence[str] | None = None, width: float = ONE_COLUMN
) -> Drawing:
    """Draw the mean of a metric against a setting, with 95 % intervals where there are enough runs for them.

    Where runs are pairs, alike in workload and seed, bars are intervals of the change against one value, which has
    none; else those of the means. Workloads are the units where there are six or more, else runs; of less than six
    units there is no interval. Runs that do not have the setting (a policy without it) are a level line.

    Parameters
    ----------
    frame
        A row for each run: settings by their path, like `policy.p`, and metrics; times are drawn in hours.
    x
        Setting along the axis, of numbers or names; `policy` has the policies.
    by
        Settings that a line has in common; by default all that differ but `x`, seeds and workloads.

    Raises
    ------
    InvalidInputError
        If there is no such column, or it does not hold what it should.
    """
    drawn = drawn_of(frame, x, metric, by)
    figure = new_figure(width, 0.62 * width if width <= 10 else 0.45 * width)
    axes = figure.subplots()
    ticks = np.unique(np.concatenate([series.x[np.isfinite(series.x)] for series in drawn.series]))
    _x_axis(axes, x, ticks, drawn.names)
    lines = {
        _draw(axes, series, look, is_line=not drawn.names): series.label
        for series, look in zip(drawn.series, looks([series.policy for series in drawn.series]), strict=True)
    }
    if x == POLICIES:
        _colour_by_policy(axes, drawn)
    axes.set_ylabel(metric_of(metric, declared_in(frame)).heading)
    axes.set_ylim(0, 1.03 * axes.get_ylim()[1])
    if drawn.note:
        axes.set_title(drawn.note, loc="left", fontsize=6.5, color=GREY)
    if any(lines.values()):
        name_lines(axes, lines, _bars(drawn.series))
    return figure


def _colour_by_policy(axes: Axes, drawn: Drawn) -> None:
    """Give each policy its own marker in place of that of a series which has a point for every policy."""
    if len(drawn.series) > 1:
        return
    for line in axes.get_lines():
        line.set_marker("none")
    for series in drawn.series:
        for place, mean in zip(series.x.astype(int), series.mean, strict=True):
            look = looks([drawn.names[place]])[0]
            axes.plot([place], [mean], color=look.color, marker=look.marker, linestyle="none")


def _bars(found: Sequence[Series]) -> Array:
    """Return points along all intervals, shape (n, 2)."""
    share = np.linspace(0, 1, 50)[:, None]
    bars = [
        np.stack([np.broadcast_to(series.x, (50, len(series.x))), series.low + share * (series.high - series.low)], -1)
        for series in found
    ]
    points = np.concatenate([bar.reshape(-1, 2) for bar in bars])
    known: Array = points[np.isfinite(points).all(axis=1)]
    return known


def _x_axis(axes: Axes, x: str, ticks: Array, names: Sequence[str]) -> None:
    axes.set_xlabel("" if x == POLICIES else AXES.get(x, x))
    if names:
        slanted = sum(map(len, names)) > MOST_LETTERS * axes.figure.get_figwidth()  # type: ignore[union-attr]
        axes.set_xticks(range(len(names)), names, rotation=20 * slanted, ha="right" if slanted else "center")
        axes.set_xlim(-0.5, len(names) - 0.5)
        return
    if len(ticks) > 2 and ticks[0] > 0 and ticks[-1] / ticks[0] >= 8:
        axes.set_xscale("log")
    elif len(ticks) > 2 and np.diff(ticks).min() < CROWDED * np.ptp(ticks):
        axes.set_xscale("symlog", linthresh=np.median(np.abs(ticks[ticks != 0])))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(ticks.tolist()) if len(ticks) <= 8 else MaxNLocator(8))
    axes.xaxis.set_major_formatter(_number)
    if _is_tight(axes, ticks):
        axes.tick_params(axis="x", rotation=45)


def _is_tight(axes: Axes, ticks: Array) -> bool:
    """Return whether numbers next to each other would touch, each as wide as its letters and a space."""
    places = axes.xaxis.get_transform().transform(ticks)
    letters = np.array([len(_number(tick)) for tick in ticks])
    room = np.diff(places) / max(np.ptp(places), 1e-9) * MOST_LETTERS * axes.figure.get_figwidth()  # type: ignore[union-attr]
    return len(ticks) <= 8 and bool((room < (letters[1:] + letters[:-1]) / 2 + 0.5).any())


def _number(value: float, _: object = None) -> str:
    return f"{value:g}".replace("-", "−")


def _draw(axes: Axes, series: Series, look: Look, *, is_line: bool) -> Any:
    if np.isnan(series.x).all():
        line = axes.axhline(series.mean[0], color=look.color, linestyle=look.linestyle)
        if np.isfinite(series.low[0]):
            axes.axhspan(series.low[0], series.high[0], color=look.color, alpha=0.1, linewidth=0)
        return line
    (line,) = axes.plot(
        series.x, series.mean, color=look.color, linestyle=look.linestyle if is_line else "none", marker=look.marker
    )
    known = np.isfinite(series.low)
    axes.errorbar(
        series.x[known], series.mean[known],
        # Where all resamples lie on one side, the other end is the mean itself, but for rounding.
        np.maximum([(series.mean - series.low)[known], (series.high - series.mean)[known]], 0),
        fmt="none", ecolor=look.color, elinewidth=0.8, capsize=2.0, capthick=0.8,
    )  # fmt: skip
    return line
