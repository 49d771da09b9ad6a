"""Read the keys that are pressed while a command runs."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from polluxsim.run.interrupt import ending_with, in_main_thread

KeyReader = Callable[[bool], str]
"""Function that returns the last pressed key, or "". Its argument is whether it waits for a key."""


def no_key(wait: bool) -> str:
    """Return no key, because there is no keyboard."""
    return ""


def _has_keyboard() -> bool:
    """Return whether standard input is the controlling terminal of this process, which runs in the foreground."""
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal, but not the controlling terminal of this process
        return False


@contextmanager
def pressed_keys() -> Iterator[KeyReader]:
    """Yield a function that reads keys from standard input, or `no_key` if there is no keyboard.

    A keyboard is the terminal of this process, in the main thread.
    """
    if not (in_main_thread() and _has_keyboard()):
        yield no_key
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def read(wait: bool) -> str:
        timeout = None if wait else 0
        readable_files, _, _ = select.select([file], [], [], timeout)
        if not readable_files:
            return ""
        # All keys that were pressed since the last call; only the last one counts.
        return os.read(file, 64).decode("utf-8", "replace")[-1:]

    # The terminal would stay without echo if the process ended at once.
    with ending_with(lambda: termios.tcsetattr(file, termios.TCSADRAIN, before)):
        tty.setcbreak(file)
        yield read
