"""Complete a plan of runs: make the missing ones, show the progress, and write all results as one table.

A sweep may be killed at any time, and started again. It keeps three rules: only one process works in a folder, which it
locks; a run counts as finished only with all of its files, undamaged; and the table of results exists only while the
last sweep of the folder is complete, so it is removed first and written last.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidConfigError, PolluxSimError, SweepError
from polluxsim.common.files import atomic_write, lock
from polluxsim.common.parquet import read_parquet
from polluxsim.common.progress_line import is_shown, progress_line
from polluxsim.metrics.declared import Metric, as_metadata, frame_of_table, values_in
from polluxsim.metrics.summary import Summary
from polluxsim.records.folders import POLICY_ENTRY, SWEEP_FILE, info_of, of_results, policy_name, remove_if_empty
from polluxsim.records.storage import flat
from polluxsim.run.building import declared_types
from polluxsim.run.composing import chosen_launcher
from polluxsim.run.configurations import report_replaced
from polluxsim.run.interrupt import SweepInterrupted, raising
from polluxsim.studies.launching import Executor, ExecutorWorkers, LocalWorkers, RunWorkers, chosen_workers
from polluxsim.studies.plan import (
    Entry,
    arranged,
    clear,
    clear_runs,
    composer,
    copy_run,
    entry_of,
    finished_runs,
    is_finished,
    is_written,
    runs_by_key,
)

if TYPE_CHECKING:
    import pandas as pd

DATASET = SWEEP_FILE  # file of the table of a sweep
TIMING = "sweep-timing.parquet"  # file of the wall-clock times of a sweep
LOCK = ".lock"  # file that locks the folder of a sweep
CACHE_LOCK = ".cache-lock"  # file that locks a cache, which may be the folder of a sweep
PAUSE = 0.5  # time between two counts of the finished runs, which show the progress of all kinds of workers [s]


def write_dataset(entries: Sequence[Entry], folder: Path) -> pa.Table:
    """Write and return the results of finished runs, in the order of the entries. Write wall-clock times separately."""
    # The type of a column must not depend on the values of one sweep, so that tables of sweeps can be joined.
    column_types = {}
    for field in fields(Summary):
        if field.type in ("float", "float | None"):
            column_types[field.name] = pa.float64()
    user_metrics: dict[str, Metric] = {}
    rows = []
    timing_rows = []
    for entry in entries:
        info = info_of(entry.folder)
        row = result_row(entry, folder, info)
        rows.append(row)
        column_types.update(declared_types(entry.config))
        for name, (metric, _) in values_in(info).items():
            user_metrics[name] = metric
        timing_rows.append({"folder": row["folder"], "key": row["key"], **_seconds_by_phase(entry)})
    # The metrics last, because a user's metric may have the name of a setting.
    column_types.update(dict.fromkeys(user_metrics, pa.float64()))
    # An empty dictionary would write metadata into the file of a sweep without the user's metrics.
    metadata = as_metadata(user_metrics) or None
    table = table_of(rows, column_types).replace_schema_metadata(metadata)
    # The table of results is last: it says that the sweep is complete.
    _write_table(table_of(timing_rows, {}), folder / TIMING)
    _write_table(table, folder / DATASET)
    return table


def _seconds_by_phase(entry: Entry) -> dict[str, float]:
    """Return the wall-clock time of each phase of a run, in the order of the phases' names [s]."""
    timing = read_parquet(entry.folder / "timing.parquet", ["phase", "seconds"])
    sums = timing.group_by("phase").aggregate([("seconds", "sum")])
    seconds = dict(zip(sums["phase"].to_pylist(), sums["seconds_sum"].to_pylist(), strict=True))
    return dict(sorted(seconds.items()))


