"""Write files and folders atomically: they appear complete or not at all."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import IO
from uuid import uuid4

_DIGITS = 8  # random digits in the name of a temporary file
_ENDING = f"{'[0-9a-f]' * _DIGITS}.tmp"
TEMPORARY = f".*.{_ENDING}"
"""Pattern of the names of files and folders that are being written, like `.jobs.csv.1a2b3c4d.tmp`."""

WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF)
"""Errors of file systems without locks, or without locks on files that are open for reading."""

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors without a file name


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which replaces `path` at the end of the block.

    A reader never sees a part of a file. If the block raises, the temporary file is removed. Raise OSError, about
    `path`, if it cannot be written.
    """
    with _temporary(path, Path.touch, path) as temporary:
        yield temporary
        # On the disk before it has its name: after a crash of the machine, the name must not stand for an empty file.
        _store(temporary)
        temporary.replace(path)


@contextmanager
def appearing_together(folder: Path, last: str, *, only_if_written: Collection[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder in `folder`. Its files move to `folder` at the end of the block.

    The block writes `last`, and no folders. The file `last` is removed first and moved last, so a folder that contains
    this file is complete. Old files in `only_if_written` are removed if the block does not write them. If the block
    raises, no file of `folder` changes. Raise FileNotFoundError if the block does not write `last`, and OSError, about
    `folder`, if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _temporary(folder / (folder.absolute().name or "root"), Path.mkdir, folder) as temporary:
        yield temporary
        first_names = sorted(path.name for path in temporary.iterdir() if path.name != last)
        for name in (*first_names, last):
            _store(temporary / name)
        # From here on the folder is incomplete, which the missing file shows until all others are in place.
        remove(folder / last)
        for name in only_if_written:
            if name not in first_names:
                remove(folder / name)
        for name in first_names:
            if (folder / name).is_dir():  # a damaged folder; a file cannot replace it
                remove(folder / name)
            (temporary / name).replace(folder / name)
        # The new names are on the disk before that of `last`.
        _store(folder)
        (temporary / last).replace(folder / last)


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of the content of a file. A file with the same size, time and inode is not read again."""
    status = path.stat()
    return _content_digest(str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=65536)
def _content_digest(path: str, size: int, changed: int, number: int) -> str:
    """Return the SHA-256 of a file. Its size, its time of change and its inode are only keys of the cache."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def printable(name: str) -> str:
    r"""Return the name of a file as text that every output can hold: bytes that are not UTF-8 become escapes.

    >>> print(printable("\udce9t\udce9"))
    \xe9t\xe9
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def lock(file: IO[str] | int, *, waiting: bool = False) -> bool:
    """Lock an open file until it is closed, and return whether it is locked.

    On file systems without locks, which some clusters use, it is not.

    Raise BlockingIOError if another process has the lock and `waiting` is False.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        return False
    return True


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Lock a file or folder during the block, and yield whether it is locked, as `lock` returns it.

    The lock also ends with the process.

    Raise BlockingIOError if another process has the lock, and FileNotFoundError if the path does not exist.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield lock(descriptor)
    finally:
        with suppress(OSError):  # code of the user closed it, which the run reports
            os.close(descriptor)


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None], target: Path) -> Iterator[Path]:
    """Create a file or folder beside `path` that matches `TEMPORARY`, locked during the block and then removed.

    First remove the temporary files of this `path` that killed processes left. On file systems without locks they stay,
    because nothing tells them from those of processes that still write.

    Errors of writing are about `target`.
    """
    for abandoned in path.parent.glob(f".{escape(path.name)}.{_ENDING}"):
        with suppress(OSError), held(abandoned) as is_locked:  # fails if the writer still has the lock
            if is_locked:
                remove(abandoned)
    start = f"{path.with_name(f'.{path.name}')}."
    with ExitStack() as stack:
        try:
            while True:
                temporary = Path(f"{start}{uuid4().hex[:_DIGITS]}.tmp")
                stack.callback(remove, temporary)  # before it exists, so that no interruption leaves it behind
                make(temporary)
                # Between `make` and the lock, another writer can remove it as abandoned. Then try another name.
                with suppress(FileNotFoundError, BlockingIOError):
                    stack.enter_context(held(temporary))
                    if temporary.exists():
                        break
            yield temporary
        except OSError as error:
            # The user does not know the temporary file.
            named_error = _about(target, error, start)
            if named_error is error:
                raise
            raise named_error from error


def _about(target: Path, error: OSError, start: str) -> OSError:
    """Return an error of writing that names the `target` instead of a temporary file, whose name has a `start`."""
    if error.errno in DISK_IS_FULL or str(error.filename).startswith(start):
        return OSError(error.errno, os.strerror(error.errno or 0), str(target))
    return error


def _store(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
