"""Processes of our own, which begin as if each had been started anew."""

from __future__ import annotations

import os
import sys
from importlib import import_module
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
