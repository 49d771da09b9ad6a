"""Code of the user's that ends the process, or writes to its view: the command names it and goes on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.run.user_exits import exits_raised

SMALL = ["workload=philly-like", "workload.num_jobs=4", "workload.hours=1"]

MINE = """
import os, signal, sys

class Idle:
    def allocate(self, view, rng):
        return {job.job_id: job.placement for job in view.jobs if job.placement}

from polluxsim.policies.ordered.classic import Fifo

class Works(Fifo):
    pass

class ExitsWhenMade(Idle):
    def __init__(self): sys.exit(0)

class ExitsAtOnce(Idle):
    def allocate(self, view, rng): os._exit(0)

class Exits(Idle):
    def allocate(self, view, rng): sys.exit()

class Raises(Idle):
    def allocate(self, view, rng): raise BaseException("enough")

class Killed(Idle):
    def allocate(self, view, rng): os.kill(os.getpid(), signal.SIGKILL)

class Assigns(Idle):
    def allocate(self, view, rng):
        view.jobs[0].num_replicas = 1
        return {}

class Closes(Idle):
    def allocate(self, view, rng):
        sys.stdout.close()
        return {job.job_id: ((0, 1),) for job in view.jobs[:1]}
"""

SAID = {
    "ExitsWhenMade": "mine.ExitsWhenMade ended the process when it was made (SystemExit: 0)",
    "ExitsAtOnce": "policy ExitsAtOnce failed in the round at",
    "Exits": "policy Exits failed in the round at",
    "Raises": "BaseException: enough",
    "Assigns": "AttributeError: a view is read-only, num_replicas cannot be assigned",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    for name in ("Idle", *SAID, "Killed", "Closes"):
        (tmp_path / "conf" / "policy" / f"{name}.yaml").write_text(f"_target_: mine.{name}\n")
    yield tmp_path
    sys.modules.pop("mine", None)


def errors_of(command: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """Return the messages of a command that ends with a status. They contain no traceback."""
    assert main(command) == status
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert all(line.startswith("polluxsim: ") for line in errors.splitlines())
    return errors


@pytest.mark.parametrize("name", SAID)
def test_a_run_of_such_a_policy_is_one_line(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--config-dir", "conf", f"policy={name}", *SMALL, "hydra.run.dir=out"]
    errors = errors_of(command, capsys)
    assert SAID[name] in errors
    assert errors.count("\n") == 1
    assert not Path("out").exists()
    assert os._exit.__module__ == "posix"


def test_a_what_if_of_such_a_policy_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "policy=fifo", *SMALL, "hydra.run.dir=base"]) == 0
    capsys.readouterr()
    changed = ["policy=fifo", "policy.backfill=null"]
    for name in ("ExitsWhenMade", "ExitsAtOnce"):
        errors = errors_of(["whatif", "base", "--at", "60", *changed, f"policy._target_=mine.{name}"], capsys)
        assert SAID[name] in errors
        assert errors.count("\n") == 1
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == ["base", "conf", "mine.py"]


def test_a_sweep_names_the_run_and_makes_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = "policy=Killed,fifo,ExitsAtOnce"
    sweep = ["run", "-m", "--config-dir", "conf", policies, *SMALL, "hydra.sweep.dir=out", "hydra.sweeper.workers=1"]
    errors = errors_of(sweep, capsys)
    assert errors.count("\n") == 1
    assert "2 of 3 runs failed, the first: policy=Killed" in errors
    assert "the process of this run ended by itself" in errors
    assert [path.parent.name.partition(",")[0] for path in Path("out").glob("*/run.json")] == ["1-policy=fifo"]
    assert len([path for path in Path("out").iterdir() if path.is_dir()]) == 1


def test_an_arena_names_the_policy_and_makes_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = ["mine.py:ExitsWhenMade", "mine.py:ExitsAtOnce"]
    play = ["arena", "--scenarios", "rigid", "--seeds", "1", "--workers", "1", "--policies"]
    errors = errors_of([*play, ",".join(["fifo", *bad])], capsys, status=1)
    assert [line.split()[1:5] for line in errors.splitlines()] == [
        ["ExitsWhenMade", "failed", "on", "rigid:"],
        ["ExitsAtOnce", "failed", "on", "rigid:"],
    ]
    table = pd.read_parquet("arena/arena.parquet")
    assert list(table.dropna(subset="absent").policy) == ["ExitsWhenMade", "ExitsAtOnce"]
    assert set(table[table.absent.isna()].policy) == {"fifo"}
    assert "the first: " in errors_of([*play, ",".join(bad), "-o", "none"], capsys)


def test_an_arena_without_classes_of_the_users_has_no_folder_for_them(here: Path) -> None:
    assert main(["arena", "--scenarios", "rigid", "--seeds", "1", "--workers", "1", "--policies", "fifo"]) == 0
    assert not Path("arena/policies").exists()


def test_an_arena_takes_no_configuration_from_its_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "arena" / "policies" / "workload").mkdir(parents=True)
    command = ["arena", "--scenarios", "rigid", "--seeds", "1", "--policies", "mine.py:Idle"]
    assert "arena/policies/workload: not written by an arena" in errors_of(command, capsys)


@pytest.mark.parametrize("policy", ["mine.py:Works", "fifo"])
def test_an_arena_deletes_no_file_of_the_users(policy: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder of the arena may hold entries of the user; only those of an earlier arena are replaced."""
    command = ["arena", "--scenarios", "rigid", "--seeds", "1", "--policies"]
    entries = here / "arena" / "policies" / "policy"
    assert main([*command, "mine.py:Works"]) == 0
    (entries / "own.yaml").write_text("_target_: mine.Idle\n")
    if policy == "fifo":
        assert main([*command, policy]) == 0
    else:
        assert "arena/policies/policy/own.yaml: not written by an arena" in errors_of([*command, policy], capsys)
    assert (entries / "own.yaml").read_text() == "_target_: mine.Idle\n"
    (entries / "own.yaml").unlink()
    assert main([*command, "mine.py:Works"]) == 0
    assert [path.name for path in entries.iterdir()] == ["Works.yaml"]


def test_an_inner_block_leaves_the_outer_one_in_force() -> None:
    """A sweep in this process makes each run within a block of its own, inside that of the command."""
    real = os._exit
    with exits_raised():
        with exits_raised():
            pass
        with pytest.raises(SystemExit, match="3"):
            os._exit(3)
    assert os._exit is real


def test_a_forked_process_may_end_itself() -> None:
    with exits_raised():
        with pytest.raises(SystemExit, match=r"os\._exit\(3\)"):
            os._exit(3)
        if (child := os.fork()) == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit.__module__ == "posix"


@pytest.mark.parametrize(
    "attribute", ["num_replicas", "batch_size", "submit_time", "job_id", "oracle", "placement", "new"]
)
def test_a_view_cannot_be_assigned_to(attribute: str) -> None:
    run, _ = polluxsim.start(polluxsim.workload("philly-like", num_jobs=2, hours=1), policy="fifo")
    view = run.advance()
    assert view is not None
    job = view.jobs[0]
    before = getattr(job, attribute, None)
    with pytest.raises(AttributeError, match="a view is read-only"):
        setattr(job, attribute, 1)
    with pytest.raises(AttributeError, match="a view is read-only"):
        setattr(job.oracle, "application", None)  # noqa: B010
    with pytest.raises(AttributeError):
        view.time = 1.0  # type: ignore[misc]
    assert getattr(job, attribute, None) == before
