"""Notice code of the user that damages this process, and repair the process so that one line can say so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType

from polluxsim.common.errors import PolicyError, listed

DESCRIPTORS = "/dev/fd"  # folder with the numbers of the open files of this process, on Linux and macOS

STREAMS = {0: "standard input", 1: "standard output", 2: "standard error"}

OWN = "polluxsim"  # package whose modules must stay

BY = "the policy, or other code of the run,"

# A list, because a function can change its item without `global`.
_is_own_process = [False]

last_resorts: list[Callable[[str], None]] = []
"""Functions that end this process with a message, of which the first one does; empty in a process of the user."""


class ClosedFilesError(PolicyError):
    """Code of the user closed files of this process. `numbers` has their descriptors."""

    def __init__(self, message: str, numbers: Collection[int] = ()) -> None:
        super().__init__(message)
        self.numbers = numbers

    @property
    def cuts_off(self) -> bool:
        """Return whether other files than the standard streams are closed.

        Through these files, a worker answers its parent.
        """
        return not STREAMS.keys() >= {*self.numbers}


def own_process() -> None:
    """Record that this process belongs to polluxsim, so that no other code has files that it may close."""
    _is_own_process[0] = True


@contextmanager
def undamaged() -> Iterator[None]:
    """Raise a `PolicyError` if code of the user damages this process in the block.

    The code must not remove modules of polluxsim from `sys.modules`, lower the recursion limit or, in a process of
    polluxsim, close files that it did not open. After the block, also if it raises an `Exception`, removed modules, a
    lower limit and the current folder are restored.
    """
    limit = sys.getrecursionlimit()
    modules = dict(sys.modules)
    folder = _current_folder()
    files = _open_files()
    try:
        yield
    except Exception as error:
        # The damage comes first: the error of the block is often only its consequence.
        damage = _restored(limit, modules, folder)
        if damage is not None:
            raise PolicyError(f"{BY} {damage}") from error
        _check_files(files, error)
        raise
    damage = _restored(limit, modules, folder)
    if damage is not None:
        raise PolicyError(f"{BY} {damage}")
    _check_files(files, None)


def _restored(limit: int, modules: Mapping[str, ModuleType], folder: str | None) -> str | None:
    """Restore the recursion limit, the modules and the current folder; return in words what was damaged, or None."""
    # The limit first, because the calls below need some depth.
    low = sys.getrecursionlimit()
    if low < limit:
        sys.setrecursionlimit(limit)
    missing = [name for name in modules if _is_own(name) and sys.modules.get(name) is not modules[name]]
    if missing:
        sys.modules.update(modules)
    if folder is not None and _current_folder() != folder:
        with suppress(OSError):  # the folder was removed
            os.chdir(folder)
    if missing:
        return f"removed {listed(missing, 1)} from sys.modules; it must keep the modules that it did not import"
    if low < limit:
        return f"set Python's recursion limit from {limit} to {low}, which is too low; it must not lower the limit"
    return None


def _is_own(module: str) -> bool:
    """Return whether a module is one of polluxsim."""
    return module == OWN or module.startswith(f"{OWN}.")


def _current_folder() -> str | None:
    """Return the current folder; None if it does not exist any more."""
    try:
        return os.getcwd()  # noqa: PTH109  (fast, and as text)
    except OSError:
        return None


def _open_files() -> dict[int, tuple[int, int]]:
    """Return the device and inode of each open file by its number; nothing in a process that belongs to the user."""
    if not _is_own_process[0]:
        return {}
    try:
        numbers = [int(name) for name in os.listdir(DESCRIPTORS)]  # noqa: PTH208  (fast)
    except OSError:
        return {}
    files = {}
    for number in numbers:
        place = _file_of(number)
        if place is not None:  # the folder was open itself while it was listed, and is closed now
            files[number] = place
    return files


def _file_of(number: int) -> tuple[int, int] | None:
    """Return the device and inode of the open file with a number; None if there is none."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _check_files(files: Mapping[int, tuple[int, int]], cause: Exception | None) -> None:
    """Raise a `ClosedFilesError` if some of the files that were open are closed now."""
    closed = [number for number, place in files.items() if _file_of(number) != place]
    if closed:
        names = [STREAMS.get(number, f"descriptor {number}") for number in sorted(closed)]
        problem = f"closed {listed(names, 3)}; it must close only files that it opened"
        raise ClosedFilesError(f"{BY} {problem}", closed) from cause
