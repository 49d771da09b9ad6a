"""Runs as a few lines of HTML, for notebooks: black on white or white on black, as the page is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from polluxsim.durations import HOUR
from polluxsim.look.table import MOST_COLUMNS, metrics_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.metrics.summary import Summary
    from polluxsim.records import RoundRecord

MOST_POINTS = 400
WIDTH, HEIGHT = 600, 60

_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 1px 10px; text-align: right"
_NAME = "padding: 1px 10px; text-align: left; white-space: pre"
_NOTE = "font-size: 85%; opacity: 0.7"


def runs_html(summaries: Mapping[str, Summary], gpus: Sequence[int | None] = ()) -> str:
    """Return a table of runs side by side, or of a row for each where they are many.

    Parameters
    ----------
    summaries
        Metrics by the run's name.
    gpus
        GPUs of the cluster of each run, where that is known.
    """
    if not summaries:
        return "<p>a run without jobs</p>"
    metrics = metrics_in_words(list(summaries.values()), gpus)
    lines = [["", *summaries], *([label, *cells] for label, cells in metrics.items())]
    if len(summaries) > MOST_COLUMNS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    rows = "".join(_row(line, tag="td" if index else "th") for index, line in enumerate(lines))
    return f'<table style="{_TABLE}">{rows}</table>'


def crowd_html(rounds: Sequence[RoundRecord]) -> str:
    """Return a drawing of the jobs submitted and not complete over time.

    Parameters
    ----------
    rounds
        The run's rounds, in order of time.
    """
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
    return f'<svg {view} style="{style}" role="img" aria-label="{what}">{path}</svg><div style="{_NOTE}">{what}</div>'


def _row(cells: Sequence[str], tag: str) -> str:
    styles = [_NAME] + [_CELL] * (len(cells) - 1)
    inside = (f'<{tag} style="{style}">{escape(cell)}</{tag}>' for cell, style in zip(cells, styles, strict=True))
    return f"<tr>{''.join(inside)}</tr>"
