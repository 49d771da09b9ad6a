"""Themis as a programme: shares of time that make the largest finish-time fairness least, and gangs that go by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.policies.elastic import TrueTimes
from polluxsim.policies.gangs import schedule_gangs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId

STEPS = 60
"""Halvings of the interval that the least ρ lies in."""


class Claim(NamedTuple):
    """What a job's share is worked out from.

    Attributes
    ----------
    gpus
        Asked for.
    age
        Time since its submission [s].
    left
        Time that it still needs on its GPUs [s].
    alone
        Time that it would take in all with an equal part of the cluster to itself [s].
    """

    gpus: int
    age: float
    left: float
    alone: float

    def rho(self, share: float) -> float:
        """Return its finish-time fairness with a share of time."""
        return (self.age + self.left / share) / self.alone

    def share_at(self, rho: float) -> float:
        """Return the share of time with which it has no larger ρ, 1 where none is enough."""
        room = rho * self.alone - self.age
        return min(self.left / room, 1.0) if room > 0 else 1.0


def fair_shares(claims: Sequence[Claim], num_gpus: int) -> list[float]:
    """Return shares of time whose largest ρ is least; what GPUs are left then goes to all in proportion.

    Parameters
    ----------
    claims
        Of the jobs, of which none asks for more GPUs than there are.
    num_gpus
        GPUs there are.
    """

    def need(rho: float) -> float:
        return sum(claim.gpus * claim.share_at(rho) for claim in claims)

    low = max((claim.rho(1.0) for claim in claims), default=1.0)
    high = low
    while need(high) > num_gpus:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if need(middle) > num_gpus else (low, middle)
    shares = [claim.share_at(high) for claim in claims]
    used = need(high)
    return [min(share * num_gpus / used, 1.0) for share in shares] if used else shares


@dataclass
class ThemisShares:
    """Run whole jobs by how much more time they are due than they had, where dues make the largest ρ least.

    ρ is the time to completion as things are, over that alone on an equal part of the cluster.

    Source: finish-time fairness, Mahajan et al., "Themis" (NSDI '20), as a programme as in Gavel (OSDI '20), solved by
    bisection on the largest ρ.
    """

    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)
    # Time that each job needs in all on the GPUs asked for, and time that it was due so far [s].
    _work: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _due: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _shares: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _last: float = field(default=0.0, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Work out the shares, and run who is due most."""
        self._take_note(view)
        jobs = [job for job in view.jobs if job.num_replicas <= view.num_gpus]
        shares = fair_shares([self._claim(view, job) for job in jobs], view.num_gpus)
        self._shares = {job.job_id: share for job, share in zip(jobs, shares, strict=True)}
        arrears = {job.job_id: self._arrears(view, job) for job in jobs}
        order = sorted(jobs, key=lambda job: -arrears[job.job_id])
        return schedule_gangs(view, order, describe=lambda job: {"arrears": arrears[job.job_id]})

    def _take_note(self, view: ClusterView) -> None:
        for job_id, share in self._shares.items():
            self._due[job_id] += share * (view.time - self._last)
        self._last = view.time
        self._times.forget(view.changes.ended)
        for job in view.changes.arrived:
            self._work[job.job_id], self._due[job.job_id] = self._left(view, job), 0.0
        for job_id in view.changes.ended:
            for kept in (self._work, self._due, self._shares):
                kept.pop(job_id, None)

    def _left(self, view: ClusterView, job: JobView) -> float:
        return self._times.on(view, job, [job.num_replicas])[job.num_replicas]

    def _claim(self, view: ClusterView, job: JobView) -> Claim:
        part = min(view.num_gpus / len(view.jobs) / job.num_replicas, 1.0)
        age = view.time - job.submit_time
        return Claim(job.num_replicas, age, self._left(view, job), self._work[job.job_id] / part)

    def _arrears(self, view: ClusterView, job: JobView) -> float:
        """Return the time that a job was due and is until the next round, less what it had [s]."""
        had = job.attained_service / job.num_replicas
        return self._due[job.job_id] + self._shares[job.job_id] * view.round_interval - had
