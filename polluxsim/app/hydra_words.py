"""Hydra's errors in one line that says what is allowed."""

from __future__ import annotations

import re

LAUNCHERS = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray"}
"""The extra of this package that each of Hydra's launchers comes with."""


def hydra_in_words(error: Exception) -> str:
    """Return Hydra's error in one line that says what is allowed."""
    text = " ".join(str(error).split())
    if found := re.search(r"Could not override '([^']+)'", text):
        return (
            f"there is no setting {found[1]!r}; 'polluxsim run --help' lists them, and +{found[1]}=VALUE would add one"
        )
    choices = r"Could not find '([^']+)/([^'/]+)' Available options in '[^']+': (.*?)(?: Config search path|$)"
    if found := re.search(choices, text):
        group, choice, options = found.groups()
        if group == "hydra/launcher" and choice in LAUNCHERS:
            return not_installed(choice)
        return f"{group}={choice} is unknown, allowed are {', '.join(options.split())}"
    return text


def is_hydras(error: Exception) -> bool:
    """Return whether it was Hydra itself, or what reads its files, that raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("hydra", "omegaconf", "antlr4", "yaml")


def not_installed(launcher: str) -> str:
    """Return what to do about a launcher that is not there."""
    if launcher not in LAUNCHERS:
        return f"hydra/launcher={launcher} is not installed"
    return f"hydra/launcher={launcher} is not installed, needed is: pip install 'polluxsim[{LAUNCHERS[launcher]}]'"
