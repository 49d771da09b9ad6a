"""`polluxsim run --live`: the cluster on the terminal while it is simulated."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from polluxsim.cli.live_picture import Picture
from polluxsim.run.interrupt import ending_with, in_main_thread, on_a_screen_of_its_own
from polluxsim.run.progress_line import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.types import Cluster
    from polluxsim.workloads.workload import Workload

    KeyReader = Callable[[bool], str]

PAUSE, QUIT = (" ", "p"), ("q", "Q")
RUNNING, PAUSED = "space: pause, q: quit", "paused; space: go on, q: quit"

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
    with on_a_screen_of_its_own(), pressed_keys() as key, _shown(picture, screen) as live:
        watch = Watch(picture, live, key)
        yield watch
        watch.draw_last()
    # On the terminal's own screen, where it stays.
    screen.print(picture, height=screen.height - 1)


def _shown(picture: Picture, screen: Console) -> Live:
    return Live(picture, console=screen, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


class Watch:
    """Draws the cluster after a round, if a frame is due, and does what keys ask for.

    `key` gives the last key that was pressed, "" where none was; it waits for one if asked to.
    """

    def __init__(self, picture: Picture, live: Live, key: KeyReader) -> None:
        self._picture, self._live, self._key, self._pace = picture, live, key, Pace()
        self._last: Simulation | None = None
        picture.keys = RUNNING if key is not no_key else ""
        live.refresh()

    def __call__(self, run: Simulation) -> None:
        """Take note of a round."""
        self._last = run
        with self._pace.frame() as is_due:
            if is_due:
                self._picture.show(run)
                self._live.refresh()
        if is_due and (key := self._key(False)):
            self._obey(key)

    def draw_last(self) -> None:
        """Let the picture show how the run ended."""
        self._picture.keys = ""
        if self._last is not None:
            self._picture.show(self._last)

    def _obey(self, key: str) -> None:
        """Pause until the next key, or end the run as Ctrl-C does."""
        began = perf_counter()
        if key in PAUSE:
            self._picture.keys = PAUSED
            self._live.refresh()
            key = self._key(True)
            self._picture.keys = RUNNING
            self._picture.paused(perf_counter() - began)
        if key in QUIT:
            os.kill(os.getpid(), signal.SIGINT)


def no_key(wait: bool) -> str:
    """Give no key, where there is no keyboard."""
    return ""


@contextmanager
def pressed_keys() -> Iterator[KeyReader]:
    """Give a reader of keys pressed on standard input, where that is our terminal; it is left as it was."""
    if not (in_main_thread() and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()):
        yield no_key
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read(wait: bool) -> str:
        is_there = select.select([file], [], [], None if wait else 0)[0]
        return os.read(file, 64).decode("utf-8", "replace")[-1:] if is_there else ""

    with ending_with(lambda: termios.tcsetattr(file, termios.TCSADRAIN, before)):
        tty.setcbreak(file)
        yield read


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
