"""Run one simulation, or a sweep with `-m`, as a Hydra application: `polluxsim run`."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from time import time
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from polluxsim.cli.options import as_setting, as_workload, take, take_output
from polluxsim.common.errors import InvalidConfigError, NothingRanError, PolluxSimError, listed
from polluxsim.common.shipped import shipped
from polluxsim.look.console import console
from polluxsim.look.descriptions import engine_waits, print_remarks
from polluxsim.look.run_facts import steady_gpus
from polluxsim.look.side_by_side import SideBySide
from polluxsim.metrics.declared import values_in
from polluxsim.records.folders import info_of, remove_if_empty
from polluxsim.records.storage import Run, write_run
from polluxsim.run.claim import claimed, claimed_anew, remove_made
from polluxsim.run.composing import composing_error, get_args_parser, mode_from_options, scan_plugins
from polluxsim.run.configurations import (
    as_hydra_takes,
    import_from_here,
    quoted,
    report_replaced,
    searched_first,
)
from polluxsim.run.execution import Execution, resolved
from polluxsim.run.interrupt import ending_with, interruptible, results_written, uninterrupted
from polluxsim.run.progress_line import progress

MULTIRUN = {"-m", "--multirun"}  # options that ask for a sweep

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")  # settings of the output of a run and of a sweep

SEARCH_PATH = "hydra.searchpath="  # beginning of the override that names folders of configurations

SWEEPS = {"choice", "glob", "interval", "range", "shuffle", "sort"}  # functions of Hydra that give several values

NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|'[^']*'|\"[^\"]*\"")
"""Text in quotes, or in brackets without brackets of the same kind inside."""

SETS_MODE = r"hydra(\.mode|\.searchpath|@|/|=)|experiment=|conformance="
"""Beginning of an override that may set `hydra.mode`."""

NEEDS_LAUNCHERS = ("hydra/launcher", "+hydra/launcher", "--info", "--hydra-help")
"""Beginnings of arguments for which Hydra imports its launcher plugins."""

MOST_NAMED = 3  # largest number of runs that a message names

HYDRAS_COPIES = ("config.yaml", "hydra.yaml", "overrides.yaml")  # files that Hydra writes into `hydra.output_subdir`

NAMED_BY_TIME = "${now:"  # text in the pattern of folders whose name contains the start time of the run


def own_parser() -> ArgumentParser:
    """Return the parser of the options that Hydra does not know."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    take_output(parser, "folder for the results")
    take(parser, "workers")
    take(parser, "live")
    return parser


