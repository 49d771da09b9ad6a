"""Every scheduling round of a run, including rounds that changed nothing and have no record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import zip_longest

from polluxsim.common.durations import HOUR
from polluxsim.records.results import Result, RoundRecord


def every_round(result: Result, interval: float) -> Iterator[RoundRecord]:
    """Yield the cluster after every round at which a job was active, and after rounds at failures, in order of time.

    `interval` is the run's round interval [s].
    """
    jobs = result.job_records
    begins = sorted(job.submit_time for job in jobs)
    ends = sorted(max(result.end_time if job.end_time is None else job.end_time, job.submit_time) for job in jobs)
    for record, after in zip_longest(result.round_records, result.round_records[1:]):
        yield record
        index = round(record.time / interval)
        index += index * interval <= record.time
        end = result.end_time if after is None else after.time
        while (time := index * interval) < end:
            if bisect_right(begins, time) > bisect_right(ends, time):
                hours = (time - record.time) / HOUR
                yield record._replace(time=time, cost=record.cost + hours * record.hourly_cost)
            index += 1
