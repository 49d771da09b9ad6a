"""A table of the jobs of a run, ranked by a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rich.table import Table

from polluxsim.common.durations import clock
from polluxsim.look.tables import boxed
from polluxsim.metrics.outcomes import outcome
from polluxsim.metrics.summary import queueing_delay, waiting_time
from polluxsim.records.results import JobRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.series import submitted

MOST_JOBS = 40  # largest number of jobs in the table


def _age(job: JobRecord, end_time: float) -> float:
    """Return the JCT of a job, or its age at its end or the end of the run [s]."""
    if job.jct is not None:
        return job.jct
    end = end_time if job.left_at is None else job.left_at
    return end - job.submit_time


def _restarts(job: JobRecord, _: float) -> float:
    return job.num_restarts


def _fairness(job: JobRecord, _: float) -> float | None:
    return job.finish_time_fairness


class _Ranking(NamedTuple):
    """A value by which jobs are ranked; its function has the job and the end of the run [s]."""

    words: str
    value: Callable[[JobRecord, float], float | None]


RANKINGS: Mapping[str, _Ranking] = {
    "wait": _Ranking("longest waiting time in total", waiting_time),
    "restarts": _Ranking("most restarts", _restarts),
    "jct": _Ranking("longest JCT", _age),
    "rho": _Ranking("largest finish-time fairness ρ", _fairness),
}
"""What the table can rank by."""

HEAD = ("job", "rank", "application", "status", "submitted", "to first GPU", "waiting", "restarts", "JCT", "ρ")


def job_table(run: Run, by: str) -> Table:
    """Return the jobs of a run, at most `MOST_JOBS`. The largest value of `by`, a key of `RANKINGS`, is first.

    Jobs without a value are last. Jobs that were never submitted are left out.
    """
    end_time = run.result.end_time
    words, value_of = RANKINGS[by]
    ranked = []
    for job in submitted(run.result):
        value = value_of(job, end_time)
        # The name decides among equal values, so that equal runs have equal tables.
        ranked.append((value is None, -(value or 0.0), job.job, job))
    ranked.sort(key=lambda entry: entry[:3])
    lines = [list(HEAD)]
    for rank, (*_, job) in enumerate(ranked[:MOST_JOBS], start=1):
        lines.append([job.job, str(rank), *_cells(job, end_time)])
    caption = ""
    if len(ranked) > MOST_JOBS:
        caption = f"and {len(ranked) - MOST_JOBS:,} more"
    return boxed(lines, f"{run.name}: jobs, {words} first", caption=caption)


def _cells(job: JobRecord, end_time: float) -> list[str]:
    """Return the cells of a job behind its rank."""
    bound = "" if job.jct is not None else "≥ "
    fairness = "–"
    if job.finish_time_fairness is not None:
        fairness = f"{job.finish_time_fairness:.2f}"
    return [
        job.application,
        outcome(job, end_time),
        clock(job.submit_time),
        clock(queueing_delay(job, end_time)),
        clock(waiting_time(job, end_time)),
        str(job.num_restarts),
        f"{bound}{clock(_age(job, end_time))}",
        fairness,
    ]
