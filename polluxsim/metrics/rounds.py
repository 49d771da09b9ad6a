"""Every scheduling round of a run, those too that changed nothing and have no record."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from polluxsim.durations import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.records import JobRecord, Result, RoundRecord


def every_round(result: Result, interval: float) -> Iterator[RoundRecord]:
    """Yield the cluster after every round at which a job was active, and those held at once, in order of time.

    Parameters
    ----------
    result
        A run.
    interval
        Its round interval [s].
    """
    spans = _active_spans(result.job_records, result.end_time)
    span = next(spans, None)
    for record, after in zip_longest(result.round_records, result.round_records[1:]):
        yield record
        index = round(record.time / interval)
        index += index * interval <= record.time
        end = result.end_time if after is None else after.time
        while (time := index * interval) < end:
            while span is not None and time >= span[1]:
                span = next(spans, None)
            if span is not None and span[0] <= time:
                hours = (time - record.time) / HOUR
                yield record._replace(time=time, cost=record.cost + hours * record.hourly_cost)
            index += 1


def _active_spans(jobs: Sequence[JobRecord], end_time: float) -> Iterator[tuple[float, float]]:
    """Yield the stretches of time in which at least one job was active, in order [s]."""
    spans = sorted((job.submit_time, end_time if job.end_time is None else job.end_time) for job in jobs)
    start, end = None, 0.0
    for submitted, ended in spans:
        if submitted > end_time:
            break
        if start is None or submitted > end:
            if start is not None:
                yield start, end
            start, end = submitted, ended
        end = max(end, ended)
    if start is not None:
        yield start, end
