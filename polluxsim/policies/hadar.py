"""Hadar: GPUs of every type have a price that rises as they are taken, and jobs take what is worth it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.by_type import decided, held
from polluxsim.policies.shares.demand import Demand
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.policies.shares.demand import Array
    from polluxsim.policies.view import ClusterView, Decision
    from polluxsim.types import JobId


class Bid(NamedTuple):
    """What a job met when its turn came.

    Attributes
    ----------
    gpu_type
        Number of the type it takes, None for none.
    worth
        Its utility over the price of its GPUs, on the type with room where that is most; 0 where no type has room.
    needed, left
        Its GPUs, and those left of the type with most left.
    """

    gpu_type: int | None
    worth: float
    needed: float
    left: float


class Prices:
    """What a GPU of each type costs: U_min^(1 − x) U_max^x / η where the part x of them is taken, U_max of the last.

    Parameters
    ----------
    utilities
        Of each job on each type for a GPU, 0 where it cannot run, of shape (jobs, types) [1/s].
    gpus
        GPUs of each type.
    eta
        η > 1: the first GPU costs so many times less than it is worth to the job that it is worth least to.
    """

    def __init__(self, utilities: Array, gpus: Array, eta: float) -> None:
        self.highest = utilities.max(axis=0, initial=0.0)
        least = np.where(utilities > 0, utilities, inf).min(axis=0, initial=inf)
        self.lowest = np.minimum(least, np.where(self.highest > 0, self.highest, 1.0)) / eta
        self._rise = np.log(np.where(self.highest > 0, self.highest, self.lowest) / self.lowest)
        self._gpus = gpus

    def at(self, used: Array) -> Array:
        """Return the price of a GPU of each type where so many are taken [1/s]."""
        prices: Array = self.lowest * np.exp(self._rise * used / np.maximum(self._gpus, 1.0))
        return prices


def bids(utilities: Array, widths: Array, gpus: Array, now: Sequence[int | None], eta: float) -> dict[int, Bid]:
    """Return what each job gets, in order of utility for a GPU, the largest first.

    Parameters
    ----------
    utilities
        Of each job on each type, 0 where it cannot run, of shape (jobs, types) [1/s].
    widths, gpus
        GPUs of each job and of each type.
    now
        The type each job has GPUs of, which it keeps for as long as its payoff there is positive.
    eta
        As of `Prices`.
    """
    each = utilities / widths[:, None]
    prices, used, made = Prices(each, gpus, eta), np.zeros(len(gpus)), dict[int, Bid]()
    for job in np.argsort(-each.max(axis=1), kind="stable").tolist():
        worth = np.where(widths[job] <= gpus - used, each[job] / prices.at(used), 0.0)
        payoffs = np.where(worth > 1, utilities[job] * (1 - 1 / np.maximum(worth, 1.0)), -inf)
        here = now[job]
        best = here if here is not None and payoffs[here] > 0 else int(payoffs.argmax())
        taken = best if payoffs[best] > 0 else None
        made[job] = Bid(taken, float(worth.max()), float(widths[job]), float((gpus - used).max()))
        if taken is not None:
            used[taken] += widths[job]
    return made


@dataclass(frozen=True)
class Hadar:
    """Give each job its GPUs on the type with the largest payoff, utility less price; none where no payoff is positive.

    A job's utility is 1 over its time from submission to completion, as it would be on a type. Utilities plus prices
    of all GPUs bound those of any allocation (weak duality), and each taker of one GPU adds to that bound no more than
    max(1, c ((U_max / U_min)^(1/c) − 1)) times its utility, for c GPUs, ln(U_max / U_min) for many.

    Parameters
    ----------
    eta
        η > 1: the first GPU costs so many times less than it is worth to the job that it is worth least to.

    Source: Sultana et al., "Hadar" (IPDPS '24), one type at a time, and without its search over who is passed over.
    """

    eta: float = 4.0

    def __post_init__(self) -> None:
        if not 1 < self.eta < inf:
            raise InvalidConfigError(f"policy.eta is {self.eta:g}, allowed is a finite number > 1")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let jobs take GPUs at prices that rise."""
        demand = Demand.of(view)
        with np.errstate(divide="ignore"):
            utilities = 1 / (demand.ages[:, None] + demand.left[:, None] / demand.speeds)
        found = bids(utilities, demand.widths, demand.gpus, held(view, demand), self.eta)
        made = {demand.jobs[job]: bid for job, bid in found.items()}
        return decided(view, demand, made, lambda job: _reason(job, made))


def _reason(job: JobId, made: dict[JobId, Bid]) -> Reason:
    """Say what a job met. Kinds: `worth-its-price`, `not-worth-its-price`, and `gang-does-not-fit`."""
    bid = made[job]
    if not bid.worth:
        position = list(made).index(job) + 1
        return Reason("gang-does-not-fit", {"position": position, "gpus_needed": bid.needed, "gpus_left": bid.left})
    kind = "not-worth-its-price" if bid.gpu_type is None else "worth-its-price"
    return Reason(kind, {"gpus_needed": bid.needed, "worth": bid.worth})
