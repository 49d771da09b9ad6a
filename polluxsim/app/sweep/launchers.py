"""Hydra's own launchers (joblib, submitit, Ray, …) as the workers of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus

from polluxsim.app.hydra_words import not_installed
from polluxsim.app.sweep.plan import quoted
from polluxsim.app.sweep.working import HydraTask, one_thread_each
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext
    from omegaconf import DictConfig

    from polluxsim.app.sweep.plan import Entry


class Workers(Protocol):
    """Those who do the runs of a sweep."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs; return those that failed."""
        ...


class HydraWorkers:
    """A launcher of Hydra's does the runs: each a job of its own, composed anew where it runs.

    Parameters
    ----------
    launcher
        The launcher, set up with a `HydraTask`.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs; return those that failed."""
        jobs = [
            [
                *entry.overrides,
                # Whole paths, as a worker may stand in another folder.
                f"hydra.sweep.dir={quoted(str(entry.folder.parent.resolve()))}",
                f"hydra.sweep.subdir={quoted(entry.folder.name)}",
            ]
            for entry in entries
        ]
        with one_thread_each():
            returns = self._launcher.launch(jobs, initial_job_idx=0)
        failed = []
        for entry, job in zip(entries, returns, strict=True):
            if job.status is JobStatus.FAILED:
                failed.append((entry, job._return_value))
        return failed


def set_up(config: DictConfig, context: HydraContext) -> Launcher:
    """Return the launcher that a configuration chooses, ready for runs of a sweep.

    Raises
    ------
    InvalidConfigError
        If it is not installed.
    """
    task = HydraTask(str(Path.cwd()))
    try:
        return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
    except (RuntimeError, ImportError) as error:
        raise InvalidConfigError(not_installed(config.hydra.runtime.choices["hydra/launcher"])) from error
