"""Figures of a cluster over time: the queue, the job on each GPU, and the cost of failures. Widths are in [cm]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.colours import application_colour, is_coloured_by_application, job_colour, looks_of
from polluxsim.look.job_progress import undone_training
from polluxsim.look.occupancy import occupancy
from polluxsim.look.plot.style import (
    ONE_COLUMN,
    Drawing,
    legend,
    mark_forks,
    name_lines,
    new_figure,
    new_panel,
    results_of,
    styled,
    time_axis,
)
from polluxsim.look.plot.usage import BIN, draw_mean
from polluxsim.look.run_facts import cluster_of
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import RunGroup
from polluxsim.statistics.series import axis_start, bin_edges, waiting_jobs

Losses = list[tuple[float, float, int]]  # start and end of a period [s], and the GPUs that were lost in it

MAP_COLOURS = {"idle": "#E9ECF1", "down": "#8A94A0"}
DOWN: dict[str, Any] = {"facecolor": "white", "edgecolor": MAP_COLOURS["down"], "hatch": "////", "linewidth": 0}

LETTERS_OF_TITLE = 5.0  # letters in a line of the title of a panel, for each centimetre of the figure

MANY = 3000  # more rectangles than this are drawn without a border


@styled
def queue(groups: Sequence[RunGroup], bin_width: float = BIN, width: float = ONE_COLUMN) -> Drawing:
    """Draw the jobs that are submitted and hold no GPU, over time.

    A line is the mean over the runs of a group in bins of `bin_width` [s], with a band from the smallest to the largest
    value of a run.
    """
    figure, axes = new_panel(width)
    lines = {}
    has_waits = False
    results = results_of(groups)
    for group, look in zip(groups, looks_of(groups), strict=True):
        end = max(run.result.end_time for run in group.runs)
        # All groups have the same start, so that their bins lie above each other.
        edges = bin_edges(end, bin_width, axis_start(results))
        rows = np.array([waiting_jobs(run.result).means(edges) for run in group.runs])
        line = draw_mean(axes, edges, rows, look)
        lines[line] = group.label
        has_waits = has_waits or bool(rows.any())
    axes.set_ylabel("jobs without a GPU")
    axes.set_ylim(bottom=0)
    if not has_waits:
        axes.set_ylim(top=1)
        axes.text(0.5, 0.5, "No job waited for a GPU.", transform=axes.transAxes, ha="center", va="center")
    time_axis(axes, results)
    mark_forks(axes, groups)
    name_lines(axes, lines)
    return figure


@styled
def gpu_map(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the job on each GPU over time, for the first run of each group. Nodes that are down are hatched."""
    runs = [group.runs[0] for group in groups]
    heights = []
    applications: set[str] = set()
    for run in runs:
        num_gpus = sum(cluster_of(run).gpus_per_node)
        # The panel of a large cluster stays on a page, with thinner rows.
        heights.append(max(2.5, min(0.055 * num_gpus, 9.0)))
        applications.update(job.application for job in run.result.job_records)
    figure = new_figure(width, sum(heights) + 1.6)
    panels = figure.subplots(len(runs), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    # Over the applications of all runs, so that an application has the same colour in all panels.
    has_hue = is_coloured_by_application(applications)
    for axes, run, group in zip(panels, runs, groups, strict=True):
        _draw_map(axes, run, has_hue=has_hue)
        mark_forks(axes, [group], has_title=len(groups) > 1)
        if len(groups) > 1:
            axes.set_title(fill(group.label, int(LETTERS_OF_TITLE * width)), loc="left")
    panels[-1].set_xlim(right=max(run.result.end_time for run in runs) / HOUR)
    time_axis(panels[-1], [run.result for run in runs])
    names: dict[Artist, str] = {}
    if has_hue:
        for application in sorted(applications):
            names[Patch(facecolor=application_colour(application))] = application
    if any(run.result.outage_records for run in runs):
        names[Patch(**DOWN)] = "node down"
    if names:
        legend(figure, names)
    return figure


def _draw_map(axes: Axes, run: Run, *, has_hue: bool) -> None:
    """Draw the map of a run; `has_hue` states whether colours distinguish applications."""
    result = run.result
    cluster = cluster_of(run)
    held = occupancy(result, cluster)
    end = result.end_time / HOUR
    colours = []
    for number, job in enumerate(result.job_records):
        colours.append(job_colour(job.application if has_hue else None, number))
    first_rows = np.cumsum([0, *cluster.gpus_per_node])
    num_rows = int(first_rows[-1])
    axes.add_collection(_bars([(0.0, end, 0, num_rows)], facecolor=MAP_COLOURS["idle"], linewidth=0))
    places = zip(held.start / HOUR, held.end / HOUR, held.row, held.rows, strict=True)
    edge = 0.15
    if len(held.start) >= MANY:
        edge = 0.0  # borders of so many rectangles would cover the map
    faces = [colours[job] for job in held.job.tolist()]
    axes.add_collection(_bars(places, facecolor=faces, edgecolor="white", linewidth=edge))
    downs = []
    for outage in result.outage_records:
        first_row = int(first_rows[outage.node])
        downs.append((outage.time / HOUR, min(outage.until / HOUR, end), first_row, outage.gpus))
    axes.add_collection(_bars(downs, gid="down", **DOWN))
    axes.set_ylim(num_rows, 0)  # the first node is at the top
    axes.set_ylabel("GPU")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=False)


