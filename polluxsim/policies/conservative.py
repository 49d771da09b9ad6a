"""Conservative backfill: every job that waits has a reservation, and nobody who starts early delays one."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.reservations import FreeOverTime, Limits
from polluxsim.policies.view import Change, Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView
    from polluxsim.types import JobId


@pool_per_type
@dataclass
class Conservative:
    """Reserve GPUs for every job as it comes, at the earliest time that delays nobody before it.

    At every change, reservations are made anew in their own order, so that they only move ahead while nobody outlives
    a limit. Limits are as those of `Easy`.

    Parameters
    ----------
    overestimate
        Limit of a job whose user promised none, as a multiple of the time that it truly takes.

    Source: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates" (TPDS '01).
    """

    overestimate: float = 1.0
    _limits: Limits = field(init=False, repr=False)
    # When each job that waits is to start.
    _starts: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(overestimate=self.overestimate)
        self._limits = Limits(self.overestimate)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose reservations begin now."""
        self._limits.forget(view.changes.ended)
        starts = self._plan(view)
        packing, placements = FreeGpus(view.free), {}
        for job in view.waiting:
            if starts[job.job_id] <= view.time:
                placements[job.job_id] = packing.pack(job.num_replicas) or ()
                self._limits.started(view, job)
        self._starts = {job_id: start for job_id, start in starts.items() if job_id not in placements}
        next_release = next((time for time, _ in self._limits.releases(view)), inf)
        return Decision(
            placements,
            others_keep=True,
            # Who outlives a limit puts off reservations.
            valid_until=min(next_release, *self._starts.values()) if self._starts else inf,
            outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES if self._starts else Change.ARRIVAL,
            explain=lambda jobs: _reasons(view, starts, jobs),
        )

    def _plan(self, view: ClusterView) -> dict[JobId, float]:
        """Return when each job that waits is to start, in the order of what was planned for them."""
        order = sorted(view.waiting, key=lambda job: self._starts.get(job.job_id, inf))
        if view.demand <= view.num_gpus:
            return {job.job_id: view.time for job in order}
        free, starts = FreeOverTime(view.time, sum(view.free), self._limits.releases(view)), {}
        for job in order:
            length = self._limits.of(view, job)
            start = free.earliest(job.num_replicas, length)
            if start < inf:
                free.take(job.num_replicas, start, max(view.round_at(start + length), start + view.round_interval))
            starts[job.job_id] = start
        return starts


def _reasons(view: ClusterView, starts: Mapping[JobId, float], asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Say of the jobs asked about when they are to start. Kinds: `runs-on`, `starts-now`, and `starts-by`."""
    needed = {job.job_id: job.num_replicas for job in view.waiting}
    free = sum(view.free) - sum(needed[job_id] for job_id in needed if starts[job_id] <= view.time)
    reasons = {}
    for job_id in asked:
        if job_id not in needed:
            reasons[job_id] = Reason("runs-on", {})
            continue
        due = {"reserved_time": starts[job_id]} if view.time < starts[job_id] < inf else {}
        kind = "starts-now" if starts[job_id] <= view.time else "starts-by"
        reasons[job_id] = Reason(kind, {"gpus_needed": needed[job_id], "gpus_left": free, **due})
    return reasons
