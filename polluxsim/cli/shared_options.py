"""Options that several commands share, and the classes that a command may load from the user's modules."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from polluxsim.records.storage import Run

RUNS = "folder of a finished run or of a sweep"
BASELINE = "baseline: a run's folder, or a setting like policy=fifo or policy.p=-1 (default: the first run)"
POLICIES = "names of policies, each with its settings in parentheses: 'easy,quotas(gpus={research: 4})'"
TIME = "seconds since the start of the run, 1.5h or H:MM:SS"
WORKERS = "number of processes (default: one for each core)"
OUT = "folder for the runs (default: %(default)s)"
REPEATED = "this option may be given several times"
CONFIGS = "folder of your configuration files, which replace shipped files of the same names"


def whole_number(least: int) -> Callable[[str], int]:
    """Return the type of an option whose value is a whole number of at least `least`."""

    def parse(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"is {text}, must be a whole number of at least {least}")
        return int(text)

    return parse


def positive_number(text: str) -> float:
    """Return the value of an option that is a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"is {text}, must be a number above 0")
    return number


def whole_numbers(text: str) -> list[int]:
    """Return the value of an option that is a list of whole numbers above 0, like 64,128."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise ArgumentTypeError(f"is {text!r}, must be whole numbers above 0, like 64,128")
    return list(map(int, words))


def show_progress(text: str) -> None:
    """Replace the progress line on standard error, if it is a terminal. An empty text removes the line."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)


def add_allowing(parser: ArgumentParser) -> None:
    """Declare the option that allows classes outside polluxsim."""
    parser.add_argument("--allow-classes", action="append", default=[], metavar="MODULE",
                        help="load the classes of this module that the run's settings name, from the current folder or "
                        f"an installed package; {REPEATED}")  # fmt: skip


def read_to_make_again(options: Namespace) -> Run:
    """Return the run of `options.run` with the modules that it may load classes from."""
    from dataclasses import replace

    from polluxsim.records.storage import read_run

    modules = tuple(options.allow_classes)
    for module in modules:
        if module.partition(".")[0] in {*sys.stdlib_module_names, "polluxsim"}:
            what = f"--allow-classes {module}: a module of Python or polluxsim"
            raise InvalidConfigError(f"{what}; name a module of the current folder or an installed package")
    if modules:
        import_from_here()
    return replace(read_run(options.run), allow_classes=modules)


def tell_classes(run: Run) -> None:
    """Check the classes that the settings of a run and its ancestors name; print a line for each foreign class."""
    from hydra.utils import get_object

    from polluxsim.records.storage import RUN_FILE
    from polluxsim.run.building import check_classes
    from polluxsim.run.forks import ancestry

    source, configs = f"{run.name}/{RUN_FILE}", [info.get("config", {}) for info in ancestry(run)]
    found = [name for config in configs for name in check_classes(config, source, run.allow_classes)]
    for name in dict.fromkeys(found):
        file = getattr(sys.modules[get_object(name).__module__], "__file__", None)
        print(f"polluxsim: {source} names {name}, loaded from {file}", file=sys.stderr)


def import_from_here() -> None:
    """Let Python import modules from the current folder, after all other places."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