def _bars(places: Iterable[tuple[float, float, int, int]], **look: Any) -> PolyCollection:
    """Return rectangles from one time to another [h], over a number of rows from a first row on."""
    corners = []
    for start, end, row, rows in places:
        corners.append([(start, row), (end, row), (end, row + rows), (start, row + rows)])
    return PolyCollection(corners, **look)


@styled
def failures(groups: Sequence[RunGroup], width: float = ONE_COLUMN) -> Drawing:
    """Draw the nodes that are down over time, and the GPU time that failures cost so far.

    The nodes are those of the first run of each group. GPU time is lost on nodes that are down, and where a failure
    undid training. Raise InvalidInputError if a run has neither outages nor failures.
    """
    runs = [group.runs[0] for group in groups]
    losses = [_losses(run) for run in runs]
    for run, (down, undone) in zip(runs, losses, strict=True):
        if not down and not undone:
            raise InvalidInputError(
                f"{run.name}: no node went down and no job failed; draw a run with outages or failures"
            )
    heights = [max(1.6, min(0.18 * cluster_of(run).num_nodes, 6.0)) for run in runs]
    heights.append(3.2)  # of the lower panel, with the GPU time of all runs
    figure = new_figure(width, sum(heights) + 1.6)
    *panels, lower = figure.subplots(len(runs) + 1, sharex=True, height_ratios=heights)
    lines = {}
    for axes, run, group, look, (down, undone) in zip(panels, runs, groups, looks_of(groups), losses, strict=True):
        _draw_outages(axes, run, look.color)
        mark_forks(axes, [group], has_title=len(groups) > 1)
        if len(groups) > 1:
            axes.set_title(fill(group.label, int(LETTERS_OF_TITLE * width)), loc="left")
        for kind, lost, style in (("nodes down", down, "-"), ("training undone", undone, (0, (2, 1)))):
            (line,) = lower.plot(*_so_far(lost, run.result.end_time), color=look.color, linestyle=style)
            lines[line] = f"{group.label}, {kind}" if len(groups) > 1 else kind
    lower.set_ylabel("lost so far\n[GPU h]")
    lower.set_ylim(bottom=0)
    time_axis(lower, [run.result for run in runs])
    figure.align_ylabels()
    legend(figure, lines)
    return figure


def _draw_outages(axes: Axes, run: Run, colour: str) -> None:
    """Draw a bar for each outage, in the row of its node."""
    bars = []
    for outage in run.result.outage_records:
        end = min(outage.until, run.result.end_time)
        bars.append((outage.time / HOUR, end / HOUR, outage.node, 1))
    axes.add_collection(_bars(bars, facecolor=colour, linewidth=0, gid="down"))
    axes.set_ylim(cluster_of(run).num_nodes, 0)  # the first node is at the top
    axes.set_ylabel("node down")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _losses(run: Run) -> tuple[Losses, Losses]:
    """Return the times when GPUs were lost because nodes were down, and because failures undid training.

    Both count from the first submission.
    """
    result = run.result
    down = []
    for outage in result.outage_records:
        if outage.until > result.start_time:
            start = max(outage.time, result.start_time)
            down.append((start, min(outage.until, result.end_time), outage.gpus))
    undone = []
    for stay, start, end, _ in undone_training(run, cluster_of(run)):
        undone.append((start, end, len(stay.slots)))
    return down, undone


def _so_far(losses: Losses, end_time: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times [h] and the GPU time lost up to each of them [GPU h]."""
    # Between two of these times, GPU time is lost at a constant rate. So a line through them is exact.
    ends = {0.0, end_time}
    for start, end, _ in losses:
        ends |= {start, end}
    times = np.array(sorted(ends))
    lost = np.zeros(len(times))
    for start, end, gpus in losses:
        lost += gpus * (np.clip(times, start, end) - start)
    return times / HOUR, lost / HOUR
