"""Which runs a user means by the folders on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.storage import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs, with those that hold several in their place."""
    found = []
    for folder in folders:
        inside = sorted(path.parent for path in folder.glob(f"*/{RUN_FILE}"))
        found += [folder] if (folder / RUN_FILE).is_file() or not inside else inside
    return found
