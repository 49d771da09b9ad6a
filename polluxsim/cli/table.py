"""`polluxsim table`: finished runs side by side, or the settings of a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from polluxsim.cli import option_help

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from polluxsim.metrics.summary import Summary
    from polluxsim.storage import Run


TENANTS = ("user", "queue")

LONGEST_NAME = 24
"""Runs in folders with longer names, like those of sweeps, are named by the settings that differ."""

"""Help of the option that all commands with a baseline have."""


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Print the metrics of runs as a table. Up to four runs stand side by side, with changes against the baseline. "
        "A sweep has a row for each setting: means over seeds and workloads with 95 % intervals, changes over pairs "
        "of runs, and a verdict on each change."
    )
    parser.epilog = "Example: polluxsim table SWEEP --metric avg_jct --metric makespan --markdown"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help=f"{option_help.RUNS}, or a sweep's Parquet dataset")  # fmt: skip
    parser.add_argument("--metric", action="append", metavar="NAME",
                        help=f"metric like p50_jct; {option_help.REPEATED} (default: six metrics)")  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=option_help.BASELINE)
    parser.add_argument("--by", choices=TENANTS, help="rank users or queues by the waits of their jobs")
    forms = parser.add_mutually_exclusive_group()
    kinds = {"markdown": "Markdown", "latex": "LaTeX", "csv": "CSV, a column for each number", "json": "JSON"}
    for form, what in kinds.items():
        forms.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=f"write {what}")
    parser.set_defaults(action=_table)


def _table(options: Namespace) -> None:
    from polluxsim.folders import without_sweep_files
    from polluxsim.look.console import console
    from polluxsim.look.metric_lines import first_of_same_jobs
    from polluxsim.look.ranks import rank_table
    from polluxsim.look.run_cluster import steady_gpus
    from polluxsim.look.table import SideBySide
    from polluxsim.metrics.declared import values_in

    options.runs = without_sweep_files(options.runs)
    if options.by:
        _refuse_beside_ranks(options)
        results = {name: [run.result] for name, run in _runs(options.runs).items()}
        console().print(rank_table(results, options.by))
    elif options.form or options.metric or not _are_few_runs(options.runs):
        _print_settings(options)
    else:
        runs = _runs(options.runs, options.baseline)
        bases = first_of_same_jobs([run.result for run in runs.values()])
        summaries = {name: _summary(run) for name, run in runs.items()}
        user_values = [values_in(run.info) for run in runs.values()]
        console().print(SideBySide(summaries, list(map(steady_gpus, runs.values())), bases, user_values))


def _refuse_beside_ranks(options: Namespace) -> None:
    from polluxsim.errors import InvalidConfigError

    given = {"metric": "--metric", "baseline": "--baseline", "form": f"--{options.form}"}
    other = [text for name, text in given.items() if getattr(options, name)]
    if other or not _are_few_runs(options.runs):
        what = other[0] if other else "a sweep"
        words = "--by takes up to four runs; for a sweep, use 'polluxsim compare --ranks'"
        raise InvalidConfigError(f"--by is given with {what}: {words}")


def _are_few_runs(paths: Sequence[Path]) -> bool:
    from polluxsim.folders import runs_below
    from polluxsim.look.reading import PARQUET
    from polluxsim.look.table import MOST_COLUMNS

    return len(paths) <= MOST_COLUMNS and not any(path.suffix == PARQUET or runs_below(path) for path in paths)


def _print_settings(options: Namespace) -> None:
    from polluxsim.look.console import console
    from polluxsim.look.reading import frame_at
    from polluxsim.look.replication import settings_table
    from polluxsim.look.settings_text import FORMS, as_text

    table = settings_table(frame_at(options.runs), options.metric or (), options.baseline)
    width = console().width if sys.stdout.isatty() else 80
    print(as_text(table, width) if options.form is None else FORMS[options.form](table))


def _runs(folders: Sequence[Path], baseline: str | None = None) -> dict[str, Run]:
    """Return runs by unique names, the baseline first: folders, or the settings that differ where folders are long."""
    from polluxsim.look.groups import baseline_first
    from polluxsim.look.report.titles import labels
    from polluxsim.storage import read_run

    runs = [read_run(folder) for folder in folders]
    names = [run.name for run in runs]
    if max(map(len, names)) > LONGEST_NAME:
        names = labels(runs)
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    named = {id(run): name for run, name in zip(runs, names, strict=True)}
    return {named[id(run)]: run for run in baseline_first(runs, baseline)}


def _summary(run: Run) -> Summary:
    from polluxsim.metrics.summary import summarise

    run.must_have_jobs()
    return cast("Summary", summarise(run.result))
