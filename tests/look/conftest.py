"""Small real runs to draw: two policies, two seeds, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.storage import Run, read_run

SMALL = ("workload=philly-like", "workload.num_jobs=16", "workload.hours=1")


@pytest.fixture(scope="session")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four runs of 16 jobs on 64 GPUs."""
    folder = tmp_path_factory.mktemp("figures") / "sweep"
    assert main(["run", "-m", *SMALL, "policy=pollux,tiresias", "seed=0,1", f"hydra.sweep.dir={folder}"]) == 0
    return folder


@pytest.fixture(scope="session")
def runs(sweep_folder: Path) -> list[Run]:
    found = [read_run(path.parent) for path in sorted(sweep_folder.glob("*/run.json"))]
    assert [run.info["seed"] for run in found] == [0, 1, 0, 1]
    return found
