"""Run one simulation, or a sweep with `-m`: `polluxsim run`."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from polluxsim.cli.options import add_option, add_output, as_setting, as_workload
from polluxsim.common.errors import InvalidConfigError, NothingRanError, listed
from polluxsim.look.console import console
from polluxsim.look.descriptions import engine_waits, loss_noun, print_remarks
from polluxsim.look.run_facts import steady_gpus
from polluxsim.look.side_by_side import SideBySide
from polluxsim.metrics.declared import values_in
from polluxsim.records.folders import info_of
from polluxsim.records.storage import Run, write_run
from polluxsim.run.claim import claimed, claimed_anew
from polluxsim.run.configurations import CONFIG_NAME, import_from_here, quoted, report_replaced, searched_first
from polluxsim.run.execution import Execution
from polluxsim.run.interrupt import interruptible, results_written, uninterrupted
from polluxsim.run.progress_line import progress
from polluxsim.run.remembered import FOLDERS, CommandMemory
from polluxsim.run.spec import Described, OneRun, RunSpec

SEARCH_PATH = "hydra.searchpath="  # beginning of the override that names folders of configurations

SWEEPS = {"choice", "glob", "interval", "range", "shuffle", "sort"}  # functions of Hydra that give several values

NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|'[^']*'|\"[^\"]*\"")
"""Text in quotes, or in brackets without brackets of the same kind inside."""

MOST_NAMED = 3  # largest number of runs that a message names

SAYS_MORE = "('polluxsim run --help' says more)"  # end of messages about the command line


def parser_of_run() -> ArgumentParser:
    """Return the parser of the options of the command."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_output(parser, "folder for the results")
    add_option(parser, "workers")
    add_option(parser, "live")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn", default=CONFIG_NAME)
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    return parser


