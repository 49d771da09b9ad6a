"""Commands on a run whose jobs are all from before its start, so that no metric has a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from polluxsim.cli.main import main

JOBS = """name,time,num_replicas,duration,past_state,past_started
runs,-100,4,1000,running,-50
waits,-100,4,1000,pending,
"""
NO_METRIC = "no metric has a value, because all jobs are from before the start of the run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("earlier")
    (folder / "jobs.csv").write_text(JOBS)
    cluster = ("cluster.num_nodes=1", "cluster.gpus_per_node=4")
    jobs = ("workload=file", f"workload.path={folder / 'jobs.csv'}")
    assert main(["run", *jobs, *cluster, "policy=fifo", "-o", str(folder / "run")]) == 0
    return str(folder / "run")


@pytest.mark.parametrize("command", [("table",), ("report", "-o", "report.html")])
def test_a_table_and_a_report_say_why_they_are_empty(
    command: tuple[str, ...], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([command[0], run, *command[1:]]) == 2
    assert f"run: {NO_METRIC}" in capsys.readouterr().err


def test_a_whatif_has_no_table_of_metrics(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs` ends at 950 s, so `waits` starts at the round at 960 s."""
    assert main(["whatif", run, "--at", "2min", "policy=srtf", "-o", str(tmp_path / "fork")]) == 0
    assert NO_METRIC in capsys.readouterr().out
    assert main(["why", run, "waits"]) == 0
    assert "started 0:16:00 after 0:17:40" in " ".join(capsys.readouterr().out.split())
