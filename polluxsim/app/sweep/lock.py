"""One sweep at a time in a folder."""

from __future__ import annotations

import errno
import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polluxsim.errors import SweepError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = ".lock"
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
"""Errors of file systems, of clusters mostly, that know no locks; there, two sweeps at once are the user's business."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder; the system itself ends that when the process ends, however it does.

    Raises
    ------
    SweepError
        If another sweep is at work in it.
    """
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepError(f"{folder}: another sweep is at work in this folder") from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield
