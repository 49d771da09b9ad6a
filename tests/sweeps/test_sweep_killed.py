"""A sweep that is killed at any moment goes on where it was: nothing is lost, made twice or half written.

`POLLUXSIM_KILLS=20 pytest tests/sweeps/test_sweep_killed.py` kills more often, which takes four minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow.parquet as pq
import pytest
from small_sweeps import HereAndNow, Inputs, command, dataset, planned, results, write_inputs

from polluxsim.common.files import TEMPORARY
from polluxsim.records.storage import read_run
from polluxsim.studies.driver import complete_sweep
from polluxsim.studies.plan import Entry, finished_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("POLLUXSIM_KILLS", "2"))
"""How many times a sweep is killed. From 20 on the process also dies before every single operation on a file."""
STEP = 1 if KILLS >= 20 else 3
"""The process dies before every so manieth operation on a file."""
FILE_OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


class Death(BaseException):
    """Stands for the end of the process: after it, nothing more is done to any file."""


class Reaper:
    """Lets the process die before its n-th operation on a file under a folder, or in the middle of a write.

    Python tells an audit hook of every operation before it does it, and the hook's exception prevents it. Once dead, so
    does every other operation: cleaning up is for the living.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._left = 0
        self.dead = False
        sys.addaudithook(self._hear)

    def come(self, folder: Path, operations: int) -> None:
        self._folder, self._left, self.dead = str(folder), operations, False

    def leave(self) -> None:
        self._folder = ""

    def half(self, write: Callable[..., Any], path: Path) -> None:
        """Let one moment pass in which a write that is done is only half done."""
        if self._folder and self._left == 1:
            self._folder, folder = "", self._folder
            os.truncate(path, path.stat().st_size // 2)
            self._folder = folder
        self._count()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_OPERATIONS and self._folder and str(arguments[0]).startswith(self._folder):
            self._count()

    def _count(self) -> None:
        if not self._folder:
            return
        self._left -= 1
        if self._left <= 0:
            self.dead = True
            raise Death


@pytest.fixture(scope="module")
def reaper() -> Reaper:
    return Reaper()


@pytest.fixture
def half_written(reaper: Reaper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the two ways in which we write files die half way, too."""
    write_table, write_text = pq.write_table, Path.write_text

    def table(table: object, file: BinaryIO, **options: Any) -> None:
        write_table(table, file, **options)
        file.flush()
        reaper.half(write_table, Path(file.name))

    def text(path: Path, *arguments: Any, **options: Any) -> None:
        write_text(path, *arguments, **options)
        reaper.half(write_text, path)

    monkeypatch.setattr(pq, "write_table", table)
    monkeypatch.setattr(Path, "write_text", text)


def numbered(folder: Path, inputs: Inputs, *plan: str) -> list[Entry]:
    entries = planned(folder, inputs, *plan)
    return [Entry(one.overrides, one.spec, one.key, folder / str(i)) for i, one in enumerate(entries)]


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(TEMPORARY))


@pytest.mark.usefixtures("half_written")
def test_dying_between_any_two_operations_on_files_loses_nothing(tmp_path: Path, reaper: Reaper) -> None:
    inputs = write_inputs(tmp_path)
    plan = ("policy=fifo engine.horizon=90", "policy=srtf engine.horizon=90")
    # The folders hold runs of the same settings that are out of date and have to make room.
    stale = tmp_path / "stale"
    complete_sweep(numbered(stale, inputs, *plan), stale, HereAndNow())
    inputs.workload.write_text(inputs.workload.read_text().replace("ncf-0,5,", "ncf-0,6,"))
    undisturbed = tmp_path / "undisturbed"
    complete_sweep(numbered(undisturbed, inputs, *plan), undisturbed, HereAndNow())
    expected = results(undisturbed)
    folder = tmp_path / "sweep"
    entries = numbered(folder, inputs, *plan)
    moments = 1 - STEP
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(stale, folder)
        moments += STEP
        reaper.come(folder, moments)
        try:
            complete_sweep(entries, folder, HereAndNow())
        except Death:
            assert reaper.dead
        finally:
            reaper.leave()
        if not reaper.dead:
            break
        check_what_is_there(folder, stale, undisturbed)
        kept = set(finished_runs(folder)) & {entry.key for entry in entries}
        workers = HereAndNow()
        complete_sweep(entries, folder, workers)
        assert {entry.key for entry in workers.done} == {entry.key for entry in entries} - kept
        assert results(folder) == expected, f"after death {moments}"
        assert not leftovers(folder)
    assert moments > 50
    assert results(folder) == expected


def check_what_is_there(folder: Path, stale: Path, undisturbed: Path) -> None:
    """Check that every run and table there is, is one that was written whole."""
    for path in finished_runs(folder).values():
        assert read_run(path).result in [read_run(whole / path.name).result for whole in (stale, undisturbed)]
    if (folder / "sweep.parquet").exists():
        assert dataset(folder) in (dataset(stale), dataset(undisturbed))


def test_kills_leave_the_same_bytes(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path)
    arguments = ["-m", "policy=pollux,tiresias", "seed=range(0,8)", *inputs.overrides]
    undisturbed = tmp_path / "undisturbed"
    with _started(arguments, undisturbed) as whole:
        begun = time.monotonic()
        assert whole.wait() == 0
        longest = time.monotonic() - begun
    with ThreadPoolExecutor(2) as pool:
        chains = [pool.submit(_kill, arguments, tmp_path / str(seed), seed, longest) for seed in range(2)]
        folders = [folder for chain in chains for folder in chain.result()]
    for folder in folders:
        assert results(folder) == results(undisturbed)
        assert not leftovers(folder)


def _kill(arguments: Sequence[str], place: Path, seed: int, longest: float) -> list[Path]:
    """Start sweeps in folders of `place` and kill them, until there were enough kills; return the folders, complete."""
    rng = random.Random(seed)
    kills, folders, complete = 0, list[Path](), True
    while kills < KILLS // 2 or not complete:
        if complete:
            folders.append(place / str(len(folders)))
        with _started(arguments, folders[-1]) as running:
            try:
                assert running.wait(rng.uniform(0, longest) if kills < KILLS // 2 else None) == 0
                complete = True
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                kills, complete = kills + 1, False
    return folders


@contextmanager
def _started(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give a sweep that has just begun: a kill before that would hit nothing but imports."""
    (folder / ".lock").unlink(missing_ok=True)
    words = command(*arguments, f"hydra.sweep.dir={folder}")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True) as running:
        while not (folder / ".lock").exists():
            assert running.poll() is None
            time.sleep(0.01)
        yield running
