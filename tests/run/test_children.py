"""Processes that code of a run starts: they react to signals as usual, and end with the worker that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from polluxsim.run.interrupt import interruptible, raising, stopping_between_rounds, uninterrupted
from polluxsim.run.user_exits import forks_ended
from polluxsim.run.workers import starting, workers

pytestmark = pytest.mark.usefixtures("default_signals")

DEFAULT = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
SLEEPING = (sys.executable, "-c", "import time; time.sleep(60)")
FORK = multiprocessing.get_context("fork")


def has_default_signals() -> bool:
    """Return whether this process handles signals as a new Python does."""
    handlers = {number: signal.getsignal(number) for number in DEFAULT}
    is_blocked = bool(signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*DEFAULT})
    return handlers == DEFAULT and not is_blocked and signal.set_wakeup_fd(-1) == -1


def forked_by_os() -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if has_default_signals() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forked_by_multiprocessing() -> bool:
    with FORK.Pool(1) as pool:
        return pool.apply(has_default_signals)


def forked_by_subprocess() -> bool:
    def check() -> None:
        if not has_default_signals():
            raise RuntimeError

    return subprocess.run([sys.executable, "-c", ""], preexec_fn=check, check=False).returncode == 0


WAYS = [forked_by_os, forked_by_multiprocessing, forked_by_subprocess]


@pytest.mark.parametrize("block", [raising, interruptible, uninterrupted, stopping_between_rounds])
@pytest.mark.parametrize("fork", WAYS)
def test_a_child_has_default_handlers(block: Callable, fork: Callable[[], bool]) -> None:
    with block(), block():
        before = {number: signal.getsignal(number) for number in DEFAULT}
        assert fork()
        assert {number: signal.getsignal(number) for number in DEFAULT} == before


def test_a_handler_of_the_user_is_inherited() -> None:
    def handler(*_: object) -> None: ...

    signal.signal(signal.SIGTERM, handler)
    with interruptible():
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.getsignal(signal.SIGTERM) is handler else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_that_is_ended_at_once_ends_alone() -> None:
    with interruptible() as check:
        for _ in range(20):
            child = FORK.Process(target=time.sleep, args=(60,))
            child.start()
            child.terminate()
            child.join(10)
            assert child.exitcode == -signal.SIGTERM
            check()


def exit_codes() -> list[int | None]:
    """Start processes in several ways, end each with SIGTERM, and return their exit statuses."""
    child = FORK.Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(10)
    program = subprocess.Popen(SLEEPING)
    program.terminate()
    return [child.exitcode, program.wait(10), 0 if all(fork() for fork in WAYS) else 1]


def test_children_of_a_worker_end_by_a_signal() -> None:
    with workers(1) as pool:
        with starting():
            future = pool.submit(exit_codes)
        assert future.result(30) == [-signal.SIGTERM, -signal.SIGTERM, 0]


def start_program() -> int:
    return subprocess.Popen(SLEEPING).pid


class FailedError(Exception):
    """Raised in a block of workers, which are then killed."""


def test_a_killed_worker_leaves_no_processes() -> None:
    with pytest.raises(FailedError), workers(1) as pool:
        with starting():
            future = pool.submit(start_program)
        program = future.result(30)
        pool.submit(time.sleep, 60)
        raise FailedError
    for _ in range(100):
        if has_ended(program):
            break
        time.sleep(0.02)
    assert has_ended(program)


def has_ended(process: int) -> bool:
    """Return whether a process has ended; nobody may have waited for it."""
    try:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError:
        return True
    return state.stdout.startswith("Z")


@pytest.mark.parametrize(("leave", "status"), [(sys.exit, 0), (lambda: sys.exit(3), 3), (lambda: 1 / 0, 1), (int, 0)])
def test_a_forked_process_does_not_leave_the_block(leave: Callable[[], object], status: int) -> None:
    child = 0
    with forks_ended():
        child = os.fork()
        if child == 0:
            leave()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
