"""Small simulated runs to draw: two policies with two seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polluxsim.cli.main import main
from polluxsim.records.storage import Run, read_run

if TYPE_CHECKING:
    from pathlib import Path

    from shared_runs import SharedRuns

SMALL = ("workload=philly-like", "workload.num_jobs=16", "workload.hours=1")


@pytest.fixture(scope="session")
def sweep_folder(shared_runs: SharedRuns) -> Path:
    """Return a folder with four runs of 16 jobs on 64 GPUs."""

    def make(folder: Path) -> None:
        assert main(["run", "-m", *SMALL, "policy=pollux,tiresias", "seed=0,1", f"hydra.sweep.dir={folder}"]) == 0

    return shared_runs.folder("sweep", make)


@pytest.fixture(scope="session")
def runs(sweep_folder: Path) -> list[Run]:
    found = [read_run(path.parent) for path in sorted(sweep_folder.glob("*/run.json"))]
    assert [run.info["seed"] for run in found] == [0, 1, 0, 1]
    return found
