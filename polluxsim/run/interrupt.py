"""Handle Ctrl-C and SIGTERM: end a simulation at the next round if that is soon, and any other work at once.

Processes that user code forks have the handlers that the process had before polluxsim set its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TypeAlias

from polluxsim.common.process_state import own_process
from polluxsim.run.user_exits import exit_at_once

PATIENCE = 0.5  # longest time from Ctrl-C to the end of the present round [s]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
MESSAGE = "polluxsim: interrupted, nothing was written"
SECOND_MESSAGE = "polluxsim: interrupted twice; finished runs are kept"
SHOW_CURSOR = "\x1b[?25h"
LEAVE_SCREEN = "\x1b[?1049l" + SHOW_CURSOR
STANDARD_ERROR = 2

Handler: TypeAlias = Callable[..., object] | signal.Handlers | int | None
"""Handler of a signal, as `signal.getsignal` returns it."""

DEFAULT_HANDLERS: Mapping[int, Handler] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Handlers with which Python starts."""

# Handlers of forked processes: those that this process had before polluxsim set its own.
_handlers_of_children: dict[int, Handler] = {}

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


def handle_for_good(handler: Callable[..., object]) -> None:
    """Set the handler of Ctrl-C and SIGTERM of a process of polluxsim, and let the signals arrive.

    Processes that it forks have Python's default handlers. Programs that it starts are not affected either, because a
    signal that is handled has its default effect in another program. A signal that is ignored or blocked would be
    ignored or blocked there too.
    """
    own_process()
    for number in SIGNALS:
        signal.signal(number, handler)
    _handlers_of_children.update(DEFAULT_HANDLERS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Restore the handlers of this process at the end of the block, in which a library may set its own."""
    if not in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once within the block. Use it while no file is open, for example during imports."""
    with _handling(lambda *_: end_process()):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C while results are written, because the command ends directly afterwards."""
    with _handling(signal.SIG_IGN):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C take effect at the end of the block, also if the block raises. Outside the main thread, do nothing.

    Processes that start within the block do not receive Ctrl-C.
    """
    if not in_main_thread():
        yield
        return
    noted = list[int]()
    try:
        with _handling(lambda number, _: noted.append(number)):
            # A program that starts has no Python handler, but inherits the mask.
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
    """Let Ctrl-C raise KeyboardInterrupt, like Python. A second Ctrl-C ends the process at once.

    Neither has an effect once the results are written.
    """

    def handle(*_: object) -> None:
        if _written.is_set():
            return
        # Set before the first one is raised: its handling may take long, and the user must be able to end it.
        for number in SIGNALS:
            signal.signal(number, lambda *_: end_process(SECOND_MESSAGE))
        raise KeyboardInterrupt

    with _handling(handle):
        yield


@contextmanager
def interruptible() -> Iterator[Callable[..., None]]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C. Call it often.

    Python raises KeyboardInterrupt anywhere in the program, and loses it where Python itself calls the code, for
    example in a destructor. Here the program stops at the next call of the function. If there is none within
    `PATIENCE`, the process ends at once, which is safe only while no file is being written.
    """
    pressed = threading.Event()

    def press(*_: object) -> None:
        pressed.set()
        # A round can take minutes, and the user wants the prompt back.
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)

    with _handling(press), _handling(lambda *_: end_process(), (signal.SIGALRM,)):
        try:
            yield partial(_stop_if, pressed)
        finally:
            if in_main_thread():
                signal.setitimer(signal.ITIMER_REAL, 0)
    _stop_if(pressed)


@contextmanager
def stopping_between_rounds() -> Iterator[Callable[..., None]]:
    """Yield a function that raises KeyboardInterrupt after Ctrl-C. Call it often.

    Scripts and notebooks use this, because their process must not end. A second Ctrl-C raises KeyboardInterrupt at
    once, like Python. SIGTERM is not handled. Outside the main thread, signals are not handled.
    """
    pressed = threading.Event()

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            signal.default_int_handler(number, frame)
        pressed.set()

    with _handling(press, (signal.SIGINT,)):
        yield partial(_stop_if, pressed)
    _stop_if(pressed)


def _stop_if(pressed: threading.Event, *_: object) -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed."""
    if pressed.is_set():
        raise KeyboardInterrupt


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
def interrupts_noted() -> Iterator[list[int]]:
    """Yield a list that gets the number of the signal if Ctrl-C raises KeyboardInterrupt within the block.

    The list stays empty if another handler than Python's own is set, and outside the main thread.
    """
    pressed = list[int]()

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    # Another handler, like that of a notebook, does more than to raise, and must not be replaced.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    with _handling(press, (signal.SIGINT,)):
        yield pressed


@contextmanager
def _handling(
    handler: Callable[..., object] | signal.Handlers, signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Use another handler of signals within the block. Outside the main thread, do nothing."""
    if not in_main_thread():
        yield
        return
    # Within nested blocks, forked processes have the handlers from before the outermost one.
    outermost = [number for number in signals if number not in _handlers_of_children]
    for number in outermost:
        _handlers_of_children[number] = signal.getsignal(number)
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
        for number in outermost:
            _handlers_of_children.pop(number, None)


class _Fork(threading.local):
    """State of the thread that forks."""

    # Signals that were blocked before the fork; None if polluxsim handles no signals.
    mask: set[int | signal.Signals] | None = None


_fork = _Fork()


def _before_fork() -> None:
    """Block the signals, so that none arrives in a forked process before it has its own handlers."""
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS) if _handlers_of_children else None


def _after_fork_in_parent() -> None:
    """Let the signals arrive as before."""
    if _fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _after_fork_in_child() -> None:
    """Set the handlers of a forked process, which would otherwise ignore Ctrl-C until a round that it never reaches."""
    if _fork.mask is None:
        return
    for number, handler in _handlers_of_children.items():
        if handler is not None:  # None: the handler was not set by Python, and is inherited
            signal.signal(number, handler)
    _handlers_of_children.clear()
    # The parent still needs what these functions would remove.
    _last_acts.clear()
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


# Handlers can be set only in the main thread, which in a forked process is the thread that forked it.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def end_process(message: str = MESSAGE, status: int = INTERRUPTED) -> None:
    """End the process at once with one line and a status, unless its results are written."""
    if _written.is_set():
        return
    # The innermost block first, as when the blocks end in order: it may be about a folder inside that of another.
    for act in reversed(_last_acts):
        act()
    _end_children()
    restored = _restoring[-1] if os.isatty(STANDARD_ERROR) else ""
    # To the file itself, because the interrupted thread may be in the middle of a print.
    os.write(STANDARD_ERROR, f"{restored}{message}\n".encode())
    exit_at_once(status)


def _end_children() -> None:
    """End the processes that user code started with `multiprocessing`, as Python does at its end."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.kill()
