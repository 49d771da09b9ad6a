"""The jobs of a run, ranked, and the summary of a job before its list of stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.cli.tables import RANKED_BY
from polluxsim.look.job_table import RANKINGS
from polluxsim.look.why.overview import overview
from polluxsim.look.why.story import find_job
from polluxsim.metrics.summary import waiting_time
from polluxsim.records.storage import Run, read_run

from .report.conftest import hand_made, write_hand_made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hand_made(tmp_path_factory.mktemp("ranked") / "run")


def test_the_command_and_the_table_have_the_same_rankings() -> None:
    assert tuple(RANKINGS) == RANKED_BY


@pytest.mark.parametrize("by", RANKED_BY)
def test_jobs_are_ranked_by_a_value(folder: Path, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_run(folder).result
    values = {
        "wait": lambda job: waiting_time(job, result.end_time),
        "restarts": lambda job: job.num_restarts,
        "jct": lambda job: (job.completion_time or result.end_time) - job.submit_time,
        "rho": lambda job: job.finish_time_fairness or 0.0,
    }
    order = sorted(result.job_records, key=lambda job: (-values[by](job), job.job))
    assert main(["table", str(folder), "--jobs", "--sort", by]) == 0
    rows = [line.split("│")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [name.strip() for name, _ in rows] == [job.job for job in order]
    assert [rank.strip() for _, rank in rows] == [str(rank) for rank in range(1, len(order) + 1)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "wait"], "--sort wait ranks jobs; give --jobs too"),
        (["--jobs", "--metric", "avg_jct"], "--jobs cannot be used with --metric; leave one out"),
        (["--jobs", "--csv"], "--jobs cannot be used with --csv; leave one out"),
    ],
)
def test_options_without_effect_are_refused(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", str(folder), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_job_has_a_summary_before_its_stages(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: it waits from its submission to its start, and from 1:00:00 to 1:10:00 while a node is down."""
    assert main(["why", str(folder), "large"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    before, _, _ = said.partition("large (")
    assert before.startswith("It waited ")
    assert "Its longest wait was " in before


def test_the_last_reason_of_the_longest_wait_is_told() -> None:
    run = Run("by-hand", {"config": {}}, hand_made())
    text = overview(run, run.result.reason_records, find_job(run, "large"))
    assert "Its longest wait was 0:10:00, from 1:00:00 on. The last reason, at 1:02:00: " in text
    without = overview(run, (), find_job(run, "large"))
    assert without.endswith("Its longest wait was 0:10:00, from 1:00:00 on; no reason for it is recorded.")
