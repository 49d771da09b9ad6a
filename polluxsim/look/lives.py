"""Progress and efficiency of every job over time, thinned to what a figure can show."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.look.job_progress import progress_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.look.starts import Delay
    from polluxsim.models.profile import Profile
    from polluxsim.records import Result

SMALLEST_CHANGE = 0.01
"""Of efficiency, and of the share of the work that is done; smaller ones are not told one by one."""

LARGEST_MISFIT = 0.05
"""Of the share of its work that half the completed jobs have done by the end; whole seconds cost short jobs a few %."""


class Lives(NamedTuple):
    """Points of the lives of jobs by their index among the job records; a job without a profile has none.

    The statistical efficiency is that from the time [s] on until the job's next point, NaN without GPUs; the progress
    is the share of its work that is done, a little off 1 at a completion where `progress_of` is not exact.
    """

    job: NDArray[np.uint32]
    time: NDArray[np.float64]
    efficiency: NDArray[np.float32]
    progress: NDArray[np.float32]


NO_LIVES = Lives(np.zeros(0, np.uint32), np.zeros(0), np.zeros(0, np.float32), np.zeros(0, np.float32))


def lives_of(result: Result, profiles: Mapping[str, Profile], delay: Delay) -> Lives:
    """Return the lives of all jobs that have a profile; `progress_of` says how far they hold."""
    changes = defaultdict(list)
    known = {job.job for job in result.job_records if job.application in profiles}
    for record in result.allocation_records:
        if record.job in known:
            changes[record.job].append(record)
    parts = []
    for number, job in enumerate(result.job_records):
        if job.job not in changes:
            continue
        profile = profiles[job.application]
        own = replace(result, allocation_records=tuple(changes[job.job]))
        life = progress_of(own, job, profile, delay)
        efficiency = np.append(life.efficiency, np.nan)
        done = life.progress / profile.epoch_end(profile.application.num_epochs - 1)
        kept = _kept(efficiency.tolist(), done.tolist())
        parts.append((np.full(len(kept), number, np.uint32), life.edges[kept], efficiency[kept], done[kept]))
    if not parts:
        return NO_LIVES
    of, times, efficiencies, progress = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Lives(of, times, efficiencies.astype(np.float32), progress.astype(np.float32))


def fit(result: Result, lives: Lives) -> bool:
    """Return whether completed jobs have done their work by their lives, as they have if the profiles are the run's."""
    last = np.append(lives.job[1:] != lives.job[:-1], [True]) if len(lives.job) else np.zeros(0, bool)
    complete = np.array([job.completion_time is not None for job in result.job_records])
    ends = lives.progress[last][complete[lives.job[last]]]
    return not len(ends) or float(np.median(np.abs(ends - 1))) <= LARGEST_MISFIT


def _kept(efficiency: Sequence[float], done: Sequence[float]) -> list[int]:
    """Return the first, the last, and whatever differs enough from the last that is kept, or from nothing at all."""
    kept = [0]
    for point in range(1, len(done)):
        before, now = efficiency[kept[-1]], efficiency[point]
        moved = isnan(before) != isnan(now) or abs(now - before) >= SMALLEST_CHANGE
        if moved or abs(done[point] - done[kept[-1]]) >= SMALLEST_CHANGE or point == len(done) - 1:
            kept.append(point)
    return kept
