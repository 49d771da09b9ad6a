"""Commands that print finished runs as tables: `table` and `compare`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from polluxsim.cli.options import DATASET, add_forms, add_option, add_runs, add_window, window_of

if TYPE_CHECKING:
    import pandas as pd

    from polluxsim.metrics.summary import Summary
    from polluxsim.records.storage import Run
    from polluxsim.statistics.windows import SubmissionWindow

TENANTS = ("user", "queue")  # values of --ranks and --energy

RANKED_BY = ("wait", "restarts", "jct", "rho")  # values of --sort

OF_ENERGY = ("gpu-type", "power", "busy-share", "pue")  # options that only --energy uses


def add_table(parser: ArgumentParser) -> None:
    parser.description = (
        "Print the metrics of runs as a table. Up to four runs stand side by side, with changes against the baseline. "
        "A sweep has a row for each setting: means over seeds and workloads with 95 % intervals, changes over pairs "
        "of runs, and a verdict on each change."
    )
    parser.epilog = "Example: polluxsim table SWEEP --metric avg_jct --metric makespan --markdown"
    add_runs(parser, DATASET)
    add_option(parser, "metric", note="(default: six metrics)")
    add_option(parser, "baseline", note="(default: the first run, or the first setting with the same workload)")
    add_option(parser, "by", once=True, note="with a table for each value")
    add_option(parser, "ranks", choices=TENANTS)
    add_option(parser, "jobs")
    add_option(parser, "sort", choices=RANKED_BY, note="(default: wait)")
    add_option(parser, "energy", choices=TENANTS)
    for name in OF_ENERGY:
        add_option(parser, name)
    add_window(parser)
    add_forms(parser, "markdown", "latex", "csv", "json")
    parser.set_defaults(action=_table)


def _table(options: Namespace) -> None:
    """Print the energy, the ranks, a row for each setting, or a few runs side by side, as the options choose."""
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import loss_noun, print_from_before
    from polluxsim.look.run_facts import steady_gpus
    from polluxsim.look.side_by_side import SideBySide
    from polluxsim.metrics.declared import values_in
    from polluxsim.records.folders import without_sweep_files
    from polluxsim.statistics.metric_lines import first_of_same_jobs
    from polluxsim.statistics.windows import is_in_window

    options.runs = without_sweep_files(options.runs)
    window = window_of(options)
    if options.energy:
        _print_energy(options)
        return
    _refuse_without_energy(options)
    if options.jobs or options.sort:
        _print_jobs(options)
    elif options.ranks:
        from polluxsim.look.rank_table import rank_table

        _refuse_beside_ranks(options)
        results = {name: [run.result] for name, run in _in_window(_runs(options.runs), window).items()}
        console().print(rank_table(results, options.ranks))
    elif options.form or options.metric or options.by or not _are_few_runs(options.runs):
        _print_settings(options)
    else:
        runs = _in_window(_runs(options.runs, options.baseline), window)
        # A change against a run with other jobs would compare the jobs, not the policies.
        bases = first_of_same_jobs([run.result for run in runs.values()])
        summaries = {name: _summary(run) for name, run in runs.items()}
        user_values = [values_in(run.info) for run in runs.values()]
        print_from_before(runs.values())
        gpus = list(map(steady_gpus, runs.values()))
        is_shown = _all_metrics if window is None else is_in_window
        losses = loss_noun(runs.values())
        console().print(SideBySide(summaries, gpus, bases, user_values, is_shown, losses))
        for name, run in runs.items():
            for note in run.info.get("notes", ()):
                print(f"{name}: {note}")
        # The stored bounds are on the metrics of all jobs.
        if window is None:
            _print_bounds({name: [run] for name, run in runs.items()})


def _print_jobs(options: Namespace) -> None:
    """Print the jobs of each run, ranked by --sort.

    Raise InvalidConfigError if an option has no effect on jobs, or the inputs are not a few folders of runs.
    """
    from polluxsim.common.errors import InvalidConfigError
    from polluxsim.look.console import console
    from polluxsim.look.job_table import job_table

    if not options.jobs:
        raise InvalidConfigError(f"--sort {options.sort} ranks jobs; give --jobs too")
    for name in ("form", "metric", "baseline", "by", "ranks", "from", "to"):
        if getattr(options, name):
            option = options.form if name == "form" else name
            raise InvalidConfigError(f"--jobs cannot be used with --{option}; leave one out")
    if not _are_few_runs(options.runs):
        raise InvalidConfigError("--jobs takes up to four folders of runs, but other inputs are given")
    for run in _runs(options.runs).values():
        console().print(job_table(run, options.sort or RANKED_BY[0]))


def _print_bounds(runs: Mapping[str, Sequence[Run]], metrics: Sequence[str] = ()) -> None:
    """Print the best possible values of metrics that `polluxsim bound` stored, and the gaps of runs by their labels."""
    from polluxsim.look.best_possible import stored_table
    from polluxsim.look.console import console

    table = stored_table(runs, metrics)
    if table is not None:
        console().print(table)


def _have_bounds(folders: Sequence[Path]) -> bool:
    """Return whether a run in or below one of the folders stores bounds; False if a table of a sweep is given."""
    from polluxsim.records.bounds import BOUND_FILE
    from polluxsim.records.folders import run_folders
    from polluxsim.statistics.frames import PARQUET

    if any(folder.suffix == PARQUET for folder in folders):
        return False
    return any((folder / BOUND_FILE).is_file() for folder in run_folders(folders))


def _print_energy(options: Namespace) -> None:
    """Print the energy of each run by user or queue, and the assumptions.

    Raise InvalidConfigError if an option about metrics is given, or the inputs are not a few folders of runs.
    """
    from polluxsim.common.errors import InvalidConfigError
    from polluxsim.look.console import console
    from polluxsim.look.energy_table import assumptions, energy_table
    from polluxsim.statistics.energy import Consumption, energy_of

    for name in ("form", "metric", "baseline", "by", "ranks", "from", "to"):
        if getattr(options, name):
            option = options.form if name == "form" else name
            raise InvalidConfigError(f"--energy cannot be used with --{option}, which is about metrics; leave one out")
    if not _are_few_runs(options.runs):
        raise InvalidConfigError("--energy takes up to four folders of runs, but other inputs are given")
    # Without an option, `Consumption` has the default.
    factors = {}
    if options.busy_share:
        factors["busy_share"] = options.busy_share
    if options.pue:
        factors["pue"] = options.pue
    consumption = Consumption(dict(options.power or ()), options.gpu_type, **factors)
    for name, run in _runs(options.runs).items():
        energy = energy_of(run, options.energy, consumption)
        unused = consumption.power.keys() - energy.power.keys()
        if unused:
            types = ", ".join(energy.power)
            raise InvalidConfigError(f"--power names {min(unused)}, but the GPUs of {name} are of type {types}")
        console().print(energy_table(energy, options.energy, name))
        for sentence in assumptions(energy, consumption):
            print(sentence)


def _refuse_without_energy(options: Namespace) -> None:
    """Raise InvalidConfigError if an option about power is given without --energy."""
    from polluxsim.common.errors import InvalidConfigError

    for name in OF_ENERGY:
        if getattr(options, name.replace("-", "_")) is not None:
            raise InvalidConfigError(f"--{name} has no effect without --energy; add --energy user or --energy queue")


def _all_metrics(field: str) -> bool:
    """Return True: without a window, each metric has a meaning."""
    return True


def _in_window(runs: Mapping[str, Run], window: SubmissionWindow | None) -> dict[str, Run]:
    """Return runs with only the jobs of a window, and print which jobs count; the whole runs without a window."""
    if window is None:
        return dict(runs)
    for sentence in window.sentences(list(runs.values())):
        print(sentence)
    return {name: window.of(run) for name, run in runs.items()}


def _frame_in_window(options: Namespace, window: SubmissionWindow) -> pd.DataFrame:
    """Return a row for each run with the metrics in a window, and print which jobs count.

    If the table has another form than text, the sentences go to standard error. Raise InvalidInputError for the table
    of a sweep.
    """
    from polluxsim.common.errors import InvalidInputError
    from polluxsim.statistics.frames import PARQUET, runs_at
    from polluxsim.statistics.windows import frame_in

    tables = [path for path in options.runs if path.suffix == PARQUET]
    if tables:
        raise InvalidInputError(
            f"{tables[0]} has no times of submission, which --from and --to need; give the folder of the sweep"
        )
    runs = runs_at(options.runs)
    stream = sys.stderr if options.form else sys.stdout
    for sentence in window.sentences(runs):
        print(sentence, file=stream)
    return frame_in(window, runs)


def _refuse_beside_ranks(options: Namespace) -> None:
    """Raise InvalidConfigError if --ranks is given for a sweep, or with an option that has no effect on ranks."""
    from polluxsim.common.errors import InvalidConfigError

    if options.form:
        raise InvalidConfigError(f"--ranks cannot be used with --{options.form}, because it prints text; leave one out")
    if options.metric:
        raise InvalidConfigError(
            "--ranks cannot be used with --metric, because its table has no metrics; leave one out"
        )
    if options.by:
        raise InvalidConfigError("--ranks cannot be used with --by, because its table has no settings; leave one out")
    if options.baseline:
        raise InvalidConfigError(
            "--ranks cannot be used with --baseline, because its table has no changes; leave one out"
        )
    if not _are_few_runs(options.runs):
        raise InvalidConfigError(
            "--ranks takes up to four folders of runs, but other inputs are given; for a sweep, use 'polluxsim compare "
            "--ranks'"
        )


def _are_few_runs(paths: Sequence[Path]) -> bool:
    """Return whether paths are folders of single runs, so few that all of them stand side by side."""
    from polluxsim.look.side_by_side import MOST_COLUMNS
    from polluxsim.records.folders import runs_below
    from polluxsim.statistics.frames import PARQUET

    # First, because the search below folders takes long.
    if len(paths) > MOST_COLUMNS:
        return False
    return not any(path.suffix == PARQUET or runs_below(path) for path in paths)


def _print_settings(options: Namespace) -> None:
    """Print a table with a row for each setting, in the form that the options choose."""
    from polluxsim.look.settings_tables import FORMS, as_text
    from polluxsim.statistics.comparisons import settings_table
    from polluxsim.statistics.frames import frame_at

    window = window_of(options)
    frame = frame_at(options.runs) if window is None else _frame_in_window(options, window)
    if options.by:
        _print_by_value(options, frame)
        return
    table = settings_table(frame, options.metric or (), options.baseline)
    if options.form is not None:
        print(FORMS[options.form](table))
        return
    print(as_text(table, _width()))
    if window is None and _have_bounds(options.runs):
        from polluxsim.statistics.comparisons import runs_by_setting
        from polluxsim.statistics.frames import runs_at

        _print_bounds(runs_by_setting(runs_at(options.runs)), options.metric or ())


def _print_by_value(options: Namespace, frame: pd.DataFrame) -> None:
    """Print a table for each value of the setting of --by, with this value as its heading."""
    from polluxsim.common.errors import InvalidConfigError
    from polluxsim.look.settings_tables import FORMS, as_text
    from polluxsim.statistics.comparisons import settings_table
    from polluxsim.statistics.frames import parts_by_value
    from polluxsim.statistics.groups import in_words

    if options.form in ("csv", "json"):
        raise InvalidConfigError(
            f"--by cannot be used with --{options.form}, which is one table for programs; leave one out"
        )
    for number, (value, part) in enumerate(parts_by_value(frame, options.by)):
        table = settings_table(part, options.metric or (), options.baseline)
        heading = str(value)
        if options.by != "policy":
            heading = in_words(options.by, value)
        if number:
            print()
        if options.form == "latex":
            print(f"% {heading}")
        elif options.form == "markdown":
            print(f"### {heading}\n")
        else:
            print(f"{heading}\n")
        print(FORMS[options.form](table) if options.form else as_text(table, _width()))


def _width() -> int:
    """Return the width of tables as text [characters]."""
    from polluxsim.look.console import console

    # A file has a fixed width, so that equal runs give equal files on each terminal.
    return console().width if sys.stdout.isatty() else 80


def _runs(folders: Sequence[Path], baseline: str | None = None) -> dict[str, Run]:
    """Return runs by the names that `distinct_names` gives, the baseline first."""
    from polluxsim.look.descriptions import distinct_names
    from polluxsim.records.storage import read_run
    from polluxsim.statistics.groups import baseline_first

    runs = [read_run(folder) for folder in folders]
    # By identity, because equal runs in two folders have two names.
    name_of = {id(run): name for run, name in zip(runs, distinct_names(runs), strict=True)}
    return {name_of[id(run)]: run for run in baseline_first(runs, baseline)}


def _summary(run: Run) -> Summary:
    """Return the metrics of a run. Raise InvalidInputError if no metric counts a job of it."""
    from polluxsim.metrics.summary import summarise

    run.must_have_metrics()
    return cast("Summary", summarise(run.result))


def add_compare(parser: ArgumentParser) -> None:
    parser.description = (
        "Compare each setting with a baseline over pairs of runs that have the same workload and seed. The command "
        "prints changes with 95 % intervals, changes for each application, and the jobs that lose most."
    )
    parser.epilog = "Example: polluxsim compare SWEEP --baseline policy=fifo"
    add_runs(parser)
    add_option(parser, "by", once=True, note="all other settings of a pair are equal")
    add_option(parser, "baseline", note="(default: the first setting with the same workload)")
    add_option(parser, "ranks", choices=TENANTS)
    add_window(parser)
    parser.set_defaults(action=_compare)


def _compare(options: Namespace) -> None:
    """Print the comparison of settings over pairs of runs, then bounds and ranks."""
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import print_from_before
    from polluxsim.look.rank_table import rank_table
    from polluxsim.look.settings_tables import comparison_text
    from polluxsim.statistics.comparisons import by_setting, compared, compared_from_forks, runs_by_setting
    from polluxsim.statistics.frames import runs_at

    runs = runs_at(options.runs)
    window = window_of(options)
    if window is not None:
        for sentence in window.sentences(runs):
            print(sentence)
        runs = [window.of(run) for run in runs]
    print_from_before(runs)
    comparisons = compared(runs, options.by, options.baseline)
    from_forks = compared_from_forks(runs, options.by, options.baseline)
    print(comparison_text(comparisons, from_forks))
    if window is None and _have_bounds(options.runs):
        _print_bounds(runs_by_setting(runs, options.by))
    if options.ranks:
        console().print(rank_table(by_setting(runs, options.by), options.ranks))
