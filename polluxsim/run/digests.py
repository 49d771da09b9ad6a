"""Digests of files and folders of data: what is read, and nothing that was put beside it."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import sys
from functools import lru_cache
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.files import TEMPORARY
from polluxsim.folders import SWEEP_FILES
from polluxsim.storage import RUN_FILE, RUN_FILES, SOMETIMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OUTPUTS = {RUN_FILE: (*RUN_FILES, *SOMETIMES), ".lock": SWEEP_FILES}
"""What marks a run's or a sweep's folder, as may lie in a folder of data that someone works in or be that folder
itself; and the files that it puts there."""

LARGE = 500_000_000
"""A folder of data of so many bytes takes some time to read [bytes]."""

UNREADABLE = "unreadable"
"""Stands for the digest of a file that cannot be read: whoever needs it will say so."""


def folder_digest(folder: Path) -> str:
    """Return a digest of a folder's files, whatever their order on disk; hidden files and results do not count."""
    files = list(_data_files(folder))
    _announce(folder, sum(path.stat().st_size for path in files), len(files))
    return digest_of({path.relative_to(folder).as_posix(): file_digest(path) for path in files})


@lru_cache(maxsize=64)
def _announce(folder: Path, size: int, count: int) -> None:
    """Say once of a large folder that it is being read: it may be one that was not meant."""
    if size >= LARGE and parent_process() is None:
        what = f"reading {size / 1e9:.1f} GB in {count} files, as a run is recognised by what it reads"
        print(f"polluxsim: {folder}: {what}", file=sys.stderr)


def _data_files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files in a folder, those of linked folders too; a link to a folder it is in leads to nothing new."""
    if (place := folder.resolve()) in above:
        return
    names = sorted(path.name for path in folder.iterdir())
    ours = {file for mark, files in OUTPUTS.items() if mark in names for file in files}
    for name in names:
        path = folder / name
        if name.startswith((".", "__pycache__")) or name in ours:
            continue
        if path.is_dir():
            if not _is_output(path):
                yield from _data_files(path, above | {place})
        elif path.is_file():
            yield path


def _is_output(folder: Path) -> bool:
    """Return whether a folder is a run's, be it half written, or a sweep's."""
    names = [path.name for path in folder.iterdir()]
    return not OUTPUTS.keys().isdisjoint(names) or bool(fnmatch.filter(names, TEMPORARY))


def file_digest(path: Path) -> str:
    """Return a digest of a file's content."""
    status = path.stat()
    return _content_digest(str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=65536)
def _content_digest(path: str, size: int, changed: int, number: int) -> str:
    """Return the digest of a file's content; a file that is still the same by its status is not read again."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return UNREADABLE


def digest_of(parts: Mapping[str, str]) -> str:
    """Return one digest of several, by name."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
