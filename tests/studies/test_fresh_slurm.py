"""A fresh run of a real Slurm, which the driver beside the recorded runs makes: Slurm's policy decides as slurmctld."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.studies.decisions.fitting import fitted
from polluxsim.studies.decisions.record import read_run

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "sinfo")
LONGEST = 1800  # longest time of the run [s]; 30 jobs take some 7 minutes, nearly without processor time


def free_port() -> int:
    """Return a port such that Slurm's daemons can use it, the next one, and the four from 101 on."""
    for port in range(26_817, 60_000, 1000):
        with_others = (port, port + 1, *range(port + 101, port + 105))
        if all(_is_free(number) for number in with_others):
            return port
    pytest.skip("no six free ports for the daemons of Slurm")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def record_run(shared: Path, work: Path, out: Path, *, seed: int, jobs: int, more: str = "") -> None:
    """Start Slurm in a folder, submit drawn jobs, write the record, and stop the daemons by their ids.

    `more` are further lines of slurm.conf.
    """
    conf = work.with_suffix(".conf")
    conf.write_text((shared / "slurm.conf").read_text() + more)
    try:
        start = ["bash", str(shared / "start.sh"), str(work), str(conf), str(shared / "gres.conf"), str(free_port())]
        subprocess.run(start, check=True, timeout=120, capture_output=True)
        drive = [sys.executable, str(shared / "drive.py"), "--work", str(work), "--seed", str(seed)]
        options = ["--jobs", str(jobs), "--mean-gap", "7", "--out", str(out)]
        subprocess.run(
            [*drive, *options], check=True, timeout=LONGEST, capture_output=True, env=os.environ | {"TZ": "UTC"}
        )
    finally:
        for file in work.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGTERM)


@pytest.mark.slow
def test_slurm_decides_as_a_fresh_run_of_slurmctld(data_folder: Path, tmp_path: Path) -> None:
    shared = data_folder.parent / "slurm"
    if not shared.is_dir():
        pytest.skip(f"needs the driver in {shared}, beside the folder of measured data")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs root and Slurm; missing: {', '.join(missing)} (apt-get install slurm-wlm munge)")
    record_run(shared, tmp_path / "twin", tmp_path / "run.csv", seed=30, jobs=30)
    agreed = fitted(read_run(tmp_path / "run.csv"), {}, Parameters(), frozenset()).agreement
    assert agreed.decisions > 10
    assert agreed.share >= 0.95