def parsed_command(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Return the options of a command line, and its overrides with those that `-o` and `--workers` stand for.

    Raise InvalidConfigError for unknown options, options and settings without a value, two `--config-dir`, and sweeps
    among other values.
    """
    parser = parser_of_run()
    try:
        options, words = parser.parse_known_args(arguments)
    except ArgumentError as error:
        from polluxsim.cli.commands import in_words

        raise InvalidConfigError(f"run: {in_words(str(error))} {SAYS_MORE}") from None
    if options.live and options.multirun:
        raise InvalidConfigError("run: --live cannot be used with -m, because it shows one run; leave one of them out")
    overrides = [word for word in words if not word.startswith("-")]
    # After the words of the user: the last of two values of a setting counts.
    overrides += _overrides_of(options, overrides)
    if sum(word.startswith(("--config-dir", "-cd")) for word in arguments) > 1:
        raise InvalidConfigError(
            "run: --config-dir is given twice, but it takes one folder; name more with hydra.searchpath=[DIR,DIR]"
        )
    unknown = [word for word in words if word.startswith("-")]
    if unknown:
        from polluxsim.cli.commands import similar_option

        name = unknown[0].partition("=")[0]
        hint = as_setting(name) or similar_option(name, parser._actions)
        raise InvalidConfigError(f"run: there is no option {name}{hint} {SAYS_MORE}")
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            advice = as_workload(word) or "write a setting as KEY=VALUE, without blanks or in quotes"
            raise InvalidConfigError(f"run: {word!r} has no value; {advice} {SAYS_MORE}")
        _check_values(word)
    return options, overrides


def _overrides_of(options: Namespace, overrides: Sequence[str]) -> list[str]:
    """Return the overrides that stand for options.

    The output sets the folder both of a run and of a sweep, because a configuration may ask for a sweep. Raise
    InvalidConfigError if an override also names the output.
    """
    added = []
    if options.workers is not None:
        added.append(f"hydra.sweeper.workers={options.workers}")
    if options.output is not None:
        twice = [word for word in overrides if word.partition("=")[0] in FOLDERS and "=" in word]
        if twice:
            raise InvalidConfigError(
                f"run: -o {options.output} and {twice[0]} both name the output; leave one of them out"
            )
        # Quoted, because a name may have characters with a meaning in Hydra's grammar.
        added += [f"{setting}={quoted(str(options.output))}" for setting in FOLDERS]
    return added


def _check_values(argument: str) -> None:
    """Raise InvalidConfigError for range(…) and similar sweeps among other values."""
    key, _, text = argument.partition("=")
    # Only the commas outside of brackets separate values. The innermost brackets vanish first.
    longer = ""
    while text != longer:
        longer = text
        text = NESTED.sub("", longer)
    values = [value.strip() for value in text.split(",")]
    sweeps = SWEEPS.intersection(values)
    if len(values) > 1 and sweeps:
        raise InvalidConfigError(
            f"{argument}: {min(sweeps)}(…) cannot stand among other values; write every value, as in {key}=0,1,5"
        )


def folders_of(config_dir: str | None, overrides: Sequence[str]) -> list[Path]:
    """Return the user's folders of configurations: that of `--config-dir`, then those of `hydra.searchpath`."""
    folders = [] if config_dir is None else [config_dir]
    search_paths = [word for word in overrides if word.startswith(SEARCH_PATH)]
    if search_paths:
        from polluxsim.run.composing import values_of

        (value,) = values_of(search_paths[:1]).values()
        places = value if isinstance(value, list) else []
        names = [place.removeprefix("file://") for place in places if isinstance(place, str)]
        folders += [name for name in names if "://" not in name]  # not pkg:// and other places of Hydra
    return list(map(Path, folders))


def run(arguments: Sequence[str]) -> None:
    """Compose the run, or the sweep, that a command line describes, and make it.

    Raise InvalidConfigError if the command line or the configuration is invalid, and each error of the run itself.
    """
    started = time()
    import_from_here()  # modules of user policies
    options, overrides = parsed_command(arguments)
    folders = folders_of(options.config_dir, overrides)
    with searched_first(folders):
        report_replaced(folders)
        if options.help:
            from polluxsim.cli.help_of_run import with_meanings
            from polluxsim.run.composing import help_text

            print(with_meanings(help_text(overrides, options.config_name)))
            return
        if options.cfg is not None:
            print(_configuration_text(options, overrides), end="")
            return
        described = _described(options, overrides)
        for sentence in described.without_effect:
            print(f"polluxsim: {sentence}", file=sys.stderr)
        if isinstance(described, OneRun):
            with _own_folder(described, started) as output:
                _run_one(described.spec, output, live=options.live)
            check_any_ran({output: info_of(output)})
        else:
            from polluxsim.cli.sweep import make_sweep

            check_any_ran({folder: info_of(folder) for folder in make_sweep(described)})


def _described(options: Namespace, overrides: Sequence[str]) -> Described:
    """Return the run or the sweep that a command line describes, perhaps as an earlier process has composed it."""
    memory = CommandMemory(overrides, options.config_name)
    if not options.multirun:
        remembered = memory.recall()
        if remembered is not None:
            return remembered
    # Imported only now, because loading Hydra takes a large part of the time of a short run.
    from polluxsim.run.composing import read_command

    described = read_command(overrides, is_sweep=options.multirun, name=options.config_name)
    if isinstance(described, OneRun):
        memory.keep(described)
    return described


def _configuration_text(options: Namespace, overrides: Sequence[str]) -> str:
    """Return the composed configuration that `--cfg` asks for. Raise InvalidConfigError if it has no such part."""
    from polluxsim.run.composing import printed

    text = printed(overrides, options.cfg, options.package, is_resolved=options.resolve, name=options.config_name)
    if text is None:
        raise InvalidConfigError(f"run: --package {options.package} is no part of the configuration; leave it out")
    return text


def _own_folder(described: OneRun, since: float) -> AbstractContextManager[Path]:
    """Return a context manager that claims the folder of a run; `since` is the start of the command [s since 1970].

    If the name of the folder is a time and another run has taken it, a new folder is claimed.
    """
    folder = described.folder(datetime.fromtimestamp(since)).absolute()
    if described.is_named_by_time:
        return claimed_anew(folder, since)
    return claimed(folder, lambda: described.spec.config, since)


def check_any_ran(infos: Mapping[Path, Mapping[str, Any]]) -> None:
    """Raise NothingRanError if jobs of some run were submitted, and none of them ever got a GPU.

    `infos` contains the content of each run.json.
    """
    without = [folder for folder, info in infos.items() if _nothing_ran(info.get("summary") or {})]
    if not without:
        return
    names = listed((folder.name for folder in without), MOST_NAMED)
    run = str(without[0])
    if len(infos) > 1:
        names = f"{len(without)} of {len(infos)} runs ({names})"
        run = "RUN"
    raise NothingRanError(
        f"{names}: no job ever got a GPU, so that the metrics say nothing about the policy; 'polluxsim why {run} JOB' "
        "tells why a job waited"
    )


def _nothing_ran(summary: Mapping[str, Any]) -> bool:
    """Return whether jobs of a run were submitted, and none of them got a GPU, given the metrics of the run."""
    if "gpu_hours" not in summary or summary["gpu_hours"] > 0:
        return False
    # A horizon before the first submission is no fault of the policy.
    num_submitted: int = summary["num_jobs"] - len(summary["not_submitted"])
    return num_submitted > 0


def _run_one(spec: RunSpec, output: Path, *, live: bool) -> None:
    """Make one run, write it to its folder, and print its metrics."""
    execution = Execution(spec)
    # Before the simulation, because a note may be a reason to stop the command.
    for note in execution.workload.notes:
        print(f"{execution.workload.source}: {note}", file=sys.stderr)
    show_run = progress
    if live:
        from polluxsim.cli.live import live_view

        show_run = live_view
    with show_run(execution.workload, execution.cluster) as show, interruptible() as stop_if_interrupted:
        finished = execution.simulate(stop_if_interrupted, show)
    with uninterrupted():
        write_run(output, finished.result, finished.info)
        results_written()
    # After the folder is written: a closed pipe must not lose the run.
    if finished.summary is not None:
        run = Run(output.name, finished.info, finished.result)
        summaries = {output.name: finished.summary}
        user_values = [values_in(finished.info)]
        table = SideBySide(summaries, [steady_gpus(run)], user_values=user_values, losses=loss_noun([run]))
        console().print(table)
    print(engine_waits(finished.info["config"]["engine"]))
    print_remarks([output])
    print(f"wrote {output}")
