"""Complete a plan of runs: make the missing ones, show the progress, and write all results as one table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidConfigError, PolluxSimError, SweepError
from polluxsim.common.files import atomic_write, lock
from polluxsim.common.parquet import read_parquet
from polluxsim.common.progress_line import is_shown, progress_line
from polluxsim.metrics.declared import as_metadata, frame_of_table, values_in
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
    infos = [info_of(entry.folder) for entry in entries]
    rows = [_result_row(entry, folder, info) for entry, info in zip(entries, infos, strict=True)]
    declared = {field.name: pa.float64() for field in fields(Summary) if field.type in ("float", "float | None")}
    declared |= {name: kind for entry in entries for name, kind in declared_types(entry.config).items()}
    metrics = {name: metric for info in infos for name, (metric, _) in values_in(info).items()}
    declared |= dict.fromkeys(metrics, pa.float64())
    table = table_of(rows, declared).replace_schema_metadata(as_metadata(metrics) or None)
    times: list[dict[str, Any]] = []
    for row, entry in zip(rows, entries, strict=True):
        timing = read_parquet(entry.folder / "timing.parquet", ["phase", "seconds"])
        totals = timing.group_by("phase").aggregate([("seconds", "sum")]).to_pylist()
        by_phase = {total["phase"]: total["seconds_sum"] for total in sorted(totals, key=lambda each: each["phase"])}
        times.append({"folder": row["folder"], "key": row["key"], **by_phase})
    _write_table(table_of(times, {}), folder / TIMING)
    _write_table(table, folder / DATASET)
    return table


def table_of(rows: Sequence[Mapping[str, Any]], declared: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table with the columns of all rows. Missing values are null.

    Declared types make the type of a column independent of its values.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table({name: _array(values, declared.get(name)) for name, values in columns.items()})


def _result_row(entry: Entry, folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run in the table of a sweep; `info` is the content of its run.json."""
    summary = info["summary"] or {}
    metrics = {field.name: summary[field.name] for field in fields(Summary) if field.name in summary}
    user_values = {name: value for name, (_, value) in values_in(info).items()}
    settings = of_results(flat({name: part for name, part in entry.config.items() if name != "metrics"}))
    named = {"folder": entry.folder.relative_to(folder).as_posix(), "policy": policy_name(settings)}
    if POLICY_ENTRY in info:
        named[POLICY_ENTRY] = info[POLICY_ENTRY]
    return {**named, **settings, **flat(metrics), **user_values, "key": entry.key}


def _array(values: Sequence[Any], declared: pa.DataType | None) -> pa.Array:
    """Return a column. Values of several types, and lists with other items than text, become JSON text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        whole = kinds == {int} and declared != pa.float64()
        return pa.array(values, pa.int64() if whole else pa.float64())
    if kinds == {list} and all(isinstance(item, str) for items in values for item in items or ()):
        return pa.array(values, pa.list_(pa.string()))
    if len(kinds) == 1 and kinds <= {bool, str}:
        return pa.array(values, pa.bool_() if kinds == {bool} else pa.string())
    if not kinds:
        return pa.array(values, declared or pa.string())
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def _write_table(table: pa.Table, path: Path) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")


@contextmanager
def sweep_progress(entries: Sequence[Entry], known: int) -> Iterator[None]:
    """Show the number of finished runs on standard error if it is a terminal. `known` more were finished before."""
    if not is_shown() or not entries:
        yield
        return
    over = threading.Event()
    note = f"{known} found finished" if known else ""
    with progress_line("runs", len(entries), note) as show:

        def watch() -> None:
            missing = list(entries)
            while not over.wait(PAUSE):
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

    >>> time_left(2, 6, 45.0)
    '0:01:30 left'
    """
    return f"{timedelta(seconds=round(elapsed / done * (of - done)))} left" if done else "first runs"


_locked: ContextVar[frozenset[Path]] = ContextVar("_locked", default=frozenset())
"""Files of the locks that the blocks around the present code hold."""


