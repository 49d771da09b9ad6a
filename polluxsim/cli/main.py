"""The command line: run a command, and turn errors into one line and an exit status.

Each command imports what is slow to import, so that --help answers at once.
"""

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
from polluxsim.cli.streams import discard_output, output_was_closed, reopen_closed_descriptors
from polluxsim.common.errors import InvalidConfigError, NothingRanError, PolluxSimError, allowed_among
from polluxsim.run.interrupt import INTERRUPTED, MESSAGE, begin_command, ending_at_once, raising, results_written
from polluxsim.run.user_exits import exits_raised

NO = 1  # exit status if no job of a run ever got a GPU
BAD_INPUT = 2  # exit status after wrong input

PIPE_CLOSED = 141
"""Exit status if the reader of the output closed the pipe: the status of a Unix program that SIGPIPE ends."""

WRONG_PATH = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors about a path. Other errors of the operating system, like a full disk, do not depend on the path."""

MOST_CHARACTERS = 380  # longest message of an error [characters]: at most five lines of a terminal with 80 columns
END_CHARACTERS = 140  # end of a longer message that is printed [characters]
DEFAULT_WIDTH = 80  # width of a terminal that does not state its width [characters]

OUTPUT_CLOSED = "standard output was closed by code of the run, so that its results cannot be printed"
"""Message about a stream that code of the user closed."""

HELP = ("-h", "--help")  # options that ask for a help text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of the command line of this process, and return its exit status.

    The status is 0 after success, 1 if the answer of the command is no, 2 for wrong input, 130 after an interrupt, and
    141 if the reader of the output closed the pipe.
    """
    begin_command()
    # The matrices are too small for threads: starting the threads takes longer than the work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if isinstance(sys.stdout, TextIOWrapper):  # an encoding without ρ prints \u03c1
        sys.stdout.reconfigure(errors="backslashreplace")
    # Not as a default value, which Python computes when it imports the module.
    if arguments is None:
        arguments = sys.argv[1:]
    with _warnings_in_one_line():
        return _status(list(arguments))


def _status(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Print each error in one line."""
    try:
        status = _command(arguments)
        # Within the block, because writing to a closed pipe raises its error here.
        _flush_output()
    except PolluxSimError as error:
        status = NO if isinstance(error, NothingRanError) else BAD_INPUT
        return _refused(str(error), status)
    except KeyboardInterrupt as error:
        print(f"polluxsim: {error}" if str(error) else MESSAGE, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return PIPE_CLOSED
    except OSError as error:
        problem = str(error.strerror or error)
        if error.filename:
            problem = f"{error.filename}: {error.strerror}"
        if isinstance(error, WRONG_PATH):
            problem += "; check the path"
        return _refused(problem)
    except ValueError:  # Python's error for a write to a closed file
        if sys.stdout is not None and not sys.stdout.closed:
            raise
        return _refused(OUTPUT_CLOSED)
    return status


def _flush_output() -> None:
    """Write what was printed, so that a closed pipe is noticed here, and not at the end of the process."""
    if sys.stdout is None:
        raise InvalidConfigError(OUTPUT_CLOSED)
    sys.stdout.flush()


def _command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Return 0 if the command line only asks for a help text."""
    # `run` has a parser of its own, because its words are those of Hydra.
    if arguments and arguments[0] == "run":
        with ending_at_once(), exits_raised():
            from polluxsim.cli.run import run

            run(arguments[1:])
            results_written()
            return 0
    help_text = _help_text(arguments)
    if help_text:
        print(help_text)
        return 0
    with raising(), exits_raised():
        options = parsed(arguments)
        _check_output(options)
        with _user_configs(options):
            status = int(options.action(options) or 0)
        results_written()
        return status


def _check_output(options: argparse.Namespace) -> None:
    """Raise InvalidConfigError if a command would only print its results, and standard output is closed."""
    if output_was_closed() and getattr(options, "output", None) is None:
        raise InvalidConfigError(
            "standard output is closed, so that the results cannot be printed; send it to a file or to /dev/null"
        )


def _help_text(arguments: Sequence[str]) -> str | None:
    """Return the help or the version that a command line without a complete command asks for; None for a command."""
    from polluxsim.cli.commands import GROUPS, of_group, overview

    first, second = (*arguments, "--help", "--help")[:2]  # a missing word asks for help
    if first in HELP:
        return overview()
    if first == "--version":
        return f"polluxsim {__version__}"
    if first in GROUPS and second in HELP:
        return of_group(first)
    return None


def _refused(message: str, status: int = BAD_INPUT) -> int:
    """Print an error in one line, and return the exit status.

    Leave out the middle of a long message, because its end often says what to do.
    """
    # Code of the user may have closed standard error, and the message would be lost.
    reopen_closed_descriptors()
    line = " ".join(message.split())
    if len(line) > MOST_CHARACTERS:
        start = line[: MOST_CHARACTERS - END_CHARACTERS - 3]  # the mark between both parts has three characters
        end = line[-END_CHARACTERS:]
        # Cut between words, unless a part is one long word.
        start = start.rpartition(" ")[0] or start
        end = end.partition(" ")[2] or end
        line = f"{start} … {end}"
    _print_message(line)
    return status


def _print_message(line: str) -> None:
    """Print a line to standard error. On a terminal, break it between words."""
    line = f"polluxsim: {line}"
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_WIDTH
        line = fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


@contextmanager
def _user_configs(options: argparse.Namespace) -> Iterator[None]:
    """Search the folders of `--config-dir` first in the block, and let Python import modules from the current folder.

    Do nothing without the option.
    """
    folders = getattr(options, "config_dir", None)
    if not folders:
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
                _print_message(str(message))
            else:
                before(message, category, *where, **more)

        warnings.showwarning = show
        yield


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command from the words after `polluxsim`. Overrides may stand between the options.

    There is at least one word. Raise InvalidConfigError if there is no such command, or if the command does not take a
    word.
    """
    from polluxsim.cli.commands import COMMANDS, parser_of

    name, arguments = _split(words)
    parser = parser_of(name)
    options: argparse.Namespace
    options, unknown_words = parser.parse_known_args(arguments)
    # argparse puts each word that is no option among the settings.
    if not unknown_words and COMMANDS[name].overrides:
        unknown_words = [word for word in options.names if not COMMANDS[name].takes(word)]
    if unknown_words:
        parser.refuse(unknown_words)
    parser.check(options)
    return options


def _split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the command, of one or two words, and its arguments.

    Raise InvalidConfigError if there is no such command.
    """
    from polluxsim.cli.commands import COMMANDS, GROUPS

    for count in (1, 2):  # words of the name
        name = " ".join(words[:count])
        if name in COMMANDS:
            return name, list(words[count:])
    word = words[0]
    place = ""
    choices = [name for name in (*GROUPS, *COMMANDS) if " " not in name]
    advice = "('polluxsim --help' says more)"
    if word in GROUPS:
        group = word
        word = words[1]  # without a second word, `_help_text` has answered
        place = f"{group}: "
        choices = list(GROUPS[group].commands)
        advice = f"('polluxsim {group} --help' says more)"
    if word.startswith("-"):
        raise InvalidConfigError(f"{word} stands before the command; give the command first {advice}")
    raise InvalidConfigError(f"{place}there is no command {word!r}, {allowed_among(word, choices)} {advice}")
