"""Runs side by side, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from polluxsim.look.metric_lines import lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.metric_lines import Line
    from polluxsim.metrics.summary import Summary

MOST_NAMES = 3
MOST_COLUMNS = 4
"""More runs than this are told by their settings."""


def comparison(summaries: Mapping[str, Summary], gpus: Sequence[int | None] = ()) -> Group:
    """Return a table of runs side by side, folded into blocks of a few runs.

    Parameters
    ----------
    summaries
        Metrics by the run's name. A run with jobs cut off has "≥" before what is a lower bound.
    gpus
        GPUs of the cluster of each run, where that is known.
    """
    words, names = metrics_in_words(list(summaries.values()), gpus), list(summaries)
    return Group(*(_block(words, names, first) for first in range(0, len(names), MOST_COLUMNS)))


def _block(words: Mapping[str, Sequence[str]], names: Sequence[str], first: int) -> Table:
    table = Table()
    table.add_column("", no_wrap=True)
    for name in names[first : first + MOST_COLUMNS]:
        table.add_column(escape(name), justify="right", overflow="fold")
    for label, cells in words.items():
        table.add_row(escape(label), *map(escape, cells[first : first + MOST_COLUMNS]))
    return table


def metrics_in_words(runs: Sequence[Summary], gpus: Sequence[int | None] = ()) -> dict[str, list[str]]:
    """Return each metric of all runs in words, by its label; jobs that are missing are named."""
    return {
        f"{'  ' * line.metric.is_part}{line.title}": [
            text + _named(run, line) for run, text in zip(runs, line.texts, strict=True)
        ]
        for line in lines(runs, gpus)
    }


def _named(run: Summary, line: Line) -> str:
    names = getattr(run, line.field, None)
    if not isinstance(names, tuple) or not names:
        return ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f": {', '.join(names[:MOST_NAMES])}{more}"
