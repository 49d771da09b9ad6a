"""Options of Hydra's on the command line: put where Hydra takes them, and wrong ones told in one line."""

from __future__ import annotations

from argparse import ArgumentError
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError, did_you_mean
from polluxsim.run.hydra_inside import get_args_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

LIVE = "--live"
"""An option of our own, which Hydra would not know."""


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
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in (LIVE, *action.option_strings)]
        # Dashes would make all options alike.
        meant = did_you_mean(name.strip("-"), [option.strip("-") for option in known]).replace("mean ", "mean --")
        raise InvalidConfigError(f"run: there is no option {name}{meant} ('polluxsim run --help' says more)")
