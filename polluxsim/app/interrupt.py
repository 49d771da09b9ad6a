"""Ctrl-C while a simulation runs: at the next round if that is soon, else at once."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 0.5
"""How long the present round may go on after Ctrl-C [s]."""

INTERRUPTED = 130
MESSAGE = "polluxsim: interrupted, nothing was written"
SECOND_MESSAGE = "polluxsim: interrupted twice; finished runs are kept"
SHOW_CURSOR = "\x1b[?25h"
LEAVE_SCREEN = "\x1b[?1049l" + SHOW_CURSOR
STANDARD_ERROR = 2

# What brings the terminal back to what it was, the innermost last.
_restoring = [SHOW_CURSOR]


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process there and then: for a start-up that has nothing open, whatever it imports."""
    with _handling(lambda *_: _end_process()):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: for the moment in which results are written."""
    with _handling(signal.SIG_IGN):
        yield


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; the message says what is finished."""


@contextmanager
def raising() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, as Python does by itself; a second one ends the process at once."""

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, lambda *_: _end_process(SECOND_MESSAGE))
        raise KeyboardInterrupt

    with _handling(handle):
        yield


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Give a function to call now and then, which raises KeyboardInterrupt once Ctrl-C was pressed.

    Python's own way, an exception wherever the program happens to be, breaks compiled kernels off in the middle, and
    waits for the compiler. Here the program stops at the next call; where that takes too long, another thread ends the
    process. That is safe only while no file is being written.
    """
    pressed, over = threading.Event(), threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    # The byte for the other thread is written as the signal comes in; a handler has to wait for the main thread.
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    threading.Thread(target=_end_in_time, args=(receiver, over), daemon=True).start()
    with _handling(lambda *_: pressed.set()):
        sender_before = signal.set_wakeup_fd(sender)
        try:
            yield check
        finally:
            over.set()
            signal.set_wakeup_fd(sender_before)
            os.close(sender)
    check()


@contextmanager
def on_a_screen_of_its_own() -> Iterator[None]:
    """Leave the terminal's alternate screen too, should the process have to end at once meanwhile."""
    _restoring.append(LEAVE_SCREEN)
    try:
        yield
    finally:
        _restoring.pop()


@contextmanager
def _handling(handler: Callable[..., object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT in another way for a while; that is the main thread's business, and others leave it alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_in_time(receiver: int, over: threading.Event) -> None:
    """Wait for SIGINT, or for the other end to be closed; after SIGINT, end the process unless it is over in time."""
    while number := os.read(receiver, 1):
        if number[0] == signal.SIGINT and not over.wait(PATIENCE):
            _end_process()
    os.close(receiver)


def _end_process(message: str = MESSAGE) -> None:
    # Straight to the file: the interrupted thread may be in the middle of a print.
    restored = _restoring[-1] if os.isatty(STANDARD_ERROR) else ""
    os.write(STANDARD_ERROR, f"{restored}{message}\n".encode())
    os._exit(INTERRUPTED)
