"""Processes of our own on this machine, which are gone when what they are for is."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, get_context, parent_process
from typing import TYPE_CHECKING

from polluxsim.errors import SweepError
from polluxsim.run.interrupt import SIGNALS, exit_at_once, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.context import ForkServerContext, SpawnContext

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Variables that keep libraries to one thread in a worker: there is a worker for every core already."""


def num_cores() -> int:
    """Return how many cores there are for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def workers(count: int, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Have so many processes at most within the block; whatever ends it ends them.

    They start with the first tasks, within `starting`, and do first what `begin` does. It is a `SweepError` if one of
    them ends by itself.
    """
    others = set(active_children())
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
    pool = ProcessPoolExecutor(count, mp_context=fresh(), initializer=begin_worker, initargs=(environment, begin))
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise SweepError("a worker process ended by itself: it crashed, or the machine ran out of memory") from None
    finally:
        for process in set(active_children()) - others:
            process.kill()
            process.join()
        pool.shutdown(wait=False, cancel_futures=True)


def fresh() -> ForkServerContext | SpawnContext:
    """Return how processes start: with nothing of ours, but forked off one that has loaded what every run needs.

    That one is started when first needed, loads for most of a second and goes with us. On macOS, whose own libraries
    do not bear a fork, each process loads for itself.
    """
    if sys.platform == "darwin":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["polluxsim.run.execution"])
    return context


@contextmanager
def starting() -> Iterator[None]:
    """Let processes start: Ctrl-C at a terminal goes to all of them, but it is us who stop them."""
    with uninterrupted(), one_thread_each():
        yield


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Have processes that are started in the meantime, and their libraries, do with one thread."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def begin_worker(environment: Mapping[str, str], begin: Callable[[], None] | None = None) -> None:
    """Begin a worker: Ctrl-C is the parent's business, and without the parent there is nothing to do.

    `environment` is the parent's: that of the process it was forked off may be older.
    """
    os.environ.clear()
    os.environ.update(environment)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        exit_at_once(1)  # not os._exit, which raises while a run of the user's code is under way
