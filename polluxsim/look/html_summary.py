"""Runs as a few lines of HTML, for notebooks: black on white or white on black, as the page is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from polluxsim.common.durations import HOUR
from polluxsim.look.side_by_side import MOST_COLUMNS, compared_cells
from polluxsim.statistics.metric_lines import baseline_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.metrics.declared import UserValues
    from polluxsim.metrics.summary import Summary
    from polluxsim.records.results import RoundRecord

MOST_POINTS = 400
WIDTH, HEIGHT = 600, 60

_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 1px 10px; text-align:"
NOTE = "font-size: 85%; opacity: 0.7"


def runs_html(
    summaries: Mapping[str, Summary],
    gpus: Sequence[int | None] = (),
    bases: Sequence[int] = (),
    user_values: Sequence[UserValues] = (),
) -> str:
    """Return a table of runs by name side by side, or with a row for each of many runs.

    `gpus`, `bases` and `user_values` are as for `SideBySide`.
    """
    if not summaries:
        return "<p>a run without jobs</p>"
    metrics = compared_cells(list(summaries.values()), gpus, bases, user_values)
    lines = [["", *summaries], *([label, *(cell.plain for cell in cells)] for label, cells in metrics.items())]
    if len(summaries) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    note = baseline_note(list(summaries), bases)
    return table_html(lines, "left; white-space: pre") + (f'<div style="{NOTE}">{escape(note)}</div>' if note else "")


def table_html(lines: Iterable[Sequence[str]], names: str = "left") -> str:
    """Return lines of cells as a table. The first line is its head, and the first cell of each line is a name."""
    rows = "".join(_row(line, "td" if index else "th", names) for index, line in enumerate(lines))
    return f'<table style="{_TABLE}">{rows}</table>'


def _row(cells: Sequence[str], tag: str, names: str) -> str:
    inside = (
        f'<{tag} style="{_CELL} {"right" if place else names}">{escape(cell)}</{tag}>'
        for place, cell in enumerate(cells)
    )
    return f"<tr>{''.join(inside)}</tr>"


def crowd_html(rounds: Sequence[RoundRecord]) -> str:
    """Return a drawing of the jobs submitted and not complete over time, from a run's rounds in their order."""
    if len(rounds) < 2:
        return ""
    thinned = rounds[:: -(-len(rounds) // MOST_POINTS)]
    start, end = rounds[0].time, rounds[-1].time
    most = max(record.active_jobs for record in rounds)
    points = "".join(
        f"H{(record.time - start) / (end - start) * WIDTH:.1f}V{HEIGHT * (1 - record.active_jobs / most):.1f}"
        for record in thinned
    )
    path = f'<path d="M0,{HEIGHT}{points}H{WIDTH}V{HEIGHT}Z" fill="#7986cb"/>'
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    style = f"width: 100%; max-width: {WIDTH}px; height: {HEIGHT}px; display: block; margin-top: 6px"
    what = f"active jobs, up to {most}, from {start / HOUR:.1f} to {end / HOUR:.1f} h"
    return f'<svg {view} style="{style}" role="img" aria-label="{what}">{path}</svg><div style="{NOTE}">{what}</div>'
