"""Figures of GPUs in use, efficiency and nodes over time (Figures 5 and 9 of the paper). Widths are in [cm]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR
from polluxsim.look.colours import POLICY_COLOURS, Look, looks, looks_of
from polluxsim.look.plot.style import (
    GREY,
    ONE_COLUMN,
    Drawing,
    mark_forks,
    name_lines,
    new_figure,
    results_of,
    share_axis,
    steps,
    styled,
    time_axis,
)
from polluxsim.look.run_facts import cluster_of, is_rented, steady_gpus
from polluxsim.records.results import Result
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import RunGroup
from polluxsim.statistics.series import axis_start, bin_edges, gpus_in_use, nodes_up, usage_by_bin

Array = NDArray[np.float64]

BIN = 1800.0  # [s]; 30 minutes, as in the paper


@styled
def usage(groups: Sequence[RunGroup], bin_width: float = BIN, width: float = ONE_COLUMN) -> Drawing:
    """Draw GPUs in use over time, by type if all runs have several equal types, and the efficiency weighted by GPUs.

    A line is the mean over the runs of a group in bins of `bin_width` [s], with a band from the smallest to the largest
    value of a run.
    """
    types = _nodes_by_type(groups)
    num_panels = max(len(types), 1)
    height = 8.0 if width <= 10 else 9.0
    figure = new_figure(width, height + 3.0 * (num_panels - 1))
    *panels, lower = figure.subplots(num_panels + 1, sharex=True)
    lines = {}
    results = results_of(groups)
    for group, look in zip(groups, looks_of(groups), strict=True):
        end = max(run.result.end_time for run in group.runs)
        # All groups have the same start, so that their bins lie above each other.
        edges = bin_edges(end, bin_width, axis_start(results))
        gpus_of_runs = []
        efficiency_of_runs = []
        for run in group.runs:
            gpus_in_bins, efficiency_in_bins = usage_by_bin(run.result, edges)
            gpus_of_runs.append(gpus_in_bins)
            efficiency_of_runs.append(efficiency_in_bins)
        gpus_in_panels = []
        for nodes in types.values():
            gpus_in_panels.append(np.array([gpus_in_use(run.result, nodes).means(edges) for run in group.runs]))
        if not types:
            gpus_in_panels.append(np.array(gpus_of_runs))
        for axes, gpus in zip(panels, gpus_in_panels, strict=True):
            line = draw_mean(axes, edges, gpus, look)
        # The lines of a group look the same in all panels. Only the last panel has their names.
        lines[line] = group.label
        draw_mean(lower, edges, np.array(efficiency_of_runs), look)
    for axes, name in zip(panels, types or ["GPUs"], strict=True):
        _capacity(axes, groups, types.get(name))
        axes.set_ylabel(f"{name} in use")
        axes.set_ylim(bottom=0)
    mark_forks(panels[0], groups)
    share_axis(lower, "statistical efficiency")
    time_axis(lower, results)
    figure.align_ylabels()
    name_lines(panels[-1], lines)
    return figure


def _nodes_by_type(groups: Sequence[RunGroup]) -> Mapping[str, Sequence[int]]:
    """Return the nodes of each GPU type; {} if clusters differ, or have one type."""
    clusters = []
    for group in groups:
        clusters += [cluster_of(run) for run in group.runs]
    cluster = clusters[0]
    nodes = cluster.node_types.nodes
    # A panel of a type shows one capacity for all runs.
    if len(nodes) > 1 and clusters.count(cluster) == len(clusters):
        return nodes
    return {}


def draw_mean(axes: Axes, edges: Array, rows: Array, look: Look) -> Any:
    """Draw the mean over runs in each bin, with a band from the smallest to the largest value, and return its line.

    `edges` have shape (bins + 1,) [s], and `rows` shape (runs, bins).
    """
    # Runs end at different times, and efficiency is unknown without jobs. So some bins have no value at all.
    has_value = np.isfinite(rows).any(axis=0)
    middle, low, high = np.full((3, rows.shape[1]), np.nan)
    middle[has_value] = np.nanmean(rows[:, has_value], axis=0)
    low[has_value] = np.nanmin(rows[:, has_value], axis=0)
    high[has_value] = np.nanmax(rows[:, has_value], axis=0)
    x = np.asarray(edges) / HOUR
    (line,) = axes.plot(*steps(x, middle), color=look.color, linestyle=look.linestyle)
    if len(rows) > 1:
        corners, bottom = steps(x, low)
        axes.fill_between(corners, bottom, steps(x, high)[1], color=look.color, alpha=0.15, linewidth=0)
    return line


def _capacity(axes: Axes, groups: Sequence[RunGroup], nodes: Sequence[int] | None) -> None:
    """Draw the number of GPUs: one horizontal line for all runs, or a curve for one run with rented nodes."""
    runs: list[Run] = []
    for group in groups:
        runs += group.runs
    if len(runs) == 1 and is_rented(runs[0]):
        _rented_capacity(axes, runs[0])
        return
    # A line stands for all runs, so there is none if clusters differ in size.
    sizes = set()
    for run in runs:
        if nodes is None:
            sizes.add(steady_gpus(run))
        else:
            gpus_per_node = cluster_of(run).gpus_per_node
            sizes.add(sum(gpus_per_node[node] for node in nodes))
    if len(sizes) == 1:
        size = sizes.pop()
        if size is not None:
            axes.axhline(size, color=GREY, linewidth=0.7, zorder=1)
            _named(axes, f"{size} GPUs", size)


def _rented_capacity(axes: Axes, run: Run) -> None:
    """Draw the number of GPUs of the nodes that a policy rents, over time."""
    up = nodes_up(run.result)
    gpus_per_node = cluster_of(run).gpus_per_node
    gpus = []
    for num_nodes in up.values:
        # A run records only how many nodes are up. The cluster rents its nodes in order of their numbers.
        gpus.append(sum(gpus_per_node[: int(num_nodes)]))
    edges = np.append(up.times, run.result.end_time) / HOUR
    axes.plot(*steps(edges, gpus), color=GREY, linewidth=0.7, zorder=1)
    _named(axes, "GPUs of rented nodes", gpus[-1])


def _named(axes: Axes, text: str, height: float) -> None:
    """Write a text above a horizontal line, at its right end."""
    axes.annotate(
        text, (1, height), (0, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right", va="bottom", color=GREY, fontsize=7,
    )  # fmt: skip


@styled
def nodes_over_time(runs: Mapping[str, Result]) -> Drawing:
    """Draw the number of nodes that are up, and the efficiency of their GPUs, for at most five runs by name."""
    figure = new_figure(ONE_COLUMN, 8.0)
    upper, lower = figure.subplots(2, sharex=True)
    lines = {}
    # Runs of one policy would have lighter shades of one colour. These lines have colours of different policies.
    line_looks = looks(list(POLICY_COLOURS)[: len(runs)])
    for (name, result), look in zip(runs.items(), line_looks, strict=True):
        rounds = result.rounds
        hours = np.append(rounds["time"], result.end_time) / HOUR
        for axes, column in ((lower, "efficiency"), (upper, "nodes")):
            # The last value goes on to the end of the run.
            values = np.append(rounds[column], rounds[column].iloc[-1:])
            (line,) = axes.step(hours, values, where="post", color=look.color, linestyle=look.linestyle)
        lines[line] = name
    upper.set_ylabel("nodes")
    share_axis(lower, "statistical efficiency")
    upper.set_ylim(bottom=0)
    time_axis(lower, runs.values())
    figure.align_ylabels()
    name_lines(upper, lines)
    return figure
