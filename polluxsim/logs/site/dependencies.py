"""The dependencies between the jobs of Slurm's queue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from polluxsim.logs.formats.log_rows import LogRow
from polluxsim.logs.site.queue import QueuedJob

DEPENDENCY = re.compile(r"(after\w*):([\d_*+:]+)|(singleton)")


def dependency(row: LogRow) -> tuple[str, ...]:
    """Return the ids of the jobs that a job waits for: a job, a task, or an array as 12_*."""
    names = list[str]()
    for kind, ids, singleton in DEPENDENCY.findall(row.values.get("DEPENDENCY", "")):
        if singleton:
            names.append("singleton")
        elif kind != "after":
            names += [name.partition("+")[0] for name in ids.split(":") if name]
    return tuple(dict.fromkeys(names))


def with_dependencies(jobs: Sequence[QueuedJob]) -> Iterator[QueuedJob]:
    """Yield the jobs with the names of the jobs that they wait for. Jobs that are not in the queue have ended."""
    arrays = dict[str, list[QueuedJob]]()
    by_name = {job.name: job for job in jobs}
    for job in jobs:
        arrays.setdefault(job.name.partition("_")[0], []).append(job)
    for job in jobs:
        after = list[str]()
        for name in job.after:
            after += _names_of(name, job, by_name, arrays)
        yield job._replace(after=tuple(dict.fromkeys(after)))


def _names_of(
    name: str, job: QueuedJob, by_name: Mapping[str, QueuedJob], arrays: Mapping[str, Sequence[QueuedJob]]
) -> list[str]:
    """Return the names of the jobs of the queue that a dependency means."""
    if name == "singleton":
        same = [other for other in by_name.values() if (other.user, other.job_name) == (job.user, job.job_name)]
        return [other.name for other in same if other.submitted < job.submitted]
    array, star, limit = name.partition("_*")
    of_array = arrays.get(array, ())
    if star and limit:  # the tasks of a limited array wait for the running ones
        running = [other.name for other in of_array if other.is_running]
        waiting = [other.name for other in of_array if not other.is_running]
        # The first `num_free` waiting tasks start at once. Each later task waits for one of the running tasks.
        num_free = int(limit) - len(running)
        place_among_blocked = waiting.index(job.name) - num_free
        if 0 <= place_among_blocked < len(running):
            return [running[place_among_blocked]]
        return []
    is_array = star or "_" not in name
    if not star and name in by_name:
        return [name]
    if is_array:
        return [other.name for other in of_array if other.name != job.name]
    return []  # a task that has ended
