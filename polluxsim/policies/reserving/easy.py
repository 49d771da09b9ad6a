"""EASY backfill, which reserves GPUs for the first job that does not fit, and Slurm's multifactor priority."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, takewhile
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.errors import check_range
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.settings import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gangs import Describe, check_above_zero
from polluxsim.policies.tools.ledger import NO_USER, Ledger, user_of
from polluxsim.policies.tools.pools import Pools, pool_per_type, together
from polluxsim.workloads.job import Job


class Release(NamedTuple):
    """The round at which a running job reaches its time limit [s], and the GPUs that it then releases."""

    time: float
    job_id: JobId
    gpus: int


@dataclass
class Limits:
    """Time limits of jobs, and the planned releases of the GPUs of running jobs."""

    overestimate: float = 1.0  # limit of a job without a time limit, as a multiple of its true run time
    _limits: dict[JobId, float] = field(default_factory=dict)  # [s]
    _releases: list[Release] = field(default_factory=list)  # in order of time
    _by_job: dict[JobId, Release] = field(default_factory=dict)

    def limit(self, view: ClusterView, job: JobView) -> float:
        """Return the longest time for which a waiting job will hold its GPUs, according to its limit [s]."""
        if job.job_id not in self._limits:
            run_time = view.delay_of(job) + job.oracle.time_left(job.num_replicas)
            self._limits[job.job_id] = job.time_limit or self.overestimate * run_time
        return self._limits[job.job_id]

    def start(self, view: ClusterView, job: JobView) -> None:
        """Plan the release of the GPUs that a job has, or is about to get."""
        left = self.limit(view, job)
        if job.placement and job.time_limit:  # its limit also counts the time for which it has had GPUs
            left = max(left - job.attained_service / job.num_replicas, 0.0)
        release = Release(view.round_at(view.time + left), job.job_id, num_replicas(job.placement) or job.num_replicas)
        self._by_job[job.job_id] = release
        insort(self._releases, release)

    def take_note(self, view: ClusterView) -> None:
        """Remove the limits and planned releases of jobs that ended, were evicted or were altered.

        An evicted job gets a new limit, because it may have lost work. An altered job that runs gets a new release, and
        so does a running job that another policy started before a fork.
        """
        changes = view.changes
        for job_id in chain(changes.ended, changes.evicted, changes.altered):
            self._limits.pop(job_id, None)
            if (release := self._by_job.pop(job_id, None)) is not None:
                del self._releases[bisect_left(self._releases, release)]
        unplanned = view.running if changes.altered else changes.arrived
        for job in unplanned:
            if job.placement and job.job_id not in self._by_job:
                self.start(view, job)

    def all_ends_were_on_time(self, view: ClusterView) -> bool:
        """Return whether all ended jobs ended at their planned times, and no running job exceeds its limit.

        Call this method before `take_note` removes the ended jobs.
        """
        ended = view.changes.ended
        due = (self._by_job.get(job_id) for job_id in ended)
        if not all(release is not None and release.time <= view.time for release in due):
            return False
        overdue = takewhile(lambda release: release.time <= view.time, self._releases)
        return all(release.job_id in ended for release in overdue)

    def releases(self, view: ClusterView) -> Iterator[tuple[float, int]]:
        """Yield the planned releases as pairs (time [s], GPUs), in order of time.

        At each round, a job that exceeds its limit is expected to end before the next round. The last job of those that
        share a GPU since before a fork releases it.
        """
        next_round = view.time + view.round_interval
        held = view.sharing.held
        last = {gpu: release for release in self._releases for gpu in held.get(release.job_id, ())} if held else {}
        freed = Counter(last.values())
        for release in self._releases:
            gpus = freed[release] if release.job_id in held else release.gpus
            yield max(release.time, next_round), gpus

    def next_release(self, view: ClusterView) -> float:
        """Return the time of the next planned release, or ∞ [s]."""
        return next((time for time, _ in self.releases(view)), inf)


class BackfillStep(NamedTuple):
    """The decision about one waiting job."""

    job: JobView
    starts: bool  # whether it gets its GPUs
    free: int  # GPUs that were free before this decision
    head: JobView | None  # the job with the reservation, which is this job or an earlier one; None if all jobs fit
    reserved_time: float  # latest start of the head [s]; ∞ without a head


def backfill_steps(
    view: ClusterView,
    order: Iterable[JobView],
    limits: Limits,
    reserve: Callable[[int, int], tuple[float, int]],
) -> Iterator[BackfillStep]:
    """Yield the decisions about the waiting jobs, in order.

    Jobs start until one does not fit; this job, the head, gets a reservation. A later job starts if it ends before the
    reservation, or if it needs only GPUs that the head does not need. `reserve` takes (GPUs needed, GPUs free now) and
    returns the reserved time and the GPUs that the head leaves free at that time.
    """
    free, spare = sum(view.free), 0
    head, reserved_time = None, inf
    for job in order:
        gpus = job.num_replicas
        fits = gpus <= free
        if head is None and not fits:
            head, (reserved_time, spare) = job, reserve(gpus, free)
            yield BackfillStep(job, starts=False, free=free, head=head, reserved_time=reserved_time)
            continue
        ends_in_time = fits and (head is None or view.time + limits.limit(view, job) <= reserved_time)
        starts = ends_in_time or (fits and gpus <= spare)
        yield BackfillStep(job, starts, free, head, reserved_time)
        if starts:
            free -= gpus
            if not ends_in_time:
                spare -= gpus


def earliest_start(gpus_needed: int, free: int, releases: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Return when enough GPUs are free by the planned releases [s], and the number of surplus GPUs then.

    >>> earliest_start(4, 1, [(60.0, 2), (120.0, 2), (120.0, 3)])
    (120.0, 4)
    """
    time = -inf
    for release_time, gpus in releases:
        if free >= gpus_needed and release_time > time:
            break
        time, free = release_time, free + gpus
    return (time, free - gpus_needed) if free >= gpus_needed else (inf, free)


