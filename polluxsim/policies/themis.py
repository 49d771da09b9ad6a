"""Themis: GPUs on lease, offered to the jobs worst off in finish-time fairness, who bid for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, log
from typing import TYPE_CHECKING

from polluxsim.errors import check_number
from polluxsim.policies.elastic import TrueTimes, counts_of, dealt
from polluxsim.policies.jsa import best_counts
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason
from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import JobId


@pool_per_type
@dataclass
class Themis:
    """Lease GPUs to the jobs that are worst off, such that the product of their 1/ρ is largest.

    ρ is a job's completion time, as things are, over that alone with an equal share of the cluster among the jobs here.
    GPUs without a lease are offered to those of the jobs without one that have the largest ρ; each bids with the ρ that
    any number of GPUs would give it. What is left over goes to the others, the worst off first.

    Parameters
    ----------
    lease
        Time for which a job keeps its GPUs [s].
    fairness
        f: the part 1 − f of the jobs without a lease may bid, one at least; from 0 to 1.

    Source: Mahajan et al., "Themis" (NSDI '20), §4, without hidden payments: jobs bid truly.
    """

    lease: float = 1200.0
    fairness: float = 0.8
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)
    # Time that each job needs in all on the GPUs asked for, and when its lease ends [s].
    _work: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _until: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(lease=self.lease)
        check_number("policy.fairness", self.fairness, 0 <= self.fairness <= 1, "a number from 0 to 1")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Hold the auction among the jobs without a lease, if there are any."""
        self._take_note(view)
        until = self._until
        held = {job.job_id: num_replicas(job.placement) for job in view.running if until.get(job.job_id, 0) > view.time}
        bids = {job.job_id: self._bid(view, job) for job in view.jobs if job.job_id not in held}
        won = auctioned(bids, view.num_gpus - sum(held.values()), self.fairness)
        counts = {job_id: gpus for job_id, gpus in (held | won).items() if gpus}
        self._until = until = dict.fromkeys(counts, view.time + self.lease) | {name: until[name] for name in held}
        decision = dealt(view, counts, lambda asked: {name: _reason(name, bids, counts, until) for name in asked})
        return replace(decision, valid_until=min(until.values(), default=inf))

    def _take_note(self, view: ClusterView) -> None:
        self._times.forget(view.changes.ended)
        for job_id in view.changes.ended:
            self._work.pop(job_id, None)
            self._until.pop(job_id, None)
        self._work |= {job.job_id: self._asked_for(view, job) for job in view.changes.arrived}

    def _asked_for(self, view: ClusterView, job: JobView) -> float:
        return self._times.on(view, job, [job.num_replicas])[job.num_replicas]

    def _bid(self, view: ClusterView, job: JobView) -> dict[int, float]:
        """Return −log ρ by the GPUs that a job might get; with none, it would have those asked for a lease later."""
        times = self._times.on(view, job, counts_of(job, view.num_gpus))
        age, asked_for = view.time - job.submit_time, self._asked_for(view, job)
        share = view.num_gpus / len(view.jobs)
        alone_on = max((gpus for gpus in times if gpus <= share), default=min(times))
        alone = times[alone_on] / asked_for * self._work[job.job_id] * max(alone_on / share, 1.0)
        later = age + self.lease + asked_for
        return {0: -log(later / alone)} | {gpus: -log((age + time) / alone) for gpus, time in times.items()}


def auctioned(bids: Mapping[JobId, Mapping[int, float]], offer: int, fairness: float) -> dict[JobId, int]:
    """Return who gets how many of the GPUs on offer: the product of 1/ρ is largest among those who may bid."""
    ranking = sorted(bids, key=lambda job_id: bids[job_id][0])
    may_bid = ranking[: max(ceil((1 - fairness) * len(ranking)), 1)]
    won = dict(zip(may_bid, best_counts([bids[job_id] for job_id in may_bid], offer), strict=True))
    left = offer - sum(won.values())
    for job_id in ranking[len(may_bid) :]:
        worth = bids[job_id]
        won[job_id] = max((gpus for gpus in worth if gpus <= left), key=worth.__getitem__)
        left -= won[job_id]
    return won


def _reason(
    job_id: JobId, bids: Mapping[JobId, Mapping[int, float]], counts: Mapping[JobId, int], until: Mapping[JobId, float]
) -> Reason:
    """Say how a job stands. Kinds: `leased`, and `outbid`."""
    bid = bids.get(job_id)
    if job_id not in counts:
        return Reason("outbid", {} if bid is None else {"rho": exp(-bid[0])})
    numbers = {"gpus": counts[job_id], "lease_end": until[job_id]}
    return Reason("leased", numbers if bid is None else {**numbers, "rho": exp(-bid[counts[job_id]])})
