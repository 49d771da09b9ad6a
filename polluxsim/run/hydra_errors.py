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
    # Hydra has no classes for most of its errors, so their texts tell them apart.
    text = " ".join(str(error).split())
    for pattern, words in IN_WORDS:
        match = re.search(pattern, text)
        if match is not None:
            return words(*match.groups())
    return text


def _no_setting(name: str) -> str:
    """Return the message about a setting that the chosen entries do not have."""
    part, _, setting = name.rpartition(".")
    group = part.replace(".", "/")
    entries = _entries_with(group, setting)
    if entries:
        verb = "has" if len(entries) == 1 else "have"
        problem = f"no chosen {group} has the setting {name}, but {listed(entries, MOST_ENTRIES)} {verb} it"
        advice = f"choose {group}={entries[0]}, or leave the setting out"
        if group == POLICY_GROUP:
            advice += f"; in a sweep, write policy={entries[0]}({setting}=VALUE),OTHER"
        return f"{problem}; {advice}"
    message = f"there is no setting {name!r}; 'polluxsim run --help' lists them"
    if group in ("agent", "policy", "profiles", "workload"):
        message += f", and +{name}=VALUE adds one for a class of your own"
    return message + _meant(name)


def _entries_with(group: str, setting: str) -> list[str]:
    """Return the entries of a group that have a setting, those first in which the user must set it."""
    if not group or setting.startswith("_"):
        return []
    must_set: list[str] = []
    may_set: list[str] = []
    for path in config_files(f"{group}/*.yaml").values():
        content = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
        if not isinstance(content, dict) or setting not in content:
            continue
        if content[setting] == "???":
            must_set.append(path.stem)
        else:
            may_set.append(path.stem)
    return sorted(must_set) + sorted(may_set)


def _meant(name: str) -> str:
    """Return the most similar setting for the end of an error; "" without one.

    If the group of the name exists, only its own settings are compared.
    """
    settings = known_settings()
    group, _, last = name.rpartition(".")
    of_group: list[str] = []
    for setting in settings:
        other_group, _, other_last = setting.rpartition(".")
        if other_group == group:
            of_group.append(other_last)
    if group and of_group:
        return did_you_mean(last, of_group, prefix=f"{group}.")
    return did_you_mean(name, settings)


def _file_being_read(error: Exception) -> str | None:
    """Return the name of the file that was open when an error was raised; None if no function had one open."""
    # The error of a decoder does not name the file.
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, TextIOWrapper):
                return str(value.name)
    return None


def _no_choice(group: str, choice: str, options: str) -> str:
    """Return the message about an entry that a group does not have, given the names of its entries."""
    is_hydras_group = group.startswith("hydra/")
    is_class = re.fullmatch(r"[\w.]+(\.py:|[.:])\w+", choice) is not None  # FILE.py:CLASS, or module.Class
    if is_class and not is_hydras_group:
        dotted = choice.replace(".py:", ".").replace(":", ".")
        return (
            f"{group}={choice} is not the name of an entry; for a class of your own, write the line "
            f"'_target_: {dotted}' to conf/{group}/NAME.yaml, and choose it with --config-dir conf {group}=NAME"
        )
    message = f"{group}={choice} is unknown, {allowed_among(choice, options.split())}"
    if choice.lower() == "none" and group not in NEEDED:
        message += f"; {group}=null chooses none"
    else:
        entries = _entries_about(group, choice)
        if entries:
            message += f"; for {choice}, see {listed(entries)}"
    if not is_hydras_group:
        message += f"; to use your {group}/{choice}.yaml, add --config-dir FOLDER"
    return message


def _entries_about(group: str, word: str) -> list[str]:
    """Return the entries of a group that have a word in the first line of their file."""
    entries = []
    for path in config_files(f"{group}/*.yaml").values():
        first_line = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        if re.search(rf"\b{re.escape(word)}\b", first_line, re.IGNORECASE):
            entries.append(path.stem)
    return entries


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
    # Hydra fails with other errors than its own where a list or a mapping takes the place of a name.
    suspects = [word for word in words if word.partition("=")[2].startswith(("[", "{"))]
    if not suspects:
        return InvalidConfigError(f"the settings cannot be composed: {hydra_in_words(error)}")
    problem = f"{suspects[0]}: this setting cannot have this list or mapping ({hydra_in_words(error)})"
    return InvalidConfigError(f"{problem}; an entry of a group is chosen by its name")


def is_hydras(error: Exception) -> bool:
    """Return whether Hydra, or a library that reads its files, raised an error, perhaps in Python's own library."""
    # By the innermost frame: an error of polluxsim's own code that Hydra calls is a defect, and must be seen as one.
    library = ""  # of the innermost frame outside Python's own library
    for frame, _ in walk_tb(error.__traceback__):
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if top not in sys.stdlib_module_names:
            library = top
    return library in ("hydra", "omegaconf", "antlr4", "yaml")


def unresolved(error: OmegaConfBaseException) -> str:
    """Return an error about a value that cannot be resolved, in one line that names the setting."""
    key = error.full_key or error.key
    if "Missing mandatory value" in str(error):
        return missing(str(key))
    text = str(error).partition("\n    full_key")[0]  # without OmegaConf's lines about its types
    return f"{key}: {' '.join(text.split())}"
