"""Gang scheduling: whole jobs of the size their users asked for, in a given order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.policies.packing import pack, remove

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Allocation, JobId, Placement


def schedule_gangs(view: ClusterView, order: Iterable[JobView], *, overtaking: bool = True) -> Allocation:
    """Give GPUs to as many whole jobs as fit, in order.

    Parameters
    ----------
    view
        The cluster now.
    order
        The active jobs by precedence.
    overtaking
        Whether a job that fits may go ahead of one that does not.

    Returns
    -------
    Allocation
        Jobs that run on keep their GPUs; the others take the emptiest nodes first.
    """
    admitted = _admitted(order, view.num_gpus, overtaking=overtaking)
    allocation: dict[JobId, Placement] = {job.job_id: job.placement for job in admitted if job.placement}
    free = view.gpus_per_node
    for placement in allocation.values():
        free = remove(free, placement)
    for job in admitted:
        if job.job_id not in allocation and (found := pack(free, job.num_replicas)):
            allocation[job.job_id] = found
            free = remove(free, found)
    return allocation


def _admitted(order: Iterable[JobView], budget: int, *, overtaking: bool) -> list[JobView]:
    admitted = []
    for job in order:
        if job.num_replicas <= budget:
            budget -= job.num_replicas
            admitted.append(job)
        elif not overtaking:
            break
    return admitted
