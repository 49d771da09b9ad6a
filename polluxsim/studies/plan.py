"""The runs of a plan, each with its configuration, key and folder; and which of them are finished."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polluxsim.common.files import TEMPORARY, appearing_together, remove
from polluxsim.records.completeness import damage_in
from polluxsim.records.folders import difference, info_of, remove_if_empty, runs_below
from polluxsim.records.storage import RUN_FILE, RUN_FILES, SOMETIMES
from polluxsim.run.composing import Composer
from polluxsim.run.spec import RunSpec

LONGEST_NAME = 120  # longest name of a folder without its key [characters]
KEY_DIGITS = 8  # digits of the key in the name of a folder


@dataclass(frozen=True)
class Entry:
    """One run of a plan."""

    overrides: tuple[str, ...]  # the overrides of this run, as Hydra writes them
    spec: RunSpec
    key: str  # identifies the run by its settings, data and code
    folder: Path  # where the run is, or will be

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the resolved settings of the run."""
        return self.spec.config

    @property
    def policy_entry(self) -> str | None:
        """Return the name of the configuration of the policy."""
        return self.spec.policy_entry

    def __str__(self) -> str:
        return " ".join(self.overrides) or "the default run"


def entry_of(overrides: Sequence[str], spec: RunSpec, folder: Path, name: str | None = None) -> Entry:
    """Return the entry of a run that was composed from overrides.

    `name` is the name of the run's folder in the sweep's folder. By default it consists of the overrides and the key.
    """
    key = spec.key
    assert key is not None  # a plan has no objects
    return Entry(tuple(overrides), spec, key, folder / (name or name_of(overrides, key)))


def name_of(overrides: Sequence[str], key: str) -> str:
    """Return the name of a run's folder: the overrides, with the last part of paths only, and the key."""
    words = []
    for word in overrides:
        # Settings of Hydra, like the launcher, do not change the run.
        if not word.startswith("hydra"):
            words.append(re.sub(r"=.*/", "=", word))
    readable = re.sub(r"[^\w.=,+~-]+", "_", ",".join(words))[:LONGEST_NAME]
    readable = readable.lstrip(".")  # `runs_below` skips hidden folders
    short_key = key[:KEY_DIGITS]
    if not readable:
        return short_key
    # The key tells runs apart whose readable parts are equal, because they differ in a path or in their last settings.
    return f"{readable}-{short_key}"


def arranged(entries: Sequence[Entry], finished: Mapping[str, Path]) -> list[Entry]:
    """Return each run of a plan once, with its existing folder, or with a folder that no other run uses.

    `finished` contains folders by key. If several entries have equal keys, only the first counts. The folder of a
    finished run with equal settings and another key is free: the code or the content of its files has changed.
    """
    distinct = dict[str, Entry]()
    for entry in entries:
        distinct.setdefault(entry.key, entry)
    taken = {finished[key] for key in distinct if key in finished}
    result = []
    for key, entry in distinct.items():
        if key in finished:
            folder = finished[key]
        else:
            folder = entry.folder
            # Two runs may have the same name: a name has only a part of the key, and callers may choose names.
            if folder in taken or _has_other_settings(folder, entry):
                folder = folder.with_name(f"{folder.name}-{key[:KEY_DIGITS]}")
        taken.add(folder)
        result.append(replace(entry, folder=folder))
    return result


def _has_other_settings(folder: Path, entry: Entry) -> bool:
    """Return whether a folder has a finished run with other settings than the entry."""
    config = info_of(folder).get("config")
    return config is not None and difference(config, entry.config) is not None


def composer(config_dirs: Sequence[Path] = ()) -> Composer:
    """Return a composer of runs that searches the user's folders first, then the shipped ones."""
    return Composer(config_dirs)


def finished_runs(folder: Path) -> dict[str, Path]:
    """Return the folders of the finished runs in a folder by their keys. Of equal keys, the first folder counts.

    A run with a damaged file is not finished.
    """
    return runs_by_key(folder)[0]


def runs_by_key(folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the folders of the finished runs, and of the runs with a damaged file, in a folder by their keys.

    Of equal keys, the first folder counts. Runs without a key are left out.
    """
    finished: dict[str, Path] = {}
    damaged: dict[str, Path] = {}
    for path in runs_below(folder):
        info = info_of(path)
        key = info.get("key")
        if not isinstance(key, str):  # runs with objects of a Python program have no key
            continue
        if damage_in(path, info, content=True) is None:
            finished.setdefault(key, path)
        else:
            damaged.setdefault(key, path)
    return finished, damaged


def is_written(entry: Entry) -> bool:
    """Return whether a run.json in the folder of an entry names its run. The other files are not checked."""
    return info_of(entry.folder).get("key") == entry.key


def is_finished(entry: Entry) -> bool:
    """Return whether the folder of an entry has its finished run, with all of its files undamaged."""
    info = info_of(entry.folder)
    return info.get("key") == entry.key and damage_in(entry.folder, info, content=True) is None


def copy_run(source: Path, destination: Path) -> None:
    """Copy a finished run, completely or not at all."""
    with appearing_together(destination, last=RUN_FILE, only_if_written=SOMETIMES) as temporary:
        for path in source.iterdir():
            if path.is_file():  # a run consists of files only
                shutil.copyfile(path, temporary / path.name)


def clear(folders: Iterable[Path]) -> None:
    """Remove temporary files that killed processes left in folders, and the folders that are then empty."""
    for folder in folders:
        for path in list(folder.glob(TEMPORARY)):
            remove(path)
        remove_if_empty(folder)


def clear_runs(folders: Iterable[Path]) -> None:
    """Remove the remains of killed processes in the folders of runs, and the folders that are then empty.

    A process may be killed after it moved a run's tables to their place and before `run.json` followed.
    """
    for folder in folders:
        # `run.json` is written last, so a folder without it has no complete run.
        if not (folder / RUN_FILE).exists():
            for name in (*RUN_FILES, *SOMETIMES):
                remove(folder / name)
        clear([folder])
