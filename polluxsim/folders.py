"""The folders of runs: which a user means, and what their run.json says."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.storage import RUN_FILE, flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs, with those that hold several in their place."""
    found = []
    for folder in folders:
        found += [folder] if (folder / RUN_FILE).is_file() else runs_below(folder) or [folder]
    return found


def runs_below(folder: Path) -> list[Path]:
    """Return the folders of the finished runs in a folder and in those within it, in order of their names."""
    found = []
    for place, names, _ in os.walk(folder):
        runs = {name for name in names if (Path(place) / name / RUN_FILE).is_file()}
        found += [Path(place) / name for name in runs if not name.startswith(".")]
        names[:] = [name for name in names if name not in runs and not name.startswith(".")]
    return sorted(found)


def info_of(folder: Path) -> Mapping[str, Any]:
    """Return what run.json says of a run; nothing where there is no finished run that tells its key."""
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def difference(there: object, here: Mapping[str, Any]) -> str | None:
    """Return in words the first setting in which the configuration of a run that is there differs, if any does."""
    old, new = flat(there if isinstance(there, dict) else {}), flat(here)
    differing = (name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name))
    return next((f"{name} is {old.get(name)!r} there, {new.get(name)!r} here" for name in differing), None)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that was made for a run and got nothing."""
    with suppress(OSError):
        folder.rmdir()
