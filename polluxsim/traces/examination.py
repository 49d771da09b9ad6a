"""See a trace go by in order of submission, in flat memory: load, quantiles, bursts, duplicates."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from polluxsim.traces.doctor import QUANTILES, GpuCount, Quantile, Tallies, rank_of
from polluxsim.traces.formats.base import JobStatus, LogJob, Place
from polluxsim.traces.sorting import ExternalSort

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

DAY = 86400.0
"""Length of a day [s]."""

LONG_DURATION = 60 * DAY
"""Durations above this are suspicious [s]."""

BULK_SHARE = 0.01
"""Share of the jobs, at either end, that may lie outside the bulk [1]."""

BULK_GAP = DAY
"""Pause that cuts such jobs off from the bulk [s]."""

BULK_JOBS = 10
"""Fewest jobs of which a bulk is spoken of."""

BURST = 10
"""Submissions within one second that make a burst [1]."""

BEFORE_BULK = "submitted before the bulk (in the first 1 %, cut off by a pause of more than a day)"
AFTER_BULK = "submitted after the bulk (in the last 1 %, cut off by a pause of more than a day)"
IN_BURST = f"one of {BURST} or more jobs submitted in the same second"
DUPLICATE = "a job's name that another row had before"

_VALUES = pa.schema([("value", pa.float64())])
_NAMES = pa.schema([("job", pa.string()), ("file", pa.int32()), ("line", pa.int64())])


def oddities(job: LogJob) -> Iterator[str]:
    """Yield what is suspicious about one job by itself."""
    yield from job.oddities
    if job.duration == 0:
        yield "duration of 0 s"
    if job.duration is not None and job.duration > LONG_DURATION:
        yield "duration of more than 60 days"
    if job.num_gpus % 1:
        yield "a fraction of a GPU"
    if job.status is JobStatus.RUNNING:
        yield "was running when last seen: its duration is a lower bound"


class Examination:
    """What a trace shows when its jobs go by in order of submission. A context, for its temporary files.

    Parameters
    ----------
    folder
        Where temporary files go.
    files
        Names of the log's files, by number.
    day_start
        Time from the first submission back to the midnight before it [s].
    """

    def __init__(self, folder: Path, files: Sequence[str], day_start: float) -> None:
        self._files = files
        self._day_start = day_start
        self._sorts = ExitStack()
        self._durations = self._sorts.enter_context(ExternalSort(_VALUES, "value", folder))
        self._gaps = self._sorts.enter_context(ExternalSort(_VALUES, "value", folder))
        self._names = self._sorts.enter_context(ExternalSort(_NAMES, "job", folder))
        self._second: tuple[float, int, Place] | None = None
        self._pauses: list[tuple[int, Place, Place]] = []
        self._last: tuple[float, Place] | None = None
        self._gpus: dict[float, int] = {}
        self.found = Tallies()
        self.num_jobs = 0
        self.without_duration = 0
        self.last_submission = 0.0
        self.jobs_by_day: dict[int, int] = {}
        self.gpu_seconds_by_day: dict[int, float] = {}

    def __enter__(self) -> Examination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sorts.close()

    def see(self, table: pa.Table) -> None:
        """Look at the next jobs in order of submission; file and line stand beside the columns of a trace."""
        times = table["submit_time"].to_numpy()
        durations = table["duration"].to_numpy()
        gpus = table["num_gpus"].to_numpy()
        self._see_days(times, np.nan_to_num(durations) * gpus)
        self._see_gpus(gpus)
        self._see_pauses(table, times)
        self._see_seconds(table, times)
        known = durations[~np.isnan(durations)]
        self.without_duration += len(durations) - len(known)
        self._durations.add(pa.record_batch([pa.array(known)], schema=_VALUES))
        for batch in table.select(_NAMES.names).to_batches():
            self._names.add(batch)
        self.num_jobs += table.num_rows
        self.last_submission = float(times[-1])

    def durations(self) -> tuple[Quantile, ...]:
        """Return quantiles of the durations [s]."""
        return _quantiles(self._durations)

    def inter_arrivals(self) -> tuple[Quantile, ...]:
        """Return quantiles of the times between submissions [s]."""
        return _quantiles(self._gaps)

    def gpu_counts(self) -> tuple[GpuCount, ...]:
        """Return the histogram of GPUs."""
        return tuple(GpuCount(*item) for item in sorted(self._gpus.items()))

    def finish(self) -> None:
        """Find what only shows when all jobs were seen."""
        self._close_second()
        self._find_outside_bulk()
        self._find_duplicates()

    def _place(self, table: pa.Table, row: int) -> Place:
        return Place(self._files[table["file"][row].as_py()], table["line"][row].as_py())

    def _see_days(self, times: NDArray[np.float64], work: NDArray[np.float64]) -> None:
        days, which = np.unique(np.floor((times + self._day_start) / DAY).astype(np.int64), return_inverse=True)
        jobs, gpu_seconds = np.bincount(which), np.bincount(which, weights=work)
        for day, count, seconds in zip(days.tolist(), jobs.tolist(), gpu_seconds.tolist(), strict=True):
            self.jobs_by_day[day] = self.jobs_by_day.get(day, 0) + count
            self.gpu_seconds_by_day[day] = self.gpu_seconds_by_day.get(day, 0.0) + seconds

    def _see_gpus(self, gpus: NDArray[np.float64]) -> None:
        values, counts = np.unique(gpus, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._gpus[value] = self._gpus.get(value, 0) + count

    def _see_pauses(self, table: pa.Table, times: NDArray[np.float64]) -> None:
        before = times[0] if self._last is None else self._last[0]
        gaps = np.diff(times, prepend=before)
        for row in np.flatnonzero(gaps > BULK_GAP).tolist():
            last = self._place(table, row - 1) if row else self._last_place(table)
            self._pauses.append((self.num_jobs + row, last, self._place(table, row)))
        # The first submission of all has no gap before it.
        self._gaps.add(pa.record_batch([pa.array(gaps[self._last is None :])], schema=_VALUES))
        self._last = (float(times[-1]), self._place(table, table.num_rows - 1))

    def _last_place(self, table: pa.Table) -> Place:
        return self._place(table, 0) if self._last is None else self._last[1]

    def _see_seconds(self, table: pa.Table, times: NDArray[np.float64]) -> None:
        seconds, first, counts = np.unique(np.floor(times), return_index=True, return_counts=True)
        # The first may go on from the table before, the last in the next; between them only the long ones
        # matter.
        for index in sorted({0, *np.flatnonzero(counts >= BURST).tolist(), len(seconds) - 1}):
            self._see_second(float(seconds[index]), int(counts[index]), self._place(table, int(first[index])))

    def _see_second(self, second: float, count: int, place: Place) -> None:
        if self._second is not None and self._second[0] == second:
            _, before, first = self._second
            self._second = (second, before + count, first)
        else:
            self._close_second()
            self._second = (second, count, place)

    def _close_second(self) -> None:
        if self._second is not None and self._second[1] >= BURST:
            self.found.add(IN_BURST, self._second[2], self._second[1])

    def _find_outside_bulk(self) -> None:
        if self.num_jobs < BULK_JOBS:
            return
        few = max(1, int(self.num_jobs * BULK_SHARE))
        if early := [pause for pause in self._pauses if pause[0] <= few]:
            before, last, _ = early[-1]
            self.found.add(BEFORE_BULK, last, before)
        if late := [pause for pause in self._pauses if pause[0] >= self.num_jobs - few]:
            before, _, first = late[0]
            self.found.add(AFTER_BULK, first, self.num_jobs - before)

    def _find_duplicates(self) -> None:
        previous: tuple[Any, int, int] = (None, 0, 0)
        for table in self._names.merged():
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if row[0] == previous[0]:
                    self.found.add(DUPLICATE, Place(self._files[row[1]], row[2]))
                previous = row


def _quantiles(values: ExternalSort) -> tuple[Quantile, ...]:
    ranks = [(share, rank_of(share, values.num_rows)) for share in QUANTILES] if values.num_rows else []
    found, seen = [], 0
    for table in values.merged():
        inside = [(share, rank - seen) for share, rank in ranks if seen <= rank < seen + table.num_rows]
        found += [Quantile(share, table["value"][row].as_py()) for share, row in inside]
        seen += table.num_rows
    return tuple(found)
