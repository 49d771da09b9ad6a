"""Names of lines beside the lines themselves where there is room, in a legend where there is none."""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.transforms import Bbox

from polluxsim.look.colours import luminance, mixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import BboxBase
    from numpy.typing import NDArray

    Points = NDArray[np.float64]

MOST_LABELS = 4
"""More lines than this have a legend."""

FONT_SIZE = 7.0

OFFSET = 3.0
"""From a line to its label [pt]."""

LEAST_CONTRAST = 4.0
"""Of a name and the paper, as a ratio of luminances. Source: between the 3 and the 4.5 of WCAG 2.2, 1.4.3."""

FAR = 14.0
"""A label this far from all other lines is as good as farther [pt]."""


def name_lines(axes: Axes, names: Mapping[Line2D, str], obstacles: Points | None = None) -> None:
    """Write the names of lines into a panel, or a legend above the figure; a single line needs no name.

    To be called when nothing else of the figure will change. Obstacles are more points that no name may hide, in data
    coordinates, shape (n, 2).
    """
    figure = cast("Figure", axes.figure)
    if len(names) < 2:
        return
    avoid = np.empty((0, 2)) if obstacles is None else obstacles
    if len(names) > MOST_LABELS or not _label(axes, figure, names, avoid):
        legend(figure, names)


def legend(figure: Figure, names: Mapping[Line2D, str] | Mapping[Artist, str]) -> None:
    """Write a legend above the figure, in as many columns as fit; the figure grows by its height."""
    width = figure.get_figwidth() * 72
    longest = max(map(len, names.values())) * 4.0 + 34.0
    columns = max(int(width // longest), 1)
    rows = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * rows)
    figure.legend(
        list(names), list(names.values()), loc="outside upper center", ncols=-(-len(names) // rows), borderaxespad=0.2
    )


class _Spot(NamedTuple):
    """Where a name could stand: its box and the point of the line it belongs to [pixels], and which side of it."""

    score: float
    box: Bbox
    point: tuple[float, float]
    right: int
    up: int


def _label(axes: Axes, figure: Figure, names: Mapping[Line2D, str], obstacles: Points) -> bool:
    """Write the names beside the lines; return whether all had room."""
    for _ in range(2):  # the layout takes ticks into account that it changes itself
        figure.draw_without_rendering()
    points = {line: _dense(line) for line in names}
    drawn = [line for line in axes.get_lines() if line.get_linestyle() != "None"]
    hidden = [*map(_dense, drawn), axes.transData.transform(obstacles)]
    # Half a marker, or nearly the line itself.
    clear = 2.2 * axes.figure.dpi / 72 if any(line.get_marker() != "None" for line in names) else 0.5
    taken: list[Bbox] = []
    spots: dict[Line2D, _Spot] = {}
    for line, name in names.items():
        others = np.concatenate([found for other, found in points.items() if other is not line])
        free = (
            spot
            for spot in _spots(axes, _size(axes, name), points[line], others)
            if _is_free(spot.box, axes.bbox, taken, hidden, clear)
        )
        best = max(free, key=lambda spot: spot.score, default=None)
        if best is None:
            return False
        spots[line] = best
        taken.append(best.box)
    for line, spot in spots.items():
        _write(axes, names[line], spot, ink(to_hex(line.get_color())))
    return True


def ink(colour: str) -> str:
    """Return a line's colour as text is written in it: darker where it would be faint on white.

    >>> ink("#004488"), ink("#ddaa33")
    ('#004488', '#9a7724')
    """
    while 1.05 / (0.05 + luminance(colour)) < LEAST_CONTRAST:
        colour = mixed(colour, 0, 0.05)
    return colour


def _write(axes: Axes, name: str, spot: _Spot, colour: str) -> None:
    label = axes.annotate(
        name,
        tuple(axes.transData.inverted().transform(spot.point).tolist()),
        xytext=(OFFSET * spot.right, OFFSET * spot.up),
        textcoords="offset points",
        ha="left" if spot.right > 0 else "right",
        va="bottom" if spot.up > 0 else "top" if spot.up < 0 else "center",
        color=colour,
        fontsize=FONT_SIZE,
    )
    label.set_in_layout(False)


def _size(axes: Axes, name: str) -> tuple[float, float]:
    """Return width and height of a name as it will be written [pixels]."""
    text = axes.text(0, 0, name, fontsize=FONT_SIZE)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def _dense(line: Line2D) -> Points:
    """Return points along a line within its panel, a few pixels apart, shape (n, 2) [pixels]."""
    corners = line.get_transform().transform(line.get_xydata())
    parts = []
    for start, end in pairwise(corners[np.isfinite(corners).all(axis=1)]):
        count = max(int(np.hypot(*(end - start)) / 2.0), 1)
        parts.append(start + (end - start) * np.linspace(0, 1, count + 1)[:, None])
    points = np.concatenate(parts) if parts else corners
    panel = line.axes.bbox.padded(1.0)  # type: ignore[union-attr]
    inside = (points >= (panel.x0, panel.y0)) & (points <= (panel.x1, panel.y1))
    return points[inside.all(axis=1)]


def _spots(axes: Axes, size: tuple[float, float], own: Points, others: Points) -> Iterator[_Spot]:
    """Yield the places a name could stand at, with how far they are from all other lines."""
    pixels = axes.figure.dpi / 72
    width, height = size
    for x, y in own[:: max(len(own) // 60, 1)].tolist():
        for right, up in product((1, -1), (1, 0, -1)):
            left = x + OFFSET * pixels * right - (width if right < 0 else 0)
            bottom = y + OFFSET * pixels * up - height * (1 - up) / 2
            box = Bbox.from_bounds(left, bottom, width, height)
            yield _Spot(min(_distance(box, others) / pixels, FAR), box, (x, y), right, up)


def _distance(box: Bbox, points: Points) -> float:
    """Return how far the nearest point is from a box [pixels]."""
    if not len(points):
        return np.inf
    beside = np.maximum(np.maximum(box.x0 - points[:, 0], points[:, 0] - box.x1), 0)
    above = np.maximum(np.maximum(box.y0 - points[:, 1], points[:, 1] - box.y1), 0)
    return float(np.hypot(beside, above).min())


def _is_free(box: Bbox, panel: BboxBase, taken: Iterable[Bbox], lines: Iterable[Points], clear: float) -> bool:
    """Return whether a name here would stay within the panel and farther than `clear` from all lines [pixels]."""
    if box.x0 < panel.x0 or box.x1 > panel.x1 or box.y0 < panel.y0 or box.y1 > panel.y1:
        return False
    return not any(box.overlaps(other) for other in taken) and all(_distance(box, points) > clear for points in lines)
