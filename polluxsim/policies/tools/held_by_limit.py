"""What users, qualities of service and queues hold of their limits, while a policy starts jobs one after the other.

A limit says how many GPUs, or how many running jobs, a group of jobs may have at once: for example the jobs of a user
in a queue. `HeldByLimit` counts job by job, and `OpenRows` asks it about all rows of a table.

Invariants: a limit stops a start, and takes no GPUs from a running job unless another job of its group started first; a
job that a limit stops blocks no other job.

The trap: a policy of one part of a cluster sees the jobs of its part only, but a limit counts all jobs. The running
jobs of other parts are in `view.limits.holders`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from polluxsim.policies.contract.reasons import Excuse, JobSeen, ReasonKind, RoundSeen
from polluxsim.policies.contract.use_limits import UseLimit
from polluxsim.policies.contract.view import ClusterView, JobView, Reason
from polluxsim.policies.tools.waiting_table import Ints, Mask, WaitingTable


def is_at_limit(*attributes: str) -> Excuse:
    """Return the test whether a waiting job would exceed its limit on the jobs with equal attributes."""

    def exceeds(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
        numbers = reason.numbers
        if "limit_gpus" in numbers:
            held = seen.held_with(job, attributes, counts_gpus=True)
            stated = numbers["limit_gpus_held"]
            is_over = held + job.num_replicas > numbers["limit_gpus"]
        else:
            held = seen.held_with(job, attributes, counts_gpus=False)
            stated = numbers["limit_jobs_held"]
            is_over = held + 1 > numbers["limit_jobs"]
        # Jobs that start after this one may have added to what the reason states.
        is_true = stated <= held
        return is_true and is_over

    return exceeds


# `common.templates.filled` explains the brackets and braces. Each %s is filled below, when a kind is made.
STOPPED = (
    "[limit_gpus?This job needs {gpus_needed:GPU}, and %s holds {limit_gpus_held} of at most {limit_gpus:GPU}%s"
    "|%s runs {limit_jobs_held} of at most {limit_jobs:job}%s]. This job delays no other job."
)
"""Sentence of a job that a limit of GPUs or of jobs stops. Each half names whose jobs count together, and where."""

LIMIT_UNITS = {
    **dict.fromkeys(("gpus_needed", "limit_gpus_held", "limit_gpus"), "GPUs"),
    **dict.fromkeys(("limit_jobs_held", "limit_jobs"), "jobs"),
}


def at_limit(name: str, attributes: tuple[str, ...], whose: str, where: str) -> ReasonKind:
    """Return the kind of reason of jobs that a limit on the jobs with equal attributes stops.

    `whose` names the jobs that count together, and `where` their quality of service or queue, empty for all.
    """
    whose_at_start = whose[0].upper() + whose[1:]
    return ReasonKind(
        name,
        STOPPED % (whose, where, whose_at_start, where),
        LIMIT_UNITS,
        meaning=f"A limit on what {whose} may hold or run{where} stops the job.",
        excuses_waiting=is_at_limit(*attributes),
    )


# For each kind of limit: the attributes that are equal for all jobs that count together, the name of the kind of
# reason, and the jobs in words.
GROUPS_OF_JOBS = (
    (("user",), "user-at-limit", "its user", ""),
    (("user", "qos"), "user-in-qos-at-limit", "its user", " in its QOS"),
    (("user", "queue"), "user-in-queue-at-limit", "its user", " in its queue"),
    (("qos",), "qos-at-limit", "its QOS", ""),
    (("queue",), "queue-at-limit", "its queue", ""),
    ((), "all-at-limit", "the cluster", ""),
)

AT_LIMIT_OF: Mapping[tuple[str, ...], ReasonKind] = {
    attributes: at_limit(name, attributes, whose, where) for attributes, name, whose, where in GROUPS_OF_JOBS
}
"""Kinds of the reasons of jobs that a limit stops, by the attributes that are equal for all jobs counted together."""


class Stop(NamedTuple):
    """A limit that stops a job now."""

    limit: UseLimit
    held: int  # what the jobs that are counted together hold [GPUs or jobs]

    def reason(self, job: JobView) -> Reason:
        """Return the reason of the job. Its kind tells whose jobs are counted together."""
        if self.limit.counts_gpus:
            numbers = {"gpus_needed": job.num_replicas, "limit_gpus_held": self.held, "limit_gpus": self.limit.most}
        else:
            numbers = {"limit_jobs_held": self.held, "limit_jobs": self.limit.most}
        return Reason(AT_LIMIT_OF[self.limit.attributes], numbers)


class HeldByLimit:
    """Count the GPUs and jobs of each limit of a cluster, while a policy admits jobs.

    A limit stops the start of a job. It takes no GPUs from a running job, unless the policy started another job of the
    same user, quality of service or queue before it.

    Parameters
    ----------
    view
        The cluster, or a part of it. The running jobs of other parts count.
    """

    def __init__(self, view: ClusterView) -> None:
        limits = view.limits.limits
        self._counts = [(limit, Counter[str]()) for limit in limits]  # held by each group of jobs [GPUs or jobs]
        self._started: list[set[str]] = [set() for _ in limits]  # groups in which a job started
        # Most clusters have no limits, and then the jobs are not read.
        if limits:
            # The policy itself adds the running jobs of its own part.
            own_jobs = {job.job_id for job in view.jobs}
            for job_id, job in view.limits.holders.items():
                if job_id not in own_jobs:
                    self.add([job])

    def __bool__(self) -> bool:
        """Return whether there are limits."""
        return bool(self._counts)

    def copy(self) -> HeldByLimit:
        """Return a copy that counts on its own."""
        copied = object.__new__(HeldByLimit)
        copied._counts = [(limit, counts.copy()) for limit, counts in self._counts]
        copied._started = [groups.copy() for groups in self._started]
        return copied

    def add(self, jobs: Iterable[JobView]) -> None:
        """Count jobs that hold GPUs, or get them."""
        if not self._counts:
            return
        for job in jobs:
            for (limit, counts), started in zip(self._counts, self._started, strict=True):
                group = limit.group_of(job)
                if group is None:
                    continue
                counts[group] += limit.amount(job)
                starts_now = not job.placement
                if starts_now:
                    started.add(group)

    def stop(self, job: JobView) -> Stop | None:
        """Return the first limit that stops a job now; None if the job may hold GPUs."""
        for (limit, counts), started in zip(self._counts, self._started, strict=True):
            group = limit.group_of(job)
            if group is None:
                continue
            # A running job keeps its GPUs, unless the policy started another job of the group before it.
            keeps_gpus = job.placement and group not in started
            if keeps_gpus:
                continue
            if counts[group] + limit.amount(job) > limit.most:
                return Stop(limit, counts[group])
        return None

    def rows_at_limit(self, table: WaitingTable) -> Mask:
        """Return whether a limit stops the job of each row of a table, shape (rows,)."""
        stopped: Mask = np.zeros(len(table.waits), dtype=bool)
        for limit, counts in self._counts:
            amount = table.gpus if limit.counts_gpus else np.ones(len(stopped), dtype=np.int64)
            if limit.is_by_user:
                # The users are in the order of their indices, which `table.user` contains.
                held_by_user = np.array([counts[user] for user in table.users], dtype=np.int64)
                is_over = held_by_user[table.user] + amount > limit.most
                # A limit by user stops no job without a user.
                if "" in table.users:
                    is_over &= table.user != table.users[""]
            else:
                is_over = counts[""] + amount > limit.most
            stopped |= is_over & _has(table, limit)
        return stopped


def _has(table: WaitingTable, limit: UseLimit) -> Mask:
    """Return whether a limit is for the job of each row of a table."""
    column: Ints
    if limit.attribute == "all":
        return table.is_present
    # −1, which no job has, for a queue or quality of service without jobs.
    if limit.attribute == "queue":
        column = table.queue
        index = table.queues.get(limit.name, -1)
    else:
        column = table.qos
        index = table.qualities.get(limit.name, -1)
    has_value: Mask = column == index
    return has_value


class OpenRows:
    """The waiting jobs of a table that no limit stops, while some of them start.

    Parameters
    ----------
    view
        The cluster, or a part of it.
    table
        The jobs of the view.
    """

    def __init__(self, view: ClusterView, table: WaitingTable) -> None:
        self._table = table
        self._before = HeldByLimit(view)  # before the first start
        self._before.add(view.running)
        self._now = self._before.copy()
        self._started: list[JobView] = []
        self._stopped: Mask | None = None  # None if it must be computed

    def among(self, rows: Mask) -> Mask:
        """Return which of some rows no limit stops, shape (rows,)."""
        if not self._now:
            return rows
        if self._stopped is None:
            self._stopped = self._now.rows_at_limit(self._table)
        return rows & ~self._stopped

    def start(self, row: int) -> None:
        """Count the job of a row, which starts."""
        if self._now:
            job = self._table.job(row)
            self._started.append(job)
            self._now.add([job])
            self._stopped = None

    def reason(self, job: JobView, num_ahead: int) -> Reason | None:
        """Return the reason of a job that a limit stops after a number of starts; None if no limit stops it."""
        if not self._now:
            return None
        at_limits = self._before.copy()
        at_limits.add(self._started[:num_ahead])
        stop = at_limits.stop(job)
        if stop is None:
            return None
        return stop.reason(job)
