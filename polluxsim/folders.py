"""The folders of runs: find those that a user names, and read their run.json."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.storage import RUN_FILE, flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SWEEP_FILES = ("sweep.parquet", "sweep-timing.parquet", "multirun.yaml")
"""Files that a sweep leaves beside its runs."""


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs; a folder that holds several is replaced by them.

    The files that a sweep leaves beside its runs are skipped if folders are named too: `SWEEP/*` names all of them.
    """
    found = []
    for folder in [path for path in folders if path.name not in SWEEP_FILES] or folders:
        found += [folder] if (folder / RUN_FILE).is_file() else runs_below(folder) or [folder]
    return found


def runs_below(folder: Path) -> list[Path]:
    """Return the folders of all finished runs below a folder, sorted by name."""
    found = []
    for place, names, _ in os.walk(folder):
        runs = {name for name in names if (Path(place) / name / RUN_FILE).is_file()}
        found += [Path(place) / name for name in runs if not name.startswith(".")]
        names[:] = [name for name in names if name not in runs and not name.startswith(".")]
    return sorted(found)


def info_of(folder: Path) -> Mapping[str, Any]:
    """Return the contents of a run's run.json; empty if the folder holds no readable one."""
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def difference(there: object, here: Mapping[str, Any]) -> str | None:
    """Return in words the first setting in which an existing run's configuration differs, None if none differs."""
    old, new = flat(there if isinstance(there, dict) else {}), flat(here)
    differing = (name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))
    return next((f"{name} is {old.get(name)!r} there, {new.get(name)!r} here" for name in differing), None)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with suppress(OSError):
        folder.rmdir()
