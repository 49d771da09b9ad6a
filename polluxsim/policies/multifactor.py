"""Slurm's multifactor priority with decayed fair share, and its backfill."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, log
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.backfill import Limits, backfilled
from polluxsim.policies.effects import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.per_type import Pools, together

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.gangs import Describe
    from polluxsim.policies.view import ClusterView, Decision, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job

NOBODY = ""
"""Whose jobs are that name no user."""


@dataclass
class Multifactor:
    """Start whole jobs by a weighted sum of factors in [0, 1], with EASY backfill, without preemption.

    Factors are age (over `max_age`), size (GPUs over those there are), the job's priority (over the largest in sight)
    and fair share 2^(−U/S): U and S are the user's parts of the GPU time of late and of the shares, among users with
    jobs here.

    Parameters
    ----------
    age, size, priority, fair_share
        Weights of the factors.
    max_age
        Waiting time from which on the age counts in full [s].
    half_life
        Time after which GPU time used counts half [s].
    shares
        Shares by user; one for users who are not named.
    overestimate
        Limit of a job whose user promised none, as a multiple of the time that it truly takes.

    Source: Slurm's documentation of its multifactor priority plugin, with users in place of accounts.
    """

    age: float = 1000.0
    size: float = 0.0
    priority: float = 1000.0
    fair_share: float = 10_000.0
    max_age: float = 7 * 86_400.0
    half_life: float = 7 * 86_400.0
    shares: Mapping[str, float] = field(default_factory=dict)
    overestimate: float = 1.0
    # By GPU type, on whose GPUs reservations are.
    _limits: dict[str, Limits] = field(default_factory=dict, init=False, repr=False)
    _pools: Pools = field(default_factory=Pools, init=False, repr=False)
    _usage: Usage = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(max_age=self.max_age, half_life=self.half_life, overestimate=self.overestimate)
        check_above_zero(**{f"shares.{name}": share for name, share in self.shares.items()})
        if min(self.age, self.size, self.priority, self.fair_share) < 0:
            raise InvalidConfigError("policy has a weight below 0, allowed are numbers ≥ 0")
        self._usage = Usage(self.half_life)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return which factors are the same for all jobs; each share must be of a user who has jobs."""
        check_owners("policy.shares", self.shares, jobs, "user", NOBODY)
        sentences = unless_jobs_differ(jobs, "user", "policy.fair_share has no effect") if self.fair_share else []
        if self.priority not in (0.0, Multifactor.priority):  # not of the default, as few logs have priorities
            sentences += unless_jobs_differ(jobs, "priority", "policy.priority has no effect")
        return sentences + overestimate_without_effect(self.overestimate, jobs)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start the jobs whose turn it is, by falling priority."""
        self._usage.take_note(view)
        fair_share = fair_shares(view, self._usage, self.shares)
        highest = max((job.priority for job in view.jobs), default=0.0)

        def worth(job: JobView) -> float:
            age = min((view.time - job.submit_time) / self.max_age, 1.0)
            first = max(job.priority, 0.0) / highest if highest > 0 else 0.0
            size = job.num_replicas / view.num_gpus
            fair = fair_share[job.user or NOBODY]
            return self.age * age + self.size * size + self.priority * first + self.fair_share * fair

        order = sorted(view.waiting, key=lambda job: -worth(job))
        decision = self._backfilled(view, order, lambda job: {"multifactor": worth(job)})
        self._usage.started(view.time, (job for job in order if job.job_id in decision.allocation))
        # Among those that wait, the order changes with time.
        return replace(decision, valid_until=inf if len(decision.allocation) == len(order) else -inf)

    def _backfilled(self, view: ClusterView, order: Sequence[JobView], describe: Describe) -> Decision:
        """Start jobs of an order on the GPUs of each type by itself, whose usage counts together."""
        limits = {name: self._limits.setdefault(name, Limits(self.overestimate)) for name in view.types}
        if len(limits) == 1:
            return backfilled(view, order, next(iter(limits.values())), describe)
        parts = self._pools.views(view)
        made = {
            name: backfilled(part, self._pools.seen(order, name), limits[name], describe)
            for name, part in parts.items()
        }
        return together(view, self._pools, made)


@dataclass
class Usage:
    """GPU time by user, which counts half after every half-life [s]."""

    half_life: float
    # What ended jobs of a user come to, and when that was so.
    _ended: dict[str, tuple[float, float]] = field(default_factory=dict)
    # The running jobs of every user: when each began.
    _running: dict[str, dict[JobId, tuple[float, JobView]]] = field(default_factory=dict)
    _user_of: dict[JobId, str] = field(default_factory=dict)

    def started(self, now: float, jobs: Iterable[JobView]) -> None:
        """Take note of jobs that get their GPUs now."""
        for job in jobs:
            user = self._user_of[job.job_id] = job.user or NOBODY
            self._running.setdefault(user, {})[job.job_id] = now, job

    def take_note(self, view: ClusterView) -> None:
        """Take note of jobs that have ended."""
        for job_id in view.changes.ended:
            if (user := self._user_of.pop(job_id, None)) is None:
                continue
            since, job = self._running[user].pop(job_id)
            end = since + job.attained_service / job.num_replicas
            value, time = self._ended.get(user, (0.0, end))
            self._ended[user] = value * self._kept(end - time) + self._used(job.num_replicas, end - since), end

    def of(self, user: str, now: float) -> float:
        """Return what the jobs of a user have used, decayed to now [GPU s]."""
        value, time = self._ended.get(user, (0.0, now))
        running = self._running.get(user, {}).values()
        return value * self._kept(now - time) + sum(self._used(job.num_replicas, now - since) for since, job in running)

    def _kept(self, age: float) -> float:
        return float(2.0 ** (-age / self.half_life))

    def _used(self, num_replicas: int, length: float) -> float:
        """Return the integral of the weight of GPUs held until now, for a length of time."""
        return num_replicas * self.half_life / log(2.0) * (1.0 - self._kept(length))


def fair_shares(view: ClusterView, usage: Usage, shares: Mapping[str, float]) -> dict[str, float]:
    """Return 2^(−U/S) of every user with jobs here: U is its part of what they used, S that of their shares."""
    users = dict.fromkeys(job.user or NOBODY for job in view.jobs)
    used = {user: usage.of(user, view.time) for user in users}
    all_shares = sum(shares.get(user, 1.0) for user in used)
    all_used = sum(used.values()) or 1.0
    return {user: 2.0 ** (-(time / all_used) * all_shares / shares.get(user, 1.0)) for user, time in used.items()}
