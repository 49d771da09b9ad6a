"""Hydra's own launchers (submitit, Ray, …) as the workers of a sweep."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hydra.core.plugins import Plugins
from omegaconf import open_dict

from polluxsim.errors import InvalidConfigError, SweepError
from polluxsim.run.hydra_inside import error_of
from polluxsim.run.hydra_words import not_installed
from polluxsim.run.overrides import as_hydra_takes, quoted
from polluxsim.run.workers import ONE_THREAD, num_cores, one_thread_each
from polluxsim.sweeps.local import LocalWorkers
from polluxsim.sweeps.working import HydraTask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext
    from omegaconf import DictConfig

    from polluxsim.sweeps.plan import Entry


class Workers(Protocol):
    """Those who do the runs of a sweep."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs; return those that failed."""
        ...


class HydraWorkers:
    """A launcher of Hydra's does the runs: each a job of its own, composed anew where it runs.

    `config` is what Hydra composed for the sweep as a whole, and `context` how a run is composed from it. It is an
    `InvalidConfigError` if the launcher is not installed.
    """

    def __init__(self, config: DictConfig, context: HydraContext) -> None:
        self._name = str(config.hydra.runtime.choices["hydra/launcher"])
        if self._name == "ray":
            _set_up_ray(config)
        task = HydraTask(str(Path.cwd()))
        try:
            self._launcher: Launcher = Plugins.instance().instantiate_launcher(context, task, config)
        except (RuntimeError, ImportError) as error:
            raise InvalidConfigError(not_installed(self._name)) from error

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs; return those that failed."""
        # Submitit's local executor starts all that it is given at once.
        at_once = num_cores() if self._name == "submitit_local" else len(entries)
        failed = []
        with one_thread_each(), _ray_ending(self._name):
            for start in range(0, len(entries), at_once):
                failed += self._launch(entries[start : start + at_once], start)
        return failed

    def _launch(self, entries: Sequence[Entry], number: int) -> list[tuple[Entry, Exception]]:
        try:
            returns = self._launcher.launch([_job(entry) for entry in entries], initial_job_idx=number)
        except Exception as error:
            what = " ".join(str(error).split())
            raise SweepError(f"hydra/launcher={self._name} failed: {type(error).__name__}: {what}") from error
        errors = map(error_of, returns)
        return [(entry, error) for entry, error in zip(entries, errors, strict=True) if error is not None]


def chosen_workers(config: DictConfig, context: HydraContext, processes: int | None) -> Workers:
    """Return the launcher that a configuration chooses; Hydra's basic one stands for processes on this machine."""
    if config.hydra.runtime.choices["hydra/launcher"] == "basic":
        return LocalWorkers(processes)
    return HydraWorkers(config, context)


def _job(entry: Entry) -> list[str]:
    """Return the overrides of a run, with its folder by its whole path, as a worker may stand in another one."""
    return [
        *as_hydra_takes(entry.overrides),
        f"hydra.sweep.dir={quoted(str(entry.folder.parent.resolve()))}",
        f"hydra.sweep.subdir={quoted(entry.folder.name)}",
    ]


def _set_up_ray(config: DictConfig) -> None:
    """Give Ray's plugin what it needs to work with today's Ray, where the user says nothing else."""
    with open_dict(config):
        init = config.hydra.launcher.ray.init
        # Else Ray looks for a cluster, and fails where an old one has left its address.
        init.address = init.get("address") or "local"
        # The plugin's own size would be refused by a cluster that runs already.
        init.setdefault("object_store_memory", None)
        init.setdefault("logging_level", "error")
        init.setdefault("log_to_driver", False)
        init.setdefault("runtime_env", {"env_vars": dict.fromkeys(ONE_THREAD, "1")})


@contextmanager
def _ray_ending(launcher: str) -> Iterator[None]:
    """End what Ray's plugin starts and leaves, however the block ends; without that, Ctrl-C would leave runs going."""
    if launcher != "ray":
        yield
        return
    import ray  # noqa: PLC0415  (slow to load, and no one else needs it)

    was_there = ray.is_initialized()
    try:
        yield
    finally:
        if not was_there:
            ray.shutdown()
