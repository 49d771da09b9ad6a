"""Handle Ctrl-C and SIGTERM: end a simulation at the next round if that is soon, and any other work at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# Function that ends this process even within `exits_raised`.
exit_at_once = os._exit

PATIENCE = 0.5  # longest time from Ctrl-C to the end of the present round [s]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
MESSAGE = "polluxsim: interrupted, nothing was written"
SECOND_MESSAGE = "polluxsim: interrupted twice; finished runs are kept"
SHOW_CURSOR = "\x1b[?25h"
LEAVE_SCREEN = "\x1b[?1049l" + SHOW_CURSOR
STANDARD_ERROR = 2

# Set when a command has written its results. Ctrl-C has no effect after that.
_written = threading.Event()

# Escape sequences that restore the terminal, the innermost last.
_restoring = [SHOW_CURSOR]

# Functions that are called even if the process ends at once.
_last_acts: list[Callable[[], None]] = []


def begin_command() -> None:
    """Let Ctrl-C end the command that begins."""
    _written.clear()


def results_written() -> None:
    """Ignore Ctrl-C until the command has ended, because its results are written."""
    _written.set()


def in_main_thread() -> bool:
    """Return whether this is the main thread, which alone may handle signals and the terminal."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once. Use it while no file is open, for example during imports."""
    with _handling(lambda *_: end_process()):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C while results are written, because the command ends directly afterwards."""
    with _handling(signal.SIG_IGN):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block, also if it raises.

    Processes that start within the block do not receive it.
    """
    if not in_main_thread():
        yield
        return
    noted = list[int]()
    try:
        with _handling(lambda number, _: noted.append(number)):
            # Processes inherit the mask, but no Python handler.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)  # calls the handler for signals that are pending
    finally:
        if noted:
            signal.raise_signal(noted[0])


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep. The message states how many runs are finished."""


@contextmanager
def raising() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, like Python. A second Ctrl-C ends the process at once."""

    def handle(*_: object) -> None:
        if _written.is_set():
            return
        for number in SIGNALS:
            signal.signal(number, lambda *_: end_process(SECOND_MESSAGE))
        raise KeyboardInterrupt

    with _handling(handle):
        yield


@contextmanager
def interruptible() -> Iterator[Callable[..., None]]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C. Call it often.

    Python raises KeyboardInterrupt anywhere in the program, also inside a compiled kernel, and only after a compilation
    ends. Here the program stops at the next call of the function. If the thread does not stop in time, another thread
    ends the process, which is safe only while no file is being written.
    """
    pressed, over = threading.Event(), threading.Event()

    def check(*_: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    # The byte for the other thread is written when the signal arrives. A handler has to wait for the main thread.
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
def alternate_screen() -> Iterator[None]:
    """Restore the normal screen of the terminal if the process ends at once within the block."""
    _restoring.append(LEAVE_SCREEN)
    try:
        yield
    finally:
        _restoring.pop()


@contextmanager
def ending_with(act: Callable[[], None]) -> Iterator[None]:
    """Call a function when the block ends, and also if the process ends at once within the block."""
    _last_acts.append(act)
    try:
        yield
    finally:
        _last_acts.remove(act)
        act()


@contextmanager
def stopping_between_rounds() -> Iterator[Callable[..., None]]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C. Call it often.

    Scripts and notebooks use this, because their process must not end. A second Ctrl-C raises KeyboardInterrupt at
    once, like Python. SIGTERM is not handled. Outside the main thread, signals are not handled.
    """
    pressed = threading.Event()

    def check(*_: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            signal.default_int_handler(number, frame)
        pressed.set()

    if not in_main_thread():
        yield check
        return
    with _handling(press, (signal.SIGINT,)):
        yield check
    check()


@contextmanager
def interrupts_noted() -> Iterator[list[int]]:
    """Yield a list that gets the number of the signal if Ctrl-C raises KeyboardInterrupt within the block.

    The list stays empty if another handler than Python's own is set, and outside the main thread.
    """
    pressed = list[int]()

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    with _handling(press, (signal.SIGINT,)):
        yield pressed


@contextmanager
def exits_raised() -> Iterator[None]:
    """Let `os._exit` raise `SystemExit` within the block, so that user code cannot end the process without a message.

    Blocks may be nested. `os._exit` still ends a process that is forked in the block.
    """
    process, before = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:
            exit_at_once(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = before


@contextmanager
def _handling(
    handler: Callable[..., object] | signal.Handlers, signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Use another handler of signals within the block. Outside the main thread, do nothing."""
    if not in_main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _end_in_time(receiver: int, over: threading.Event) -> None:
    """Wait for Ctrl-C, or for the pipe to close. After Ctrl-C, end the process unless `over` is set in time."""
    while number := os.read(receiver, 1):
        if number[0] in SIGNALS and not over.wait(PATIENCE):
            end_process()
    os.close(receiver)


def end_process(message: str = MESSAGE) -> None:
    """End the process at once with one line and status 130, unless its results are written."""
    if _written.is_set():
        return
    # Write to the file itself, because the interrupted thread may be in the middle of a print.
    for act in reversed(_last_acts):
        act()
    restored = _restoring[-1] if os.isatty(STANDARD_ERROR) else ""
    os.write(STANDARD_ERROR, f"{restored}{message}\n".encode())
    exit_at_once(INTERRUPTED)
