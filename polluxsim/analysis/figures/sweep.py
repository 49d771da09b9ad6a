"""A metric of many runs against one setting, with intervals (Figure 8 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from polluxsim.analysis.bootstrap import independent, mean
from polluxsim.analysis.figures.groups import POLICY, REPLICATES, in_words, labels_of, policy_name, settings_of
from polluxsim.analysis.figures.lines import name_lines
from polluxsim.analysis.figures.style import ONE_COLUMN, SECONDS_PER_HOUR, looks, new_figure, styled
from polluxsim.errors import InvalidInputError
from polluxsim.storage import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from polluxsim.analysis.figures.style import Look
    from polluxsim.storage import Run

    Array = NDArray[np.float64]

SETTINGS = ("cluster.", "engine.", "policy.", "profiles.", "workload.")
"""What the columns of settings begin with; the seed is one too."""

METRICS = {
    "avg_jct": ("average JCT", "h"),
    "p50_jct": ("median JCT", "h"),
    "p99_jct": ("99th percentile JCT", "h"),
    "makespan": ("makespan", "h"),
    "gpu_hours": ("GPU time", "GPU h"),
    "restarts": ("restarts", ""),
}

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

WORKLOAD = ("workload.path", "workload.seed")
"""Settings by which workloads of a kind differ; the seed alone is a policy's."""


@dataclass(frozen=True)
class Series:
    """A metric against a setting, for runs that are alike in all else but seed and workload.

    Parameters
    ----------
    label
        What sets them apart.
    policy
        Their policy.
    x
        Values of the setting, rising, shape (n,); a single nan where these runs do not have it.
    mean, low, high
        Mean, and its 95 % interval as `analysis.bootstrap` gives it for independent units, shape (n,); nan where there
        are too few units for an interval.
    """

    label: str
    policy: str
    x: Array
    mean: Array
    low: Array
    high: Array


def sweep_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each run, of its settings and its summary's metrics, like the dataset of a sweep."""
    rows = []
    for run in runs:
        summary = run.info.get("summary") or {}
        metrics = {key: value for key, value in flat(summary).items() if isinstance(value, int | float)}
        rows.append(settings_of(run) | metrics)
    return pd.DataFrame(rows)


@styled
def sweep(
    frame: pd.DataFrame, x: str, metric: str = "avg_jct", by: Sequence[str] | None = None, width: float = ONE_COLUMN
) -> Figure:
    """Draw the mean of a metric against a setting, with 95 % bootstrap intervals where there are enough runs for them.

    Workloads are the units where there are six or more, else runs; of less than six units there is no interval.
    Runs that do not have the setting (a policy without it) are a level line.

    Parameters
    ----------
    frame
        A row for each run: settings by their path, like `policy.p`, and metrics.
    x
        Setting along the axis.
    metric
        Column to draw; times are drawn in hours.
    by
        Settings that a line has in common; by default all that differ but `x`, seeds and workloads.
    width
        [cm].

    Raises
    ------
    InvalidInputError
        If there is no such column, or it does not hold numbers.
    """
    found = series_of(frame, x, metric, by)
    figure = new_figure(width, 0.62 * width if width <= 10 else 0.45 * width)
    axes = figure.subplots()
    ticks = np.unique(np.concatenate([series.x[np.isfinite(series.x)] for series in found]))
    _x_axis(axes, x, ticks)
    lines = {
        _draw(axes, series, look): series.label
        for series, look in zip(found, looks([series.policy for series in found]), strict=True)
    }
    name, unit = METRICS.get(metric, (metric, ""))
    name = f"mean JCT of {metric.partition('.')[2]}" if metric.startswith("jct_by_application.") else name
    unit = "h" if _is_time(metric) else unit
    axes.set_ylabel(f"{name} [{unit}]" if unit else name)
    axes.set_ylim(bottom=0)
    name_lines(axes, lines, _bars(found))
    return figure


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


