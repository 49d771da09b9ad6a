"""Solvers that keep quiet: what compiled code writes to standard output by itself is left out of it."""

from __future__ import annotations

import ctypes
import os
import tempfile
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STDOUT = 1

CHATTER = (b"HighsMipSolverData::",)
"""Beginnings of lines that HiGHS prints whatever it is told (ERGO-Code/HiGHS, issue 2783)."""

_one_at_a_time = Lock()


@contextmanager
def without_chatter() -> Iterator[None]:
    """Leave out what HiGHS prints meanwhile; what others write to standard output comes after it.

    It prints by C's own buffer onto the file descriptor, where nothing of Python's can catch it. So that stands for a
    file of ours meanwhile, whose other lines are passed on.
    """
    with _one_at_a_time:
        try:
            before = os.dup(STDOUT)
        except OSError:  # closed, so that nothing can be printed
            yield
            return
        with tempfile.TemporaryFile() as kept:
            _flush()
            os.dup2(kept.fileno(), STDOUT)
            try:
                yield
            finally:
                _flush()
                os.dup2(before, STDOUT)
                os.close(before)
                kept.seek(0)
                for line in kept:
                    if not line.startswith(CHATTER):
                        os.write(STDOUT, line)


def _flush() -> None:
    """Have C's buffers written to where they are to go now."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
