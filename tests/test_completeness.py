"""A run whose folder is damaged is no finished run: a sweep makes it again, and commands name the damaged file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.records import storage, tables
from polluxsim.records.completeness import WALL_CLOCK, damage_in
from polluxsim.records.folders import info_of
from polluxsim.records.storage import RUN_FILES, read_run
from polluxsim.statistics.frames import frame_at, frame_of, runs_at
from polluxsim.studies.plan import finished_runs

WORKLOAD = "name,time,num_replicas,duration\na,0,4,600\nb,0,4,600\n"
SWEEP = ["run", "-m", "policy=fifo,srtf", "workload.path=w.csv", "cluster.num_nodes=1", "hydra.sweeper.workers=1"]
TABLES = [name for name in RUN_FILES if name != "run.json"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep of two runs, which tests copy."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "w.csv").write_text(WORKLOAD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*SWEEP, "-o", "s"]) == 0
    return folder


@pytest.fixture
def sweep(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("s")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(bytes(content))


def put_a_folder_in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


DAMAGES = [Path.unlink, cut_short, empty, change_a_byte, put_a_folder_in_its_place]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", TABLES)
def test_no_damaged_run_is_finished(sweep: Path, name: str, damage: Callable[[Path], None]) -> None:
    if name == WALL_CLOCK and damage is change_a_byte:
        return  # wall-clock times differ between equal runs, so their digest is not stated
    keys = finished_runs(sweep)
    assert len(keys) == 2
    key, folder = next(iter(keys.items()))
    damage(folder / name)
    assert finished_runs(sweep).keys() == keys.keys() - {key}
    assert name in str(damage_in(folder, info_of(folder), content=True))
    if damage is not change_a_byte:
        with pytest.raises(InvalidInputError, match=rf"{name}: this file of the run is .*; delete the folder"):
            read_run(folder)


@pytest.mark.parametrize("damage", [cut_short, put_a_folder_in_its_place])
@pytest.mark.parametrize("name", ["jobs.parquet", "reasons.parquet", WALL_CLOCK, "run.json"])
def test_the_sweep_makes_a_damaged_run_again(
    sweep: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    folder = sorted(path for path in sweep.iterdir() if path.is_dir())[0]
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != WALL_CLOCK}
    damage(folder / name)
    capsys.readouterr()
    if name != "run.json":
        for command in (["table", "s"], ["report", "s", "-o", "r.html"], ["why", str(folder), "a"]):
            assert main(command) == 2
            printed = capsys.readouterr().err
            assert printed.count("\n") == 1
            assert name in printed
            assert "delete the folder and make the run again" in printed
    assert main([*SWEEP, "-o", "s"]) == 0
    assert "2 runs, 1 of them found finished" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != WALL_CLOCK} == before
    assert main(["table", "s"]) == 0


def test_a_damaged_run_in_another_folder_is_made_again_there(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder of a run can have another name than the plan gives it, as after a change of the plan."""
    folder = sorted(path for path in sweep.iterdir() if path.is_dir())[1]
    moved = folder.rename(sweep / "elsewhere")
    cut_short(moved / "jobs.parquet")
    assert main([*SWEEP, "-o", "s"]) == 0
    assert "2 runs, 1 of them found finished" in capsys.readouterr().out
    assert read_run(moved).result.job_records
    assert main(["table", "s"]) == 0


def test_a_cache_with_a_damaged_run_is_not_used_for_it(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sorted(path for path in sweep.iterdir() if path.is_dir())[0]
    change_a_byte(folder / "jobs.parquet")
    assert main([*SWEEP, "-o", "t", "hydra.sweeper.cache=s"]) == 0
    assert "2 runs, 1 of them found finished" in capsys.readouterr().out
    assert len(finished_runs(Path("t"))) == 2


def test_a_table_reads_summaries_only(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = frame_of(runs_at([sweep]))
    read: list[Path] = []
    for module in (storage, tables):
        monkeypatch.setattr(module, "read_records", lambda path, _: read.append(path))
    found = frame_at([sweep])
    assert read == []
    assert found[expected.columns].equals(expected)


def test_a_saved_run_states_its_files(tmp_path: Path) -> None:
    run = polluxsim.simulate("one-job", policy="fifo", progress=False)
    folder = run.save(tmp_path / "r")
    assert damage_in(folder, info_of(folder), content=True) is None
    assert {*info_of(folder)["files"]} == {path.name for path in folder.iterdir()} - {"run.json"}
