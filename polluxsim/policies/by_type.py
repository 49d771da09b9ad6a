"""Gangs that a policy gives a GPU type each: which they hold, and the decision that gives them another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.policies.shares.rounds import placements_by_type
from polluxsim.policies.view import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polluxsim.policies.shares.demand import Demand
    from polluxsim.policies.view import ClusterView, Reason
    from polluxsim.types import JobId


def held(view: ClusterView, demand: Demand) -> Sequence[int | None]:
    """Return the number of the type that each job has GPUs of, None for none."""
    placed = {job.job_id: job.placement for job in view.jobs}
    return [demand.types.index(view.type_of(placed[job])) if placed[job] else None for job in demand.jobs]


def decided(
    view: ClusterView, demand: Demand, types: Mapping[JobId, int | None], explain: Callable[[JobId], Reason]
) -> Decision:
    """Return the decision to give jobs their GPUs on these types, None for no GPUs; `explain` says why of one job."""
    running = {job: demand.types[number] for job, number in types.items() if number is not None}
    return Decision(
        placements_by_type(view, running, {job.job_id: job for job in view.jobs}),
        explain=lambda asked: {job: explain(job) for job in asked if job in types},
    )
