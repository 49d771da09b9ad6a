"""Figures of distributions over jobs: completion times, slowdowns, and finish-time fairness (Figure 7 of the paper).

The width of every figure is in cm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from polluxsim.common.errors import InvalidInputError
from polluxsim.look.colours import Look, looks_of
from polluxsim.look.plot.style import (
    GREY,
    ONE_COLUMN,
    Drawing,
    legend,
    log_ticks,
    name_lines,
    new_figure,
    new_panel,
    share_axis,
    styled,
)
from polluxsim.metrics.summary import counted
from polluxsim.records.results import Result
from polluxsim.statistics.groups import RunGroup
from polluxsim.statistics.job_values import (
    Spread,
    completion_hours,
    cumulative,
    hours_by_application,
    size_name,
    spread_of,
    waits_and_slowdowns,
)

Sample = tuple[NDArray[np.float64], int]  # values of jobs that have one, shape (n,), and number of jobs that count

FAIRNESS = "finish_time_fairness"  # column of the table of jobs


@styled
def jct_cdf(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the share of jobs complete within a time of their submission.

    Jobs that were cut off count in the total, so the line of their run ends below 1. A line pools the
    jobs of all runs of a group, and a band shows the single runs. Raise InvalidInputError if no job of any run is
    complete.
    """
    samples = []
    for group in groups:
        samples.append([completion_hours(run.result) for run in group.runs])
    if not any(len(hours) for runs in samples for hours, _ in runs):
        name = groups[0].runs[0].name
        raise InvalidInputError(
            f"{name}: no job completed, so there is no completion time to draw; give a run that lasts longer, or draw "
            "'polluxsim plot gpu-map' or 'polluxsim plot queue'"
        )
    return _drawn(groups, samples, "job completion time [h]", width)


