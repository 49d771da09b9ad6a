"""Runs that are finished: found by their keys, shared with a cache, and cleared of what killed runs left."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from polluxsim.files import TEMPORARY, appearing_together, remove
from polluxsim.folders import info_of, remove_if_empty, runs_below
from polluxsim.storage import RUN_FILE, RUN_FILES, SOMETIMES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polluxsim.sweeps.plan import Entry


def finished_runs(folder: Path) -> dict[str, Path]:
    """Return the folders of the finished runs in a folder, by their keys; of two with one key, the first by name."""
    found: dict[str, Path] = {}
    for path in runs_below(folder):
        key = info_of(path).get("key")
        if isinstance(key, str):
            found.setdefault(key, path)
    return found


def is_finished(entry: Entry) -> bool:
    """Return whether an entry's folder holds its run."""
    return info_of(entry.folder).get("key") == entry.key


def copy_run(source: Path, destination: Path) -> None:
    """Copy a finished run, whole or not at all."""
    with appearing_together(destination, last=RUN_FILE, only_if_written=SOMETIMES) as temporary:
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, temporary / path.name)


def clear(folders: Iterable[Path]) -> None:
    """Remove temporary files that killed processes left in folders, and the folders that are then empty."""
    for folder in folders:
        for path in list(folder.glob(TEMPORARY)):
            remove(path)
        remove_if_empty(folder)


def clear_runs(folders: Iterable[Path]) -> None:
    """Remove what killed processes left in the folders of runs, and the folders that are then empty.

    A process may be killed after it moved a run's tables to their place and before `run.json` followed.
    """
    for folder in folders:
        if not (folder / RUN_FILE).exists():
            for name in (*RUN_FILES, *SOMETIMES):
                remove(folder / name)
        clear([folder])
