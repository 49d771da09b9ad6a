"""`polluxsim report` as a user meets it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from polluxsim.cli.main import main

from .conftest import HOSTILE, write_hand_made

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(7):
        write_hand_made(tmp_path / "sweep" / f"run-{seed}", seed=seed)
    assert main(["report", str(tmp_path / "sweep"), "-o", str(tmp_path / "new" / "r.html")]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"wrote .*r\.html: 7 runs, \d\.\d MB\n", printed)
    text = (tmp_path / "new" / "r.html").read_text()
    assert text.count('class="show-run"') == 7
    assert "seed = 6" in text


def test_the_page_says_what_was_run_and_takes_no_name_for_markup(tmp_path: Path) -> None:
    write_hand_made(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert '<h1 id="title">FIFO on 3 jobs</h1>' in text
    assert "2 nodes × 4 GPUs · workload by-hand.csv · seed 7" in text
    assert HOSTILE not in text
    assert "<img" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_the_same_runs_give_the_same_numbers_and_replace_an_older_report(tmp_path: Path) -> None:
    write_hand_made(tmp_path / "run")
    for _ in range(2):
        assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html")]) == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["r.html"]


@pytest.mark.parametrize(
    ("runs", "output", "message"),
    [
        (["nowhere"], "r.html", "nowhere: there is no such folder"),
        (["run", "nowhere"], "r.html", "nowhere: there is no such folder"),
        (["run"], "r.pdf", "the name of a report must end in .html"),
        (["broken"], "r.html", "allocations.parquet: this file of the run is damaged"),
        (["run"], "folder.html", "folder.html is a folder; give the name of a file"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: list[str], output: str,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_hand_made(tmp_path / "run")
    write_hand_made(tmp_path / "broken")
    (tmp_path / "broken" / "allocations.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "folder.html").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", *runs, "-o", output]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "the run does not say where its profiles are"),
        ({"engine": {"interference": 0.5}}, "they do not follow from the records where jobs interfere"),
        ({"profiles.path": "gone"}, "the profiles in gone could not be used"),
        ({"profiles.path": None}, "are not those the run was made with"),
    ],
)
def test_a_page_without_efficiency_says_why(tmp_path: Path, changes: dict, note: str) -> None:
    from polluxsim.look.report.page import subject_of
    from polluxsim.records.storage import read_run

    profiles = {"_target_": "polluxsim.applications.folder.ProfileFolder", "path": changes.pop("profiles.path", None)}
    config = changes | ({"profiles": profiles} if note != "the run does not say where its profiles are" else {})
    subject = subject_of(read_run(write_hand_made(tmp_path / "run", **config)), ())
    assert note in subject.lives_note
    assert len(subject.lives.job) == 0
