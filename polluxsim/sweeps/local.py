"""Workers of our own on this machine: a process per core, each keeping what it has loaded for its next run."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, connection, get_context, parent_process
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.errors import InvalidConfigError, SweepError
from polluxsim.run.interrupt import SIGNALS, uninterrupted
from polluxsim.sweeps.order import Order
from polluxsim.sweeps.working import num_cores, one_thread_each, perform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future
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
    """Does runs in processes on this machine.

    Parameters
    ----------
    workers
        How many at most; by default as many as there are cores for us.

    Raises
    ------
    InvalidConfigError
        If that is no number of workers.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise InvalidConfigError(f"workers is {workers!r}, allowed is a whole number ≥ 1 (default: one a core)")
        self._workers = workers or num_cores()

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs, those that seem to take longest first; return those that failed."""
        count = min(self._workers, len(entries))
        others = set(active_children())
        pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=begin_worker)
        try:
            failed = self._work(pool, count, Order(entries))
            pool.shutdown()
        except BrokenProcessPool:
            raise SweepError("a worker ended unexpectedly, perhaps for want of memory") from None
        finally:
            for process in set(active_children()) - others:
                process.kill()
                process.join()
            pool.shutdown(wait=False, cancel_futures=True)
        return failed

    def _work(self, pool: ProcessPoolExecutor, count: int, order: Order) -> list[tuple[Entry, Exception]]:
        running: dict[Future[list[Told]], tuple[Entry, float]] = {}
        failed, told = [], set[Told]()
        while order or running:
            while order and len(running) < count:
                entry = order.next()
                # Processes start here. Ctrl-C at a terminal goes to all of them, but it is us who stop them.
                with uninterrupted(), one_thread_each():
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


def begin_worker() -> None:
    """Begin a worker: Ctrl-C is the parent's business, and without the parent there is nothing to do."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
