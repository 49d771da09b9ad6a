"""EASY backfill: reserve nodes for the first job that does not fit, and start later jobs that do not delay it.

`backfilled` decides which waiting jobs start now, in an order that the policy gives. A `BackfillPass` is the state of
one such decision. The job with the reservation is called the head.

Invariants: running jobs keep their GPUs. The head starts at its reserved time at the latest, if all running jobs end by
their limits.

Trap: a job that fits now can still delay the head, on GPUs that the head needs later. Only GPUs that are free now *and*
spare at the reserved time (`_spare_now`) are open to jobs that end after it.

Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP '95).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from polluxsim.common.instants import has_come, slack
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.policies.contract.view import Change, ClusterView, Decision, Reason
from polluxsim.policies.reserving.limits import Limits
from polluxsim.policies.reserving.reason_kinds import BACKFILLED, RESERVED, WOULD_DELAY
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gang_places import gpus_up, node_numbers
from polluxsim.policies.tools.gangs import NEAREST, Describe
from polluxsim.policies.tools.held_by_limit import OpenRows
from polluxsim.policies.tools.reason_kinds import GANG_DOES_NOT_FIT, GANG_FITS, RUNS_ON
from polluxsim.policies.tools.starting import Start, free_before
from polluxsim.policies.tools.waiting_orders import Order
from polluxsim.policies.tools.waiting_table import Fitting, Mask, WaitingTable


def earliest_start(shape: Shape, free: FreeGpus, releases: Iterable[tuple[float, Placement]]) -> tuple[float, FreeGpus]:
    """Return when a job fits by the planned releases [s], and the GPUs that are free then.

    The time is ∞ if the job never fits, and −∞ if it fits before the first release.

    >>> releases = [(60.0, ((0, 2),)), (120.0, ((0, 2),)), (120.0, ((0, 3),))]
    >>> time, free = earliest_start(Shape(4), FreeGpus([1]), releases)
    >>> time, free.gpus
    (120.0, [8])
    """
    future = FreeGpus(free.gpus)
    time = -inf
    for release_time, placement in releases:
        # All GPUs that become free at one time count together.
        if release_time > time and future.fits(shape):
            break
        time = release_time
        future.give_back(placement)
    if not future.fits(shape):
        return inf, future
    return time, future


@dataclass
class BackfillPass:
    """One pass over the waiting jobs of a table, in an order, with EASY backfill.

    Jobs start until one does not fit; this job, the head, gets a reservation on nodes. A later job starts if it ends
    before the reservation, or if it needs only GPUs that the head does not need. The pass reads only the jobs that
    could start: array operations leave out the other jobs. A job that a limit on users, qualities of service or queues
    stops does not start, and is no head.

    If the GPUs of jobs may be anywhere, the pass plans with the number of all GPUs, like one large node.
    """

    view: ClusterView
    table: WaitingTable
    order: Order
    limits: Limits
    starts: list[Start] = field(default_factory=list)  # in order
    head: int | None = None  # row of the job with the reservation; None if all jobs fit
    reserved_time: float = inf  # latest start of the head [s]; ∞ without a head, or if it never fits
    room: FreeGpus = field(init=False)  # GPUs that are free after the starts so far
    fitting: Fitting = field(init=False)
    open_rows: OpenRows = field(init=False)
    # GPUs that the head leaves free at its reservation, and those of them that are free now.
    _spare: FreeGpus = field(init=False)
    _spare_now: FreeGpus = field(init=False)
    _free: FreeGpus = field(init=False)  # as `room`, on the nodes of the cluster

    def __post_init__(self) -> None:
        self._free = FreeGpus(self.view.free)
        self.room = self._free
        if self._plans_with_one_node:
            self.room = FreeGpus([self._free.total])
        self.fitting = Fitting(self.table, self.view)
        self.open_rows = OpenRows(self.view, self.table)

    @property
    def _plans_with_one_node(self) -> bool:
        """Return whether the plan has one node with all GPUs, because the GPUs of jobs may be anywhere."""
        return self.view.shape_rule.anywhere

    def run(self) -> None:
        """Choose the jobs that start, and plan the releases of their GPUs."""
        # Without a free GPU no job can start, so the pass ends, even before it has a head.
        behind = self.table.waits.copy()  # jobs that the pass has not reached
        while self.room.total > 0 and self.head is None:
            row = next(self.order.rows(self.open_rows.among(behind)), None)
            if row is None:
                return
            behind[row] = False
            if self.room.fits(self.fitting.shape_of(row)):
                self._start(row, self.room)
            else:
                self._reserve(row)
        while self.room.total > 0 and self.head is not None:
            row = self._next_behind_head(behind)
            if row is None:
                return
            behind[row] = False

    def _next_behind_head(self, behind: Mask) -> int | None:
        """Start the first job behind the head that may start, and return its row; None if there is none."""
        table = self.table
        now = self.view.time
        limit = table.value  # the values are time limits [s]
        # As `has_come` compares. Unknown limits are computed below, only for jobs whose turn comes.
        latest_end = self.reserved_time + slack(self.reserved_time)
        may_end_in_time = (now + limit <= latest_end) | np.isnan(limit)
        fits = self.fitting.rows(self.room)
        fits_beside_head = self.fitting.rows(self._spare_now)
        candidates = behind & ((fits & may_end_in_time) | fits_beside_head)
        # Each start changes what is free, so only the first candidate that starts counts.
        for row in self.order.rows(self.open_rows.among(candidates)):
            if np.isnan(limit[row]):
                limit[row] = self.limits.limit(self.view, table.job(row))
            if has_come(now + float(limit[row]), self.reserved_time):
                # It may also use GPUs that the head needs: it ends before.
                self._start(row, self.room)
            elif fits_beside_head[row]:
                placement = self._start(row, self._spare_now)
                self._spare.take(placement)
            else:
                continue
            self._spare_now = self._least(self.room, self._spare)
            return row
        return None

    def _start(self, row: int, within: FreeGpus) -> Placement:
        """Start a job on the GPUs that `within` has, and return its placement on the nodes of the plan.

        `within` is `room`, or has a part of its GPUs.
        """
        shape = self.fitting.shape_of(row)
        num_free = self.room.total
        planned = within.pack_shape(shape)
        if planned is None:
            raise LookupError(f"the job of row {row} does not fit")
        if within is not self.room:
            self.room.take(planned)
        placement = planned
        if self._plans_with_one_node:
            placement = self._free.pack(shape.gpus) or ()
        self.starts.append(Start(row, placement, num_free))
        self.open_rows.start(row)
        self.limits.start(self.view, self.table.job(row), placement)
        return planned

    def _reserve(self, row: int) -> None:
        """Make a job the head, and reserve GPUs for it."""
        self.head = row
        shape = self.fitting.shape_of(row)
        # The jobs that start now release their GPUs too, as `_start` has planned.
        releases = self.limits.releases(self.view)
        if self._plans_with_one_node:
            releases = ((time, ((0, num_replicas(placement)),)) for time, placement in releases)
        self.reserved_time, self._spare = earliest_start(shape, self.room, releases)
        if self.reserved_time < inf:
            self._spare.pack_shape(shape)  # takes the GPUs of the head
        self._spare_now = self._least(self.room, self._spare)

    def _least(self, one: FreeGpus, other: FreeGpus) -> FreeGpus:
        """Return the GPUs that are free on each node in both."""
        return FreeGpus(list(map(min, one.gpus, other.gpus)))

    def reasons(self, describe: Describe, asked: Collection[JobId]) -> dict[JobId, Reason]:
        """Return the reasons for the jobs in `asked`.

        Those of jobs behind the head name the head if the jobs fit.
        """
        reasons: dict[JobId, Reason] = {}
        waiting: list[int] = []
        for job_id in asked:
            row = self.table.row_of(job_id)
            if self.table.waits[row]:
                waiting.append(row)
            else:
                reasons[job_id] = Reason(RUNS_ON, {})
        if not waiting:
            return reasons
        self._reserve_for_explanation()
        keys = [self.order.key(start.row) for start in self.starts]  # in rising order
        available = gpus_up(self.view)
        for row, position in zip(waiting, self.order.ranks(waiting), strict=True):
            job = self.table.job(row)
            num_ahead = bisect_left(keys, self.order.key(row))
            gpus_left = self.room.total
            if num_ahead < len(self.starts):
                gpus_left = self.starts[num_ahead].free
            numbers = {
                "position": position,
                "of_waiting": 1.0,
                **describe(job),
                "gpus_needed": job.num_replicas,
                "gpus_left": gpus_left,
                **available,
            }
            reasons[job.job_id] = self._reason(row, num_ahead, numbers)
        return reasons

    def _reserve_for_explanation(self) -> None:
        """Find the head if the pass ended before it, because no GPU was left."""
        if self.head is not None:
            return
        behind = self.table.waits.copy()
        behind[[start.row for start in self.starts]] = False
        row = next(self.order.rows(self.open_rows.among(behind)), None)
        if row is not None:
            self._reserve(row)

    def _reason(self, row: int, num_ahead: int, numbers: dict[str, float]) -> Reason:
        """Return the reason of a waiting job. `num_ahead` jobs that come before it start."""
        starts = num_ahead < len(self.starts) and self.starts[num_ahead].row == row
        reason_of_limit = self.open_rows.reason(self.table.job(row), num_ahead)
        if reason_of_limit is not None and not starts:
            return reason_of_limit
        if self.head is None or self.order.key(row) < self.order.key(self.head):
            return Reason(GANG_FITS, numbers)
        if self.reserved_time < inf:
            numbers["reserved_time"] = self.reserved_time
        shape = self.fitting.shape_of(row)
        free = FreeGpus(free_before(self.starts, num_ahead, self._free))  # at the turn of the job
        fits = free.fits(shape)
        if not starts and not fits:
            numbers |= node_numbers(shape, free.gpus)
        if self.head == row:
            return Reason(RESERVED, numbers)
        head = (self.table.job(self.head).job_id,)
        if starts or fits:
            kind = BACKFILLED if starts else WOULD_DELAY
            numbers["planned_end"] = self.view.time + self.limits.expected(self.view, self.table.job(row))
            return Reason(kind, numbers, head)
        return Reason(GANG_DOES_NOT_FIT, numbers, self._nearest_ahead(num_ahead))

    def _nearest_ahead(self, num_ahead: int) -> tuple[JobId, ...]:
        """Return the nearest jobs with GPUs ahead of a job after a number of starts, the nearest first."""
        last_starts = self.starts[max(num_ahead - NEAREST, 0) : num_ahead]
        started = [self.table.job(start.row).job_id for start in last_starts]
        running = [job.job_id for job in self.view.running[-NEAREST:]]
        farthest_first = [*running, *started]
        return tuple(farthest_first[: -NEAREST - 1 : -1])


def backfilled(view: ClusterView, table: WaitingTable, order: Order, limits: Limits, describe: Describe) -> Decision:
    """Return the decision that starts waiting jobs in an order, with EASY backfill. Running jobs keep their GPUs.

    `describe` returns the numbers about the place of a job in the order, for its reason.
    """
    limits.take_note(view)
    backfill = BackfillPass(view, table, order, limits)
    backfill.run()
    placements = {table.job(start.row).job_id: start.placement for start in backfill.starts}
    view.limits.take_note(view.jobs, placements, others_keep=True)
    valid_until = inf
    outdated_by = Change.ARRIVAL
    if len(placements) < table.num_waiting:
        # A job that exceeds its limit postpones the reservation.
        valid_until = limits.next_release(view)
        outdated_by = Change.JOBS_OR_NODES
    return Decision(
        placements,
        others_keep=True,
        valid_until=valid_until,
        outdated_by=outdated_by,
        explain=lambda jobs: backfill.reasons(describe, jobs),
    )
