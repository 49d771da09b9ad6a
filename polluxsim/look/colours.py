"""One colour for each policy and one hue for each application, in every figure, on the page and on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from colorsys import hls_to_rgb
from itertools import cycle
from typing import NamedTuple
from zlib import crc32

from polluxsim.common.policy_names import ALIASES, FIXED_COLOURS, MORE_POLICIES, SHADED_POLICIES
from polluxsim.statistics.groups import RunGroup

PALETTE = ("#004488", "#C0392B", "#DDAA33", "#1B1B1B", "#2F96B4")
"""Colours of lines. Their lightness rises in even steps, which keeps them apart in greyscale and for colour-blind
readers. Source: the high-contrast scheme of Paul Tol, "Colour schemes" (SRON/EPS/TN/09-002).
"""

MORE_COLOURS = ("#F38468", "#7011D0", "#8F76F4", "#8C545F", "#C8AEA3", "#420F48", "#5E1908")
"""Colours of further policies. A search chose them: two colours of `PALETTE` and these are at least 20 apart in CIE
L*a*b*, also for readers with protanopia, deuteranopia or tritanopia.
"""

SHADE = 0.14  # share of white in the first shade of a colour; further shades have its multiples

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


class Paint(NamedTuple):
    """The colour of an application."""

    hue: float  # [degrees]
    lightness: float  # from 0 (black) to 1 (white)
    saturation: float  # from 0 (grey) to 1
    spread: float  # largest difference between the lightness of the application and that of a job


PAINTS = {
    "bert": Paint(295.0, 0.34, 0.65, 0.08),
    "cifar10": Paint(105.0, 0.64, 0.45, 0.08),
    "deepspeech2": Paint(165.0, 0.62, 0.65, 0.08),
    "imagenet": Paint(260.0, 0.76, 0.55, 0.08),
    "ncf": Paint(90.0, 0.32, 0.45, 0.08),
    "yolov3": Paint(330.0, 0.52, 0.65, 0.08),
}
"""Colours of the applications that come with polluxsim.

