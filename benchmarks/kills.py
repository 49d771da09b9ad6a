"""Kill commands at random moments: nothing that they leave is half written, and each of them resumes.

    python benchmarks/kills.py [--kills 200] [--seed 0] [--only sweep]

`run`, a sweep, `arena`, `whatif` and `size` are killed by SIGKILL, with all of their processes, at moments that are
uniform over the time that they take. After each kill, every run and every file under its final name must be readable.
After several kills in the same folder, the command is called once more and must leave the files that it leaves without
kills: the same bytes of each table except those of times, and the same metrics and settings of each run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from polluxsim.common.files import TEMPORARY
from polluxsim.records.storage import RUN_FILE, read_run

SMALL = ("workload=philly-like", "workload.num_jobs=3", "workload.hours=1", "policy=fifo")
COMMANDS = {
    "run": ("run", *SMALL, "-o", "out"),
    "sweep": ("run", "-m", *SMALL, "policy=fifo,srtf", "seed=0,1", "--workers", "2", "-o", "out"),
    "arena": (
        "arena",
        "--policies",
        "fifo,srtf",
        "--scenarios",
        "rigid",
        "--seeds",
        "1",
        "--workers",
        "2",
        "-o",
        "out",
    ),
    "whatif": ("whatif", "base", "--at", "10min", "policy=srtf", "-o", "out"),
    "size": ("size", *SMALL, "--target", "makespan < 100d", "--limit", "4", "--workers", "2", "-o", "out"),
}
BASE = ("run", *SMALL, "-o", "base")  # the run that `whatif` forks
KILLS_IN_A_ROW = 5  # kills in the same folder before the command may end


def start(words: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command with a process group of its own."""
    command = [sys.executable, "-m", "polluxsim", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(words: tuple[str, ...], folder: Path) -> float:
    """Run a command to its end, and return the time that it took [s]. Raise AssertionError if it fails."""
    began = time.perf_counter()
    process = start(words, folder)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return time.perf_counter() - began


def kill(words: tuple[str, ...], folder: Path, after: float) -> bool:
    """Start a command and kill all of its processes after a time [s]. Return whether it was still running."""
    process = start(words, folder)
    time.sleep(after)
    was_running = process.poll() is None
    if was_running:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return was_running


def visible_files(folder: Path) -> list[Path]:
    """Return the files under their final names."""
    temporary = set(folder.rglob(TEMPORARY))
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(path for path in files if temporary.isdisjoint([path, *path.parents]))


def check_whole(folder: Path) -> None:
    """Raise an error if a file under its final name cannot be read, or a run with a `run.json` is not complete."""
    for path in visible_files(folder):
        if path.name == RUN_FILE:
            read_run(path.parent)
        elif path.suffix == ".parquet":
            pq.read_table(path)
        else:
            assert path.read_text(encoding="utf-8"), path


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file that does not contain measured times, by its path."""
    digests = {}
    for path in visible_files(folder):
        data = path.read_bytes()
        if path.name == RUN_FILE:
            info = json.loads(data)
            data = json.dumps([info["config"], info["summary"]]).encode()
        if "timing" not in path.name and path.suffix in (".json", ".parquet"):
            digests[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return digests


def kill_command(name: str, kills: int, rng: random.Random, base: Path) -> None:
    """Kill a command a number of times, and print the result."""
    words = COMMANDS[name]
    with TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(base, folder / "base")
        duration = finish(words, folder)
        expected = contents(folder / "out")
        done, late, resumed = 0, 0, 0
        while done < kills:
            shutil.rmtree(folder / "out", ignore_errors=True)
            for _ in range(min(KILLS_IN_A_ROW, kills - done)):
                done += 1
                late += not kill(words, folder, rng.uniform(0, duration))
                check_whole(folder)
            finish(words, folder)
            check_whole(folder)
            assert contents(folder / "out") == expected
            resumed += 1
        print(
            f"{name}: {done} kills, {late} of them after the end; resumed {resumed} times, as without kills", flush=True
        )


def main() -> None:
    """Kill each command equally often."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS)
    options = parser.parse_args()
    names = [options.only] if options.only else list(COMMANDS)
    rng = random.Random(options.seed)
    with TemporaryDirectory() as place:
        finish(BASE, Path(place))
        for name in names:
            kill_command(name, options.kills // len(names), rng, Path(place) / "base")


if __name__ == "__main__":
    main()
