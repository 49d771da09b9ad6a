"""Run one simulation, or a sweep with `-m`, as a Hydra application: `polluxsim run`."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from textwrap import wrap
from time import time

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from polluxsim.cli.options import as_setting, take, take_output
from polluxsim.common.errors import InvalidConfigError, did_you_mean
from polluxsim.common.shipped import shipped
from polluxsim.look.console import console
from polluxsim.look.descriptions import engine_waits, print_remarks
from polluxsim.look.run_facts import steady_gpus
from polluxsim.look.side_by_side import SideBySide
from polluxsim.metrics.declared import values_in
from polluxsim.records.storage import Run, write_run
from polluxsim.run.claim import claimed, claimed_anew
from polluxsim.run.composing import get_args_parser, hydra_in_words, is_hydras, mode_from_options, scan_plugins
from polluxsim.run.configurations import (
    as_hydra_takes,
    comments,
    config_files,
    import_from_here,
    quoted,
    report_replaced,
    searched_first,
)
from polluxsim.run.execution import Execution, resolved
from polluxsim.run.interrupt import interruptible, results_written, uninterrupted
from polluxsim.run.progress_line import progress

MULTIRUN = {"-m", "--multirun"}

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")  # settings of the output of a run and of a sweep

SEARCH_PATH = "hydra.searchpath="

SWEEPS = {"choice", "glob", "interval", "range", "shuffle", "sort"}  # functions of Hydra's that give several values

NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|'[^']*'|\"[^\"]*\"")
"""Text in quotes, or in brackets without brackets of the same kind inside."""


def own_parser() -> ArgumentParser:
    """Return the parser of the options that Hydra does not know."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    take_output(parser, "folder for the results")
    take(parser, "workers")
    take(parser, "live")
    return parser


