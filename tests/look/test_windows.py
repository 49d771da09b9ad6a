"""Percentiles of the wait, and windows of submissions, against NumPy over the records and by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.metrics.target import read_target
from polluxsim.statistics.frames import frame_of
from polluxsim.statistics.job_values import ranks
from polluxsim.statistics.windows import SubmissionWindow, frame_in
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from polluxsim import Result

Told = Callable[..., str]

PERCENTILES = (50, 90, 95, 99)


@pytest.fixture(scope="module")
def runs() -> list[Result]:
    draw = random.Random(0)
    jobs = [
        Job.rigid(f"{number}", draw.uniform(60, 10000), draw.choice([1, 2, 4]), draw.uniform(300, 4000),
                  user=draw.choice(["ann", "bob"]))
        for number in range(60)
    ]  # fmt: skip
    workload = Workload(tuple(jobs))
    return [polluxsim.simulate(workload, policy=policy, cluster=(3, 4), progress=False) for policy in ("fifo", "srtf")]


def waits_of(run: Result, start: float = 0.0, end: float = np.inf) -> list[float]:
    """Return the waits of complete jobs that were submitted in a window, from the table of jobs [s]."""
    jobs = run.jobs[(run.jobs.submit_time >= start) & (run.jobs.submit_time < end)]
    assert (jobs.status == "completed").all()
    return list(jobs.completion_time - jobs.submit_time - jobs.run_time)


def test_percentiles_of_the_wait_are_those_of_the_targets(runs: list[Result]) -> None:
    for run in runs:
        assert run.metrics is not None
        for number in PERCENTILES:
            value = getattr(run.metrics, f"p{number}_waiting_time")
            assert value == pytest.approx(np.percentile(waits_of(run), number))
            assert value == read_target(f"p{number} wait < 1h").value(run.result)
    assert len({run.metrics and run.metrics.p90_waiting_time for run in runs}) == 2


def test_the_metrics_of_a_window_are_over_the_jobs_submitted_in_it(runs: list[Result]) -> None:
    start, end = 3600.0, 7200.0
    for run in runs:
        part = SubmissionWindow(start, end).of(run)
        waits = waits_of(run, start, end)
        assert 0 < len(waits) < 60
        summary = summarise(part.result)
        assert summary is not None
        assert summary.num_jobs == len(waits)
        assert summary.avg_waiting_time == pytest.approx(np.mean(waits))
        assert summary.p90_waiting_time == pytest.approx(np.percentile(waits, 90))
    frame = frame_in(SubmissionWindow(start, end), runs)
    assert frame.num_jobs.tolist() == [len(waits_of(run, start, end)) for run in runs]
    # The whole run as a window has the same metrics of jobs, and none of the cluster.
    whole, everything = frame_in(SubmissionWindow(0.0, None), runs), frame_of(runs)
    assert set(everything) - set(whole) >= {"makespan", "cost", "gpu_time.idle", "outages"}
    for name in set(whole) - {"folder"}:
        assert whole[name].tolist() == everything[name].tolist() or whole[name].isna().all(), name


def test_ends_of_a_window_are_half_open(runs: list[Result]) -> None:
    """A job at the start of the window counts, and a job at its end does not."""
    times = runs[0].jobs.submit_time.sort_values().tolist()
    part = SubmissionWindow(times[3], times[8]).of(runs[0])
    assert [job.submit_time for job in part.result.job_records] == times[3:8]
    with pytest.raises(InvalidInputError, match="was submitted from 0:00:00 to before 0:00:01; choose other times"):
        SubmissionWindow(None, 1.0).of(runs[0])


def test_ranks_have_the_percentile_of_each_user(runs: list[Result]) -> None:
    found = ranks([runs[0].result], "user")
    assert set(found) == {"ann", "bob"}
    for name, rank in found.items():
        jobs = runs[0].jobs[runs[0].jobs.user == name]
        waits = jobs.completion_time - jobs.submit_time - jobs.run_time
        assert rank.p90_wait == pytest.approx(np.percentile(waits, 90))


@pytest.fixture(scope="module")
def folder(runs: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for name, run in zip(("fifo", "srtf"), runs, strict=True):
        run.save(place / name)
    return place


@pytest.fixture
def told(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    monkeypatch.chdir(folder)

    def run(*command: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(list(command)) == status
        captured = capsys.readouterr()
        return " ".join((captured.out + captured.err).split())

    return run


def test_commands_print_the_metrics_of_a_window(told: Told, runs: list[Result], tmp_path: Path) -> None:
    window = ("--from", "1h", "--to", "2:00:00")
    count = len(waits_of(runs[0], 3600.0, 7200.0))
    said = f"metrics are over the {count} of 60 jobs that were submitted from 1:00:00 to before 2:00:00"
    table = told("table", "fifo", "srtf", *window)
    assert said in table
    assert f"│ jobs │ {count} │ {count} │" in table
    assert "90th percentile wait" in table
    assert "makespan" not in table
    assert "makespan" in told("table", "fifo", "srtf")
    numbers = told("table", "fifo", "srtf", "--metric", "p90_waiting_time", "--json", *window)
    rows = json.loads(numbers.partition("metrics are over")[0])  # the sentences are on standard error
    values = [row["p90_waiting_time"]["mean"] for row in rows.values()]
    assert values == pytest.approx([np.percentile(waits_of(run, 3600.0, 7200.0), 90) for run in runs])
    compared = told("compare", "fifo", "srtf", *window)
    assert said in compared
    change = values[1] / values[0] - 1
    assert f"90th percentile wait ↓ {100 * change:+.1f} %".replace("-", "−") in compared
    told("report", "fifo", "srtf", *window, "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert said in page
    assert "figures show the whole runs" in page
    assert said not in told("table", "fifo", "srtf")


def test_a_window_that_cannot_be_is_refused_in_a_line(told: Told) -> None:
    for window, message in (
        (("--from", "2h", "--to", "1h"), "--to is 1:00:00, must be later than the start of the window, 2:00:00"),
        (("--from", "100d"), "no job of fifo was submitted from 2400:00:00 on; choose other times"),
        (("--from", "2026-03-04"), "2026-03-04 is a date, but fifo has no dates"),
        (("--metric", "cost", "--from", "1h"), "the runs have no metric 'cost'"),
    ):
        assert message in told("table", "fifo", *window, status=2)
