"""Progress and efficiency of a job over time, worked out from its recorded allocations and its profile."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.look.series import lifetime
from polluxsim.models.efficiency import efficiency, gain
from polluxsim.types import BatchChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from polluxsim.look.starts import Delay
    from polluxsim.models.profile import Profile
    from polluxsim.records import AllocationRecord, JobRecord, Result


class Progress(NamedTuple):
    """A job from its submission to its end, cut where its epoch, GPUs or batch size change.

    Edges are rising, shape (n + 1,) [s]; the statistical efficiency in between has shape (n,), nan without GPUs; the
    progress at the edges has shape (n + 1,) [M0-steps].
    """

    edges: NDArray[np.float64]
    efficiency: NDArray[np.float64]
    progress: NDArray[np.float64]


class _Piece(NamedTuple):
    """A stretch of a job's life: its end, the efficiency in it, and the progress and epoch at its end."""

    end: float
    efficiency: float
    progress: float
    epoch: int


def progress_of(result: Result, job: JobRecord, profile: Profile, delay: Delay) -> Progress:
    """Return what the recorded allocations amount to by the model: gain over step time, epoch by epoch.

    A run does not record efficiency job by job; it follows from batch size and epoch. Exact for `engine=exact` without
    interference; by whole seconds (`osdi21`) epochs end up to a second apart from here.

    Raises
    ------
    ProfileRangeError
        If the job held GPUs or used a batch size that the profile does not know: it is not the run's.
    """
    _, end = lifetime(result, job)
    rows = [row for row in result.allocation_records if row.job == job.job and row.time < end]
    pieces = [_Piece(rows[0].time if rows else end, np.nan, 0.0, 0)]
    ready = 0.0
    placed: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    for row, until in zip(rows, [*(row.time for row in rows), end][1:], strict=True):
        if (row.nodes, row.gpus) != placed:
            ready, placed = row.time + delay(job.application, row.nodes), (row.nodes, row.gpus)
        pieces += _segment(row, until, ready, pieces[-1], profile)
    return _joined(job.submit_time, pieces)


def _segment(row: AllocationRecord, until: float, ready: float, before: _Piece, profile: Profile) -> Iterator[_Piece]:
    """Yield the pieces of a stretch without a recorded change; nothing is done in it before `ready` [s]."""
    if not row.gpus:
        yield before._replace(end=until, efficiency=np.nan)
        return
    replicas, passes = sum(row.gpus), row.accumulation_steps + 1
    choice = BatchChoice(row.batch_size // (replicas * passes), row.accumulation_steps)
    step_time = profile.step_time(row.gpus, choice.atomic_batch_size).optimiser_step(row.accumulation_steps)
    scale = row.batch_size / profile.application.init_batch_size
    now, (_, _, progress, epoch) = row.time, before
    while now < until:
        statistics = profile.gradient_statistics(row.batch_size, epoch)
        rate, start = gain(statistics, scale) / step_time, max(now, ready)
        reached = start + (profile.epoch_end(epoch) - progress) / rate
        if reached < until and epoch + 1 < profile.application.num_epochs:
            now, progress, epoch = max(reached, now), profile.epoch_end(epoch), epoch + 1
        else:
            now, progress = until, progress + rate * max(until - start, 0.0)
        yield _Piece(now, efficiency(statistics, scale), progress, epoch)


def _joined(start: float, pieces: Sequence[_Piece]) -> Progress:
    """Return pieces as arrays, without those that take no time."""
    starts = [start, *(piece.end for piece in pieces)]
    kept = [piece for (low, high), piece in zip(pairwise(starts), pieces, strict=True) if high > low]
    return Progress(
        np.array([start, *(piece.end for piece in kept)]),
        np.array([piece.efficiency for piece in kept]),
        np.array([0.0, *(piece.progress for piece in kept)]),
    )
