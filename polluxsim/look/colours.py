"""One colour for each policy and one hue for each application, in every figure, on the page and on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from colorsys import hls_to_rgb
from itertools import cycle
from typing import NamedTuple
from zlib import crc32

from polluxsim.common.policy_names import FIXED_COLOURS
from polluxsim.statistics.groups import RunGroup

PALETTE = ("#004488", "#C0392B", "#DDAA33", "#1B1B1B", "#2F96B4")
"""Colours of lines. Their lightness rises in even steps, which keeps them apart in greyscale and for colour-blind
readers. Source: the high-contrast scheme of Paul Tol, "Colour schemes" (SRON/EPS/TN/09-002).
"""

POLICY_COLOURS = dict(zip(FIXED_COLOURS, PALETTE, strict=True))

DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (5, 1.4, 1, 1.4)),
    (0, (1.2, 1.2)),
    (0, (9, 2)),
    (0, (5, 1.3, 1, 1.3, 1, 1.3)),
    (0, (2.5, 1.2)),
)
"""Line styles as matplotlib names them: the offset, and the lengths of dashes and gaps [line widths]."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

HUES = {"bert": 298.0, "cifar10": 120.0, "deepspeech2": 165.0, "imagenet": 253.0, "ncf": 75.0, "yolov3": 335.0}
"""Hues of the applications that come with polluxsim [degrees]."""

FREE_HUES = ((75.0, 165.0), (243.0, 335.0))
"""Ranges of hues [degrees] in which no shade of an application can be mistaken for the colour of a policy."""

GOLDEN_RATIO = 0.618033988749895  # steps of this share of a circle never come close to an earlier hue
MOST_HUES = 8  # if there are more applications than this, they do not get one hue each
SHADES = (0.38, 0.54, 0.7)  # lightness of jobs without an application, in turn, from 0 (black) to 1 (white)

PAPER = "#171d24"
INK = "#e7ecf2"
"""Background and text of a dark page."""

LEAST_CHROMA = 24  # colours whose largest and smallest parts differ by at most this value are greys [of 255]
LEAST_ON_DARK = 0.22  # least relative luminance of a line on a dark page
LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue


class Look(NamedTuple):
    """The look of a line, in the words of matplotlib."""

    color: str
    linestyle: str | tuple[float, tuple[float, ...]]  # as in `DASHES`
    marker: str


def looks(policies: Sequence[str]) -> list[Look]:
    """Return a look for each line, given the policies of the lines. The first line of a colour has the colour's look.

    Each policy has a colour of its own while there are any. Further lines of a colour have lighter shades of it, and
    dashes that no other line has while there are any.
    """
    colour_index = _colour_indices(policies)
    unused_styles = [style for style in range(len(DASHES)) if style not in colour_index.values()]
    next_style = cycle(unused_styles or range(len(DASHES)))
    # With more policies than colours, several policies have one colour. So lines are counted by colour.
    num_lines = Counter[int]()
    line_looks = []
    for name in policies:
        index = colour_index[name]
        if num_lines[index]:
            style = next(next_style)
            colour = lighter(PALETTE[index], min(0.22 * num_lines[index], 0.44))
        else:
            style = index
            colour = PALETTE[index]
        line_looks.append(Look(colour, DASHES[style], MARKERS[style]))
        num_lines[index] += 1
    return line_looks


def _colour_indices(policies: Sequence[str]) -> dict[str, int]:
    """Return the index in `PALETTE` of the colour of each policy.

    Another policy than those of `POLICY_COLOURS` gets the colour of one that has no line. If there are too few such
    colours, several policies share one.
    """
    coloured_policies = list(POLICY_COLOURS)
    # Pollux and Tiresias lend last, because a reader knows their colours from other figures.
    lenders = [name for name in reversed(coloured_policies) if name not in policies]
    next_lender = cycle(lenders or coloured_policies)
    indices = {}
    for name in dict.fromkeys(policies):
        if name in coloured_policies:
            indices[name] = coloured_policies.index(name)
        else:
            indices[name] = coloured_policies.index(next(next_lender))
    return indices


