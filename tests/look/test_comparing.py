"""Comparisons have the changes of the table of settings, and the jobs of the runs."""

from __future__ import annotations

import re
from dataclasses import replace
from shutil import copytree
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.plot.sweep import drawn_of
from polluxsim.look.settings_frames import frame_of_settings as settings_frame
from polluxsim.look.settings_tables import as_text, comparison_text
from polluxsim.look.side_by_side import SideBySide
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import JobRecord, Result, Status
from polluxsim.records.storage import Run
from polluxsim.run.composing import composed
from polluxsim.statistics.comparisons import by_setting, compared, frame_of_comparisons, settings_table
from polluxsim.statistics.frames import frame_of
from polluxsim.statistics.groups import baseline_first

if TYPE_CHECKING:
    from pathlib import Path


def run(policy: str, seed: int, factor: float, interval: float = 60.0) -> Run:
    """Return a run of two jobs, whose completion times grow with the seed and by a factor."""
    jobs = tuple(
        JobRecord(name, name, 0.0, 0.0, jct, jct, 0.0, 0, jct, Status.COMPLETED)
        for name, jct in (("a", 100.0 * (seed + 1) * factor), ("b", 50.0))
    )
    config = {"policy": {"_target_": f"x.{policy}"}, "seed": seed, "engine": {"round_interval": interval}}
    return Run(f"{policy}-{seed}-{interval:g}", {"config": config}, Result(jobs, (), (), end_time=1e4))


RUNS = [run(policy, seed, factor) for policy, factor in (("Pollux", 1.0), ("Fifo", 2.0)) for seed in range(7)]


def test_changes_are_those_of_the_table_of_settings() -> None:
    rows = frame_of_comparisons(compared(RUNS))
    table = settings_frame(settings_table(frame_of(RUNS), ["avg_jct", "makespan"]))
    for metric, title in (("avg_jct", "average JCT [h]"), ("makespan", "makespan [h]")):
        row = rows.loc[("FIFO", metric)]
        assert row["baseline"] == "Pollux"
        expected = table.loc["FIFO", title][["change", "change low", "change high"]]
        np.testing.assert_allclose(row[["change", "low", "high"]].astype(float), expected.astype(float))
        assert row["pairs"] == 7
    assert rows.loc[("FIFO", "makespan"), "change"] == pytest.approx(1.0)
    assert rows.loc[("FIFO", "jct_by_application.b"), "change"] == 0


def test_jobs_are_told_by_how_much_they_lose() -> None:
    (found,) = compared(RUNS)
    assert (found.setting, found.baseline) == ("FIFO", "Pollux")
    (turned,) = compared(RUNS, baseline="policy=fifo")
    assert (turned.setting, turned.baseline) == ("Pollux", "FIFO")
    assert [gain.seconds for gain in found.jobs[-3:]] == [500.0, 600.0, 700.0]
    text = comparison_text([found])
    assert "7 of 14 jobs take no longer, these lose most:" in text
    assert "    a by 11.7 min, in Fifo-6-60" in text
    assert re.search(r"makespan ↓ +\+100 % \[\+100, \+100\], 7 pairs", text)


def test_times_fairness_and_gpu_time_are_not_compared_if_jobs_were_cut_off() -> None:
    """A run that leaves out a long job is not fairer for it, and does not save its GPU time."""
    whole = [
        replace(one, result=Result(tuple(job._replace(finish_time_fairness=2.0) for job in one.result.job_records),
                                   (), (), end_time=1e4))
        for one in RUNS
    ]  # fmt: skip
    long, short = whole[7].result.job_records
    cut = long._replace(status=Status.CUT_OFF, jct=None, completion_time=None, finish_time_fairness=None)
    runs = [*whole[:7], replace(whole[7], result=Result((cut, short), (), (), end_time=1e4)), *whole[8:]]
    text = comparison_text(compared(runs))
    assert "times, finish-time fairness and GPU time are not compared, because jobs were cut off" in text
    assert not any(title in text for title in ("average JCT", "GPU time ↓", "ρ ↓"))
    assert all(title in comparison_text(compared(whole)) for title in ("average JCT", "GPU time ↓", "ρ ↓"))
    cells = settings_table(frame_of(runs), ["max_fairness", "gpu_hours", "restarts"]).cells["FIFO"]
    assert [cell.change is None for cell in cells.values()] == [True, True, False]
    assert [cell.is_bound for cell in cells.values()] == [True, True, False]
    assert "restarts" in text


