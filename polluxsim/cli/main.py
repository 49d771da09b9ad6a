"""The command line: run a command, and turn errors into one line and an exit status."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from textwrap import fill
from typing import Any

from polluxsim import __version__
from polluxsim.common.errors import InvalidConfigError, PolluxSimError, allowed_among
from polluxsim.run.interrupt import (
    INTERRUPTED,
    MESSAGE,
    begin_command,
    ending_at_once,
    exits_raised,
    raising,
    results_written,
)

BAD_INPUT = 2

PIPE_CLOSED = 141
"""Exit status if the reader of the output closed the pipe, equal to that of a Unix program that SIGPIPE ends."""

WRONG_PATH = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors about a path, but not errors about a full disk."""

LONGEST_LINE = 380  # longest message of an error [characters]. It fits on a screen
LAST_WORDS = 140  # part at the end of a longer message that is printed [characters]
NO_WIDTH = 80  # width of a terminal that does not know its own [characters]

HELP = ("-h", "--help")

# Everything slow to import is imported by the command that needs it, so that --help answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the one on this process's command line, and return its exit status.

    The status is 0 after success, 1 if the answer of the command is no, 2 for wrong input, 130 after an interrupt, and
    141 if the reader of the output closed the pipe.
    """
    begin_command()
    if isinstance(sys.stdout, TextIOWrapper):  # print ρ as \u03c1 if the encoding of the output does not have it
        sys.stdout.reconfigure(errors="backslashreplace")
    with _warnings_in_one_line():
        return _status(list(sys.argv[1:] if arguments is None else arguments))


def _status(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Print each error in one line."""
    # The matrices are too small for threads: starting the threads takes longer than the work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        status = _command(arguments)
        sys.stdout.flush()  # a closed pipe is noticed here, not at the end of the process
    except PolluxSimError as error:
        return _refused(str(error))
    except KeyboardInterrupt as error:
        print(f"polluxsim: {error}" if str(error) else MESSAGE, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _output_closed()
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        return _refused(f"{what}; check the path" if isinstance(error, WRONG_PATH) else what)
    except ValueError:
        if not sys.stdout.closed:
            raise
        return _refused("standard output was closed by code of the run, so that its results cannot be printed")
    return status


def _command(arguments: Sequence[str]) -> int:
    """Run one command. The name of a command has one word, or two words if the command belongs to a group."""
    if arguments and arguments[0] == "run":
        with ending_at_once(), exits_raised():
            from polluxsim.cli.run import run

            run(arguments[1:])
            results_written()
            return 0
    if shown := _shown(arguments):
        print(shown)
        return 0
    with raising(), exits_raised():
        from polluxsim.cli.former import present_command

        words = present_command(arguments)
        options = parsed(words)
        with _user_configs(options):
            status = int(options.action(options) or 0)
        results_written()
        return status


def _shown(arguments: Sequence[str]) -> str | None:
    """Return the help or version that a command line without a command, or with only a group of commands, asks for."""
    from polluxsim.cli.commands import GROUPS, of_group, overview

    first, second = (*arguments, *HELP)[:2]
    if first in HELP:
        return overview()
    if first == "--version":
        return f"polluxsim {__version__}"
    return of_group(first) if first in GROUPS and second in HELP else None


def _refused(message: str) -> int:
    """Print an error in one line. Leave out the middle of a long message, because its end often says what to do."""
    line = " ".join(message.split())
    if len(line) > LONGEST_LINE:
        first, last = line[: LONGEST_LINE - LAST_WORDS - 3], line[-LAST_WORDS:]
        line = f"{first.rpartition(' ')[0] or first} … {last.partition(' ')[2] or last}"
    _tell(line)
    return BAD_INPUT


def _tell(line: str) -> None:
    """Print a line to standard error. On a terminal, break it between words."""
    line = f"polluxsim: {line}"
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or NO_WIDTH
        line = fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


@contextmanager
def _user_configs(options: argparse.Namespace) -> Iterator[None]:
    """Search the folders of `--config-dir` first, and let Python import modules from the current folder."""
    if not (folders := getattr(options, "config_dir", None)):
        yield
        return
    from polluxsim.run.configurations import import_from_here, report_replaced, searched_first

    import_from_here()
    with searched_first(folders):
        report_replaced(folders)
        yield


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each FutureWarning, which Python intends for users, in one line without source code."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, FutureWarning):
                _tell(str(message))
            else:
                before(message, category, *where, **more)

        warnings.showwarning = show
        yield


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command. Overrides may stand between the options, which argparse would refuse."""
    from polluxsim.cli.commands import COMMANDS, parser_of
    from polluxsim.cli.former import present_options, present_positional

    name, arguments = _split(words)
    arguments = present_options(name, arguments)
    parser = parser_of(name)
    options: argparse.Namespace
    options, rest = parser.parse_known_args(arguments)
    if former := present_positional(name, rest):
        position = len(arguments) - 1 - arguments[::-1].index(rest[0])
        options, rest = parser.parse_known_args([*arguments[:position], *arguments[position + 1 :], *former])
    if rest and (not COMMANDS[name].overrides or any(word.startswith("-") or "=" not in word for word in rest)):
        parser.refuse(rest)
    if rest:
        options.names += rest
    if COMMANDS[name].overrides and (other := [word for word in options.names if not COMMANDS[name].takes(word)]):
        parser.refuse(other)
    parser.check(options)
    return options


def _split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the command, and its arguments."""
    from polluxsim.cli.commands import COMMANDS, GROUPS

    for number in (1, 2):
        if (name := " ".join(words[:number])) in COMMANDS and len(words) >= number:
            return name, list(words[number:])
    group = words[0] if words[0] in GROUPS else ""
    known = GROUPS[group].commands if group else [*GROUPS, *(name for name in COMMANDS if " " not in name)]
    word = words[1] if group else words[0]
    more = f"polluxsim {group} --help" if group else "polluxsim --help"
    if word.startswith("-"):
        raise InvalidConfigError(f"{word} stands before the command; give the command first ('{more}' says more)")
    what = f"{group + ': ' if group else ''}there is no command {word!r}, {allowed_among(word, known)}"
    raise InvalidConfigError(f"{what} ('{more}' says more)")


def _output_closed() -> int:
    """Discard the rest of the output if its reader closed the pipe; otherwise Python reports an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
