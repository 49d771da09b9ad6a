"""Laws of scheduling that a policy must keep.

They are about idle GPUs, reservations, quotas, and deadlines of admitted jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import SLACK, Law
from polluxsim.checks.law_of_batch_sizes import BatchSizes
from polluxsim.checks.law_of_limits import UseLimits
from polluxsim.checks.law_of_shapes import Shapes
from polluxsim.checks.laws_of_preemption import laws_of_preemption
from polluxsim.checks.worlds import CHECKPOINT_COST, World
from polluxsim.common.instants import first_round
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy, as_policy, traits_of
from polluxsim.policies.contract.reasons import Excuse, JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.records.results import Result, Status

NO_REASON = ReasonKind("no reason")  # excuses nothing

GPU_TYPE = "gpu"  # name of the type on clusters of one type


class RunLaws:
    """The laws that apply to a policy in a world, and the first finding of each fault."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.findings: dict[Fault, Finding] = {}
        rules = as_policy(policy).quota_rules
        may_use = may_use_all if rules is None else rules.can_ever_hold  # whether quotas ever allow a job some GPUs
        self._laws: list[Law] = [IdleGpus(world, may_use), KeptReservations(world), Admission(world), BatchSizes()]
        # The law of quotas only counts GPUs. With types or fixed placements, enough GPUs may not fit a job.
        enough_gpus_fit = not world.types and world.placement == "anywhere"
        if rules is not None and rules.takes_back and enough_gpus_fit:
            self._laws.append(KeptQuotas(rules.quota_of))
        traits = traits_of(policy)
        self._laws += laws_of_preemption(world, traits)
        if traits.keeps_shapes:
            self._laws.append(Shapes())
        if world.limits:
            self._laws.append(UseLimits(world))

    def check_round(self, this_round: RoundSeen) -> None:
        """Check a round by all laws."""
        for law in self._laws:
            self._keep(law.check_round(this_round))

    def check_end(self, result: Result) -> None:
        """Check the result of the run by all laws."""
        for law in self._laws:
            self._keep(law.check_end(result))

    def _keep(self, findings: Iterator[Finding]) -> None:
        # Later findings of a fault often follow from the first one.
        for finding in findings:
            self.findings.setdefault(finding.fault, finding)


def may_use_all(job: JobSeen, gpu_type: str) -> bool:
    """Return True: no quota limits the job on any GPU type."""
    return True