def looks_of(groups: Sequence[RunGroup]) -> list[Look]:
    """Return a look for each group."""
    return looks([group.policy for group in groups])


def lighter(colour: str, share: float) -> str:
    """Return a colour mixed with a share of white.

    >>> lighter("#000000", 0.5)
    '#808080'
    """
    return mixed(colour, 255, share)


def job_colour(application: str | None, number: int) -> str:
    """Return the colour of a job, given its application and its index in order of submission.

    The hue is that of the application; a job without an application has its own hue. Neighbours differ in shade. Jobs
    far apart can look alike.
    """
    turn = number * GOLDEN_RATIO % 1
    if application is None:
        return _hex(turn * 360, SHADES[number % len(SHADES)])
    return _hex(_hue(application), 0.4 + 0.3 * turn)


def is_coloured_by_application(applications: Collection[str]) -> bool:
    """Return whether colours distinguish applications; with one or very many, they distinguish jobs instead."""
    return 1 < len(applications) <= MOST_HUES


def application_colour(application: str) -> str:
    """Return the colour of an application."""
    return _hex(_hue(application), 0.52)


def on_dark(colour: str) -> str:
    """Return a colour for a dark page: light for black, dark for white, and light enough for a line.

    >>> on_dark("#000000"), on_dark("#FFFFFF"), on_dark("#004488")
    ('#e7ecf2', '#171d24', '#5885b2')
    """
    parts = _parts(colour)
    if max(parts) - min(parts) > LEAST_CHROMA:
        return _visible_on_dark(colour)
    # Black becomes the ink, white the paper, and a grey lies between.
    mixture = ""
    for ink, paper in zip(_parts(INK), _parts(PAPER), strict=True):
        mixture += f"{round(ink + (paper - ink) * parts[0] / 255):02x}"
    return f"#{mixture}"


def _visible_on_dark(colour: str) -> str:
    """Return the colour of a line on a dark page, lighter if it is too dark."""
    while luminance(colour) < LEAST_ON_DARK:
        colour = lighter(colour, 0.1)
    return colour


def on_page(colour: str) -> str:
    """Return a colour for a style sheet: unchanged on a light page, and light enough for a line on a dark page.

    >>> on_page("#004488")
    'light-dark(#004488, #5885b2)'
    """
    return f"light-dark({colour}, {_visible_on_dark(colour)})"


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, from 0 (black) to 1 (white).

    Source: WCAG 2.2, "relative luminance", with a power of 2.2.
    """
    brightness = 0.0
    for part, weight in zip(_parts(colour), LUMINANCE_WEIGHTS, strict=True):
        brightness += weight * float((part / 255) ** 2.2)
    return brightness


def _parts(colour: str) -> list[int]:
    """Return red, green and blue of `#rrggbb`, each from 0 to 255."""
    return list(bytes.fromhex(colour[1:]))


def mixed(colour: str, other: int, share: float) -> str:
    """Return a colour mixed with a share of the grey `other`, from 0 (black) to 255 (white)."""
    mixture = ""
    for part in _parts(colour):
        mixture += f"{round(part + (other - part) * share):02x}"
    return f"#{mixture}"


def _hex(hue: float, lightness: float) -> str:
    """Return `#rrggbb` of a hue [degrees] and a lightness, with a saturation of 0.55."""
    red, green, blue = hls_to_rgb(hue / 360, lightness, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _hue(application: str) -> float:
    """Return the hue of an application [degrees]: its own, or one of `FREE_HUES` that depends on its name."""
    if application in HUES:
        return HUES[application]
    (first, first_end), (second, second_end) = FREE_HUES
    total_width = (first_end - first) + (second_end - second)
    # `crc32` gives a name the same hue in every process. Python's `hash` of a text does not.
    # The offset is into the ranges as if they followed each other.
    offset = crc32(application.encode()) * GOLDEN_RATIO % 1 * total_width
    if first + offset <= first_end:
        return first + offset
    return second + first + offset - first_end
