"""The dependencies between the jobs of Slurm's queue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from polluxsim.logs.formats.log_rows import LogRow
from polluxsim.logs.site.queue import QueuedJob

DEPENDENCY = re.compile(r"(after\w*):([\d_*+:]+)|(singleton)")


def dependency(row: LogRow) -> tuple[str, ...]:
    """Return the ids of the jobs whose end a job waits for: a job, a task like 12_3, or an array as 12 or 12_*.

    The name "singleton" means all earlier jobs of the user with the same name.
    """
    names = list[str]()
    for kind, ids, singleton in DEPENDENCY.findall(row.values.get("DEPENDENCY", "")):
        if singleton:
            names.append("singleton")
        elif kind != "after":  # `after` waits for the start of a job, and all other kinds for its end
            for name in ids.split(":"):
                if name:
                    names.append(name.partition("+")[0])  # without the minutes of a delay
    # A dependency may name a job twice, with two conditions.
    return tuple(dict.fromkeys(names))


def with_dependencies(jobs: Sequence[QueuedJob]) -> Iterator[QueuedJob]:
    """Yield the jobs with the names of the jobs in the queue that they wait for; all other jobs have ended."""
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
        return [other.name for other in by_name.values() if _is_earlier_singleton(other, job)]
    array, star, limit = name.partition("_*")
    tasks = arrays.get(array, ())
    if star and limit:
        return _running_task_before(job, tasks, int(limit))
    is_array = star or "_" not in name
    if not star and name in by_name:
        return [name]
    if is_array:
        # The job itself may be a task of the array.
        return [task.name for task in tasks if task.name != job.name]
    return []  # a task that has ended


def _is_earlier_singleton(other: QueuedJob, job: QueuedJob) -> bool:
    """Return whether a job that must be the only one of its name has to wait for another job."""
    return other.user == job.user and other.job_name == job.job_name and other.submitted < job.submitted


def _running_task_before(job: QueuedJob, tasks: Sequence[QueuedJob], limit: int) -> list[str]:
    """Return the running task that a waiting task of an array waits for, of which at most `limit` tasks run at once.

    The first waiting tasks start at once if fewer tasks run. Each later one waits for a running task of its own, as far
    as there are any. The result is empty without a task to wait for.
    """
    running = [task.name for task in tasks if task.is_running]
    waiting = [task.name for task in tasks if not task.is_running]
    num_free = limit - len(running)
    index_among_blocked = waiting.index(job.name) - num_free
    if 0 <= index_among_blocked < len(running):
        return [running[index_among_blocked]]
    return []
