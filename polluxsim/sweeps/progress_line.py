"""A line that says how far a sweep is, on a terminal only."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from polluxsim.sweeps.finished import is_finished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.sweeps.plan import Entry

PAUSE = 0.5
"""How often the runs' folders are looked at [s]: that works whoever does the runs, and wherever."""


@contextmanager
def sweep_progress(entries: Sequence[Entry], known: int) -> Iterator[None]:
    """Show on a terminal's standard error how many runs are finished of those left; `known` more were before."""
    screen = Console(stderr=True)
    if not screen.is_terminal or not entries:
        yield
        return
    words, left, state = map(TextColumn, ("{task.description}", "{task.fields[left]}", "{task.fields[state]}"))
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), left, state)
    over = threading.Event()
    found = f"{known} found finished" if known else ""
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("runs", total=len(entries), left="starting", state=found)
        started = monotonic()

        def watch() -> None:
            left = list(entries)
            while not over.wait(PAUSE):
                left = [entry for entry in left if not is_finished(entry)]
                done = len(entries) - len(left)
                bar.update(task, completed=done, left=time_left(done, len(entries), monotonic() - started))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def time_left(done: int, of: int, elapsed: float) -> str:
    """Return in words how long the rest of so many runs takes if it goes on as it did [s].

    >>> time_left(2, 6, 45.0)
    '0:01:30 left'
    """
    return f"{timedelta(seconds=round(elapsed / done * (of - done)))} left" if done else "first runs"
