"""Remove lines that solvers print to standard output and that no option switches off."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

STDOUT = 1

CHATTER = (b"HighsMipSolverData::",)  # beginnings of lines that HiGHS always prints (ERGO-Code/HiGHS, issue 2783)

_one_at_a_time = Lock()


@contextmanager
def without_chatter() -> Iterator[None]:
    """Remove these lines from standard output inside the block. Other lines are written after the block.

    HiGHS writes to the file descriptor through a buffer of C, where Python cannot intercept it. Inside the block, the
    file descriptor therefore refers to a temporary file.
    """
    with _one_at_a_time:
        try:
            before = os.dup(STDOUT)
        except OSError:  # it is closed
            yield
            return
        with tempfile.TemporaryFile() as output:
            _flush()
            os.dup2(output.fileno(), STDOUT)
            try:
                yield
            finally:
                _flush()
                os.dup2(before, STDOUT)
                os.close(before)
                output.seek(0)
                for line in output:
                    if not line.startswith(CHATTER):
                        os.write(STDOUT, line)


def _flush() -> None:
    """Write the buffers of C to the present file."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
