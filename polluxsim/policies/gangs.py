"""Gang scheduling: whole jobs of the size their users asked for, in a given order."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.view import Change, Decision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.policies.view import ClusterView, JobView


def schedule_gangs(view: ClusterView, order: Iterable[JobView], *, overtaking: bool = True) -> Decision:
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
    Decision
        Jobs that run on keep their GPUs; the others take the emptiest nodes first. It stands until a job arrives, or
        GPUs become free that somebody waits for, if no job that has GPUs by it falls behind another one; that they
        rise changes nothing.
    """
    admitted = _admitted(order, view.num_gpus, overtaking=overtaking)
    decision = Decision((job.job_id, job.placement) for job in admitted if job.placement)
    decision.valid_until = inf
    decision.outdated_by = Change.ARRIVAL
    if len(admitted) < len(view.jobs):
        decision.outdated_by |= Change.COMPLETION | Change.NODES
    free = FreeGpus(view.gpus_per_node)
    for placement in decision.values():
        free.take(placement)
    for job in admitted:
        if not job.placement and (found := free.pack(job.num_replicas)):
            decision[job.job_id] = found
    return decision


def _admitted(order: Iterable[JobView], budget: int, *, overtaking: bool) -> list[JobView]:
    admitted = []
    for job in order:
        if job.num_replicas <= budget:
            budget -= job.num_replicas
            admitted.append(job)
            if not budget:
                break
        elif not overtaking:
            break
    return admitted
