"""Themis: leases of GPUs, by auctions among the jobs with the worst finish-time fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, exp, inf, log
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.common.values import Range, Share
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.elastic.true_times import best_counts
from polluxsim.policies.tools.gangs import newcomers
from polluxsim.policies.tools.gpu_counts import ROUNDING, TrueTimes, counts_of, decision_by

MOST_WINNERS = 3  # largest number of other jobs that a reason names


@takes_settings("policy")
@dataclass
class Themis(Policy):
    """Lease GPUs to the jobs with the worst finish-time fairness ρ, so that the product of their 1/ρ is largest.

    ρ is the completion time of a job, over its completion time alone on an equal share of the cluster. The policy
    offers the GPUs without a lease to the jobs without a lease that have the largest ρ. Each of these jobs bids with
    the ρ that it would have on each number of GPUs. The GPUs that are left over go to the other jobs without a lease,
    then to jobs with a lease that complete earlier on more GPUs, restart included; the worst ρ goes first. These GPUs
    do not extend a lease.

    Parameters
    ----------
    lease
        Time for which a job keeps its GPUs [s].
    fairness
        f: the part 1 − f of the jobs without a lease may bid, one at least; from 0 to 1.

    Source: Mahajan et al., "Themis" (NSDI '20), §4, without hidden payments: jobs bid truly.
    """

    lease: Annotated[Seconds, Range(above=0)] = 1200.0
    fairness: Share = 0.8
    traits: ClassVar[Traits] = Traits(slices_time=True, per_type=True)
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)
    # Total time that each job needs on the requested GPUs, and the end of its lease [s].
    _work: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _until: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Hold the auction among the jobs without a lease, if there are any."""
        self._take_note(view)
        until = self._until
        leases = {
            job.job_id: num_replicas(job.placement)
            for job in view.running
            if not view.has_come(until.get(job.job_id, 0))
        }
        bids = {job.job_id: self._bid(view, job) for job in view.jobs if job.job_id not in leases}
        offer = view.num_gpus - sum(leases.values())
        won = auctioned(bids, offer, self.fairness)
        gpus_left = offer - sum(won.values())
        with_lease = [job for job in view.jobs if gpus_left and job.job_id in leases]
        leased = {job.job_id: self._bid(view, job, restarts=True) for job in with_lease}
        grown = taken_up(leased, leases, gpus_left)
        counts = {job_id: gpus for job_id, gpus in (leases | grown | won).items() if gpus}
        self._until = until = dict.fromkeys(counts, view.time + self.lease) | {name: until[name] for name in leases}
        auction = Auction(
            bids, won, offer, num_bidders(bids, self.fairness), min((until[name] for name in leases), default=inf)
        )
        decision = decision_by(view, counts, lambda asked: _reasons(auction, counts, until, asked))
        return replace(decision, valid_until=min(until.values(), default=inf))

    def _take_note(self, view: ClusterView) -> None:
        """Forget jobs that ended, and record the work of new and altered jobs."""
        self._times.forget(view.changes)
        for job_id in view.changes.ended:
            self._work.pop(job_id, None)
            self._until.pop(job_id, None)
        altered = [job for job in view.jobs if job.job_id in view.changes.altered]
        self._work |= {job.job_id: self._asked_for(job) for job in (*newcomers(view, self._work), *altered)}

    def _asked_for(self, job: JobView) -> float:
        """Return the remaining time of a job on the GPUs that it requests [s]."""
        return self._times.on(job, [job.num_replicas])[job.num_replicas]

    def _bid(self, view: ClusterView, job: JobView, *, restarts: bool = False) -> dict[int, float]:
        """Return −log ρ by numbers of GPUs. Without GPUs now, a job would get its requested GPUs one lease later.

        A job that cannot run on the requested GPUs now would get its best number of GPUs a lease later. If the job
        restarts, a number of GPUs that differs from the present one costs the restart delay.
        """
        times = self._times.on(job, counts_of(job, view.num_gpus))
        if not times or not view.num_gpus:  # while nodes are down, it may fit on no number of GPUs
            return {0: 0.0}
        age = view.time - job.submit_time
        asked_for = self._asked_for(job)
        share = view.num_gpus / len(view.jobs)
        alone_on = max((gpus for gpus in times if gpus <= share), default=min(times))
        alone = times[alone_on] / asked_for * self._work[job.job_id] * max(alone_on / share, 1.0)
        later = age + self.lease + (asked_for if job.num_replicas in times else min(times.values()))
        if restarts:
            times = _with_restart(times, num_replicas(job.placement), view.delay_of(job))
        return {0: -log(later / alone)} | {gpus: -log((age + time) / alone) for gpus, time in times.items()}


def _with_restart(times: Mapping[int, float], present_gpus: int, delay: float) -> dict[int, float]:
    """Return remaining times by numbers of GPUs [s], with the restart delay [s] for all but the present number."""
    with_delay = {gpus: time + delay for gpus, time in times.items()}
    if present_gpus in times:
        with_delay[present_gpus] = times[present_gpus]
    return with_delay


def auctioned(bids: Mapping[JobId, Mapping[int, float]], offer: int, fairness: float) -> dict[JobId, int]:
    """Return the numbers of offered GPUs by job: they maximise the product of 1/ρ over the jobs that may bid.

    Then each job without GPUs takes its best number of the GPUs that are left over, the worst ρ first. This is better
    than to wait: its lease ends when it could get the GPUs that it requests.
    """
    ranking = sorted(bids, key=lambda job_id: _worth(bids[job_id], 0))
    may_bid = ranking[: num_bidders(bids, fairness)]
    won = dict(zip(may_bid, best_counts([bids[job_id] for job_id in may_bid], offer), strict=True))
    gpus_left = offer - sum(won.values())
    for job_id in ranking:
        if not won.get(job_id):
            bid = bids[job_id]
            affordable = [gpus for gpus in bid if 0 < gpus <= gpus_left]
            won[job_id] = max(affordable, key=partial(_worth, bid), default=0)
            gpus_left -= won[job_id]
    return won


def num_bidders(bids: Mapping[JobId, Mapping[int, float]], fairness: float) -> int:
    """Return how many of the jobs without a lease may bid."""
    return max(ceil((1 - fairness) * len(bids) * (1 - ROUNDING)), 1)


def _worth(bid: Mapping[int, float], gpus: int) -> float:
    """Return −log ρ on a number of GPUs, without differences by rounding."""
    return sort_key(bid[gpus], now=1.0)


def taken_up(bids: Mapping[JobId, Mapping[int, float]], held: Mapping[JobId, int], left: int) -> dict[JobId, int]:
    """Return the GPUs of the jobs with a lease that take some leftover GPUs, the worst ρ first."""
    # An agent that changes the batch size can rule out the number of GPUs that its job holds.
    bidders = [job_id for job_id, bid in bids.items() if held[job_id] in bid]
    taken = dict[str, int]()
    for job_id in sorted(bidders, key=lambda job_id: _worth(bids[job_id], held[job_id])):
        bid = bids[job_id]
        now = held[job_id]
        gpus = max((gpus for gpus in bid if now <= gpus <= now + left), key=partial(_worth, bid))
        if gpus > now:
            taken[job_id] = gpus
            left -= gpus - now
    return taken


_UNITS = {
    **dict.fromkeys(("gpus", "offer", "fewest_gpus", "auction_left"), "GPUs"),
    **dict.fromkeys(("lease_end", "first_end"), "s"),
    **dict.fromkeys(("bidders", "without_lease"), "jobs"),
}
_AUCTION = (
    "[without_lease=1?The policy offers {offer:GPU} to this job, the only one[pool_gpus? of this type] without a "
    "lease, and it bids."
    "|The policy offers {offer:GPU} to the {without_lease:job}[pool_gpus? of this type] without a lease, those "
    "furthest behind their fair time first. This job is number {position}. [bidders=1?The first job bids"
    "|The first {bidders} jobs bid], and the others get what is left.]"
)
"""Sentences on the auction of a round."""

LEASED = ReasonKind(
    "leased",
    f"[rho?{_AUCTION} |]The policy leases {{gpus:GPU}} to the job until {{lease_end:clock}}[. With [gpus=1?this "
    "GPU|these GPUs], the job would end at {rho:.2f} times its fair time, and if it got its GPUs only one lease later, "
    "at {rho_later:.2f} times].",
    _UNITS,
    "A job holds GPUs on a lease.",
)
OUTBID = ReasonKind(
    "outbid",
    f"[offer=0?All GPUs are on leases, the first of which ends at {{first_end:clock}}.|{_AUCTION}"
    "[ Jobs that get GPUs: {others}. After them, | Of these, ][auction_left=0?no GPU is|auction_left=1?1 GPU is"
    "|{auction_left:GPU} are] left[, and this job needs at least {fewest_gpus}].] If this job gets GPUs one lease "
    "later, it ends at {rho_later:.2f} times its fair time.",
    _UNITS,
    meaning="Other jobs hold the GPUs on leases, or won them.",
)


class Auction(NamedTuple):
    """An auction of the GPUs without a lease."""

    bids: Mapping[JobId, Mapping[int, float]]
    won: Mapping[JobId, int]
    offer: int  # GPUs
    bidders: int  # jobs that may bid
    first_end: float  # end of the first lease, ∞ without leases [s]


def _reasons(
    auction: Auction, counts: Mapping[JobId, int], until: Mapping[JobId, float], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs."""
    ranking = sorted(auction.bids, key=lambda job_id: _worth(auction.bids[job_id], 0))
    positions = {job_id: position for position, job_id in enumerate(ranking, start=1)}
    winners = [job_id for job_id in ranking if auction.won.get(job_id)][:MOST_WINNERS]
    general: dict[str, float] = {
        "offer": auction.offer,
        "without_lease": len(ranking),
        "bidders": auction.bidders,
        "auction_left": auction.offer - sum(auction.won.values()),
    }
    if auction.first_end < inf:
        general["first_end"] = auction.first_end
    reasons: dict[JobId, Reason] = {}
    for job_id in asked:
        bid = auction.bids.get(job_id)
        numbers = {"gpus": counts[job_id], "lease_end": until[job_id]} if job_id in counts else {}
        if bid is not None:
            numbers |= {**general, "position": positions[job_id], "rho_later": exp(-bid[0])}
            possible = [gpus for gpus in bid if gpus]
            if possible:
                numbers["fewest_gpus"] = min(possible)
        if job_id not in counts:
            reasons[job_id] = Reason(OUTBID, numbers, tuple(winners))
            continue
        if bid is not None:
            numbers["rho"] = exp(-bid[counts[job_id]])
        reasons[job_id] = Reason(LEASED, numbers)
    return reasons
