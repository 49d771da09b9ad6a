"""Compose configurations with Hydra, and explain its errors in one line."""

from __future__ import annotations

import logging
import pickle
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path, PurePath
from threading import RLock
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np
import yaml
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core import plugins
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from polluxsim.common.errors import InvalidConfigError, allowed_among, did_you_mean, listed
from polluxsim.common.shipped import shipped
from polluxsim.policies.contract.view import Policy
from polluxsim.run.building import build, missing
from polluxsim.run.configurations import (
    NULL,
    POLICY_GROUP,
    PolicyText,
    config_files,
    known_settings,
    policy_text,
    quoted,
    without_quoted_keys,
)

__all__ = ["Callbacks", "Loader", "error_of", "get_args_parser", "get_overrides_dirname", "mode_from_options"]

VERSION_BASE = "1.3"

_one_at_a_time = RLock()

MOST_KEPT = 200  # largest number of composed configurations that are kept

_composed: dict[tuple[Any, ...], bytes] = {}
"""Composed configurations. Loading a pickled one takes a fifth of the time of a deep copy."""


LAUNCHER_PLUGINS = ("hydra_ray_launcher", "hydra_submitit_launcher")
"""Packages of Hydra's launcher plugins. Importing them takes a fifth of the time of a run."""


class _PackageWalk:
    """Replacement of `pkgutil` in Hydra's scan for plugins, which skips launcher plugins."""

    @staticmethod
    def walk_packages(path: Iterable[str], prefix: str, onerror: Callable[[str], None]) -> Iterator[pkgutil.ModuleInfo]:
        for found in pkgutil.iter_modules(path, prefix):
            if found.name.removeprefix(prefix) in LAUNCHER_PLUGINS:
                continue
            yield found
            if found.ispkg and (spec := find_spec(found.name)) and spec.submodule_search_locations:
                yield from pkgutil.walk_packages(spec.submodule_search_locations, f"{found.name}.", onerror)


def scan_plugins() -> None:
    """Let Hydra import its plugins, except launchers, unless it has already imported them."""
    if not Singleton._instances.get(Plugins):
        plugins.pkgutil = _PackageWalk  # type: ignore[attr-defined,assignment]
        try:
            Plugins.instance()
        finally:
            plugins.pkgutil = pkgutil  # type: ignore[attr-defined]


@cache
def _add_launchers() -> None:
    """Let Hydra import the launcher plugins that are installed."""
    names = [f"hydra_plugins.{name}" for name in LAUNCHER_PLUGINS]
    modules = [import_module(name) for name in names if find_spec(name) is not None]
    for launcher in Plugins._scan_all_plugins(modules)[0]:
        Plugins.instance().register(launcher)


class Loader(ConfigLoaderImpl):
    """Loads configurations, the user's first, for one thread at a time."""

    def __init__(self) -> None:
        with _one_at_a_time:
            if version.getbase() is version._UNSPECIFIED_:
                version.setbase(VERSION_BASE)
            setup_globals()  # only resolvers of ${now:…} and the like
            scan_plugins()
            super().__init__(create_config_search_path(str(shipped("configs"))))

    def load_configuration(  # type: ignore[override]
        self, config_name: str, overrides: Sequence[str], run_mode: RunMode
    ) -> DictConfig:
        """Return a configuration, as `ConfigLoader` describes it.

        Composing one takes 0.1 s. The result is kept for later calls if only files of polluxsim and of installed
        packages are searched.
        """
        with _one_at_a_time:
            if any("hydra/launcher" in word for word in overrides):
                _add_launchers()
            try:
                return self._load(config_name, overrides, run_mode)
            except HydraException as error:
                if "hydra/launcher" not in str(error):
                    raise
                _add_launchers()  # a configuration of the user names a launcher
                return self._load(config_name, overrides, run_mode)

    def _load(self, config_name: str, overrides: Sequence[str], run_mode: RunMode) -> DictConfig:
        places = [str(element.path) for element in self.get_search_path().get_path()]
        if _searches_elsewhere(places) or any("searchpath" in word for word in overrides):
            return super().load_configuration(config_name, list(overrides), run_mode)
        key = config_name, tuple(overrides), run_mode, tuple(places), _state_of(_own_folders())
        if key not in _composed:
            if len(_composed) >= MOST_KEPT:
                _composed.clear()
            _composed[key] = pickle.dumps(super().load_configuration(config_name, list(overrides), run_mode))
        config: DictConfig = pickle.loads(_composed[key])  # noqa: S301  (this process pickled it)
        return config