def test_means_without_the_jobs_that_a_policy_rejected_are_not_compared() -> None:
    """The policy rejects the long job of one run."""
    long, short = RUNS[7].result.job_records
    rejected = long._replace(status=Status.REJECTED, jct=None, completion_time=None, end_time=60.0)
    runs = [*RUNS[:7], replace(RUNS[7], result=Result((rejected, short), (), (), end_time=1e4)), *RUNS[8:]]
    (found,) = compared(runs)
    assert found.unserved == "rejected"
    assert "avg_jct" not in found.changes
    assert "GPU time are not compared, because jobs were rejected" in comparison_text([found])
    table = settings_table(frame_of(runs), ["avg_jct", "restarts"])
    assert [cell.change is None for cell in table.cells["FIFO"].values()] == [True, False]
    assert not any(cell.is_bound for cell in table.cells["FIFO"].values())
    note = "Jobs were rejected in runs of FIFO, so times, finish-time fairness and GPU time are not compared."
    assert note in " ".join(as_text(table).split())


def test_a_run_that_is_given_twice_counts_once() -> None:
    """A copy in another folder has the same name, settings and results."""
    doubled = [RUNS[0], *RUNS]
    assert comparison_text(compared(doubled)) == comparison_text(compared(RUNS))
    assert by_setting(doubled) == by_setting(RUNS)
    drawn = [repr(drawn_of(frame_of(runs), "policy", "avg_jct")) for runs in (doubled, RUNS)]
    assert drawn[0] == drawn[1]


def test_by_one_setting_pairs_are_alike_in_all_others() -> None:
    more = [*RUNS[:2], *RUNS[7:9], run("Pollux", 0, 3.0, 120.0), run("Fifo", 0, 4.0, 120.0)]
    (found,) = compared(more, "policy")
    assert found.changes["makespan"].num_units == 3
    assert found.changes["makespan"].estimate.value == pytest.approx((2 * 2 * 4 / 3) ** (1 / 3) - 1)
    (found,) = compared(more, "engine.round_interval")
    assert (found.setting, found.baseline) == ("round interval = 120", "round interval = 60")
    assert found.changes["makespan"].num_units == 2


def test_what_cannot_be_compared_is_said_in_a_line(sweep_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInputError, match="nothing to compare: all runs have the same settings"):
        compared(RUNS[:7])
    assert "no two runs have the same workload and seed" in comparison_text(compared([RUNS[0], RUNS[8]]))
    assert main(["compare", str(sweep_folder), "--by", "policy.z"]) == 2
    assert "no setting 'policy.z'; give policy or one of " in capsys.readouterr().err
    assert main(["compare", str(sweep_folder)]) == 0
    assert capsys.readouterr().out.startswith("Tiresias against Pollux (baseline)\n  average JCT")


@pytest.mark.parametrize(
    ("classes", "baseline", "label"),
    [
        ("LeastAttainedService Fifo", "policy=las", "LeastAttainedService"),
        ("Fifo LeastAttainedService", "policy=LAS", "LeastAttainedService"),
        ("Pollux PolluxByRemaining", "policy=pollux-remaining", "PolluxByRemaining"),
        ("Fifo Srtf", "policy=srtf", "SRTF"),
    ],
)
def test_a_baseline_may_be_the_name_of_a_configuration(classes: str, baseline: str, label: str) -> None:
    runs = [run(name, 0, 1.0 + number) for number, name in enumerate(classes.split())]
    assert set(settings_table(frame_of(runs), ["avg_jct"], baseline).baselines.values()) == {label}


