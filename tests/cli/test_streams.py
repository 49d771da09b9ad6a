"""Standard streams that are closed, terminals that are not the controlling one, names that are not UTF-8."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.records.storage import read_run

WORKLOAD = "name,time,num_replicas,duration,user\na,0,1,600,u\nb,0,1,900,v\n"
RUN = ["run", "policy=fifo", "workload.path=w.csv", "-o"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.csv").write_text(WORKLOAD)


def with_streams(arguments: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a command with redirections of a shell."""
    words = ["sh", "-c", f'exec "$0" -m polluxsim "$@" {redirection}', sys.executable, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_a_command_runs_with_closed_streams(redirection: str) -> None:
    done = with_streams([*RUN, "r"], redirection)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_run(Path("r")).result.job_records) == 2
    done = with_streams(["table", "r"], redirection)
    assert done.returncode == 2
    if redirection == ">&-":
        assert done.stderr.count("\n") == 1
        assert "standard output is closed" in done.stderr


def test_a_live_view_needs_no_controlling_terminal() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "polluxsim", *RUN, "live", "--live"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=environment
    )
    os.close(theirs)
    try:
        while os.read(ours, 65536):
            pass
    except OSError:  # Linux reports the end of the terminal so
        pass
    os.close(ours)
    assert process.wait() == 0
    assert read_run(Path("live")).result.job_records


def test_a_folder_may_have_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "r"]) == 0
    folder = os.fsdecode(b"\xe9t\xe9")
    Path("r").rename(folder)
    fork = os.fsdecode(b"\xe9-fork")
    commands = (
        ["table", folder], ["table", folder, "--csv"], ["report", folder, "-o", "r.html"], ["why", folder, "a"],
        ["timeline", folder, "-o", "t.json"], ["whatif", folder, "--at", "60", "policy=srtf", "-o", fork],
    )  # fmt: skip
    for command in commands:
        assert main(command) == 0
    assert "\\xe9t\\xe9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "words"), [("--csv", "prints text"), ("--latex", "prints text"), ("--metric=avg_jct", "no metrics")]
)
def test_ranks_name_the_option_that_they_cannot_be_used_with(
    capsys: pytest.CaptureFixture[str], option: str, words: str
) -> None:
    assert main([*RUN, "r"]) == 0
    capsys.readouterr()
    assert main(["table", "r", "--ranks", "user", option]) == 2
    printed = capsys.readouterr().err
    assert f"--ranks cannot be used with {option.partition('=')[0]}" in printed
    assert words in printed


ODD = [
    "seed=${seed}", "seed=${nope}", "seed=${oc.env:NO_SUCH_VARIABLE}", "policy=[[1,[2]]]", "policy=[a]",
    "cluster=[1,2]", "workload=[1,[2]]", "cluster/failures=[[1]]", "+experiment=[[1]]", "hydra/launcher=[[1]]",
    "policy=${seed}", "workload.path=${workload.path}",
]  # fmt: skip


@pytest.mark.parametrize("mode", [[], ["-m"]])
@pytest.mark.parametrize("word", ODD)
def test_an_odd_setting_is_refused_in_a_line(capsys: pytest.CaptureFixture[str], word: str, mode: list[str]) -> None:
    if mode and word.startswith("hydra"):
        return  # the sweep itself has these settings
    assert main(["run", *mode, "workload.path=w.csv", word, "-o", "r"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    assert not Path("r").exists()


def test_hydras_files_go_after_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    refused = ["run", "workload.path=w.csv", "policy=fifo", "~workload._target_", "hydra.output_subdir=x"]
    assert main([*refused, "hydra/job_logging=default", "-o", "r"]) == 2
    assert not Path("r").exists()
    assert main([*RUN, "r", "hydra.output_subdir=x"]) == 0
    assert "hydra.output_subdir=x has no effect" in capsys.readouterr().err
    assert not Path("r/x").exists()


def test_a_relative_workload_is_found_from_other_folders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, "runs/r"]) == 0
    Path("other").mkdir()
    monkeypatch.chdir("other")
    for command in (
        ["when", "../runs/r", "--at", "60"],
        ["whatif", "../runs/r", "--at", "60", "policy=srtf", "-o", "../fork"],
        ["why", "../runs/r", "b"],
    ):
        assert main(command) == 0
    fork = next(Path("../fork").glob("otherwise*"))
    assert read_run(fork).info["config"]["workload"]["path"] == "w.csv"
    assert main(["whatif", str(fork), "--at", "120", "policy=fifo"]) == 0
    Path("../w.csv").unlink()
    capsys.readouterr()
    assert main(["when", "../runs/r", "--at", "60"]) == 2
    assert "its path is relative to the folder in which the run was made" in capsys.readouterr().err


def test_a_search_has_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    search = ["run", "policy=fifo", "workload=search", "workload.num_trials=1000000000", "workload.at_once=1000000000"]
    assert main([*search, "-o", "r"]) == 2
    assert "workload.num_trials is 1000000000, must be a whole number from 1 to 10000000" in capsys.readouterr().err
