"""Commands that compare with published numbers: `paper reproduce` and `paper conformance`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.commands import NO
from polluxsim.cli.options import add_option, add_output
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from polluxsim.studies.paper.experiments import Inputs
    from polluxsim.studies.paper.reproduction import ReproductionRequest

ALL = "all"  # name that stands for all tables and figures of Pollux
LIST = "list"  # name that stands for a list of the names
DATA_FOLDER = "POLLUXSIM_DATA"  # environment variable with the folder of published data
GENERATED_SEEDS = 8  # default number of generated workloads, as in the paper

MEASURED_SEEDS = 6
"""Default number of runs of each published workload. Fewer runs of Pollux's random search give no interval."""


def add_paper_reproduce(parser: ArgumentParser) -> None:
    parser.description = (
        "Reproduce tables and figures of the Pollux paper, or of another paper. The command makes the runs, prints "
        "each number beside the published one with a verdict, and draws the figures."
    )
    parser.epilog = "Example: polluxsim paper reproduce table2 fig6 --seeds 4"
    words = "table or figure, like table2, or 'all'; 'list' prints all names. KEY=VALUE is a setting of every run"
    parser.add_argument("names", nargs="+", metavar="NAME", help=words)
    add_option(parser, "profiles")
    add_option(parser, "workloads", note="(default: generated workloads)")
    add_data(parser)
    add_output(parser, "folder for the runs", "reproduced")
    add_option(parser, "seeds", note="of generated workloads (default: 8), or of each published workload (default: 6)")
    add_option(parser, "until")
    add_option(parser, "most-seeds", default=40)
    add_option(parser, "num-jobs", default=160, note="of a generated workload at load 1")
    add_option(parser, "workers")
    add_option(parser, "check")
    parser.set_defaults(action=_reproduce)


def add_data(parser: ArgumentParser) -> None:
    """Declare the option for the folder of published data."""
    add_option(parser, "data", note=f"(default: the variable {DATA_FOLDER})")
    folder = os.environ.get(DATA_FOLDER)
    if folder:
        parser.set_defaults(data=Path(folder))


def _reproduce(options: Namespace) -> int:
    """Reproduce the named tables and figures. Each is written as soon as its runs are finished.

    Return the exit status: 1 if one of several could not be made, or with --check, if a published number is not met.
    """
    from polluxsim.look.console import console
    from polluxsim.studies.paper.experiments import experiment_names, other_systems, read_experiment
    from polluxsim.studies.paper.reproduction import batch_of

    named = [word for word in options.names if "=" not in word]
    if LIST in named:
        for name in (*experiment_names(), *other_systems()):
            print(f"{name:12}{read_experiment(name).title}")
        return 0
    chosen = list(dict.fromkeys(named))
    if ALL in named:
        chosen = experiment_names()
    if not chosen:
        choices = ", ".join([*experiment_names(), *other_systems()])
        raise InvalidConfigError(f"no table or figure is named; choose from {choices} and {ALL}")
    experiments = [read_experiment(name) for name in chosen]
    for option in ("profiles", "workloads"):
        if getattr(options, option) is not None and all(experiment.needs_data for experiment in experiments):
            raise InvalidConfigError(
                f"--{option} has no effect on {', '.join(chosen)}: all inputs are in --data; leave it out"
            )
    request = _request(options, [word for word in options.names if "=" in word])
    # A wrong path of the profiles is reported before the first run.
    request.inputs.load_profiles()
    batch = batch_of(experiments, request)
    console().print(f"on {request.inputs}", soft_wrap=True)
    batch.do(request)
    num_met = batch.counts[True]
    num_not_met = batch.counts[False]
    console().print(f"{num_met} of {num_met + num_not_met} published numbers are met; wrote {request.folder}")
    if batch.failures or (options.check and num_not_met):
        return NO
    return 0


def _request(options: Namespace, extra: Sequence[str]) -> ReproductionRequest:
    """Return the request of a reproduction. `extra` contains the overrides: of runs, and of Hydra's launcher."""
    from polluxsim.studies.paper.experiments import Inputs
    from polluxsim.studies.paper.reproduction import ReproductionRequest
    from polluxsim.studies.paper.runs import RunPlace

    if options.data is not None:
        _check_data(options.data)
    inputs = Inputs(options.profiles, options.workloads, options.num_jobs, options.data)
    seeds = options.seeds or (MEASURED_SEEDS if inputs.is_measured else GENERATED_SEEDS)
    place = RunPlace(
        options.output / "runs", options.workers, tuple(word for word in extra if word.startswith("hydra"))
    )
    of_runs = tuple(word for word in extra if not word.startswith("hydra"))
    return ReproductionRequest(
        inputs, seeds, max(seeds, options.most_seeds), options.until, of_runs, options.output, place
    )


def add_paper_conformance(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare polluxsim with the published numbers of other simulators. The command makes the runs for which the "
        "data folder has the inputs. A second call makes only the runs that are missing."
    )
    parser.epilog = "Example: polluxsim paper conformance --data DATA"
    add_data(parser)
    add_option(parser, "all")
    add_output(parser, "folder for the runs and the table", "conformance")
    add_option(parser, "workers")
    parser.set_defaults(action=_conformance)


def _conformance(options: Namespace) -> int:
    """Compare with published numbers, print and write the comparison, and return the exit status."""
    from polluxsim.common.files import atomic_write
    from polluxsim.look.console import console
    from polluxsim.studies.paper.conformance import (
        conformance_experiments,
        conformance_frame,
        conformance_table,
        judged,
        left_out,
        why_not,
    )
    from polluxsim.studies.paper.reproduction import ReproductionRequest, batch_of
    from polluxsim.studies.paper.runs import RunPlace

    inputs = _inputs(options)
    experiments = conformance_experiments(inputs, everything=options.all)
    if not experiments:
        raise InvalidInputError(f"{inputs.data}: has no data of published numbers; it must contain rigid/, osdi21/, …")
    request = ReproductionRequest(
        inputs, 1, 1, None, (), options.output, RunPlace(options.output / "runs", options.workers)
    )
    batch = batch_of(experiments, request)
    rows = judged(batch.outcomes(request))
    console().print(conformance_table(rows))
    for note in (*why_not(rows), *left_out(inputs, everything=options.all)):
        console().print(f"  {note}", style="dim")
    with atomic_write(options.output / "conformance.csv") as path:
        conformance_frame(rows).to_csv(path, index=False, lineterminator="\n")
    met = sum(row.verdict.passed is True for _, row in rows)
    console().print(f"{met} of {len(rows)} published numbers are met; wrote {options.output / 'conformance.csv'}")
    if batch.failures or met < len(rows):
        return NO
    return 0


def _check_data(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder; give the folder that contains rigid/, osdi21/, …")


def _inputs(options: Namespace) -> Inputs:
    """Return the inputs of a conformance: measured profiles and workloads if the folder of data has osdi21/.

    Raise InvalidConfigError if no folder of data is given, and InvalidInputError if there is no such folder.
    """
    from polluxsim.studies.paper.experiments import Inputs

    if options.data is None:
        raise InvalidConfigError(f"the folder of published data is missing; give it with --data DIR or {DATA_FOLDER}")
    _check_data(options.data)
    measured = options.data / "osdi21"
    if not measured.is_dir():
        return Inputs(None, None, data=options.data)
    return Inputs(measured, measured, data=options.data)
