"""Style of all figures (sizes, colours, files), and names of lines beside the lines or in a legend."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import chain, pairwise, product
from math import ceil
from os import PathLike
from pathlib import Path
from textwrap import fill
from typing import Any, BinaryIO, NamedTuple, cast

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MultipleLocator, NullFormatter
from matplotlib.transforms import Bbox, BboxBase
from numpy.typing import ArrayLike, NDArray

from polluxsim.common.durations import HOUR, clock
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.look.colours import luminance, mixed, on_dark
from polluxsim.records.results import Result
from polluxsim.statistics.forks import fork_times
from polluxsim.statistics.groups import RunGroup
from polluxsim.statistics.series import axis_start

Points = NDArray[np.float64]

ONE_COLUMN = 8.5  # width in print [cm]
TWO_COLUMNS = 17.0  # [cm]

ENDINGS = (".pdf", ".png", ".svg")  # of the names of figures

PNG_DPI = 200  # resolution of files [pixels per inch]
SCREEN_DPI = 144  # resolution at which a notebook shows a figure: small type is readable and sharp [pixels per inch]

RC = {
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E0E0E0",
    "grid.linewidth": 0.5,
    "figure.dpi": PNG_DPI,
    "savefig.dpi": "figure",
    "text.parse_math": False,  # names of jobs and runs may contain $
    "svg.hashsalt": "polluxsim",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib. Sizes of fonts and widths of lines are in points."""

GREY = "#6F6F6F"  # of reference lines and notes

FONT_SIZE = 7.0  # of names and notes in a panel [pt]

TICKS_BETWEEN = {15: (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), 100: (1.0, 2.0, 5.0)}
"""First digits of the numbers on a logarithmic axis, by the factor below which its ends differ."""

LONGEST_BESIDE_FORK = 28  # longer names of forked runs do not stand beside the fork [characters]

MOST_HOUR_TICKS = 9  # largest number of distances between the ticks of a time axis

TICKS_OF_HOURS = (1 / 60, 1 / 12, 0.25, 0.5, 1, 2, 3, 4, 6, 12, 24, 48, 72, 168, 336)
"""Distances between the ticks of a time axis: minutes, hours, days and weeks [h]."""

LONGEST_TICK = 672  # distance between the ticks of a longer axis, four weeks [h]


@contextmanager
def in_style() -> Iterator[None]:
    """Draw in polluxsim's style whatever the user's own settings are, and leave these settings unchanged."""
    with matplotlib.style.context(["default", RC]):
        yield


styled = in_style()  # decorator of functions that draw a figure in polluxsim's style


class Drawing(Figure):
    """A figure that a notebook displays without pyplot. Change it through its `axes`."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the figure to a file that ends in .png, .pdf or .svg. Raise InvalidInputError for other endings."""
        save(self, Path(path))

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, object], dict[str, object]]:
        buffer = BytesIO()
        write_figure(self, buffer, ".png")
        width, height = np.round(SCREEN_DPI * self.get_size_inches()).astype(int).tolist()
        data: dict[str, object] = {"image/png": b64encode(buffer.getvalue()).decode("ascii"), "text/plain": repr(self)}
        return data, {"image/png": {"width": width, "height": height}}


def new_figure(width: float, height: float) -> Drawing:
    """Return an empty figure of a width and a height [cm]. It needs no display."""
    engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
    figure = Drawing(figsize=(width / 2.54, height / 2.54), layout=engine)
    FigureCanvasAgg(figure)
    return figure


def new_panel(width: float) -> tuple[Drawing, Axes]:
    """Return an empty figure of a width [cm] with one panel, and the panel. Wide figures are flatter."""
    flatness = 0.62 if width <= 10 else 0.45
    figure = new_figure(width, flatness * width)
    return figure, figure.subplots()


def darkened(figure: Drawing) -> Drawing:
    """Change the colours of a figure to those of a dark page, and return the figure."""
    # Each kind of artist has methods of its own for its colours.
    for artist in figure.findobj():
        if isinstance(artist, Line2D):
            artist.set_color(on_dark(to_hex(artist.get_color())))
            if artist.get_marker() not in ("None", "none", ""):
                artist.set_markerfacecolor(on_dark(to_hex(artist.get_markerfacecolor())))
                artist.set_markeredgecolor(on_dark(to_hex(artist.get_markeredgecolor())))
        elif isinstance(artist, Text):
            artist.set_color(on_dark(to_hex(artist.get_color())))
        elif isinstance(artist, Collection):
            artist.set_facecolor(_all_on_dark(artist.get_facecolor()))
            artist.set_edgecolor(_all_on_dark(artist.get_edgecolor()))
        elif isinstance(artist, Patch):
            artist.set_facecolor(_all_on_dark(artist.get_facecolor())[0])
            artist.set_edgecolor(_all_on_dark(artist.get_edgecolor())[0])
    return figure


