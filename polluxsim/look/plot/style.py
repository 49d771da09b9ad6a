"""One look for all figures: sizes in print, colours that survive greyscale and colour blindness, files alike twice."""

from __future__ import annotations

from base64 import b64encode
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MultipleLocator

from polluxsim.errors import InvalidInputError
from polluxsim.files import appearing_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

ONE_COLUMN, TWO_COLUMNS = 8.5, 17.0
"""Widths in print [cm]."""

ENDINGS = (".pdf", ".png", ".svg")

PNG_DPI = 200
SCREEN_DPI = 144
"""At which a notebook shows what has more pixels: small type can be read, and stays sharp."""

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
    "svg.hashsalt": "polluxsim",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}

GREY = "#6F6F6F"


@contextmanager
def in_style() -> Iterator[None]:
    """Draw in the house's style whatever the user's own settings are, and leave those untouched."""
    with matplotlib.style.context(["default", RC]):
        yield


styled = in_style()
"""Makes a function draw its figure in the house's style."""


class Drawing(Figure):
    """A figure that shows itself in a notebook, without pyplot; `axes` are there for those who want to change it."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as `polluxsim plot` does, its kind by the file's ending: .png, .pdf or .svg."""
        save(self, Path(path))

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, object], dict[str, object]]:
        buffer = BytesIO()
        _write(self, buffer, ".png")
        width, height = (round(SCREEN_DPI * inches) for inches in self.get_size_inches())
        data: dict[str, object] = {"image/png": b64encode(buffer.getvalue()).decode("ascii"), "text/plain": repr(self)}
        return data, {"image/png": {"width": width, "height": height}}


def new_figure(width: float, height: float) -> Drawing:
    """Return an empty figure that needs no display [cm; cm]."""
    engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03)
    figure = Drawing(figsize=(width / 2.54, height / 2.54), layout=engine)
    FigureCanvasAgg(figure)
    return figure


def check_ending(path: Path) -> None:
    """Raise an error where a figure cannot be written under this name.

    Raises
    ------
    InvalidInputError
        If the ending is not that of a kind of image.
    """
    if path.suffix not in ENDINGS:
        raise InvalidInputError(f"{path}: allowed is the name of a file that ends in {', '.join(ENDINGS)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, its kind by the file's ending; the same figure gives the same bytes.

    Raises
    ------
    InvalidInputError
        If the ending is not that of a kind of image.
    """
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing_whole(path) as temporary:
        _write(figure, temporary, path.suffix)


def _write(figure: Figure, where: Path | BinaryIO, ending: str) -> None:
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
    with in_style():
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)  # the layout of a second drawing is the one that stays
        figure.savefig(where, format=ending[1:], metadata=dates[ending])


def steps(edges: ArrayLike, values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of a line that has each value, shape (n,), from one edge, shape (n + 1,), to the next.

    >>> [corners.tolist() for corners in steps([0, 1, 3], [5, 7])]
    [[0.0, 1.0, 1.0, 3.0], [5.0, 5.0, 7.0, 7.0]]
    """
    return np.repeat(np.asarray(edges, float), 2)[1:-1], np.repeat(np.asarray(values, float), 2)


def share_axis(axes: Axes, title: str) -> None:
    """Make the y axis one of shares, from 0 to 1."""
    axes.set_ylabel(title)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_locator(MultipleLocator(0.2))


def hour_ticks(axes: Axes, most: int = 9) -> None:
    """Put the ticks of a time axis where a clock or a calendar would."""
    low, high = axes.get_xlim()
    widths = (1 / 60, 1 / 12, 0.25, 0.5, 1, 2, 3, 4, 6, 12, 24, 48, 72, 168, 336)
    width = next((width for width in widths if (high - low) / width <= most), 672)
    axes.xaxis.set_major_locator(MultipleLocator(width))


def plain(value: float, _: object = None) -> str:
    """Return a number as an axis has it, in the shortest form."""
    return f"{value:g}"
