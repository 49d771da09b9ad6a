"""Every scheduling round of a run, including rounds that changed nothing and have no record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import zip_longest

from polluxsim.common.durations import HOUR
from polluxsim.records.results import Result, RoundRecord


def every_round(result: Result, interval: float) -> Iterator[RoundRecord]:
    """Yield all recorded rounds, and the rounds between them at which a job was active, in order of time.

    A round between records has the state of the record before it, with the cost up to then. Rounds at which no job was
    active are left out, unless they have a record. `interval` is the run's round interval [s].
    """
    jobs = result.job_records
    begins = sorted(job.submit_time for job in jobs)
    ends = []
    for job in jobs:
        end = result.end_time if job.left_at is None else job.left_at
        # A job that is never submitted ends when it begins, so that it is never active.
        ends.append(max(end, job.submit_time))
    ends.sort()
    for record, after in zip_longest(result.round_records, result.round_records[1:]):
        yield record
        # Begin at the first multiple of the interval after the record. A record after a failure lies between multiples.
        index = round(record.time / interval)
        if index * interval <= record.time:
            index += 1
        end = result.end_time if after is None else after.time
        # The product of index and interval is exact enough; a sum of intervals would add up rounding errors.
        while index * interval < end:
            time = index * interval
            if bisect_right(begins, time) > bisect_right(ends, time):
                hours = (time - record.time) / HOUR
                yield record._replace(time=time, cost=record.cost + hours * record.hourly_cost)
            index += 1