def series_of(frame: pd.DataFrame, x: str, metric: str, by: Sequence[str] | None = None) -> list[Series]:
    """Return what `sweep` draws.

    Raises
    ------
    InvalidInputError
        As for `sweep`.
    """
    _check(frame, x, metric, by)
    rows = [_present(row) for row in frame.to_dict("records")]
    policies = [policy_name(row) for row in rows]
    labels = _labels(rows, x, by)
    values = frame[metric].to_numpy(float) / (SECONDS_PER_HOUR if _is_time(metric) else 1.0)
    places = pd.to_numeric(frame[x], errors="coerce").to_numpy(float)
    workloads = np.array([" ".join(str(row.get(name)) for name in WORKLOAD) for row in rows])
    keys = list(dict.fromkeys(zip(policies, labels, strict=True)))
    order = [policy for policy, _ in keys]
    found = []
    for policy, label in sorted(keys, key=lambda key: order.index(key[0])):
        chosen = np.array([key == (policy, label) for key in zip(policies, labels, strict=True)])
        found.append(_series(label, policy, places[chosen], values[chosen], workloads[chosen]))
    return found


def _series(label: str, policy: str, places: Array, values: Array, workloads: NDArray[np.str_]) -> Series:
    x = np.unique(places)  # takes all nan for one value
    estimates = []
    for value in x:
        here = (places == value) | (np.isnan(places) & np.isnan(value))
        units = independent(values[here], workloads[here].tolist())
        # Drawn by a generator of its own, so that a point does not depend on what else is drawn.
        estimates.append(mean(units, np.random.default_rng(0)))
    means, low, high = np.array(estimates, dtype=float).T  # takes None, where there is no interval, for nan
    return Series(label, policy, x, means, low, high)


def _check(frame: pd.DataFrame, x: str, metric: str, by: Sequence[str] | None) -> None:
    for name, kind in [(x, "setting"), (metric, "metric"), *((name, "setting") for name in by or ())]:
        if name not in frame or frame[name].isna().all():
            settings = [column for column in frame if _is_setting(str(column)) == (kind == "setting")]
            known = sorted(str(column) for column in settings if frame[column].notna().any())
            raise InvalidInputError(f"the runs have no {kind} {name!r}, allowed are {', '.join(known)}")
    for name in (x, metric):
        wrong = frame[name].notna() & pd.to_numeric(frame[name], errors="coerce").isna()
        if wrong.any():
            raise InvalidInputError(f"{name} is {frame.loc[wrong, name].iloc[0]!r} in a run, allowed are numbers")
    if frame[metric].isna().any():
        raise InvalidInputError(f"{int(frame[metric].isna().sum())} of the runs have no {metric}")


def _labels(rows: Sequence[dict[str, Any]], x: str, by: Sequence[str] | None) -> list[str]:
    settings = [{key: value for key, value in row.items() if _is_setting(key)} for row in rows]
    if by is None:
        return labels_of(settings, pooled=REPLICATES, ignoring=(x,))
    named = [", ".join(in_words(key, row.get(key), by) for key in by if key != POLICY) for row in settings]
    several = POLICY in by or len({policy_name(row) for row in settings}) > 1
    return [
        ", ".join(part for part in (policy_name(row) if several else "", words) if part)
        for row, words in zip(settings, named, strict=True)
    ]


def _present(row: dict[Any, Any]) -> dict[str, Any]:
    """Return a table's row without the cells that are empty."""
    return {str(key): value for key, value in row.items() if isinstance(value, list | dict) or pd.notna(value)}


def _is_setting(column: str) -> bool:
    return column == "seed" or column.startswith(SETTINGS)


def _is_time(metric: str) -> bool:
    return METRICS.get(metric, ("", ""))[1] == "h" or metric.startswith("jct_by_application.")


def _x_axis(axes: Axes, x: str, ticks: Array) -> None:
    axes.set_xlabel(AXES.get(x, x))
    positive = len(ticks) > 2 and ticks[0] > 0
    if positive and ticks[-1] / ticks[0] >= 8:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(ticks.tolist()) if len(ticks) <= 8 else MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _draw(axes: Axes, series: Series, look: Look) -> Any:
    if np.isnan(series.x).all():
        line = axes.axhline(series.mean[0], color=look.color, linestyle=look.linestyle)
        if np.isfinite(series.low[0]):
            axes.axhspan(series.low[0], series.high[0], color=look.color, alpha=0.1, linewidth=0)
        return line
    (line,) = axes.plot(series.x, series.mean, color=look.color, linestyle=look.linestyle, marker=look.marker)
    known = np.isfinite(series.low)
    axes.errorbar(
        series.x[known], series.mean[known],
        # Where all resamples lie on one side, the other end is the mean itself, but for rounding.
        np.maximum([(series.mean - series.low)[known], (series.high - series.mean)[known]], 0),
        fmt="none", ecolor=look.color, elinewidth=0.8, capsize=2.0, capthick=0.8,
    )  # fmt: skip
    return line
