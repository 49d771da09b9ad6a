"""A target's metric against the size of the cluster, or against the load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.look.colours import PALETTE
from polluxsim.look.plot.lines import legend
from polluxsim.look.plot.style import GREY, ONE_COLUMN, new_figure, styled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.intervals import Estimate
    from polluxsim.look.plot.style import Drawing
    from polluxsim.metrics.target import Target


@styled
def draw_levels(
    target: Target, curve: Mapping[float, Estimate], answer: float | None, x: str, width: float = ONE_COLUMN
) -> Drawing:
    """Draw a target's metric by level of `x`, rising [s; 1 for ρ], with its bound and the level that was the answer.

    Means have their 95 % intervals. Levels at which jobs were left are not drawn. Above the bound the axis is
    logarithmic.
    """
    unit, size = target.unit
    figure = new_figure(width, 0.62 * width)
    axes = figure.subplots()
    points = [(level, *found) for level, found in curve.items() if np.isfinite(found.value)]
    x_values, means, low, high = np.array(points, dtype=float).reshape(-1, 4).T
    axes.set_yscale("symlog", linthresh=max(target.bound / size, 1e-9))
    axes.plot(x_values, means / size, marker="o", color=PALETTE[0])
    axes.vlines(x_values, low / size, high / size, color=PALETTE[0], linewidth=0.8)
    names = {axes.axhline(target.bound / size, color=GREY, linestyle="--"): str(target)}
    if answer is not None:
        names[axes.axvline(answer, color=GREY, linestyle=":")] = f"{x} found: {answer:g}"
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(f"{target.metric} [{unit}]" if unit else target.metric)
    legend(figure, names)
    return figure
