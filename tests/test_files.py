from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from polluxsim.common.files import TEMPORARY, appearing_together, atomic_write, remove
from polluxsim.records.storage import RUN_FILE, RUN_FILES
from polluxsim.studies.plan import clear, clear_runs


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_text("before")
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("result", "before")]
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
        assert path.read_text() == "before"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("result", "whole")]


def test_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "last").write_text("old")
    with pytest.raises(RuntimeError), appearing_together(tmp_path, last="last") as temporary:
        (temporary / "a").write_text("new")
        raise RuntimeError
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a": "old", "last": "old"}
    with appearing_together(tmp_path / "made", last="last") as temporary:
        for name in ("a", "last", "z"):
            (temporary / name).write_text("new")
    assert {file.name: file.read_text() for file in (tmp_path / "made").iterdir()} == dict.fromkeys(
        ["a", "z", "last"], "new"
    )


def test_only_what_we_left_half_written_is_cleared(tmp_path: Path) -> None:
    mine = (".draft.tmp", ".notes.12345678.old", ".jobs.tmp.tmp", ".jobs.1234567g.tmp", "jobs.12345678.tmp")
    for name in mine:
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text("")
    with atomic_write(tmp_path / "jobs.csv") as file:
        file.write_text("")
        (left,) = tmp_path.glob(TEMPORARY)
        assert left == file
        clear([tmp_path])
        assert not file.exists()
        file.write_text("")
    assert {path.name for path in tmp_path.iterdir()} == {*mine, "jobs.csv"}


def test_a_run_whose_writer_was_killed_before_run_json_came_is_cleared(tmp_path: Path) -> None:
    for folder in ("finished", "killed", "shared"):
        (tmp_path / folder).mkdir()
        for name in RUN_FILES:
            (tmp_path / folder / name).write_text("")
    (tmp_path / "killed" / RUN_FILE).unlink()
    (tmp_path / "shared" / RUN_FILE).unlink()
    (tmp_path / "shared" / "notes.txt").write_text("the user's")
    clear_runs(list(tmp_path.iterdir()))
    assert sorted(path.name for path in (tmp_path / "finished").iterdir()) == sorted(RUN_FILES)
    assert not (tmp_path / "killed").exists()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["notes.txt"]


def test_what_a_killed_writer_left_goes_with_the_next_and_what_a_living_one_has_stays(tmp_path: Path) -> None:
    left, folder = tmp_path / ".result.0123abcd.tmp", tmp_path / ".made.0123abcd.tmp"
    other = tmp_path / ".other.0123abcd.tmp"
    for path in (left, other):
        path.write_text("half")
    folder.mkdir()
    with atomic_write(tmp_path / "result") as living:
        assert not left.exists()
        with atomic_write(tmp_path / "result") as second:
            assert living.exists()
            second.write_text("second")
        living.write_text("first")
    assert (tmp_path / "result").read_text() == "first"
    (tmp_path / "made").mkdir()
    folder.rename(tmp_path / "made" / folder.name)
    with appearing_together(tmp_path / "made", last="last") as temporary:
        (temporary / "last").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == [other.name, "last", "made", "result"]


def test_without_locks_what_another_writer_has_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with atomic_write(tmp_path / "table") as first:
        first.write_text("first")
        with atomic_write(tmp_path / "table") as second:
            second.write_text("second")
        assert (tmp_path / "table").read_text() == "second"
    assert (tmp_path / "table").read_text() == "first"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, code: int) -> None:
    with pytest.raises(OSError, match="result") as caught, atomic_write(tmp_path / "result"):
        raise OSError(code, "as a library says it, without a name")
    assert (caught.value.filename, caught.value.errno) == (str(tmp_path / "result"), code)
    with pytest.raises(OSError, match="nowhere") as caught, atomic_write(tmp_path / "nowhere" / "result"):
        pass
    assert caught.value.filename == str(tmp_path / "nowhere" / "result")
    with pytest.raises(OSError, match="source") as caught, atomic_write(tmp_path / "result"):
        (tmp_path / "source").read_text()  # an error of reading keeps its own name
    assert caught.value.filename == str(tmp_path / "source")
    assert not list(tmp_path.iterdir())


def test_an_error_of_files_that_appear_together_names_their_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="run") as caught, appearing_together(tmp_path / "run", "last"):
        raise OSError(errno.ENOSPC, "as a library says it, without a name")
    assert caught.value.filename == str(tmp_path / "run")
    with pytest.raises(FileNotFoundError) as caught, appearing_together(tmp_path / "run", "last"):
        pass
    assert caught.value.filename == str(tmp_path / "run")


def test_a_link_is_removed_and_not_the_folder_behind_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_takes_a_name_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else after a power failure a file may be there, under its name, and empty; or the last one without the others."""
    on_disk, seen = set[int](), list[str]()
    fsync, replace = os.fsync, Path.replace

    def store(number: int) -> None:
        on_disk.add(os.fstat(number).st_ino)
        fsync(number)

    def take(self: Path, target: Path) -> Path:
        assert self.stat().st_ino in on_disk
        seen.append(target.name)
        if target.name == "last":
            assert tmp_path.stat().st_ino in on_disk
        on_disk.discard(tmp_path.stat().st_ino)
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", store)
    monkeypatch.setattr(Path, "replace", take)
    with appearing_together(tmp_path, last="last") as temporary:
        for name in ("a", "last", "z"):
            (temporary / name).write_text("new")
    with atomic_write(tmp_path / "one") as single:
        single.write_text("whole")
    assert seen == ["a", "z", "last", "one"]


def test_a_second_writer_leaves_what_the_first_has_just_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch, made = Path.touch, list[Path]()

    def touch_before_a_second_writer(path: Path) -> None:
        touch(path)
        made.append(path)
        if len(made) > 1:
            return
        with atomic_write(tmp_path / "result") as second:
            second.write_text("second")

    monkeypatch.setattr(Path, "touch", touch_before_a_second_writer)
    with atomic_write(tmp_path / "result") as first:
        first.write_text("first")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("result", "first")]
