"""Tasks: their files, the evaluator that other packages call, the command line, and the random search."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from polluxsim.cli.main import main
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.studies.evolution import files, searching, worlds
from polluxsim.studies.evolution import task as tasks
from polluxsim.studies.evolution.evaluating import RESULT_MODULES
from polluxsim.studies.evolution.feedback import artifacts_of
from polluxsim.studies.evolution.programs import INITIAL_PROGRAM, changed_program, random_program, trusted
from polluxsim.studies.evolution.scoring import METRICS, score
from polluxsim.studies.evolution.task import FULL, HELD_OUT, SHORT, Task, read_task, write_task
from polluxsim.studies.evolution.worlds import TaskWorld, drawn, judged

BAD = {
    "raises": "raise ValueError('no')",
    "hangs": "while True:\n            pass",
    "is refused": "view.jobs[0].oracle",
}


def with_line(line: str) -> str:
    return INITIAL_PROGRAM.replace("        return gangs_by", f"        {line}\n        return gangs_by")


def useful_worlds(numbers: Sequence[int]) -> tuple[TaskWorld, ...]:
    found_worlds = []
    for number in numbers:
        (world,) = itertools.islice(drawn(1), number, number + 1)
        useful = judged(world)
        assert useful is not None
        found_worlds.append(useful)
    return tuple(found_worlds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small task."""
    path = tmp_path_factory.mktemp("task")
    small, other = useful_worlds((27, 6))
    task = Task((small, other), (0,), (other,), checks=2)
    write_task(path, task, 1, 2**63)
    files.write_files(path, task)
    return path


