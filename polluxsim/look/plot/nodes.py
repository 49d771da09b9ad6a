"""Nodes and statistical efficiency over time under autoscaling (Figure 9 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.durations import HOUR
from polluxsim.look.colours import POLICY_COLOURS, looks
from polluxsim.look.plot.lines import name_lines
from polluxsim.look.plot.style import ONE_COLUMN, hour_ticks, new_figure, styled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.plot.style import Drawing
    from polluxsim.records import Result


@styled
def nodes_over_time(runs: Mapping[str, Result], width: float = ONE_COLUMN) -> Drawing:
    """Draw the nodes that are up, and the efficiency their GPUs are used at, until each of at most five runs ends."""
    figure = new_figure(width, 8.0)
    upper, lower = figure.subplots(2, sharex=True)
    lines = {}
    for (name, result), look in zip(runs.items(), looks([*POLICY_COLOURS][: len(runs)]), strict=True):
        rounds = result.rounds
        hours = np.append(rounds["time"], result.end_time) / HOUR
        for axes, column in ((lower, "efficiency"), (upper, "nodes")):
            values = np.append(rounds[column], rounds[column].iloc[-1:])
            (line,) = axes.step(hours, values, where="post", color=look.color, linestyle=look.linestyle)
        lines[line] = name
    upper.set_ylabel("nodes")
    lower.set_ylabel("statistical efficiency")
    upper.set_ylim(bottom=0)
    lower.set_ylim(0, 1.03)
    lower.set_xlabel("time [h]")
    lower.set_xlim(left=0)
    hour_ticks(lower)
    figure.align_ylabels()
    name_lines(upper, lines)
    return figure
