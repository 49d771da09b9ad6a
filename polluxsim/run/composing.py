"""Compose the descriptions of runs with Hydra. This is the only module that calls Hydra's Compose API."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from string import Template
from threading import RLock
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from hydra import version
from hydra.compose import compose as compose_with_hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from hydra.initialize import initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.shipped import shipped
from polluxsim.common.values import PositiveInt, check
from polluxsim.run.building import MISSING
from polluxsim.run.configurations import (
    CONFIG_NAME,
    NULL,
    as_hydra_takes,
    is_group,
    searched_first,
    user_folders,
    without_quoted_keys,
)
from polluxsim.run.hydra_errors import composing_error, hydra_in_words, several, unresolved
from polluxsim.run.spec import (
    LAUNCHERS,
    Described,
    Launcher,
    OneRun,
    RunSpec,
    Search,
    SearchedRuns,
    SweepPlace,
    SweepRun,
    SweptRuns,
    as_plain,
    check_names,
    plain_value,
    settled,
)
from polluxsim.run.swept_values import combinations, search_space

VERSION_BASE = "1.3"

MOST_CONFIGURATIONS = 200  # largest number of composed configurations that are remembered

START_TIME = "${now:"  # beginning of the start time in the pattern of a folder

EFFECTIVE = (
    "hydra.help.", "hydra.job.config.override_dirname.", "hydra.job.name", "hydra.launcher.", "hydra.mode",
    "hydra.run.dir", "hydra.searchpath", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.sweeper.", "hydra/launcher",
    "hydra/sweeper",
)  # fmt: skip
"""Beginnings of the settings of Hydra that have an effect."""

WITHOUT_EFFECT: Mapping[str, object] = {
    "output_subdir": None, "verbose": False, "job.chdir": False, "job.env_set": {}, "job.env_copy": [], "callbacks": {},
}  # fmt: skip
"""Settings of Hydra without an effect that a configuration file may set, with their defaults."""

_one_at_a_time = RLock()

_composed: dict[tuple[Any, ...], bytes] = {}
"""Composed configurations. Loading a pickled one takes a fifth of the time of a deep copy."""

# Hydra logs its errors and raises them. A handler that does nothing keeps Python from printing the log.
logging.getLogger("hydra").addHandler(logging.NullHandler())


@contextmanager
def _hydra() -> Iterator[ConfigLoader]:
    """Initialise Hydra for the block, and yield the loader, which finds the entries of groups.

    Hydra keeps its state in globals. A Hydra application that calls polluxsim finds them unchanged.
    """
    with _one_at_a_time:
        application = GlobalHydra.instance()
        hydra_before = application.hydra
        settings_before = HydraConfig.instance().cfg
        base_before = version.getbase()
        application.clear()
        try:
            folder = str(shipped("configs"))
            with initialize_config_dir(folder, job_name="polluxsim", version_base=VERSION_BASE):
                _store_launchers()
                yield GlobalHydra.instance().config_loader()
        finally:
            GlobalHydra.set_instance(application)
            application.hydra = hydra_before
            HydraConfig.instance().cfg = settings_before
            if str(base_before)[:1].isdigit():  # an application has stated the version that it is written for
                with catch_warnings():
                    # The version is the one from before, of which the application has been warned already.
                    simplefilter("ignore")
                    version.setbase(str(base_before))


@cache
def _store_launchers() -> None:
    """Let Hydra find the launchers. They replace those of installed plugins, which Hydra has loaded before."""
    for name, settings in LAUNCHERS.items():
        ConfigStore.instance().store(group="hydra/launcher", name=name, node=dict(settings), provider="polluxsim")


def _configuration(words: Sequence[str], name: str = CONFIG_NAME) -> DictConfig:
    """Return a configuration with the part of Hydra, within a block of `_hydra`. Raise Hydra's errors.

    Composing takes 0.1 s, so some configurations are remembered, as long as no configuration file changes.
    """
    folders = (*user_folders(), shipped("configs"), shipped("experiments"))
    key = (name, tuple(words), _state_of(folders))
    if key not in _composed:
        config = compose_with_hydra(name, list(words), return_hydra_config=True)
        if len(_composed) >= MOST_CONFIGURATIONS:
            _composed.clear()
        _composed[key] = pickle.dumps(config)
    remembered: DictConfig = pickle.loads(_composed[key])  # noqa: S301  (this process pickled it)
    return remembered


def _state_of(folders: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return the names of the configuration files in some folders, their sizes, and the times of their changes."""
    files = [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]
    states = [(str(path), path.stat()) for path in files]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _spec_of(config: DictConfig) -> RunSpec:
    """Return the description of a run from a composed configuration, within a block of `_hydra`.

    Raise InvalidConfigError if a setting is unknown, missing or invalid.
    """
    names = [str(name) for name in config if name != "hydra"]
    is_without_seed = "seed" in names and OmegaConf.is_missing(config, "seed")
    check_names(names, MISSING if is_without_seed else None)
    entry = OmegaConf.select(config, "hydra.runtime.choices.policy")
    # A setting may refer to Hydra's part as ${hydra:…}, which resolves from this global.
    if "hydra" in config:
        HydraConfig.instance().set_config(config)
    try:
        # Masked, because Hydra's own part is no setting of the run.
        values: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, names), resolve=True)
    except OmegaConfBaseException as error:
        raise InvalidConfigError(unresolved(error)) from None
    return RunSpec(settled(values), policy_entry=None if entry is None else str(entry))


