"""Runs side by side, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from polluxsim.look.console import UNBOUNDED
from polluxsim.look.metric_lines import difference, lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from polluxsim.look.metric_lines import Line
    from polluxsim.metrics.summary import Summary

MOST_NAMES = 3
MOST_COLUMNS = 4
"""More runs than this are told by their settings."""

COLOURS = {"better": "green", "worse": "red"}


class SideBySide:
    """A table of runs by name side by side, folded into blocks of as many runs as fit.

    The GPUs are those of each run's cluster, where they are known. Each run is compared, in per cent, with the one at
    the place that is its base; by default none is.
    """

    def __init__(
        self, summaries: Mapping[str, Summary], gpus: Sequence[int | None] = (), bases: Sequence[int] = ()
    ) -> None:
        runs = list(summaries.values())
        self._labels, texts = list(words := metrics_in_words(runs, gpus)), list(words.values())
        found = lines(runs, gpus)
        self._columns = [
            (name, [_told(line, text[run], run, bases) for line, text in zip(found, texts, strict=True)])
            for run, name in enumerate(summaries)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the blocks."""
        block: list[tuple[str, list[Text]]] = []
        unbounded = options.update(width=UNBOUNDED)
        for column in self._columns:
            wider = self._block([*block, column])
            width = console.measure(wider, options=unbounded).maximum
            if block and (len(block) == MOST_COLUMNS or width > options.max_width):
                yield self._block(block)
                block = []
            block.append(column)
        yield self._block(block)

    def _block(self, columns: Sequence[tuple[str, list[Text]]]) -> Table:
        table = Table()
        table.add_column("", no_wrap=True)
        for name, _ in columns:
            table.add_column(escape(name), justify="right", overflow="fold")
        for label, *cells in zip(self._labels, *(cells for _, cells in columns), strict=True):
            table.add_row(escape(label), *cells)
        return table


def _told(line: Line, text: str, run: int, bases: Sequence[int]) -> Text:
    """Return a number, and how far it is from that of the run it is compared with."""
    change, verdict = difference(line, run, bases[run]) if bases else ("", "")
    return Text.assemble(text, (f" {change:>8}", COLOURS.get(verdict, "")) if change else "")


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
