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
    Flags: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"


class Demand(NamedTuple):
    """Jobs i in order of submission, and GPU types k, as arrays."""

    # Their names.
    jobs: Sequence[JobId]
    types: Sequence[str]
    # True speed of each job on each type, 0 where it cannot run, of shape (jobs, types) [optimiser steps/s].
    speeds: Array
    widths: Array  # GPUs of each gang
    gpus: Array  # GPUs of each type
    prices: Array  # rent of a GPU of each type [$/h], 0 where nobody says
    left: Array  # optimiser steps that each job has left at the batch size it trains at now
    ages: Array  # time since submission [s]

    @classmethod
    def of(cls, view: ClusterView) -> Demand:
        """Return the demand that a view shows."""
        gpus = gpus_by_type(view)
        rows = [(job, [speed(view, job, name) for name in gpus]) for job in view.jobs]
        jobs, known = [job for job, row in rows if any(row)], [row for _, row in rows if any(row)]
        fastest = [max(zip(row, gpus, strict=True))[1] for row in known]
        left = [steps_left(view, job, gpu_type) for job, gpu_type in zip(jobs, fastest, strict=True)]
        return cls(
            [job.job_id for job in jobs],
            list(gpus),
            np.array(known).reshape(len(jobs), len(gpus)),
            np.array([float(job.num_replicas) for job in jobs]),
            np.array([float(count) for count in gpus.values()]),
            np.array([float(gpu.price) for gpu in view.types.values()]),
            np.array(left),
            np.array([view.time - job.submit_time for job in jobs]),
        )

    @property
    def equal_share(self) -> Array:
        """Return the part of all GPUs that each type is."""
        return self.gpus / float(self.gpus.sum())

    def named(self, shares: Array) -> dict[JobId, dict[str, float]]:
        """Return shares, of shape (jobs, types), by name."""
        # Symmetric jobs are alike to fewer digits than solvers work with.
        rows = np.round(np.clip(shares, 0.0, 1.0), 9).tolist()
        return {job: dict(zip(self.types, row, strict=True)) for job, row in zip(self.jobs, rows, strict=True)}


def gpus_by_type(view: ClusterView) -> Mapping[str, int]:
    """Return the GPUs of each type that are up."""
    return {name: view.gpus_of(name) for name in view.types}


def speed(view: ClusterView, job: JobView, gpu_type: str) -> float:
    """Return the true speed of a job on the GPUs asked for of a type, 0 where it cannot run [optimiser steps/s]."""
    if gpu_type not in job.speeds or job.num_replicas > view.gpus_of(gpu_type):
        return 0.0
    try:
        return 1 / job.oracle.optimiser_step_time(_shape(view, job, gpu_type), job.oracle.batch_choice, gpu_type)
    except ProfileRangeError:
        return 0.0


def steps_left(view: ClusterView, job: JobView, gpu_type: str) -> float:
    """Return the optimiser steps that a job has left at the batch size it trains at now, as it does on a type."""
    shape, choice, oracle = _shape(view, job, gpu_type), job.oracle.batch_choice, job.oracle
    return oracle.remaining_time(shape, choice, gpu_type) / oracle.optimiser_step_time(shape, choice, gpu_type)


def _shape(view: ClusterView, job: JobView, gpu_type: str) -> tuple[int, ...]:
    largest = max(view.gpus_per_node[node] for node in view.nodes_of(gpu_type))
    return packed(job.num_replicas, largest or view.node_size)
