"""Slurm's multifactor priority with fair share by users, and EASY backfill."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.backfill import Limits, backfilled
from polluxsim.policies.effects import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.ledger import NO_USER, Ledger, user_of
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import Pools, together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.gangs import Describe
    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster
    from polluxsim.workloads.job import Job


@dataclass
class Multifactor:
    """Start whole jobs by a weighted sum of factors in [0, 1], with EASY backfill and without preemption.

    The factors are the waiting time (over `max_age`), the requested GPUs (over the GPUs of the cluster), the priority
    of the job (over the largest priority of a present job), and the fair-share factor of its user.

    Parameters
    ----------
    age, size, priority, fair_share
        Weights of the factors.
    max_age
        Waiting time at which the age factor reaches 1 [s].
    half_life
        Time after which used GPU time counts half [s].
    shares
        Shares of users; other users have share 1.
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.
    fair_tree
        Whether the fair-share factor is that of Slurm's fair tree, its default, or the classic one. In the fair tree,
        users are ranked by shares over usage, and the factor is the rank over the number of users. Users are the only
        level of the tree: jobs have no accounts. The classic factor is 2^(−U/S). U is the user's part of the used
        GPU time, and S is the user's part of the shares, among users with present jobs.

    Source: Slurm's documentation of its multifactor priority plugin and of its fair tree.
    """

    age: float = 1000.0
    size: float = 0.0
    priority: float = 1000.0
    fair_share: float = 10_000.0
    max_age: float = 7 * 86_400.0
    half_life: float = 7 * 86_400.0
    shares: Mapping[str, float] = field(default_factory=dict)
    overestimate: float = 1.0
    fair_tree: bool = True
    # By GPU type: reservations are on the GPUs of one type.
    _limits: dict[str, Limits] = field(default_factory=dict, init=False, repr=False)
    _pools: Pools = field(default_factory=Pools, init=False, repr=False)
    _usage: Ledger[str] = field(init=False, repr=False)
    # All users that have submitted jobs, in order of their first job.
    _users: dict[str, None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(max_age=self.max_age, half_life=self.half_life, overestimate=self.overestimate)
        check_above_zero(**{f"shares.{name}": share for name, share in self.shares.items()})
        for name in ("age", "size", "priority", "fair_share"):
            if (weight := getattr(self, name)) < 0:
                raise InvalidConfigError(f"policy.{name} is {weight}: a weight must not be negative; use 0 or more")
        self._usage = Ledger(self.half_life)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return which factors are equal for all jobs; each share must be of a user who has jobs."""
        check_owners("policy.shares", self.shares, jobs, "user", NO_USER)
        sentences = unless_jobs_differ(jobs, "user", "policy.fair_share has no effect") if self.fair_share else []
        if self.priority not in (0.0, Multifactor.priority):  # no sentence about the default: few logs have priorities
            sentences += unless_jobs_differ(jobs, "priority", "policy.priority has no effect")
        return sentences + overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs in order of falling priority."""
        self._usage.settle(view)
        fair_share = self._fair_shares(view)
        num_gpus = max(view.nominal_gpus, 1)
        highest = max((job.priority for job in view.jobs), default=0.0)

        def worth(job: JobView) -> float:
            age = min((view.time - job.submit_time) / self.max_age, 1.0)
            first = max(job.priority, 0.0) / highest if highest > 0 else 0.0
            size = job.num_replicas / num_gpus
            fair = fair_share[user_of(job)]
            return self.age * age + self.size * size + self.priority * first + self.fair_share * fair

        order = sorted(view.waiting, key=lambda job: -worth(job))
        decision = self._backfilled(view, order, lambda job: {"multifactor": worth(job)})
        self._usage.follow(view, decision, user_of)
        # The order of waiting jobs changes with time.
        return replace(decision, valid_until=inf if len(decision.allocation) == len(order) else -inf)

    def _fair_shares(self, view: ClusterView) -> dict[str, float]:
        """Return the fair-share factor of each user."""
        present = dict.fromkeys(map(user_of, view.jobs))
        self._users |= present
        usage = {user: self._usage.balance(user, view.time) for user in (self._users if self.fair_tree else present)}
        return fair_tree(usage, self.shares) if self.fair_tree else classic_fair_share(usage, self.shares)

    def _backfilled(self, view: ClusterView, order: Sequence[JobView], describe: Describe) -> Decision:
        """Start jobs in an order on the GPUs of each type; the usage of a user counts over all types."""
        limits = {name: self._limits.setdefault(name, Limits(self.overestimate)) for name in view.types}
        if len(limits) == 1:
            return backfilled(view, order, next(iter(limits.values())), describe)
        parts = self._pools.views(view)
        made = {
            name: backfilled(part, self._pools.seen(order, name), limits[name], describe)
            for name, part in parts.items()
        }
        return together(view, self._pools, made)


def fair_tree(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the fair-share factor of each user: the rank by shares over usage, over the number of users.

    Users with equal values have the same rank. Shares that are not given are 1.

    >>> fair_tree({"ada": 30.0, "bob": 0.0, "eve": 20.0, "joe": 20.0}, {"ada": 2.0})
    {'bob': 1.0, 'ada': 0.75, 'eve': 0.5, 'joe': 0.5}
    """
    levels = {user: shares.get(user, 1.0) / used if used > 0 else inf for user, used in usage.items()}
    factors: dict[str, float] = {}
    rank, before = len(levels), None
    for place, (user, level) in enumerate(sorted(levels.items(), key=lambda each: -each[1])):
        if level != before:
            rank, before = len(levels) - place, level
        factors[user] = rank / len(levels)
    return factors


def classic_fair_share(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return 2^(−U/S) of each user; U and S are the user's parts of the usage and of the shares.

    >>> classic_fair_share({"ada": 10.0, "bob": 0.0}, {})
    {'ada': 0.25, 'bob': 1.0}
    """
    all_shares = sum(shares.get(user, 1.0) for user in usage)
    all_used = sum(usage.values()) or 1.0
    return {user: 2.0 ** (-(used / all_used) * all_shares / shares.get(user, 1.0)) for user, used in usage.items()}
