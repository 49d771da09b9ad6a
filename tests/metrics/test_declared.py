"""The user's metrics: computed at the end of a run, kept in files, and shown with unit and direction everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_sweeps import HereAndNow

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.metrics.declared import Metric, computed, values_in
from polluxsim.records.storage import read_run
from polluxsim.run import building as loading
from polluxsim.run.building import user_metrics
from polluxsim.studies.arena.leaderboard import leaderboard
from polluxsim.studies.arena.playing import Played
from polluxsim.studies.arena.words import as_markdown
from polluxsim.studies.driver import complete_sweep
from polluxsim.studies.plan import composer, entry_of

MINE = """
from polluxsim import Metric

def energy(result):
    return 0.3 * sum(job.gpu_seconds for job in result.job_records) / 3600

used = Metric("energy used", "kWh", "less", value=energy)
first = Metric("wait of the first job", "h", "less", value=lambda result: 7200.0)
"""
SMALL = ("workload=philly-like", "workload.num_jobs=4", "workload.hours=1")
OWN = ("+metrics.energy=their_metrics.used", "+metrics.first=their_metrics.first")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sweep of four runs with a metric of the user's."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "their_metrics.py").write_text(MINE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        plan = [
            (*SMALL, *OWN, f"policy={policy}", f"seed={seed}") for policy in ("fifo", "tiresias") for seed in (0, 1)
        ]
        composing = composer()
        entries = [entry_of(overrides, composing.compose(overrides), folder / "S") for overrides in plan]
        complete_sweep(entries, folder / "S", HereAndNow())
    return folder / "S"


@pytest.mark.parametrize("more", [(), ("--latex",), ("--markdown",)])
def test_tables_show_title_unit_and_direction(
    sweep: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert main(["table", str(sweep), *more]) == 0
    printed = capsys.readouterr().out.translate(str.maketrans({"$": ""})).replace(r"\downarrow", "↓")
    assert "energy used [kWh] ↓" in printed
    assert "wait of the first job [h] ↓" in printed
    assert "2.00" in printed


def test_compare_reports_and_runs_side_by_side_show_them(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(sweep)]) == 0
    assert "energy used ↓" in capsys.readouterr().out
    folders = [str(path.parent) for path in sorted(sweep.glob("*/run.json"))]
    assert main(["table", *folders[:2]]) == 0
    assert "energy used [kWh]" in capsys.readouterr().out
    assert main(["report", *folders[:1], "-o", str(sweep.parent / "r.html")]) == 0
    assert "energy used" in (sweep.parent / "r.html").read_text(encoding="utf-8")


def test_a_sweep_s_table_has_the_metric_its_declaration_and_the_policy_s_name(sweep: Path) -> None:
    frame = pd.read_parquet(sweep / "sweep.parquet")
    assert frame["policy"].tolist() == ["FIFO", "FIFO", "Tiresias", "Tiresias"]
    energy = 0.3 * frame["gpu_hours"]
    pd.testing.assert_series_equal(frame["energy"], energy, check_names=False)
    assert frame.attrs["metrics"]["energy"] == {
        "title": "energy used", "unit": "kWh", "better": "less", "can_be_negative": False
    }  # fmt: skip
    read = polluxsim.read_sweep(sweep)
    assert "energy used [kWh]" in read.table(["energy"]).frame()
    assert read.plot(x="policy", y="energy").axes[0].get_ylabel() == "energy used [kWh]"


def test_an_arena_compares_the_user_s_metrics_in_their_direction() -> None:
    rows = [
        {"policy": policy, "scenario": "one", "seed": seed, "avg_jct": 3600.0 + seed, "decision_time": 0.001,
         "speed": speed + 0.01 * seed}
        for policy, speed in (("a", 1.0), ("b", 2.0))
        for seed in range(6)
    ]  # fmt: skip
    board = leaderboard(Played(rows, {}, metrics={"speed": Metric("speed of jobs", "jobs/h", "more")}))
    text = as_markdown(board, {"one": "a scenario"})
    assert "speed of jobs [jobs/h] ↑" in text
    assert {one.policy for one in board.standings["one"] if "speed" in one.best_at} == {"b"}


def test_in_python_metrics_are_an_argument(tmp_path: Path) -> None:
    own = {"completed": Metric("completed jobs", better="more", value=lambda result: len(result.job_records))}
    small = polluxsim.workload("philly-like", num_jobs=3, hours=1)
    found = polluxsim.sweep(small, policy=["fifo", "srtf"], metrics=own, seeds=range(1))
    assert found.frame["completed"].tolist() == [3.0, 3.0]
    assert found.frame["policy"].tolist() == ["FIFO", "SRTF"]
    both = polluxsim.compare({run.name: run for run in found.runs})
    assert "completed jobs" in repr(both)
    assert both.summary()["completed"].tolist() == [3.0, 3.0]
    assert read_run(found.runs[0].save(tmp_path / "run")).info["metrics"]["completed"]["value"] == 3.0


def test_packages_declare_metrics_by_entry_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "packaged_metrics.py").write_text(MINE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    point = SimpleNamespace(name="energy", value="packaged_metrics:used")
    monkeypatch.setattr(loading, "_entry_points", lambda: (point,))
    assert user_metrics({})["energy"].heading == "energy used [kWh]"
    assert loading.metric_modules({}) == {"packaged_metrics"}


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"avg_jct": "their.used"}, "metric 'avg_jct': its name is a column of polluxsim's own"),
        ({"a b": "builtins.int"}, "metric 'a b': its name is not a name of letters, digits and _"),
        ({"x": "broken_metrics.used"}, "metric x: broken_metrics.used cannot be loaded (ZeroDivisionError: "),
        ({"x": "no_such_module.used"}, "metric x: no_such_module.used cannot be loaded"),
        ({"x": "polluxsim.metrics.declared.ARROWS"}, "metric x is a dict; give a polluxsim.Metric"),
        ({"x": 3}, "give metrics.NAME=MODULE.ATTRIBUTE"),
        ("text", "metrics is 'text'; give metrics.NAME=MODULE.ATTRIBUTE"),
    ],
)
def test_a_metric_that_is_none_is_named_before_the_run(
    metrics: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_metrics.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidConfigError) as error:
        user_metrics({"metrics": metrics})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: float("nan"), "metric x is nan: its function must return a finite number or None"),
        (lambda _: 10**400, "metric x is 1000"),
        (lambda _: "much", "metric x is 'much'"),
        (lambda _: np.zeros((2, 2)), "metric x is array([[0., 0.],"),
        (lambda _: 1 / 0, "metric x has no value: its function failed with ZeroDivisionError"),
    ],
)
def test_a_function_that_fails_is_named(function: Any, words: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        computed({"x": Metric("x", value=function)}, None)  # type: ignore[arg-type]
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "entries",
    ["text", {"x": 3}, {"x": {"title": 3}}, {"x": {"title": "x", "better": "up"}}, {"x": {"title": "x", "value": "1"}},
     {"x": {}}],
)  # fmt: skip
def test_what_polluxsim_does_not_write_is_refused_in_a_line(entries: object) -> None:
    with pytest.raises(InvalidInputError) as error:
        values_in({"metrics": entries})
    assert len(str(error.value)) < 200


def test_a_fork_of_a_run_folder_loads_no_metric_that_the_folder_names(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(sweep.glob("*/run.json")).parent
    info = json.loads((run / "run.json").read_text(encoding="utf-8"))
    info["config"]["metrics"] = {"x": "no_such_module.used"}
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "run.json").write_text(json.dumps(info), encoding="utf-8")
    assert main(["whatif", str(copy), "--at", "600", "policy=srtf", "-o", str(tmp_path / "w")]) == 0
    assert "(baseline)" in capsys.readouterr().out
