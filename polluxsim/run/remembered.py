"""Remember on disk which run a command line describes. Hydra would take half of the time of a short run to say it.

Only the shipped configurations are remembered. What they describe changes with the code, the files and the words only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

from polluxsim.common.files import atomic_write
from polluxsim.common.shipped import shipped
from polluxsim.run.configurations import READ_AS_OTHER, user_folders
from polluxsim.run.spec import OneRun, RunSpec

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")  # settings of the output of a run and of a sweep

PLAIN_PATH = re.compile(r"[\w./-]+")
"""A path without characters that have a meaning in Hydra's grammar."""

PACKAGE = Path(__file__).parents[1]

FOLDER_PREFIX = "descriptions-"  # beginning of the name of the folder of descriptions; the rest is a hash

MOST_DESCRIPTIONS = 1000  # largest number of descriptions in a folder

NOT_REMEMBERED = ("$", "_target_", "hydra.searchpath", "hydra/", "hydra.mode")
"""Parts of words whose meaning may depend on the environment, the clock or other packages."""


class CommandMemory:
    """The file that remembers which run a command line describes, if this may be remembered.

    `words` are the overrides of the command line, and `name` is the name of the configuration file.
    """

    def __init__(self, words: Sequence[str], name: str) -> None:
        folders = filter(None, map(_stated_folder, words))
        self._folders = dict(folders)
        # A description holds for each folder that a word states.
        words_without_folders = [word.partition("=")[0] if _stated_folder(word) else word for word in words]
        self._file = _file_of(words_without_folders, name)

    def recall(self) -> OneRun | None:
        """Return the run that the command line describes; None if it is not remembered."""
        remembered = None if self._file is None else _read(self._file)
        if remembered is None:
            return None
        return replace(remembered, folder_pattern=self._folders.get("hydra.run.dir", remembered.folder_pattern))

    def keep(self, described: OneRun) -> None:
        """Remember the run that the command line describes, if this is possible."""
        if self._file is not None:
            _write(self._file, described)


def _stated_folder(word: str) -> tuple[str, str] | None:
    """Return the setting of a folder and its value, if a word states one as plain text; None for other words."""
    setting, _, value = word.partition("=")
    if setting not in FOLDERS:
        return None
    is_quoted = value.startswith("'") and value.endswith("'")
    text = value[1:-1] if is_quoted else value
    # Hydra reads a name like 1e3 as a number unless it is quoted.
    is_other = not is_quoted and READ_AS_OTHER.fullmatch(text) is not None
    if is_other or PLAIN_PATH.fullmatch(text) is None:
        return None
    return setting, text


def _file_of(words: Sequence[str], name: str) -> Path | None:
    """Return the file of the description of a command line; None if the description must not be remembered."""
    if user_folders() or any(part in word for part in NOT_REMEMBERED for word in words):
        return None
    folder = _folder()
    if folder is None:
        return None
    text = json.dumps([name, *words])
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


@cache
def _folder() -> Path | None:
    """Return the folder of the descriptions for the present code and configurations; None if there can be none.

    Folders of other code beside it are removed.
    """
    parent = PACKAGE / "__pycache__"
    # The state is in the name, so that a process of older code does not read what newer code wrote.
    folder = parent / (FOLDER_PREFIX + _state())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    for other in parent.glob(f"{FOLDER_PREFIX}*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    if not os.access(folder, os.W_OK):
        return None
    return folder


def _state() -> str:
    """Return a hash of the state of everything on which descriptions depend, apart from the words."""
    digest = hashlib.sha256(f"{platform.python_version()} {version('hydra-core')} {version('omegaconf')}".encode())
    # By size and time of each file: reading all files would take longer than Hydra.
    for folder, ending in ((PACKAGE, ".py"), (shipped("configs"), ".yaml"), (shipped("experiments"), ".yaml")):
        for file in _files(str(folder), ending):
            state = file.stat()
            digest.update(f"{file.path} {state.st_size} {state.st_mtime_ns}\n".encode())
    for place in sys.path:  # plugins of Hydra may add configurations
        plugins = Path(place or ".") / "hydra_plugins"
        if plugins.is_dir():
            digest.update(f"{plugins} {plugins.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _files(folder: str, ending: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files with an ending in a folder and in its folders, in the order of their names."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path, ending)
            elif entry.name.endswith(ending):
                yield entry


def _read(file: Path) -> OneRun | None:
    """Return the description in a file; None if there is no such file."""
    try:
        stated = json.loads(file.read_bytes())
    except OSError:  # perhaps another process removes the descriptions of older code
        return None
    spec = RunSpec(stated["config"], policy_entry=stated["policy_entry"])
    return OneRun(spec, stated["folder_pattern"], tuple(stated["without_effect"]))


def _write(file: Path, described: OneRun) -> None:
    """Write a description, if JSON can state it, and fewer than `MOST_DESCRIPTIONS` are in its folder.

    Do nothing if it cannot be written, because a later process can do without it.
    """
    stated = {
        "config": described.spec.config,
        "policy_entry": described.spec.policy_entry,
        "folder_pattern": described.folder_pattern,
        "without_effect": described.without_effect,
    }
    # JSON has text only as keys, so a mapping with other keys would be read as another one. It has no tuples either.
    if json.loads(json.dumps(stated)) != {**stated, "without_effect": list(described.without_effect)}:
        return
    with suppress(OSError):
        if len(list(file.parent.iterdir())) < MOST_DESCRIPTIONS:
            with atomic_write(file) as temporary:
                temporary.write_text(json.dumps(stated), encoding="utf-8")
