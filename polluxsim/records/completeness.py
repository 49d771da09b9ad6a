"""Whether the folder of a run is complete: run.json, which is written last, has the size and digest of each table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import digest_of_file

FILES = "files"  # part of run.json that states the other files of the run

ENDING = ".parquet"
MARK = b"PAR1"  # first and last bytes of a Parquet file

WALL_CLOCK = "timing.parquet"
"""Table of wall-clock times, which differ between equal runs. run.json states only that there is such a file."""

ALWAYS = ("allocations.parquet", "jobs.parquet", "rounds.parquet")
"""Tables of every run, also of a run whose run.json does not state its files."""

REMEDY = "delete the folder and make the run again"


def files_in(folder: Path) -> dict[str, dict[str, Any] | None]:
    """Return the size [bytes] and the SHA-256 of each table in a folder, for run.json; None for wall-clock times."""
    stated: dict[str, dict[str, Any] | None] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        if path.name == WALL_CLOCK:
            stated[path.name] = None
        else:
            stated[path.name] = {"bytes": path.stat().st_size, "sha256": digest_of_file(path)}
    return stated


def damage_in(folder: Path, info: Mapping[str, Any], *, content: bool = False) -> str | None:
    """Return in words which file of a run is missing or damaged; None if the run is complete.

    `info` is the content of run.json. The sizes of the files are compared, and with `content` also their digests,
    which takes as long as reading the files. A table without a stated size must have the marks of a Parquet file at
    both ends.
    """
    stated = info.get(FILES)
    if not isinstance(stated, Mapping):
        # An older version wrote the run, and stated neither files nor sizes.
        stated = dict.fromkeys(ALWAYS)
    for name, expected in stated.items():
        path = folder / str(name)
        if not path.is_file():
            return f"{path}: this file of the run is missing"
        size = path.stat().st_size
        if not isinstance(expected, Mapping):
            if not _has_marks(path, size):
                return f"{path}: this file of the run is damaged, because it is not a whole Parquet file"
        elif size != expected.get("bytes"):
            return f"{path}: this file of the run is damaged: it has {size} bytes, must have {expected.get('bytes')}"
        elif content and digest_of_file(path) != expected.get("sha256"):
            return f"{path}: this file of the run is damaged, because its content has changed"
    return None


def check_files(folder: Path, info: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if a file of a run is missing or has another size; `info` is the content of run.json.

    `damage_in` describes the test of a table without a stated size.
    """
    # Without digests: each command checks the runs that it reads, and must not read each file twice.
    damage = damage_in(folder, info)
    if damage is not None:
        raise InvalidInputError(f"{damage}; {REMEDY}")


def _has_marks(path: Path, size: int) -> bool:
    """Return whether a file begins and ends as a Parquet file does."""
    if size < 2 * len(MARK):
        return False
    with path.open("rb") as file:
        begins = file.read(len(MARK)) == MARK
        file.seek(-len(MARK), os.SEEK_END)
        return begins and file.read() == MARK