def _own_folders() -> tuple[Path, Path]:
    return shipped("configs"), shipped("experiments")


def _searches_elsewhere(places: Sequence[str]) -> bool:
    """Return whether a search path contains a folder that is not part of an installed package."""
    own = {str(folder) for folder in _own_folders()}
    return any(
        place.removeprefix("file://") not in own and not place.startswith(("pkg://", "structured://"))
        for place in places
    )


def _state_of(folders: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    """Return the names of the configuration files in some folders and the times of their last changes."""
    files = (path for folder in folders for path in sorted(folder.rglob("*.yaml")))
    return tuple((str(path), path.stat().st_mtime_ns) for path in files)


@contextmanager
def mode_from_options() -> Iterator[None]:
    """Within the block, only the options choose between one run and several.

    Otherwise Hydra composes the configuration once more to read `hydra.mode`, which takes 0.2 s. Only one thread may be
    in the block at a time.
    """
    before = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = before  # type: ignore[method-assign]


def error_of(job: JobReturn) -> Exception | None:
    """Return the error of a job. The public property would print and raise the error."""
    error: Exception | None = job._return_value if job.status is JobStatus.FAILED else None
    return error


CONFIG_NAME = "run"


def composed(
    choices: Mapping[str, str], settings: Mapping[str, Mapping[str, object]], seed: int | np.integer
) -> DictConfig:
    """Return the default configuration with other entries by group, and other plain values by group and setting.

    Raise InvalidConfigError for an unknown entry, a file that Hydra cannot read, or a value that a configuration cannot
    state.
    """
    for group, name in choices.items():
        if name.lower() == NULL:
            raise InvalidConfigError(f"{group} is null, but each run needs one; choose one with {group}=NAME")
    chosen = [f"{group}={name}" for group, name in choices.items()]
    try:
        config = without_hydra(Loader().load_configuration(CONFIG_NAME, chosen, RunMode.RUN))
    except Exception as error:
        if (explained := composing_error(error, chosen)) is None:
            raise
        raise explained from None
    OmegaConf.set_struct(config, False)  # `build` reports unknown names
    config.seed = plain(seed)
    for group, values in settings.items():
        set_values(config, group, values, merge=False)
    return config


def set_values(config: DictConfig, group: str, values: Mapping[str, object], *, merge: bool) -> None:
    """Set values in a group of a configuration by the name of the setting, like `moves` or `inner.backfill`.

    With `merge`, a mapping is added to the present mapping. Raise InvalidConfigError for a value that a configuration
    cannot state.
    """
    for name, value in values.items():
        try:
            OmegaConf.update(config, f"{group}.{name}", plain(value), merge=merge, force_add=True)
        except OmegaConfBaseException:
            what = f"{group}.{name} is {value!r}, must be a number, text, true, false, or a list of these"
            raise InvalidConfigError(what) from None


def without_hydra(config: DictConfig) -> DictConfig:
    """Return a configuration without the part of Hydra."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def plain(value: object) -> object:
    """Return NumPy's numbers as Python's and paths as text, also within mappings and lists."""
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, PurePath) else value


MOST_ENTRIES = 4  # largest number of entries that a message names

NEEDED = ("cluster", "engine", "policy", "profiles", "workload")  # groups of which each run needs an entry

LAUNCHERS = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray"}
"""The extra of polluxsim that installs each launcher of Hydra."""

# Hydra logs its errors and raises them. A handler that does nothing keeps Python from printing the log.
logging.getLogger("hydra").addHandler(logging.NullHandler())


def hydra_in_words(error: Exception) -> str:
    """Return an error of Hydra in one line, with the known names."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: not YAML ({error.problem})"
    if isinstance(error, UnicodeDecodeError):
        file = _file_being_read(error) or "a configuration file"
        return f"{file}: not UTF-8 text ({error.reason} at byte {error.start})"
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    text = " ".join(str(error).split())
    for pattern, words in IN_WORDS:
        if found := re.search(pattern, text):
            return words(*found.groups())
    return text


def _no_setting(name: str) -> str:
    """Return the message about a setting that the chosen entries do not have."""
    part, _, setting = name.rpartition(".")
    group = part.replace(".", "/")
    if having := _entries_with(group, setting):
        verb = "has" if len(having) == 1 else "have"
        what = f"no chosen {group} has the setting {name}, but {listed(having, MOST_ENTRIES)} {verb} it"
        advice = f"choose {group}={having[0]}, or leave the setting out"
        if group == POLICY_GROUP:
            advice += f"; in a sweep, write policy={having[0]}({setting}=VALUE),OTHER"
        return f"{what}; {advice}"
    what = f"there is no setting {name!r}; 'polluxsim run --help' lists them"
    if group in ("agent", "policy", "profiles", "workload"):
        what += f", and +{name}=VALUE adds one for a class of your own"
    return what + _meant(name)


def _entries_with(group: str, setting: str) -> list[str]:
    """Return the entries of a group that have a setting, those first in which the user must set it."""
    must_set, may_set = list[str](), list[str]()
    files = config_files(f"{group}/*.yaml") if group else {}
    for path in files.values():
        content = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
        if isinstance(content, dict) and setting in content and not setting.startswith("_"):
            (must_set if content[setting] == "???" else may_set).append(path.stem)
    return [*sorted(must_set), *sorted(may_set)]


def _meant(name: str) -> str:
    """Return the most similar setting for the end of an error; of an existing group, only its own settings."""
    known = known_settings()
    group, _, rest = name.rpartition(".")
    inside = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == group]
    return did_you_mean(rest, inside, prefix=f"{group}.") if group and inside else did_you_mean(name, known)


