"""EASY backfill, which reserves GPUs for the first job that does not fit, and Slurm's multifactor priority."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from polluxsim.common.errors import check_range
from polluxsim.common.instants import has_come, slack, sort_key
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId, num_replicas
from polluxsim.policies.contract.settings import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gangs import Describe, check_above_zero
from polluxsim.policies.tools.ledger import NO_USER, Ledger, user_of
from polluxsim.policies.tools.pools import Pools, pool_per_type, together
from polluxsim.policies.tools.starting import Start, started_by
from polluxsim.policies.tools.waiting_table import FallingOrder, Floats, Mask, Order, SubmissionOrder, WaitingTable
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
        if not all(release is not None and view.has_come(release.time) for release in due):
            return False
        overdue = takewhile(lambda release: view.has_come(release.time), self._releases)
        return all(release.job_id in ended for release in overdue)

    def releases(self, view: ClusterView) -> Iterator[tuple[float, int]]:
        """Yield the planned releases as pairs (time [s], GPUs), in order of time.

        At each round, a job that exceeds its limit is expected to end before the next round. The last job of those that
        share a GPU since before a fork releases it.
        """
        next_round = view.round_at(view.time + view.round_interval)
        held = view.sharing.held
        last = {gpu: release for release in self._releases for gpu in held.get(release.job_id, ())} if held else {}
        freed = Counter(last.values())
        for release in self._releases:
            gpus = freed[release] if release.job_id in held else release.gpus
            yield max(release.time, next_round), gpus

    def next_release(self, view: ClusterView) -> float:
        """Return the time of the next planned release, or ∞ [s]."""
        return next((time for time, _ in self.releases(view)), inf)


@dataclass
class BackfillPass:
    """One pass over the waiting jobs of a table, in an order, with EASY backfill.

    Jobs start until one does not fit; this job, the head, gets a reservation. A later job starts if it ends before the
    reservation, or if it needs only GPUs that the head does not need. The pass reads only the jobs that could start:
    array operations leave out the other jobs.
    """

    view: ClusterView
    table: WaitingTable
    order: Order
    limits: Limits
    starts: list[Start] = field(default_factory=list)  # in order
    head: int | None = None  # row of the job with the reservation; None if all jobs fit
    reserved_time: float = inf  # latest start of the head [s]; ∞ without a head
    free: int = 0  # GPUs that are free after the pass
    _spare: int = 0  # GPUs that the head leaves free at its reservation

    def run(self) -> None:
        """Choose the jobs that start, and plan the releases of their GPUs."""
        self.free = sum(self.view.free)
        behind = self.table.waits.copy()  # jobs that the pass has not reached
        while self.free > 0 and self.head is None:
            row = next(self.order.rows(behind), None)
            if row is None:
                return
            behind[row] = False
            if self.table.gpus[row] <= self.free:
                self._start(row)
            else:
                self._reserve(row)
        while self.free > 0 and self.head is not None:
            row = self._next_behind_head(behind)
            if row is None:
                return
            behind[row] = False

    def _next_behind_head(self, behind: Mask) -> int | None:
        """Start the first job behind the head that may start, and return its row; None if there is none."""
        table, now = self.table, self.view.time
        gpus, limit = table.gpus, table.value  # the values are time limits [s]
        latest_end = self.reserved_time + slack(self.reserved_time)
        may_end_in_time = (now + limit <= latest_end) | np.isnan(limit)
        for row in self.order.rows(behind & (gpus <= self.free) & (may_end_in_time | (gpus <= self._spare))):
            if np.isnan(limit[row]):
                limit[row] = self.limits.limit(self.view, table.job(row))
            ends_in_time = has_come(now + float(limit[row]), self.reserved_time)
            if ends_in_time or gpus[row] <= self._spare:
                self._start(row)
                if not ends_in_time:
                    self._spare -= int(gpus[row])
                return row
        return None

    def _start(self, row: int) -> None:
        gpus = int(self.table.gpus[row])
        self.starts.append(Start(row, gpus, self.free))
        self.free -= gpus
        self.limits.start(self.view, self.table.job(row))

    def _reserve(self, row: int) -> None:
        """Make a job the head."""
        self.head = row
        releases = self.limits.releases(self.view)
        self.reserved_time, self._spare = earliest_start(int(self.table.gpus[row]), self.free, releases)

    def reasons(self, describe: Describe, asked: Collection[JobId]) -> dict[JobId, Reason]:
        """Return the reasons for the jobs in `asked`.

        Kinds: `runs-on` for running jobs; `gang-fits` for jobs before the head; `reserved` for the head; for jobs
        behind it, with the head as the other job, `backfilled`, `gang-does-not-fit` and `would-delay`.
        """
        rows = [self.table.row_of(job_id) for job_id in asked]
        reasons = {self.table.job(row).job_id: Reason("runs-on", {}) for row in rows if not self.table.waits[row]}
        waiting = [row for row in rows if self.table.waits[row]]
        if not waiting:
            return reasons
        self._reserve_for_explanation()
        keys = [self.order.key(start.row) for start in self.starts]  # in rising order
        for row, position in zip(waiting, self.order.ranks(waiting), strict=True):
            job = self.table.job(row)
            num_ahead = bisect_left(keys, self.order.key(row))
            left = self.free
            if num_ahead < len(self.starts):
                left = self.starts[num_ahead].free
            starts = num_ahead < len(keys) and self.starts[num_ahead].row == row
            reasons[job.job_id] = self._reason(row, left, starts, {"position": position, **describe(job)})
        return reasons

    def _reserve_for_explanation(self) -> None:
        """Find the head if the pass ended before it, because no GPU was left."""
        if self.head is not None:
            return
        behind = self.table.waits.copy()
        behind[[start.row for start in self.starts]] = False
        row = next(self.order.rows(behind), None)
        if row is not None:
            self._reserve(row)

    def _reason(self, row: int, left: int, starts: bool, order: Mapping[str, float]) -> Reason:
        """Return the reason of a waiting job for which some GPUs are left.

        `order` contains the numbers that determine its position.
        """
        gpus = int(self.table.gpus[row])
        numbers = {**order, "gpus_needed": gpus, "gpus_left": left}
        if self.head is None or self.order.key(row) < self.order.key(self.head):
            return Reason("gang-fits", numbers)
        if self.reserved_time < inf:
            numbers["reserved_time"] = self.reserved_time
        if self.head == row:
            return Reason("reserved", numbers)
        head = (self.table.job(self.head).job_id,)
        if starts:
            return Reason("backfilled", numbers, head)
        return Reason("would-delay" if gpus <= left else "gang-does-not-fit", numbers, head)


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


def backfilled(view: ClusterView, table: WaitingTable, order: Order, limits: Limits, describe: Describe) -> Decision:
    """Start waiting jobs in an order, with EASY backfill, on the nodes with the most free GPUs.

    Running jobs keep their GPUs.
    """
    limits.take_note(view)
    backfill = BackfillPass(view, table, order, limits)
    backfill.run()
    free = FreeGpus(view.free)
    placements = {table.job(start.row).job_id: free.pack(start.gpus) or () for start in backfill.starts}
    some_wait = len(placements) < table.num_waiting
    return Decision(
        placements,
        others_keep=True,
        # A job that exceeds its limit postpones the reservation.
        valid_until=limits.next_release(view) if some_wait else inf,
        outdated_by=Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: backfill.reasons(describe, jobs),
    )


@dataclass
class Backfill:
    """Base class of policies that plan with time limits of jobs, and let each job run to its end."""

    overestimate: float = 1.0
    traits: ClassVar[Traits] = Traits(never_preempts=True)
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

    _table: WaitingTable = field(default_factory=WaitingTable, init=False, repr=False, compare=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Start waiting jobs in order of submission."""
        self._table.update(view)
        return backfilled(view, self._table, SubmissionOrder(self._table), self._limits, lambda job: {})