def table_of(rows: Sequence[Mapping[str, Any]], declared: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table with the columns of all rows. Missing values are null.

    Declared types make the type of a column independent of its values.
    """
    names = dict.fromkeys(chain.from_iterable(rows))  # a dictionary, because the columns keep the order of the rows
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        arrays[name] = _array(values, declared.get(name))
    return pa.table(arrays)


def result_row(entry: Entry, folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run in the table of a sweep; `info` is the content of its run.json."""
    summary = info["summary"] or {}  # null for a run without jobs
    # The columns have the order of the fields, whatever the order in the file.
    metrics = {field.name: summary[field.name] for field in fields(Summary) if field.name in summary}
    user_values = {name: value for name, (_, value) in values_in(info).items()}
    # The values of the user's metrics are columns. The settings with their classes are not.
    nested_settings = {name: part for name, part in entry.config.items() if name != "metrics"}
    settings = of_results(flat(nested_settings))
    row: dict[str, Any] = {"folder": entry.folder.relative_to(folder).as_posix(), "policy": policy_name(settings)}
    if POLICY_ENTRY in info:
        row[POLICY_ENTRY] = info[POLICY_ENTRY]
    return {**row, **settings, **flat(metrics), **user_values, "key": entry.key}


def _array(values: Sequence[Any], declared: pa.DataType | None) -> pa.Array:
    """Return a column. Whole and other numbers together are numbers.

    Other values of several types, and lists with other items than text, become JSON text. The declared type counts for
    a column without values, and for whole numbers.
    """
    types = {type(value) for value in values if value is not None}
    if not types:
        return pa.array(values, declared or pa.string())
    if types == {int} and declared != pa.float64():
        return pa.array(values, pa.int64())
    if types <= {int, float}:
        return pa.array(values, pa.float64())
    if types == {bool}:
        return pa.array(values, pa.bool_())
    if types == {list} and _are_texts(chain.from_iterable(items or () for items in values)):
        return pa.array(values, pa.list_(pa.string()))
    return pa.array([_as_text(value) for value in values], pa.string())


def _are_texts(items: Iterable[object]) -> bool:
    """Return whether all items are text."""
    return all(isinstance(item, str) for item in items)


def _as_text(value: object) -> str | None:
    """Return text as it is, None for a missing value, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _write_table(table: pa.Table, path: Path) -> None:
    """Write a table as a whole or not at all."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")


@contextmanager
def sweep_progress(entries: Sequence[Entry], num_finished: int) -> Iterator[None]:
    """Show on standard error, if it is a terminal, how many of the entries are finished while the block makes them.

    `num_finished` is the number of other runs, which were finished before.
    """
    if not is_shown() or not entries:
        yield
        return
    over = threading.Event()
    note = ""
    if num_finished:
        note = f"{num_finished} found finished"
    with progress_line("runs", len(entries), note) as show:

        def watch() -> None:
            missing = list(entries)
            # The folders show the progress, because some launchers report nothing before the last run has ended.
            while not over.wait(PAUSE):
                # Only the runs that were missing at the last count: reading all of them each time would take long.
                missing = [entry for entry in missing if not is_written(entry)]
                show(len(entries) - len(missing), len(entries), note)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def time_left(done: int, of: int, elapsed: float) -> str:
    """Return the expected time for the remaining runs as text, given the time since the first run began [s].

    Before one run is finished, no time is known.

    >>> time_left(2, 6, 45.0)
    '0:01:30 left'
    """
    if not done:
        return "first runs"
    seconds_per_run = elapsed / done
    return f"{timedelta(seconds=round(seconds_per_run * (of - done)))} left"


_locked: ContextVar[frozenset[Path]] = ContextVar("_locked", default=frozenset())
"""Files of the locks that the blocks around the present code hold."""


class CompletedSweep(NamedTuple):
    """The runs of a sweep that is complete, and the table of their results."""

    done: int  # number of runs made now; all other runs were finished before
    entries: Sequence[Entry]  # each distinct run, in the order of the plan
    table: pa.Table  # a row for each run


