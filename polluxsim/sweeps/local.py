"""Workers of our own on this machine: a process per core, each keeping what it has loaded for its next run."""

from __future__ import annotations

import warnings
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.errors import InvalidConfigError
from polluxsim.run.workers import num_cores, starting, workers
from polluxsim.sweeps.order import Order
from polluxsim.sweeps.working import perform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor
    from pathlib import Path

    from polluxsim.sweeps.plan import Entry

PATIENCE = 0.2
"""How long Ctrl-C may have to wait until we look [s]."""


class Told(NamedTuple):
    """A warning that a worker gave, and where."""

    message: str
    category: type[Warning]
    file: str
    line: int


class LocalWorkers:
    """Does runs in processes on this machine, by default as many as there are cores for us."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise InvalidConfigError(f"workers is {workers!r}, allowed is a whole number ≥ 1 (default: one a core)")
        self._workers = workers or num_cores()

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs, those that seem to take longest first; return those that failed."""
        count = min(self._workers, len(entries))
        with workers(count) as pool:
            return self._work(pool, count, Order(entries))

    def _work(self, pool: ProcessPoolExecutor, count: int, order: Order) -> list[tuple[Entry, Exception]]:
        running: dict[Future[list[Told]], tuple[Entry, float]] = {}
        failed, told = [], set[Told]()
        while order or running:
            while order and len(running) < count:
                entry = order.next()
                with starting():
                    running[pool.submit(_perform, entry.config, entry.folder)] = entry, monotonic()
            done, _ = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            for future in done:
                entry, started = running.pop(future)
                order.took(entry, monotonic() - started)
                if (error := future.exception()) is not None:
                    if not isinstance(error, Exception) or isinstance(error, BrokenProcessPool):
                        raise error
                    failed.append((entry, error))
                    continue
                for warning in set(future.result()) - told:
                    told.add(warning)
                    warnings.warn_explicit(*warning)
        return failed


def _perform(config: Mapping[str, Any], folder: Path) -> list[Told]:
    """Do one run; return its warnings, which the parent says once for all runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        perform(config, folder)
    return [Told(str(warning.message), warning.category, warning.filename, warning.lineno) for warning in caught]