@styled
def fairness_cdf(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the cumulative distribution of the finish-time fairness ρ.

    A job with ρ < 1 completed earlier than on a fair share. Jobs that were cut off count in the total, as in `jct_cdf`.
    Raise InvalidInputError if a run has no values.
    """
    samples = []
    for group in groups:
        samples.append([fairness_of(run.name, run.result) for run in group.runs])
    return _drawn(groups, samples, "finish-time fairness ρ", width, mark=1.0)


def cdf(values: ArrayLike, count: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the steps of `cumulative(values, count)`: values and shares, each of shape (2n,).

    >>> [corners.tolist() for corners in cdf([3, 1])]
    [[1.0, 1.0, 3.0, 3.0], [0.0, 0.5, 0.5, 1.0]]
    """
    x, share = cumulative(values, count)
    return np.repeat(x, 2), np.repeat(np.append(0.0, share), 2)[1:-1]


def fairness_of(name: str, result: Result) -> Sample:
    """Return the known values of ρ, shape (n,), and the number of complete or cut-off jobs.

    Raise InvalidInputError, with the name of the run, if no job has a value.
    """
    jobs = result.jobs
    if FAIRNESS not in jobs or jobs[FAIRNESS].isna().all():
        raise InvalidInputError(f"{name}: its jobs.parquet has no column {FAIRNESS!r} with values, which this needs")
    return jobs[FAIRNESS].dropna().to_numpy(float), len(counted(result))


def _drawn(
    groups: Sequence[RunGroup], samples: Sequence[Sequence[Sample]], title: str, width: float, mark: float | None = None
) -> Drawing:
    """Draw the distributions of samples, given for each run of each group, with a vertical line at `mark`."""
    figure, axes = new_panel(width)
    axes.set_xscale("log")
    for group, look, runs in zip(groups, looks_of(groups), samples, strict=True):
        _line(axes, group, look, runs)
    share_axis(axes, "share of jobs")
    log_ticks(axes.xaxis)
    axes.set_xlabel(title)
    # Before the line at `mark`, which has no name
    labels = [group.label for group in groups]
    lines = dict(zip(axes.get_lines(), labels, strict=True))
    if mark is not None:
        axes.axvline(mark, color=GREY, linewidth=0.6, zorder=1)
    name_lines(axes, lines)
    return figure


def _line(axes: Axes, group: RunGroup, look: Look, runs: Sequence[Sample]) -> None:
    """Draw the distribution of the pooled samples of a group, and a band of those of its runs."""
    pooled_values = np.concatenate([values for values, _ in runs])
    num_jobs = sum(count for _, count in runs)
    x, share = cdf(pooled_values, num_jobs)
    axes.plot(x, share, color=look.color, linestyle=look.linestyle, label=group.label)
    if len(runs) == 1 or not len(x):
        return
    # The runs have steps at different values. The band needs the shares of all runs at all steps.
    grid = np.unique(x)
    shares = []
    for values, count in runs:
        num_up_to = np.searchsorted(np.sort(values), grid, side="right")
        shares.append(num_up_to / max(count, 1))
    low = np.min(shares, axis=0)
    high = np.max(shares, axis=0)
    axes.fill_between(grid, low, high, color=look.color, alpha=0.15, linewidth=0, step="post")


@styled
def jct_by_application(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the mean completion time of each application's jobs, with a bar from the 10th to the 90th percentile.

    Each group has a marker in each application's row; the jobs of all its runs count. A job that was cut off counts
    with its age at the end of the run, as in the table of runs.
    """
    spreads_of_groups = [spreads(group) for group in groups]
    largest_means: dict[str, float] = {}
    for by_application in spreads_of_groups:
        for name, spread in by_application.items():
            largest_means[name] = max(spread.mean, largest_means.get(name, spread.mean))
    names = sorted(largest_means, key=lambda name: largest_means[name])
    rows = len(names) * max(len(groups), 2)  # a single marker keeps room for the name of its application
    figure = new_figure(width, 1.6 + 0.27 * rows)
    axes = figure.subplots()
    handles = {}
    offsets = _offsets(groups, 0.8, 0.3)[::-1]  # the first group is at the top of a row
    for group, look, by_application, offset in zip(groups, looks_of(groups), spreads_of_groups, offsets, strict=True):
        rows_of_group = []
        group_spreads = []
        for row, name in enumerate(names):
            # Workloads of other seeds need not have jobs of every application.
            if name in by_application:
                rows_of_group.append(row)
                group_spreads.append(by_application[name])
        mean, low, high, _ = np.array(group_spreads).reshape(-1, 4).T
        y = np.array(rows_of_group) + offset
        axes.hlines(y, low, high, color=look.color, linewidth=1.3)
        (points,) = axes.plot(mean, y, look.marker, color=look.color, label=group.label)
        handles[points] = group.label
    axes.set_xscale("log")
    log_ticks(axes.xaxis)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("job completion time [h], mean and 10–90 %")
    if len(groups) > 1:
        legend(figure, handles)
    return figure


def _offsets(groups: Sequence[RunGroup], width: float, most: float) -> NDArray[np.float64]:
    """Return the offsets of markers around a tick, within a width, at most some distance apart [steps of ticks]."""
    distance = min(width / len(groups), most)
    return (np.arange(float(len(groups))) - (len(groups) - 1) / 2) * distance


def spreads(group: RunGroup) -> dict[str, Spread]:
    """Return the spread of the completion times of a group's jobs [h], by application."""
    hours = defaultdict[str, list[NDArray[np.float64]]](list)
    for run in group.runs:
        for name, hours_of_run in hours_by_application(run.result).items():
            hours[name].append(hours_of_run)
    return {name: spread_of(np.concatenate(parts)) for name, parts in hours.items()}


@styled
def slowdown_by_size(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the slowdown of complete jobs, JCT over the time with GPUs, by the number of GPUs that they ask for.

    A point is the median of a group's jobs, a bar goes from the 10th to the 90th percentile. Raise InvalidInputError if
    no job is complete.
    """
    slowdowns_of_groups = [_slowdowns(group) for group in groups]
    sizes = sorted(set().union(*slowdowns_of_groups))
    if not sizes:
        raise InvalidInputError(f"{groups[0].runs[0].name}: no job that asks for GPUs is complete; give another run")
    figure, axes = new_panel(width)
    handles = {}
    offsets = _offsets(groups, 0.7, 0.25)
    for group, look, slowdowns, offset in zip(groups, looks_of(groups), slowdowns_of_groups, offsets, strict=True):
        places = []
        percentiles = []
        for place, size in enumerate(sizes):
            if size in slowdowns:
                places.append(place)
                percentiles.append(np.percentile(slowdowns[size], [10, 50, 90]))
        # Without any size, the array needs its number of columns for the unpacking.
        low, middle, high = np.array(percentiles).reshape(-1, 3).T
        x = np.array(places) + offset
        axes.vlines(x, low, high, color=look.color, linewidth=1.3)
        (points,) = axes.plot(x, middle, look.marker, color=look.color, label=group.label)
        handles[points] = group.label
    axes.set_yscale("log")
    log_ticks(axes.yaxis)
    axes.set_xticks(range(len(sizes)), [size_name(size) for size in sizes])
    axes.set_xlabel("GPUs asked for")
    axes.set_ylabel("slowdown\n(median, 10–90 %)")
    if len(groups) > 1:
        legend(figure, handles)
    return figure


def _slowdowns(group: RunGroup) -> dict[int, list[float]]:
    """Return the slowdowns of a group's jobs by the index of their size in `SIZES`."""
    slowdowns = defaultdict[int, list[float]](list)
    for run in group.runs:
        _, slowdowns_of_run = waits_and_slowdowns(run.result)
        for size, values in slowdowns_of_run.items():
            slowdowns[size] += values
    return slowdowns
