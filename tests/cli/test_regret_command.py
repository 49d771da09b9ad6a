"""`polluxsim regret`: its forms, a class of the user, and the report."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from polluxsim.cli.main import main

JOBS = """name,time,num_replicas,duration
long,30,4,1800
short,40,4,300
late,900,2,300
"""

REJECTING = """
from polluxsim import Decision, Policy


class Rejecting(Policy):
    def allocate(self, view, rng):
        waiting = [job.job_id for job in view.jobs if not job.placement]
        return Decision({job.job_id: job.placement for job in view.jobs if job.placement}, rejected=waiting)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder of a run of FIFO in the present folder. The first job makes the second one wait."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(JOBS)
    words = ["workload.path=jobs.csv", "cluster.num_nodes=1", "cluster.gpus_per_node=4", "engine.restart_delay=0"]
    assert main(["run", "policy=fifo", *words, "-o", "base"]) == 0
    return "base"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 0
    return " ".join(capsys.readouterr().out.split())


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tables_and_sentences(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The short job gains 1,800 s if it goes first, the long one loses 300 s: 500 s of the mean over three jobs."""
    text = printed(capsys, "regret", run, "srsf")
    assert (
        "FIFO decided in 4 rounds. 4 of its decisions were compared with those of srsf: 3 different, 1 equal." in text
    )
    assert "0:01:00: 500.0 s of mean JCT. srsf lets long wait; srsf starts short." in text
    assert "FIFO on short: The job is number 2 in the order of the policy" in text
    assert "srsf on long: The job is number 2 in the order of the policy" in text
    for kind in ("start", "wait", "preempt"):
        assert f"│ {kind} │" in text
    assert "Regrets of several rounds do not add up; 'polluxsim regret --path' gives steps that do." in text
    assert "--seeds" not in text


def test_json_has_all_rounds(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = as_json(capsys, "regret", run, "srsf")
    first = answer["rounds"][0]
    assert (first["regret"], first["of_mean_jct"], first["low"], first["values"]) == (1500, 500, None, [1500])
    assert first["differences"][0] == {"job": "long", "kind": "wait", "own": 4, "other": 0}
    assert answer["costliest"][0]["number"] == 0
    assert {job["job"]: job["jct_change"] for job in answer["jobs"]}["short"] > 0
    assert (answer["num_rounds"], answer["num_jobs"], answer["is_drawn"]) == (4, 3, False)


def test_csv_has_a_row_for_each_round(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["regret", run, "srsf", "--csv", "--sample", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["number"], row["not_comparable"]) for row in rows] == [("2", "")]
    assert float(rows[0]["regret"]) == 3 * float(rows[0]["of_mean_jct"])


def test_several_seeds_give_intervals(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = as_json(capsys, "regret", run, "srsf", "--seeds", "3")
    assert [answer["rounds"][0][name] for name in ("values", "low", "high")] == [[1500] * 3, 500, 500]
    assert "0:01:00: 500.0 s [500.0, 500.0] of mean JCT" in printed(capsys, "regret", run, "srsf", "--seeds", "3")


def test_chance_is_stated_without_seeds(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["workload.path=jobs.csv", "cluster.num_nodes=1", "cluster.gpus_per_node=4"]
    assert (
        main(
            ["run", "policy=fifo", *more, "engine/job_failures=drawn", "engine.job_failures.rate=0.1", "-o", "failing"]
        )
        == 0
    )
    assert "--seeds N repeats them" in printed(capsys, "regret", "failing", "srsf")


def test_the_steps_of_a_path_add_up(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "regret", run, "srsf", "--path")
    answer = as_json(capsys, "regret", run, "srsf", "--path")
    totals = [takeover["total_jct"] for takeover in answer["takeovers"]]
    assert totals[0] == answer["total_jct"]
    assert sum(step["gain"] for step in answer["steps"]) == totals[0] - totals[-1] > 0
    assert f"The {len(answer['steps'])} steps add up to" in text
    capsys.readouterr()
    assert main(["regret", run, "srsf", "--path", "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(answer["steps"])


def test_a_class_of_the_user_that_rejects_jobs_is_not_comparable(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(REJECTING)
    text = printed(capsys, "regret", run, "mine.py:Rejecting")
    assert "not comparable (1 round): Rejecting rejects long, short, whose" in text


def test_the_report_shows_stored_regrets(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", run, "-o", "before.html"]) == 0
    assert "costliest decisions" not in Path("before.html").read_text()
    printed(capsys, "regret", run, "srsf")
    printed(capsys, "regret", run, "srsf", "--path")
    assert main(["report", run, "-o", "after.html"]) == 0
    page = " ".join(Path("after.html").read_text().split())
    assert page.count("costliest decisions, compared with those of srsf") == 1
    assert "0:01:00: 500.0 s of mean JCT. srsf lets long wait; srsf starts short." in page
    # Regrets of another run in the folder are not shown.
    assert main(["run", "policy=las", "workload.path=jobs.csv", "-o", "las"]) == 0
    shutil.copy(Path(run) / "regret-srsf.jsonl", "las")
    assert main(["report", "las", "-o", "other.html"]) == 0
    assert "costliest decisions" not in Path("other.html").read_text()
