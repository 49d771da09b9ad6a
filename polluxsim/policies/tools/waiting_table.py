"""The jobs of a cluster as columns, so that a decision reads only the waiting jobs that it needs.

A policy that reads every waiting job at every decision takes time that grows with the square of the queue: a queue of n
jobs has about n decisions. The table follows the changes from decision to decision, and array operations find the next
job that can start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import nan
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.instants import sort_keys
from polluxsim.hardware.node_shapes import NodeRequest, Shape
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.ledger import queue_of, user_of

Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

ROOM = 64  # fewest rows of the columns of a table
COLUMNS = (
    "_is_present", "_waits", "_gpus", "_request", "_user", "_queue", "_qos", "_submit_time", "_priority", "_value",
)  # fmt: skip
FEW = 16  # up to this number of jobs, their ranks are counted one by one


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
        users, firsts = np.unique(self.user[self.is_present], return_index=True)
        names = list(self.users)
        return [names[users[place]] for place in np.argsort(firsts)]

    def waiting_queues(self, without: Sequence[JobView] = ()) -> list[str]:
        """Return the queues of the waiting jobs, in order of their first waiting jobs; some jobs do not count."""
        waits = self.waits
        if without:
            waits = waits.copy()
            waits[[self._rows[job.job_id] for job in without]] = False
        queues, firsts = np.unique(self.queue[waits], return_index=True)
        names = list(self.queues)
        return [names[queues[place]] for place in np.argsort(firsts)]

    def update(self, view: ClusterView) -> None:
        """Follow the changes since the last decision."""
        if isinstance(view.jobs, list | tuple) or not self._follows(view):
            self._read(view.jobs)
        self._note_running(view.running)

    def _follows(self, view: ClusterView) -> bool:
        """Apply the changes since the last decision. Return False if the table must be made anew."""
        changes = view.changes
        if changes.altered:  # requests or the order of submission may differ
            return False
        for job_id in changes.ended:
            self._remove(job_id)
        for job_id in changes.evicted:
            if job_id in self._rows:
                self._value[self._rows[job_id]] = nan  # it may have lost work
        for job in changes.arrived:
            if job.job_id in self._rows or not self._is_last(job, changes.arrived[0]):
                return False
            self._append(job)
        if len(self._rows) != len(view.jobs):
            return False
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
        last = float(self._submit_time[len(self._jobs) - 1])
        return job.submit_time > last or (job.submit_time == last and job is not first_arrival)

    def _has_same_first(self, view: ClusterView) -> bool:
        """Return whether the first job is the one of the view: a copy of a run has other views of its jobs."""
        while self._first < len(self._jobs) and self._jobs[self._first] is None:
            self._first += 1
        first = next(iter(view.jobs), None)
        return first is (self._jobs[self._first] if self._rows else None)

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
        row = len(self._jobs)
        if row == len(self._waits):
            self._resize(np.arange(row), 2 * row)
        self._jobs.append(job)
        self._rows[job.job_id] = row
        self._is_present[row] = self._waits[row] = True
        self._gpus[row] = job.num_replicas
        request = NodeRequest(job.num_replicas, job.num_nodes, job.gpus_per_task)
        self._request[row] = self.requests.setdefault(request, len(self.requests))
        self._user[row] = self.users.setdefault(user_of(job), len(self.users))
        self._queue[row] = self.queues.setdefault(queue_of(job), len(self.queues))
        self._qos[row] = self.qualities.setdefault(job.qos or "", len(self.qualities))
        self._submit_time[row] = job.submit_time
        self._priority[row] = job.priority
        self._value[row] = nan
        self._num_waiting += 1

    def _remove(self, job_id: JobId) -> None:
        row = self._rows.pop(job_id, None)
        if row is None:
            return
        self._set_waits(row, waits=False)
        self._jobs[row] = None
        self._is_present[row] = False
        self._running.discard(job_id)

    def _set_waits(self, row: int, *, waits: bool) -> None:
        self._num_waiting += int(waits) - int(self._waits[row])
        self._waits[row] = waits

    def _note_running(self, running: Sequence[JobView]) -> None:
        """Record which jobs run now. The engine may have changed this without a decision of the policy."""
        now = {job.job_id for job in running}
        for job_id in self._running - now:
            self._set_waits(self._rows[job_id], waits=True)
        for job_id in now - self._running:
            self._set_waits(self._rows[job_id], waits=False)
        self._running = now

    def _compact(self) -> None:
        """Drop the empty rows."""
        rows = self.is_present.nonzero()[0]
        self._resize(rows, max(2 * len(rows), ROOM))
        self._jobs = [self._jobs[row] for row in rows]
        self._rows = {job.job_id: row for row, job in enumerate(self._jobs) if job is not None}
        self._first = 0

    def _resize(self, rows: Ints, capacity: int) -> None:
        """Move some rows to the beginning of columns of another length."""
        before = dict(vars(self))
        self._allocate(capacity)
        for name in COLUMNS:
            getattr(self, name)[: len(rows)] = before[name][rows]


class Fitting:
    """Finds the jobs of a table that fit into free GPUs of a cluster of one GPU type."""

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
        # Many jobs have the same request, so each request is checked once.
        fits = np.array([free.fits(shape) for shape in self._shapes], dtype=bool)
        mask: Mask = fits[self._table.request] if len(fits) else self._table.waits
        return mask


def grouped(indices: Ints, num_groups: int) -> Ints:
    """Return the places of an array of group indices, group by group, in their order within each group."""
    if num_groups <= np.iinfo(np.uint16).max:
        return np.argsort(indices.astype(np.uint16), kind="stable")  # a radix sort, in linear time
    return np.argsort(indices, kind="stable")


class SubmissionOrder:
    """The waiting jobs of a table in order of submission."""

    def __init__(self, table: WaitingTable) -> None:
        self._table = table

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order."""
        first = int(chosen.argmax()) if len(chosen) else 0
        if not len(chosen) or not chosen[first]:
            return
        yield first
        yield from (chosen[first + 1 :].nonzero()[0] + (first + 1)).tolist()

    def key(self, row: int) -> tuple[float, int]:
        """Return the sort key of a row."""
        return 0.0, row

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""
        waits = self._table.waits
        if len(rows) <= FEW:
            return [int(np.count_nonzero(waits[: row + 1])) for row in rows]
        counts = np.cumsum(waits)
        return [int(counts[row]) for row in rows]


