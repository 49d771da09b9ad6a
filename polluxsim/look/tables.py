"""Tables of text in blocks, Markdown, LaTeX and HTML. Each form escapes the characters that are syntax in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from textwrap import wrap

from rich.table import Table
from rich.text import Text

Lines = Sequence[Sequence[str]]

GAP = "  "  # between columns of text
WIDEST_LABEL = 30  # longer names in the first column are wrapped [characters]

# Styles of a note below a table, of a table, and of a cell in HTML; the alignment follows the style of a cell.
NOTE = "font-size: 85%; opacity: 0.7"
_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 1px 10px; text-align:"

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"<": "$<$", ">": "$>$", "≥": r"$\ge$", "≈": r"$\approx$", "−": "$-$", "±": r"$\pm$", "×": r"$\times$"}
    | {"ρ": r"$\rho$", "↓": r"$\downarrow$", "↑": r"$\uparrow$"}
)


def text_blocks(lines: Lines, width: int) -> Iterator[str]:
    """Yield the columns in blocks that fit the width [characters]. Each block begins with the column of names."""
    longest_label = max(len(line[0]) for line in lines)
    # Half the width stays free for values, also on a narrow screen.
    label_width = min(longest_label, WIDEST_LABEL, width // 2)
    # `wrap` has no line for the empty label of the head.
    labels = [wrap(line[0], label_width) or [""] for line in lines]
    _, *columns = zip(*lines, strict=True)
    block: list[list[str]] = []
    used = label_width
    for column in columns:
        column_width = max(map(len, column))
        # A block has at least one column, even if this one is wider than the screen.
        if block and used + len(GAP) + column_width > width:
            yield _block(labels, label_width, block)
            block = []
            used = label_width
        block.append([cell.rjust(column_width) for cell in column])
        used += len(GAP) + column_width
    yield _block(labels, label_width, block)


def _block(labels: Sequence[Sequence[str]], label_width: int, columns: Sequence[Sequence[str]]) -> str:
    """Return lines of text: the names, wrapped to lines of `label_width` characters, and the padded columns."""
    lines = []
    for (first, *continuations), *cells in zip(labels, *columns, strict=True):
        lines.append(GAP.join([first.ljust(label_width), *cells]).rstrip())
        lines += [f"  {text}" for text in continuations]
    return "\n".join(lines)


def markdown(lines: Lines) -> str:
    r"""Return the lines as Markdown. The first line is the head, and the first column contains names.

    >>> print(markdown([["", "JCT [h]"], ["a|b", "1.2"]]))
    |  | JCT [h] |
    | --- | ---: |
    | a\|b | 1.2 |
    """
    rows = []
    for line in lines:
        # A line break would end the row of the table.
        cells = [cell.replace("|", r"\|").replace("\n", " ") for cell in line]
        rows.append(f"| {' | '.join(cells)} |")
    num_numbers = len(lines[0]) - 1
    rule = f"| {' | '.join(['---'] + ['---:'] * num_numbers)} |"
    rows.insert(1, rule)
    return "\n".join(rows)


def latex(lines: Lines) -> str:
    r"""Return the lines as a tabular for the package booktabs.

    >>> print(latex([["", "share"], ["a_{b}", "50 %"]]).splitlines()[4])
    a\_\{b\} & 50 \% \\
    """
    rows = []
    for line in lines:
        cells = [cell.translate(_LATEX) for cell in line]
        rows.append(" & ".join(cells) + r" \\")
    alignments = "l" + "r" * (len(lines[0]) - 1)
    head, *body = rows
    begin = rf"\begin{{tabular}}{{{alignments}}}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def html(lines: Lines, notes: Iterable[str] = (), names: str = "left") -> str:
    """Return the lines as HTML for a notebook, with notes below. `names` is the style of the first column."""
    rows = ""
    for index, line in enumerate(lines):
        tag = "th" if index == 0 else "td"
        styles = [names] + ["right"] * (len(line) - 1)
        row = ""
        for style, cell in zip(styles, line, strict=True):
            row += f'<{tag} style="{_CELL} {style}">{escape(cell)}</{tag}>'
        rows += f"<tr>{row}</tr>"
    table = f'<table style="{_TABLE}">{rows}</table>'
    below = "<br>".join(map(escape, notes))
    if not below:
        return table
    return f'{table}<div style="{NOTE}">{below}</div>'


def boxed(lines: Sequence[Sequence[str | Text]], title: str = "", names: int = 1, caption: str = "") -> Table:
    """Return the lines as a table for the terminal. The first `names` columns contain names.

    Texts are not markup. A cell that is a `Text` keeps its style.
    """
    head, *rows = map(_cells, lines)
    table = Table(title_justify="left")
    # The table would read strings as markup.
    if title:
        table.title = Text(title)
    if caption:
        table.caption = Text(caption)
    for index, heading in enumerate(head):
        is_name = index < names
        # A name stays in one line, so that it can be copied.
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _cells(line: Sequence[str | Text]) -> list[Text]:
    """Return the cells of a line as texts, because the table would read strings as markup."""
    cells = []
    for cell in line:
        if isinstance(cell, Text):
            cells.append(cell)
        else:
            cells.append(Text(cell))
    return cells
