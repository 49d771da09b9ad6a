"""Charts of recorded results, which stand at the beginning of their pages: verdicts, perturbations and the leaderboard.

All numbers are read from the tables of docs/reproduced and docs/perturbations.md.
"""

from __future__ import annotations

import re
from io import StringIO
from itertools import chain
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.look.colours import on_dark
from polluxsim.look.plot.style import GREY, TWO_COLUMNS, in_style, legend, new_figure
from polluxsim.statistics.number_texts import change_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from polluxsim.look.plot.style import Drawing

DOCS = Path(__file__).parent
NOT_JUDGED = {"", "–", "not run"}
MET, MISSED, PAPER = "#004488", "#bb5566", "#ddaa33"
FARTHEST = 50.0
"""Differences beyond this are drawn at the edge of the chart [%]."""


class Table(NamedTuple):
    """A table of a Markdown page: the headings above it, the outermost first, its header, and its rows."""

    headings: tuple[str, ...]
    header: list[str]
    rows: list[list[str]]


def markdown_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a Markdown page."""
    headings: list[str] = []
    header: list[str] = []
    rows: list[list[str]] = []
    for line in chain(text.splitlines(), [""]):
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not header:
                header = cells
            elif not re.fullmatch(r"[|:\- ]+", line):
                rows.append(cells)
            continue
        if header:
            yield Table(tuple(headings), header, rows)
            header, rows = [], []
        if found := re.match(r"(#+) (.*)", line):
            headings[len(found[1]) - 1 :] = [found[2]]


def charts() -> dict[str, str]:
    """Return the charts as SVG by name. Their colours are those of a light or a dark page."""
    drawn = {"evaluation": verdicts(), "perturbations": perturbations(), "leaderboard": leaderboard()}
    return {name: light_and_dark(_svg(figure)) for name, figure in drawn.items()}


def light_and_dark(svg: str) -> str:
    """Return a drawing with other colours on a dark page: greys from ink to paper, others as light as they need."""
    found = sorted(set(re.findall(r"(?<=: )#[0-9a-fA-F]{6}", svg)))
    light, dark = ("".join(f"--c{each[1:]}:{to(each)};" for each in found) for to in (str, on_dark))
    both = f":root{{{light}fill:#000}}@media(prefers-color-scheme:dark){{:root{{{dark}fill:#e7ecf2}}}}"
    named = re.sub(r"(?<=: )#([0-9a-fA-F]{6})", r"var(--c\1)", svg)
    return re.sub(r"(<svg[^>]*>)", rf"\1<style>{both}</style>", named, count=1)


def verdicts() -> Drawing:
    """Draw the number of met verdicts of each table of `paper reproduce`, and differences from published values."""
    files = [*sorted(DOCS.glob("reproduced/table*.md")), *sorted(DOCS.glob("reproduced/fig*.md"))]
    files += [DOCS / "reproduced" / f"{name}.md" for name in ("fidelity", "overheads")]
    tables = [next(markdown_tables(path.read_text(encoding="utf-8"))) for path in dict.fromkeys(files)]
    names = [table.headings[-1].partition(":")[0] for table in tables]
    with in_style():
        figure = new_figure(TWO_COLUMNS, 9.5)
        left, right = figure.subplots(1, 2, sharey=True)
        for place, table in enumerate(tables):
            met, missed = counted_verdicts(table)
            left.barh(place, met, color=MET, height=0.7)
            left.barh(place, missed, left=met, color=MISSED, height=0.7)
            for source, colour in (("paper", PAPER), ("published simulator", MET)):
                off = [min(max(each, -FARTHEST), FARTHEST) for each in differences(table, source)]
                right.plot(off, [place] * len(off), linestyle="none", marker="o", markersize=3, color=colour, alpha=0.7)
        _rows(left, names)
        left.set_xlabel("judged numbers")
        right.set_xlabel("difference from the published value [%]")
        right.axvline(0, color=GREY, linewidth=0.6)
        right.grid(visible=True, axis="x")
        marks: dict[Artist, str] = dict(
            zip(left.patches[:2], ("verdict met", "not met"), strict=True)  # of the first table
        )
        marks |= dict(zip(right.lines[:2], ("difference from the paper", "from its simulator"), strict=True))
        legend(figure, marks)
    return figure


def counted_verdicts(table: Table) -> tuple[int, int]:
    """Return how many numbers of a table are met, and how many are not."""
    columns = [place for place, name in enumerate(table.header) if name == "verdict"]
    judged = [row[place] for row in table.rows for place in columns if row[place] not in NOT_JUDGED]
    missed = sum(verdict.startswith(("outside", "does not hold")) for verdict in judged)
    return len(judged) - missed, missed


def differences(table: Table, source: str) -> list[float]:
    """Return the relative differences of a table from what a source published [%]."""
    if source not in table.header:
        return []
    place = table.header.index(source) + 1
    if table.header[place] != "off":
        return []
    return [float(row[place].removesuffix(" %")) for row in table.rows if row[place].endswith(" %")]


def perturbations() -> Drawing:
    """Draw, for each table or scheduler, the share of its met verdicts that each perturbation turns red."""
    shares: dict[str, list[float]] = {}
    for table in markdown_tables((DOCS / "perturbations.md").read_text(encoding="utf-8")):
        if table.header[0] == "perturbation":
            name = f"{table.headings[-2].partition(':')[0]}: {table.headings[-1]}"
            parts = [re.findall(r"\d+", row[1]) for row in table.rows]
            shares[name] = [int(red) / int(met) for red, met in parts]
        else:
            rows = [row for row in table.rows if row[1] == "met"]
            if not rows:
                continue
            columns = [[row[place] for row in rows if row[place]] for place in range(2, len(table.header))]
            shares[table.headings[-1].partition(":")[0]] = [
                cells.count("**red**") / len(cells) for cells in columns if cells
            ]
    with in_style():
        figure = new_figure(TWO_COLUMNS, 1.5 + 0.42 * len(shares))
        axes = figure.subplots()
        for place, found in enumerate(shares.values()):
            axes.barh(place, 100 * max(found), color=MISSED, height=0.66, alpha=0.25)
            axes.plot(
                [100 * share for share in found], [place] * len(found),
                linestyle="none", marker="o", markersize=4, color=MISSED, alpha=0.8,
            )  # fmt: skip
        _rows(axes, list(shares))
        axes.set_xlabel("met verdicts that a perturbation turns red [%]")
        axes.set_xlim(0, 103)
    return figure


def leaderboard() -> Drawing:
    """Draw the mean JCT of each policy over the best policy's, by scenario, in the order of the ranking."""
    text = (DOCS / "reproduced" / "arena.md").read_text(encoding="utf-8")
    ranking, *scenarios = markdown_tables(text)
    policies = [row[0] for row in ranking.rows]
    with in_style():
        figure = new_figure(TWO_COLUMNS, 1.5 + 0.62 * len(policies))
        axes = figure.subplots()
        for x, scenario in enumerate(scenarios):
            for name, cell, *_ in scenario.rows:
                policy = name.partition(" (")[0]  # some have jobs that were not served
                change, tied = over_the_best(cell)
                change = round(change) if abs(change) >= 1 else change
                label = "tied" if tied else "best" if change == 0 else change_text(change / 100).replace(".0 ", " ")
                opacity = min(max(log2(1 + change / 100) / 5, 0.0), 0.7)
                y = policies.index(policy)
                label += "" if policy == name else "*"
                axes.barh(y, 0.94, left=x - 0.47, height=0.92, color="#ee7733", alpha=opacity)
                axes.text(x, y, label, ha="center", va="center", fontsize=7, fontweight="bold" if not change else None)
        _rows(axes, policies)
        axes.set_xticks(range(len(scenarios)), [each.headings[-1].partition(":")[0] for each in scenarios])
        axes.set_xlim(-0.5, len(scenarios) - 0.5)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
    return figure


def over_the_best(cell: str) -> tuple[float, bool]:
    """Return a change over the best value [%], and whether it may be chance.

    >>> over_the_best("0.425, best"), over_the_best("0.429, ≈ +0.7 % [−0.4, +2.0]"), over_the_best("16, ×13 [×2, ×59]")
    ((0.0, False), (0.7, True), (1200.0, False))
    """
    is_tied = "≈" in cell or "tied" in cell
    if found := re.search(r"([+−][\d,.]+) %", cell):
        return float(found[1].replace("−", "-").replace(",", "")), is_tied
    factor = re.search(r"×([\d,.]+)", cell)
    return 100 * (float(factor[1].replace(",", "")) - 1) if factor else 0.0, is_tied


def _rows(axes: Axes, names: list[str]) -> None:
    """Name the rows of a chart, the first one at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _svg(figure: Drawing) -> str:
    with in_style():
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
