"""Figures against the size of the cluster: the duration of scheduling decisions, and the metric of a target.

The width of every figure is in [cm].
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.tables import read_rows
from polluxsim.look.colours import PALETTE, Look, looks
from polluxsim.look.plot.style import (
    GREY,
    ONE_COLUMN,
    TWO_COLUMNS,
    Drawing,
    legend,
    log_ticks,
    new_figure,
    new_panel,
    styled,
)
from polluxsim.look.run_facts import num_gpus
from polluxsim.metrics.target import Target
from polluxsim.records.results import TimingRecord
from polluxsim.records.storage import RUN_FILE, Run
from polluxsim.statistics.estimates import Estimate
from polluxsim.statistics.groups import labels_of, settings_of

COLUMNS = ("label", "num_gpus", "num_jobs", "seconds")
"""Columns of a table of decision times: label, GPUs of the cluster, active jobs, time [s]."""

MOST_POINTS = 10  # more values along an axis than this are grouped


def decision_labels(runs: Sequence[Run]) -> list[str]:
    """Return a label for the decisions of each run from the settings that differ, without the sizes on the axes."""
    settings = [settings_of(run) for run in runs]
    sizes: set[str] = set()
    for row in settings:
        sizes.update(key for key in row if key.startswith(("cluster.", "workload.")))
    return labels_of(settings, ignoring=sizes)


def decision_times(label: str, run: Run, timings: Sequence[TimingRecord]) -> pd.DataFrame:
    """Return a row for each decision of a run, with `COLUMNS`. Raise InvalidInputError if its GPUs are unknown."""
    gpus = num_gpus(run)
    if gpus is None:
        raise InvalidInputError(f"{run.name}: its {RUN_FILE} does not tell the GPUs of the cluster")
    rounds = run.result.round_records
    times = [record.time for record in rounds]
    rows = []
    for record in timings:
        if record.phase != "decide" or record.time is None:
            continue
        # Rounds without a change have no record; they have the jobs of the record before them.
        index = bisect_right(times, record.time) - 1
        if index >= 0:
            rows.append((label, gpus, rounds[index].active_jobs, record.seconds))
    return pd.DataFrame(rows, columns=COLUMNS)


def read_times(path: Path) -> pd.DataFrame:
    """Read decision times from a CSV file with `COLUMNS`, as `benchmarks/bench_search.py --csv` writes it.

    Raise InvalidInputError if a cell is missing or invalid.
    """
    rows = []
    for row in read_rows(path, COLUMNS):
        label = row.text("label")
        num_gpus = row.integer("num_gpus", 1)
        num_jobs = row.integer("num_jobs", 0)
        rows.append((label, num_gpus, num_jobs, row.number("seconds", above=0)))
    return pd.DataFrame(rows, columns=COLUMNS)


@styled
def scaling(times: pd.DataFrame, policies: dict[str, str] | None = None, width: float = TWO_COLUMNS) -> Drawing:
    """Draw the median time of decisions, with bars from the 10th to the 90th percentile.

    `times` has a row for each decision, with `COLUMNS`. `policies` contains the policy of each label, which decides the
    colour. Raise InvalidInputError if there are no decisions.
    """
    # A decision without jobs takes almost no time, and has no place on the logarithmic axes.
    times = times[times["num_jobs"] > 0]
    if times.empty:
        raise InvalidInputError("there are no times of decisions about jobs")
    labels = list(dict.fromkeys(times["label"]))
    line_looks = looks([(policies or {}).get(label, label) for label in labels])
    axes_names = {"num_gpus": "GPUs of the cluster", "num_jobs": "active jobs"}
    columns = [name for name in axes_names if times[name].nunique() > 1] or ["num_jobs"]
    figure = new_figure(width, 6.2)
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, column in zip(panels, columns, strict=True):
        lines = []
        for label, look in zip(labels, line_looks, strict=True):
            times_of_label = times[times["label"] == label]
            lines.append(_draw(axes, summary(times_of_label, column), look))
        axes.set_xlabel(axes_names[column])
        _ticks(axes, times[column])
    panels[0].set_ylabel("time of a decision [ms]")
    panels[0].set_yscale("log")
    log_ticks(panels[0].yaxis)
    if len(labels) > 1:
        legend(figure, dict(zip(lines, labels, strict=True)))
    return figure


def summary(times: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the 10th, 50th and 90th percentile of the time [ms] by the values of a column.

    If there are many values, they are grouped in even steps of their logarithm, and each group is named by its mean.
    """
    values = times[column].to_numpy(float)
    key = values
    if len(np.unique(values)) > MOST_POINTS:
        # A little beyond the largest value, so that rounding does not put it into a group of its own.
        edges = np.geomspace(values.min(), values.max() * (1 + 1e-9), MOST_POINTS + 1)
        key = np.searchsorted(edges, values, side="right").astype(float)
    frame = pd.DataFrame({"key": key, "x": values, "ms": 1e3 * times["seconds"].to_numpy(float)})
    milliseconds = frame.groupby("key")["ms"]
    quantiles = {
        "x": frame.groupby("key")["x"].mean(),
        "low": milliseconds.quantile(0.1),
        "middle": milliseconds.quantile(0.5),
        "high": milliseconds.quantile(0.9),
    }
    return pd.DataFrame(quantiles).reset_index(drop=True)