def own_overrides(own: Namespace, arguments: Sequence[str]) -> list[str]:
    """Return the options that Hydra does not know as overrides.

    The output sets the folder both of a run and of a sweep, because only Hydra can tell which of them a command makes.
    Raise InvalidConfigError if an override also names the output.
    """
    overrides = [] if own.workers is None else [f"hydra.sweeper.workers={own.workers}"]
    if own.output is not None:
        overrides += [f"{setting}={quoted(str(own.output))}" for setting in FOLDERS]
        if twice := [word for word in arguments if word.partition("=")[0] in FOLDERS and "=" in word]:
            raise InvalidConfigError(f"run: -o {own.output} and {twice[0]} both name the output; leave one of them out")
    return overrides


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with options before overrides: Hydra's parser requires this order.

    >>> options_first(["seed=1,2", "-m", "policy=fifo", "--config-dir", "conf"])
    ['-m', '--config-dir', 'conf', 'seed=1,2', 'policy=fifo']
    """
    actions = get_args_parser()._actions
    with_value = {name for action in actions if action.nargs is None for name in action.option_strings}
    options, overrides = list[str](), list[str]()
    words = iter(arguments)
    for argument in words:
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        options.append(argument)
        if argument in with_value and (value := next(words, None)) is not None:
            options.append(value)
    return options + overrides


def check_options(arguments: Sequence[str]) -> None:
    """Raise InvalidConfigError for errors that Hydra would report unclearly.

    These are unknown options, options without their value, two `--config-dir`, and sweeps among other values.
    """
    parser = get_args_parser()
    parser.exit_on_error = False
    own = [option for action in own_parser()._actions for option in action.option_strings]
    try:
        _, unknown = parser.parse_known_args(arguments)
    except ArgumentError as error:
        raise _wrong_option(error) from None
    if sum(word.startswith(("--config-d", "-cd")) for word in arguments) > 1:
        raise InvalidConfigError(
            "run: --config-dir is given twice, but it takes one folder; name more with hydra.searchpath=[DIR,DIR]"
        )
    if unknown:
        name = unknown[0].partition("=")[0]
        known = [*own, *(option for action in parser._actions for option in action.option_strings)]
        # Compare without dashes, because dashes make all options similar.
        similar = did_you_mean(name.strip("-"), [option.strip("-") for option in known]).replace("mean ", "mean --")
        hint = as_setting(name) or similar
        raise InvalidConfigError(f"run: there is no option {name}{hint} ('polluxsim run --help' says more)")
    for argument in arguments:
        _check_values(argument)


def _check_values(argument: str) -> None:
    """Raise InvalidConfigError for range(…) and similar sweeps among other values."""
    key, _, text = argument.partition("=")
    while (shorter := NESTED.sub("", text)) != text:
        text = shorter
    values = [value.strip() for value in text.split(",")]
    if len(values) > 1 and (found := SWEEPS.intersection(values)):
        what = f"{argument}: {min(found)}(…) cannot stand among other values"
        raise InvalidConfigError(f"{what}; write every value, as in {key}=0,1,5")


def _wrong_option(error: ArgumentError) -> InvalidConfigError:
    from polluxsim.cli.commands import in_words

    return InvalidConfigError(f"run: {in_words(str(error))} ('polluxsim run --help' says more)")


SETS_MODE = r"hydra(\.mode|\.searchpath|@|/|=)|experiment=|conformance="
"""Beginning of an override that may set `hydra.mode`."""


def may_set_mode(arguments: Sequence[str]) -> bool:
    """Return whether the arguments, or files that they name, may set `hydra.mode`. The files of experiments set it.

    >>> may_set_mode(["-m", "policy=fifo"]), may_set_mode(["--config-dir", "conf"]), may_set_mode(["+experiment=fig1"])
    (False, True, True)
    """
    options = {argument for argument in arguments if argument.startswith("-")}
    overrides = [argument.lstrip("+~") for argument in arguments if not argument.startswith("-")]
    return not options <= MULTIRUN or any(re.match(SETS_MODE, word) for word in overrides)


def user_folders(arguments: Sequence[str]) -> list[Path]:
    """Return the user's folders of configurations, from `--config-dir` and `hydra.searchpath`."""
    options, _ = get_args_parser().parse_known_args(arguments)
    folders = [] if options.config_dir is None else [options.config_dir]
    if named := [word for word in options.overrides if word.startswith(SEARCH_PATH)]:
        value = OverridesParser.create().parse_override(named[0]).value()
        files = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
        folders += [name.removeprefix("file://") for name in files if "://" not in name.removeprefix("file://")]
    return list(map(Path, folders))


WIDTH, COLUMN = 100, 34  # width of the text, and column in which the comments begin [characters]

SETTING_LINE = re.compile(r"^( *)(\w+):( .*)?$")  # indentation, name and value of a setting in YAML


@contextmanager
def with_meanings() -> Iterator[None]:
    """Print the output of the block with the comment of each setting beside it."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:  # Hydra ends the program after its help
        print("\n".join(_explained(printed.getvalue().splitlines())))


def _explained(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a configuration in YAML, with the comments of its settings.

    A part with a class, such as `policy`, takes the comments from the configurations of its group.
    """
    # Indentation, group and comments of the parts that contain the line, from the outermost.
    parts: list[tuple[int, str, dict[str, str]]] = [(-1, "", comments("seed"))]
    for number, line in enumerate(lines):
        found = SETTING_LINE.match(line)
        if not found:
            yield line
            continue
        depth, name = len(found[1]), found[2]
        while parts[-1][0] >= depth:
            parts.pop()
        _, group, meanings = parts[-1]
        meaning = meanings.get(name)
        if target := _class_of_part(lines[number + 1 :], depth + 2):
            inner = f"{group}/{name}" if group else name
            # A part without a group of its own is of the kind of its parent: `policy.inner` is a policy.
            inner = inner if config_files(f"{inner}/*.yaml") else group
            parts.append((depth, inner, comments(inner, target)))
        yield from _with_meaning(line, meaning)


def _class_of_part(lines: list[str], depth: int) -> str:
    """Return the line with the class of a part whose settings are indented by `depth`; empty without a class."""
    for line in lines:
        if not line.startswith(" " * depth):
            break
        if line.startswith("_target_", depth):
            return line.strip()
    return ""


