"""Worker processes on this machine, which end with the block or with their parent process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import active_children, connection, get_context, parent_process, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from polluxsim.common.errors import SweepError
from polluxsim.common.process_state import last_resorts
from polluxsim.run.interrupt import deferred, handle_for_good
from polluxsim.run.user_exits import exit_at_once

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Variables that limit the libraries of a worker to one thread. There is one worker for each core."""


PATIENCE = 0.2  # longest time from Ctrl-C to its effect [s]

KeyT = TypeVar("KeyT")


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def workers(count: int, begin: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of at most `count` worker processes.

    Submit the tasks within `starting`, because the workers start with the first ones. Each calls `begin` first. The end
    of the block waits for the tasks and kills the workers; an error in the block kills them at once. Raise SweepError
    if the block raises the error about a worker that crashed.
    """
    # The caller may have processes of its own, which must stay.
    older_processes = set(active_children())
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
    pool = ProcessPoolExecutor(count, mp_context=fresh(), initializer=begin_worker, initargs=(environment, begin))
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise SweepError("a worker process ended by itself: it crashed, or the machine ran out of memory") from None
    finally:
        for process in set(active_children()) - older_processes:
            kill_worker(process)
            process.join()
        pool.shutdown(wait=False, cancel_futures=True)


def as_finished(
    pool: ProcessPoolExecutor, tasks: Iterable[tuple[KeyT, Callable[..., Any], tuple[Any, ...]]], count: int
) -> Iterator[tuple[KeyT, Future[Any]]]:
    """Submit tasks, at most `count` at a time, and yield the key and the future of each task when it is finished.

    A task is a key, a function and its arguments. A task is requested only when it can start, so an iterator may choose
    it late. Once a crash of a process is noticed, no further task is requested; tasks that were submitted are yielded
    with the error.
    """
    running: dict[Future[Any], KeyT] = {}
    waiting_tasks = iter(tasks)
    is_broken = False
    while True:
        while not is_broken and len(running) < count:
            task = next(waiting_tasks, None)
            if task is None:
                break
            key, function, arguments = task
            try:
                with starting():
                    future = pool.submit(function, *arguments)
            except BrokenProcessPool as error:
                future = Future()
                future.set_exception(error)
                is_broken = True
            running[future] = key
        if not running:
            return
        done, _ = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
        for future in done:
            if isinstance(future.exception(), BrokenProcessPool):
                is_broken = True
            yield running.pop(future), future


def fresh() -> ForkServerContext | SpawnContext:
    """Return the method by which worker processes start.

    Workers are forked from a server process that has imported the modules that every run needs. The server starts at
    the first use, which takes most of a second, and ends with this process. On macOS, system libraries do not support
    forking, so each worker imports the modules itself.
    """
    if sys.platform == "darwin":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["polluxsim.run.execution", "polluxsim.studies.launching"])
    return context


@contextmanager
def starting() -> Iterator[None]:
    """Start workers within the block. They do not receive Ctrl-C, because this process stops them."""
    resource_tracker.ensure_running()  # within the block its start would unblock the signals
    with deferred(), one_thread_each():
        yield


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit the libraries of processes that start within the block to one thread."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]  # it was not set
            else:
                os.environ[name] = value


def kill_worker(process: BaseProcess) -> None:
    """Kill a worker, and the processes that code of the user started in it. Do nothing if it has not started."""
    if process.pid is None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it has ended, or has not begun
        process.kill()


def begin_worker(environment: Mapping[str, str], begin: Callable[[], None] | None = None) -> None:
    """Set up a worker: it ignores Ctrl-C, and ends if its parent ends.

    It leads a group of processes, so that `kill_worker` also ends the processes that it starts.

    `environment` holds the environment variables of the parent. The variables of the server process,
    from which the worker was forked, may be older.
    """
    os.environ.clear()
    os.environ.update(environment)
    os.setpgid(0, 0)
    # A handler that does nothing: a signal that is ignored would be ignored in programs that the worker starts too.
    handle_for_good(lambda *_: None)
    last_resorts.append(lambda message: exit_at_once(1))
    # Priority 0 is before Python waits for the processes and threads of the user, which may never end.
    Finalize(None, _end_group, exitpriority=0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _end_group() -> None:
    """End this worker, when its tasks are done, with the processes and threads that code of the user left behind."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # code of the user removed or closed it
            stream.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _end_with_parent() -> None:
    """Wait until the parent process ends, and end this worker and its processes."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        exit_at_once(1)  # not os._exit, which raises an exception while a run executes user code
