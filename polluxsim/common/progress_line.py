"""Show the progress of a command on one line of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Update = Callable[[int, int, str], None]  # shows how much is done, of which total, and a note


def is_shown() -> bool:
    """Return whether a progress line is shown: standard error is a terminal."""
    return Console(stderr=True).is_terminal


@contextmanager
def progress_line(what: str, total: int, note: str = "") -> Iterator[Update]:
    """Show how much of a total is done, the time left and a note, if `is_shown`. Clear the line at the end.

    Yield the function that updates the line.
    """
    words = TextColumn("{task.description}")
    notes = TextColumn("{task.fields[note]}")
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True), notes)
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_shown()) as bar:
        task = bar.add_task(what, total=total, note=note)
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)
