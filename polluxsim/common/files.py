"""Files and folders that appear whole or not at all, whatever ends the writer."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_DIGITS = 8
TEMPORARY = f".*.{'[0-9a-f]' * _DIGITS}.tmp"
"""What files and folders are called, as a pattern, while they are being written; narrow, so that no one else's is."""

WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
"""Errors of file systems that know no locks, or none on a file that is not being written."""

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; what was written there becomes `path` when the block ends well.

    A reader never sees half a file, whatever ends the writer, and a writer that fails leaves nothing behind.
    """
    with _temporary(path, Path.touch) as temporary:
        yield temporary
        _store(temporary)
        temporary.replace(path)


@contextmanager
def appearing_together(folder: Path, last: str, *, only_if_written: Collection[str] = ()) -> Iterator[Path]:
    """Give a temporary folder within `folder`; the files written there move up together when the block ends well.

    The file `last` is taken away first and comes back last, so that whoever finds it finds all the others of the same
    writing; so files that not every writing has go unless they are written anew. If the block fails, what was in
    `folder` before is untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _temporary(folder / (folder.absolute().name or "root"), Path.mkdir) as temporary:
        yield temporary
        others = sorted(path.name for path in temporary.iterdir() if path.name != last)
        for name in (*others, last):
            _store(temporary / name)
        (folder / last).unlink(missing_ok=True)
        for name in only_if_written:
            if name not in others:
                (folder / name).unlink(missing_ok=True)
        for name in others:
            (temporary / name).replace(folder / name)
        _store(folder)
        (temporary / last).replace(folder / last)


def remove(path: Path) -> None:
    """Remove a file or a folder; one that is gone is no matter."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def lock(file: IO[str] | int, *, waiting: bool = False) -> None:
    """Lock an open file until it is closed; file systems that know no such locks, of clusters mostly, go without.

    Raises
    ------
    BlockingIOError
        If another process holds it, and we are not to wait.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock a file or folder itself, which leaves nothing behind: the system unlocks it when the process ends.

    Raises
    ------
    BlockingIOError
        If another process holds it.
    """
    number = os.open(path, os.O_RDONLY)
    try:
        lock(number)
        yield
    finally:
        os.close(number)


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a file or folder beside `path` that matches `TEMPORARY`, held while it is in use and gone afterwards."""
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:_DIGITS]}.tmp")
    try:
        make(temporary)
        with held(temporary):
            yield temporary
    except OSError as error:
        raise _about(path, error, temporary) from error
    finally:
        remove(temporary)


def _remove_leftovers(path: Path) -> None:
    """Remove what killed writers of `path` left: nobody holds it."""
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * _DIGITS}.tmp"):
        with suppress(OSError), held(left):
            remove(left)


def _about(path: Path, error: OSError, temporary: Path) -> OSError:
    """Return an error of writing as one that names the file the user knows."""
    if error.errno in DISK_IS_FULL or str(error.filename).startswith(str(temporary)):
        return OSError(error.errno, os.strerror(error.errno or 0), str(path))
    return error


def _store(path: Path) -> None:
    """Have the system write a file, or a folder's list of names, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
