"""Throughput against GPUs and against batch size, measured and fitted (Figure 3 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from polluxsim.analysis.figures.lines import legend
from polluxsim.analysis.figures.style import PALETTE, TWO_COLUMNS, new_figure, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from polluxsim.analysis.fit_figure import Comparison, Curve

GPU_TICKS = (1, 4, 8, 16, 32, 64)


@styled
def throughput(
    comparisons: Sequence[Comparison], names: tuple[str, str] = ("measured", "card"), width: float = TWO_COLUMNS
) -> Figure:
    """Draw two panels for each application: by GPUs at a batch size each, and by batch size on a number of GPUs.

    Parameters
    ----------
    comparisons
        One for each application.
    names
        Of the points and of the lines.
    width
        [cm].
    """
    pairs = 2 if width > 12 and len(comparisons) > 1 else 1  # applications side by side
    rows = -(-len(comparisons) // pairs)
    figure = new_figure(width, 0.8 + 3.7 * rows)
    panels = figure.subplots(rows, 2 * pairs, squeeze=False)
    for place, comparison in enumerate(comparisons):
        left, right = panels[place // pairs][2 * (place % pairs) :][:2]
        lines = _panel(left, comparison.measured_by_replicas, comparison.card_by_replicas)
        _panel(right, comparison.measured_by_batch_size, comparison.card_by_batch_size)
        left.set_title(comparison.title, loc="left")
        left.set_ylabel("examples/s")
        left.set_xlabel(f"GPUs, {comparison.atomic_batch_size} examples each")
        left.xaxis.set_major_locator(FixedLocator(GPU_TICKS))
        right.set_xlabel(f"examples a step, {comparison.num_replicas} GPUs")
        right.set_xscale("log", base=2)
    for axes in panels.flat[2 * len(comparisons) :]:
        axes.set_visible(False)
    legend(figure, dict(zip(lines, names, strict=True)))
    return figure


def _panel(axes: Axes, measured: Curve, fitted: Curve):  # type: ignore[no-untyped-def]
    (points,) = axes.plot(measured.x, measured.throughput, "o", color=PALETTE[3], markersize=3)
    (line,) = axes.plot(fitted.x, fitted.throughput, color=PALETTE[1], zorder=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}")
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return points, line
