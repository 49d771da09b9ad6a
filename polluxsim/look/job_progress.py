"""Progress and efficiency of jobs over time, from their recorded allocations and the profiles of the run.

A run records when the GPUs or the batch size of a job change, but not its progress. This module repeats the engine's
arithmetic between these changes. It works only where nothing else influences a job: without interference, shared GPUs,
lost work and checkpoints (`why_unknown`). The profiles may have changed since the run. So the work of completed jobs is
compared with the work that they must have done (`have_fitting_ends`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import UNKNOWN_TYPES, NodeTypes
from polluxsim.hardware.placements import BatchChoice
from polluxsim.look.occupancy import Stay, stays
from polluxsim.look.run_facts import Delay, Pauses, cluster_of, start_delay
from polluxsim.models.efficiency import efficiency, gain
from polluxsim.models.profile import Profile, ProfileRangeError, by_type
from polluxsim.records.results import AllocationRecord, JobRecord, Result
from polluxsim.records.storage import Run, located
from polluxsim.statistics.groups import settings_of
from polluxsim.statistics.series import allocations_of, lifetime


class Progress(NamedTuple):
    """A job from its submission to its end, cut where its epoch, GPUs or batch size change."""

    edges: NDArray[np.float64]  # rising times, shape (n + 1,) [s]
    efficiency: NDArray[np.float64]  # statistical, between the edges, shape (n,); nan without GPUs
    progress: NDArray[np.float64]  # at the edges, shape (n + 1,) [M0-steps]


class _Piece(NamedTuple):
    """A period in the life of a job."""

    end: float  # [s]
    efficiency: float  # statistical
    progress: float  # at the end [M0-steps]
    epoch: int  # at the end


def has_earlier_work(job: JobRecord) -> bool:
    """Return whether a job did work before the start of the run, which no record states."""
    return job.start_time is not None and job.start_time < 0


def progress_of(
    result: Result, job: JobRecord, profile: Profile, delay: Delay, node_types: NodeTypes = UNKNOWN_TYPES
) -> Progress:
    """Return the modelled progress of the recorded allocations: gain over step time, epoch by epoch.

    A run does not record the efficiency of each job; it follows from batch size and epoch. The result is exact for
    `engine=exact` without interference. With whole seconds (`osdi21`), the epochs of the run end up to a second
    earlier or later. Raise ProfileRangeError if the profile has no step time on the GPUs of the job, or the job did
    work before the start of the run.
    """
    if has_earlier_work(job):
        raise ProfileRangeError(f"job {job.job!r} ran before the start of the run, and its progress then is unknown")
    begin, end = lifetime(result, job)
    rows = allocations_of(result, job)
    # Each change lasts until the next one, and the last one until the end.
    change_times = [row.time for row in rows]
    change_times.append(end)
    # The first piece is the wait for the first GPU.
    pieces = [_Piece(change_times[0], np.nan, 0.0, 0)]
    ready = 0.0
    placement: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    for row, until in zip(rows, change_times[1:], strict=True):
        # A change of only the batch size costs no restart.
        if (row.nodes, row.gpus) != placement:
            placement = (row.nodes, row.gpus)
            ready = row.time + delay(job.job, job.application, row.nodes, row.time)
        pieces += _segment(row, until, ready, pieces[-1], _on_type(profile, node_types, row.nodes))
    return _joined(begin, pieces)


def _segment(row: AllocationRecord, until: float, ready: float, before: _Piece, profile: Profile) -> Iterator[_Piece]:
    """Yield the pieces of a period without a recorded change; the job makes no progress before `ready` [s]."""
    if not row.gpus:
        yield before._replace(end=until, efficiency=np.nan)
        return
    num_replicas = sum(row.gpus)
    num_passes = row.accumulation_steps + 1
    choice = BatchChoice(row.batch_size // (num_replicas * num_passes), row.accumulation_steps)
    step_time = profile.step_time(row.gpus, choice.atomic_batch_size).optimiser_step(row.accumulation_steps)
    scale = row.batch_size / profile.application.init_batch_size
    now = row.time
    progress = before.progress
    epoch = before.epoch
    while now < until:
        statistics = profile.gradient_statistics(row.batch_size, epoch)
        rate = gain(statistics, scale) / step_time
        start = max(now, ready)
        epoch_ends_at = start + (profile.epoch_end(epoch) - progress) / rate
        # The last epoch goes on for as long as the record says, even if the model has it end earlier.
        if epoch_ends_at < until and epoch + 1 < profile.application.num_epochs:
            now = max(epoch_ends_at, now)  # rounding must not turn back time
            # The exact end of the epoch, so that rounding errors do not add up over epochs.
            progress = profile.epoch_end(epoch)
            epoch += 1
        else:
            now = until
            progress += rate * max(until - start, 0.0)
        yield _Piece(now, efficiency(statistics, scale), progress, epoch)


def _on_type(profile: Profile, node_types: NodeTypes, nodes: Sequence[int]) -> Profile:
    """Return the profile on the GPU type of some nodes. Without profiles by type, all types are equal.

    Raise ProfileRangeError if the nodes have several types, or a type without a profile.
    """
    profiles = by_type(profile)
    if not (profiles and node_types and nodes):
        return profile
    names = {node_types[node].name for node in nodes}
    if len(names) > 1 or not names <= profiles.keys():
        raise ProfileRangeError(f"{profile.application.name} has no profile for {' and '.join(sorted(names))}")
    return profiles[names.pop()]


def _joined(start: float, pieces: Sequence[_Piece]) -> Progress:
    """Return the pieces of the life of a job that was submitted at `start` [s], without empty ones."""
    edges = [start]
    efficiencies = []
    progress = [0.0]
    piece_start = start
    for piece in pieces:
        if piece.end > piece_start:
            edges.append(piece.end)
            efficiencies.append(piece.efficiency)
            progress.append(piece.progress)
        piece_start = piece.end
    return Progress(np.array(edges), np.array(efficiencies), np.array(progress))


def undone_training(run: Run, cluster: Cluster) -> Iterator[tuple[Stay, float, float, float]]:
    """Yield the training that failures undid: the stay, its start and end in the stay, and the time of the failure [s].

    The stays come in the order in which they end.
    """
    result = run.result
    if not any(job.lost_time for job in result.job_records):
        return
    pauses = Pauses(run, cluster.num_nodes)
    applications = {job.job: job.application for job in result.job_records}
    for stay in stays(result.allocation_records, cluster, result.end_time, result.sharing_records):
        failed_at = pauses.failed_at(stay)
        if failed_at is None:
            continue
        for start, end in pauses.lost(stay, applications[stay.job]):
            yield stay, start, end, failed_at


SMALLEST_CHANGE = 0.01  # least change of efficiency, or of the share of the work that is done, that adds a point [1]

LARGEST_MISFIT = 0.05
"""Largest median difference between 1 and the share of its work that a completed job has done [1].

