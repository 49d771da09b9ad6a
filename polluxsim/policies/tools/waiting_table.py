"""The jobs of a cluster as columns, so that a decision reads only the waiting jobs that it needs.

A policy that reads every waiting job at every decision takes time that grows with the square of the queue: a queue of n
jobs has about n decisions. The table follows the changes from decision to decision, and array operations find the next
job that can start.

`WaitingTable` has a row for each job, `Fitting` finds the rows whose jobs fit into free GPUs, and `waiting_orders` has
the orders in which policies read the rows. A mask is an array with a truth value for each row, shape (rows,).

Invariants: the rows are in order of submission, so that equal jobs need no other key; `update` leaves the table as it
would be if it were made anew from the view.

The trap: the columns have more rows than the table. Only the properties cut the unused rows off, and their arrays share
the memory of the columns, so a policy that writes to `value` changes the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polluxsim.hardware.node_shapes import NodeRequest, Shape
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.ledger import queue_of, user_of

Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

# Fewest rows of the columns of a table.
ROOM = 64

# Names of the attributes that `WaitingTable._allocate` sets.
COLUMNS = (
    "_is_present", "_waits", "_gpus", "_request", "_user", "_queue", "_qos", "_submit_time", "_priority", "_value",
)  # fmt: skip


class WaitingTable:
    """The jobs that have not ended, one in each row, in order of submission. Rows of ended jobs are empty.

    The views of the engine name all changes since the last decision. Another view, of a policy inside another policy or
    made by hand, has a list of its jobs, and the table is then made anew from this list.

    Attributes
    ----------
    users
        Indices of users by name. Several tables of a policy may share them.
    queues
        Indices of queues by name.
    qualities
        Indices of qualities of service by name; "" for jobs without one.
    requests
        Indices of the distinct requests for GPUs and nodes.
    """

    def __init__(self, users: dict[str, int] | None = None) -> None:
        self.users: dict[str, int] = {} if users is None else users
        self.queues: dict[str, int] = {}
        self.qualities: dict[str, int] = {}
        self.requests: dict[NodeRequest, int] = {}
        self._jobs: list[JobView | None] = []
        self._rows: dict[JobId, int] = {}
        self._running: set[JobId] = set()
        self._first = 0  # no earlier row has a job
        self._num_waiting = 0
        self._allocate(ROOM)

    def _allocate(self, capacity: int) -> None:
        """Make empty columns with a number of rows."""
        self._is_present = np.zeros(capacity, dtype=bool)
        self._waits = np.zeros(capacity, dtype=bool)
        self._gpus = np.zeros(capacity, dtype=np.int64)
        self._request = np.zeros(capacity, dtype=np.int64)
        self._user = np.zeros(capacity, dtype=np.int64)
        self._queue = np.zeros(capacity, dtype=np.int64)
        self._qos = np.zeros(capacity, dtype=np.int64)
        self._submit_time = np.zeros(capacity)
        self._priority = np.zeros(capacity)
        self._value = np.full(capacity, nan)

    @property
    def num_waiting(self) -> int:
        """Return the number of waiting jobs."""
        return self._num_waiting

    @property
    def is_present(self) -> Mask:
        """Return whether each row has a job."""
        return self._is_present[: len(self._jobs)]

    @property
    def waits(self) -> Mask:
        """Return whether each row has a waiting job."""
        return self._waits[: len(self._jobs)]

    @property
    def gpus(self) -> Ints:
        """Return the requested GPUs of each row."""
        return self._gpus[: len(self._jobs)]

    @property
    def request(self) -> Ints:
        """Return the index of the request of each row."""
        return self._request[: len(self._jobs)]

    @property
    def user(self) -> Ints:
        """Return the index of the user of each row."""
        return self._user[: len(self._jobs)]

    @property
    def queue(self) -> Ints:
        """Return the index of the queue of each row."""
        return self._queue[: len(self._jobs)]

    @property
    def qos(self) -> Ints:
        """Return the index of the quality of service of each row."""
        return self._qos[: len(self._jobs)]

    @property
    def submit_time(self) -> Floats:
        """Return the submission time of each row [s]."""
        return self._submit_time[: len(self._jobs)]

    @property
    def priority(self) -> Floats:
        """Return the priority of each row."""
        return self._priority[: len(self._jobs)]

    @property
    def value(self) -> Floats:
        """Return a value that the policy sets for each waiting job: NaN for new jobs and after an eviction."""
        return self._value[: len(self._jobs)]

    @property
    def highest_priority(self) -> float:
        """Return the largest priority of a job; 0 without jobs."""
        priorities = self.priority[self.is_present]
        return float(priorities.max()) if len(priorities) else 0.0

    def forget_values(self) -> None:
        """Set all values to NaN."""
        self._value[:] = nan

    def job(self, row: int) -> JobView:
        """Return the job of a row."""
        job = self._jobs[row]
        if job is None:
            raise LookupError(f"row {row} has no job")
        return job

    def job_named(self, job_id: JobId) -> JobView:
        """Return the job with a name."""
        return self.job(self._rows[job_id])

    def row_of(self, job_id: JobId) -> int:
        """Return the row of a job."""
        return self._rows[job_id]

    def present_users(self) -> list[str]:
        """Return the users of the jobs, in order of their first jobs."""
        return _in_order_of_rows(self.users, self.user[self.is_present])

    def waiting_queues(self, without: Sequence[JobView] = ()) -> list[str]:
        """Return the queues of the waiting jobs, in order of their first waiting jobs; some jobs do not count."""
        counts = self.waits
        if without:
            # A copy, because `waits` shares the memory of the column.
            counts = counts.copy()
            for job in without:
                counts[self._rows[job.job_id]] = False
        return _in_order_of_rows(self.queues, self.queue[counts])

    def update(self, view: ClusterView) -> None:
        """Follow the changes since the last decision."""
        # A list is not of a view of the engine, and the changes of the view may be those since another decision.
        is_view_of_engine = not isinstance(view.jobs, list | tuple)
        follows = is_view_of_engine and self._follows(view)
        if not follows:
            self._read(view.jobs)
        self._note_running(view.running)

    def _follows(self, view: ClusterView) -> bool:
        """Apply the changes since the last decision. Return False if the table must be made anew."""
        changes = view.changes
        # Requests or the order of submission may differ after a fork.
        if changes.altered:
            return False
        for job_id in changes.ended:
            self._remove(job_id)
        for job_id in changes.evicted:
            if job_id in self._rows:
                # The policy must compute the value again, because the job may have lost work.
                self._value[self._rows[job_id]] = nan
        for job in changes.arrived:
            if job.job_id in self._rows or not self._is_last(job, changes.arrived[0]):
                return False
            self._append(job)
        # The table has missed changes if the policy did not make the last decision of the run.
        if len(self._rows) != len(view.jobs):
            return False
        # Each array operation reads the empty rows too.
        if len(self._jobs) > ROOM + 2 * len(self._rows):
            self._compact()
        return self._has_same_first(view)

    def _is_last(self, job: JobView, first_arrival: JobView) -> bool:
        """Return whether a new job belongs behind the last row.

        Jobs that arrived since the last decision are in order of submission. An earlier job that was submitted at the
        same time may belong before or behind them.
        """
        if not self._jobs:
            return True
        last_time = float(self._submit_time[len(self._jobs) - 1])
        if job.submit_time == last_time:
            return job is not first_arrival
        return job.submit_time > last_time

    def _has_same_first(self, view: ClusterView) -> bool:
        """Return whether the first job is the one of the view: a copy of a run has other views of its jobs."""
        first_of_view = next(iter(view.jobs), None)
        if not self._rows:
            return first_of_view is None
        while self._jobs[self._first] is None:
            self._first += 1
        return first_of_view is self._jobs[self._first]

    def _read(self, jobs: Sequence[JobView]) -> None:
        """Make the table anew."""
        self._jobs = []
        self._rows = {}
        self._running = set()
        self._first = self._num_waiting = 0
        self._allocate(max(2 * len(jobs), ROOM))
        for job in jobs:
            self._append(job)

    def _append(self, job: JobView) -> None:
        """Add a row for a job that waits."""
        row = len(self._jobs)
        if row == len(self._waits):
            # Twice the length, so that the time to copy the columns stays in proportion to the number of jobs.
            self._resize(np.arange(row), 2 * row)
        self._jobs.append(job)
        self._rows[job.job_id] = row
        self._is_present[row] = True
        # `_note_running` corrects this for a job that runs.
        self._waits[row] = True
        self._num_waiting += 1
        self._gpus[row] = job.num_replicas
        request = NodeRequest(job.num_replicas, job.num_nodes, job.gpus_per_task)
        # A new key gets the next index, and an index is never given again: rows keep their indices.
        self._request[row] = self.requests.setdefault(request, len(self.requests))
        self._user[row] = self.users.setdefault(user_of(job), len(self.users))
        self._queue[row] = self.queues.setdefault(queue_of(job), len(self.queues))
        self._qos[row] = self.qualities.setdefault(job.qos or "", len(self.qualities))
        self._submit_time[row] = job.submit_time
        self._priority[row] = job.priority
        self._value[row] = nan

    def _remove(self, job_id: JobId) -> None:
        """Empty the row of a job. A job that ended before the policy took over the run has no row."""
        row = self._rows.pop(job_id, None)
        if row is None:
            return
        self._set_waits(row, waits=False)
        self._jobs[row] = None
        self._is_present[row] = False
        self._running.discard(job_id)

    def _set_waits(self, row: int, *, waits: bool) -> None:
        """Record whether the job of a row waits."""
        self._num_waiting += int(waits) - int(self._waits[row])
        self._waits[row] = waits

    def _note_running(self, running: Sequence[JobView]) -> None:
        """Record which jobs run now. The engine may have changed this without a decision of the policy."""
        running_now = {job.job_id for job in running}
        for job_id in self._running - running_now:
            self._set_waits(self._rows[job_id], waits=True)
        for job_id in running_now - self._running:
            self._set_waits(self._rows[job_id], waits=False)
        self._running = running_now

    def _compact(self) -> None:
        """Drop the empty rows."""
        rows = self.is_present.nonzero()[0]
        self._resize(rows, max(2 * len(rows), ROOM))
        self._jobs = [self._jobs[row] for row in rows]
        self._rows = {job.job_id: row for row, job in enumerate(self._jobs) if job is not None}
        self._first = 0

    def _resize(self, rows: Ints, capacity: int) -> None:
        """Move some rows to the beginning of columns of another length."""
        attributes_before = dict(vars(self))
        self._allocate(capacity)
        for name in COLUMNS:
            column = getattr(self, name)
            column[: len(rows)] = attributes_before[name][rows]


def _in_order_of_rows(names: Mapping[str, int], indices: Ints) -> list[str]:
    """Return the names whose indices occur in an array, in order of their first occurrence.

    `names` contains the index of each name, in rising order: 0, 1, 2 and so on.
    """
    distinct_indices, first_places = np.unique(indices, return_index=True)
    all_names = list(names)
    in_order = distinct_indices[np.argsort(first_places)]
    return [all_names[index] for index in in_order]


class Fitting:
    """Finds the jobs of a table that fit into free GPUs of a cluster of one GPU type.

    It knows the requests in the table now. After an update of the table, make a new one.
    """

    def __init__(self, table: WaitingTable, view: ClusterView) -> None:
        self._table = table
        gpu_type = next(iter(view.types))
        self._shapes = [view.shape_rule.shape(request, gpu_type) for request in table.requests]

    def shape_of(self, row: int) -> Shape:
        """Return the shape of the job of a row."""
        index = int(self._table.request[row])
        return self._shapes[index]

    def rows(self, free: FreeGpus) -> Mask:
        """Return whether the job of each row fits into free GPUs, shape (rows,)."""
        # A table that never had a job has no requests, which cannot be indexed.
        if not self._shapes:
            return self._table.waits
        # Many jobs have the same request, so each request is checked once.
        fits = np.array([free.fits(shape) for shape in self._shapes], dtype=bool)
        fits_by_row: Mask = fits[self._table.request]
        return fits_by_row
