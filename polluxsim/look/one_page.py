"""An answer on a page to print: question, answer, uncertainty, assumptions and two figures, in one HTML file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from importlib.resources import files
from io import BytesIO
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from polluxsim import __version__
from polluxsim.look.sheets import Block

if TYPE_CHECKING:
    from polluxsim.look.plot.style import Drawing

MOST_LINES = 16  # largest number of lines of a section; its last sentence then states the number of the others
LINE = 80  # length of a line of a section in print [characters]
MOST_ROWS = 12  # largest number of rows of the table


class CaptionedFigure(NamedTuple):
    """A figure and its caption."""

    drawing: Drawing
    caption: str


class OnePage(NamedTuple):
    """The content of a page."""

    question: str
    answer: Sequence[str]  # sentences
    uncertainty: Sequence[str]
    assumptions: Sequence[str]
    figures: Sequence[CaptionedFigure]
    table: Block | None  # None without numbers
    more: str  # where the rest is, for sentences and rows that do not fit


def as_html(page: OnePage) -> str:
    """Return a page as the text of an HTML file that needs no other file and no network.

    It has at most two pages of paper of the sizes A4 and Letter.
    """
    rules = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = (files("polluxsim.look.report") / "assets" / "one_page.html").read_text(encoding="utf-8")
    head: Sequence[str] = []
    rows: list[Sequence[str]] = []
    if page.table is not None:
        head, *rows = page.table.lines
    rows_on_page = rows[:MOST_ROWS]
    note_on_rows = ""
    if len(rows) > MOST_ROWS:
        note_on_rows = f"and {len(rows) - MOST_ROWS} more rows in {page.more}"
    return rules.from_string(template).render(
        question=page.question,
        sections=[
            ("Answer", _shortened(page.answer, page.more)),
            ("Uncertainty", _shortened(page.uncertainty, page.more)),
        ],
        assumptions=_shortened(page.assumptions, page.more),
        figures=[(_svg(figure.drawing), figure.caption) for figure in page.figures],
        head=head,
        rows=rows_on_page,
        rest=note_on_rows,
        version=__version__,
    )


def _shortened(sentences: Sequence[str], more: str) -> list[str]:
    """Return sentences with capital letters, and the number of others in place of those that do not fit."""
    texts = []
    for sentence in sentences:
        text = sentence.strip()
        # `capitalize` would turn the other letters of GPU or JCT into small ones.
        texts.append(f"{text[:1].upper()}{text[1:]}")
    # Lines up to and with each text, so that the last text that fits can be searched.
    num_lines = list(accumulate(ceil(len(text) / LINE) for text in texts))
    if not num_lines or num_lines[-1] <= MOST_LINES:
        return texts
    # The sentence on the others needs one line.
    num_texts = bisect_right(num_lines, MOST_LINES - 1)
    fitting = texts[:num_texts]
    fitting.append(f"And {len(texts) - num_texts} more in {more}")
    return fitting


def _svg(drawing: Drawing) -> Markup:
    """Return a figure as an SVG element."""
    from polluxsim.look.plot.style import write_figure  # noqa: PLC0415  (matplotlib is slow to load)

    buffer = BytesIO()
    write_figure(drawing, buffer, ".svg")
    text = buffer.getvalue().decode("utf-8")
    return Markup(text[text.index("<svg") :])
