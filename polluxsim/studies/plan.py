"""The runs of a plan, each with its configuration, key and folder; and which of them are finished."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.files import TEMPORARY, appearing_together, remove
from polluxsim.records.completeness import damage_in
from polluxsim.records.folders import difference, info_of, remove_if_empty, runs_below
from polluxsim.records.storage import RUN_FILE, RUN_FILES, SOMETIMES
from polluxsim.run.composing import CONFIG_NAME, Loader, composing_error, get_overrides_dirname, without_hydra
from polluxsim.run.configurations import as_hydra_takes, entries, policy_text, searched_first
from polluxsim.run.execution import resolved
from polluxsim.run.identity import key_of

LONGEST_NAME = 120  # longest name of a folder without its key [characters]
KEY_DIGITS = 8  # digits of the key in the name of a folder


MOST_RUNS = 1_000_000  # largest number of runs of a sweep, to catch errors in ranges


def check_size(num_runs: int) -> None:
    """Raise InvalidConfigError if a sweep has too many runs."""
    if num_runs > MOST_RUNS:
        raise InvalidConfigError(f"the sweep has more than {MOST_RUNS} runs, must have at most {MOST_RUNS}")


@dataclass(frozen=True)
class Entry:
    """One run of a plan."""

    overrides: tuple[str, ...]  # the overrides of this run, as Hydra writes them
    config: Mapping[str, Any]  # resolved
    key: str  # identifies the run by its settings, data and code
    folder: Path  # where the run is, or will be
    policy_entry: str | None = None  # name of the configuration of the policy

    def __str__(self) -> str:
        return " ".join(self.overrides) or "the default run"


def entry_of(overrides: Sequence[str], config: DictConfig, folder: Path, name: str | None = None) -> Entry:
    """Return the entry of a configuration that was composed from overrides; Hydra's own part is ignored.

    `name` is the name of the run's folder in the sweep's folder. By default it consists of the overrides and the key.
    """
    values = resolved(without_hydra(config))
    key = key_of(values)
    return Entry(
        tuple(overrides), values, key, folder / (name or name_of(overrides, key)), _policy_of(overrides, config)
    )


def _policy_of(overrides: Sequence[str], config: DictConfig) -> str | None:
    """Return the name of the configuration of a policy, from Hydra's part, or from overrides of a Python program."""
    if (name := OmegaConf.select(config, "hydra.runtime.choices.policy")) is not None:
        return str(name)
    chosen = [word.partition("=")[2] for word in overrides if word.startswith("policy=")]
    if not chosen or (name := policy_text(chosen[-1]).name) not in entries("policy"):
        return None  # the default, or the class of an object
    return name


def name_of(overrides: Sequence[str], key: str) -> str:
    """Return the name of a run's folder: the overrides, with the last part of paths only, and the key."""
    words = (re.sub(r"=.*/", "=", word) for word in overrides if not word.startswith("hydra"))
    readable = re.sub(r"[^\w.=,+~-]+", "_", ",".join(words))[:LONGEST_NAME].lstrip(".")
    return f"{readable}-{key[:KEY_DIGITS]}" if readable else key[:KEY_DIGITS]


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
        folder = finished.get(key, entry.folder)
        if key not in finished:
            config = info_of(folder).get("config")  # of a finished run, perhaps with other settings
            if folder in taken or (config is not None and difference(config, entry.config) is not None):
                folder = folder.with_name(f"{folder.name}-{key[:KEY_DIGITS]}")
        taken.add(folder)
        result.append(replace(entry, folder=folder))
    return result


