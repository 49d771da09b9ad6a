"""An option takes effect, or the command refuses it with an error that names it. Output is complete and clean."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.common.files import lock
from polluxsim.studies.driver import LOCK, locked

LOG = "submitted,GPUs,seconds\n0,1,60\n"
RUN = ["workload=philly-like", "workload.num_jobs=3", "workload.hours=1", "policy=fifo"]


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *RUN, "hydra.run.dir=run"]) == 0
    capsys.readouterr()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "option",
    [["--seeds", "2"], ["--drop-node", "1"], ["--without", "a"], ["--add", "nowhere.csv"], ["--at", "3h"],
     ["--allow-classes", "mine"]],
)  # fmt: skip
def test_a_what_if_of_a_log_refuses_options_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    assert main(["whatif", "log.csv", "--nodes", "2", *option]) == 2
    assert f"{option[0]} cannot be used here, because log.csv is a log; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--drop-node", "1"]])
def test_a_what_if_of_a_run_refuses_options_of_logs(
    run: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert main(["whatif", "run", "--at", "10min", "--policy", "tiresias", *more]) == 2
    error = capsys.readouterr().err
    assert "--policy cannot be used here, because run is a run; leave it out; change a run with settings" in error
    assert main(["whatif", "run", "--at", "10min", "--failures", "off", *more]) == 2
    assert "--failures cannot be used here" in capsys.readouterr().err


def test_an_error_about_a_workload_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["--jobs", "-5"], ["--hours", "0"]):
        assert main(["generate", "w.csv", *words]) == 2
        error = capsys.readouterr().err
        assert f"{words[0]} is {words[1]}" in error
        assert "workload." not in error


def test_names_of_jobs_are_not_read_as_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{name},{time},cifar10,1,128\n" for time, name in enumerate(("[/b]x", "train[resnet]", "c")))
    Path("jobs.csv").write_text(f"name,time,application,num_replicas,batch_size\n{rows}")
    assert main(["run", "policy=fifo", "workload.path=jobs.csv", "hydra.run.dir=run"]) == 0
    capsys.readouterr()
    assert main(["when", "run", "--at", "120", "--forks", "2"]) == 0
    printed = capsys.readouterr().out
    assert "[/b]x" in printed
    assert "train[resnet]" in printed


def test_a_check_removes_its_progress_line_and_keeps_standard_output_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("class Bad:\n    def allocate(self, view, rng):\n        raise ValueError('bad')\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["check", "bad.py:Bad", "--worlds", "21"]) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\r" not in printed
    assert "world 20 of 21" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_table_is_printed_whatever_the_encoding(run: Path) -> None:
    for encoding in ("latin-1", "ascii"):
        done = subprocess.run(
            [sys.executable, "-m", "polluxsim", "table", str(run)],
            env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert "\\u03c1" in done.stdout


def test_an_arena_changes_nothing_while_another_one_runs_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gives_nothing.py").write_text("class Mine:\n    def allocate(self, view, rng):\n        return {}\n")
    runs = Path("arena/runs")
    runs.mkdir(parents=True)
    with (runs / LOCK).open("a") as file:
        lock(file)
        assert main(["arena", "--policies", "gives_nothing.py:Mine", "--scenarios", "rigid", "--seeds", "1"]) == 2
    assert "another sweep is at work here" in capsys.readouterr().err
    assert sorted(path.name for path in Path("arena").rglob("*")) == [LOCK, "runs"]


def test_a_lock_can_be_taken_again_inside_its_own_block(tmp_path: Path) -> None:
    with locked(tmp_path), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
