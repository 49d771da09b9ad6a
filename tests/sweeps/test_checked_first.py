"""A sweep finds a run that cannot be made before the first run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

import polluxsim
from polluxsim.api import sweeps
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.run import inputs
from polluxsim.studies.launching import LocalWorkers
from polluxsim.studies.plan import Entry, composer, entry_of

SMALL = "name,time,num_replicas,duration\na,0,4,600\n"
LARGE = "name,time,num_replicas,duration\na,0,4,600\nb,0,48,600\n"
COMMON = ["run", "-m", "policy=fifo,srtf", "hydra.sweeper.workers=2", "-o", "s"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.csv").write_text(SMALL)
    Path("large.csv").write_text(LARGE)


def planned(*runs: str) -> list[Entry]:
    """Return the entries of runs, each given by its overrides in a text."""
    composing = composer()
    return [entry_of(run.split(), composing.compose(run.split()), Path("s")) for run in runs]


GOOD = "policy=fifo workload.path=small.csv"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("policy=fifo workload.path=large.csv cluster.num_nodes=8", "num_replicas is 48, must be at most 32"),
        (f"{GOOD} cluster.num_nodes=-1", "-1"),
        ("policy=fifo workload.path=none.csv", "none.csv: no such file"),
        ("policy=pollux workload.path=small.csv", "has no profile, and Pollux needs one"),
        (f"{GOOD} engine.round_interval=0", "engine.round_interval"),
        (f"{GOOD} engine.horizon=-5", "engine.horizon"),
    ],
)
def test_a_run_that_cannot_be_made_is_found(run: str, words: str) -> None:
    entries = planned(GOOD, run)
    refused = LocalWorkers(1, in_this_process=True).check(entries)
    assert [entry for entry, _ in refused] == entries[1:]
    assert words in str(refused[0][1])


def test_no_run_is_made_if_one_cannot_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMON, "workload.path=small.csv,large.csv", "cluster.num_nodes=8,16"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "2 of 8 runs cannot be made, the first: policy=fifo workload.path=large.csv cluster.num_nodes=8" in printed
    assert "no run was made" in printed
    assert not Path("s").exists()


def test_finished_runs_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMON, "workload.path=small.csv"]) == 0
    assert main([*COMMON, "workload.path=small.csv,large.csv", "cluster.num_nodes=8"]) == 2
    assert len(list(Path("s").glob("*/run.json"))) == 2


def test_a_sweep_in_this_process_checks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "simulate", lambda **_: pytest.fail("a run was made"))
    with pytest.raises(InvalidInputError, match="num_replicas is 48"):
        polluxsim.sweep("large.csv", policy="fifo", cluster=[(16, 4), (8, 4)])


def test_the_jobs_of_a_workload_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    load = inputs.load

    def counted(config: object, group: str, *arguments: object) -> object:
        read.append(group)
        return load(config, group, *arguments)

    monkeypatch.setattr(inputs, "load", counted)
    Path("once.csv").write_text(SMALL.replace("600", "601"))  # no other test in this process has read it
    entries = planned(*(f"policy=fifo workload.path=once.csv cluster.num_nodes={nodes}" for nodes in range(1, 11)))
    assert LocalWorkers(1, in_this_process=True).check(entries) == []
    assert read.count("workload") == 1