@pytest.fixture
def evaluator(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("evaluator_of_a_task", folder / "evaluator.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == status
    return capsys.readouterr().out


def test_the_initial_program_is_las(folder: Path) -> None:
    world = read_task(folder).worlds[1]
    shipped = worlds.run(world, LeastAttainedService())
    program = worlds.run(world, trusted(INITIAL_PROGRAM))
    assert program.job_records == shipped.job_records
    assert program.allocation_records == shipped.allocation_records


def test_a_task_is_read_as_it_was_written(folder: Path) -> None:
    without_secret = read_task(folder)
    task = read_task(folder, with_held_out=True)
    assert not without_secret.held_out
    assert (len(task.worlds), task.short, len(task.held_out), task.checks) == (2, (0,), 1, 2)
    assert stat.S_IMODE((folder / "held_out.yaml").stat().st_mode) == 0o600
    for stage in (SHORT, FULL, HELD_OUT):
        assert task.score_of("fifo", stage) < task.score_of("las", stage) < task.score_of("srsf", stage) <= 1


def test_the_stages_give_metrics_and_texts(folder: Path) -> None:
    task = read_task(folder, with_held_out=True)
    names = {job.job_id for world in task.worlds for job in world.workload().jobs}
    for stage in (SHORT, FULL):
        reached = score(INITIAL_PROGRAM, task, stage)
        assert tuple(reached.metrics) == METRICS
        assert all(type(value) is float for value in reached.metrics.values())
        assert reached.value == pytest.approx(task.score_of("las", stage), rel=1e-12)
        assert reached.metrics["gain"] == pytest.approx(0.0, abs=1e-12)
        texts = artifacts_of(reached)
        assert set(texts) == {"feedback", "faults", "worlds"} | ({"rounds"} if stage == FULL else set())
        assert all(0 < len(text) <= 2000 for text in texts.values())
        for text in texts.values():
            assert not any(name in text.split() for name in names)
            assert "job-" not in text
            assert not any(str(world.seed) in text for world in task.worlds)
    assert "decisions of srsf" in texts["rounds"]
    assert "remaining" not in texts["rounds"]


@dataclass
class Result:
    metrics: dict[str, float]
    artifacts: dict[str, str]


@pytest.mark.parametrize("module", RESULT_MODULES)
def test_the_evaluator_answers_in_the_class_of_the_package_that_is_loaded(
    evaluator: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(EvaluationResult=Result))  # type: ignore[arg-type]
    path = tmp_path / "program.py"
    for line in BAD.values():
        path.write_text(with_line(line))
        for stage in (evaluator.evaluate_stage1, evaluator.evaluate_stage2):
            result = stage(str(path))
            assert isinstance(result, Result)
            assert result.metrics["combined_score"] == 0.0
            assert result.artifacts["faults"] != "none"
    good = evaluator.evaluate_stage1(str(folder / "initial_program.py"))
    assert good.metrics["combined_score"] > 0
    assert good.metrics["stage"] == 1.0
    assert evaluator.evaluate(str(tmp_path / "nowhere.py")).metrics["combined_score"] == 0.0


def test_a_result_is_of_the_classes_of_both_packages_if_both_are_loaded(
    evaluator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass
    class Other:
        metrics: dict[str, float]
        artifacts: dict[str, str]

    for name, kind in zip(RESULT_MODULES, (Result, Other), strict=True):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(EvaluationResult=kind))  # type: ignore[arg-type]
    result = evaluator.evaluate_stage1(str(tmp_path / "nowhere.py"))
    assert isinstance(result, Result)
    assert isinstance(result, Other)
    assert result.metrics["combined_score"] == 0.0


def test_both_stages_of_the_evaluator_follow_each_other(evaluator: ModuleType, folder: Path) -> None:
    result = evaluator.evaluate(str(folder / "initial_program.py"))
    assert result.metrics["stage"] == 2.0
    assert set(result.artifacts) == {"feedback", "faults", "worlds", "rounds"}


def test_openevolve_reads_the_files(folder: Path) -> None:
    config = pytest.importorskip("openevolve.config")
    loaded = config.load_config(folder / "config.yaml")
    assert loaded.evaluator.cascade_thresholds == _thresholds(folder)
    evaluators = pytest.importorskip("openevolve.evaluator")
    evaluator = evaluators.Evaluator(loaded.evaluator, str(folder / "evaluator.py"))
    for line in BAD.values():
        metrics = asyncio.run(evaluator.evaluate_program(with_line(line), "bad"))
        assert metrics["combined_score"] == 0.0
        assert evaluator.get_pending_artifacts("bad")["faults"] != "none"
    metrics = asyncio.run(evaluator.evaluate_program(INITIAL_PROGRAM, "good"))
    assert metrics["combined_score"] == pytest.approx(read_task(folder).score_of("las", FULL))
    assert set(evaluator.get_pending_artifacts("good")) >= {"feedback", "faults", "worlds", "rounds"}


def test_skydiscover_reads_the_files(folder: Path) -> None:
    config = pytest.importorskip("skydiscover.config")
    evaluators = pytest.importorskip("skydiscover.evaluation.evaluator")
    loaded = config.load_config(folder / "config.yaml")
    assert loaded.evaluator.cascade_thresholds == _thresholds(folder)
    file = str(folder / "evaluator.py")
    if "evaluation_file" in inspect.signature(evaluators.Evaluator).parameters:  # version 0.1.0
        evaluator = evaluators.Evaluator(loaded.evaluator, file)
    else:
        loaded.evaluator.evaluation_file = file
        evaluator = evaluators.Evaluator(loaded.evaluator)
    for line in BAD.values():
        result = asyncio.run(evaluator.evaluate_program(with_line(line), "bad"))
        assert result.metrics["combined_score"] == 0.0
        assert result.artifacts["faults"] != "none"
    result = asyncio.run(evaluator.evaluate_program(INITIAL_PROGRAM, "good"))
    assert result.metrics["combined_score"] == pytest.approx(read_task(folder).score_of("las", FULL))
    assert set(result.artifacts) >= {"feedback", "faults", "worlds", "rounds"}


def test_a_stage_runs_in_a_thread(folder: Path) -> None:
    task = read_task(folder)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(score, INITIAL_PROGRAM, task, SHORT).result().value > 0


def test_the_script_takes_the_words_in_both_orders(folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("class Candidate(")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words in ((str(bad), "train"), ("test", str(bad))):
        command = [str(folder / "evaluate.sh"), *words]
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert done.returncode == 0
        assert json.loads(done.stdout)["status"] == "error"


def _thresholds(folder: Path) -> Any:
    content = yaml.safe_load((folder / "config.yaml").read_text())
    return content["evaluator"]["cascade_thresholds"]


def test_the_configuration_has_one_threshold(folder: Path) -> None:
    assert _thresholds(folder) == [pytest.approx(0.95 * read_task(folder).score_of("las", SHORT), abs=1e-6)]
    content = yaml.safe_load((folder / "config.yaml").read_text())
    assert set(content["prompt"]) == {"system_message"}
    assert set(content["evaluator"]) == {"timeout", "cascade_evaluation", "cascade_thresholds"}
    assert set(content["llm"]) == {"api_base", "models", "temperature", "max_tokens", "timeout"}


def test_the_command_prints_a_score(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(printed(capsys, "evolve", "score", folder / "initial_program.py", "--task", folder))
    assert list(answer) == ["status", "combined_score", "metrics", "artifacts"]
    assert answer["status"] == "success"
    assert answer["metrics"]["stage"] == 2.0
    held_out = ("evolve", "score", folder / "initial_program.py", "--task", folder, "--stage", "held-out")
    answer = json.loads(printed(capsys, *held_out))
    assert set(answer["metrics"]) == {"combined_score", "gain"}
    assert answer["artifacts"] == {}
    bad = tmp_path / "bad.py"
    bad.write_text(with_line("raise ValueError('no')"))
    answer = json.loads(printed(capsys, "evolve", "score", bad, "--task", folder, status=1))
    assert (answer["status"], answer["combined_score"]) == ("error", 0.0)


def test_an_equal_seed_gives_equal_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "FIRST", 3)
    outputs = []
    for name, workers in (("one", 1), ("two", 2)):
        words = ("--task", folder, "--candidates", 5, "--seed", 4, "--workers", workers, "-o", "best.py")
        text = printed(capsys, "evolve", "search", *words)
        outputs.append((text, Path("best.py").read_bytes()))
        Path("best.py").rename(name)
    assert outputs[0] == outputs[1]
    assert "rank correlation of the short and the full score over the first 3 programs" in outputs[0][0]
    assert "held-out: score" in outputs[0][0]


def test_a_changed_program_differs_in_its_numbers_only() -> None:
    rng = np.random.default_rng(0)
    source = random_program(rng)
    changed = changed_program(source, rng)
    assert source != changed
    differing = [pair for pair in zip(source.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(differing) in (1, 2)
    assert all(" = " in line for pair in differing for line in pair)


def test_the_short_worlds_agree_best_with_all() -> None:
    three = useful_worlds((27, 6, 8))
    bounds = np.array([world.bound for world in three])
    # The second world ranks the programs as all worlds do.
    table = bounds * np.array([[1.0, 1.0, 1.0], [1.1, 2.0, 1.0], [1.0, 3.0, 1.1], [1.05, 4.0, 1.0]])
    assert tasks.best_part(three, table, 1) == (1,)


def test_a_new_task_has_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new"
    size = tasks.Size(full=2, held_out=1, short=1, programs=2, checks=1)
    task, key = tasks.make_task(1, size, lambda done, total, note: None, 2)
    assert (len(task.worlds), len(task.held_out), len(task.short)) == (2, 1, 1)
    assert [world.seed for world in task.worlds] == [world.seed for world in useful_worlds((3, 6))]
    for world in task.worlds:
        assert world.mean_jct is not None
        assert 0 < world.bound <= min(world.mean_jct.values())
    folder.mkdir()
    write_task(folder, task, 1, key)
    assert read_task(folder, with_held_out=True) == task
    printed(capsys, "evolve", "init", "-o", folder, status=2)
