"""A metric of many runs against one setting, with intervals (Figure 8 of the paper). Widths are in [cm]."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidInputError
from polluxsim.look.colours import Look, looks
from polluxsim.look.plot.style import GREY, ONE_COLUMN, Drawing, name_lines, new_panel, styled
from polluxsim.metrics.declared import declared_in
from polluxsim.records.folders import POLICY, policy_name
from polluxsim.statistics.baselines import baselines
from polluxsim.statistics.comparisons import table_of
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, LEAST_UNITS, Estimate, Measured
from polluxsim.statistics.frames import Row, check_column, every_row_of, rows_of, settings_in
from polluxsim.statistics.groups import REPLICATES, in_words, labels_of
from polluxsim.statistics.metric_lines import metric_of

Array = NDArray[np.float64]

POLICIES = "policy"  # label of the axis if the policies themselves are along it


class Series(NamedTuple):
    """A metric against a setting, for runs of a policy that differ only in this setting, in seed or in workload.

    The arrays have shape (n,), and values of the metric are in the unit of its heading.
    """

    label: str
    policy: str
    # Rising values of the setting, or indices of `SweepFigure.names`; a single nan for runs without the setting.
    x: Array
    mean: Array  # of the metric
    # 95 % interval of the mean, or for pairs, of the change times the mean of the baseline; nan without one.
    low: Array
    high: Array
    change: Array  # value of the change where the bar is that of a change, else nan


class SweepFigure(NamedTuple):
    """Contents of a figure of a sweep."""

    series: Sequence[Series]  # lines
    names: Sequence[str]  # along the x axis; empty if it has numbers
    note: str  # on the bars


class _Point(NamedTuple):
    """A point of a series, with attributes as in `Series`."""

    x: float
    mean: float
    low: float
    high: float
    change: float


def drawn_of(
    frame: pd.DataFrame, x: str, metric: str, by: Sequence[str] | None = None, baseline: str | None = None
) -> SweepFigure:
    """Return the contents of the figure `sweep`. Bars are the intervals of `settings_table`.

    `baseline` is as for `settings_table`. Raise InvalidInputError if a column is missing or not of its kind, if a run
    has no value of the metric, or if no run is the baseline.
    """
    if x == POLICIES:
        # The column has the name of a configuration file. The axis has the name of the policy.
        frame = frame.assign(**{POLICIES: list(map(policy_name, every_row_of(frame)))})
    _check(frame, x, metric, by)
    rows = rows_of(frame)
    places, names = _places([row.get(x) for row in rows], x)
    policies = list(map(policy_name, rows))
    if x == POLICIES:
        policies = [""] * len(rows)
    lines = list(zip(policies, _labels(rows, x, by), strict=True))
    # The runs of one point of a line share an arm.
    arms = [f"{line}{place}" for line, place in zip(lines, places, strict=True)]
    declared = metric_of(metric, declared_in(frame))
    if baseline is not None:
        # An error then lists the labels of settings. Those of arms mean nothing to the user.
        baselines(rows, labels_of([settings_in(row) for row in rows]), baseline)
    table = table_of(rows, arms, {metric: declared}, baseline, _pooled(rows, x, by))
    means = {arm: cells[metric].mean for arm, cells in table.cells.items()}
    changes_with_interval: list[Measured] = []
    for cells in table.cells.values():
        change = cells[metric].change
        if change is not None and change.estimate.low is not None:
            changes_with_interval.append(change)
    points = {}
    for line, arm, place in zip(lines, arms, places, strict=True):
        mean = means[arm].estimate
        # All bars of a figure are of one kind: changes, if a change has an interval.
        if changes_with_interval:
            baseline_mean = means[table.baselines[arm]].estimate.value
            points[line, arm] = _point_against(baseline_mean, place, mean, table.cells[arm][metric].change)
        else:
            points[line, arm] = _point(place, mean)
    if changes_with_interval:
        rows_of_arms = dict(zip(reversed(arms), reversed(rows), strict=True))
        words = _baselines_in_words([rows_of_arms[arm] for arm in dict.fromkeys(table.baselines.values())], x)
        note = _note(changes_with_interval, words)
    else:
        note = _note(list(means.values()), "")
    return SweepFigure(_series(points, in_words(x, None)), names, note)


def _baselines_in_words(rows: Sequence[Row], x: str) -> str:
    """Return the baselines in words, given the first run of each."""
    if x == POLICIES:
        values = [str(row.get(x)) for row in rows]
    else:
        values = [in_words(x, row.get(x)) for row in rows]
    policies = list(dict.fromkeys(map(policy_name, rows)))
    if len(set(values)) == 1:
        return values[0]
    if len(policies) == 1:
        return f"{policies[0]} at the same workload"
    return "the most similar baseline"


def _point(x: float, mean: Estimate) -> _Point:
    """Return the mean with its own interval."""
    low = np.nan
    high = np.nan
    if mean.low is not None and mean.high is not None:
        low = mean.low
        high = mean.high
    return _Point(x, mean.value, low, high, np.nan)


def _point_against(baseline: float, x: float, mean: Estimate, change: Measured | None) -> _Point:
    """Return the mean with the change against a baseline and its interval, times the mean of the baseline.

    A bar then ends below the point of the baseline exactly if the interval of the change ends below 0.
    """
    low = np.nan
    high = np.nan
    changed = np.nan
    if change is not None and change.is_known and change.estimate.low is not None and change.estimate.high is not None:
        low = baseline * (1 + change.estimate.low)
        high = baseline * (1 + change.estimate.high)
        changed = baseline * (1 + change.estimate.value)
    return _Point(x, mean.value, low, high, changed)


def _series(points: Mapping[tuple[tuple[str, str], str], _Point], without: str) -> list[Series]:
    """Return the lines, given the points by line (policy and label) and arm.

    Runs without the setting are a line of their own; `without` is added to its label if the line has other runs.
    """
    lines = defaultdict[tuple[str, str, bool], list[_Point]](list)  # the last part of a key: without the setting
    for (line, _), point in points.items():
        lines[*line, isnan(point.x)].append(point)
    policies = [policy for policy, _, _ in lines]
    # Policies keep the order of the runs. The runs without the setting come last, like a reference line.
    keys = sorted(lines, key=lambda key: (policies.index(key[0]), key[2]))
    all_series = []
    for policy, label, is_level in keys:
        columns = np.array(sorted(lines[policy, label, is_level]), dtype=float).T
        names = [label]
        if is_level and (policy, label, False) in lines:
            names.append(without)
        name = ", ".join(filter(None, names))
        all_series.append(Series(name, policy, *columns))
    return all_series


def _note(measures: Sequence[Measured], baseline: str) -> str:
    """Return the note on the bars: what they are, or why there are none."""
    if all(measured.estimate.low is None for measured in measures):
        num_units = max(measured.num_units for measured in measures)
        units = measures[0].units
        if units == "seeds":
            units = "runs"  # also runs of several workloads, if they are too few for units of their own
        are = "is" if num_units == 1 else "are"
        return f"no bars: an interval needs {LEAST_UNITS} {units}, there {are} {num_units}"
    note = "bars: 95 % interval of the mean"
    values = "values"
    if baseline:
        note = f"bars: 95 % interval of the change against {baseline}, by pairs; dashes: the change"
        values = "log ratios"
    if any(LEAST_UNITS <= measured.num_units < LEAST_FOR_VERDICT for measured in measures):
        note += f"\nassuming normal {values}, for fewer than {LEAST_FOR_VERDICT}"
    return note


def _places(values: Sequence[Any], x: str) -> tuple[Array, list[str]]:
    """Return the position of each run along the axis, and the names at these positions if values are not numbers."""
    if all(value is None or _is_number(value) for value in values):
        return np.array(values, dtype=float), []  # None becomes nan
    prefix = x.rpartition(".")[2].replace("_", " ") + " = "
    places = []
    names: list[str] = []
    for value in values:
        if value is None:
            places.append(np.nan)
            continue
        # The title of the axis has the name of the setting already.
        name = in_words(x, value).removeprefix(prefix)
        if name not in names:
            names.append(name)
        places.append(names.index(name))
    return np.array(places, dtype=float), names


def _is_number(value: object) -> bool:
    # True and False are of type int, but have names on an axis.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pooled(rows: Sequence[Row], x: str, by: Sequence[str] | None) -> list[str]:
    """Return the settings in which the runs of a point differ; runs that agree in them are pairs."""
    distinguished = {x, POLICY, *(by or ())}
    if by is None:
        return [name for name in REPLICATES if name not in distinguished]
    keys: dict[str, None] = {}
    for row in rows:
        keys |= dict.fromkeys(settings_in(row))
    pooled = []
    for key in keys:
        values = {repr(row.get(key)) for row in rows}
        if key not in distinguished and len(values) > 1:
            pooled.append(key)
    return pooled


def _check(frame: pd.DataFrame, x: str, metric: str, by: Sequence[str] | None) -> None:
    """Raise InvalidInputError if a column is missing or not of its kind, or if a run has no value of the metric."""
    check_column(frame, x, "setting")
    check_column(frame, metric, "metric")
    for name in by or ():
        check_column(frame, name, "setting")
    num_missing = int(frame[metric].isna().sum())
    if num_missing:
        have = "run has" if num_missing == 1 else "runs have"
        raise InvalidInputError(f"{num_missing} {have} no {metric}; leave out these runs, or give another metric")


def _labels(rows: Sequence[Row], x: str, by: Sequence[str] | None) -> list[str]:
    """Return the label of the line of each run."""
    settings = [settings_in(row) for row in rows]
    if x == POLICIES:
        # The settings of a policy belong to the policy, which is along the axis.
        settings_beside_policy = []
        for row in settings:
            row_beside_policy = {POLICY: ""}
            for key, value in row.items():
                if not key.startswith("policy"):
                    row_beside_policy[key] = value
            settings_beside_policy.append(row_beside_policy)
        labels = labels_of(settings_beside_policy)
        if len(set(labels)) == 1:
            return [""] * len(labels)
        return labels
    if by is None:
        return labels_of(settings, pooled=REPLICATES, ignoring=(x,))
    has_policies = POLICY in by or len({policy_name(row) for row in settings}) > 1
    labels = []
    for row in settings:
        parts = [in_words(key, row.get(key), by) for key in by if key != POLICY]
        if has_policies:
            parts.insert(0, policy_name(row))
        labels.append(", ".join(parts))
    return labels


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
"""Titles of the x axis, by setting."""

MOST_LETTERS = 11  # of names and numbers along the axis, for each inch of the figure; more are slanted
LETTERS_OF_NOTE = 6.9  # most letters in a line of the note above the axes, for each centimetre of the figure
CROWDED = 0.06  # share of the axis between neighbours below which their numbers would overlap
NEAR_ZERO = 0.5  # if the least value is below this share of the largest, the axis starts at 0


@styled
def sweep(
    frame: pd.DataFrame,
    x: str,
    metric: str = "avg_jct",
    by: Sequence[str] | None = None,
    width: float = ONE_COLUMN,
    baseline: str | None = None,
) -> Drawing:
    """Draw the mean of a metric against a setting, with 95 % intervals.

    `frame` is as for `settings_table`, `x` a setting or `policy`, and `by` the settings that have a line for each value
    (default: all that differ). Pairs of runs have intervals of the change against `baseline`, as in `settings_table`.
    Runs without the setting are a level line. Raise InvalidInputError as `drawn_of` does.
    """
    content = drawn_of(frame, x, metric, by, baseline)
    figure, axes = new_panel(width)
    all_x = np.concatenate([series.x for series in content.series])
    ticks = np.unique(all_x[np.isfinite(all_x)])  # runs without the setting have no place along the axis
    _x_axis(axes, x, ticks, content.names)
    lines = {}
    line_looks = looks([series.policy for series in content.series])
    for series, look in zip(content.series, line_looks, strict=True):
        lines[_draw_series(axes, series, look, is_line=not content.names)] = series.label
    if x == POLICIES:
        _colour_by_policy(axes, content, lines)
    axes.set_ylabel(metric_of(metric, declared_in(frame)).heading)
    starts_at_0 = _y_axis(axes, content.series)
    notes = content.note.splitlines()
    if not starts_at_0:
        notes.append("the axis does not start at 0")
    if notes:
        letters_in_line = int(LETTERS_OF_NOTE * width)
        filled_notes = [fill(note, letters_in_line) for note in notes]
        axes.set_title("\n".join(filled_notes), loc="left", fontsize=6.5, color=GREY)
    if any(lines.values()):
        name_lines(axes, lines, _bars(content.series))
    return figure


def _y_axis(axes: Axes, all_series: Sequence[Series]) -> bool:
    """Choose a range that shows the effect; return whether it starts at 0."""
    columns = []
    for series in all_series:
        columns += [series.mean, series.low, series.high]
    values = np.concatenate(columns)
    low = np.nanmin(values)
    high = np.nanmax(values)
    if low < 0 or low < NEAR_ZERO * high or low == high:
        top = None
        if high > 0:  # otherwise the axis would be upside down, or empty
            top = 1.03 * high
        axes.set_ylim(min(0.0, 1.03 * low), top)
        return True
    margin = 0.15 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    return False


def _colour_by_policy(axes: Axes, content: SweepFigure, lines: Iterable[Line2D]) -> None:
    """Give each policy its own marker in a series with a point for every policy, drawn as one of `lines`."""
    if len(content.series) > 1:
        return
    for line in lines:
        line.set_marker("none")
    policy_looks = looks(content.names)
    for series in content.series:
        for index, mean in zip(series.x.astype(int), series.mean, strict=True):
            look = policy_looks[index]
            axes.plot([index], [mean], color=look.color, marker=look.marker, linestyle="none")


def _bars(all_series: Sequence[Series]) -> Array:
    """Return 50 points along each interval, shape (n, 2), which no name of a line may hide."""
    x = np.concatenate([series.x for series in all_series])
    low = np.concatenate([series.low for series in all_series])
    high = np.concatenate([series.high for series in all_series])
    points = np.stack([np.broadcast_to(x, (50, len(x))), np.linspace(low, high, 50)], axis=-1).reshape(-1, 2)
    finite_points: Array = points[np.isfinite(points).all(axis=1)]
    return finite_points


def _x_axis(axes: Axes, x: str, ticks: Array, names: Sequence[str]) -> None:
    """Set the title, the scale and the ticks of the x axis."""
    axes.set_xlabel("" if x == POLICIES else AXES.get(x, x))
    if names:
        is_slanted = sum(map(len, names)) > MOST_LETTERS * axes.figure.get_figwidth()  # type: ignore[union-attr]
        if is_slanted:
            axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        else:
            axes.set_xticks(range(len(names)), names, rotation=0, ha="center")
        axes.set_xlim(-0.5, len(names) - 0.5)
        return
    if len(ticks) > 2 and ticks[0] > 0 and ticks[-1] / ticks[0] >= 8:
        axes.set_xscale("log")
    elif len(ticks) > 2 and np.diff(ticks).min() < CROWDED * np.ptp(ticks):
        axes.set_xscale("symlog", linthresh=np.median(np.abs(ticks[ticks != 0])))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(ticks) <= 8:
        axes.xaxis.set_major_locator(FixedLocator(ticks.tolist()))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(_number)
    if _is_tight(axes, ticks):
        axes.tick_params(axis="x", rotation=45)


def _is_tight(axes: Axes, ticks: Array) -> bool:
    """Return whether the numbers at the ticks would overlap."""
    if len(ticks) > 8:
        return False  # the axis has fewer numbers than ticks
    places = axes.xaxis.get_transform().transform(ticks)
    letters = np.array([len(_number(tick)) for tick in ticks])
    width = MOST_LETTERS * axes.figure.get_figwidth()  # type: ignore[union-attr]
    available = np.diff(places) / max(np.ptp(places), 1e-9) * width
    needed = (letters[1:] + letters[:-1]) / 2 + 0.5
    return bool((available < needed).any())


def _number(value: float, _: object = None) -> str:
    return f"{value:g}".replace("-", "−")


def _draw_series(axes: Axes, series: Series, look: Look, *, is_line: bool) -> Any:
    """Draw the means of a series with their intervals, and return the line."""
    if np.isnan(series.x).all():
        line = axes.axhline(series.mean[0], color=look.color, linestyle=look.linestyle)
        if np.isfinite(series.low[0]):
            axes.axhspan(series.low[0], series.high[0], color=look.color, alpha=0.1, linewidth=0)
        return line
    linestyle = look.linestyle if is_line else "none"
    (line,) = axes.plot(series.x, series.mean, color=look.color, linestyle=linestyle, marker=look.marker)
    has_interval = np.isfinite(series.low)
    # The mean of a sample with outliers can be outside the interval of the geometric mean, so the bar is drawn by its
    # ends, and not by its distances from the mean.
    middle = (series.low + series.high)[has_interval] / 2
    half_length = (series.high - series.low)[has_interval] / 2
    axes.errorbar(
        series.x[has_interval], middle, half_length, fmt="none", ecolor=look.color, elinewidth=0.8, capsize=2.0,
        capthick=0.8,
    )  # fmt: skip
    if has_interval.any():
        has_change = np.isfinite(series.change)
        axes.plot(series.x[has_change], series.change[has_change], color=look.color, marker="_", linestyle="none")
    return line
