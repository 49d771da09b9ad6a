"""Runs that are finished: found by their keys, shared with a cache, and cleared of what killed runs left."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from polluxsim.files import TEMPORARY, appearing_together, remove
from polluxsim.storage import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from polluxsim.app.sweep.plan import Entry


def finished_runs(folder: Path) -> dict[str, Path]:
    """Return the folders of the finished runs in a folder, by their keys; of two with one key, the first by name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*/{RUN_FILE}")):
        key = info_of(path.parent).get("key")
        if isinstance(key, str):
            found.setdefault(key, path.parent)
    return found


def is_finished(entry: Entry) -> bool:
    """Return whether an entry's folder holds its run."""
    return info_of(entry.folder).get("key") == entry.key


def info_of(folder: Path) -> Mapping[str, Any]:
    """Return what run.json says of a run; nothing where there is no finished run that tells its key."""
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def copy_run(source: Path, destination: Path) -> None:
    """Copy a finished run, whole or not at all."""
    with appearing_together(destination, last=RUN_FILE) as temporary:
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, temporary / path.name)


def clear(folders: Iterable[Path]) -> None:
    """Take away what killed processes left half written in these folders."""
    for folder in folders:
        for path in list(folder.glob(TEMPORARY)):
            remove(path)


def remove_if_empty(folder: Path) -> None:
    """Take away a folder that was made for a run and got nothing."""
    with suppress(OSError):
        folder.rmdir()
