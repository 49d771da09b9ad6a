"""Complete a sweep: do the runs that are not finished yet, and write all results as one table."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode

from polluxsim.errors import InvalidConfigError, PolluxSimError, SweepError
from polluxsim.files import lock
from polluxsim.folders import remove_if_empty
from polluxsim.metrics.declared import frame_of_table
from polluxsim.run.composing import CONFIG_NAME
from polluxsim.run.config_folders import report_replaced
from polluxsim.run.hydra_inside import Callbacks
from polluxsim.run.hydra_words import hydra_in_words
from polluxsim.run.interrupt import SweepInterrupted, raising
from polluxsim.run.overrides import quoted
from polluxsim.sweeps.dataset import DATASET, TIMING, write_dataset
from polluxsim.sweeps.finished import clear, clear_runs, copy_run, finished_runs, is_finished
from polluxsim.sweeps.launchers import chosen_workers
from polluxsim.sweeps.local import LocalWorkers
from polluxsim.sweeps.plan import arranged, composer, entry_of
from polluxsim.sweeps.progress_line import sweep_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from omegaconf import DictConfig

    from polluxsim.sweeps.launchers import Workers
    from polluxsim.sweeps.plan import Entry

LOCK = ".lock"
CACHE_LOCK = ".cache-lock"
"""Held while runs are put into a cache; another than LOCK, as a sweep's folder may be a cache, even its own."""


class Completed(NamedTuple):
    """A complete sweep."""

    done: int  # number of runs made now; the other runs were finished before
    entries: Sequence[Entry]  # each distinct run, in the order of the plan
    table: pa.Table  # a row for each run


def run_sweep(
    plan: Sequence[Sequence[str]],
    folder: Path,
    *,
    launcher: str | Sequence[str] | None = None,
    workers: int | None = None,
    config_dirs: Sequence[Path] = (),
    cache: Path | None = None,
) -> pd.DataFrame:
    """Do the runs of a plan that are not finished yet, and return the results of all.

    Parameters
    ----------
    plan
        The overrides of each run, as they stand on the command line of `polluxsim run`. A run that stands in it twice
        is one run.
    folder
        The sweep's folder. Its finished runs are recognised and not done again.
    launcher
        A launcher of Hydra's by name (submitit_local, submitit_slurm, ray), or overrides that choose and set
        one (`["hydra/launcher=ray", "hydra.launcher.ray.init.address=auto"]`); by default processes on this machine.
    workers
        Processes on this machine at most; by default one for each core.
    config_dirs
        The user's folders of configurations, as `--config-dir` takes one. Their entries win over shipped ones.
    cache
        A folder of finished runs to take runs from, and to put copies of new ones into.

    Returns
    -------
    pandas.DataFrame
        A row per distinct run, in the order of the plan: `folder`, the policy's name, the settings by dotted names
        (`policy.p`), the metrics of `Summary`, the user's metrics, and the run's `key`. `sweep.parquet` in the sweep's
        folder has the same columns, with folders relative to it.

    Raises
    ------
    InvalidConfigError
        If there are no runs, one cannot be composed, the launcher is not there, or `workers` is no number of them.
    SweepError
        If runs failed; the remaining runs are finished and kept.

    Notes
    -----
    Workers are separate processes, so a script must call this function under `if __name__ == "__main__":`.
    """
    if not plan:
        raise InvalidConfigError("a sweep without runs, needed is a plan of one or more")
    chosen = [f"hydra/launcher={launcher}"] if isinstance(launcher, str) else list(launcher or ())
    report_replaced(config_dirs)
    composing = composer(config_dirs, chosen)
    entries = [entry_of(overrides, composing.compose(overrides), folder) for overrides in plan]
    return run_entries(entries, folder, launcher=chosen, workers=workers, config_dirs=config_dirs, cache=cache)


def run_entries(
    entries: Sequence[Entry],
    folder: Path,
    *,
    launcher: Sequence[str] = (),
    workers: int | None = None,
    config_dirs: Sequence[Path] = (),
    cache: Path | None = None,
) -> pd.DataFrame:
    """Do runs that are composed already and not finished yet, and return the results of all, as `run_sweep` does."""
    processes = _chosen(launcher, config_dirs, folder, workers) if launcher else LocalWorkers(workers)
    completed = complete(entries, folder, processes, cache)
    frame = frame_of_table(completed.table)
    frame["folder"] = [str(folder / name) for name in frame["folder"]]
    return frame


