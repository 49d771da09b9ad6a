"""A line that says how far a sweep is, on a terminal only."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from polluxsim.storage import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.app.sweep.plan import Entry

PAUSE = 0.5
"""How often the runs' folders are looked at [s]: that works whoever does the runs, and wherever."""


@contextmanager
def sweep_progress(entries: Sequence[Entry], known: int) -> Iterator[None]:
    """Show how many runs are finished, on standard error, where that is a terminal.

    Parameters
    ----------
    entries
        The runs that are left to do.
    known
        How many more the sweep has, which were found finished.
    """
    screen = Console(stderr=True)
    if not screen.is_terminal or not entries:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    over = threading.Event()
    state = f"{known} found finished" if known else ""
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("runs", total=len(entries), state=state)

        def watch() -> None:
            while not over.wait(PAUSE):
                bar.update(task, completed=sum((entry.folder / RUN_FILE).is_file() for entry in entries))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
