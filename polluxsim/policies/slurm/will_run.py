"""WILL_RUN of select/cons_tres: the expected start of a job on some nodes, from the time limits of running jobs."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import Allocated, FreeNodes, Node, NodeSet, Request, RunningJob, SchedulerState

EDGE = 30  # the first group of ends is anchored at a multiple of this time since the epoch [s]
FIRST_WINDOW = 30  # length of the first window of ends [s]


class Expected(NamedTuple):
    """The expected start of a job."""

    start: int  # [s]
    held: Allocated


class FreeResources:
    """What is free now, and what running jobs are expected to give back."""

    def __init__(self, nodes: Sequence[Node], free: FreeNodes, running: Sequence[RunningJob]) -> None:
        self.nodes = nodes
        self.free = free
        self.by_end = sorted(running, key=lambda job: job.end)

    @classmethod
    def of(cls, state: SchedulerState) -> FreeResources:
        """Return the occupancy of a cluster."""
        return cls(state.nodes, state.free(), state.running)

    def start(self, job: RunningJob) -> None:
        """Take what a job that starts gets."""
        self.free.take(job.held)
        insort(self.by_end, job, key=lambda running: running.end)

    def has(self, job: RunningJob) -> bool:
        """Return whether a job still runs: a job that a start of this cycle preempts does not."""
        return job in self.by_end

    def end(self, job: RunningJob) -> None:
        """Give back what a job that ends holds."""
        self.free.give_back(job.held)
        self.by_end.remove(job)


def will_run(
    request: Request, allowed: NodeSet, occupancy: FreeResources, now: int, parameters: Parameters
) -> Expected | None:
    """Return when a job starts on the allowed nodes if running jobs use their whole limits; None if it never fits.

    Slurm removes running jobs in groups of similar ends and tests the job after each group, because a test after each
    job would take too long. So the start may be later than the first moment at which the job fits, and the nodes are
    chosen as if all jobs of the group were gone. (Source: plugins/select/cons_tres/job_test.c.)
    """
    held = chosen_nodes(request, allowed, occupancy.free, occupancy.nodes)
    if held is not None:
        return Expected(now, held)
    # The running jobs are removed from a copy, because they go on.
    free = occupancy.free.copy()
    for last in groups_of_ends(occupancy.by_end, allowed, free, parameters):
        held = chosen_nodes(request, allowed, free, occupancy.nodes)
        if held is not None:
            return Expected(_end_of(last, now, parameters), held)
    return None


def groups_of_ends(
    by_end: Sequence[RunningJob], allowed: NodeSet, free: FreeNodes, parameters: Parameters
) -> Iterator[RunningJob]:
    """Give back to `free` what running jobs hold, group by group, and yield the last job of each group.

    Only jobs with an allowed node are removed.
    """
    edge: int | None = None
    window = FIRST_WINDOW
    last: RunningJob | None = None
    for index, job in enumerate(by_end):
        if not job.nodes & allowed:
            continue
        free.give_back(job.held)
        last = job
        if edge is None:
            edge = first_edge(job.end)
        if index + 1 == len(by_end):
            break
        # The end of the next job closes a group even if that job has no allowed node. (Measured.)
        next_end = by_end[index + 1].end
        if next_end <= edge + window:
            continue
        yield job
        last = None
        while next_end > edge + window:
            window = parameters.longer_window(window)
    # The last group ends with the running jobs, and not at a window.
    if last is not None:
        yield last


def first_edge(first_end: int) -> int:
    """Return the edge of all groups [s]: the first end, rounded up to the next multiple of 30 s of epoch time.

    The anchor gives jobs that look for the same nodes at slightly different times the same groups.
    (Measured; source: plugins/select/cons_tres/job_test.c.)

    >>> first_edge(61), first_edge(90)
    (90, 120)
    """
    return (first_end // EDGE + 1) * EDGE


def _end_of(last: RunningJob, now: int, parameters: Parameters) -> int:
    """Return the time at which the last job of a group is expected to leave its nodes [s].

    A job that exceeds its limit gets SIGTERM and, `KillWait` later, SIGKILL. (Measured.)
    """
    if last.end > now:
        return last.end
    return max(last.end + parameters.kill_wait + parameters.over_time_limit * 60, now + 1)
