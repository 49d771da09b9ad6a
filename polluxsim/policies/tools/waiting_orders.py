"""The orders of the waiting jobs of a table: by submission, or by values that a policy computes for all rows.

A decision reads the first row, and often no further row. So an order yields its rows one after the other, and sorts the
rows after the first one only when they are read. `ranks` are the positions that reasons state.

Invariants: rows with equal keys are in order of submission. Keys that differ by rounding only are equal, so that the
order does not depend on how a sum was rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from polluxsim.common.instants import sort_keys
from polluxsim.hardware.placements import JobId
from polluxsim.policies.tools.waiting_table import Floats, Ints, Mask, WaitingTable

# Up to this number of jobs, ranks are counted one by one, which is faster than to sort all jobs.
FEW = 16


class Order(Protocol):
    """An order of the waiting jobs of a table."""

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order."""

    def key(self, row: int) -> Any:
        """Return the sort key of a row."""

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""


class SubmissionOrder:
    """The waiting jobs of a table in order of submission."""

    def __init__(self, table: WaitingTable) -> None:
        self._table = table

    def rows(self, chosen: Mask) -> Iterator[int]:
        """Yield the chosen rows in order."""
        if not len(chosen):
            return
        first = int(chosen.argmax())
        # `argmax` returns 0 if no row is chosen.
        if not chosen[first]:
            return
        yield first
        # Most callers read only the first row, so the rows after it are found when they are read.
        yield from (chosen[first + 1 :].nonzero()[0] + (first + 1)).tolist()

    def key(self, row: int) -> tuple[float, int]:
        """Return the sort key of a row."""
        return 0.0, row

    def ranks(self, rows: Sequence[int]) -> list[int]:
        """Return the positions of waiting jobs among all waiting jobs, from 1."""
        waits = self._table.waits
        if len(rows) <= FEW:
            return [int(np.count_nonzero(waits[: row + 1])) for row in rows]
        return _at_rows(np.cumsum(waits), rows)


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
        """Return the value of each row, shape (rows,); −∞ without a waiting job, which then comes last."""
        return np.where(self._table.waits, self._compute(), -np.inf)

    @cached_property
    def _keys(self) -> Floats:
        """Return the sort key of each row, shape (rows,): its value, rounded."""
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
        if len(rows) <= FEW:
            return [self._rank(row) for row in rows]
        sorted_rows = np.argsort(-self._keys, kind="stable")
        return _at_rows(_positions(sorted_rows), rows)

    def _rank(self, row: int) -> int:
        """Return the position of the waiting job of a row among all waiting jobs, from 1."""
        keys = self._keys
        key = keys[row]
        num_larger = np.count_nonzero(keys > key)
        num_equal = np.count_nonzero(keys[: row + 1] == key)  # in earlier rows, and in this one
        return int(num_larger + num_equal)


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
        """Return the sort key of each row, shape (rows,): its value, rounded; ∞ without a waiting job."""
        values = np.where(self._table.waits, self._compute(), np.inf)
        return sort_keys(values, self._now)

    @cached_property
    def _ranks(self) -> Ints:
        """Return the rank of each row, shape (rows,), by which rows with equal keys are in order."""
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
        # `lexsort` sorts by its last array first.
        sorted_rows = np.lexsort((self._ranks, self._keys))
        return _at_rows(_positions(sorted_rows), rows)

    def _rank(self, row: int) -> int:
        """Return the position of the waiting job of a row among all waiting jobs, from 1."""
        key = self._keys[row]
        rank = self._ranks[row]
        num_less = int(np.count_nonzero(self._keys < key))
        ties = (self._keys == key).nonzero()[0]
        num_before = int(np.count_nonzero(self._ranks[ties] < rank))
        num_equal = int(np.count_nonzero((self._ranks[ties] == rank) & (ties <= row)))
        return num_less + num_before + num_equal


def _positions(sorted_rows: Ints) -> Ints:
    """Return the position of each row in an order of all rows, from 1.

    >>> _positions(np.array([2, 0, 1])).tolist()
    [2, 3, 1]
    """
    positions = np.empty(len(sorted_rows), dtype=np.int64)
    positions[sorted_rows] = np.arange(1, len(sorted_rows) + 1)
    return positions


def _at_rows(column: Ints, rows: Sequence[int]) -> list[int]:
    """Return the values of some rows of a column, as Python numbers."""
    values: list[int] = column[list(rows)].tolist()
    return values


def grouped(indices: Ints, num_groups: int) -> Ints:
    """Return the places of an array of group indices, group by group, in their order within each group.

    >>> grouped(np.array([1, 0, 1, 0]), 2).tolist()
    [1, 3, 0, 2]
    """
    if num_groups <= np.iinfo(np.uint16).max:
        # NumPy sorts 16-bit integers by radix, in linear time.
        return np.argsort(indices.astype(np.uint16), kind="stable")
    return np.argsort(indices, kind="stable")
