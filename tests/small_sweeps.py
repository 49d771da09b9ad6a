"""What the tests of sweeps share: small plans on toy profiles, and folders compared."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toy import write_artifact, write_jobs

from polluxsim.cli.main import main
from polluxsim.studies.driver import DATASET
from polluxsim.studies.launching import perform
from polluxsim.studies.plan import composer, entry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.studies.plan import Entry

JOBS = [f"cifar10-{i},{60 * i},cifar10,{1 + i % 4},{512 * (1 + i % 4)}" for i in range(6)] + ["ncf-0,5,ncf,1,4096"]


@dataclass(frozen=True)
class Inputs:
    """A folder of profiles and a workload, and the overrides that name them."""

    profiles: Path
    workload: Path

    @property
    def overrides(self) -> list[str]:
        return [f"workload.path={self.workload}", f"profiles.path={self.profiles}"]


def write_inputs(folder: Path) -> Inputs:
    return Inputs(write_artifact(folder / "artifact"), write_jobs(folder / "w.csv", *JOBS))


class HereAndNow:
    """Does runs in this process, and remembers which."""

    def __init__(self) -> None:
        self.done: list[Entry] = []

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        for entry in entries:
            perform(entry.spec, entry.folder)
            self.done.append(entry)
        return []


def planned(folder: Path, inputs: Inputs, *plan: str) -> list[Entry]:
    """Return the entries of a plan; the overrides of a run stand in one text, with spaces between."""
    composing = composer()
    every = [[*inputs.overrides, *run.split()] for run in plan]
    return [entry_of(run, composing.compose(run), folder) for run in every]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "polluxsim", "run", *arguments]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, env=os.environ | environment
    )


def in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Do what `process` does in this process, which has loaded everything and keeps its pool of workers."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            status = main(["run", *arguments])
        except SystemExit as end:  # of --help
            status = end.code
    return subprocess.CompletedProcess(command(*arguments), status, output.getvalue(), errors.getvalue())


def results(folder: Path) -> dict[str, bytes]:
    """Return everything a sweep left but wall-clock times, its lock, and what a launcher keeps of its own.

    Nor does the commit count, which someone may make while tests run.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = {path: path.relative_to(folder).as_posix() for path in files}
    apart = (".lock", ".submitit/", "multirun.yaml", "sweep-timing.parquet")
    kept = {path for path, name in names.items() if not name.startswith(apart) and path.name != "timing.parquet"}
    return {names[path]: re.sub(rb'"git_commit": .*\n', b"", path.read_bytes()) for path in kept}


def dataset(folder: Path) -> bytes:
    return (folder / DATASET).read_bytes()
