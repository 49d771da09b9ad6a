"""Answers over the jobs of runs state how many jobs they leave out and why, and compare the same jobs."""

from __future__ import annotations

import pytest
from rich.console import Console

from polluxsim.look.rank_table import rank_table
from polluxsim.look.settings_tables import as_text, comparison_text
from polluxsim.look.side_by_side import SideBySide
from polluxsim.look.why.story import summary
from polluxsim.metrics.outcomes import incomplete
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import JobRecord, Result, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.comparisons import compared, settings_table
from polluxsim.statistics.frames import frame_of

END = 1e4


def job(name: str, jct: float | None, status: Status = Status.COMPLETED, start: float | None = 0.0) -> JobRecord:
    return JobRecord(name, "rigid", 0.0, start, jct, jct, start, 0, jct or 0.0, status, run_time=jct or 0.0, user="ann")


def run(policy: str, *jobs: JobRecord, seed: int = 0) -> Run:
    config = {"policy": {"_target_": f"x.{policy}"}, "seed": seed, "engine": {"round_interval": 60.0}}
    return Run(policy, {"config": config}, Result(jobs, (), (), end_time=END))


def told(*runs: Run) -> str:
    return " ".join(comparison_text(compared(runs)).split())


# FIFO completes a in 100 s, b in 200 s and c in 900 s. Under SRTF c is cancelled, so that its mean JCT is 75 s.
FIFO = run("Fifo", job("a", 100.0), job("b", 200.0), job("c", 900.0))
SRTF = run("Srtf", job("a", 50.0), job("b", 100.0), job("c", None, Status.CANCELLED))


def test_jobs_that_complete_in_one_run_only_are_not_compared() -> None:
    """Over a and b, the mean JCT is 150 s and 75 s; over all complete jobs FIFO has 400 s."""
    text = told(FIFO, SRTF)
    assert "jobs that complete in both runs of a pair: 2; 1 other job: SRTF: 1 cancelled FIFO: 1 completed" in text
    assert "average JCT ↓ −50.0 %, 1 pair" in text
    assert "metrics of jobs are over the jobs that complete in both" in text


def test_the_table_compares_no_times_over_other_jobs() -> None:
    table = settings_table(frame_of([FIFO, SRTF]), ["avg_jct", "restarts"])
    assert [cell.change is None for cell in table.cells["SRTF"].values()] == [True, False]
    text = " ".join(as_text(table).split())
    assert "Jobs were left out in only one run of a pair in runs of SRTF, so times" in text
    assert "Jobs that did not complete, over all runs: SRTF: 1 cancelled." in text


def test_runs_side_by_side_state_the_jobs_that_means_leave_out() -> None:
    summaries = {name: summarise(each.result) for name, each in (("FIFO", FIFO), ("SRTF", SRTF))}
    console = Console(width=100)
    with console.capture() as capture:
        console.print(SideBySide(summaries, bases=[0, 0]))  # type: ignore[arg-type]
    (mean,) = [line for line in capture.get().splitlines() if "average JCT [" in line]
    assert "%" not in mean  # no change: the means are over other jobs
    text = " ".join(capture.get().split())
    assert "Means of SRTF leave out 1 of 3 jobs: 1 cancelled." in text
    assert "Times over different jobs are not compared" in text


@pytest.mark.parametrize("status", [Status.CUT_OFF, Status.REJECTED, Status.CANCELLED, Status.FAILED])
def test_the_same_jobs_are_compared_whatever_happened_to_the_others(status: Status) -> None:
    """A law: the changes over common jobs are those of runs that have no other jobs."""
    others = [job("c", None, status), job("d", None, Status.CUT_OFF, start=None), job("e", 1.0)]
    ours = run("Srtf", *SRTF.result.job_records[:2], *others)
    base = run("Fifo", *FIFO.result.job_records, job("d", 1.0), job("e", None, status))
    (found,) = compared([base, ours])
    (whole,) = compared([run("Fifo", *FIFO.result.job_records[:2]), run("Srtf", *SRTF.result.job_records[:2])])
    assert found.in_common is not None
    assert whole.in_common is None
    assert found.in_common.num_jobs == 2
    assert found.in_common.left_out["FIFO"] == {"completed": 2, str(status): 1}
    assert found.in_common.left_out["SRTF"].total() == 3
    for metric in ("avg_jct", "p50_jct", "p99_jct", "avg_waiting_time"):
        assert found.in_common.changes[metric].estimate == whole.changes[metric].estimate


def test_jobs_that_never_started_are_told_apart() -> None:
    waiting = job("w", None, Status.CUT_OFF, start=None)
    one = run("Fifo", job("a", 100.0), job("c", None, Status.CUT_OFF), waiting)
    assert incomplete(one.result) == {"cut off": 1, "never started": 1}
    assert "never started, cut off at 2:46:40" in summary(one, waiting)
    found = summarise(one.result)
    assert found is not None
    assert found.never_started == ("w",)


def test_ranks_state_the_jobs_without_a_jct() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(rank_table({"SRTF": [SRTF.result]}, "user"))
    assert "JCTs of SRTF leave out 1 job: 1 cancelled" in " ".join(capture.get().split())
