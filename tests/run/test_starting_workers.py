"""Ctrl-C while worker processes start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

import pytest

from polluxsim.checks import checking
from polluxsim.run.interrupt import begin_command, deferred, raising
from polluxsim.run.workers import starting


@pytest.fixture(autouse=True)
def _command() -> None:
    """Begin a command, because an earlier test in this process may have written its results."""
    begin_command()


SLEEPING = (sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(30)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_at_the_end_of_the_block(number: signal.Signals) -> None:
    reached = []
    with raising(), pytest.raises(KeyboardInterrupt), deferred():
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        reached.append(1)
    assert reached == [1]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_signal_takes_effect_if_the_block_raises() -> None:
    with raising(), pytest.raises(KeyboardInterrupt) as caught, deferred():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        raise ValueError
    assert isinstance(caught.value.__context__, ValueError)


def test_nothing_is_raised_without_a_signal() -> None:
    with raising(), deferred():
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_starts_within_the_block_does_not_receive_the_signal(number: signal.Signals) -> None:
    with starting(), subprocess.Popen(SLEEPING, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        time.sleep(0.2)
        assert process.poll() is None
        process.kill()


class Ended(BaseException):
    """Raised in place of the end of the process."""


def test_a_check_ends_if_the_signal_comes_while_its_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    process = checking.fresh().Process
    start = process.start

    def interrupted_start(self: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        start(self)

    def end(status: int) -> NoReturn:
        raise Ended(status)

    monkeypatch.setattr(process, "start", interrupted_start)
    monkeypatch.setattr("polluxsim.run.interrupt.exit_at_once", end)
    with pytest.raises(Ended, match="130"):
        list(checking.found_apart("fifo", 3))
