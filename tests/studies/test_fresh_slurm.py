"""A fresh run of a real Slurm, which the driver beside the recorded runs makes: Slurm's policy decides as slurmctld."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from polluxsim.cli.main import main
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
    with running_slurm(shared, work, more):
        drive = [sys.executable, str(shared / "drive.py"), "--work", str(work), "--seed", str(seed)]
        options = ["--jobs", str(jobs), "--mean-gap", "7", "--out", str(out)]
        subprocess.run(
            [*drive, *options], check=True, timeout=LONGEST, capture_output=True, env=os.environ | {"TZ": "UTC"}
        )


@contextmanager
def running_slurm(shared: Path, work: Path, more: str = "") -> Iterator[None]:
    """Start Slurm in a folder, and stop its daemons by their ids."""
    conf = work.with_suffix(".conf")
    conf.write_text((shared / "slurm.conf").read_text() + more)
    try:
        start = ["bash", str(shared / "start.sh"), str(work), str(conf), str(shared / "gres.conf"), str(free_port())]
        subprocess.run(start, check=True, timeout=120, capture_output=True)
        yield
    finally:
        for file in work.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGTERM)


def shared_folder(data_folder: Path) -> Path:
    """Return the folder of the driver. Skip a test that cannot run Slurm."""
    shared = data_folder.parent / "slurm"
    if not shared.is_dir():
        pytest.skip(f"needs the driver in {shared}, beside the folder of measured data")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs root and Slurm; missing: {', '.join(missing)} (apt-get install slurm-wlm munge)")
    return shared


@pytest.mark.slow
def test_slurm_decides_as_a_fresh_run_of_slurmctld(data_folder: Path, tmp_path: Path) -> None:
    shared = shared_folder(data_folder)
    record_run(shared, tmp_path / "twin", tmp_path / "run.csv", seed=30, jobs=30)
    agreed = fitted(read_run(tmp_path / "run.csv"), {}, Parameters(), frozenset()).agreement
    assert agreed.decisions > 10
    assert agreed.share >= 0.95


@pytest.mark.slow
def test_the_twin_answers_identically_from_the_daemons_and_from_files(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = shared_folder(data_folder)
    with running_slurm(shared, tmp_path / "twin"):
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "twin" / "slurm.conf"))
        # The first jobs fill the nodes and run for the whole test, so that only the clock moves on.
        for gpus, nodes, minutes in ((4, 1, 20), (3, 1, 15), (4, 2, 25), (2, 1, 5), (4, 1, 10), (4, 2, 30)):
            words = ["sbatch", f"-N{nodes}", f"--gres=gpu:{gpus}", f"-t{minutes}", "-o", "/dev/null", "-D", "/"]
            subprocess.run([*words, "--wrap", "sleep 300"], check=True, timeout=60, capture_output=True)
        time.sleep(5)
        now = time.time()
        monkeypatch.setattr("polluxsim.logs.live.queries.time.time", lambda: now)
        folder = tmp_path / "state"
        assert main(["twin", "collect", "-o", str(folder)]) == 0
        assert "wrote 8 of 9 answers" in capsys.readouterr().out  # sacct needs slurmdbd
        for words in (
            ["eta"],
            ["try", "--gpus", "4", "--time", "30min"],
            ["whatif", "--drain", "n3", "--nodes", "+1", "--policy", "slurm(bf_interval=60)"],
        ):
            line = ["twin", *words, "--forks", "5", "--csv"]
            assert main(line) == 0
            from_daemons = capsys.readouterr().out
            assert main([*line, "--state", str(folder)]) == 0
            assert capsys.readouterr().out == from_daemons
            assert len(from_daemons.splitlines()) > 2
