"""Commands that are interrupted, terminated or killed at any moment: nothing half written, nothing left for good."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from small_sweeps import write_inputs

from polluxsim.cli.main import main
from polluxsim.common.files import TEMPORARY
from polluxsim.records.storage import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("default_signals")]

COUNT = int(os.environ.get("POLLUXSIM_SIGNALS", "5"))
"""Signals sent in all; more find more."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
CLEAN = (signal.SIGINT, signal.SIGTERM)
"""After these the command itself leaves nothing, once it has begun."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return commands by name, each of which writes into the folder it runs in."""
    folder = tmp_path_factory.mktemp("inputs")
    inputs = write_inputs(folder)
    assert main(["run", "policy=fifo", *inputs.overrides, f"hydra.run.dir={folder / 'OUT'}"]) == 0
    rows = (f"{i}|2024-01-01T00:{i % 60:02}:00|COMPLETED|gres/gpu={1 + i % 4}|{60 + i}" for i in range(20_000))
    (folder / "sacct.txt").write_text("\n".join(["JobID|Submit|State|AllocTRES|ElapsedRaw", *rows]))
    return {
        "run": ["run", "policy=pollux", *inputs.overrides, "hydra.run.dir=out"],
        "sweep": ["run", "-m", "policy=pollux,fifo", "seed=0,1", *inputs.overrides, "hydra.sweep.dir=out"],
        "import": ["log", "import", "slurm", str(folder / "sacct.txt"), "-o", "out.parquet"],
        "workload": ["workload", "workload=philly-like-log", "workload.hours=4000", "-o", "out.parquet"],
        "report": ["report", str(folder / "OUT"), "-o", "out.html"],
    }


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "polluxsim", *arguments]


def temporaries(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob(TEMPORARY)]


def check_whole(folder: Path) -> None:
    """Check that whatever is there under its own name can be read to its end."""
    for path in folder.rglob("run.json"):
        assert not path.parent.name.startswith(".")
        assert read_run(path.parent).result.job_records
    for path in folder.glob("*.parquet"):
        pq.read_table(path)
    for path in folder.glob("*.html"):
        assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def duration_of(arguments: Sequence[str], folder: Path) -> float:
    folder.mkdir()
    begun = time.monotonic()
    subprocess.run(command(arguments), cwd=folder, check=True, capture_output=True)
    return time.monotonic() - begun


def test_no_signal_leaves_anything_half_written(commands: dict[str, list[str]], tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("POLLUXSIM_SIGNALS_SEED", "0")))
    longest = {name: duration_of(arguments, tmp_path / name) for name, arguments in commands.items()}
    hit = 0
    for index in range(COUNT):
        name = list(commands)[index % len(commands)]
        number = SIGNALS[index // len(commands) % len(SIGNALS)] if COUNT >= 15 else rng.choice(SIGNALS)
        folder = tmp_path / f"{index}-{name}"
        folder.mkdir()
        hit += interrupted(commands[name], folder, number, rng.uniform(0.3, 1) * longest[name])
        check_whole(folder)
        subprocess.run(command(commands[name]), cwd=folder, check=True, capture_output=True)
        check_whole(folder)
        assert temporaries(folder) == []
        assert sorted(path.name for path in folder.iterdir()) == sorted(p.name for p in (tmp_path / name).iterdir())
    print(f"{COUNT} signals, {hit} of them while a command ran")
    assert hit >= COUNT // 3


def interrupted(arguments: Sequence[str], folder: Path, number: int, after: float) -> bool:
    """Run a command and send it a signal; return whether it was still at work."""
    running = subprocess.Popen(
        command(arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(after)
    running.send_signal(number)
    _, errors = running.communicate()
    if running.returncode == 130:
        assert number in CLEAN
        assert errors.startswith("polluxsim: interrupted"), errors
        assert errors.count("\n") == 1, errors
        assert temporaries(folder) == []
        assert [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())] == []
    return running.returncode != 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_regret_continues(tmp_path: Path, number: int) -> None:
    settings = ["policy=fifo", "workload=philly-like-rigid", "seed=1", "hydra.run.dir=run"]
    subprocess.run(command(["run", *settings]), cwd=tmp_path, check=True, capture_output=True)
    regret = command(["regret", "run", "srsf", "--csv"])
    file = tmp_path / "run" / "regret-srsf.jsonl"
    running = subprocess.Popen(regret, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while (not file.exists() or len(file.read_bytes().splitlines()) < 20) and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(number)
    _, errors = running.communicate()
    finished = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    count = sum(line.startswith('{"differences"') for line in finished)
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert errors.startswith(f"polluxsim: interrupted, {count} of ")
        assert errors.endswith(" rounds are kept; the same command continues\n")
    assert 0 < count < 150
    assert temporaries(tmp_path) == []
    done = subprocess.run(regret, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) > 150
    assert file.read_text().startswith("".join(finished))


def test_an_interrupted_what_if_names_the_forks_that_are_kept(tmp_path: Path) -> None:
    settings = ["policy=tiresias", "workload=philly-like", "workload.num_jobs=20", "hydra.run.dir=run"]
    subprocess.run(command(["run", *settings]), cwd=tmp_path, check=True, capture_output=True)
    whatif = ["whatif", "run", "--at", "30min", "policy=srtf", "--seeds", "2000", "-o", "forks"]
    running = subprocess.Popen(command(whatif), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while len(list(tmp_path.glob("forks/*/run.json"))) < 3 and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate()
    assert running.returncode == 130
    number = len(list(tmp_path.glob("forks/*/run.json")))
    assert errors == f"polluxsim: interrupted, {number} finished forks are kept in forks\n"
    assert temporaries(tmp_path) == []
