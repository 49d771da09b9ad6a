"""Hydra's options on the command line: their order, errors about them, and the folders that they name."""

from __future__ import annotations

import re
from argparse import ArgumentError
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser

from polluxsim.errors import InvalidConfigError, did_you_mean
from polluxsim.run.hydra_inside import get_args_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

LIVE = "--live"
"""An option that Hydra does not know."""

MULTIRUN = {"-m", "--multirun"}

SEARCH_PATH = "hydra.searchpath="

SWEEPS = {"choice", "glob", "interval", "range", "shuffle", "sort"}
"""Functions of Hydra's that give several values."""

NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|'[^']*'|\"[^\"]*\"")
"""Text in brackets or quotes, the innermost."""


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with options before overrides: Hydra's parser takes them in no other order.

    >>> options_first(["seed=1,2", "-m", "policy=fifo", "--config-dir", "conf"])
    ['-m', '--config-dir', 'conf', 'seed=1,2', 'policy=fifo']
    """
    actions = get_args_parser()._actions
    with_value = {name for action in actions if action.nargs is None for name in action.option_strings}
    options, overrides = list[str](), list[str]()
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        options.append(argument)
        if argument in with_value and (value := next(left, None)) is not None:
            options.append(value)
    return options + overrides


def check_options(arguments: Sequence[str]) -> None:
    """Raise `InvalidConfigError` for an unknown option or one without its value: Hydra would print its usage."""
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        _, unknown = parser.parse_known_args(arguments)
    except ArgumentError as error:
        raise InvalidConfigError(f"run: {error} ('polluxsim run --help' says more)") from None
    if sum(word.startswith(("--config-d", "-cd")) for word in arguments) > 1:
        raise InvalidConfigError(
            "run: --config-dir is given twice, but it takes one folder; name more with hydra.searchpath=[DIR,DIR]"
        )
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in (LIVE, *action.option_strings)]
        # Dashes would make all options alike.
        meant = did_you_mean(name.strip("-"), [option.strip("-") for option in known]).replace("mean ", "mean --")
        raise InvalidConfigError(f"run: there is no option {name}{meant} ('polluxsim run --help' says more)")
    for argument in arguments:
        _check_values(argument)


def may_set_mode(arguments: Sequence[str]) -> bool:
    """Return whether the arguments, or files that they name, may set `hydra.mode`; no shipped file does.

    >>> may_set_mode(["-m", "policy=fifo"]), may_set_mode(["--config-dir", "conf"]), may_set_mode(["hydra.mode=RUN"])
    (False, True, True)
    """
    options = {argument for argument in arguments if argument.startswith("-")}
    overrides = [argument.lstrip("+~") for argument in arguments if not argument.startswith("-")]
    return not options <= MULTIRUN or any(re.match(r"hydra(\.mode|\.searchpath|@|/|=)", word) for word in overrides)


def user_folders(arguments: Sequence[str]) -> list[Path]:
    """Return the user's folders of configurations, from `--config-dir` and `hydra.searchpath`."""
    options, _ = get_args_parser().parse_known_args(arguments)
    folders = [] if options.config_dir is None else [options.config_dir]
    if named := [word for word in options.overrides if word.startswith(SEARCH_PATH)]:
        value = OverridesParser.create().parse_override(named[0]).value()
        files = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
        folders += [name.removeprefix("file://") for name in files if "://" not in name.removeprefix("file://")]
    return list(map(Path, folders))


def _check_values(argument: str) -> None:
    """Raise `InvalidConfigError` for range(…) and the like among other values, of which Hydra's error says nothing."""
    key, _, left = argument.partition("=")
    while (shorter := NESTED.sub("", left)) != left:
        left = shorter
    values = [value.strip() for value in left.split(",")]
    if len(values) > 1 and (found := SWEEPS.intersection(values)):
        what = f"{argument}: {min(found)}(…) cannot stand among other values"
        raise InvalidConfigError(f"{what}; write every value, as in {key}=0,1,5")
