"""Processes of our own, which begin as if each had been started anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

from polluxsim.run.workers import ONE_THREAD, starting, workers


def found(module: str) -> tuple[str, Path, str | None, dict[str, str | None]]:
    value = import_module(module).VALUE
    return value, Path.cwd(), os.environ.get("POLLUXSIM_OF_NOW"), {name: os.environ.get(name) for name in ONE_THREAD}


def test_a_worker_is_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folder, environment and modules are those of when it begins, not of when the first one began."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for number in ("1", "22"):  # as long as the first, the file of that second would pass for it
        folder = tmp_path / number
        folder.mkdir()
        (tmp_path / "of_the_moment.py").write_text(f"VALUE = '{number}'\n", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("POLLUXSIM_OF_NOW", number)
        monkeypatch.chdir(folder)
        with workers(1) as pool:
            with starting():
                future = pool.submit(found, "of_the_moment")
            assert future.result() == (number, folder, number, dict.fromkeys(ONE_THREAD, "1"))
        monkeypatch.delenv("POLLUXSIM_OF_NOW")
    with workers(1) as pool:
        with starting():
            future = pool.submit(os.getenv, "POLLUXSIM_OF_NOW")
        assert future.result() is None


def loaded() -> list[str]:
    return [name for name in sys.modules if name in {"polluxsim.run.execution", "numba"}]


@pytest.mark.skipif(sys.platform == "darwin", reason="each worker loads for itself there")
def test_a_worker_has_loaded_what_every_run_needs_and_no_more() -> None:
    with workers(1) as pool:
        with starting():
            future = pool.submit(loaded)
        assert future.result() == ["polluxsim.run.execution"]


def leave(kind: str) -> int:
    """Start a thread or a process that does not end by itself, and return the number of the process."""
    if kind == "thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return os.getpid()
    if kind == "process":
        process = get_context("fork").Process(target=time.sleep, args=(1000,))
        process.start()
        assert process.pid is not None
        return process.pid
    return subprocess.Popen(["sleep", "1000"]).pid


def is_running(process: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent to read its status."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize("kind", ["thread", "process", "program"])
def test_a_worker_ends_with_what_its_tasks_left_behind(kind: str) -> None:
    """Python would wait without end for a thread, and for a process that `multiprocessing` started."""
    with workers(1) as pool:
        with starting():
            future = pool.submit(leave, kind)
        left = future.result()
    until = time.monotonic() + 5.0
    while is_running(left) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(left)
