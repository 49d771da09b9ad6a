"""Which pending jobs take part: begin times, holds, dependencies, arrays and requeued jobs.

A job takes part when it is not held, its begin time is past and its dependencies are met. Of an array, only so many
tasks take part that at most `%N` run at once, in the order of their indices. (Specification, "The queue"; sbatch(1),
`--begin`, `--hold`, `--dependency` and `--array`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from polluxsim.policies.slurm.values import JobName, PendingJob

REQUEUE_WAIT = 121  # time from the requeue of a job until it is eligible again [s] (measured)


class JobState(Enum):
    """The state of a job on which another job may depend."""

    PENDING = "pending"
    RUNNING = "running"  # or its epilog has not ended
    COMPLETED = "completed"
    FAILED = "failed"  # also cancelled or at its time limit


STATES_THAT_MEET: Mapping[str, frozenset[JobState]] = {
    "after": frozenset({JobState.RUNNING, JobState.COMPLETED, JobState.FAILED}),
    "afterany": frozenset({JobState.COMPLETED, JobState.FAILED}),
    "afterok": frozenset({JobState.COMPLETED}),
    "afternotok": frozenset({JobState.FAILED}),
}
"""States of the other job that meet each kind of dependency. `aftercorr` is `afterok` of the task with the same index,
and `singleton` is `afterany` of all earlier jobs of the same name and user."""

KINDS = tuple(STATES_THAT_MEET)


class Dependency(NamedTuple):
    """A dependency on other jobs: all tasks, if the other job is an array."""

    kind: str  # one of `KINDS`
    jobs: tuple[JobName, ...]


class Conditions(NamedTuple):
    """What has to be true before a job takes part."""

    begin: int = 0  # time until which the job is held, or does not want to start [s]
    dependencies: tuple[Dependency, ...] = ()
    array: JobName = ""  # array of the task; empty for a job without tasks
    most_at_once: int = 0  # `%N`: tasks of the array that may run at once; 0 for all


def is_eligible(conditions: Conditions, now: int, state_of: Callable[[JobName], JobState]) -> bool:
    """Return whether the begin time of a job has come, and its dependencies are met.

    >>> is_eligible(Conditions(begin=60), 59, lambda _: JobState.RUNNING)
    False
    >>> after_a = Conditions(dependencies=(Dependency("afterok", ("a",)),))
    >>> [is_eligible(after_a, 0, lambda _: state) for state in (JobState.COMPLETED, JobState.FAILED)]
    [True, False]
    """
    if now < conditions.begin:
        return False
    for dependency in conditions.dependencies:
        meeting = STATES_THAT_MEET[dependency.kind]
        if any(state_of(job) not in meeting for job in dependency.jobs):
            return False
    return True


def taking_part(
    pending: Iterable[PendingJob],
    conditions: Mapping[JobName, Conditions],
    running: Iterable[JobName],
    now: int,
    state_of: Callable[[JobName], JobState],
) -> Sequence[PendingJob]:
    """Return the pending jobs that take part, in their order.

    Parameters
    ----------
    conditions
        Conditions of jobs by name. Jobs without conditions always take part.
    running
        Names of running jobs, which count as tasks of their arrays.
    """
    # Most states have no conditions, and their queues may be long.
    if not conditions:
        return list(pending)
    tasks = Counter[JobName]()  # running tasks, and pending ones that take part, by array
    for name in running:
        tasks[conditions.get(name, NO_CONDITIONS).array] += 1
    present = []
    for job in pending:
        of_job = conditions.get(job.name, NO_CONDITIONS)
        if not is_eligible(of_job, now, state_of):
            continue
        # A task that takes part counts as if it ran, so that no cycle can start too many.
        if of_job.most_at_once and tasks[of_job.array] >= of_job.most_at_once:
            continue
        tasks[of_job.array] += 1
        present.append(job)
    return present


NO_CONDITIONS = Conditions()
