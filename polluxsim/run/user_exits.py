"""Keep code of the user from ending the process of a run without a message, and from continuing the run in a copy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

# Function that ends this process even within `exits_raised`.
exit_at_once = os._exit


@contextmanager
def exits_raised() -> Iterator[None]:
    """Let `os._exit` raise `SystemExit` within the block, so that user code cannot end the process without a message.

    Blocks may be nested. `os._exit` still ends a process that is forked in the block.
    """
    process = os.getpid()
    before = os._exit

    def refuse(status: int) -> NoReturn:
        # A forked process of the user may end as it likes.
        if os.getpid() != process:
            exit_at_once(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = before


@contextmanager
def forks_ended() -> Iterator[None]:
    """End a process that is forked in the block when it leaves the block, so that only one process continues the run.

    The status of the process is that of its `SystemExit`, 0 if it leaves the block without an error, and 1 otherwise.
    """
    process = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != process:
            exit_at_once(_exit_status(error))
        raise
    if os.getpid() != process:
        exit_at_once(0)


def _exit_status(error: BaseException) -> int:
    """Return the exit status of a process that ends with an error, as Python would set it.

    A `SystemExit` counts also as the cause of the error.
    """
    # The engine raises a PolicyError from the SystemExit of a policy.
    if isinstance(error.__cause__, SystemExit):
        error = error.__cause__
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    return 1  # a text, which Python prints as an error