A search chose them. Two applications are at least 20 apart in CIE L*a*b*, also for readers with protanopia,
deuteranopia or tritanopia, and shades of their jobs at least 10.
"""

SATURATION = 0.55  # of applications and jobs without a colour of their own

FREE_HUES = ((75.0, 165.0), (243.0, 325.0))
"""Ranges of hues [degrees] in which no shade of an application can be mistaken for the colour of a policy."""

GOLDEN_RATIO = 0.618033988749895  # steps of this share of a circle never come close to an earlier hue
MOST_HUES = 8  # if there are more applications than this, they do not get one hue each
SHADES = (0.38, 0.54, 0.7)  # lightness of jobs without an application, in turn, from 0 (black) to 1 (white)

PAPER = "#171d24"
INK = "#e7ecf2"
"""Background and text of a dark page."""

LEAST_CHROMA = 24  # colours whose largest and smallest parts differ by at most this value are greys [of 255]
LEAST_ON_DARK = 0.18  # least relative luminance of a line on a dark page, that of a black line
RISE_ON_DARK = 1.2  # rise of this least luminance with the luminance on a light page
MOST_ON_DARK = 0.7  # above this relative luminance, a line is light enough
LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue


class Look(NamedTuple):
    """The look of a line, in the words of matplotlib."""

    color: str
    linestyle: str | tuple[float, tuple[float, ...]]  # as in `DASHES`
    marker: str


def _parts(colour: str) -> list[int]:
    """Return red, green and blue of `#rrggbb`, each from 0 to 255."""
    return list(bytes.fromhex(colour[1:]))


def mixed(colour: str, other: int, share: float) -> str:
    """Return a colour mixed with a share of the grey `other`, from 0 (black) to 255 (white)."""
    mixture = ""
    for part in _parts(colour):
        mixture += f"{round(part + (other - part) * share):02x}"
    return f"#{mixture}"


def lighter(colour: str, share: float) -> str:
    """Return a colour mixed with a share of white.

    >>> lighter("#000000", 0.5)
    '#808080'
    """
    return mixed(colour, 255, share)


def _policy_colours() -> dict[str, str]:
    """Return the colour of each shipped policy."""
    distinct = (*PALETTE, *MORE_COLOURS)
    colours = dict(zip((*FIXED_COLOURS, *MORE_POLICIES), distinct, strict=True))
    for number, name in enumerate(SHADED_POLICIES):
        shade, index = divmod(number, len(distinct))
        colours[name] = lighter(distinct[index], SHADE * (shade + 1))
    return colours


POLICY_COLOURS = _policy_colours()
"""The colour of each shipped policy, which is the same in all views."""


def looks(policies: Sequence[str]) -> list[Look]:
    """Return a look for each line, given the policies of the lines. The first line of a policy has its own colour.

    A shipped policy has the same colour in every figure. Another policy has a colour of `PALETTE` or `MORE_COLOURS`
    that no line has, while there are any. Further lines of a colour have lighter shades of it. Lines have different
    dashes and markers while there are any.
    """
    colours = _colours(policies)
    fixed_styles = {name: style for style, name in enumerate(FIXED_COLOURS)}
    used_styles = {fixed_styles[name] for name in policies if name in fixed_styles}
    unused_styles = [style for style in range(len(DASHES)) if style not in used_styles]
    next_style = cycle(unused_styles or range(len(DASHES)))
    # With more policies than colours, several policies have one colour. So lines are counted by colour.
    num_lines = Counter[str]()
    line_looks = []
    for name in policies:
        colour = colours[name]
        num_before = num_lines[colour]
        num_lines[colour] += 1
        if name in fixed_styles and not num_before:
            style = fixed_styles[name]
        else:
            style = next(next_style)
        if num_before:
            colour = lighter(colour, min(0.22 * num_before, 0.44))
        line_looks.append(Look(colour, DASHES[style], MARKERS[style]))
    return line_looks


def _colours(policies: Sequence[str]) -> dict[str, str]:
    """Return the colour of each policy: its own, or one that no policy of the figure has.

    If there are too few such colours, several policies share one.
    """
    colours = {name: POLICY_COLOURS[_title(name)] for name in policies if _title(name) in POLICY_COLOURS}
    used_colours = set(colours.values())
    # Pollux and Tiresias lend last, because a reader knows their colours from other figures.
    lenders = [colour for colour in (*PALETTE[::-1], *MORE_COLOURS) if colour not in used_colours]
    next_lender = cycle(lenders or PALETTE)
    for name in policies:
        if name not in colours:
            colours[name] = next(next_lender)
    return colours


def _title(name: str) -> str:
    """Return the title of a policy as in reports, without the settings that an arena names behind it.

    >>> _title("EASY(overestimate=2)"), _title("LAS")
    ('EASY', 'LeastAttainedService')
    """
    title, _, _ = name.partition("(")
    return ALIASES.get(title, title)


def looks_of(groups: Sequence[RunGroup]) -> list[Look]:
    """Return a look for each group."""
    return looks([group.policy for group in groups])


def job_colour(application: str | None, number: int) -> str:
    """Return the colour of a job, given its application and its index in order of submission.

    The hue is that of the application; a job without an application has its own hue. Neighbours differ in shade. Jobs
    far apart can look alike.
    """
    turn = number * GOLDEN_RATIO % 1
    if application is None:
        return _hex(turn * 360, SHADES[number % len(SHADES)])
    hue, lightness, saturation, spread = _paint(application)
    return _hex(hue, lightness + spread * (2 * turn - 1), saturation)


def is_coloured_by_application(applications: Collection[str]) -> bool:
    """Return whether colours distinguish applications; with one or very many, they distinguish jobs instead."""
    return 1 < len(applications) <= MOST_HUES


def application_colour(application: str) -> str:
    """Return the colour of an application."""
    hue, lightness, saturation, _ = _paint(application)
    return _hex(hue, lightness, saturation)


def on_dark(colour: str) -> str:
    """Return a colour for a dark page: light for black, dark for white, and light enough for a line.

    >>> on_dark("#000000"), on_dark("#FFFFFF"), on_dark("#004488")
    ('#e7ecf2', '#171d24', '#6991ba')
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
    # Dark colours would all get one lightness, and look alike to colour-blind readers, if this were a constant.
    least = min(LEAST_ON_DARK + RISE_ON_DARK * luminance(colour), MOST_ON_DARK)
    while luminance(colour) < least:
        colour = lighter(colour, 0.1)
    return colour


def on_page(colour: str) -> str:
    """Return a colour for a style sheet: unchanged on a light page, and light enough for a line on a dark page.

    >>> on_page("#004488")
    'light-dark(#004488, #6991ba)'
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


def _hex(hue: float, lightness: float, saturation: float = SATURATION) -> str:
    """Return `#rrggbb` of a hue [degrees], a lightness and a saturation."""
    red, green, blue = hls_to_rgb(hue / 360, lightness, saturation)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _paint(application: str) -> Paint:
    """Return the colour of an application: its own, or one with a hue of `FREE_HUES` that depends on its name."""
    if application in PAINTS:
        return PAINTS[application]
    (first, first_end), (second, second_end) = FREE_HUES
    total_width = (first_end - first) + (second_end - second)
    # `crc32` gives a name the same hue in every process. Python's `hash` of a text does not.
    # The offset is into the ranges as if they followed each other.
    hue = first + crc32(application.encode()) * GOLDEN_RATIO % 1 * total_width
    if hue > first_end:
        hue += second - first_end
    return Paint(hue, 0.55, SATURATION, 0.15)