@dataclass
class IdleGpus(Law):
    """No GPU is idle that a job could use, unless the kind of the job's reason excuses it, and the excuse is true.

    It does not apply to elastic policies under an autoscaler: idle GPUs may be on a node that will be released.
    `may_use` returns whether the quotas of a policy ever allow a waiting job the GPUs that it needs of a type.
    """

    world: World
    may_use: Callable[[JobSeen, str], bool] = may_use_all
    # Whether the policy has given a job another number of GPUs than its user requests.
    _is_elastic: bool = False
    _speeds: dict[JobId, dict[int, float]] = field(default_factory=dict)  # of jobs with speeds, by GPUs
    # The last reason of each job. A policy that repeats its decision gives no new reasons.
    _reasons: dict[JobId, Reason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._speeds = {job.job_id: dict(job.speeds) for job in self.world.jobs if job.speeds}

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each job that could use idle GPUs and has no true reason."""
        for job in this_round.jobs:
            if not job.is_gang and this_round.held[job.job_id] not in (0, job.num_replicas, job.gpus_before):
                self._is_elastic = True
            if job.reason is not None:
                self._reasons[job.job_id] = job.reason
        # A surplus node gets no new jobs, so an autoscaler may leave a node idle that has the shape for a job.
        if self.world.is_scaled and (self._is_elastic or self.world.placement != "anywhere"):
            return
        for job_of_round in this_round.jobs:
            job = job_of_round._replace(reason=self._reasons.get(job_of_round.job_id))
            kind = NO_REASON if job.reason is None else job.reason.kind
            startable_gpus = self._could_start(job, this_round) if this_round.waits(job) else 0
            if startable_gpus:
                does = f"waits for {job.num_replicas}"
                yield from _unless_excused(job, this_round, kind.excuses_waiting, f"{startable_gpus} GPUs", does)
            elif self._is_elastic and self._could_grow(job, this_round):
                idle_gpus = sum(this_round.free.values())
                does = f"holds {job.gpus_before}, could use {job.max_replicas}"
                yield from _unless_excused(job, this_round, kind.excuses_running, f"{idle_gpus} GPUs", does)

    def _could_start(self, job: JobSeen, this_round: RoundSeen) -> int:
        """Return the most idle GPUs of a type among the fastest types for a waiting job; 0 if the job does not fit.

        Slower types do not count, because the policy may let the job wait for a fast type.
        """
        needed = job.min_replicas if self._is_elastic and not job.is_gang else job.num_replicas
        speeds = {name: speed for name, speed in job.speeds.items() if self.may_use(job, name)}
        fastest = max(speeds.values(), default=0.0)
        largest = 0
        for name, speed in speeds.items():
            if speed < fastest or this_round.free[name] < needed:
                continue
            # Only the requested number of GPUs has a shape.
            if needed == job.num_replicas and not this_round.fits(job, name):
                continue
            largest = max(largest, this_round.free[name])
        return largest

    def _could_grow(self, job: JobSeen, this_round: RoundSeen) -> bool:
        """Return whether a running job that is not moved gains more from the idle GPUs than a restart costs."""
        present_gpus = this_round.held[job.job_id]
        speeds = self._speeds.get(job.job_id, {})
        if present_gpus not in speeds or present_gpus != job.gpus_before:
            return False
        most_gpus = min(present_gpus + sum(this_round.free.values()), job.max_replicas)
        fastest = max(speed for gpus, speed in speeds.items() if gpus <= most_gpus or gpus == present_gpus)
        gain = job.time_left * speeds.get(job.num_replicas, 0.0) * (1 / speeds[present_gpus] - 1 / fastest)
        return gain > job.delay + this_round.round_interval


def _unless_excused(
    job: JobSeen, this_round: RoundSeen, excuse: Excuse | None, idle: str, does: str
) -> Iterator[Finding]:
    """Yield the finding about idle GPUs, unless the excuse of the job's reason is true."""
    reason = job.reason
    if reason is None:
        why = "without a reason"
    elif excuse is not None and excuse(job, reason, this_round):
        return
    else:
        why = f"and {reason.kind.name!r} is no true reason for it"
    yield Finding(Fault.IDLE, f"{idle} are idle at {this_round.time:g} s, job {job.job_id!r} {does} {why}")


@dataclass
class KeptReservations(Law):
    """A job starts no later than its first reservation, postponed by outages and by work that evicted jobs repeat.

    The law ends when a job runs longer than its limit, because reservations are void from then on. It does not apply to
    clusters of several GPU types, where jobs change their pools, nor to clusters whose number of nodes changes, nor
    under limits by user, by which a job loses its reservation.

    The order in a round matters: first evictions and starts are noted, then promises that yield are forgotten, then the
    old promises are checked, and only then the promises of this round are noted.
    """

    world: World
    _promised: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # time of the promise, reserved time [s]
    _running: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # start and limit of each job [s]
    _repeated: list[tuple[float, float]] = field(default_factory=list)  # time and lost time of each eviction [s]
    _evicted: set[JobId] = field(default_factory=set)
    _is_over: bool = False

    def __post_init__(self) -> None:
        parameters = dict(self.world.parameters)
        is_short = parameters.get("overestimate", 1.0) < 1.0
        self._is_over = bool(
            self.world.limits or self.world.types or self.world.is_scaled or self.world.least_nodes or is_short
        )

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each job that starts, or has not started, after its reservation."""
        self._take_note(this_round)
        if self._is_over:
            return
        # Jobs to which the policy now promises a start, also those whose time of the start is unknown.
        heads = [job for job in this_round.jobs if job.reason is not None and job.reason.kind.promises_start]
        self._lapse(heads, this_round)
        for job in this_round.jobs:
            if job.job_id not in self._promised:
                continue
            promise_time, reserved_time = self._promised[job.job_id]
            due = reserved_time + self._postponed(promise_time, this_round)
            if this_round.time > due * (1 + SLACK) and job.gpus_before == 0:
                had = f"job {job.job_id!r} had a reservation for {reserved_time:g} s"
                yield Finding(Fault.RESERVATION, f"{had} and has not started by {this_round.time:g} s")
            if not this_round.waits(job):
                del self._promised[job.job_id]
        num_up = sum(this_round.up.values())
        for job in heads:
            assert job.reason is not None
            reserved = job.reason.numbers.get(job.reason.kind.promises_start)
            if reserved is not None:
                # The law is about the first promise; the policy may promise an earlier start later.
                self._promised.setdefault(job.job_id, (this_round.time, reserved))
            elif job.num_replicas > num_up:
                # No start is known until a node comes up, neither for this job nor for other jobs that are too wide.
                for other in this_round.jobs:
                    if other.num_replicas > num_up:
                        self._promised.pop(other.job_id, None)

    def _lapse(self, heads: list[JobSeen], this_round: RoundSeen) -> None:
        """Forget the promises that yield to other jobs, if a job starts ahead of them or another job has the promise.

        An evicted job changes nothing: `_postponed` allows for its delay.
        """
        yielding = [job for job in heads if job.reason is not None and job.reason.kind.yields_to]
        if not yielding:
            return
        promised = {job.job_id for job in yielding}
        yields_to = set[str]()
        for job in yielding:
            if job.reason is not None:
                yields_to.update(kind.name for kind in job.reason.kind.yields_to)
        ahead = {job.job_id for job in this_round.jobs if _starts(job, this_round) and _kind_of(job) in yields_to}
        if ahead - self._evicted:
            self._promised.clear()
        elif promised - self._evicted:
            self._promised = {name: promise for name, promise in self._promised.items() if name in promised}

    def _take_note(self, this_round: RoundSeen) -> None:
        """Note starts, limits and evictions, and end the law if a job exceeds its limit."""
        now = this_round.time
        self._evicted |= this_round.evicted
        for name in this_round.evicted:
            if name in self._running:
                start, _ = self._running.pop(name)
                # At most the work since the start is lost.
                self._repeated.append((now, now - start))
        # Jobs that ended, or stopped before this decision, no longer run.
        ran_until_now = {job.job_id for job in this_round.jobs if job.gpus_before}
        self._running = {name: times for name, times in self._running.items() if name in ran_until_now}
        if any(now >= limit * (1 - SLACK) for _, limit in self._running.values()):
            self._is_over = True
        for job in this_round.jobs:
            name = job.job_id
            if not this_round.held[name]:
                self._running.pop(name, None)
            elif name not in self._running:
                end = now + (job.time_limit or job.time_left)
                if job.gpus_before and job.time_limit:  # it runs since before a fork
                    end = now + max(job.time_limit - job.service / job.num_replicas, 0.0)
                # Jobs end at rounds.
                limit = first_round(end, this_round.round_interval) * this_round.round_interval
                self._running[name] = (now, limit)

    def _postponed(self, since: float, this_round: RoundSeen) -> float:
        """Return how long outages and evictions may postpone a reservation [s]."""
        # The beginning and the end of a delay each take effect at the next round.
        rounding = 2 * this_round.round_interval
        by_outages = 0.0
        for _, start, duration, *_ in (*self.world.outages, *self.world.reclaims):
            if since <= start + duration and start <= this_round.time:
                by_outages += duration + rounding
        by_evictions = sum(lost + rounding for time, lost in self._repeated if time >= since)
        return by_outages + by_evictions


def _starts(job: JobSeen, this_round: RoundSeen) -> bool:
    """Return whether a job without GPUs gets some by the decision."""
    return not job.gpus_before and this_round.held[job.job_id] > 0


def _kind_of(job: JobSeen) -> str | None:
    """Return the name of the kind of the job's reason; None without a reason."""
    if job.reason is None:
        return None
    return job.reason.kind.name


@dataclass
class KeptQuotas(Law):
    """No job within the quota of its queue waits while GPUs outside quotas suffice for it."""

    quota_of: Callable[[str | None, str], int]

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each job that waits although its queue's quota and the GPUs suffice."""
        used = Counter[str | None]()
        for job in this_round.jobs:
            used[job.queue] += this_round.held[job.job_id]
        within = sum(min(gpus, self.quota_of(queue, GPU_TYPE)) for queue, gpus in used.items())
        spare = sum(this_round.up.values()) - within
        for job in this_round.jobs:
            quota = self.quota_of(job.queue, GPU_TYPE)
            if this_round.waits(job) and used[job.queue] + job.num_replicas <= quota and job.num_replicas <= spare:
                yield Finding(
                    Fault.QUOTA,
                    f"job {job.job_id!r} waits for {job.num_replicas} GPUs at {this_round.time:g} s: its queue has "
                    f"{used[job.queue]} of {quota}, and {spare} GPUs are not held within quotas",
                )


@dataclass
class Admission(Law):
    """Interference and checkpoints may make an admitted job late, but only by their own cost.

    The law applies where only interference and checkpoints make jobs slower than the policy can know.
    """

    world: World
    _admitted: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # submission and deadline [s]

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Record the admitted jobs."""
        for job in this_round.jobs:
            if job.reason is not None and job.reason.kind.promises_deadline and job.deadline is not None:
                self._admitted.setdefault(job.job_id, (job.submit_time, job.deadline))
        yield from ()

    def check_end(self, result: Result) -> Iterator[Finding]:
        """Yield a finding for each admitted job that ended late."""
        world = self.world
        if world.outages or world.reclaims or world.least_nodes or world.agent or world.has_hosts:
            return
        slowdown = 1 / (1 - world.interference)
        if world.checkpoint_interval is not None:
            slowdown *= 1 + CHECKPOINT_COST / world.checkpoint_interval
        for record in result.job_records:
            if record.job in self._admitted and record.status is Status.COMPLETED:
                submitted, deadline = self._admitted[record.job]
                due = submitted + (deadline - submitted) * slowdown
                if record.completion_time is not None and record.completion_time > due * (1 + SLACK):
                    late = f"job {record.job!r} was admitted with deadline {deadline:g} s"
                    yield Finding(Fault.DEADLINE, f"{late} and ended at {record.completion_time:g} s")