class FallingOrder:
    """The waiting jobs of a table by falling values, and by submission among equal values.

    `compute` returns a value for each row, of shape (rows,). It is called when a value is first needed. Values that
    differ by rounding only are equal.
    """

    def __init__(self, table: WaitingTable, compute: Callable[[], Floats]) -> None:
        self._table = table
        self._compute = compute

    @cached_property
    def _values(self) -> Floats:
        return np.where(self._table.waits, self._compute(), -np.inf)

    @cached_property
    def _keys(self) -> Floats:
        return sort_keys(self._values)

    def value(self, job_id: JobId) -> float:
        """Return the value of a waiting job."""
        return float(self._values[self._table.row_of(job_id)])

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order. The rows after the first one are sorted only if they are read."""
        chosen_rows = chosen.nonzero()[0]
        if not len(chosen_rows):
            return
        keys = self._keys[chosen_rows]
        first = int(keys.argmax())
        yield int(chosen_rows[first])
        order = np.argsort(-keys, kind="stable")
        yield from chosen_rows[order[1:]].tolist()

    def key(self, row: int) -> tuple[float, int]:
        """Return the sort key of a row."""
        return -float(self._keys[row]), row

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""
        keys = self._keys
        if len(rows) <= FEW:
            return [self._rank(row) for row in rows]
        places = np.empty(len(keys), dtype=np.int64)
        places[np.argsort(-keys, kind="stable")] = np.arange(1, len(keys) + 1)
        return [int(places[row]) for row in rows]

    def _rank(self, row: int) -> int:
        keys = self._keys
        key = self._keys[row]
        return int(np.count_nonzero(keys > key) + np.count_nonzero(keys[: row + 1] == key))


class RisingOrder:
    """The waiting jobs of a table by rising values, then by rising ranks, then by submission.

    `compute` and `compute_ranks` return a value and a rank for each row, of shape (rows,). They are called when a value
    is first needed. The values are sums of times up to `now` [s]; values that differ by rounding only are equal.
    """

    def __init__(
        self, table: WaitingTable, compute: Callable[[], Floats], compute_ranks: Callable[[], Ints], now: float
    ) -> None:
        self._table = table
        self._compute = compute
        self._compute_ranks = compute_ranks
        self._now = now

    @cached_property
    def _keys(self) -> Floats:
        return sort_keys(np.where(self._table.waits, self._compute(), np.inf), self._now)

    @cached_property
    def _ranks(self) -> Ints:
        return self._compute_ranks()

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order. The rows after the first one are sorted only if they are read."""
        chosen_rows = chosen.nonzero()[0]
        if not len(chosen_rows):
            return
        keys = self._keys[chosen_rows]
        with_lowest_key = chosen_rows[keys == keys.min()]
        first = int(with_lowest_key[self._ranks[with_lowest_key].argmin()])
        yield first
        other_rows = chosen_rows[chosen_rows != first]
        order = np.lexsort((self._ranks[other_rows], self._keys[other_rows]))
        yield from other_rows[order].tolist()

    def key(self, row: int) -> tuple[float, int, int]:
        """Return the sort key of a row."""
        return float(self._keys[row]), int(self._ranks[row]), row

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""
        if len(rows) <= FEW:
            return [self._rank(row) for row in rows]
        places = np.empty(len(self._keys), dtype=np.int64)
        places[np.lexsort((self._ranks, self._keys))] = np.arange(1, len(self._keys) + 1)
        return [int(places[row]) for row in rows]

    def _rank(self, row: int) -> int:
        key = self._keys[row]
        rank = self._ranks[row]
        num_less = int(np.count_nonzero(self._keys < key))
        ties = (self._keys == key).nonzero()[0]
        num_before = int(np.count_nonzero(self._ranks[ties] < rank))
        num_equal = int(np.count_nonzero((self._ranks[ties] == rank) & (ties <= row)))
        return num_less + num_before + num_equal


class Order(Protocol):
    """An order of the waiting jobs of a table."""

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order."""

    def key(self, row: int) -> Any:
        """Return the sort key of a row."""

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""
