"""The command line: run a command, and turn errors into one line and an exit status."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from polluxsim import __version__
from polluxsim.cli import shared_options
from polluxsim.common.errors import InvalidConfigError, PolluxSimError, did_you_mean
from polluxsim.run.interrupt import (
    INTERRUPTED,
    MESSAGE,
    begin_command,
    ending_at_once,
    exits_raised,
    raising,
    results_written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BAD_INPUT = 2

LONGEST_LINE = 380
"""Longest message of an error [characters]. It fits on a screen."""

LAST_WORDS = 140
"""Part at the end of a longer message that is printed [characters]."""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "run and judge policies": {
        "run": "simulate a workload under a policy; with -m, run a sweep",
        "check": "test a policy in 1,000 random clusters and workloads",
        "arena": "compare policies on named scenarios and rank them",
        "size": "find the smallest cluster for a target",
        "reproduce": "reproduce tables and figures of papers",
        "conformance": "compare with published numbers of other simulators",
    },
    "look at finished runs": {
        "table": "print a table of the metrics of runs",
        "compare": "compare settings with a baseline, over pairs of runs",
        "plot": "draw a figure",
        "report": "write runs to an interactive HTML file",
        "trace": "write a run to a timeline for Perfetto",
        "whatif": "change a run from a time on, or a log, and compare",
        "when": "forecast when jobs start and complete, with intervals",
        "why": "explain why a job waited, started, moved or changed size",
    },
    "prepare workloads, logs and profiles": {
        "import": "check a cluster's log and write a Parquet file",
        "generate": "draw a workload with the statistics of Philly",
        "sample": "draw a workload from the Philly trace",
        "map": "replace a log's jobs with profiled applications",
        "calibrate": "find the policy and cluster behind a log's waits",
        "fit": "fit profile cards to measurements",
        "card": "compute a profile card of a transformer",
    },
}
"""Commands by purpose, with a line of help for each. They fit on a screen of 24 lines."""

ADDED = [name for commands in COMMANDS.values() for name in commands if name != "run"]
"""Commands besides `run`. The function `add_COMMAND` of the command's module declares its options."""

MODULES = {
    **dict.fromkeys(("check", "arena", "size"), "studies"),
    **dict.fromkeys(("reproduce", "conformance"), "paper"),
    **dict.fromkeys(("table", "compare"), "tables"),
    **dict.fromkeys(("plot", "report", "trace"), "figures"),
    **dict.fromkeys(("whatif", "when", "why"), "forks"),
    **dict.fromkeys(("import", "calibrate"), "log"),
    **dict.fromkeys(("generate", "sample", "map"), "workload"),
    **dict.fromkeys(("fit", "card"), "profile"),
}
"""Module of each of these commands, in `polluxsim.cli`."""

WITH_OVERRIDES = {"arena", "calibrate", "reproduce", "size", "whatif"}
"""Commands that take settings as KEY=VALUE."""

WITH_CONFIGS = {"arena", "calibrate", "check", "size", "whatif"}
"""Commands, besides `run`, that read configuration files of the user."""

# Everything slow to import is imported by the subcommand that needs it, so that --help answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the one on this process's command line, and return its exit status.

    The status is 0 after success, 2 for bad input, and 130 after an interrupt.
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
        return _command(arguments)
    except PolluxSimError as error:
        return _refused(str(error))
    except KeyboardInterrupt as error:
        print(f"polluxsim: {error}" if str(error) else MESSAGE, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _output_closed()
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    except ValueError:
        if not sys.stdout.closed:
            raise
        return _refused("standard output was closed by code of the run, so that its results cannot be printed")


def _command(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["run"]:
        with ending_at_once(), exits_raised():
            from polluxsim.cli.run import run

            run(arguments[1:])
            results_written()
            return 0
    with raising(), exits_raised():
        options = parsed(arguments)
        with _user_configs(options):
            status = int(options.action(options) or 0)
        results_written()
        return status


def _refused(message: str) -> int:
    """Print an error in one line. Leave out the middle of a long one, because the end often says what to do."""
    line = " ".join(message.split())
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE - LAST_WORDS - 3]} … {line[-LAST_WORDS:]}"
    print(f"polluxsim: {line}", file=sys.stderr)
    return BAD_INPUT


@contextmanager
def _user_configs(options: argparse.Namespace) -> Iterator[None]:
    """Search the folders of `--config-dir` first, and let Python import modules from the current folder."""
    if not (folders := getattr(options, "config_dir", [])):
        yield
        return
    from polluxsim.cli.shared_options import import_from_here
    from polluxsim.run.configurations import report_replaced, searched_first

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
                print(f"polluxsim: {message}", file=sys.stderr)
            else:
                before(message, category, *where, **more)

        warnings.showwarning = show
        yield


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. Overrides may stand among them, which argparse would refuse."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (arguments[0] not in WITH_OVERRIDES or any(word.startswith("-") or "=" not in word for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.names += rest
    return options


def _output_closed() -> int:
    """Discard the rest of the output if its reader closed the pipe; otherwise Python reports an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


class _Help(argparse.HelpFormatter):
    """Formatter of help texts that keeps the lines of a text with several lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n".join(
            line if line.startswith(("  ", "Example: ")) else fill(line, width, indent) for line in text.split("\n")
        )


class _Parser(argparse.ArgumentParser):
    """Parser that raises errors with a message of one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **options})

    def error(self, message: str) -> NoReturn:
        """Raise an error. For a wrong choice, it names the most similar one."""
        message = re.sub(r"^argument (\S+/)?(\S+): is ", r"\2 is ", message)  # a type of `option_help`
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(found[1], re.findall(r"[\w-]+", found[2]))
        command = self.prog.partition(" ")[2]
        raise InvalidConfigError(f"{command + ': ' if command else ''}{message} ('{self.prog} --help' says more)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="polluxsim",
        usage=f"polluxsim COMMAND [--help | OPTION ...] to {_overview()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"polluxsim {__version__}", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(prog="polluxsim", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    commands.add_parser("run", add_help=False)
    for name in ADDED:
        declare_options = getattr(import_module(f"polluxsim.cli.{MODULES[name]}"), f"add_{name}")
        declare_options(command := commands.add_parser(name))
        if name in WITH_CONFIGS:
            command.add_argument("--config-dir", type=Path, action="append", default=[], metavar="DIR",
                                 help=shared_options.CONFIGS)  # fmt: skip
    return parser


def _overview() -> str:
    """Return the commands by purpose, a line for each."""
    lines = []
    for purpose, commands in COMMANDS.items():
        lines += [f"{purpose}:", *(f"    {name:<13}{what}" for name, what in commands.items())]
    return "\n".join(lines)