def _file_being_read(error: Exception) -> str | None:
    """Return the file that was open when an error was raised."""
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, TextIOWrapper):
                return str(value.name)
    return None


def _no_choice(group: str, choice: str, options: str) -> str:
    if group == "hydra/launcher" and choice in LAUNCHERS:
        return not_installed(choice)
    allowed = options.split()
    own = "" if group.startswith("hydra/") else f"; to use your {group}/{choice}.yaml, add --config-dir FOLDER"
    if own and not choice.isidentifier() and re.fullmatch(r"[\w.]+(\.py:|[.:])\w+", choice):
        dotted = choice.replace(".py:", ".").replace(":", ".")
        what = f"{group}={choice} is not the name of an entry; for a class of your own, write the line "
        file = f"'_target_: {dotted}' to conf/{group}/NAME.yaml"
        return f"{what}{file}, and choose it with --config-dir conf {group}=NAME"
    files = config_files(f"{group}/*.yaml").values()
    lines = {path.stem: path.read_text(encoding="utf-8", errors="replace").partition("\n")[0] for path in files}
    named = [name for name, line in lines.items() if re.search(rf"\b{re.escape(choice)}\b", line, re.IGNORECASE)]
    about = f"; for {choice}, see {listed(named)}" if named else ""
    if choice.lower() == "none" and group not in NEEDED:
        about = f"; {group}=null chooses none"
    return f"{group}={choice} is unknown, {allowed_among(choice, allowed)}{about}{own}"


def _several(word: str) -> str:
    return f"{word} names several values; name one, or make a run of each with 'polluxsim run -m'"


def _does_not_fit(word: str) -> str:
    """Return the message about a value that cannot be merged with the settings."""
    key, _, value = word.partition("=")
    if re.search(r"[{,]\s*null\s*:", value):
        advice = "write the mapping in a YAML file of your own, with the name in quotes, and add --config-dir FOLDER"
        return f"{key}: null without quotes is no name of a key; {advice}"
    return f"{word} does not fit the other settings; 'polluxsim run --help' lists them"


def _unreadable(override: str) -> str:
    """Return the message about a word that Hydra's grammar does not allow."""
    word = override.removeprefix("+")  # `as_hydra_takes` adds it to a mapping
    key, _, value = word.partition("=")
    above, _, last = key.rpartition(".")
    if above and last[:1].isdigit():
        return f"{word}: the key ends with a number; write {above}={{{last}: {value}}}"
    advice = "close each bracket, and put a value with special characters in quotes"
    return f"{word}: must be KEY=VALUE in the grammar of Hydra; {advice}"


CHOICES = r"Could not find '([^']+)/([^'/]+)' Available options in '[^']+': (.*?)(?: Config search path|$)"

IN_WORDS: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"Missing mandatory value: (\S+)", missing),
    (r"Could not override '([^']+)'", _no_setting),
    (
        r"Could not delete '([^']+)'. No match in the defaults list",
        lambda group: f"{group}=null has no effect, because no {group} is chosen; leave it out",
    ),
    (
        "Config group override must be a string or a list",
        lambda: "a choice of hydra/… is null, must be the name of an entry; leave it out",
    ),
    (r"Ambiguous value for argument '(.+)' 1\. To use it as a list", _several),
    (r"Sweep parameters '(.+)' requires --multirun", _several),
    (r"Error merging override \+?(.+)$", _does_not_fit),
    (CHOICES, _no_choice),
)
"""Patterns in errors of Hydra, and functions of their groups that return the error in words."""


