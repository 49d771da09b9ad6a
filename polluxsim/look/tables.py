"""Tables of text in blocks, Markdown, LaTeX and HTML. Each form escapes the characters that are syntax in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from textwrap import wrap

from rich.table import Table
from rich.text import Text

Lines = Sequence[Sequence[str]]

GAP = "  "
WIDEST_LABEL = 30

NOTE = "font-size: 85%; opacity: 0.7"  # style of a note below a table in HTML

_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 1px 10px; text-align:"

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"<": "$<$", ">": "$>$", "≥": r"$\ge$", "≈": r"$\approx$", "−": "$-$", "±": r"$\pm$", "×": r"$\times$"}
    | {"ρ": r"$\rho$", "↓": r"$\downarrow$", "↑": r"$\uparrow$"}
)


def text_blocks(lines: Lines, width: int) -> Iterator[str]:
    """Yield the columns in blocks that fit the width. Each block begins with the column of names."""
    label_width = min(max(len(line[0]) for line in lines), WIDEST_LABEL, width // 2)
    labels = [wrap(line[0], label_width) or [""] for line in lines]
    columns = list(zip(*(line[1:] for line in lines), strict=True))
    widths = [max(map(len, column)) for column in columns]
    for block in _folded(widths, width - label_width):
        rows = zip(labels, *(columns[place] for place in block), strict=True)
        yield "\n".join(
            _row(label, cells, (label_width, *(widths[place] for place in block))) for label, *cells in rows
        )


def _folded(widths: Sequence[int], room: int) -> list[list[int]]:
    blocks: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] + len(GAP) for other in blocks[-1]) + width + len(GAP) > room:
            blocks.append([])
        blocks[-1].append(place)
    return blocks


def _row(label: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    first = GAP.join([label[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True))])
    return "\n".join([first.rstrip(), *(f"  {line}" for line in label[1:])])


def markdown(lines: Lines) -> str:
    r"""Return the lines as Markdown. The first line is the head, and the first column contains names.

    >>> print(markdown([["", "JCT [h]"], ["a|b", "1.2"]]))
    |  | JCT [h] |
    | --- | ---: |
    | a\|b | 1.2 |
    """
    head, *rows = [[cell.replace("|", r"\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] + ["---:"] * (len(head) - 1), *rows])


def latex(lines: Lines) -> str:
    r"""Return the lines as a tabular for the package booktabs.

    >>> print(latex([["", "share"], ["a_{b}", "50 %"]]).splitlines()[4])
    a\_\{b\} & 50 \% \\
    """
    head, *rows = [" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in lines]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"])


def html(lines: Lines, notes: Iterable[str] = (), names: str = "left") -> str:
    """Return the lines as HTML for a notebook, with notes below. `names` is the style of the first column."""
    rows = []
    for index, line in enumerate(lines):
        tag, styles = "td" if index else "th", (names, *["right"] * (len(line) - 1))
        cells = zip(styles, map(escape, line), strict=True)
        rows.append("".join(f'<{tag} style="{_CELL} {style}">{cell}</{tag}>' for style, cell in cells))
    below = "<br>".join(map(escape, notes))
    note = f'<div style="{NOTE}">{below}</div>' if below else ""
    return f'<table style="{_TABLE}">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>{note}'


def boxed(lines: Sequence[Sequence[str | Text]], title: str = "", names: int = 1, caption: str = "") -> Table:
    """Return the lines as a table for the terminal. The first `names` columns contain names.

    Texts are not markup. A cell that is a `Text` keeps its style.
    """
    head, *rows = [[cell if isinstance(cell, Text) else Text(cell) for cell in line] for line in lines]
    table = Table(title=Text(title) if title else None, title_justify="left", caption=caption or None)
    for index, heading in enumerate(head):
        table.add_column(heading, justify="left" if index < names else "right", no_wrap=index < names, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
