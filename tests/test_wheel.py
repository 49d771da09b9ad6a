"""What is published works where nothing of the checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def done(*command: object, cwd: Path, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    found = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """Only the libraries it needs are borrowed from here; it itself is installed from the wheel."""
    hatchling = pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    where = str(Path(hatchling.__file__).parents[1])
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    done(
        *pip,
        "wheel",
        ROOT,
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        cwd=tmp_path,
        PYTHONPATH=where,
    )
    (wheel,) = tmp_path.glob("polluxsim-*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    done(*pip, "--python", python, "install", wheel, "--no-deps", "--no-index", cwd=tmp_path)
    (own,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # Lines of this file are looked in last, and .pth files in those places, like that of the checkout, do not count.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (own / "borrowed.pth").write_text("\n".join(borrowed))
    assert done(python, "-c", "import polluxsim; print(polluxsim.__file__)", cwd=tmp_path).startswith(str(own))
    polluxsim = tmp_path / "env" / "bin" / "polluxsim"
    small = ("policy=fifo", "workload=philly-like", "workload.num_jobs=5", "workload.hours=1")
    done(polluxsim, "run", *small, "hydra.run.dir=out", cwd=tmp_path)
    assert "average JCT" in done(polluxsim, "table", "out", cwd=tmp_path)
    done(polluxsim, "report", "out", cwd=tmp_path)
    done(polluxsim, "run", "-m", *small, "policy=fifo,srtf", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert "fig8a" in done(polluxsim, "paper", "reproduce", "list", cwd=tmp_path)