class CompletedSweep(NamedTuple):
    """A complete sweep."""

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
    chosen: Executor | list[str]
    if isinstance(launcher, str):
        chosen = [f"hydra/launcher={launcher}"]
    else:
        chosen = launcher if isinstance(launcher, Executor) else list(launcher or ())
    report_replaced(config_dirs)
    composing = composer(config_dirs)
    entries = [entry_of(overrides, composing.compose(overrides), folder) for overrides in plan]
    frame = frame_of_entries(
        entries, folder, launcher=chosen, workers=workers, config_dirs=config_dirs, cache=cache, check_first=True
    )
    return frame.set_index("key", drop=False).loc[[entry.key for entry in entries]].reset_index(drop=True)


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
    """Make the entries that are not finished, and return a row for each distinct entry, as `run_sweep` does.

    With `check_first`, no run is made if one of them cannot be made.
    """
    processes: RunWorkers
    if isinstance(launcher, Executor):
        processes = ExecutorWorkers(launcher)
    elif launcher:
        processes = chosen_workers(chosen_launcher(launcher, config_dirs, folder), workers)
    else:
        processes = LocalWorkers(workers)
    completed = complete_sweep(entries, folder, processes, cache, check_first=check_first)
    frame = frame_of_table(completed.table)
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
        clear([folder])
        clear_runs(folders)
        try:
            return _make_and_tabulate(entries, folder, workers, cache, check_first=check_first)
        except KeyboardInterrupt:
            clear_runs(folders)  # the workers have ended
            counts = f"{sum(map(is_finished, entries))} of {len(entries)}"
            message = f"interrupted, {counts} runs are finished and kept; the same command continues"
            raise SweepInterrupted(message) from None


@contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """Make and lock the folder of a sweep, and remove it if no run was made. Raise SweepError if it is locked."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder), raising():
            try:
                yield
            finally:
                if [path.name for path in folder.iterdir()] == [LOCK]:
                    (folder / LOCK).unlink()
    finally:
        for path in made:
            remove_if_empty(path)


def _make_and_tabulate(
    entries: Sequence[Entry], folder: Path, workers: RunWorkers, cache: Path | None, *, check_first: bool
) -> CompletedSweep:
    for name in (DATASET, TIMING):
        (folder / name).unlink(missing_ok=True)
    if cache is not None:
        _copy_from_cache(entries, cache)
    if missing := [entry for entry in entries if not is_finished(entry)]:
        known = len(entries) - len(missing)
        if check_first and len(missing) > 1:
            with workers.kept():
                _check(missing, workers)
                _make_missing(missing, workers, known)
        else:
            _make_missing(missing, workers, known)
    table = write_dataset(entries, folder)
    if cache is not None:
        _copy_to_cache(entries, cache)
    return CompletedSweep(len(missing), entries, table)


def _check(entries: Sequence[Entry], workers: RunWorkers) -> None:
    """Raise a SweepError that names the first run that cannot be made, before any run is made."""
    refused = workers.check(entries)
    if refused:
        entry, error = refused[0]
        count = f"{len(refused)} of {len(entries)} runs cannot be made, the first: " if len(refused) > 1 else ""
        errors = {entry.key: error for entry, error in refused}
        raise SweepError(f"{count}{entry}: {error}; no run was made", errors) from error


def _make_missing(missing: Sequence[Entry], workers: RunWorkers, known: int) -> None:
    """Make runs, in addition to `known` finished ones. Raise an error that names the first failed run."""
    with sweep_progress(missing, known):
        failed = workers.launch(missing)
    for _, error in failed:
        if not isinstance(error, PolluxSimError | OSError):
            raise error  # a defect
    if failed:
        entry, error = failed[0]
        count = f"{len(failed)} of {known + len(missing)} runs failed, the first: " if len(failed) > 1 else ""
        raise SweepError(f"{count}{entry}: {error}", {each.key: error for each, error in failed}) from error
    if changed := [entry for entry in missing if not is_finished(entry)]:
        raise SweepError(f"{changed[0]}: the files that it reads changed while it ran; start the sweep again")


def _copy_from_cache(entries: Sequence[Entry], cache: Path) -> None:
    """Copy finished runs from a cache into the folder of the sweep."""
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