def _all_on_dark(colours: Any) -> list[tuple[float, float, float, float]]:
    """Return the colours of a dark page, each with its own opacity."""
    dark_colours = []
    for colour in to_rgba_array(colours):
        opacity = colour[3]  # which the hexadecimal form leaves out
        dark_colours.append(to_rgba(on_dark(to_hex(colour)), opacity))
    return dark_colours


def check_ending(path: Path) -> None:
    """Raise InvalidInputError if the ending of a file is not one of `ENDINGS`."""
    if path.suffix not in ENDINGS:
        raise InvalidInputError(f"{path}: the name of a figure must end in {', '.join(ENDINGS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file in one step. The ending decides the format. Equal figures give equal bytes.

    Raise InvalidInputError if the ending is not one of `ENDINGS`.
    """
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        write_figure(figure, temporary, path.suffix)


def write_figure(figure: Figure, where: Path | BinaryIO, ending: str) -> None:
    """Write a figure to a file or a stream, in the format of one of `ENDINGS`. Equal figures give equal bytes."""
    # The time of writing, or the version of matplotlib, would make equal figures differ.
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
    with in_style():
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)  # only the layout of the second drawing is final
        figure.savefig(where, format=ending[1:], metadata=dates[ending])


def steps(edges: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of a line that has each value, shape (n,), from one edge, shape (n + 1,), to the next.

    >>> [corners.tolist() for corners in steps([0, 1, 3], [5, 7])]
    [[0.0, 1.0, 1.0, 3.0], [5.0, 5.0, 7.0, 7.0]]
    """
    x = np.repeat(np.asarray(edges, float), 2)[1:-1]
    return x, np.repeat(np.asarray(values, float), 2)


def results_of(groups: Iterable[RunGroup]) -> list[Result]:
    """Return the results of the runs of all groups, in order."""
    results = []
    for group in groups:
        results += [run.result for run in group.runs]
    return results


def share_axis(axes: Axes, title: str) -> None:
    """Let the y axis show shares from 0 to 1, in per cent."""
    axes.set_ylabel(title)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_locator(MultipleLocator(0.2))
    axes.yaxis.set_major_formatter(per_cent)


def per_cent(share: float, _: object = None) -> str:
    """Return a share in whole per cent, for an axis."""
    return f"{100 * share:.0f} %"


def time_axis(axes: Axes, results: Iterable[Result]) -> None:
    """Let the x axis show the time of the workload [h]: from 0, or from the first submission of runs if it is late."""
    axes.set_xlabel("time [h]")
    axes.set_xlim(left=axis_start(results) / HOUR)
    hour_ticks(axes)


def hour_ticks(axes: Axes) -> None:
    """Put ticks on a time axis [h], at round times of day or at days."""
    low, high = axes.get_xlim()
    width: float = LONGEST_TICK
    for distance in TICKS_OF_HOURS:
        if (high - low) / distance <= MOST_HOUR_TICKS:
            width = distance
            break
    axes.xaxis.set_major_locator(MultipleLocator(width))
    if width < 0.5:  # minutes have no round numbers of hours
        axes.xaxis.set_major_formatter(lambda hours, _: clock(HOUR * hours)[:-3])
        axes.set_xlabel(axes.get_xlabel().replace("[h]", "[h:min]"))


def mark_forks(axes: Axes, groups: Iterable[RunGroup], *, has_title: bool = False) -> None:
    """Draw a line at the fork of each group on a time axis in hours.

    The short name of the forked runs, or the time, stands beside it, unless the panel has a title at the same place.
    """
    forks: dict[float, RunGroup] = {}
    for group in groups:
        for fork in fork_times(group.runs):
            forks[fork] = group
    # Each name has its own row, so that names of near forks do not overlap.
    for row, (time, group) in enumerate(forks.items()):
        axes.axvline(time / HOUR, color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        if has_title:
            continue
        name = f"fork at {clock(time)}"
        if clock(time) in group.label and len(group.label) <= LONGEST_BESIDE_FORK:
            name = group.label
        # The name of a late fork stands on the left, where the panel has room.
        if time > group.runs[0].result.end_time / 2:
            x_offset = -2
            side = "right"
        else:
            x_offset = 2
            side = "left"
        axes.annotate(
            name,
            (time / HOUR, 1),
            (x_offset, 1 + FONT_SIZE * row),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="bottom",
            color=GREY,
            fontsize=FONT_SIZE,
        )


def log_ticks(axis: Axis) -> None:
    """Write plain numbers at the ticks of a logarithmic axis whose lines are drawn.

    A short axis has numbers between the powers of ten too. The other ticks have no numbers, which would overlap.
    """
    low, high = axis.get_view_interval()
    digits: tuple[float, ...] = (1.0,)
    for factor, digits_below in TICKS_BETWEEN.items():
        if high < factor * low:
            digits = digits_below
            break
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(NullFormatter())


def plain(value: float, _: object = None) -> str:
    """Return a number in the shortest form, for an axis."""
    return f"{value:g}"


MOST_LABELS = 4  # if there are more lines than this, a figure has a legend

LETTER = 4.0  # width of a letter in a legend [pt]
HANDLE = 34.0  # width of a sample of a line in a legend [pt]

OFFSET = 3.0  # from a line to its label [pt]

LEAST_CONTRAST = 4.0
"""Ratio of the luminances of a name and the paper. Source: between the 3 and the 4.5 of WCAG 2.2, 1.4.3."""

FAR = 14.0  # a label at this distance from all other lines is not better if it is farther [pt]


def name_lines(axes: Axes, names: Mapping[Line2D, str], obstacles: Points | None = None) -> None:
    """Write the names of lines into a panel, or a legend above the figure; a single line needs no name.

    Call this function last, when nothing else in the figure will change. Obstacles are more points that no name may
    hide, in data coordinates, shape (n, 2).
    """
    figure = cast("Figure", axes.figure)
    if len(names) < 2:
        return
    avoid = np.empty((0, 2))
    if obstacles is not None:
        avoid = obstacles
    if len(names) > MOST_LABELS or not _label(axes, figure, names, avoid):
        legend(figure, names)


def legend(figure: Figure, names: Mapping[Line2D, str] | Mapping[Artist, str]) -> None:
    """Write a legend above the figure, in as many columns as fit. The height of the figure grows.

    A name that is wider than the figure has several lines.
    """
    width = figure.get_figwidth() * 72
    letters_in_line = max(int((width - HANDLE) / LETTER), 1)
    texts = [fill(name, letters_in_line) for name in names.values()]
    lines_of_texts = [text.splitlines() for text in texts]
    longest_line = max(map(len, chain.from_iterable(lines_of_texts)))
    most_lines = max(map(len, lines_of_texts))
    columns = max(int(width // (longest_line * LETTER + HANDLE)), 1)
    rows = ceil(len(texts) / columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * rows * most_lines)
    # As many rows can need fewer columns: 5 names in 4 columns have 2 rows, for which 3 columns are enough.
    columns = ceil(len(texts) / rows)
    figure.legend(list(names), texts, loc="outside upper center", ncols=columns, borderaxespad=0.2)


class _Spot(NamedTuple):
    """A possible place of a name beside its line."""

    score: float  # distance from all other lines, at most `FAR` [pt]
    box: Bbox  # of the name [pixels]
    point: tuple[float, float]  # of the line [pixels]
    right: int  # 1 if the name is on the right of the point, -1 on the left
    up: int  # 1 if the name is above the point, 0 beside it, -1 below it


def _label(axes: Axes, figure: Figure, names: Mapping[Line2D, str], obstacles: Points) -> bool:
    """Write a name beside each line, and return True; write nothing and return False if a name has no free place."""
    for _ in range(2):  # the first layout can change the ticks, which change the layout
        figure.draw_without_rendering()
    points = {line: _points_along(line) for line in names}
    # A name hides no line of the panel, also none without a name.
    visible = [line for line in axes.get_lines() if line.get_linestyle() != "None"]
    avoid = [*map(_points_along, visible), axes.transData.transform(obstacles)]
    # Names keep half a marker away from lines with markers, and otherwise half a pixel.
    clear = 0.5
    if any(line.get_marker() != "None" for line in names):
        clear = 2.2 * axes.figure.dpi / 72
    taken: list[Bbox] = []
    spots: dict[Line2D, _Spot] = {}
    for line, name in names.items():
        points_of_others = [points[other] for other in names if other is not line]
        other_points = np.concatenate(points_of_others)
        # The first of equally good places counts, so that equal figures have equal labels.
        best: _Spot | None = None
        for spot in _spots(axes, _label_size(axes, name), points[line], other_points):
            is_better = best is None or spot.score > best.score
            if is_better and _is_free(spot.box, axes.bbox, taken, avoid, clear):
                best = spot
        if best is None:
            return False
        spots[line] = best
        taken.append(best.box)
    # Write only after every name has a place: otherwise a legend has all names.
    for line, spot in spots.items():
        _write_label(axes, names[line], spot, ink(to_hex(line.get_color())))
    return True


def ink(colour: str) -> str:
    """Return the colour for text beside a line: the colour of the line, darker if it is faint on white.

    >>> ink("#004488"), ink("#ddaa33")
    ('#004488', '#9a7724')
    """
    while 1.05 / (0.05 + luminance(colour)) < LEAST_CONTRAST:
        colour = mixed(colour, 0, 0.05)
    return colour


def _write_label(axes: Axes, name: str, spot: _Spot, colour: str) -> None:
    """Write a name at a place."""
    vertical_alignments = {1: "bottom", 0: "center", -1: "top"}
    label = axes.annotate(
        name,
        tuple(axes.transData.inverted().transform(spot.point).tolist()),
        xytext=(OFFSET * spot.right, OFFSET * spot.up),
        textcoords="offset points",
        ha="left" if spot.right > 0 else "right",
        va=vertical_alignments[spot.up],
        color=colour,
        fontsize=FONT_SIZE,
    )
    # The layout would make room for the label, and move the lines away from it.
    label.set_in_layout(False)


def _label_size(axes: Axes, name: str) -> tuple[float, float]:
    """Return the width and the height of a name [pixels]."""
    text = axes.text(0, 0, name, fontsize=FONT_SIZE)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def _points_along(line: Line2D) -> Points:
    """Return points along a line within its panel, about two pixels apart, shape (n, 2) [pixels]."""
    corners = line.get_transform().transform(line.get_xydata())
    parts = []
    for start, end in pairwise(corners[np.isfinite(corners).all(axis=1)]):
        num_steps = max(int(np.hypot(*(end - start)) / 2.0), 1)
        parts.append(start + (end - start) * np.linspace(0, 1, num_steps + 1)[:, None])
    points = corners
    if parts:
        points = np.concatenate(parts)
    panel = line.axes.bbox.padded(1.0)  # type: ignore[union-attr]
    inside = (points >= (panel.x0, panel.y0)) & (points <= (panel.x1, panel.y1))
    return points[inside.all(axis=1)]


def _spots(axes: Axes, size: tuple[float, float], own: Points, others: Points) -> Iterator[_Spot]:
    """Yield possible places of a name of a width and a height [pixels], around points of its own line."""
    pixels = axes.figure.dpi / 72
    width, height = size
    step = max(len(own) // 60, 1)  # about 60 points are enough
    for x, y in own[::step].tolist():
        for right, up in product((1, -1), (1, 0, -1)):
            left = x + OFFSET * pixels * right
            if right < 0:
                left -= width
            bottom = y + OFFSET * pixels * up - height * (1 - up) / 2
            box = Bbox.from_bounds(left, bottom, width, height)
            yield _Spot(min(_distance(box, others) / pixels, FAR), box, (x, y), right, up)


def _distance(box: Bbox, points: Points) -> float:
    """Return the distance between a box and the nearest point [pixels]; infinite without points."""
    if not len(points):
        return np.inf
    beside = np.maximum(np.maximum(box.x0 - points[:, 0], points[:, 0] - box.x1), 0)
    above = np.maximum(np.maximum(box.y0 - points[:, 1], points[:, 1] - box.y1), 0)
    return float(np.hypot(beside, above).min())


def _is_free(box: Bbox, panel: BboxBase, taken: Iterable[Bbox], lines: Iterable[Points], clear: float) -> bool:
    """Return whether a name here would stay within the panel and farther than `clear` from all lines [pixels]."""
    if box.x0 < panel.x0 or box.x1 > panel.x1 or box.y0 < panel.y0 or box.y1 > panel.y1:
        return False
    if any(box.overlaps(other) for other in taken):
        return False
    return all(_distance(box, points) > clear for points in lines)
