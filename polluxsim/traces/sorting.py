"""Sort more rows than should be in memory: sorted runs in a temporary file, merged a little at a time.

Rows come in any order and leave in order of one column; rows that are equal there leave as they came. In
memory are one unsorted run and one batch of each sorted run: for ten million rows some 150 batches of 512
rows.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

RUN_ROWS = 1 << 16
"""Rows sorted in memory at a time."""

BATCH_ROWS = 512
"""Rows of one run held during the merge."""


class ExternalSort:
    """Rows to be sorted. A context: its temporary file is gone when it ends, however it ends.

    Parameters
    ----------
    schema
        Columns of the rows.
    key
        Column to sort by, ascending; it has no empty cells.
    folder
        Where the temporary file goes; it will take about as much room as the rows.
    """

    def __init__(self, schema: pa.Schema, key: str, folder: Path) -> None:
        self._schema = schema
        self._key = key
        # Without a name where the system can: not even a killed process leaves it behind.
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._writer = pa.ipc.new_file(self._file, schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._run_lengths: list[int] = []
        self.num_rows = 0

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.num_rows += batch.num_rows
        if self._pending_rows >= RUN_ROWS:
            self._write_run()

    def merged(self) -> Iterator[pa.Table]:
        """Yield all rows in order, a few at a time. Nothing can be added from then on."""
        self._write_run()
        self._writer.close()
        reader = pa.ipc.open_file(self._file)
        cursors = self._cursors(reader)
        while cursors:
            yield self._sorted(pa.Table.from_batches(_take_lowest(cursors), self._schema))
            cursors = [cursor for cursor in cursors if cursor.refill()]

    def _write_run(self) -> None:
        if self._pending:
            run = self._sorted(pa.Table.from_batches(self._pending, self._schema)).combine_chunks()
            self._writer.write_table(run, max_chunksize=BATCH_ROWS)
            self._run_lengths.append(-(-run.num_rows // BATCH_ROWS))
        self._pending, self._pending_rows = [], 0

    def _sorted(self, table: pa.Table) -> pa.Table:
        # Arrow's sort is stable, so that equal rows stay in the order of their runs.
        return table.take(pc.sort_indices(table[self._key]))

    def _cursors(self, reader: Any) -> list[_Cursor]:
        first, cursors = 0, []
        for length in self._run_lengths:
            cursors.append(_Cursor(reader, range(first, first + length), self._key))
            first += length
        return [cursor for cursor in cursors if cursor.refill()]


class _Cursor:
    """Where the merge stands in one run: a batch, and how much of it is left."""

    def __init__(self, reader: Any, batches: range, key: str) -> None:
        self._reader = reader
        self._left = iter(batches)
        self._key = key
        self._batch: Any = None
        self.keys: list[Any] = []

    def refill(self) -> bool:
        """Read the next batch if this one is used up; return whether anything is left."""
        while not self.keys:
            if (number := next(self._left, None)) is None:
                return False
            self._batch = self._reader.get_batch(number)
            self.keys = self._batch.column(self._key).to_pylist()
        return True

    def take(self, count: int) -> pa.RecordBatch:
        """Take the first rows."""
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        self.keys = self.keys[count:]
        return taken


def _take_lowest(cursors: list[_Cursor]) -> list[pa.RecordBatch]:
    """Take from each run the rows that no row still on disk can precede.

    The bound is the smallest last key. Rows equal to it may follow on disk in the run that has it, so that
    later runs keep theirs back: equal rows leave in the order of the runs.
    """
    first = min(range(len(cursors)), key=lambda index: cursors[index].keys[-1])
    bound = cursors[first].keys[-1]
    taken = []
    for index, cursor in enumerate(cursors):
        cut = bisect_right if index <= first else bisect_left
        if count := cut(cursor.keys, bound):
            taken.append(cursor.take(count))
    return taken
