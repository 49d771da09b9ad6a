"""Slurm's multifactor priority with EASY backfill, and the fair-share factors of users.

The policy decides the order of waiting jobs. `polluxsim.policies.reserving.backfill` decides which of them start.

Invariants: each factor is in [0, 1], so a weight is the most that its factor can add to a priority.

Trap: priorities change with time, so a decision is valid for one round while jobs wait. On several GPU types, the usage
of users counts over all types, but each type has its own table and its own releases.

Source: Slurm's documentation of its multifactor priority plugin and of its fair tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.common.values import NonNegativeFloat, PositiveFloat, Range
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Traits
from polluxsim.policies.reserving.backfill import backfilled
from polluxsim.policies.reserving.limits import Limits
from polluxsim.policies.tools.ledger import NO_USER, Ledger, user_of
from polluxsim.policies.tools.pools import ByType
from polluxsim.policies.tools.starting import started_by
from polluxsim.policies.tools.waiting_orders import FallingOrder
from polluxsim.policies.tools.waiting_table import Floats, WaitingTable
from polluxsim.workloads.job import Job


class Factors(NamedTuple):
    """Values by which the factors of all jobs are computed."""

    fair_share: Floats  # fair-share factor of each user, by index
    highest_priority: float  # largest priority of a present job
    num_gpus: int  # GPUs of the cluster


@takes_settings("policy")
@dataclass
class Multifactor(Policy):
    """Start whole jobs by a weighted sum of factors in [0, 1], with EASY backfill and without preemption.

    The factors are the waiting time (over `max_age`), the requested GPUs (over the GPUs of the cluster), the priority
    of the job (over the largest priority of a present job), and the fair-share factor of its user.

    Parameters
    ----------
    age, size, priority, fair_share
        Weights of the factors, at least 0.
    max_age
        Waiting time at which the age factor reaches 1 [s].
    half_life
        Time after which used GPU time counts half [s].
    shares
        Shares of users; other users have share 1.
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.
    fair_tree
        Whether the fair-share factor follows Slurm's fair tree, which is the default, or the classic formula. In the
        fair tree, users are ranked by shares over usage, and the factor is the rank over the number of users. Users are
        the only level of the tree: jobs have no accounts. The classic factor is 2^(−U/S). U is the user's part of the
        used GPU time, and S is the user's part of the shares, among users with present jobs.

    Source: Slurm's documentation of its multifactor priority plugin and of its fair tree.
    """

    traits: ClassVar[Traits] = Traits(
        never_preempts=True,
        keeps_shapes=True,
        obeys_limits=True,
        remembers="the GPU time of each user, which counts half after `half_life`",
    )

    age: NonNegativeFloat = 1000.0
    size: NonNegativeFloat = 0.0
    priority: NonNegativeFloat = 1000.0
    fair_share: NonNegativeFloat = 10_000.0
    max_age: Annotated[Seconds, Range(above=0)] = 7 * 86_400.0
    half_life: Annotated[Seconds, Range(above=0)] = 7 * 86_400.0
    shares: Mapping[Name, PositiveFloat] = field(default_factory=dict)
    overestimate: PositiveFloat = 1.0
    fair_tree: bool = True
    # By GPU type: reservations are on the GPUs of one type.
    _limits: dict[str, Limits] = field(default_factory=dict, init=False, repr=False)
    _tables: dict[str, WaitingTable] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pools: ByType = field(default_factory=ByType, init=False, repr=False)
    _usage: Ledger[str] = field(init=False, repr=False)  # GPU time of each user, decayed [GPU s]
    # All users that have submitted jobs, with their indices.
    _users: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._usage = Ledger(self.half_life)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return which factors are equal for all jobs; each share must be of a user who has jobs."""
        check_owners("policy.shares", self.shares, jobs, "user", NO_USER)
        sentences: list[str] = []
        if self.fair_share:
            sentences += unless_jobs_differ(jobs, "user", "policy.fair_share has no effect")
        if self.priority not in (0.0, Multifactor.priority):  # no sentence about the default: few logs have priorities
            sentences += unless_jobs_differ(jobs, "priority", "policy.priority has no effect")
        return sentences + overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs by falling priority, with EASY backfill. Running jobs keep their GPUs."""
        self._usage.settle(view)
        if len(view.types) == 1:
            return self._decide(view)
        parts = self._pools.parts(view)
        for name, part in parts.items():
            self._table(name).update(part)
        fair_share = self._fair_share(view, dict.fromkeys(map(user_of, view.jobs)))
        highest_priority = max(self._table(name).highest_priority for name in parts)
        factors = Factors(fair_share, highest_priority, view.nominal_gpus)
        decisions = {name: self._backfilled(part, name, factors) for name, part in parts.items()}
        decision = self._pools.merge(view, decisions)
        self._usage.follow(view, decision, user_of)
        return self._until_it_changes(view, decision)

    def _decide(self, view: ClusterView) -> Decision:
        """Return the decision on a cluster of one GPU type."""
        name = next(iter(view.types))
        table = self._table(name)
        table.update(view)
        # The fair tree ranks all users, so it does not need those with jobs.
        present_users: Iterable[str] = () if self.fair_tree else table.present_users()
        fair_share = self._fair_share(view, present_users)
        decision = self._backfilled(view, name, Factors(fair_share, table.highest_priority, view.nominal_gpus))
        self._usage.follow(view, decision, user_of, started_by(table, decision))
        return self._until_it_changes(view, decision)

    def _until_it_changes(self, view: ClusterView, decision: Decision) -> Decision:
        """Return a decision with the time until which it is valid: the order of waiting jobs changes with time."""
        all_start = len(decision.allocation) == len(view.waiting)
        return replace(decision, valid_until=inf if all_start else -inf)

    def _table(self, name: str) -> WaitingTable:
        """Return the table of the jobs of a GPU type."""
        if name not in self._tables:
            self._tables[name] = WaitingTable(self._users)
        return self._tables[name]

    def _fair_share(self, view: ClusterView, present: Iterable[str]) -> Floats:
        """Return the fair-share factor of each user, shape (users,); `present` users have jobs now.

        In the classic formula, users without jobs have no factor, and the array has 0 for them.
        """
        counted_users = self._users if self.fair_tree else present
        usage = {user: self._usage.balance(user, view.time) for user in counted_users}
        if self.fair_tree:
            by_user = fair_tree(usage, self.shares)
        else:
            by_user = classic_fair_share(usage, self.shares)
        # An array by index, because the tables of jobs have the index of each user.
        factors = np.zeros(len(self._users))
        for user, factor in by_user.items():
            factors[self._users[user]] = factor
        return factors

    def _backfilled(self, view: ClusterView, name: str, factors: Factors) -> Decision:
        """Start jobs in order of priority on the GPUs of a type. The usage of a user counts over all types."""
        table = self._table(name)
        limits = self._limits.setdefault(name, Limits(self.overestimate))
        order = FallingOrder(table, lambda: self._priorities(table, view.time, factors))

        def describe(job: JobView) -> dict[str, float]:
            return {"multifactor": order.value(job.job_id), **self._parts(table, job, view.time, factors)}

        return backfilled(view, table, order, limits, describe)

    def _parts(self, table: WaitingTable, job: JobView, now: float, factors: Factors) -> dict[str, float]:
        """Return the weighted factors of a job, whose sum is its priority, as numbers of a reason."""
        row = table.row_of(job.job_id)
        priority = 0.0
        if factors.highest_priority > 0:
            priority = max(job.priority, 0.0) / factors.highest_priority
        return {
            "age_part": self.age * min((now - job.submit_time) / self.max_age, 1.0),
            "size_part": self.size * job.num_replicas / max(factors.num_gpus, 1),
            "priority_part": self.priority * priority,
            "fair_share_part": self.fair_share * float(factors.fair_share[table.user[row]]),
        }

    def _priorities(self, table: WaitingTable, now: float, factors: Factors) -> Floats:
        """Return the weighted sum of the factors of each row of a table, shape (rows,)."""
        age = np.minimum((now - table.submit_time) / self.max_age, 1.0)
        size = table.gpus / max(factors.num_gpus, 1)
        priority = np.zeros(len(age))
        if factors.highest_priority > 0:
            priority = np.maximum(table.priority, 0.0) / factors.highest_priority
        fair_share = factors.fair_share[table.user]
        return self.age * age + self.size * size + self.priority * priority + self.fair_share * fair_share


def fair_tree(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the fair-share factor of each user: the rank by shares over usage [1/(GPU s)], over the number of users.

    Users with equal values have equal ranks. A missing share is 1.

    >>> fair_tree({"ada": 30.0, "bob": 0.0, "eve": 20.0, "joe": 20.0}, {"ada": 2.0})
    {'ada': 0.75, 'bob': 1.0, 'eve': 0.5, 'joe': 0.5}
    """
    levels: dict[str, float] = {}
    for user, used in usage.items():
        levels[user] = sort_key(shares.get(user, 1.0) / used) if used > 0 else inf
    rising = sorted(levels.values())
    # The rank of a user is the number of users whose levels are at most as high.
    return {user: bisect_right(rising, levels[user]) / len(levels) for user in usage}


def classic_fair_share(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return 2^(−U/S) of each user; U and S are the user's parts of the usage and of the shares.

    >>> classic_fair_share({"ada": 10.0, "bob": 0.0}, {})
    {'ada': 0.25, 'bob': 1.0}
    """
    all_shares = sum(shares.get(user, 1.0) for user in usage)
    all_used = sum(usage.values()) or 1.0  # without any usage, each U is 0
    factors: dict[str, float] = {}
    for user, used in usage.items():
        ratio = (used / all_used) * all_shares / shares.get(user, 1.0)  # U / S
        factors[user] = 2.0 ** (-ratio)
    return factors
