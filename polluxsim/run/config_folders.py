"""The folders of configurations: the user's folders, then the folder that comes with polluxsim."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, listed
from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_user_folders: ContextVar[tuple[Path, ...]] = ContextVar("user_folders", default=())

MOST_NAMED = 3
"""Files that a message names at most."""


def user_folders() -> tuple[Path, ...]:
    """Return the user's folders of configurations, in the order in which they are searched."""
    return _user_folders.get()


def config_files(pattern: str) -> dict[str, Path]:
    """Return the configuration files that match a pattern, by their path in their folder.

    Of files with the same path, the first folder's counts.
    """
    found: dict[str, Path] = {}
    for folder in (*user_folders(), shipped("configs")):
        for path in sorted(folder.glob(pattern)):
            found.setdefault(path.relative_to(folder).as_posix(), path)
    return found


@contextmanager
def searched_first(folders: Sequence[Path]) -> Iterator[None]:
    """Search the user's folders before the shipped one inside the block.

    Raises
    ------
    InvalidConfigError
        If a folder does not exist.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InvalidConfigError(f"{folder}: no such folder of configurations")
    token = _user_folders.set((*folders, *user_folders()))
    try:
        yield
    finally:
        _user_folders.reset(token)


def report_replaced(folders: Sequence[Path]) -> None:
    """Print on standard error which files of the user's folders take the place of shipped ones."""
    for folder in folders:
        names = sorted(path.relative_to(shipped("configs")) for path in shipped("configs").rglob("*.yaml"))
        found = [str(folder / name) for name in names if (folder / name).is_file()]
        if found:
            verb, what = ("takes", "entry") if len(found) == 1 else ("take", "entries")
            print(
                f"polluxsim: {listed(found, MOST_NAMED)} {verb} the place of polluxsim's own {what} of the same name",
                file=sys.stderr,
            )
