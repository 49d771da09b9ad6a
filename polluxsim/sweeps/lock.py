"""One sweep at a time in a folder, and one that fills a cache."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polluxsim.errors import SweepError
from polluxsim.files import WITHOUT_LOCKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = ".lock"
CACHE_LOCK = ".cache-lock"
"""Held while runs are put into a cache; another than LOCK, as a sweep's folder may be a cache, even its own."""


@contextmanager
def locked(folder: Path, name: str = LOCK, *, waiting: bool = False) -> Iterator[None]:
    """Keep other sweeps out of a folder; the system itself ends that when the process ends, however it does.

    `name` is the lock's file in it. It is a `SweepError` if another sweep is at work there, and we are not `waiting`.
    """
    with (folder / name).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
        except BlockingIOError:
            raise SweepError(f"{folder}: another sweep is at work in this folder") from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield
