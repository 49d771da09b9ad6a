"""Which command lines are remembered, and that a remembered one means the same."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polluxsim.common.shipped import shipped
from polluxsim.run import composing, remembered
from polluxsim.run.remembered import CommandMemory
from polluxsim.run.spec import OneRun

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2030, 1, 2, 3, 4, 5)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a copy of the code and the configurations, on which the descriptions depend."""
    package = tmp_path / "polluxsim"
    package.mkdir()
    (package / "code.py").write_text("")
    shutil.copytree(shipped("configs"), tmp_path / "configs")
    folders = {"configs": tmp_path / "configs", "experiments": shipped("experiments")}
    monkeypatch.setattr(remembered, "PACKAGE", package)
    monkeypatch.setattr(remembered, "shipped", folders.__getitem__)
    monkeypatch.setattr(composing, "shipped", folders.__getitem__)
    remembered._folder.cache_clear()
    yield tmp_path
    remembered._folder.cache_clear()


def one_run(*words: str) -> OneRun:
    """Return the run that words describe, as a new process reads it."""
    remembered._folder.cache_clear()
    memory = CommandMemory(words, "run")
    recalled = memory.recall()
    if recalled is None:
        recalled = composed_anew(*words)
        memory.keep(recalled)
    return recalled


def composed_anew(*words: str) -> OneRun:
    described = composing.read_command(words, is_sweep=False)
    assert isinstance(described, OneRun)
    return described


def files(copy: Path) -> list[Path]:
    return sorted((copy / "polluxsim" / "__pycache__").rglob("*.json"))


@pytest.mark.parametrize(
    "words",
    [
        ("policy=tiresias",),
        ("policy=tiresias", "policy.queue_threshold=16h", "seed=3", "hydra.job_logging.version=2"),
        ("policy=quotas(gpus={vision: 4})", "engine.horizon=inf", "hydra.run.dir=mine/out"),
        ("cluster=mixed", "cluster/failures=drawn", "workload=philly-like"),
    ],
)
def test_a_remembered_run_is_the_composed_one(copy: Path, words: tuple[str, ...]) -> None:
    first = one_run(*words)
    assert len(files(copy)) == 1
    assert CommandMemory(words, "run").recall() is not None
    again, anew = one_run(*words), composed_anew(*words)
    assert json.dumps(again.spec.config) == json.dumps(anew.spec.config)  # also the order of the settings
    assert first == again == anew
    assert again.folder(START) == anew.folder(START)


def test_each_folder_has_the_same_description(copy: Path) -> None:
    assert one_run("policy=fifo").folder(START) == Path("outputs/2030-01-02/03-04-05-fifo-seed0")
    assert one_run("policy=fifo", "hydra.run.dir=a").folder(START) == Path("a")
    assert one_run("policy=fifo", "hydra.run.dir='b/ c'").folder(START) == Path("b/ c")
    assert one_run("policy=fifo", "hydra.run.dir=d").folder(START) == Path("d")
    assert one_run("policy=fifo", "hydra.run.dir='1e3'").folder(START) == Path("1e3")
    assert len(files(copy)) == 3  # without a folder, with a plain one, and with the one that has a blank
    assert one_run("policy=fifo", "hydra.run.dir=1e3").folder(START) == Path("1000.0")  # as Hydra reads it


def test_a_changed_file_changes_the_description(copy: Path) -> None:
    assert one_run("policy=fifo").spec.config["policy"]["backfill"] is False
    entry = copy / "configs" / "policy" / "fifo.yaml"
    entry.write_text(entry.read_text("utf-8").replace("backfill: false", "backfill: true"), "utf-8")
    os.utime(entry, ns=(1, 1))
    assert one_run("policy=fifo").spec.config["policy"]["backfill"] is True
    assert len(files(copy)) == 1  # those of the former files are removed
    (copy / "polluxsim" / "code.py").write_text("changed")
    before = files(copy)
    one_run("policy=fifo")
    assert files(copy) != before


@pytest.mark.parametrize(
    "words",
    [
        ("policy=fifo", "workload.path=${oc.env:HOME}"),
        ("policy=fifo", "hydra.run.dir=${now:%Y}"),
        ("policy._target_=mine.Policy",),
        ("hydra/launcher=ray", "policy=fifo"),
    ],
)
def test_what_depends_on_more_is_not_remembered(copy: Path, words: tuple[str, ...]) -> None:
    one_run(*words)
    assert files(copy) == []


def test_a_folder_that_cannot_be_written_does_not_matter(copy: Path) -> None:
    (copy / "polluxsim" / "__pycache__").write_text("a file")
    assert one_run("policy=fifo") == composed_anew("policy=fifo")
