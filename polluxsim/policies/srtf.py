"""Shortest remaining time first: the preemptive baseline that knows the future."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.orders import gangs_by
from polluxsim.types import packed

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView


@dataclass(frozen=True)
class Srtf:
    """Run the jobs with the least true remaining time, on the GPUs and batch size their users asked for."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give GPUs to whole gangs by remaining time; a job that fits may overtake one that does not."""
        time = partial(remaining_time, gpus_per_node=view.node_size)
        return gangs_by(view, time, lambda job: {"remaining_time": time(job)})


def remaining_time(job: JobView, gpus_per_node: int) -> float:
    """Return the true time to completion on packed nodes, as the user configured the job [s]."""
    choice = split_batch_size(job.oracle.application, job.batch_size, job.num_replicas)
    return job.oracle.remaining_time(packed(job.num_replicas, gpus_per_node), choice)
