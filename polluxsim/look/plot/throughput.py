"""Throughput against GPUs and against batch size, measured and fitted (Figure 3 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from polluxsim.look.colours import PALETTE
from polluxsim.look.fitted_speed import mean_error
from polluxsim.look.plot.lines import legend
from polluxsim.look.plot.style import TWO_COLUMNS, new_figure, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from polluxsim.look.fitted_speed import Curve, FittedSpeed
    from polluxsim.look.plot.style import Drawing

GPU_TICKS = (1, 4, 16, 64)


@styled
def throughput(
    speeds: Sequence[FittedSpeed], names: tuple[str, str] = ("measured", "card"), width: float = TWO_COLUMNS
) -> Drawing:
    """Draw two panels for each application: by GPUs at a batch size each, and by batch size on a number of GPUs.

    `names` are those of the points and of the lines.
    """
    pairs = 2 if width > 12 and len(speeds) > 1 else 1  # applications side by side
    rows = -(-len(speeds) // pairs)
    figure = new_figure(width, 0.8 + 3.7 * rows)
    panels = figure.subplots(rows, 2 * pairs, squeeze=False)
    for place, speed in enumerate(speeds):
        left, right = panels[place // pairs][2 * (place % pairs) :][:2]
        lines = _panel(left, speed.measured_by_replicas, speed.card_by_replicas)
        _panel(right, speed.measured_by_batch_size, speed.card_by_batch_size)
        left.set_title(f"{speed.title}, mean error {100 * mean_error(speed):.1f} %", loc="left")
        left.set_ylabel("examples/s")
        left.set_xlabel(f"GPUs, {speed.atomic_batch_size} examples each")
        _log_ticks(left, GPU_TICKS)
        right.set_xlabel(f"batch size, {speed.num_replicas} GPUs")
        _log_ticks(right, [2**power for power in range(20)])
    for axes in panels.flat[2 * len(speeds) :]:
        axes.set_visible(False)
    legend(figure, dict(zip(lines, names, strict=True)))
    return figure


def _log_ticks(axes: Axes, ticks: Sequence[int]) -> None:
    """Scale the x axis by powers of two, with at most four of these ticks."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    seen = [tick for tick in ticks if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(seen[:: max(-(-len(seen) // 4), 1)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")


def _count(value: float, _: object = None) -> str:
    """Return a number as short as fits beside an axis."""
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:g}"


def _panel(axes: Axes, measured: Curve, fitted: Curve):  # type: ignore[no-untyped-def]
    (points,) = axes.plot(measured.x, measured.throughput, "o", color=PALETTE[3], markersize=3)
    (line,) = axes.plot(fitted.x, fitted.throughput, color=PALETTE[1], zorder=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(_count)
    return points, line
