"""Make the runs of a sweep in processes on this machine, one for each core; each keeps what it has loaded."""

from __future__ import annotations

import json
import math
import warnings
from collections import defaultdict, deque
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidConfigError, LostProcessError
from polluxsim.run.workers import num_cores, starting, workers
from polluxsim.sweeps.working import perform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor
    from pathlib import Path

    from polluxsim.sweeps.plan import Entry

    Told = tuple[str, type[Warning], str, int]
    """A warning that a worker gave: its text and kind, file and line."""

LOST = "the process of this run ended by itself: its code crashed, or the machine ran out of memory"

PATIENCE = 0.2
"""How long Ctrl-C may have to wait until we look [s]."""


class LocalWorkers:
    """Makes runs in processes on this machine, by default one for each core that this process may use."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise InvalidConfigError(f"workers is {workers!r}, allowed is a whole number ≥ 1 (default: one a core)")
        self._workers = workers or num_cores()
        self._told: set[Told] = set()

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors. Runs that are known to be long start first.

        A process that ends by itself breaks the pool, and with it the runs of all other processes. Each of these runs
        is made again alone, so that the run that ended its process is known.
        """
        order = Order(entries)
        failed: list[tuple[Entry, Exception]] = []
        while order:
            for entry in self._work(order, failed):
                if self._work(Order([entry]), failed):
                    failed.append((entry, LostProcessError(LOST)))
        return failed

    def _work(self, order: Order, failed: list[tuple[Entry, Exception]]) -> list[Entry]:
        """Make runs and collect failures; if a process is lost, stop and return the runs that were under way."""
        count = min(self._workers, len(order))
        running: dict[Future[list[Told]], tuple[Entry, float]] = {}
        lost: list[Entry] = []
        with workers(count) as pool:
            while running or (order and not lost):
                while order and not lost and len(running) < count:
                    lost += _start(pool, order.next(), running)
                done, _ = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
                for future in done:
                    entry, started = running.pop(future)
                    order.took(entry, monotonic() - started)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        lost.append(entry)
                    elif isinstance(error, Exception):
                        failed.append((entry, error))
                    elif error is not None:
                        raise error
                    else:
                        self._warn(future.result())
        return lost

    def _warn(self, given: Sequence[Told]) -> None:
        """Give each warning of the runs once."""
        for warning in set(given) - self._told:
            self._told.add(warning)
            warnings.warn_explicit(*warning)


def _start(
    pool: ProcessPoolExecutor, entry: Entry, running: dict[Future[list[Told]], tuple[Entry, float]]
) -> list[Entry]:
    """Start a run; return it if the pool is broken."""
    try:
        with starting():
            running[pool.submit(_perform, entry.config, entry.folder)] = entry, monotonic()
    except BrokenProcessPool:
        return [entry]
    return []


def _perform(config: Mapping[str, Any], folder: Path) -> list[Told]:
    """Do one run; return its warnings, which the parent says once for all runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        perform(config, folder)
    return [(str(warning.message), warning.category, warning.filename, warning.lineno) for warning in caught]


class Order:
    """Runs in order of how long runs of their kind took so far; kinds of which none is done yet come first.

    Of a kind are runs that differ in nothing but what they draw or read: seed, workload and profiles.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._left: dict[str, deque[Entry]] = defaultdict(deque)
        self._times: dict[str, list[float]] = defaultdict(list)
        self._started: set[str] = set()
        for entry in entries:
            self._left[_kind(entry)].append(entry)

    def __len__(self) -> int:
        return sum(map(len, self._left.values()))

    def next(self) -> Entry:
        """Return the run to start now."""
        kind = max(self._left, key=self._expected)
        self._started.add(kind)
        entry = self._left[kind].popleft()
        if not self._left[kind]:
            del self._left[kind]
        return entry

    def took(self, entry: Entry, seconds: float) -> None:
        """Note how long a run took."""
        self._times[_kind(entry)].append(seconds)

    def _expected(self, kind: str) -> float:
        if self._times[kind]:
            return fmean(self._times[kind])
        # One that is being tried out for the first time need not be tried out twice.
        return 0.0 if kind in self._started else math.inf


def _kind(entry: Entry) -> str:
    config = {name: value for name, value in entry.config.items() if name not in ("seed", "workload", "profiles")}
    return json.dumps(config, sort_keys=True)