@contextmanager
def _explained(words: Sequence[str], start: str = "") -> Iterator[None]:
    """Raise the errors of Hydra as InvalidConfigError. A message that begins with no word begins with `start`."""
    try:
        yield
    except InvalidConfigError:
        raise
    except Exception as error:
        explained = composing_error(error, words)
        if explained is None:
            raise
        problem = str(explained)
        begins_with_word = any(problem.startswith((f"{word} ", f"{word}:")) for word in words)
        if start and not begins_with_word:
            problem = f"{start}: {problem}"
        raise InvalidConfigError(problem) from error


class Composer:
    """Composes the descriptions of runs that share overrides of Hydra itself, and the folders of configurations.

    Most runs of a plan differ only in values. The composer remembers the configuration of each choice of entries, and
    puts plain values into a copy of it.
    """

    def __init__(self, config_dirs: Sequence[Path] = (), common: Sequence[str] = (), name: str = CONFIG_NAME) -> None:
        self._folders = (*config_dirs, *user_folders())
        self.common = list(common)
        self._name = name
        with searched_first(config_dirs):
            pass  # checks the folders
        self._remembered: dict[tuple[str, ...], bytes] = {}  # pickled, because unpickling is faster than copying

    def compose(self, overrides: Sequence[str]) -> RunSpec:
        """Return the description of a run from overrides as users write them.

        Raise InvalidConfigError if Hydra cannot compose it.
        """
        with self._searching(), _hydra() as loader:
            return _spec_of(self.configuration(overrides, loader))

    def reproduced(self, overrides: Sequence[str]) -> Any:
        """Return the part of an experiment that describes the comparison with published numbers."""
        with self._searching(), _hydra() as loader:
            return OmegaConf.to_container(self.configuration(overrides, loader).reproduce, resolve=True)

    @contextmanager
    def _searching(self) -> Iterator[None]:
        more = [folder for folder in self._folders if folder not in user_folders()]
        with searched_first(more):
            yield

    def configuration(self, overrides: Sequence[str], loader: ConfigLoader) -> DictConfig:
        """Return the configuration of a run with the part of Hydra, within a block of `_hydra`."""
        words = as_hydra_takes(overrides)
        with _explained(words, " ".join(overrides)):
            return self.of_parsed(OverridesParser.create(config_loader=loader).parse_overrides(words))

    def of_parsed(self, parsed: Sequence[Override]) -> DictConfig:
        """Return the configuration of a run from parsed overrides, as `configuration` does. Raise Hydra's errors."""
        try:
            return self._quickly(parsed)
        # The error of Hydra is clearer, and a deleted setting may have its value from another override.
        except (OmegaConfBaseException, ConfigCompositionException):
            return _configuration([*self.common, *(item.input_line or "" for item in parsed)], self._name)

    def _quickly(self, parsed: Sequence[Override]) -> DictConfig:
        """Compose a configuration from a copy of the configuration with the same entries."""
        chosen = tuple(item.input_line or "" for item in parsed if not _is_plain(item))
        if chosen not in self._remembered:
            self._remembered[chosen] = pickle.dumps(_configuration([*self.common, *chosen], self._name))
        config: DictConfig = pickle.loads(self._remembered[chosen])  # noqa: S301  (this process pickled it)
        for item in parsed:
            if _is_plain(item):
                OmegaConf.update(config, item.key_or_group, item.value(), merge=True)
        task = [item for item in parsed if not item.is_hydra_override()]
        config.hydra.overrides.task = [item.input_line for item in task]
        config.hydra.job.override_dirname = _name_of_overrides(task, config.hydra.job.config.override_dirname)
        return config


