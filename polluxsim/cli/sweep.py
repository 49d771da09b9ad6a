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
from polluxsim.run.spec import SweptRuns
from polluxsim.statistics.comparisons import settings_table
from polluxsim.studies.driver import DATASET, complete_sweep
from polluxsim.studies.launching import chosen_workers
from polluxsim.studies.plan import entry_of

MOST_ROWS = 40  # sweeps of more settings than this print no table of them


def make_sweep(sweep: SweptRuns) -> list[Path]:
    """Complete a sweep, print its results, and return the folders of its runs. Raise SweepError if a run fails."""
    workers = chosen_workers(sweep.launcher, sweep.workers)
    planned = [entry_of(run.overrides, run.spec, sweep.folder, run.subfolder) for run in sweep.runs]
    cache = None if sweep.cache is None else Path(sweep.cache)
    done, entries, table = complete_sweep(planned, sweep.folder, workers, cache, check_first=True)
    with atomic_write(sweep.folder / "multirun.yaml") as temporary:
        temporary.write_text(sweep.text, encoding="utf-8")
    folders = [entry.folder for entry in entries]
    _print_results(frame_of_table(table))
    print_remarks(folders)
    reused = f", {len(entries) - done} of them found finished" if done < len(entries) else ""
    print(f"wrote {sweep.folder / DATASET}: {len(entries)} runs{reused}")
    return folders


def _print_results(frame: pd.DataFrame) -> None:
    """Print a table of the settings of a sweep, if there are not too many settings for the screen."""
    if "avg_jct" not in frame:
        return  # no run had a job
    table = settings_table(frame)
    if len(table.cells) <= MOST_ROWS:
        print(as_text(table, console().width if sys.stdout.isatty() else 80))
