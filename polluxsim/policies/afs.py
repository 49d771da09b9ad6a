"""AFS: elastic sharing that weighs finishing the shorter job sooner against running the longer one efficiently."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import inf
from typing import TYPE_CHECKING

from polluxsim.policies.elastic import AtEvents, TrueTimes, counts_of, dealt
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.policies.view import ClusterView, Decision
    from polluxsim.types import JobId


class Bid:
    """A job that bids for its next GPU, by the time that it still needs on numbers of GPUs, rising [s]."""

    def __init__(self, job_id: JobId, times: Mapping[int, float]) -> None:
        self.job_id = job_id
        self.gpus = 0
        self._times = times
        self._ladder = list(times)

    @property
    def cost(self) -> float:
        """Return the GPUs that it takes to get further, ∞ at its most."""
        return self._ladder[0] - self.gpus if self._ladder else inf

    @property
    def time_left(self) -> float:
        """Return the time to completion on what it has, or on the least that it can run on [s]."""
        return self._times[self.gpus or self._ladder[0]]

    @property
    def speed(self) -> float:
        """Return the part of what is left that it does in a second, now [1/s]."""
        return 1.0 / self._times[self.gpus] if self.gpus else 0.0

    @property
    def next_speed(self) -> float:
        """Return that with the next GPU [1/s]."""
        return 1.0 / self._times[self._ladder[0]]

    def take(self) -> None:
        """Take the next GPU, or all that it must have at once."""
        self.gpus = self._ladder.pop(0)


def goes_first(one: Bid, other: Bid) -> bool:
    """Return whether a job should get the next GPU rather than another one.

    With a the one that ends sooner and b the other, speeds p now and p′ with the GPU: b gets it if
    (p′_b − p_b) / p′_b > (p′_a − p_a) / p_a. So the mean completion time of the two is least, if b runs at p′_b once a
    is gone: a ends after w_a/p_a or w_a/p′_a, and until then b runs at p′_b or p_b.

    Source: Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21), §4.
    """
    one_is_shorter = one.time_left <= other.time_left
    a, b = (one, other) if one_is_shorter else (other, one)
    b_wins = a.speed > 0 and (b.next_speed - b.speed) / b.next_speed > (a.next_speed - a.speed) / a.speed
    return b_wins != one_is_shorter


@pool_per_type
@dataclass
class Afs(AtEvents):
    """Deal GPUs one by one, each to the job that wins against all others, by true speeds and remaining work.

    GPUs change at arrivals and ends only; future arrivals are not thought of.

    Source: AFS-L in Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning" (NSDI '21).
    """

    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Deal the GPUs out."""
        self._times.forget(view.changes.ended)
        known = {job.job_id: self._times.on(view, job, counts_of(job, view.num_gpus)) for job in view.jobs}
        bids = {job_id: Bid(job_id, times) for job_id, times in known.items() if times}
        last = _deal(list(bids.values()), view.num_gpus)
        counts = {job_id: bid.gpus for job_id, bid in bids.items()}
        return dealt(view, counts, lambda asked: {name: _reason(bids[name], last) for name in asked if name in bids})


def _deal(bids: list[Bid], left: int) -> Bid | None:
    """Deal GPUs out as long as one makes a job faster; return the job that got the last."""
    last = None
    while contenders := [bid for bid in bids if bid.cost <= left]:
        best = reduce(lambda one, other: other if goes_first(other, one) else one, contenders)
        if best.next_speed > best.speed:
            left -= int(best.cost)
            best.take()
            last = best
        else:
            bids.remove(best)
    return last


def _reason(bid: Bid, last: Bid | None) -> Reason:
    """Say what a job got. Kind: `won-against`, where the other won the last GPU."""
    return Reason(
        "won-against",
        {"gpus": bid.gpus, "remaining_time": bid.time_left},
        () if last is None or last is bid else (last.job_id,),
    )
