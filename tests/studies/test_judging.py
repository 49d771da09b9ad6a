"""Forecasts of the second part of a log: what changed, and errors and coverage, by hand and on a log that is drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_logs import DAY, Drawn, as_sacct, draw_jobs, draw_world, mean_work, starts

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.logs.trace_table import TraceJob
from polluxsim.studies.judging import JudgeRequest, NodesFrom, _coverage, absences_of_nodes, inferred_changes


def job(submit: float, start: float, days: float, gpus: int) -> TraceJob:
    """Return a job; times are in days."""
    return TraceJob("j", submit * DAY, days * DAY, gpus, queueing_delay=(start - submit) * DAY)


def test_nodes_that_came_and_went_are_inferred_from_the_gpus_in_use() -> None:
    before = [job(day, day, 1, 8) for day in range(10)]
    assert inferred_changes([*before, job(10, 10, 1, 8)], 5 * DAY, 8, 1) == []
    more = [*before, job(10, 10, 1, 8), job(11, 11, 1, 12)]
    assert inferred_changes(more, 5 * DAY, 8, 1) == [NodesFrom(11 * DAY, 12)]
    # From day 10 on, jobs of 4 GPUs wait for each other for four days.
    fewer = [*before, *(job(10, 10 + day, 1, 4) for day in range(4)), job(14, 14, 1, 4)]
    assert inferred_changes(fewer, 5 * DAY, 8, 1) == [NodesFrom(10 * DAY, 4)]
    # Without waiting jobs, GPUs that nobody asks for are still there.
    idle = [*before, *(job(day, day, 1, 4) for day in range(10, 15))]
    assert inferred_changes(idle, 5 * DAY, 8, 1) == []


def test_absent_nodes_are_outages_of_the_second_part() -> None:
    absences = absences_of_nodes(100.0, 2, [NodesFrom(150.0, 3), NodesFrom(300.0, 1)])
    assert [each[:3] for each in absences] == [(1, 200.0, ""), (2, 0.0, 50.0), (2, 200.0, "")]
    assert absences_of_nodes(100.0, 2, [NodesFrom(150.0, 2)]) == []


def test_days_are_inside_the_errors_of_the_first_part() -> None:
    errors = np.array([-600.0, -300.0, 0.0, 300.0, 900.0])
    assert _coverage(errors, np.array([-601.0, -600.0, 0.0, 901.0])) == (2, 4, pytest.approx(4 / 6))
    assert _coverage(np.zeros(5), np.array([59.0, -59.0, 61.0])) == (2, 3, pytest.approx(4 / 6))
    assert _coverage(errors[:4], np.zeros(3)) is None


def test_changes_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="the times of --change do not rise"):
        JudgeRequest(Path("log.parquet"), changes=[NodesFrom(2.0, 3), NodesFrom(1.0, 4)])
    with pytest.raises(InvalidConfigError, match=r"workload\.start=3 sets in every run what --split varies"):
        JudgeRequest(Path("log.parquet"), overrides=["workload.start=3"])


def test_a_log_of_a_cluster_that_grew_is_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job without a row in the log holds 8 of 24 GPUs in the first half."""
    monkeypatch.chdir(tmp_path)
    world = replace(draw_world("none", 5, 14, policy="easy"), gpus={"gpu": 24}, rates={"gpu": 100.0})
    world = replace(world, rates={"gpu": 0.85 * 16 * DAY / mean_work(world)})
    jobs = draw_jobs(world)
    begun = starts(world, [Drawn(0, 0.0, 8, 7 * DAY, 7 * DAY, "hidden"), *jobs])
    Path("sacct.txt").write_text(as_sacct(jobs, begun[1:]))
    assert main(["log", "import", "slurm", "sacct.txt", "-o", "log.parquet"]) == 0
    capsys.readouterr()
    command = ["log", "judge", "log.parquet", "--gpus-per-node", "1", "--workers", "1", "--policies", "easy"]
    assert main(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "easy on 16 nodes of 1 GPUs" in told
    assert "inferred from the GPUs in use at once: 8 nodes came at 7" in told
    assert "the forecast explains most of the waits" in told
    assert main([*command, "--nodes-before", "16", "--change", "10d=16", "-o", "without"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the forecast explains little of the waits" in told  # because the nodes that came are missing
    assert main([*command, "--change", "2d=8"]) == 2
    assert "--change at 2 d is outside the second part of the log, 6.9" in capsys.readouterr().err
    assert main([*command, "--split", "30d"]) == 2
    assert "--split is 30 d, must be above 0 and below" in capsys.readouterr().err