class Composer:
    """Composer of the configurations of runs that share overrides of Hydra itself.

    Hydra takes 70 ms to compose a configuration, and most runs of a plan differ only in values. The composer keeps the
    configuration of each choice of entries, and puts plain values into a copy of it.
    """

    def __init__(self, loader: ConfigLoader, overrides: Sequence[str]) -> None:
        self.loader = loader
        self.common = list(overrides)
        self._parser = OverridesParser.create(config_loader=loader)
        self._kept: dict[tuple[str, ...], bytes] = {}  # pickled, because unpickling is faster than copying
        self._groups: dict[str, bool] = {}

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Return the configuration of a run, with the part of Hydra, from overrides as users write them.

        Raise InvalidConfigError if Hydra cannot compose it.
        """
        words = as_hydra_takes(overrides)
        try:
            parsed = self._parser.parse_overrides(words)
            try:
                return self._quickly(parsed)
            except OmegaConfBaseException:
                return self._wholly(words)  # for the error of Hydra, which is clearer
        except Exception as error:
            if (explained := composing_error(error, words)) is None:
                raise
            what = str(explained)
            begins_with_word = any(what.startswith((f"{word} ", f"{word}:")) for word in overrides)
            raise InvalidConfigError(what if begins_with_word else f"{' '.join(overrides)}: {what}") from error

    def _quickly(self, parsed: Sequence[Override]) -> DictConfig:
        """Compose a configuration from a copy of the configuration with the same entries."""
        chosen = tuple(item.input_line or "" for item in parsed if not self._is_plain(item))
        if chosen not in self._kept:
            self._kept[chosen] = pickle.dumps(self._wholly(chosen))
        config: DictConfig = pickle.loads(self._kept[chosen])  # noqa: S301  (this process pickled it)
        for item in parsed:
            if self._is_plain(item):
                OmegaConf.update(config, item.key_or_group, item.value(), merge=True)
        task = [item for item in parsed if not item.is_hydra_override()]
        settings = config.hydra.job.config.override_dirname
        config.hydra.overrides.task = [item.input_line for item in task]
        name = get_overrides_dirname(
            task, kv_sep=settings.kv_sep, item_sep=settings.item_sep, exclude_keys=settings.exclude_keys
        )
        # Hydra takes GROUP=null as ~GROUP.
        config.hydra.job.override_dirname = re.sub(r"(^|,)~([\w/]+)(?=,|$)", rf"\1\2{settings.kv_sep}null", name)
        return config

    def _wholly(self, overrides: Sequence[str]) -> DictConfig:
        return self.loader.load_configuration(CONFIG_NAME, [*self.common, *overrides], RunMode.RUN)

    def _is_plain(self, override: Override) -> bool:
        """Return whether an override only gives an existing setting one value."""
        is_change = not (override.is_delete() or override.is_add() or override.is_force_add())
        is_value = override.package is None and not self._is_group(override.key_or_group)
        return is_change and is_value and not override.is_sweep_override() and not override.is_hydra_override()

    def _is_group(self, name: str) -> bool:
        if name not in self._groups:
            self._groups[name] = bool(self.loader.get_group_options(name))
        return self._groups[name]


def composer(config_dirs: Sequence[Path] = (), overrides: Sequence[str] = ()) -> Composer:
    """Return a composer that searches the user's folders first, then the shipped ones. All runs have the overrides."""
    with searched_first(config_dirs):
        return Composer(Loader(), overrides)


def finished_runs(folder: Path) -> dict[str, Path]:
    """Return the folders of the finished runs in a folder by their keys. Of equal keys, the first folder counts.

    A run with a damaged file is not finished.
    """
    return runs_by_key(folder)[0]


def runs_by_key(folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the folders of the finished runs, and of the runs with a damaged file, in a folder by their keys."""
    finished: dict[str, Path] = {}
    damaged: dict[str, Path] = {}
    for path in runs_below(folder):
        info = info_of(path)
        key = info.get("key")
        if isinstance(key, str):
            runs = finished if damage_in(path, info, content=True) is None else damaged
            runs.setdefault(key, path)
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
            if path.is_file():
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
        if not (folder / RUN_FILE).exists():
            for name in (*RUN_FILES, *SOMETIMES):
                remove(folder / name)
        clear([folder])