def run_sweep(
    plan: Sequence[Sequence[str]],
    folder: Path,
    *,
    launcher: str | Sequence[str] | Executor | None = None,
    workers: int | None = None,
    config_dirs: Sequence[Path] = (),
    cache: Path | None = None,
) -> pd.DataFrame:
    """Make the runs of a plan that are not finished, and return a row for each run, in the order of the plan.

    Equal runs are made once, and have equal rows.

    `plan` contains the overrides of each run, as for `polluxsim run`. `launcher` is the name of a launcher of Hydra
    (submitit_local, submitit_slurm, ray), overrides that choose and set one, or an executor like
    `concurrent.futures.ProcessPoolExecutor`, whose processes import polluxsim. By default, at most `workers` processes
    on this machine make the runs. Files in `config_dirs` replace shipped files of the same names. Finished runs in the
    folder `cache` are copied instead of made, and new runs are copied into it.

    The columns are `folder`, the name of the policy, the settings by dotted names (`policy.p`), the metrics of
    `Summary`, the user's metrics, and the `key` of the run. `sweep.parquet` in the folder of the sweep has the same
    columns, with relative folders. Workers are separate processes: a script must call this function under
    `if __name__ == "__main__":`.

    Raise InvalidConfigError if the plan is empty or an override is invalid, and SweepError if runs fail or another
    sweep uses the folder. Finished runs are kept. All runs are checked first: no run is made if a job of one of them
    does not fit on its cluster.
    """
    if not plan:
        raise InvalidConfigError("the plan of the sweep has no runs; give the overrides of at least one run")
    if isinstance(launcher, str):
        launcher = [f"hydra/launcher={launcher}"]
    report_replaced(config_dirs)
    composing = composer(config_dirs)
    entries = [entry_of(overrides, composing.compose(overrides), folder) for overrides in plan]
    frame = frame_of_entries(
        entries,
        folder,
        launcher=launcher or (),
        workers=workers,
        config_dirs=config_dirs,
        cache=cache,
        check_first=True,
    )
    # The plan may repeat a run, and the frame has each run once.
    keys = [entry.key for entry in entries]
    return frame.set_index("key", drop=False).loc[keys].reset_index(drop=True)


def frame_of_entries(
    entries: Sequence[Entry],
    folder: Path,
    *,
    launcher: Sequence[str] | Executor = (),
    workers: int | None = None,
    config_dirs: Sequence[Path] = (),
    cache: Path | None = None,
    check_first: bool = False,
) -> pd.DataFrame:
    """Make the entries that are not finished, and return a row for each distinct entry.

    The columns and the parameters are those of `run_sweep`. With `check_first`, no run is made if one of them cannot be
    made.
    """
    run_workers: RunWorkers
    if isinstance(launcher, Executor):
        run_workers = ExecutorWorkers(launcher)
    elif launcher:
        run_workers = chosen_workers(chosen_launcher(launcher, config_dirs, folder), workers)
    else:
        run_workers = LocalWorkers(workers)
    sweep = complete_sweep(entries, folder, run_workers, cache, check_first=check_first)
    frame = frame_of_table(sweep.table)
    # The stored names are relative to the folder of the sweep, so that the folder can be moved.
    frame["folder"] = [str(folder / name) for name in frame["folder"]]
    return frame


def complete_sweep(
    entries: Sequence[Entry], folder: Path, workers: RunWorkers, cache: Path | None = None, *, check_first: bool = False
) -> CompletedSweep:
    """Make the runs that are not finished, and write the results of all runs into the folder of the sweep.

    With `check_first`, no run is made if one of them cannot be made. The table exists if and only if the last sweep in
    this folder is complete. A new folder in which no run is made is removed. Raise SweepError if runs fail or another
    sweep uses the folder, and SweepInterrupted after Ctrl-C.
    """
    with reserved(folder):
        finished, damaged = runs_by_key(folder)
        entries = arranged(entries, damaged | finished)  # a damaged run is made again in its folder
        folders = [entry.folder for entry in entries]
        # An earlier sweep that was killed may have left parts of files.
        clear([folder])
        clear_runs(folders)
        try:
            return _make_and_tabulate(entries, folder, workers, cache, check_first=check_first)
        except KeyboardInterrupt:
            clear_runs(folders)  # the workers have ended, so none of them writes there
            num_finished = sum(map(is_finished, entries))
            counts = f"{num_finished} of {len(entries)}"
            message = f"interrupted, {counts} runs are finished and kept; the same command continues"
            raise SweepInterrupted(message) from None


@contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """Make and lock the folder of a sweep for the block. Remove the folders that it made if they are then empty.

    Raise SweepError if another sweep has locked the folder.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]  # the deepest first
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder), raising():
            try:
                yield
            finally:
                # The file goes while the folder is locked: later, it might be the lock of another sweep.
                names = [path.name for path in folder.iterdir()]
                if names == [LOCK]:
                    (folder / LOCK).unlink()
    finally:
        for path in new_folders:
            remove_if_empty(path)


def _make_and_tabulate(
    entries: Sequence[Entry], folder: Path, workers: RunWorkers, cache: Path | None, *, check_first: bool
) -> CompletedSweep:
    """Make the runs that are not finished, in a folder that is locked, and write the tables of all runs."""
    # A table exists only if its sweep is complete.
    for name in (DATASET, TIMING):
        (folder / name).unlink(missing_ok=True)
    if cache is not None:
        _copy_from_cache(entries, cache)
    missing = [entry for entry in entries if not is_finished(entry)]
    num_finished = len(entries) - len(missing)
    if check_first and len(missing) > 1:
        # The checks load the workloads, so the same processes make the runs.
        with workers.kept():
            _check(missing, workers)
            make_missing(missing, workers, num_finished)
    elif missing:
        # A single run that cannot be made fails at its start, which says the same as a check.
        make_missing(missing, workers, num_finished)
    table = write_dataset(entries, folder)
    if cache is not None:
        _copy_to_cache(entries, cache)
    return CompletedSweep(len(missing), entries, table)


def _check(entries: Sequence[Entry], workers: RunWorkers) -> None:
    """Raise a SweepError that names the first run that cannot be made, before any run is made."""
    refused = workers.check(entries)
    if not refused:
        return
    first_entry, first_error = refused[0]
    message = f"{first_entry}: {first_error}; no run was made"
    if len(refused) > 1:
        message = f"{len(refused)} of {len(entries)} runs cannot be made, the first: {message}"
    errors = {entry.key: error for entry, error in refused}
    raise SweepError(message, errors) from first_error


def make_missing(missing: Sequence[Entry], workers: RunWorkers, num_finished: int) -> None:
    """Make the missing runs of a sweep, of which `num_finished` runs are finished.

    Raise a SweepError that names the first failed run, or the first run whose files changed. Raise the error itself if
    it shows a defect of the code.
    """
    with sweep_progress(missing, num_finished):
        failed = workers.launch(missing)
    for _, error in failed:
        # The user can act on these errors. For any other error, the traceback has to stay.
        if not isinstance(error, PolluxSimError | OSError):
            raise error
    if failed:
        first_entry, first_error = failed[0]
        message = f"{first_entry}: {first_error}"
        if len(failed) > 1:
            message = f"{len(failed)} of {num_finished + len(missing)} runs failed, the first: {message}"
        errors = {entry.key: error for entry, error in failed}
        raise SweepError(message, errors) from first_error
    # The key of a run contains its files, so a file that changed gives the run another key.
    changed = [entry for entry in missing if not is_finished(entry)]
    if changed:
        raise SweepError(f"{changed[0]}: the files that it reads changed while it ran; start the sweep again")


def _copy_from_cache(entries: Sequence[Entry], cache: Path) -> None:
    """Copy the runs that only the cache has into the folder of the sweep."""
    if not cache.is_dir():
        return
    cached = finished_runs(cache)
    for entry in entries:
        if not is_finished(entry) and entry.key in cached:
            clear_runs([entry.folder])
            copy_run(cached[entry.key], entry.folder)


def _copy_to_cache(entries: Sequence[Entry], cache: Path) -> None:
    """Copy runs into a cache that does not have them. Sweeps copy one after another."""
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache, CACHE_LOCK, waiting=True):
        cached = finished_runs(cache)
        for entry in entries:
            if entry.key not in cached:
                clear_runs([cache / entry.key])
                copy_run(entry.folder, cache / entry.key)


@contextmanager
def locked(folder: Path, name: str = LOCK, *, waiting: bool = False) -> Iterator[None]:
    """Lock a folder by a file in it. The operating system unlocks it if the process ends.

    If another sweep has locked the folder, wait for it if `waiting`, and raise a `SweepError` otherwise. Blocks may be
    nested.
    """
    path = (folder / name).resolve()
    # This process has the lock already. A second lock on the same file would conflict with the first.
    if path in _locked.get():
        yield
        return
    with path.open("a") as file:
        try:
            lock(file, waiting=waiting)
        except BlockingIOError:
            raise SweepError(f"{folder}: another sweep is at work here; wait for it, or name another") from None
        token = _locked.set(_locked.get() | {path})
        try:
            yield
        finally:
            _locked.reset(token)