def _with_meaning(line: str, meaning: str | None) -> Iterator[str]:
    """Yield a line with the meaning of its setting beside it, and further lines for the rest of a long meaning."""
    first, *rest = wrap(meaning or "", WIDTH - COLUMN) or [""]
    yield f"{line:<{COLUMN - 2}}  {first}" if first else line
    yield from (" " * COLUMN + more for more in rest)


NEEDS_LAUNCHERS = ("hydra/launcher", "+hydra/launcher", "--info", "--hydra-help")
"""Beginnings of arguments for which Hydra imports its launcher plugins."""

NAMED_BY_TIME = "${now:"  # text in the pattern of folders whose name contains the start time of the run


def run(arguments: Sequence[str]) -> None:
    """Compose the configuration from the command line and run it, or the sweep it describes."""
    # Hydra raises its errors, so that they can be printed in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    import_from_here()  # modules of user policies
    try:
        own, arguments = own_parser().parse_known_args(arguments)
    except ArgumentError as error:
        raise _wrong_option(error) from None
    if own.live and MULTIRUN & set(arguments):
        raise InvalidConfigError("run: --live cannot be used with -m, because it shows one run; leave one of them out")
    arguments = options_first([*arguments, *own_overrides(own, arguments)])
    check_options(arguments)
    sys.argv = ["polluxsim run", *as_hydra_takes(arguments)]
    outcome = _Outcome(live=own.live)
    explained = with_meanings() if {"--help", "-h"} & set(arguments) else nullcontext()
    mode = nullcontext() if may_set_mode(arguments) else mode_from_options()
    try:
        with searched_first(folders := user_folders(arguments)), explained, mode:
            report_replaced(folders)
            if not folders and not any(word.startswith(NEEDS_LAUNCHERS) for word in arguments):
                scan_plugins()
            hydra.main(version_base="1.3", config_path=str(shipped("configs")), config_name="run")(outcome.task)()
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        if isinstance(error, ValueError) and not is_hydras(error):
            raise  # not about the configuration, so a defect
        raise InvalidConfigError(hydra_in_words(error)) from error
    if outcome.error is not None:
        raise outcome.error


class _Outcome:
    """Keep an error until Hydra has returned, because Hydra would add lines to it."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self.error: Exception | None = None
        self._started = time()

    def task(self, config: DictConfig) -> None:
        try:
            with _own_folder(config, self._started) as output:
                _run_one(config, output, live=self._live)
        except Exception as error:  # noqa: BLE001  (raised again when Hydra is done)
            self.error = error


def _own_folder(config: DictConfig, since: float) -> AbstractContextManager[Path]:
    """Return the folder that Hydra made for a run.

    If its name is a time and another run has taken it, return a new folder.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    pattern = OmegaConf.to_container(hydra_config.run, resolve=False)
    if isinstance(pattern, dict) and NAMED_BY_TIME in str(pattern["dir"]):
        return claimed_anew(folder, since)
    return claimed(folder, lambda: resolved(config), since)


def _run_one(config: DictConfig, output: Path, *, live: bool) -> None:
    execution = Execution(config)
    for note in execution.workload.notes:
        print(f"{execution.workload.source}: {note}", file=sys.stderr)
    show_run = progress
    if live:
        from polluxsim.cli.live import live_view

        show_run = live_view
    with show_run(execution.workload, execution.cluster) as show, interruptible() as stop_if_interrupted:
        result, summary = execution.simulate(stop_if_interrupted, show)
    info = execution.info(summary)
    with uninterrupted():
        write_run(output, result, info)
        results_written()
    if summary is not None:
        gpus = [steady_gpus(Run(output.name, info, result))]
        console().print(SideBySide({output.name: summary}, gpus, user_values=[values_in(info)]))
    print(engine_waits(info["config"]["engine"]))
    print_remarks([output])
    print(f"wrote {output}")
