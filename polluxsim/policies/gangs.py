"""Gang scheduling: whole jobs of the size their users asked for, in a given order."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId

    # Why a job stands where it does in the order, in figures.
    Describe = Callable[[JobView], Mapping[str, float]]

NEAREST = 3
"""Jobs just ahead of one that are named to explain why it waits."""


def _in_submission_order(job: JobView) -> Mapping[str, float]:
    return {}


def schedule_gangs(
    view: ClusterView,
    order: Sequence[JobView],
    *,
    overtaking: bool = True,
    describe: Describe = _in_submission_order,
) -> Decision:
    """Give GPUs to as many whole jobs as fit, in order.

    Parameters
    ----------
    view
        The cluster now.
    order
        The active jobs by precedence.
    overtaking
        Whether a job that fits may go ahead of one that does not.
    describe
        Figures that say why a job stands where it does in the order.

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
    decision.explain = lambda jobs: _reasons(view, order, set(jobs), overtaking=overtaking, describe=describe)
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


def _reasons(
    view: ClusterView, order: Iterable[JobView], asked: set[JobId], *, overtaking: bool, describe: Describe
) -> dict[JobId, Reason]:
    """Go through the order again, and say of the jobs asked about what they met when their turn came.

    Kinds: `gang-fits`; `gang-does-not-fit`, where the others are the nearest jobs ahead that got GPUs; and
    `behind-head-of-line`, where the other is the first job that does not fit and lets nobody past.
    """
    left, head = view.num_gpus, None
    ahead = deque[str](maxlen=NEAREST)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(order, start=1):
        fits = head is None and job.num_replicas <= left
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": left, **describe(job)}
            if head is not None:
                numbers["head_gpus_needed"] = head.num_replicas
                reasons[job.job_id] = Reason("behind-head-of-line", numbers, (head.job_id,))
            else:
                kind = "gang-fits" if fits else "gang-does-not-fit"
                reasons[job.job_id] = Reason(kind, numbers, () if fits else tuple(ahead)[::-1])
            if len(reasons) == len(asked):
                break
        if fits:
            left -= job.num_replicas
            ahead.append(job.job_id)
        elif head is None and not overtaking:
            head = job
    return reasons
