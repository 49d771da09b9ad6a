"""Hydra's errors in one line that says what is allowed."""

from __future__ import annotations

import logging
import re
from io import TextIOWrapper
from traceback import walk_tb

import yaml
from yaml import MarkedYAMLError

from polluxsim.errors import allowed_among, did_you_mean
from polluxsim.run.building import missing
from polluxsim.shipped import shipped
from polluxsim.storage import flat

LAUNCHERS = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray"}
"""The extra of this package that each of Hydra's launchers comes with."""

# What Hydra logs of an error stands in the error itself, which is ours to say; without a handler it would be printed.
logging.getLogger("hydra").addHandler(logging.NullHandler())


CHOICES = r"Could not find '([^']+)/([^'/]+)' Available options in '[^']+': (.*?)(?: Config search path|$)"


def hydra_in_words(error: Exception) -> str:
    """Return Hydra's error in one line that says what is allowed."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem_mark.name}, line {error.problem_mark.line + 1}: not YAML ({error.problem})"
    if isinstance(error, UnicodeDecodeError):
        file = _file_being_read(error) or "a configuration file"
        return f"{file}: not UTF-8 text ({error.reason} at byte {error.start})"
    text = " ".join(str(error).split())
    if found := re.search(r"Missing mandatory value: (\S+)", text):
        return missing(found[1])
    if found := re.search(r"Could not override '([^']+)'", text):
        name, meant = found[1], did_you_mean(found[1], known_settings())
        return (
            f"there is no setting {name!r}; 'polluxsim run --help' lists them, and +{name}=VALUE would add one{meant}"
        )
    found = re.search(CHOICES, text)
    return _no_choice(*found.groups()) if found else text


def _file_being_read(error: Exception) -> str | None:
    """Return the file that was open where an error was raised."""
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
    return f"{group}={choice} is unknown, {allowed_among(choice, allowed)}{own}"


def known_settings() -> list[str]:
    """Return the groups, and the settings of all their shipped entries by dotted names."""
    found = {"seed", "hydra.run.dir", "hydra.sweep.dir", "hydra.sweeper.workers", "hydra.sweeper.cache"}
    for path in shipped("configs").glob("*/**/*.yaml"):
        group = path.parent.relative_to(shipped("configs")).as_posix()
        entry = yaml.safe_load(path.read_text(encoding="utf-8"))
        entry.pop("defaults", None)  # an instruction to Hydra, not a setting
        dotted = group.replace("/", ".")
        found |= {group, *(f"{dotted}.{name}" for name in entry), *flat({dotted: entry})}
    return sorted(found)


def is_hydras(error: Exception) -> bool:
    """Return whether it was Hydra itself, or what reads its files, that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("hydra", "omegaconf", "antlr4", "yaml", "codecs")


def not_installed(launcher: str) -> str:
    """Return what to do about a launcher that is not there."""
    if launcher not in LAUNCHERS:
        return f"hydra/launcher={launcher} is not installed"
    return f"hydra/launcher={launcher} is not installed, needed is: pip install 'polluxsim[{LAUNCHERS[launcher]}]'"
