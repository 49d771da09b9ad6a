"""Windows of runs: the metrics of the jobs that were submitted between two times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import pandas as pd

from polluxsim.common.dates import Date
from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.outcomes import number_of
from polluxsim.metrics.summary import of_run
from polluxsim.records.storage import Run
from polluxsim.statistics.forks import FROM_FORK
from polluxsim.statistics.frames import frame_of, is_setting

IN_WINDOW = (
    *FROM_FORK, "cut_off", "never_started", "cancelled", "rejected", "failed", "not_submitted", "p99_fairness",
    "fair_share", "unknown_fairness", "deadlines", "deadlines_met",
)  # fmt: skip
"""Metrics of the jobs that were submitted in a window. Other metrics are of the whole cluster or the whole run."""


@dataclass(frozen=True)
class SubmissionWindow:
    """The times between which a job was submitted. A date is a time of each run by itself.

    The methods raise InvalidInputError if an end is a date and a run has no dates, if the window ends before it begins,
    or if it has no job of a run.
    """

    since: float | Date | None = None  # [s], or a date; None: from the start of the run
    until: float | Date | None = None  # [s], or a date, the end not included; None: to the end of the run

    def ends(self, run: Run) -> tuple[float, float]:
        """Return the start and the end of the window on the clock of a run [s]; the end may be ∞."""
        start = 0.0
        if self.since is not None:
            start = run.seconds(self.since)
        end = inf
        if self.until is not None:
            end = run.seconds(self.until)
        if end <= start:
            raise InvalidInputError(
                f"--to is {run.clock(end)}, must be later than the start of the window, {run.clock(start)}"
            )
        return start, end

    def of(self, run: Run) -> Run:
        """Return a run with only the jobs of the window. The jobs keep all their values, which cover their whole lives.

        The metrics of the user are left out, because they are of the whole run.
        """
        start, end = self.ends(run)
        jobs = tuple(job for job in run.result.job_records if start <= job.submit_time < end)
        if not jobs:
            raise InvalidInputError(f"no job of {run.name} was submitted {self._in_words(run)}; choose other times")
        info = {name: part for name, part in run.info.items() if name != "metrics"}
        return replace(run, info=info, result=replace(run.result, job_records=jobs))

    def sentences(self, runs: Sequence[Run]) -> Iterator[str]:
        """Yield sentences on the jobs that count, and on the metrics that are left out. `runs` are whole runs."""
        by_sentence: dict[str, list[str]] = {}
        for run in runs:
            count = len(of_run(self.of(run).result))
            total = number_of(len(of_run(run.result)), "job")
            sentence = f"metrics are over the {count:,} of {total} that were submitted {self._in_words(run)}"
            by_sentence.setdefault(sentence, []).append(run.name)
        # Dates are other times of each run, so that runs of one log can have other windows.
        for sentence, names in by_sentence.items():
            if len(by_sentence) == 1:
                yield sentence
            else:
                yield f"{', '.join(names)}: {sentence}"
        yield "their values cover their whole lives; metrics of the cluster and of the whole run are left out"

    def _in_words(self, run: Run) -> str:
        """Return the window on the clock of a run."""
        start, end = self.ends(run)
        if end == inf:
            return f"from {run.clock(start)} on"
        return f"from {run.clock(start)} to before {run.clock(end)}"


def is_in_window(column: str) -> bool:
    """Return whether a metric is one of the jobs of a window, given its column.

    >>> is_in_window("jct_by_application.bert"), is_in_window("cost")
    (True, False)
    """
    return column.partition(".")[0] in IN_WINDOW


def frame_in(window: SubmissionWindow, runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each run with its settings and the metrics of the jobs in a window [s; GPU h]."""
    frame = frame_of([window.of(run) for run in runs])
    columns = []
    for name in map(str, frame):
        if name in ("folder", "policy", "policy_entry") or is_setting(name) or is_in_window(name):
            columns.append(name)
    return frame[columns]
