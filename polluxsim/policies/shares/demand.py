"""What shares are computed from: jobs and GPU types as arrays, and the base constraints of all shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId

    Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"


class Demand(NamedTuple):
    """Jobs i in order of submission, and GPU types k, as arrays.

    Attributes
    ----------
    jobs, types
        Their names.
    speeds
        True speed of each job on each type, 0 where it cannot run, of shape (jobs, types) [optimiser steps/s].
    widths
        GPUs of each gang.
    gpus
        GPUs of each type.
    left
        Optimiser steps that each job has left at the batch size it trains at now.
    ages
        Time since submission [s].
    """

    jobs: Sequence[JobId]
    types: Sequence[str]
    speeds: Array
    widths: Array
    gpus: Array
    left: Array
    ages: Array

    @classmethod
    def of(cls, view: ClusterView) -> Demand:
        """Return the demand that a view shows."""
        gpus = gpus_by_type(view)
        known = {job: [speed(view, job, name) for name in gpus] for job in view.jobs}
        jobs = [job for job, speeds in known.items() if any(speeds)]
        speeds = np.array([known[job] for job in jobs]).reshape(len(jobs), len(gpus))
        return cls(
            [job.job_id for job in jobs],
            list(gpus),
            speeds,
            np.array([float(job.num_replicas) for job in jobs]),
            np.array([float(count) for count in gpus.values()]),
            np.array([steps_left(view, job) for job in jobs]),
            np.array([view.time - job.submit_time for job in jobs]),
        )

    @property
    def equal_share(self) -> Array:
        """Return the part of all GPUs that each type is."""
        total = float(self.gpus.sum())
        return self.gpus / total

    def named(self, shares: Array) -> dict[JobId, dict[str, float]]:
        """Return shares, of shape (jobs, types), by name."""
        # Symmetric jobs are alike to fewer digits than solvers work with.
        rows = np.round(np.clip(shares, 0.0, 1.0), 9).tolist()
        return {job: dict(zip(self.types, row, strict=True)) for job, row in zip(self.jobs, rows, strict=True)}


def gpus_by_type(view: ClusterView) -> Mapping[str, int]:
    """Return the GPUs of each type that are up."""
    return {"gpu": view.num_gpus}


def nodes_of(view: ClusterView, gpu_type: str) -> Sequence[int]:
    """Return the numbers of the nodes of a type."""
    return range(len(view.gpus_per_node))


def speed(view: ClusterView, job: JobView, gpu_type: str) -> float:
    """Return the true speed of a job on the GPUs asked for of a type, 0 where it cannot run [optimiser steps/s]."""
    if job.num_replicas > gpus_by_type(view)[gpu_type]:
        return 0.0
    try:
        return 1 / job.oracle.optimiser_step_time(_shape(view, job), job.oracle.batch_choice)
    except ProfileRangeError:
        return 0.0


def steps_left(view: ClusterView, job: JobView) -> float:
    """Return the optimiser steps that a job has left at the batch size it trains at now."""
    shape, choice = _shape(view, job), job.oracle.batch_choice
    return job.oracle.remaining_time(shape, choice) / job.oracle.optimiser_step_time(shape, choice)


def _shape(view: ClusterView, job: JobView) -> tuple[int, ...]:
    return packed(job.num_replicas, max(view.gpus_per_node))
