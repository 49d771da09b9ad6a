"""Rank users or queues by the mean time that their jobs waited for their first GPU."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.summary import waiting_time
from polluxsim.statistics.series import lifetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.records.results import JobRecord, Result

NOBODY = "nobody named"


class Rank(NamedTuple):
    """The submitted jobs of a user or queue. `place` is 1 for the longest mean wait.

    `wait` is the mean time from submission to the first GPU, or to the end of a job that never had one [s].
    `total_wait` is the mean time without a GPU [s]. `jct` is the mean JCT of completed jobs [s], None without one.
    """

    place: int
    jobs: int
    wait: float
    total_wait: float
    jct: float | None
    gpu_seconds: float


def ranks(results: Iterable[Result], by: str) -> dict[str, Rank]:
    """Return the ranks of users or queues (`by`) over the jobs of all runs, the longest mean wait first."""
    jobs: Mapping[str, list[JobRecord]] = defaultdict(list)
    waits: Mapping[str, list[float]] = defaultdict(list)
    total_waits = defaultdict[str, float](float)
    for result in results:
        for job in result.job_records:
            if job.submit_time < result.end_time:
                name = getattr(job, by) or NOBODY
                jobs[name].append(job)
                start, end = lifetime(result, job)
                waits[name].append(end - start if job.queueing_delay is None else job.queueing_delay)
                total_waits[name] += waiting_time(job, result.end_time)
    if not jobs.keys() - {NOBODY}:
        raise InvalidInputError(f"no job of these runs has a {by}; give runs of a workload that names them")
    means = {name: sum(found) / len(found) for name, found in waits.items()}
    order = sorted(means, key=lambda name: (-means[name], name))
    return {name: _rank(place, jobs[name], means[name], total_waits[name]) for place, name in enumerate(order, start=1)}


def _rank(place: int, jobs: Sequence[JobRecord], wait: float, total_wait: float) -> Rank:
    jcts = [job.jct for job in jobs if job.jct is not None]
    jct = sum(jcts) / len(jcts) if jcts else None
    return Rank(place, len(jobs), wait, total_wait / len(jobs), jct, sum(job.gpu_seconds for job in jobs))