def complete(entries: Sequence[Entry], folder: Path, workers: Workers, cache: Path | None = None) -> Completed:
    """Do the runs that are not finished, and write the results of all into the sweep's folder.

    The table is there exactly when the sweep last started in this folder is complete. A folder that is made and gets no
    run is removed again.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder), raising():
            return _resumed(entries, folder, workers, cache)
    finally:
        for path in made:
            remove_if_empty(path)


def _resumed(entries: Sequence[Entry], folder: Path, workers: Workers, cache: Path | None) -> Completed:
    """Do what `complete` does, in a folder that no other sweep is at work in."""
    entries = arranged(entries, finished_runs(folder))
    folders = [entry.folder for entry in entries]
    clear([folder])
    clear_runs(folders)
    try:
        return _complete(entries, folder, workers, cache)
    except KeyboardInterrupt:
        clear_runs(folders)  # the workers have ended
        counts = f"{sum(map(is_finished, entries))} of {len(entries)}"
        message = f"interrupted, {counts} runs are finished and kept; the same command goes on"
        raise SweepInterrupted(message) from None
    finally:
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()


def _complete(entries: Sequence[Entry], folder: Path, workers: Workers, cache: Path | None) -> Completed:
    for name in (DATASET, TIMING):
        (folder / name).unlink(missing_ok=True)
    if cache is not None:
        _take(entries, cache)
    if left := [entry for entry in entries if not is_finished(entry)]:
        _do(left, workers, known=len(entries) - len(left))
    table = write_dataset(entries, folder)
    if cache is not None:
        _give(entries, cache)
    return Completed(len(left), entries, table)


def _do(left: Sequence[Entry], workers: Workers, known: int) -> None:
    """Make runs; raise an error that names the first failed run."""
    with sweep_progress(left, known):
        failed = workers.launch(left)
    for _, error in failed:
        if not isinstance(error, PolluxSimError | OSError):
            raise error  # a defect
    if failed:
        entry, error = failed[0]
        count = f"{len(failed)} of {known + len(left)} runs failed, the first: " if len(failed) > 1 else ""
        raise SweepError(f"{count}{entry}: {error}", {each.key: error for each, error in failed}) from error
    if changed := [entry for entry in left if not is_finished(entry)]:
        raise SweepError(f"{changed[0]}: the files that it reads changed while it ran; start the sweep again")


def _take(entries: Sequence[Entry], cache: Path) -> None:
    """Copy finished runs of a cache into the sweep's folder."""
    if not cache.is_dir():
        return
    cached = finished_runs(cache)
    for entry in entries:
        if not is_finished(entry) and entry.key in cached:
            clear_runs([entry.folder])
            copy_run(cached[entry.key], entry.folder)


def _give(entries: Sequence[Entry], cache: Path) -> None:
    """Copy runs that a cache has not into it, one sweep after the other."""
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache, CACHE_LOCK, waiting=True):
        cached = finished_runs(cache)
        for entry in entries:
            if entry.key not in cached:
                clear_runs([cache / entry.key])
                copy_run(entry.folder, cache / entry.key)


def _chosen(launcher: Sequence[str], config_dirs: Sequence[Path], folder: Path, workers: int | None) -> Workers:
    """Return the launcher that overrides choose and set."""
    loader = (composing := composer(config_dirs, launcher)).loader
    overrides = [*composing.common, f"hydra.sweep.dir={quoted(str(folder))}"]
    try:
        config: DictConfig = loader.load_configuration(CONFIG_NAME, overrides, RunMode.MULTIRUN)
    except HydraException as error:
        raise InvalidConfigError(hydra_in_words(error)) from error
    return chosen_workers(config, HydraContext(config_loader=loader, callbacks=Callbacks()), workers)


@contextmanager
def locked(folder: Path, name: str = LOCK, *, waiting: bool = False) -> Iterator[None]:
    """Keep other sweeps out of a folder; the system itself ends that when the process ends, however it does.

    `name` is the lock's file in it. It is a `SweepError` if another sweep is at work there, and we are not `waiting`.
    """
    with (folder / name).open("a") as file:
        try:
            lock(file, waiting=waiting)
        except BlockingIOError:
            raise SweepError(f"{folder}: another sweep is at work in this folder") from None
        yield
