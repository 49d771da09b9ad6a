"""Themis: leases of GPUs, by auctions among the jobs with the worst finish-time fairness.

The policy decides how many GPUs each job gets for the time of a lease. Jobs without a lease bid for the GPUs that no
lease holds. A bid states −log ρ by numbers of GPUs, so that the product of 1/ρ is a sum, and 0 GPUs are a bid, too.

Invariants: a job keeps its GPUs until its lease ends, and gets more at most. The leases and the offered GPUs together
are the GPUs that are up.

Trap: ρ needs the time that a job would take alone. The policy takes true times, and jobs do not lie about them.

Source: Mahajan et al., "Themis" (NSDI '20), §4.
"""

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
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.elastic.largest_sum import best_counts
from polluxsim.policies.sized.reason_kinds import LEASED, OUTBID
from polluxsim.policies.tools.gangs import newcomers
from polluxsim.policies.tools.gpu_counts import ROUNDING, TrueTimes, counts_of, decision_by

MOST_WINNERS = 3  # largest number of other jobs that a reason names


class Auction(NamedTuple):
    """An auction of the GPUs without a lease."""

    bids: Mapping[JobId, Mapping[int, float]]  # −log ρ by numbers of GPUs, of each job without a lease
    won: Mapping[JobId, int]  # GPUs that each of these jobs gets
    offer: int  # GPUs without a lease
    bidders: int  # jobs that may bid
    first_end: float  # end of the first lease, ∞ without leases [s]


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
        leases = self._leases(view)
        bids = {job.job_id: self._bid(view, job) for job in view.jobs if job.job_id not in leases}
        offer = view.num_gpus - sum(leases.values())
        won = auctioned(bids, offer, self.fairness)
        grown: dict[JobId, int] = {}
        gpus_left = offer - sum(won.values())
        if gpus_left:
            with_lease = [job for job in view.jobs if job.job_id in leases]
            bids_of_leased = {job.job_id: self._bid(view, job, restarts=True) for job in with_lease}
            grown = taken_up(bids_of_leased, leases, gpus_left)
        counts = {job_id: gpus for job_id, gpus in (leases | grown | won).items() if gpus}
        ends_of_leases = {job_id: self._until[job_id] for job_id in leases}
        auction = Auction(
            bids,
            won,
            offer,
            bidders=num_bidders(bids, self.fairness),
            first_end=min(ends_of_leases.values(), default=inf),
        )
        # A lease that goes on keeps its end, also for a job that takes further GPUs.
        until = dict.fromkeys(counts, view.time + self.lease) | ends_of_leases
        self._until = until
        decision = decision_by(view, counts, lambda asked: _reasons(auction, counts, until, asked))
        return replace(decision, valid_until=min(until.values(), default=inf))

    def _take_note(self, view: ClusterView) -> None:
        """Forget jobs that ended, and record the work of new and altered jobs."""
        self._times.forget(view.changes)
        for job_id in view.changes.ended:
            self._work.pop(job_id, None)
            self._until.pop(job_id, None)
        altered = [job for job in view.jobs if job.job_id in view.changes.altered]
        for job in [*newcomers(view, self._work), *altered]:
            self._work[job.job_id] = self._time_as_requested(job)

    def _leases(self, view: ClusterView) -> dict[JobId, int]:
        """Return the GPUs of each running job whose lease goes on."""
        leases: dict[JobId, int] = {}
        for job in view.running:
            # A job that another policy started, before a fork, has no lease.
            if not view.has_come(self._until.get(job.job_id, 0)):
                leases[job.job_id] = num_replicas(job.placement)
        return leases

    def _time_as_requested(self, job: JobView) -> float:
        """Return the remaining time of a job on the GPUs that it requests [s]."""
        return self._times.on(job, [job.num_replicas])[job.num_replicas]

    def _bid(self, view: ClusterView, job: JobView, *, restarts: bool = False) -> dict[int, float]:
        """Return −log ρ by numbers of GPUs, 0 included. Without GPUs now, a job gets its requested GPUs a lease later.

        A job that cannot run on the requested GPUs now would get its best number of GPUs a lease later. A job that fits
        on no number of GPUs bids for 0 only. If the job restarts, a number of GPUs that differs from the present one
        costs the restart delay.
        """
        times = self._times.on(job, counts_of(job, view.num_gpus))
        if not times or not view.num_gpus:  # while nodes are down, it may fit on no number of GPUs
            return {0: 0.0}
        age = view.time - job.submit_time
        time_as_requested = self._time_as_requested(job)
        equal_share = view.num_gpus / len(view.jobs)  # GPUs, often not a whole number
        gpus_alone = max((gpus for gpus in times if gpus <= equal_share), default=min(times))
        # The time of the whole job: `times` are those of its rest.
        time_alone = times[gpus_alone] / time_as_requested * self._work[job.job_id]
        # A job that cannot run on so few GPUs would take turns with others on more GPUs.
        time_alone *= max(gpus_alone / equal_share, 1.0)
        can_run_as_requested = job.num_replicas in times
        time_later = time_as_requested if can_run_as_requested else min(times.values())
        bid = {0: -log((age + self.lease + time_later) / time_alone)}
        if restarts:
            times = _with_restart(times, num_replicas(job.placement), view.delay_of(job))
        for gpus, time in times.items():
            bid[gpus] = -log((age + time) / time_alone)
        return bid


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
    ranking = sorted(bids, key=lambda job_id: _value(bids[job_id], 0))
    may_bid = ranking[: num_bidders(bids, fairness)]
    won = dict(zip(may_bid, best_counts([bids[job_id] for job_id in may_bid], offer), strict=True))
    gpus_left = offer - sum(won.values())
    for job_id in ranking:
        if won.get(job_id):
            continue
        bid = bids[job_id]
        affordable = [gpus for gpus in bid if 0 < gpus <= gpus_left]
        won[job_id] = max(affordable, key=partial(_value, bid), default=0)
        gpus_left -= won[job_id]
    return won


