"""The standard streams of a command, which may be closed when the command starts or when it ends."""

from __future__ import annotations

import fcntl
import os
import resource
import sys
from contextlib import suppress

STREAMS = ("stdin", "stdout", "stderr")  # by number of the descriptor

STANDARD_ERROR = 2
HIGHEST = 4000  # number of the copy of standard error; a larger number would make the table of files large

_closed_at_start = set[str]()
_copies_of_error = list[int]()  # descriptors of standard error besides its own


def open_missing_streams() -> None:
    """Open the null device in place of each standard stream that was closed before the command began.

    Also copy standard error, so that a message can be printed if code of the user closes all files. Without the null
    device, the next file that is opened gets the number of the stream, and code that prints writes into the file.
    """
    for number, name in enumerate(STREAMS):
        if getattr(sys, name) is None:
            _closed_at_start.add(name)
            _open_null(number)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit > HIGHEST or limit == resource.RLIM_INFINITY:
        # A high number, because code that closes all files often begins with the low ones and stops somewhere.
        _copies_of_error.append(fcntl.fcntl(STANDARD_ERROR, fcntl.F_DUPFD_CLOEXEC, HIGHEST))


def output_was_closed() -> bool:
    """Return whether standard output was closed before the command began."""
    return "stdout" in _closed_at_start


def discard_output() -> None:
    """Discard what was printed but not written to standard output. Otherwise Python reports an error at its end."""
    if sys.stdout is not None and not sys.stdout.closed:
        _open_null(1)


def reopen_closed_descriptors() -> None:
    """Open standard error again from its copy, and the null device for other streams, if user code closed them.

    Without a copy, standard error becomes the null device too.
    """
    for number in range(len(STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            _open_null(number)
            if number == STANDARD_ERROR:
                _restore_error()


def _restore_error() -> None:
    """Let standard error have the file of its copy, unless code of the user closed the copy too."""
    for copy in _copies_of_error:
        with suppress(OSError):
            os.dup2(copy, STANDARD_ERROR)


def _open_null(number: int) -> None:
    """Open the null device as the descriptor of a standard stream."""
    null = os.open(os.devnull, os.O_RDWR)
    # If the descriptor is closed and the lowest one, the file has its number already.
    if null != number:
        os.dup2(null, number)
        os.close(null)