def backfilled(view: ClusterView, order: Iterable[JobView], limits: Limits, describe: Describe) -> Decision:
    """Start waiting jobs in an order, with EASY backfill, on the nodes with the most free GPUs.

    Running jobs keep their GPUs.
    """
    limits.take_note(view)

    @cache  # the explanation repeats the steps
    def reserve(gpus: int, free: int) -> tuple[float, int]:
        return earliest_start(gpus, free, limits.releases(view))

    free, placements = FreeGpus(view.free), {}
    for step in backfill_steps(view, order, limits, reserve):
        gpus_left = step.free
        if step.starts:
            placements[step.job.job_id] = free.pack(step.job.num_replicas) or ()
            limits.start(view, step.job)
            gpus_left -= step.job.num_replicas
        if gpus_left <= 0:
            break
    some_wait = len(placements) < len(view.waiting)
    return Decision(
        placements,
        others_keep=True,
        # A job that exceeds its limit postpones the reservation.
        valid_until=limits.next_release(view) if some_wait else inf,
        outdated_by=Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: _reasons(view, backfill_steps(view, order, limits, reserve), describe, set(jobs)),
    )


def _reasons(
    view: ClusterView, steps: Iterable[BackfillStep], describe: Describe, asked: Collection[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons for the jobs in `asked`.

    Kinds: `runs-on` for running jobs; `gang-fits` for jobs before the head; `reserved` for the head; for jobs behind
    it, with the head as the other job, `backfilled`, `gang-does-not-fit` and `would-delay`.
    """
    reasons = {job.job_id: Reason("runs-on", {}) for job in view.running if job.job_id in asked}
    for position, step in enumerate(steps, start=1):
        if len(reasons) == len(asked):
            break
        if step.job.job_id in asked:
            reasons[step.job.job_id] = _reason(step, {"position": position, **describe(step.job)})
    return reasons


def _reason(step: BackfillStep, order: Mapping[str, float]) -> Reason:
    """Return the reason of a waiting job. `order` contains the numbers that determine its position."""
    numbers = {**order, "gpus_needed": step.job.num_replicas, "gpus_left": step.free}
    if step.head is None:
        return Reason("gang-fits", numbers)
    if step.reserved_time < inf:
        numbers["reserved_time"] = step.reserved_time
    if step.head is step.job:
        return Reason("reserved", numbers)
    if step.starts:
        return Reason("backfilled", numbers, (step.head.job_id,))
    fits = step.job.num_replicas <= step.free
    return Reason("would-delay" if fits else "gang-does-not-fit", numbers, (step.head.job_id,))


@dataclass
class Backfill:
    """Base class of policies that plan with time limits of jobs."""

    overestimate: float = 1.0
    _limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(overestimate=self.overestimate)
        self._limits = Limits(self.overestimate)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if `overestimate` has no effect."""
        return overestimate_without_effect(self.overestimate, jobs)


@pool_per_type
@dataclass
class Easy(Backfill):
    """Start whole jobs in order of submission, with EASY backfill and without preemption.

    The first job that does not fit gets a reservation at the earliest time at which enough GPUs are free if all running
    jobs end at their limits. The limit of a job is its `time_limit`, or a multiple of its true run time.

    Parameters
    ----------
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP '95).
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs in order of submission."""
        return backfilled(view, view.waiting, self._limits, lambda job: {})


@takes_settings("policy")
@dataclass
class Multifactor:
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

    age: float = 1000.0
    size: float = 0.0
    priority: float = 1000.0
    fair_share: float = 10_000.0
    max_age: Seconds = 7 * 86_400.0
    half_life: Seconds = 7 * 86_400.0
    shares: Mapping[Name, float] = field(default_factory=dict)
    overestimate: float = 1.0
    fair_tree: bool = True
    # By GPU type: reservations are on the GPUs of one type.
    _limits: dict[str, Limits] = field(default_factory=dict, init=False, repr=False)
    _pools: Pools = field(default_factory=Pools, init=False, repr=False)
    _usage: Ledger[str] = field(init=False, repr=False)  # GPU time of each user, decayed [GPU s]
    # All users that have submitted jobs, in order of their first job.
    _users: dict[str, None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(max_age=self.max_age, half_life=self.half_life, overestimate=self.overestimate)
        check_above_zero(**{f"shares.{name}": share for name, share in self.shares.items()})
        for name in ("age", "size", "priority", "fair_share"):
            check_range(f"policy.{name}", getattr(self, name), least=0)
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
        present = dict.fromkeys(map(user_of, view.jobs))
        self._users |= present
        usage = {user: self._usage.balance(user, view.time) for user in (self._users if self.fair_tree else present)}
        fair_share = (fair_tree if self.fair_tree else classic_fair_share)(usage, self.shares)
        num_gpus = max(view.nominal_gpus, 1)
        highest = max((job.priority for job in view.jobs), default=0.0)

        def worth(job: JobView) -> float:
            age = min((view.time - job.submit_time) / self.max_age, 1.0)
            priority = max(job.priority, 0.0) / highest if highest > 0 else 0.0
            size = job.num_replicas / num_gpus
            fair = fair_share[user_of(job)]
            return self.age * age + self.size * size + self.priority * priority + self.fair_share * fair

        order = sorted(view.waiting, key=lambda job: -worth(job))
        decision = self._backfilled(view, order, lambda job: {"multifactor": worth(job)})
        self._usage.follow(view, decision, user_of)
        # The order of waiting jobs changes with time.
        return replace(decision, valid_until=inf if len(decision.allocation) == len(order) else -inf)

    def _backfilled(self, view: ClusterView, order: Sequence[JobView], describe: Describe) -> Decision:
        """Start jobs in an order on the GPUs of each type. The usage of a user counts over all types."""
        limits = {name: self._limits.setdefault(name, Limits(self.overestimate)) for name in view.types}
        if len(limits) == 1:
            return backfilled(view, order, next(iter(limits.values())), describe)
        decisions = {
            name: backfilled(part, self._pools.seen(order, name), limits[name], describe)
            for name, part in self._pools.views(view).items()
        }
        return together(view, self._pools, decisions)


def fair_tree(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the fair-share factor of each user: the rank by shares over usage [1/(GPU s)], over the number of users.

    Users with equal values have equal ranks. A missing share is 1.

    >>> fair_tree({"ada": 30.0, "bob": 0.0, "eve": 20.0, "joe": 20.0}, {"ada": 2.0})
    {'ada': 0.75, 'bob': 1.0, 'eve': 0.5, 'joe': 0.5}
    """
    levels = {user: shares.get(user, 1.0) / used if used > 0 else inf for user, used in usage.items()}
    rising = sorted(levels.values())
    return {user: bisect_right(rising, levels[user]) / len(levels) for user in usage}


def classic_fair_share(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return 2^(−U/S) of each user; U and S are the user's parts of the usage and of the shares.

    >>> classic_fair_share({"ada": 10.0, "bob": 0.0}, {})
    {'ada': 0.25, 'bob': 1.0}
    """
    all_shares = sum(shares.get(user, 1.0) for user in usage)
    all_used = sum(usage.values()) or 1.0
    return {user: 2.0 ** (-(used / all_used) * all_shares / shares.get(user, 1.0)) for user, used in usage.items()}