def _is_plain(override: Override) -> bool:
    """Return whether an override only gives an existing setting one value."""
    is_change = not (override.is_delete() or override.is_add() or override.is_force_add())
    is_value = override.package is None and not is_group(override.key_or_group)
    is_hydras = override.is_hydra_override() or override.key_or_group == "hydra"
    return is_change and is_value and not override.is_sweep_override() and not is_hydras


def _name_of_overrides(overrides: Sequence[Override], settings: Any) -> str:
    """Return the overrides of a run as `hydra.job.override_dirname` states them. GROUP=null stands for ~GROUP."""
    lines = []
    for override in overrides:
        if override.key_or_group not in settings.exclude_keys:
            lines.append(override.input_line or "")
    written = []
    for line in sorted(lines):
        is_choice_of_none = line.startswith("~") and "=" not in line and "." not in line
        written.append(f"{line[1:]}=null" if is_choice_of_none else line)
    joined: str = settings.item_sep.join(written)
    return joined.replace("=", settings.kv_sep)


def compose(words: Sequence[str], folders: Sequence[Path] = ()) -> RunSpec:
    """Return the description of the run that words like `policy=fifo` describe.

    `folders` are folders of configurations that are searched first. Raise InvalidConfigError if a word is invalid.
    """
    return Composer(folders).compose(words)


def composed(
    choices: Mapping[str, str], settings: Mapping[str, Mapping[str, object]], seed: int | np.integer
) -> RunSpec:
    """Return the default run with other entries by group, and other plain values by group and setting.

    Raise InvalidConfigError for an entry that is unknown or null, a file that Hydra cannot read, or a value that a
    configuration cannot state.
    """
    for group, name in choices.items():
        if name.lower() == NULL:
            raise InvalidConfigError(f"{group} is null, but each run needs one; choose one with {group}=NAME")
    chosen = [f"{group}={name}" for group, name in choices.items()]
    with _hydra():
        with _explained(chosen):
            config = _configuration(chosen)
        OmegaConf.set_struct(config, False)  # `build` reports unknown names
        config.seed = as_plain(seed)
        for group, values in settings.items():
            for name, value in values.items():
                stated = plain_value(f"{group}.{name}", value)
                OmegaConf.update(config, f"{group}.{name}", stated, merge=False, force_add=True)
        return _spec_of(config)


