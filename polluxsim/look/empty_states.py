"""Sentences on what the figures of a run lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polluxsim.common.phrases import number_of
from polluxsim.metrics.summary import of_run, waiting_time
from polluxsim.records.results import Result
from polluxsim.records.storage import Run
from polluxsim.statistics.series import submitted

LEAST_WAIT = 1e-6  # shorter waits are errors of rounding [s]


def empty_states(runs: Sequence[Run], labels_of_runs: Sequence[str]) -> list[str]:
    """Return a sentence for each run without a completed job, with one job, or in which no job waited.

    A sentence begins with the label of the run if there are several runs. Jobs that were never submitted are in none.
    """
    sentences = []
    for run, label in zip(runs, labels_of_runs, strict=True):
        beginning = f"{label}: " if len(runs) > 1 else ""
        sentences += [f"{beginning}{sentence}" for sentence in _empty_states(run.result)]
    return sentences


def _empty_states(result: Result) -> Iterator[str]:
    """Yield sentences on what the figures of a run lack."""
    jobs = submitted(result)
    num_never_submitted = len(of_run(result)) - sum(job.is_counted for job in jobs)
    if num_never_submitted:
        were = "was" if num_never_submitted == 1 else "were"
        yield f"{number_of(num_never_submitted, 'job')} {were} never submitted before the run ended."
    if not jobs:
        return
    if not any(job.jct is not None for job in jobs):
        yield "No job completed, so there is no distribution of completion times."
    if len(jobs) == 1:
        yield "The run has one job, so means and percentiles are its own values."
    if not any(waiting_time(job, result.end_time) > LEAST_WAIT for job in jobs):
        yield "No job waited for a GPU."
