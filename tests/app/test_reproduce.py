"""`polluxsim reproduce` as a user meets it: every experiment runs, and errors are one line."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from polluxsim.app.cli import main
from polluxsim.app.reproduce.experiment import names, read_experiment
from polluxsim.app.reproduce.inputs import Inputs
from polluxsim.app.reproduce.runs import planned
from polluxsim.shipped import shipped

OWNED = ["table1", "table2", "fig1", "fig2", "fig3", "fig5", "fig6", "fig7", "fig8a", "fig8b", "fig8c", "fidelity"]
FIGURES = {"table2", "fig1", "fig2", "fig3", "fig5", "fig7", "fig8a", "fig8b", "fig8c", "fidelity"}
TINY = ("--jobs", "4", "--seeds", "1", "--workers", "1")


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments])


def numbers(folder: Path, name: str) -> pd.DataFrame:
    """Return a written comparison, every cell as text: a column of nothing but True would else be of another type."""
    return pd.read_csv(folder / f"{name}.csv", keep_default_na=False, dtype=str)


def test_every_experiment_file_has_its_values_and_its_command() -> None:
    assert set(OWNED) <= set(names())
    for name in names():
        path = shipped("experiments") / "experiment" / f"{name}.yaml"
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# @package _global_\n# ")
        assert f"\n#   polluxsim reproduce {name}\n" in text
        experiment = read_experiment(name)
        assert experiment.published
        assert all(row.source for row in experiment.published)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what all experiments that draw their own workloads leave, each on a workload of four jobs."""
    folder = tmp_path_factory.mktemp("reproduced")
    assert reproduce(*OWNED, *TINY, "--out", str(folder)) == 0
    return folder


def test_every_experiment_runs(tiny: Path) -> None:
    for name in OWNED:
        table = numbers(tiny, name)
        assert len(table) == len(read_experiment(name).published)
        assert (tiny / f"{name}.md").read_text(encoding="utf-8").startswith("## ")
        if name != "fig6":  # four jobs make no crowd
            assert (table["verdict"] != "not run").any(), name
    for name in FIGURES:
        for ending in (".png", ".pdf"):
            assert (tiny / f"{name}{ending}").stat().st_size > 1000


def test_runs_that_experiments_share_are_made_once(tiny: Path) -> None:
    table = pd.read_parquet(tiny / "runs" / "sweep.parquet")
    planned_runs = {
        (arm.overrides, arm.load, arm.request) for name in OWNED for arm in read_experiment(name).arms
    }  # `policy=pollux` and no override are the same run, as are avoidance and its default
    assert len(table) < len(planned_runs)
    assert not table["key"].duplicated().any()


