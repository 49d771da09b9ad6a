"""Figures of the waits of replays of a log: a percentile by number of nodes, and distributions of the waits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from polluxsim.common.durations import length, unit_of
from polluxsim.look.colours import PALETTE
from polluxsim.look.plot.style import GREY, ONE_COLUMN, Drawing, name_lines, new_panel, share_axis, styled
from polluxsim.statistics.job_values import cumulative

MOST_POINTS = 2000  # largest number of points of a distribution
LINES = ("-", "--", ":", "-.")  # styles of lines, so that they differ in print without colours


@styled
def draw_waits(bars: Mapping[str, float], what: str, width: float = ONE_COLUMN) -> Drawing:
    """Draw a wait [s] of each case as a bar, with the wait as text. `what` names the wait. The first bar is grey."""
    # No unit suits a wait of 0. That of 1 s replaces it.
    unit, size = unit_of(max(bars.values(), default=0.0) or 1.0)
    figure, axes = new_panel(width)
    values = [seconds / size for seconds in bars.values()]
    texts = [f" {length(seconds)}" for seconds in bars.values()]
    colours = [GREY] + [PALETTE[0]] * (len(bars) - 1)
    places = np.arange(len(bars))[::-1]  # the first bar is at the top
    containers = axes.barh(places, values, color=colours, height=0.65)
    axes.bar_label(containers, texts, fontsize=7)
    axes.set_yticks(places, list(bars))
    axes.set_xlabel(f"{what} [{unit}]")
    # Room for the text beside the longest bar; an axis from 0 to 0 would be an error.
    axes.set_xlim(0, 1.15 * max(values, default=1.0) or 1.0)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    return figure


@styled
def draw_shares(waits: Mapping[str, ArrayLike], width: float = ONE_COLUMN) -> Drawing:
    """Draw the share of jobs that wait at most some time [s], a line for each name, shape (jobs,) each."""
    samples: dict[str, np.ndarray] = {name: np.asarray(values, float) for name, values in waits.items()}
    longest_waits = [float(values.max()) for values in samples.values() if len(values)]
    longest = max(longest_waits, default=1.0)
    unit, size = unit_of(longest or 1.0)
    figure, axes = new_panel(width)
    names = {}
    for number, (name, values) in enumerate(samples.items()):
        times, shares = cumulative(values / size, most=MOST_POINTS)
        if not len(times):
            continue
        # The line begins at a wait of 0, and goes on a little beyond the longest wait of all lines.
        x = np.concatenate([[0.0], times, [1.02 * longest / size]])
        y = np.concatenate([[0.0], shares, [1.0]])
        style = LINES[number % len(LINES)]
        (line,) = axes.plot(x, y, drawstyle="steps-post", linestyle=style, color=PALETTE[number % len(PALETTE)])
        names[line] = name
    share_axis(axes, "share of jobs")
    axes.set_xlabel(f"wait at most [{unit}]")
    axes.set_xlim(0, 1.02 * longest / size or 1.0)
    name_lines(axes, names)
    return figure
