"""Reserve the folder of a run: exclude other runs, protect other results, and remove the folder if it stays empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.files import held
from polluxsim.records.folders import difference, info_of, remove_if_empty
from polluxsim.records.storage import RUN_FILE
from polluxsim.run.interrupt import ending_with

DESCENT = "descent"  # part of run.json of a fork: its time, its changes and its ancestors

CLOCK_STEP = 0.01  # the times of a file system may be this much behind those of Python's clock [s]


@contextmanager
def claimed(folder: Path, config: Callable[[], Mapping[str, Any]], since: float = inf) -> Iterator[Path]:
    """Reserve a folder that the user named. A finished run in it may be replaced only by a run of the same settings.

    `config` returns the resolved configuration of the run, with the `descent` of a fork. Folders that were made after
    `since` [s since the epoch] are removed again if they stay empty.

    Raise InvalidConfigError if another run is at work in the folder, a finished run of other settings is there, or its
    run.json cannot be read.
    """
    with ExitStack() as stack:
        if not _take(folder, since, stack):
            raise InvalidConfigError(f"{folder}: another run is at work in this folder; wait for it, or name another")
        settings = settings_in(folder)
        # The user may have named the folder of another program by mistake: its file is not overwritten.
        if settings is None and (folder / RUN_FILE).exists():
            problem = "damaged, or not written by polluxsim; name another folder, or remove this file first"
            raise InvalidConfigError(f"{folder / RUN_FILE}: {problem}")
        if settings is not None:
            differing = difference(settings, config())
            if differing:
                raise InvalidConfigError(
                    f"{folder}: a finished run of other settings is there ({differing}); name another folder, or "
                    "remove that run first"
                )
        yield folder


@contextmanager
def claimed_anew(folder: Path, since: float) -> Iterator[Path]:
    """Reserve the first free folder without a run: this folder, or one with -2, -3, … after its name. See `claimed`."""
    for number in count(1):
        candidate = numbered(folder, number)
        with ExitStack() as stack:
            # The folder is reserved before the file is looked for, because a run could end in between.
            if _take(candidate, since, stack) and not (candidate / RUN_FILE).exists():
                yield candidate
                return


def numbered(folder: Path, number: int) -> Path:
    """Return a folder with a number after its name, except for number 1.

    >>> from pathlib import Path
    >>> numbered(Path("a/run"), 1).as_posix(), numbered(Path("a/run"), 3).as_posix()
    ('a/run', 'a/run-3')
    """
    if number == 1:
        return folder
    return folder.with_name(f"{folder.name}-{number}")


def settings_in(folder: Path) -> Mapping[str, Any] | None:
    """Return the settings of the finished run in a folder, with its descent; None without a readable run.json."""
    info = info_of(folder)
    if not isinstance(info.get("config"), dict):
        return None
    return recorded_settings(info)


def recorded_settings(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, with the `descent` of a fork. `info` is the content of run.json."""
    settings = dict(info.get("config", {}))
    if DESCENT in info:
        settings[DESCENT] = info[DESCENT]
    return settings


def _take(folder: Path, since: float, stack: ExitStack) -> bool:
    """Make a folder and reserve it until the stack closes.

    Return False if another run has reserved the folder, or has just removed it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(held(folder))
    except (BlockingIOError, FileNotFoundError):  # another run is at work, or has just ended without a result
        return False
    # Another run may have removed the folder after it was opened, and the lock is then on nothing.
    if not folder.is_dir():
        return False
    for new_folder in reversed(_made_since(folder, since)):  # the stack ends the last one first
        stack.enter_context(ending_with(partial(remove_if_empty, new_folder)))
    return True


def _made_since(folder: Path, since: float) -> list[Path]:
    """Return which of a folder and the folders above it were made after a time [s since the epoch], innermost first."""
    new_folders = []
    # Making a folder sets its own time and that of its parent, so an older one of both rules it out.
    while folder.parent != folder:
        made_at_latest = min(folder.stat().st_mtime, folder.parent.stat().st_mtime)
        if made_at_latest < since - CLOCK_STEP:
            break
        new_folders.append(folder)
        folder = folder.parent
    return new_folders
