"""`polluxsim run --live`: the cluster on the terminal while it is simulated."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from polluxsim.cli.live_picture import Picture
from polluxsim.run.interrupt import on_a_screen_of_its_own
from polluxsim.run.progress_line import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.types import Cluster
    from polluxsim.workloads.workload import Workload

LONGEST_RATE = 0.1
"""Least time between two frames [s]."""

SHARE = 0.04
"""Most of the time that frames may take."""


@contextmanager
def live_view(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Give a watcher that draws the cluster on standard error; where that is no terminal, say so and stay quiet."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        print("polluxsim: --live needs a terminal on standard error, there is none: running quietly", file=sys.stderr)
        with progress(workload, cluster) as quiet:
            yield quiet
        return
    picture = Picture(workload, cluster)
    with (
        on_a_screen_of_its_own(),
        Live(
            picture, console=screen, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live,
    ):
        live.refresh()
        pace = Pace()

        def watch(run: Simulation) -> None:
            with pace.frame() as is_due:
                if is_due:
                    picture.show(run)
                    live.refresh()

        yield watch


class Pace:
    """Says when the next frame is due: ten times a second, or less often where frames take long."""

    def __init__(self) -> None:
        self._next = 0.0

    @contextmanager
    def frame(self) -> Iterator[bool]:
        """Give whether a frame is due, and take note of what it takes."""
        started = perf_counter()
        yield started >= self._next
        if started >= self._next:
            ended = perf_counter()
            self._next = ended + max(LONGEST_RATE, (ended - started) / SHARE)