def num_bidders(bids: Mapping[JobId, Mapping[int, float]], fairness: float) -> int:
    """Return how many of the jobs without a lease may bid."""
    bidding_part = (1 - fairness) * len(bids)
    # Rounding must not turn a whole number into the next one.
    return max(ceil(bidding_part * (1 - ROUNDING)), 1)


def _value(bid: Mapping[int, float], gpus: int) -> float:
    """Return −log ρ on a number of GPUs, without differences by rounding."""
    return sort_key(bid[gpus], now=1.0)


def taken_up(
    bids: Mapping[JobId, Mapping[int, float]], leases: Mapping[JobId, int], gpus_left: int
) -> dict[JobId, int]:
    """Return the GPUs of the jobs with a lease that take some of the GPUs that are left over, the worst ρ first.

    `leases` contains the present GPUs of each job in `bids`.
    """
    # An agent that changes the batch size can rule out the number of GPUs that its job holds.
    bidders = [job_id for job_id, bid in bids.items() if leases[job_id] in bid]
    grown: dict[JobId, int] = {}
    for job_id in sorted(bidders, key=lambda job_id: _value(bids[job_id], leases[job_id])):
        bid = bids[job_id]
        present_gpus = leases[job_id]
        affordable = [gpus for gpus in bid if present_gpus <= gpus <= present_gpus + gpus_left]
        gpus = max(affordable, key=partial(_value, bid))
        if gpus > present_gpus:
            grown[job_id] = gpus
            gpus_left -= gpus - present_gpus
    return grown


def _reasons(
    auction: Auction, counts: Mapping[JobId, int], until: Mapping[JobId, float], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of the jobs in `asked`.

    `counts` contains the GPUs of each job that gets some, and `until` the ends of their leases [s].
    """
    ranking = sorted(auction.bids, key=lambda job_id: _value(auction.bids[job_id], 0))
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
        numbers: dict[str, float] = {}
        if job_id in counts:
            numbers |= {"gpus": counts[job_id], "lease_end": until[job_id]}
        if bid is not None:
            numbers |= {**general, "position": positions[job_id], "rho_later": exp(-bid[0])}
            if ranking[0] != job_id:
                numbers[f"worst {ranking[0]}"] = exp(-auction.bids[ranking[0]][0])
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