def composing_error(error: Exception, words: Sequence[str]) -> InvalidConfigError | None:
    """Return the error about overrides that Hydra cannot compose; None if `error` is not one of Hydra's."""
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError | UnicodeDecodeError):
        return InvalidConfigError(hydra_in_words(error))
    if not is_hydras(error):
        return None
    suspects = [word for word in words if word.partition("=")[2].startswith(("[", "{"))]
    if not suspects:
        return InvalidConfigError(f"the settings cannot be composed: {hydra_in_words(error)}")
    what = f"{suspects[0]}: this setting cannot have this list or mapping ({hydra_in_words(error)})"
    return InvalidConfigError(f"{what}; an entry of a group is chosen by its name")


def is_hydras(error: Exception) -> bool:
    """Return whether Hydra, or a library that reads its files, raised an error, perhaps in Python's own library."""
    tops = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    others = [top for top in tops if top not in sys.stdlib_module_names]
    return bool(others) and others[-1] in ("hydra", "omegaconf", "antlr4", "yaml")


def not_installed(launcher: str) -> str:
    """Return the message about a launcher that is not installed."""
    if launcher not in LAUNCHERS:
        return f"hydra/launcher={launcher} is not installed"
    return f"hydra/launcher={launcher} is not installed; run pip install 'polluxsim[{LAUNCHERS[launcher]}]'"


class NamedPolicy(NamedTuple):
    """A policy that can be built any number of times."""

    name: str  # as the user wrote it
    settings: dict[str, Any]  # its part of a configuration: `_target_` and parameters
    module: str | None = None  # the user's module that defines the class, None for an entry of a configuration

    @property
    def label(self) -> str:
        """Return the name of the entry or the class, with its settings but without its file."""
        return self.name[len(policy_text(self.name).name) - len(self.entry) :]

    @property
    def entry(self) -> str:
        """Return the name of the entry or the class, without settings."""
        return policy_text(self.name).name.rpartition(":")[2]

    @property
    def overrides(self) -> list[str]:
        """Return the overrides that choose the policy. A user's class becomes an entry without settings."""
        settings, plus = policy_text(self.name).settings, "" if self.module is None else "+"
        return [f"policy={quoted(self.entry)}", *(f"{plus}policy.{setting}" for setting in settings)]

    def make(self, *, afresh: bool = False, parameters: Mapping[str, Any] | None = None) -> Policy:
        """Return a new policy, with other values of some parameters.

        With `afresh`, the module of the policy runs again, which clears the state that the module keeps.
        """
        if afresh and self.module is not None:
            sys.modules.pop(self.module, None)
        settings = {**self.settings, **(parameters or {})}
        policy: Policy = build(OmegaConf.create({"policy": settings}), "policy")
        return policy


def named_policy(name: str) -> NamedPolicy:
    """Return the policy of a name. Afterwards, Python also imports modules from the folder of a user's file.

    Raise InvalidConfigError if there is no such policy, or Python cannot import the file.
    """
    text = policy_text(name)
    file, colon, kind = text.name.rpartition(":")
    settings = _settings_of(text)
    if not colon:
        try:
            config = OmegaConf.to_container(composed({"policy": text.name}, {"policy": settings}, 0).policy)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{error}; a class of your own is FILE.py:CLASS") from None
        return NamedPolicy(name, dict(config))  # type: ignore[arg-type]
    if not kind.isidentifier():
        raise InvalidConfigError(f"{text.name} names no class; give a policy as FILE.py:CLASS")
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py":
        raise InvalidConfigError(f"{file}: there is no Python file of this name; give a policy as FILE.py:CLASS")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = None if "." in path.stem else find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        found = None if spec is None else spec.origin
        raise InvalidConfigError(f"{file}: Python's module {path.stem!r} is {found}; give the file another name")
    return NamedPolicy(name, {"_target_": f"{path.stem}.{kind}", **settings}, path.stem)


def _settings_of(text: PolicyText) -> dict[str, Any]:
    """Return the settings of a policy by name, with values as Hydra reads them."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(map(without_quoted_keys, text.settings)))
    except HydraException as error:
        raise InvalidConfigError(f"{text.name}: {hydra_in_words(error)}") from None
    return {item.key_or_group: item.value() for item in parsed}
