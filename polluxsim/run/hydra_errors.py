"""Explain the errors of Hydra in one line, with the user's own word, the allowed names and advice."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from traceback import walk_tb

import yaml
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from polluxsim.common.errors import InvalidConfigError, allowed_among, did_you_mean, listed
from polluxsim.run.building import missing
from polluxsim.run.configurations import POLICY_GROUP, config_files, known_settings

MOST_ENTRIES = 4  # largest number of entries that a message names

NEEDED = ("cluster", "engine", "policy", "profiles", "workload")  # groups of which each run needs an entry


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


def several(word: str) -> str:
    """Return the message about an override with several values for one run."""
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
    (r"Ambiguous value for argument '(.+)' 1\. To use it as a list", several),
    (r"Sweep parameters '(.+)' requires --multirun", several),
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


def unresolved(error: OmegaConfBaseException) -> str:
    """Return an error about a value that cannot be resolved, in one line that names the setting."""
    key = error.full_key or error.key
    if "Missing mandatory value" in str(error):
        return missing(str(key))
    text = str(error).partition("\n    full_key")[0]  # without OmegaConf's lines about its types
    return f"{key}: {' '.join(text.split())}"
