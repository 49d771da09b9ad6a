"""`polluxsim run -m`: make the runs of a sweep and print their results."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from polluxsim.common.files import atomic_write
from polluxsim.look.console import console
from polluxsim.look.descriptions import print_remarks
from polluxsim.look.settings_tables import as_text
from polluxsim.metrics.declared import frame_of_table
from polluxsim.run.spec import Search, SearchedRuns, SweptRuns
from polluxsim.statistics.comparisons import settings_table
from polluxsim.statistics.metric_lines import metric_of, value_text
from polluxsim.studies.driver import DATASET, complete_sweep
from polluxsim.studies.launching import chosen_workers
from polluxsim.studies.plan import entry_of
from polluxsim.studies.searching import BestTrial, search_runs

MOST_ROWS = 40  # sweeps of more settings than this print no table of them


def make_sweep(described: SweptRuns | SearchedRuns) -> list[Path]:
    """Complete a sweep or a search, print its results, and return the folders of its runs.

    Raise SweepError if a run fails.
    """
    place = described.place
    workers = chosen_workers(place.launcher, place.workers)
    best = None
    if isinstance(described, SearchedRuns):
        sweep, best = search_runs(described, workers)
    else:
        planned = [entry_of(run.overrides, run.spec, place.folder, run.subfolder) for run in described.runs]
        cache = None if place.cache is None else Path(place.cache)
        sweep = complete_sweep(planned, place.folder, workers, cache, check_first=True)
    # After the runs: a sweep that was refused leaves no file.
    with atomic_write(place.folder / "multirun.yaml") as temporary:
        temporary.write_text(place.text, encoding="utf-8")
    folders = [entry.folder for entry in sweep.entries]
    if isinstance(described, SweptRuns):
        _print_results(frame_of_table(sweep.table))
    print_remarks(folders)
    if isinstance(described, SearchedRuns) and best is not None:
        print(_best_text(best, described.search))
    num_reused = len(folders) - sweep.done
    reused = f", {num_reused} of them found finished" if num_reused else ""
    print(f"wrote {place.folder / DATASET}: {len(folders)} runs{reused}")
    return folders


def _best_text(best: BestTrial, search: Search) -> str:
    """Return a sentence about the best trial of a search."""
    metric = metric_of(search.metric)
    values = " ".join(f"{name}={value}" for name, value in best.overrides.items())
    extreme = "least" if search.direction == "minimize" else "greatest"
    sentence = (
        f"{values} has the {extreme} {metric.title} of {best.num_trials} trials: {value_text(metric, best.value)}"
    )
    if best.num_equal > 1:
        sentence += f", the first of {best.num_equal} equal ones"
    return sentence


def _print_results(frame: pd.DataFrame) -> None:
    """Print a table of the settings of a sweep, unless no run had a job, or it has more rows than `MOST_ROWS`."""
    if "avg_jct" not in frame:
        return  # no run had a job
    table = settings_table(frame)
    if len(table.cells) <= MOST_ROWS:
        print(as_text(table, console().width if sys.stdout.isatty() else 80))