def test_a_second_time_takes_no_run_and_gives_the_same_bytes(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not_run(*_: object) -> None:
        raise AssertionError("a finished run was made again")

    monkeypatch.setattr("polluxsim.app.sweep.local.LocalWorkers.launch", must_not_run)
    kinds = (".csv", ".md", ".png", ".pdf")
    before = {path.name: path.read_bytes() for path in tiny.iterdir() if path.suffix in kinds}
    assert reproduce("fig8b", "fig7", *TINY, "--out", str(tiny)) == 0
    assert {path.name: path.read_bytes() for path in tiny.iterdir() if path.suffix in kinds} == before


def test_a_number_that_is_not_met_is_an_exit_status_only_where_asked_for(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = "polluxsim.app.reproduce.experiment.read_published"
    (row, *_) = read_experiment("fig1").published
    for wrong, status in ((-1e9, 0), (1e9, 1)):
        monkeypatch.setattr(values, lambda _, wrong=wrong: [row.__class__(**{**vars(row), "value": wrong})])
        assert reproduce("fig1", *TINY, "--out", str(tiny / "checked"), "--check") == status
    assert reproduce("fig1", *TINY, "--out", str(tiny / "checked")) == 0
    assert "0 of 1 published numbers are met" in capsys.readouterr().out


def test_seeds_are_added_until_intervals_are_narrow_or_the_cap_is_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("fidelity", "--jobs", "2", "--workers", "1", "--out", str(tmp_path), "engine.restart_delay=20")
    assert reproduce(*common, "--seeds", "6", "--until", "1e-9", "--most-seeds", "7") == 0
    assert "with 7 seeds the widest interval is still" in capsys.readouterr().out
    assert set(numbers(tmp_path, "fidelity")["units"]) == {"7"}
    assert set(pd.read_parquet(tmp_path / "runs" / "sweep.parquet")["engine.restart_delay"]) == {20.0}


def test_a_difference_without_an_interval_is_not_precise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # fig1 is of profiles alone, so that no seed would ever give it an interval.
    common = ("fidelity", "fig1", "--jobs", "2", "--workers", "1", "--out", str(tmp_path), "--seeds", "4")
    assert reproduce(*common, "--until", "1e9", "--most-seeds", "5") == 0
    assert "with 5 seeds a difference still has no interval" in capsys.readouterr().out
    assert reproduce(*common, "--until", "1e9", "--most-seeds", "8") == 0
    assert "still" not in capsys.readouterr().out
    assert set(numbers(tmp_path, "fidelity")["units"]) == {"6"}


def test_units_are_the_workloads_at_hand(tmp_path: Path) -> None:
    for name in ("workloads/workload-1", "workloads/workload-12", "workloads/workload-3", "workloads-1.5/workload-3"):
        path = tmp_path / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    inputs = Inputs(workloads=tmp_path)
    plan = planned(read_experiment("fig8a"), inputs, 2)
    of_pollux = [(run.arm.name, run.workload, run.seed) for run in plan if run.arm.policy == "pollux"]
    at_one = [("Pollux 1", workload, seed) for workload in ("1", "3", "12") for seed in (0, 1)]
    assert of_pollux == [*at_one, ("Pollux 1.5", "3", 0), ("Pollux 1.5", "3", 1)]
    assert planned(read_experiment("table2"), inputs, 1) == []  # it is on workload 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig77"], "there is no experiment 'fig77', allowed are table1"),
        (["policy.p=1"], "no table or figure is named"),
        (["fig1", "--profiles", "nowhere"], "nowhere"),
        (["fig8b", "--workloads", "nowhere"], "nowhere: needed is the folder that holds workloads/"),
        (["fig8b", "--seeds", "0"], "--seeds is 0"),
        (["fig8b", "--jobs", "0"], "--jobs is 0"),
        (["fig8b", "--until", "0"], "--until is 0"),
        (["fig8b", "--workers", "0"], "workers is 0, allowed is a whole number"),
        (["fig8b", "--workers", "-1"], "workers is -1, allowed is a whole number"),
        (["fig8b", "policy.q=1"], "q"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert reproduce(*arguments, "--out", str(tmp_path / "out")) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.csv"))


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names()


@pytest.mark.slow
def test_published_values_are_met_on_the_measured_data(osdi21: Path, tmp_path: Path) -> None:
    """Table 2's simulator values, the order in the paper but for makespans of tuned Tiresias and Optimus, Figure 6."""
    data = ("--profiles", str(osdi21), "--workloads", str(osdi21), "--seeds", "1", "--out", str(tmp_path))
    assert reproduce("table2", "fig6", "fig7", *data) == 0
    table = numbers(tmp_path, "table2")
    simulator = table[table["source"].str.startswith("simulator")]
    assert set(simulator["passed"]) == {"True"}
    against_us = table[table["passed"] == "False"]
    # The published simulator's own makespans stand in this order, 20.1 h and 21.8 h.
    assert set(zip(against_us["metric"], against_us["arm"], strict=True)) <= {
        ("makespan", "Tiresias tuned"), ("makespan", "Optimus"),
    }  # fmt: skip
    assert set(numbers(tmp_path, "fig6")["passed"]) == {"True"}
    fairness = numbers(tmp_path, "fig7").set_index(["metric", "arm"])
    assert fairness.loc[("jobs with ρ < 2", "Pollux p=-1"), "passed"] == "True"


@pytest.mark.slow
def test_published_means_of_tiresias_and_optimus_are_exact(osdi21: Path, tmp_path: Path) -> None:
    """Figure 8a's baselines, on the workloads at hand at every load."""
    data = ("--profiles", str(osdi21), "--workloads", str(osdi21), "--seeds", "1", "--out", str(tmp_path))
    assert reproduce("fig8a", *data) == 0
    table = numbers(tmp_path, "fig8a")
    means = table[(table["metric"] == "average JCT") & (table["against"] == "")].set_index("arm")
    for load in ("0.5", "1", "2"):
        for policy in ("Optimus", "Tiresias"):
            assert means.loc[f"{policy} {load}", "verdict"] == "equal"
        assert float(means.loc[f"Pollux {load}", "difference"]) == pytest.approx(0, abs=0.03)


def test_every_published_value_stands_in_the_files_as_written() -> None:
    """A slip of the pen: Table 2 as it is printed in the paper."""
    with (shipped("experiments") / "experiment" / "table2.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"].startswith("paper, Table 2")]
    printed = {metric: [float(row["value"]) for row in rows if row["metric"] == metric] for metric in
               ("average JCT", "mean JCT imagenet", "makespan")}  # fmt: skip
    assert printed == {
        "average JCT": [0.76, 1.5, 1.2, 2.7, 2.8, 0.83, 0.84],
        "mean JCT imagenet": [11, 15, 15, 22, 25, 10, 12],
        "makespan": [16, 20, 24, 28, 31, 16, 18],
    }
