"""Tables of findings: our value, the paper's and the published simulator's, a row for each quantity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from polluxsim.common.durations import HOUR, MINUTE
from polluxsim.studies.paper.published import BOUNDS, Published, PublishedFinding, in_points

COLUMNS = ("", "ours", "95 % interval", "paper", "off", "verdict", "published simulator", "off", "verdict")
"""Headings: the quantity, our value, and its comparison with the paper and with the published simulator."""

LEFT = (0, 5, 8)  # indices of the columns with text, which are aligned to the left

STYLES = {True: "green", False: "red", None: "dim"}  # of verdicts, by `Verdict.passed`

SCALES = {"h": (HOUR, 3, 0.7), "min": (MINUTE, 2, 1.0), "s": (1.0, 4, 0.0)}
"""Units of times: seconds per unit, decimals, and the least value of the largest time of a row in this unit."""


def table_cells(findings: Sequence[PublishedFinding]) -> list[list[str]]:
    """Return the cells of the table: a row for each quantity, in the order of the findings."""
    return [_cells(group) for group in by_quantity(findings)]


def by_quantity(findings: Iterable[PublishedFinding]) -> list[list[PublishedFinding]]:
    """Return the findings of each quantity: on the paper's number, and on the simulator's."""
    groups: dict[tuple[str, str, str], list[PublishedFinding]] = {}
    for finding in findings:
        groups.setdefault(finding.published.quantity, []).append(finding)
    return list(groups.values())


def verdict_table(findings: Sequence[PublishedFinding], title: str) -> Table:
    """Return the table for a terminal."""
    cells = table_cells(findings)
    columns = _filled(cells)
    table = Table(title=escape(title), title_justify="left")
    for index in columns:
        side: Literal["left", "right"] = "left" if index in LEFT else "right"
        table.add_column(COLUMNS[index], justify=side, no_wrap=index == 1)
    # The cells are texts here, and only those of verdicts have a colour.
    styles = {finding.verdict.words: STYLES[finding.verdict.passed] for finding in findings}
    metrics = []  # of each row, and whether it is a change
    for group in by_quantity(findings):
        published = group[0].published
        metrics.append((published.metric, bool(published.against)))
    # Lines between the metrics help only if a metric has several rows.
    has_sections = len(set(metrics)) < len(metrics) / 2
    for index, line in enumerate(cells):
        if has_sections and index > 0 and metrics[index] != metrics[index - 1]:
            table.add_section()
        cells_of_row = [Text(line[column], styles.get(line[column], "")) for column in columns]
        table.add_row(*cells_of_row)
    return table


def verdict_markdown(findings: Sequence[PublishedFinding], title: str, notes: Sequence[str] = ()) -> str:
    """Return the table as Markdown, with notes below it."""
    cells = table_cells(findings)
    columns = _filled(cells)
    text = f"## {title}\n\n"
    for line in [COLUMNS, ("---",) * len(COLUMNS), *cells]:
        cells_of_line = [line[index] for index in columns]
        text += f"| {' | '.join(cells_of_line)} |\n"
    for note in notes:
        text += f"\n{note}\n"
    return text


def notes(findings: Sequence[PublishedFinding]) -> list[str]:
    """Return notes for the table: explanations of numbers that are not met, and the units of intervals."""
    not_met = [f"Not met: {finding.published}. {finding.published.note}".strip() for finding in failed(findings)]
    # A number may be published twice, by the paper and by the simulator, with one explanation.
    notes = list(dict.fromkeys(not_met))
    units = set()
    for finding in findings:
        if finding.ours is not None and finding.ours.estimate.low is not None:
            units.add(f"{finding.ours.num_units} {finding.ours.units}")
    if units:
        notes.append(f"Intervals are over {', '.join(sorted(units))}.")
    return notes


def _filled(cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the indices of the columns that are not empty."""
    filled = []
    # Many tables have no numbers of a simulator, and empty columns cost width.
    for index in range(len(COLUMNS)):
        if any(line[index] not in ("", "–") for line in cells):
            filled.append(index)
    return filled


def _cells(findings: Sequence[PublishedFinding]) -> list[str]:
    """Return the cells of a row, with the findings on one quantity."""
    row = findings[0].published
    ours = findings[0].ours
    unit = unit_of(findings)
    text = "–"
    interval = "–"
    if ours is not None:
        value, low, high = ours.estimate
        text = value_text(value, row, unit)
        if low is not None and high is not None:
            interval = f"{value_text(low, row, unit)} to {value_text(high, row, unit)}"
    # Of several findings of a kind, the first one counts.
    by_simulator = {finding.published.by_simulator: finding for finding in reversed(findings)}
    paper_cells = _published(by_simulator.get(False), unit)
    simulator_cells = _published(by_simulator.get(True), unit)
    return [str(row), text, interval, *paper_cells, *simulator_cells]


def _published(finding: PublishedFinding | None, unit: str) -> tuple[str, str, str]:
    """Return the cells of a published number: the number, the difference from it, and the verdict."""
    if finding is None:
        return "–", "", ""
    row = finding.published
    number = BOUNDS.get(finding.rule.kind, "") + value_text(row.in_base_units, row, unit)
    if row.is_rerun:
        number += " (rerun)"
    return number, difference_text(finding), finding.verdict.words


def difference_text(finding: PublishedFinding) -> str:
    """Return the difference from the published value as text."""
    if finding.off is None:
        return ""
    if in_points(finding.published):
        return f"{100 * finding.off:+.1f} points"
    return f"{100 * finding.off:+.2f} %"


def unit_of(findings: Sequence[PublishedFinding]) -> str:
    """Return the unit of a row: for times, a unit that suits the largest time; otherwise the published unit."""
    unit = findings[0].published.unit
    if unit not in SCALES:
        return unit
    times = [abs(finding.published.in_base_units) for finding in findings]
    times += [abs(finding.ours.estimate.value) for finding in findings if finding.ours is not None]
    finite = [time for time in times if time < float("inf")]  # jobs that were cut off have infinite times
    largest = max(finite, default=0.0)
    for name, (seconds, _, smallest) in SCALES.items():
        if largest >= smallest * seconds:
            return name
    raise ValueError("the times of a row are below 0")


def value_text(number: float, row: Published, unit: str) -> str:
    """Return a number in base units [s, or 1] as text in a unit."""
    if unit == "%" and row.against:
        return f"{100 * number:+.1f} %"
    if unit == "%":
        return f"{100 * number:.2f} %"
    if unit not in SCALES:
        return f"{number:.6g}"
    seconds, decimals, _ = SCALES[unit]
    return f"{number / seconds:.{decimals}f} {unit}"


def failed(findings: Iterable[PublishedFinding]) -> list[PublishedFinding]:
    """Return the findings on numbers that are not met."""
    return [finding for finding in findings if finding.verdict.passed is False]


def tally(findings: Iterable[PublishedFinding]) -> Mapping[bool, int]:
    """Return how many published numbers are met (True) and not met (False)."""
    verdicts = [finding.verdict.passed for finding in findings]
    return {met: verdicts.count(met) for met in (True, False)}