def own_overrides(own: Namespace, arguments: Sequence[str]) -> list[str]:
    """Return the overrides that stand for the options that Hydra does not know.

    The output sets the folder both of a run and of a sweep, because only Hydra knows which of them a command makes.
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
    for word in words:
        if word in with_value:
            options += [word, *islice(words, 1)]
        else:
            (options if word.startswith("-") else overrides).append(word)
    return options + overrides


def check_options(arguments: Sequence[str]) -> None:
    """Raise InvalidConfigError for unknown options, options and settings without a value, and other errors.

    The other errors are two `--config-dir`, and sweeps among other values. Hydra would report all of them unclearly.
    """
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        known, unknown = parser.parse_known_args(arguments)
    except ArgumentError as error:
        raise _wrong_option(error) from None
    if sum(word.startswith(("--config-d", "-cd")) for word in arguments) > 1:
        raise InvalidConfigError(
            "run: --config-dir is given twice, but it takes one folder; name more with hydra.searchpath=[DIR,DIR]"
        )
    if unknown:
        from polluxsim.cli.commands import similar_option

        name = unknown[0].partition("=")[0]
        actions = [*own_parser()._actions, *parser._actions]
        hint = as_setting(name) or similar_option(name, actions)
        raise InvalidConfigError(f"run: there is no option {name}{hint} ('polluxsim run --help' says more)")
    for word in known.overrides:
        if "=" not in word and not word.startswith("~"):
            advice = as_workload(word) or "write a setting as KEY=VALUE, without blanks or in quotes"
            raise InvalidConfigError(f"run: {word!r} has no value; {advice} ('polluxsim run --help' says more)")
        _check_values(word)


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
    if search_paths := [word for word in options.overrides if word.startswith(SEARCH_PATH)]:
        value = OverridesParser.create().parse_override(search_paths[0]).value()
        places = value if isinstance(value, list) else []
        names = [place.removeprefix("file://") for place in places if isinstance(place, str)]
        folders += [name for name in names if "://" not in name]  # not pkg:// and other places of Hydra
    return list(map(Path, folders))


def run(arguments: Sequence[str]) -> None:
    """Compose the configuration from the command line and run it, or the sweep that it describes.

    Raise InvalidConfigError if the command line or the configuration is invalid, and each error of the run itself.
    """
    # With this variable, Hydra raises its errors, and polluxsim prints them in one line.
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
    outcome = _Outcome(live=own.live, output=own.output)
    explained: AbstractContextManager[None] = nullcontext()
    if {"--help", "-h"} & set(arguments):
        from polluxsim.cli.help_of_run import with_meanings

        explained = with_meanings()
    mode = nullcontext() if may_set_mode(arguments) else mode_from_options()
    try:
        folders = user_folders(arguments)
        with searched_first(folders), explained, mode, ending_with(outcome.remove_unclaimed):
            report_replaced(folders)
            if not folders and not any(word.startswith(NEEDS_LAUNCHERS) for word in arguments):
                scan_plugins()
            hydra.main(version_base="1.3", config_path=str(shipped("configs")), config_name="run")(outcome.task)()
    except Exception as error:
        wrong_setting = None if isinstance(error, PolluxSimError) else composing_error(error, arguments)
        if wrong_setting is None:
            raise
        raise wrong_setting from error
    if outcome.error is not None:
        raise outcome.error


class _Outcome:
    """The task of Hydra. It keeps an error until Hydra has returned, because Hydra would add lines to the error."""

    def __init__(self, *, live: bool, output: Path | None) -> None:
        self._live = live
        self._output = output
        self.error: Exception | None = None
        self._started = time()
        self._is_claimed = False
        self._is_complete = False

    def task(self, config: DictConfig) -> None:
        try:
            with _own_folder(config, self._started) as output:
                self._is_claimed = True
                with ending_with(self._remove_hydras_files):
                    _run_one(config, output, live=self._live)
                    self._is_complete = True
            check_any_ran({output: info_of(output)})
        except Exception as error:  # noqa: BLE001  (raised again when Hydra is done)
            self.error = error

    def remove_unclaimed(self) -> None:
        """Remove the folder that Hydra made for a run, if the command ends before the run has reserved it."""
        folder = _folder_of_hydra() or self._output
        if folder is not None and not self._is_claimed:
            self._remove_hydras_files()
            remove_made(folder, self._started)

    def _remove_hydras_files(self) -> None:
        """Remove the files that Hydra has written for a run, unless the run is complete."""
        folder = _folder_of_hydra()
        if folder is None or self._is_complete:
            return
        settings: Any = HydraConfig.instance().cfg
        paths = [folder / f"{settings.hydra.job.name}.log"]
        if settings.hydra.output_subdir is not None:
            paths += [folder / str(settings.hydra.output_subdir) / name for name in HYDRAS_COPIES]
        for path in paths:
            if path.is_file() and path.stat().st_mtime >= self._started:
                path.unlink()
                if path.parent != folder:
                    remove_if_empty(path.parent)


def _folder_of_hydra() -> Path | None:
    """Return the folder that Hydra made for a run, None before it made one."""
    settings: Any = HydraConfig.instance().cfg
    folder = None if settings is None else OmegaConf.select(settings, "hydra.runtime.output_dir")
    return None if folder is None else Path(folder)


def _own_folder(config: DictConfig, since: float) -> AbstractContextManager[Path]:
    """Claim and return the folder that Hydra made for a run; `since` is the start of the command [s since 1970].

    If its name is a time and another run has taken it, return a new folder.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    pattern = OmegaConf.to_container(hydra_config.run, resolve=False)
    if isinstance(pattern, dict) and NAMED_BY_TIME in str(pattern["dir"]):
        return claimed_anew(folder, since)
    return claimed(folder, lambda: resolved(config), since)


def check_any_ran(infos: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raise NothingRanError if jobs of some run were submitted, and none of them ever got a GPU.

    `infos` contains the content of each run.json.
    """
    without = [folder for folder, info in infos.items() if _nothing_ran(info.get("summary") or {})]
    if not without:
        return
    names, run = listed((folder.name for folder in without), MOST_NAMED), str(without[0])
    if len(infos) > 1:
        names, run = f"{len(without)} of {len(infos)} runs ({names})", "RUN"
    raise NothingRanError(
        f"{names}: no job ever got a GPU, so that the metrics say nothing about the policy; 'polluxsim why {run} JOB' "
        "tells why a job waited"
    )


def _nothing_ran(summary: Mapping[str, Any]) -> bool:
    """Return whether jobs of a run were submitted, and none of them got a GPU, given the metrics of the run."""
    if "gpu_hours" not in summary or summary["gpu_hours"] > 0:
        return False
    num_submitted: int = summary["num_jobs"] - len(summary["not_submitted"])
    return num_submitted > 0


def _run_one(config: DictConfig, output: Path, *, live: bool) -> None:
    """Make one run, write it to its folder, and print its metrics."""
    execution = Execution(config, policy_entry=HydraConfig.get().runtime.choices.get("policy"))
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
    for word in HydraConfig.get().overrides.hydra:
        if word.lstrip("+").startswith(("hydra/launcher", "hydra.launcher")):
            print(f"polluxsim: {word} has no effect on one run; add -m for a sweep, or leave it out", file=sys.stderr)
    print(f"wrote {output}")