def _draw(axes: Axes, points: pd.DataFrame, look: Look):  # type: ignore[no-untyped-def]
    """Draw the medians as a line and the percentiles as bars, and return the line."""
    x = points["x"].to_numpy()
    (line,) = axes.plot(x, points["middle"].to_numpy(), color=look.color, linestyle=look.linestyle, marker=look.marker)
    axes.vlines(x, points["low"], points["high"], color=look.color, linewidth=0.8)
    return line


def _ticks(axes: Axes, values: pd.Series[float]) -> None:
    """Make the x axis logarithmic. If there are few values, each has a tick."""
    axes.set_xscale("log")
    log_ticks(axes.xaxis)
    distinct = sorted(values.unique())
    if len(distinct) <= 8:
        axes.xaxis.set_major_locator(FixedLocator(distinct))
        axes.xaxis.set_minor_locator(NullLocator())


@styled
def draw_levels(target: Target, curve: Mapping[float, Estimate], answer: float | None, x: str) -> Drawing:
    """Draw the metric of a target [s; 1 for ρ] by level of `x`, its bound, and the level that is the answer.

    Means have 95 % intervals. Levels at which jobs were left are not drawn. Above the bound, the axis is logarithmic.
    """
    _, factor = target.unit
    figure, axes = new_panel(ONE_COLUMN)
    points = []
    for level, metric in curve.items():
        if np.isfinite(metric.value):
            points.append((level, *metric))
    x_values, means, low, high = np.array(points, dtype=float).reshape(-1, 4).T
    # Linear up to the bound, which must be above 0, and logarithmic beyond it: small clusters have very long waits.
    axes.set_yscale("symlog", linthresh=max(target.bound / factor, 1e-9))
    axes.plot(x_values, means / factor, marker="o", color=PALETTE[0])
    axes.vlines(x_values, low / factor, high / factor, color=PALETTE[0], linewidth=0.8)
    names = {axes.axhline(target.bound / factor, color=GREY, linestyle="--"): str(target)}
    if answer is not None:
        names[axes.axvline(answer, color=GREY, linestyle=":")] = f"{x} found: {answer:g}"
    axes.yaxis.set_major_formatter("{x:g}")
    has_whole_levels = all(float(level).is_integer() for level in curve)
    axes.xaxis.set_major_locator(MaxNLocator(integer=has_whole_levels))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(target.heading)
    legend(figure, names)
    return figure
