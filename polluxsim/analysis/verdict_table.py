"""Findings as a table for people: ours, the paper's and the published simulator's, a row for each quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from polluxsim.analysis.published import UNITS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polluxsim.analysis.bootstrap import Estimate
    from polluxsim.analysis.comparison import Finding
    from polluxsim.analysis.published import Published

COLUMNS = ("", "ours", "95 % interval", "paper", "verdict", "published simulator", "difference", "verdict")
STYLES = {True: "green", False: "red", None: "dim"}


def rows(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the cells of a table, a row for each quantity, in the order of the findings."""
    quantities = dict.fromkeys(finding.published.quantity for finding in findings)
    return [_cells([f for f in findings if f.published.quantity == quantity]) for quantity in quantities]


def verdict_table(findings: Sequence[Finding], title: str) -> Table:
    """Return the table for a terminal."""
    cells = rows(findings)
    kept = _filled(cells)
    table = Table(title=escape(title), title_justify="left")
    for index in kept:
        table.add_column(COLUMNS[index], justify="left" if index in (0, 4, 7) else "right", no_wrap=index == 1)
    styles = {finding.verdict.words: STYLES[finding.verdict.passed] for finding in findings}
    firsts = _firsts(findings)
    metrics = [(finding.published.metric, bool(finding.published.against)) for finding in firsts]
    for index, line in enumerate(cells):
        if index and metrics[index] != metrics[index - 1] and len(set(metrics)) < len(metrics) / 2:
            table.add_section()
        table.add_row(*(_styled(line[column], styles.get(line[column], "")) for column in kept))
    return table


def markdown(findings: Sequence[Finding], title: str) -> str:
    """Return the table as Markdown."""
    cells = rows(findings)
    kept = _filled(cells)
    lines = [COLUMNS, ("---",) * len(COLUMNS), *cells]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(line[index] for index in kept)} |\n" for line in lines)


def _filled(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns in which something stands."""
    return [index for index in range(len(COLUMNS)) if any(line[index] not in ("", "–") for line in cells)]


def _firsts(findings: Sequence[Finding]) -> list[Finding]:
    return list({finding.published.quantity: finding for finding in reversed(findings)}.values())[::-1]


def _styled(cell: str, style: str) -> str:
    return f"[{style}]{escape(cell)}[/]" if style else escape(cell)


def _cells(findings: Sequence[Finding]) -> list[str]:
    paper = next((finding for finding in findings if not finding.published.by_simulator), None)
    simulator = next((finding for finding in findings if finding.published.by_simulator), None)
    first = findings[0]
    row = first.published
    name = f"{row.metric}, {row.arm}" + (f" against {row.against}" if row.against else "")
    return [
        name,
        "–" if first.ours is None else value(first.ours.value, row),
        "–" if first.ours is None else _interval(first.ours, row),
        "–" if paper is None else _published(paper.published),
        "" if paper is None else paper.verdict.words,
        "–" if simulator is None else _published(simulator.published),
        "" if simulator is None or simulator.off is None else f"{100 * simulator.off:+.2f} %",
        "" if simulator is None else simulator.verdict.words,
    ]


def _published(row: Published) -> str:
    bound = {Kind.AT_LEAST: "≥ ", Kind.AT_MOST: "≤ "}.get(row.tolerance.kind, "")
    return bound + value(row.in_base_units, row)


def value(number: float, row: Published) -> str:
    """Return a number in base units as text in the unit of a published one."""
    scaled = number / UNITS[row.unit]
    if row.unit == "1":
        return f"{scaled:.4g}"
    if row.unit == "%":
        return f"{scaled:+.1f} %" if row.against else f"{scaled:.2f} %"
    digits = 3 if abs(scaled) < 10 and row.unit == "h" else 2
    return f"{scaled:.{digits}f} {row.unit}"


def _interval(ours: Estimate, row: Published) -> str:
    if ours.low is None or ours.high is None:
        return "–"
    return " to ".join(value(end, row) for end in (ours.low, ours.high))


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose verdict is against us."""
    return [finding for finding in findings if finding.verdict.passed is False]
