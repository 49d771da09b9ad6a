"""Remove lines that solvers print to standard output and that no option switches off.

HiGHS is the solver of integer programmes that SciPy contains. Some of its lines would stand between the lines that the
user of a run reads.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

# The file descriptor of standard output.
STDOUT = 1

# Beginnings of lines that HiGHS always prints (ERGO-Code/HiGHS, issue 2783).
CHATTER = (b"HighsMipSolverData::",)

# The file descriptor is that of the process, so two threads must not exchange it at once.
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
        except OSError:
            # Standard output is closed, so nothing can be printed.
            yield
            return
        with tempfile.TemporaryFile() as output:
            # Earlier lines belong to standard output, and must not come into the file.
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
    """Write the buffers of C to the present file. Some systems have no `fflush` that Python can call."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
