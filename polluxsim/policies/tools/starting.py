"""Start waiting gangs in an order of a table, without preemption; read only the jobs that can start.

The decisions are those of `gangs.schedule_gangs` with the running jobs first. That function reads the order job by job.
Here, array operations on the table find the next job that fits, so that a long queue costs little.

Invariants: running jobs keep their GPUs; the starts are in the order of the jobs.

The trap: array operations know one GPU type, and running jobs that hold the GPUs that they request. `schedule_gangs`
decides in all other cases, see `_is_special`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import NamedTuple

from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gang_places import gpus_up, node_numbers
from polluxsim.policies.tools.gangs import NEAREST, Describe, schedule_gangs
from polluxsim.policies.tools.held_by_limit import OpenRows
from polluxsim.policies.tools.reason_kinds import BEHIND_HEAD_OF_LINE, GANG_DOES_NOT_FIT, GANG_FITS
from polluxsim.policies.tools.waiting_orders import Order
from polluxsim.policies.tools.waiting_table import Fitting, WaitingTable


class Start(NamedTuple):
    """A waiting job that a decision starts."""

    row: int  # of the table
    placement: Placement
    free: int  # GPUs that were free before this job


def free_before(starts: Sequence[Start], number: int, free: FreeGpus) -> Sequence[int]:
    """Return the free GPUs of each node before the start with a number, if `free` are those after all starts."""
    before = FreeGpus(free.gpus)
    for start in starts[number:]:
        before.give_back(start.placement)
    return before.gpus


@dataclass
class GangPass:
    """One pass over the waiting jobs of a table: each job that fits starts, unless a limit stops it.

    Without `overtaking`, the pass ends at the first job that does not fit, the head.
    """

    view: ClusterView
    table: WaitingTable
    order: Order
    overtaking: bool
    starts: list[Start] = field(default_factory=list)  # in order
    free: FreeGpus = field(init=False)  # after the pass
    fitting: Fitting = field(init=False)
    open_rows: OpenRows = field(init=False)

    def run(self) -> None:
        """Choose the jobs that start."""
        self.free = FreeGpus.free_in(self.view)
        self.fitting = Fitting(self.table, self.view)
        self.open_rows = OpenRows(self.view, self.table)
        behind = self.table.waits.copy()  # jobs that have not started; a copy, because the pass changes it
        while self.free.total > 0:
            candidates = behind
            if self.overtaking:
                candidates = behind & self.fitting.rows(self.free)
            row = next(self.order.rows(self.open_rows.among(candidates)), None)
            if row is None:
                return
            num_free = self.free.total
            placement = self.free.pack_shape(self.fitting.shape_of(row))
            # Without overtaking, the next job need not fit, and then it blocks all others.
            if placement is None:
                return
            behind[row] = False
            self.starts.append(Start(row, placement, num_free))
            self.open_rows.start(row)

    def reasons(self, asked: Sequence[JobId], describe: Describe) -> dict[JobId, Reason]:
        """Return the reasons of some jobs, of the kinds of `schedule_gangs`."""
        reasons = self._of_running(asked, describe)
        rows = []
        for job_id in asked:
            row = self.table.row_of(job_id)
            if self.table.waits[row]:
                rows.append(row)
        if not rows:
            return reasons
        head = None if self.overtaking else self._head()
        num_running = len(self.view.running)
        # Jobs with GPUs in order, as far as a reason may name them.
        last_running = [job.job_id for job in self.view.running[-NEAREST:]]
        with_gpus = last_running + [self.table.job(start.row).job_id for start in self.starts]
        keys_of_starts = [self.order.key(start.row) for start in self.starts]  # in rising order
        available = gpus_up(self.view)
        for row, rank in zip(rows, self.order.ranks(rows), strict=True):
            job = self.table.job(row)
            key = self.order.key(row)
            num_ahead = bisect_left(keys_of_starts, key)  # starts before the turn of this job
            if num_ahead < len(keys_of_starts):
                gpus_left = self.starts[num_ahead].free
                starts_now = keys_of_starts[num_ahead] == key
            else:
                gpus_left = self.free.total
                starts_now = False
            position = num_running + rank
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": gpus_left, **describe(job)}
            numbers |= available
            of_limit = self.open_rows.reason(job, num_ahead)
            # The head comes first: a job behind it waits for the head, even if a limit would stop it too.
            if head is not None and key > self.order.key(head):
                numbers["head_gpus_needed"] = int(self.table.gpus[head])
                numbers |= node_numbers(self.fitting.shape_of(head), self.free.gpus)
                reasons[job.job_id] = Reason(BEHIND_HEAD_OF_LINE, numbers, (self.table.job(head).job_id,))
            elif starts_now:
                reasons[job.job_id] = Reason(GANG_FITS, numbers)
            elif of_limit is not None:
                reasons[job.job_id] = of_limit
            else:
                free = free_before(self.starts, num_ahead, self.free)
                numbers |= node_numbers(self.fitting.shape_of(row), free)
                end = len(last_running) + num_ahead
                nearest = with_gpus[max(end - NEAREST, 0) : end]
                reasons[job.job_id] = Reason(GANG_DOES_NOT_FIT, numbers, tuple(reversed(nearest)))
        return reasons

    def _of_running(self, asked: Sequence[JobId], describe: Describe) -> dict[JobId, Reason]:
        """Return the reasons of the running jobs among some jobs."""
        wanted = set(asked)
        gpus_left = self.view.num_gpus
        available = gpus_up(self.view)
        reasons: dict[JobId, Reason] = {}
        for position, job in enumerate(self.view.running, start=1):
            if job.job_id in wanted:
                numbers = {
                    "position": position,
                    "gpus_needed": job.num_replicas,
                    "gpus_left": gpus_left,
                    **describe(job),
                    **available,
                }
                reasons[job.job_id] = Reason(GANG_FITS, numbers)
            gpus_left -= job.num_replicas
        return reasons

    def _head(self) -> int | None:
        """Return the row of the first job that does not start, and that no limit stops; None if there is none."""
        behind = self.table.waits.copy()
        for start in self.starts:
            behind[start.row] = False
        return next(self.order.rows(self.open_rows.among(behind)), None)


def start_gangs(
    view: ClusterView, table: WaitingTable, order: Order, *, overtaking: bool = True, describe: Describe
) -> Decision:
    """Start the waiting jobs that fit, in an order. Running jobs keep their GPUs.

    The decision is that of `schedule_gangs` with the running jobs, then the waiting jobs in this order.
    """
    if _is_special(view):
        waiting = (table.job(row) for row in order.rows(table.waits))
        jobs = chain(view.running, waiting)
        return schedule_gangs(view, jobs, overtaking=overtaking, order_lasts_until=inf, describe=describe)
    gangs = GangPass(view, table, order, overtaking)
    gangs.run()
    allocation: dict[JobId, Placement] = {job.job_id: job.placement for job in view.running}
    for start in gangs.starts:
        allocation[table.job(start.row).job_id] = start.placement
    view.limits.take_note(view.jobs, allocation)
    some_wait = len(allocation) < len(view.jobs)
    # If no job waits, GPUs that become free are of no use.
    outdated_by = Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL
    return Decision(
        allocation,
        valid_until=inf,
        outdated_by=outdated_by,
        explain=lambda asked: gangs.reasons(asked, describe),
    )


def _is_special(view: ClusterView) -> bool:
    """Return whether `schedule_gangs` must decide: all jobs fit, or jobs hold other GPUs than those that they request.

    Jobs hold other GPUs on several GPU types, and after a fork from a policy that shares GPUs or chooses their number.
    """
    all_may_fit = view.demand <= view.num_gpus
    if all_may_fit or len(view.types) > 1 or view.sharing.held:
        return True
    return any(num_replicas(job.placement) != job.num_replicas for job in view.running)


def started_by(table: WaitingTable, decision: Decision) -> list[JobView]:
    """Return the waiting jobs that get GPUs by a decision, in order of submission."""
    rows = []
    for job_id, placement in decision.allocation.items():
        if not placement:
            continue
        row = table.row_of(job_id)
        # The running jobs keep their GPUs, and do not start.
        if table.waits[row]:
            rows.append(row)
    return [table.job(row) for row in sorted(rows)]
