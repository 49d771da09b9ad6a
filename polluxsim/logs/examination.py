"""Examine a trace in order of submission: load, quantiles, bursts, duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from polluxsim.durations import DAY
from polluxsim.gpu_types import GPU_TYPES, types_in
from polluxsim.logs.formats.base import JobStatus, LogJob, Place
from polluxsim.logs.import_report import QUANTILES, GpuCount, Quantile, Tallies, Tally, TypeCount, rank_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

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
    """What a trace shows when its jobs stand in order of submission.

    File (a number in `files`) and line stand beside the columns of a trace; `day_start` is the time from the first
    submission back to the midnight before it [s].
    """

    def __init__(self, table: pa.Table, files: Sequence[str], day_start: float) -> None:
        self._table = table
        self._files = files
        self._times = table["submit_time"].to_numpy()
        self._durations = table["duration"].to_numpy()
        self._gpus = table["num_gpus"].to_numpy()
        self._day_start = day_start
        self.num_jobs: int = table.num_rows
        self.last_submission = float(self._times[-1])
        self.without_duration = int(np.isnan(self._durations).sum())

    def days(self) -> dict[int, tuple[int, float]]:
        """Return jobs and their GPU time by day, counted from the first [1, GPU s]."""
        days, which = np.unique(np.floor((self._times + self._day_start) / DAY).astype(np.int64), return_inverse=True)
        work = np.bincount(which, weights=np.nan_to_num(self._durations) * self._gpus)
        loads = zip(np.bincount(which).tolist(), work.tolist(), strict=True)
        return dict(zip(days.tolist(), loads, strict=True))

    def durations(self) -> tuple[Quantile, ...]:
        """Return quantiles of the durations [s]."""
        return _quantiles(self._durations[~np.isnan(self._durations)])

    def inter_arrivals(self) -> tuple[Quantile, ...]:
        """Return quantiles of the times between submissions [s]."""
        return _quantiles(np.diff(self._times))

    def gpu_counts(self) -> tuple[GpuCount, ...]:
        """Return the histogram of GPUs."""
        values, counts = np.unique(self._gpus, return_counts=True)
        return tuple(map(GpuCount, values.tolist(), counts.tolist()))

    def gpu_types(self) -> tuple[TypeCount, ...]:
        """Return how many jobs name which types of GPU, most frequent first."""
        if "gpu_type" not in self._table.column_names:
            return ()
        found = self._table["gpu_type"].drop_null().value_counts().to_pylist()
        return tuple(sorted((_type_count(**each) for each in found), key=lambda each: (-each.jobs, each.said)))

    def suspicious(self) -> tuple[Tally, ...]:
        """Return what only shows when jobs are seen together."""
        found = Tallies()
        for row in self._duplicates():
            found.add(DUPLICATE, self._place(row))
        _, first, counts = np.unique(np.floor(self._times), return_index=True, return_counts=True)
        for index in np.flatnonzero(counts >= BURST).tolist():
            found.add(IN_BURST, self._place(first[index]), int(counts[index]))
        if self.num_jobs >= BULK_JOBS:
            self._find_outside_bulk(found)
        return found.all()

    def _place(self, row: int) -> Place:
        return Place(self._files[self._table["file"][int(row)].as_py()], self._table["line"][int(row)].as_py())

    def _find_outside_bulk(self, found: Tallies) -> None:
        few = max(1, int(self.num_jobs * BULK_SHARE))
        after_pause = np.flatnonzero(np.diff(self._times) > BULK_GAP) + 1
        if (early := after_pause[after_pause <= few]).size:
            found.add(BEFORE_BULK, self._place(early[-1] - 1), int(early[-1]))
        if (late := after_pause[after_pause >= self.num_jobs - few]).size:
            found.add(AFTER_BULK, self._place(late[0]), self.num_jobs - int(late[0]))

    def _duplicates(self) -> list[int]:
        """Return the rows whose name an earlier row has, by name."""
        order = pc.sort_indices(self._table["job"])  # stable
        names = self._table["job"].take(order)
        same = pc.equal(names.slice(1), names.slice(0, self.num_jobs - 1)).to_numpy()
        return order.to_numpy()[1:][same].tolist()  # type: ignore[no-any-return]


def _type_count(values: str, counts: int) -> TypeCount:
    types = [gpu.name for gpu in types_in(values)]
    return TypeCount(values, counts, tuple(types), tuple(name for name in types if name not in GPU_TYPES))


def _quantiles(values: NDArray[np.float64]) -> tuple[Quantile, ...]:
    if not values.size:
        return ()
    ranked = np.sort(values)
    return tuple(Quantile(share, float(ranked[rank_of(share, ranked.size)])) for share in QUANTILES)