class Factors(NamedTuple):
    """Values by which the factors of all jobs are computed."""

    fair_share: Floats  # fair-share factor of each user, by index
    highest_priority: float  # largest priority of a present job
    num_gpus: int  # GPUs of the cluster


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

    traits: ClassVar[Traits] = Traits(
        never_preempts=True, remembers="the GPU time of each user, which counts half after `half_life`"
    )

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
    _tables: dict[str, WaitingTable] = field(default_factory=dict, init=False, repr=False, compare=False)
    _pools: Pools = field(default_factory=Pools, init=False, repr=False)
    _usage: Ledger[str] = field(init=False, repr=False)  # GPU time of each user, decayed [GPU s]
    # All users that have submitted jobs, with their indices.
    _users: dict[str, int] = field(default_factory=dict, init=False, repr=False)

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
        if len(view.types) == 1:
            return self._decide(view)
        parts = self._pools.views(view)
        for name, part in parts.items():
            self._table(name).update(part)
        fair_share = self._fair_share(view, dict.fromkeys(map(user_of, view.jobs)))
        highest = max(self._table(name).highest_priority for name in parts)
        decisions = {
            name: self._backfilled(part, name, Factors(fair_share, highest, view.nominal_gpus))
            for name, part in parts.items()
        }
        decision = together(view, self._pools, decisions)
        self._usage.follow(view, decision, user_of)
        return self._until_it_changes(view, decision)

    def _decide(self, view: ClusterView) -> Decision:
        """Return the decision on a cluster of one GPU type."""
        name = next(iter(view.types))
        table = self._table(name)
        table.update(view)
        fair_share = self._fair_share(view, table.present_users() if not self.fair_tree else ())
        decision = self._backfilled(view, name, Factors(fair_share, table.highest_priority, view.nominal_gpus))
        self._usage.follow(view, decision, user_of, started_by(table, decision))
        return self._until_it_changes(view, decision)

    def _until_it_changes(self, view: ClusterView, decision: Decision) -> Decision:
        """Return a decision with the time until which it is valid: the order of waiting jobs changes with time."""
        return replace(decision, valid_until=inf if len(decision.allocation) == len(view.waiting) else -inf)

    def _table(self, name: str) -> WaitingTable:
        """Return the table of the jobs of a GPU type."""
        if name not in self._tables:
            self._tables[name] = WaitingTable(self._users)
        return self._tables[name]

    def _fair_share(self, view: ClusterView, present: Iterable[str]) -> Floats:
        """Return the fair-share factor of each user, shape (users,); `present` users have jobs now."""
        counted = self._users if self.fair_tree else present
        usage = {user: self._usage.balance(user, view.time) for user in counted}
        by_user = (fair_tree if self.fair_tree else classic_fair_share)(usage, self.shares)
        factors = np.zeros(len(self._users))
        for user, factor in by_user.items():
            factors[self._users[user]] = factor
        return factors

    def _backfilled(self, view: ClusterView, name: str, factors: Factors) -> Decision:
        """Start jobs in order of priority on the GPUs of a type. The usage of a user counts over all types."""
        table = self._table(name)
        limits = self._limits.setdefault(name, Limits(self.overestimate))
        order = FallingOrder(table, lambda: self._priorities(table, view.time, factors))
        return backfilled(view, table, order, limits, lambda job: {"multifactor": order.value(job.job_id)})

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
    levels = {user: sort_key(shares.get(user, 1.0) / used) if used > 0 else inf for user, used in usage.items()}
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