def values_of(settings: Iterable[str]) -> dict[str, Any]:
    """Return values by setting, as Hydra reads them, from words like `backfill=true`. Raise InvalidConfigError."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(map(without_quoted_keys, settings)))
    except HydraException as error:
        raise InvalidConfigError(hydra_in_words(error)) from None
    return {item.key_or_group: item.value() for item in parsed}


def read_command(overrides: Sequence[str], *, is_sweep: bool, name: str = CONFIG_NAME) -> Described:
    """Return the run, the sweep or the search that the overrides of a command line describe.

    A configuration may ask for a sweep with `hydra.mode`. Raise InvalidConfigError if an override is invalid.
    """
    words = as_hydra_takes(overrides)
    with _hydra() as loader, _explained(words):
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
        swept = [item for item in parsed if item.is_sweep_override()]
        single = [item for item in parsed if not item.is_sweep_override()]
        try:
            config = Composer(name=name).of_parsed(single)
        except HydraException:
            if swept and not is_sweep:
                raise InvalidConfigError(several(swept[0].input_line or "")) from None
            raise
        if is_sweep or str(config.hydra.mode).rpartition(".")[2] == "MULTIRUN":
            task = [item.input_line or "" for item in parsed if not item.is_hydra_override()]
            return _sweep(config, task, loader, name)
        if swept:
            raise InvalidConfigError(several(swept[0].input_line or ""))
        return _one_run(config)


def _one_run(config: DictConfig) -> OneRun:
    HydraConfig.instance().set_config(config)
    folder = str(OmegaConf.select(config, "hydra.run.dir"))
    pattern: Any = OmegaConf.to_container(config.hydra.run, resolve=False)
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.runtime.output_dir = str(Path(folder).absolute())
        config.hydra.run.dir = str(pattern["dir"]).replace(START_TIME, f"\\{START_TIME}")  # text, not a resolver
    folder_pattern = str(OmegaConf.select(config, "hydra.run.dir"))
    chosen = [word for word in config.hydra.overrides.hydra if "launcher" in word]
    advice = [f"{word} has no effect on one run; add -m for a sweep, or leave it out" for word in chosen]
    return OneRun(_spec_of(config), folder_pattern, (*_ignored(config), *advice))


def _ignored(config: DictConfig) -> list[str]:
    """Return a sentence for each setting of Hydra that has no effect."""
    words = [str(word) for word in config.hydra.overrides.hydra]
    ignored = [word for word in words if not word.lstrip("+~").startswith(EFFECTIVE)]
    stated = {word.lstrip("+~").partition("=")[0] for word in ignored}
    for name, default in WITHOUT_EFFECT.items():
        value = OmegaConf.select(config.hydra, name)
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value)
        if value != default and f"hydra.{name}" not in stated:
            ignored.append(f"hydra.{name}={value}")
    sentences = [f"{word} has no effect, because polluxsim does not use this setting of Hydra" for word in ignored]
    if config.hydra.runtime.choices["hydra/sweeper"] == "basic":
        sentences.append("hydra/sweeper=basic has no effect, because finished runs are never repeated")
    return sentences


def _sweep(config: DictConfig, task: Sequence[str], loader: ConfigLoader, name: str) -> SweptRuns | SearchedRuns:
    """Return the runs of a sweep, or a search for the best ones.

    `config` is the configuration of the whole sweep, and `task` has its overrides.
    """
    sweeper = str(config.hydra.runtime.choices["hydra/sweeper"])
    if sweeper not in ("resumable", "basic", "optuna"):
        raise InvalidConfigError(
            f"hydra/sweeper={sweeper} is not supported; leave it out for all combinations, or choose optuna"
        )
    settings: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    check("workers", settings.get("workers"), PositiveInt | None)
    swept = [f"{setting}={values}" for setting, values in (settings.get("params") or {}).items()]
    parser = OverridesParser.create(config_loader=loader)
    overrides = parser.parse_overrides(as_hydra_takes([*swept, *task]))
    HydraConfig.instance().set_config(config)
    place = SweepPlace(
        folder=Path(str(OmegaConf.select(config, "hydra.sweep.dir"))),
        launcher=_launcher_of(config),
        workers=settings.get("workers"),
        cache=settings.get("cache"),
        text=OmegaConf.to_yaml(config),
    )
    without_effect = tuple(_ignored(config))
    planner = _Planner(config, name)
    if sweeper == "optuna":
        search = Search.from_settings(settings)
        fixed, space = search_space(overrides)
        return SearchedRuns(place, search, fixed, space, planner.plan, without_effect)
    runs = planner.planned(combinations(overrides), loader)
    return SweptRuns(place, runs, without_effect)


class _Planner:
    """Composes the runs of one sweep from their overrides.

    The runs have one start time, that of the sweep, and are numbered in the order in which they are planned.
    """

    def __init__(self, config: DictConfig, name: str) -> None:
        self._sweep = config
        # Unresolved, because each run has another ${seed}.
        common: Any = OmegaConf.to_container(config.hydra.overrides.hydra, resolve=False)
        self._composer = Composer((), common, name)
        self._num_planned = 0

    def plan(self, combined: Iterable[Sequence[str]]) -> list[SweepRun]:
        """Return the runs with some overrides, outside a block of `_hydra`."""
        with _hydra() as loader:
            return self.planned(combined, loader)

    def planned(self, combined: Iterable[Sequence[str]], loader: ConfigLoader) -> list[SweepRun]:
        """Return the runs with some overrides, within a block of `_hydra`."""
        runs = []
        for overrides in combined:
            composed_run = self._composer.configuration(overrides, loader)
            OmegaConf.copy_cache(from_config=self._sweep, to_config=composed_run)
            with open_dict(composed_run):
                composed_run.hydra.job.id = composed_run.hydra.job.num = self._num_planned
            HydraConfig.instance().set_config(composed_run)
            subfolder = str(OmegaConf.select(composed_run, "hydra.sweep.subdir"))
            runs.append(SweepRun(tuple(overrides), _spec_of(composed_run), subfolder))
            self._num_planned += 1
        HydraConfig.instance().set_config(self._sweep)
        return runs


def chosen_launcher(words: Sequence[str], config_dirs: Sequence[Path], folder: Path) -> Launcher:
    """Return the launcher that overrides like `hydra/launcher=ray` choose and set, for a sweep in a folder."""
    with searched_first(config_dirs), _hydra(), _explained(words):
        config = _configuration(words)
        HydraConfig.instance().set_config(config)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.sweep.dir = str(folder)
        return _launcher_of(config)


def _launcher_of(config: DictConfig) -> Launcher:
    settings: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    return Launcher(str(config.hydra.runtime.choices["hydra/launcher"]), settings or {})


def printed(overrides: Sequence[str], part: str, package: str | None, *, is_resolved: bool, name: str) -> str | None:
    """Return a composed configuration as YAML: the settings of the run (`job`), of Hydra (`hydra`), or both (`all`).

    `package` is a dotted name in it. Return None if there is no such name, or its value is null.
    """
    is_whole = package in (None, "_global_")
    with _one_configuration(overrides, name) as (config, _):
        names = [str(key) for key in config if part == "all" or (key == "hydra") == (part == "hydra")]
        selected: Any = OmegaConf.masked_copy(config, names)
        if not is_whole:
            selected = OmegaConf.select(selected, str(package))
        if selected is None:
            return None
        if not OmegaConf.is_config(selected):
            return f"{selected}\n"
        first = "" if is_whole else f"# @package {package}\n"
        return first + OmegaConf.to_yaml(selected, resolve=is_resolved)


def help_text(overrides: Sequence[str], name: str = CONFIG_NAME) -> str:
    """Return the help of `polluxsim run`, with the entries of each group and the composed settings."""
    with _one_configuration(overrides, name) as (config, loader):
        groups = [group for group in _groups(loader) if not group.startswith("hydra")]
        choices = [f"{group}: {', '.join(sorted(loader.get_group_options(group)))}\n" for group in sorted(groups)]
        settings = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        return Template(config.hydra.help.template).substitute(
            APP_CONFIG_GROUPS="".join(choices), CONFIG=OmegaConf.to_yaml(settings)
        )


def _groups(loader: ConfigLoader, above: str = "") -> Iterator[str]:
    """Yield the groups that have entries, with the groups inside them."""
    for name in loader.list_groups(above):
        group = f"{above}/{name}" if above else name
        if loader.get_group_options(group, ObjectType.CONFIG):
            yield group
        yield from _groups(loader, group)


@contextmanager
def _one_configuration(overrides: Sequence[str], name: str) -> Iterator[tuple[DictConfig, ConfigLoader]]:
    """Yield the configuration of one run, and the loader. Raise InvalidConfigError if an override is invalid."""
    words = as_hydra_takes(overrides)
    with _hydra() as loader, _explained(words):
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
        swept = [item for item in parsed if item.is_sweep_override()]
        if swept:
            raise InvalidConfigError(several(swept[0].input_line or ""))
        config = Composer(name=name).of_parsed(parsed)
        HydraConfig.instance().set_config(config)
        yield config, loader