With whole seconds, the difference of short jobs is a few per cent.
"""


class Lives(NamedTuple):
    """Points of the lives of jobs, in order of job and time, shape (n,) each. A job without a profile has no points."""

    job: NDArray[np.uint32]  # index among the job records
    time: NDArray[np.float64]  # [s]
    efficiency: NDArray[np.float32]  # statistical, until the next point of the job; NaN while it has no GPUs
    progress: NDArray[np.float32]  # share of the work that is done [1], as exact as `progress_of`


NO_LIVES = Lives(np.zeros(0, np.uint32), np.zeros(0), np.zeros(0, np.float32), np.zeros(0, np.float32))  # no points


def lives_of(
    result: Result, profiles: Mapping[str, Profile], delay: Delay, node_types: NodeTypes = UNKNOWN_TYPES
) -> Lives:
    """Return the lives of the jobs that have a profile, held GPUs, and did no work before the start of the run.

    `progress_of` states how accurate the values are, and which errors it raises.
    """
    changes = defaultdict(list)
    for record in result.allocation_records:
        changes[record.job].append(record)
    parts = []
    for index, job in enumerate(result.job_records):
        if job.job not in changes or job.application not in profiles or has_earlier_work(job):
            continue
        profile = profiles[job.application]
        # With the records of all jobs, `progress_of` would search them once for each job.
        result_of_job = replace(result, allocation_records=tuple(changes[job.job]))
        life = progress_of(result_of_job, job, profile, delay, node_types)
        # The last point is the end of the job, after which it has no efficiency.
        efficiency = np.append(life.efficiency, np.nan)
        done = life.progress / profile.epoch_end(profile.application.num_epochs - 1)
        points = _changed_points(efficiency.tolist(), done.tolist())
        parts.append((np.full(len(points), index, np.uint32), life.edges[points], efficiency[points], done[points]))
    if not parts:
        return NO_LIVES
    jobs, times, efficiencies, progress = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Lives(jobs, times, efficiencies.astype(np.float32), progress.astype(np.float32))


def have_fitting_ends(result: Result, lives: Lives) -> bool:
    """Return whether at least half of the completed jobs have done about all their work according to their lives.

    If not, the profiles of the lives are not those of the run. Without completed jobs, nothing contradicts them, and
    the result is True.
    """
    if not len(lives.job):
        return True
    is_last_point = np.append(lives.job[1:] != lives.job[:-1], [True])
    jobs = lives.job[is_last_point]
    is_complete = np.array([job.completion_time is not None for job in result.job_records])
    done = lives.progress[is_last_point][is_complete[jobs]]
    if not len(done):
        return True
    # The median, because whole seconds make the difference of a few short jobs large.
    misfit = float(np.median(np.abs(done - 1)))
    return misfit <= LARGEST_MISFIT


def _changed_points(efficiency: Sequence[float], done: Sequence[float]) -> list[int]:
    """Return the first point, the last point, and each point that differs enough from the previous returned point."""
    points = [0]
    for point in range(1, len(done)):
        before = efficiency[points[-1]]
        now = efficiency[point]
        has_changed = isnan(before) != isnan(now) or abs(now - before) >= SMALLEST_CHANGE
        has_progressed = abs(done[point] - done[points[-1]]) >= SMALLEST_CHANGE
        if has_changed or has_progressed or point == len(done) - 1:
            points.append(point)
    return points


PROFILE_FOLDER = f"{ProfileFolder.__module__}.{ProfileFolder.__name__}"
"""Name of the class that reads profiles from a folder, as in settings."""


def why_unknown(run: Run) -> str:
    """Return why the lives of the jobs of a run do not follow from its records and its profiles; "" if they do."""
    settings = settings_of(run)
    if settings.get("engine.interference") or settings.get("engine.sharing._target_"):
        return "they do not follow from the records where jobs interfere or share GPUs"
    for job in run.result.job_records:
        if job.lost_time or job.checkpoint_time:
            return "they do not follow from the records where jobs lose work or stop for checkpoints"
    if "engine.restart_delay" not in settings:
        return "the run does not say its restart delay"
    return ""


class OwnProfiles(NamedTuple):
    """The profiles of a run."""

    profiles: Mapping[str, Profile]  # by application
    where: str  # their place in words
    lives: Lives  # of the jobs of the run, computed from these profiles


def own_profiles(run: Run, folder: Path | None = None) -> OwnProfiles:
    """Return the profiles of a run, from the given folder or from the folder in its settings.

    Raise InvalidInputError if the profiles are unknown, unreadable or not those of the run, or if the lives of its jobs
    do not follow from them.
    """
    settings = settings_of(run)
    reason = why_unknown(run)
    if reason:
        raise InvalidInputError(reason)
    if folder is None and settings.get("profiles._target_") != PROFILE_FOLDER:
        raise InvalidInputError("the run does not say where its profiles are")
    path = settings.get("profiles.path")
    if folder is not None:
        path = str(folder)
    where = "the profile cards that come with polluxsim"
    if path is not None:
        where = f"the profiles in {path}"
    if path is not None and folder is None:
        # The path in the settings can be relative to the folder of the run. Messages have it as the user wrote it.
        path = located(path, run.folder)
    try:
        profiles = ProfileFolder(path).load()
        lives = lives_of(run.result, profiles, start_delay(run), cluster_of(run).node_types)
    except (InvalidInputError, ProfileRangeError) as error:
        raise InvalidInputError(f"{where} could not be used ({error})") from None
    if not len(lives.job) and run.result.allocation_records:
        raise InvalidInputError(f"no job has an application of {where}")
    if not have_fitting_ends(run.result, lives):
        raise InvalidInputError(f"{where} are not those the run was made with")
    return OwnProfiles(profiles, where, lives)