@pytest.mark.parametrize(("wanted", "other"), [("muri-s", "muri-l"), ("autoscale-throughput", "autoscale-goodput")])
def test_configurations_of_one_class_are_different_baselines(wanted: str, other: str) -> None:
    settings = [composed({"policy": name}, {"policy": {}}, 0) for name in (other, wanted)]
    runs = [replace(RUNS[0], info={"config": each.config}) for each in settings]
    assert baseline_first(runs, f"policy={wanted}") == runs[::-1]
    with pytest.raises(InvalidInputError, match="no run is the baseline 'policy=las'"):
        baseline_first(runs, "policy=las")


def test_an_unknown_column_is_answered_with_those_that_fit() -> None:
    with pytest.raises(InvalidInputError, match=r"no setting 'polic'; give .*; did you mean policy\?"):
        compared(RUNS, "polic")
    with pytest.raises(InvalidInputError, match=r"no metric 'mkespan'.*did you mean makespan") as error:
        settings_table(frame_of(RUNS), ["mkespan"])
    assert "folder" not in str(error.value)


def test_runs_with_long_names_are_told_by_what_differs(sweep_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted(str(path) for path in sweep_folder.iterdir() if path.is_dir())
    assert main(["table", *folders[:1], *folders[2:3]]) == 0
    head = capsys.readouterr().out.splitlines()[1]
    assert head.split() == ["┃", "┃", "Pollux", "┃", "Tiresias", "┃"]
    assert main(["table", *folders]) == 0
    head = capsys.readouterr().out.splitlines()[1]
    assert "Pollux, seed = 1" in head


def test_all_files_of_a_sweep_name_its_runs(
    sweep_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`SWEEP/*` in a shell includes the tables and the settings that a sweep leaves beside its runs."""
    sweep = copytree(sweep_folder, tmp_path / "sweep")
    (sweep / "multirun.yaml").touch()
    assert main(["compare", str(sweep)]) == 0
    printed = capsys.readouterr().out
    assert main(["compare", *map(str, sorted(path for path in sweep.iterdir() if path.name[0] != "."))]) == 0
    assert capsys.readouterr().out == printed
    visible = sorted(path for path in sweep.iterdir() if path.name[0] != ".")
    assert main(["table", "--metric", "avg_jct", *(str(path) for path in visible if path.is_dir())]) == 0
    printed = capsys.readouterr().out
    assert main(["table", "--metric", "avg_jct", *map(str, visible)]) == 0
    assert capsys.readouterr().out == printed
    assert main(["table", "--metric", "avg_jct", str(sweep), str(sweep / "sweep.parquet")]) == 0
    assert capsys.readouterr().out == printed
    other = tmp_path / "other"
    assert main(["run", "policy=fifo", "workload=one-job", "engine.horizon=900", "-o", str(other)]) == 0
    capsys.readouterr()
    assert main(["table", "--csv", "--metric", "avg_jct", str(sweep / "sweep.parquet"), str(other)]) == 0
    shown = capsys.readouterr().out
    assert all(policy in shown for policy in ("Pollux", "Tiresias", "FIFO")), shown
    assert main(["compare", str(sweep / "multirun.yaml")]) == 2
    assert "multirun.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("width", [30, 45, 80])
def test_a_narrow_screen_shows_all_values(width: int) -> None:
    table = SideBySide({"run": summarise(RUNS[0].result)})
    texts = []
    for characters in (200, width):
        console = Console(width=characters)
        with console.capture() as captured:
            console.print(table)
        texts.append(captured.get())
    values = [line.split("│")[2].strip() for line in texts[0].splitlines() if "│" in line]
    assert len(values) > 8
    assert all(f" {value} │" in texts[1] for value in values)
    assert max(map(len, texts[1].splitlines())) <= width
