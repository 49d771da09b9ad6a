"""GPUs in use and statistical efficiency of the cluster over time (Figure 5 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.look.groups import settings_of
from polluxsim.look.plot.lines import name_lines
from polluxsim.look.plot.style import (
    GREY,
    ONE_COLUMN,
    SECONDS_PER_HOUR,
    hour_ticks,
    looks_of,
    new_figure,
    share_axis,
    steps,
    styled,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from polluxsim.look.groups import Group
    from polluxsim.look.plot.style import Drawing, Look
    from polluxsim.records import Result
    from polluxsim.storage import Run

    Array = NDArray[np.float64]

BIN = 1800.0
"""[s]; 30 minutes, as in the paper."""


@styled
def usage(groups: Sequence[Group], bin_width: float = BIN, width: float = ONE_COLUMN) -> Drawing:
    """Draw GPUs in use, and the efficiency they are used at weighted by GPUs, over time.

    Parameters
    ----------
    groups
        A line each: the mean over their runs, with a band from the least to the largest.
    bin_width
        Time over which is averaged [s].
    width
        [cm].
    """
    figure = new_figure(width, 8.0 if width <= 10 else 9.0)
    upper, lower = figure.subplots(2, sharex=True)
    lines = {}
    for group, look in zip(groups, looks_of(groups), strict=True):
        edges = bin_edges(max(run.result.end_time for run in group.runs), bin_width)
        binned = [by_bin(run.result, edges) for run in group.runs]
        gpus, efficiency = (np.array([row[part] for row in binned]) for part in (0, 1))
        lines[_draw(upper, edges, gpus, look)] = group.label
        _draw(lower, edges, efficiency, look)
    _capacity(upper, groups)
    upper.set_ylabel("GPUs in use")
    upper.set_ylim(bottom=0)
    share_axis(lower, "statistical efficiency")
    lower.set_xlabel("time [h]")
    lower.set_xlim(left=0)
    hour_ticks(lower)
    figure.align_ylabels()
    name_lines(upper, lines)
    return figure


def bin_edges(end_time: float, bin_width: float) -> Array:
    """Return bins from 0 that hold the whole run [s]; the last one ends with it.

    >>> bin_edges(70.0, 30.0).tolist()
    [0.0, 30.0, 60.0, 70.0]
    """
    edges = np.arange(0.0, end_time, bin_width)
    return np.append(edges, end_time) if end_time > 0 else np.array([0.0, bin_width])


def by_bin(result: Result, edges: Array) -> tuple[Array, Array]:
    """Return the mean GPUs in use in each bin, and their mean efficiency.

    GPUs are those that jobs hold until they complete or lose them, so that the bins add up to the GPU-time of all jobs.
    The efficiency is that of the last round, weighted by GPU-time; nan where no GPU is in use.

    Parameters
    ----------
    result
        A run.
    edges
        Of the bins, shape (n + 1,) [s].
    """
    changes, in_use = gpus_over_time(result)
    rounds = result.rounds
    inside = [times[(times > edges[0]) & (times < edges[-1])] for times in (changes, rounds["time"].to_numpy(float))]
    cuts = np.unique(np.concatenate([edges, *inside, np.clip([result.end_time], edges[0], edges[-1])]))
    starts, lengths = cuts[:-1], np.diff(cuts)
    gpu_time = _at(starts, changes, in_use) * lengths * (starts < result.end_time)
    useful = gpu_time * _at(starts, rounds["time"].to_numpy(float), rounds["efficiency"].to_numpy(float))
    place = np.searchsorted(edges, starts, side="right") - 1
    total = np.bincount(place, gpu_time, len(edges) - 1)
    weighted = np.bincount(place, useful, len(edges) - 1)
    efficiency = np.divide(weighted, total, out=np.full(len(total), np.nan), where=total > 0)
    return total / np.diff(edges), efficiency


def gpus_over_time(result: Result) -> tuple[Array, Array]:
    """Return when the number of GPUs in use changes [s], and what it is from then on."""
    held: dict[str, int] = {}
    times, totals, total = [], [], 0
    for record in result.allocation_records:
        gpus = sum(record.gpus)
        total += gpus - held.get(record.job, 0)
        held[record.job] = gpus
        times.append(record.time)
        totals.append(total)
    return np.array(times, float), np.array(totals, float)


def num_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, None of a run of before they were recorded, if its settings do not tell."""
    if isinstance(recorded := run.info.get("nodes"), list):
        return sum(int(count) * int(gpus) for count, gpus in recorded)
    cluster: dict[str, Any] = {key: value for key, value in settings_of(run).items() if key.startswith("cluster.")}
    if isinstance(groups := cluster.get("cluster.groups"), list):
        return sum(int(count) * int(gpus) for count, gpus in groups)
    nodes, gpus = cluster.get("cluster.num_nodes"), cluster.get("cluster.gpus_per_node")
    return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None


def _at(moments: Array, times: Array, values: Array) -> Array:
    """Return what each moment has of values that hold from their time on; 0 before the first."""
    return np.concatenate([[0.0], values])[np.searchsorted(times, moments, side="right")]


def _draw(axes: Axes, edges: Array, rows: Array, look: Look) -> Any:
    known = np.isfinite(rows).any(axis=0)
    middle, low, high = (np.full(rows.shape[1], np.nan) for _ in range(3))
    middle[known], low[known], high[known] = (
        reduce(rows[:, known], axis=0) for reduce in (np.nanmean, np.nanmin, np.nanmax)
    )
    x = np.asarray(edges) / SECONDS_PER_HOUR
    (line,) = axes.plot(*steps(x, middle), color=look.color, linestyle=look.linestyle)
    if len(rows) > 1:
        corners, bottom = steps(x, low)
        axes.fill_between(corners, bottom, steps(x, high)[1], color=look.color, alpha=0.15, linewidth=0)
    return line


def _capacity(axes: Axes, groups: Sequence[Group]) -> None:
    """Draw the GPUs there are, where all runs have as many."""
    sizes = {num_gpus(run) for group in groups for run in group.runs}
    if len(sizes) == 1 and (size := sizes.pop()) is not None:
        axes.axhline(size, color=GREY, linewidth=0.7, zorder=1)
        axes.annotate(
            f"{size} GPUs", (1, size), (0, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="bottom", color=GREY, fontsize=7,
        )  # fmt: skip
