"""Laws of scheduling that a policy must keep.

They are about idle GPUs, reservations, quotas, and deadlines of admitted jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from polluxsim.checks.findings import Fault, Finding, Seen, SeenJob, gpus_of
from polluxsim.checks.law import SLACK, Law
from polluxsim.checks.laws_of_preemption import laws_of_preemption
from polluxsim.checks.worlds import CHECKPOINT_COST, World
from polluxsim.common.instants import first_round
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import Policy, Reason, traits_of
from polluxsim.policies.tenants.terms import ANY
from polluxsim.records.results import Result, Status

COST_ROUNDING = 0.2  # share by which worths may differ at the same cost: Sia rounds costs worth^p to two decimals
GPU_TYPE = "gpu"  # name of the type on clusters of one type


class Watch:
    """The laws that apply to a policy in a world, and the first finding of each fault."""

    def __init__(self, world: World, policy: Policy) -> None:
        self.findings: dict[Fault, Finding] = {}
        quota_of = getattr(policy, "quota_of", None)
        may_use = getattr(policy, "may_use", may_use_all) if callable(quota_of) else may_use_all
        self._laws: list[Law] = [IdleGpus(world, may_use), Reservations(world), Admission(world)]
        if callable(quota_of) and not world.types and getattr(policy, "reclaim", ANY) == ANY:
            self._laws.append(Quotas(quota_of))
        self._laws += laws_of_preemption(world, traits_of(policy))

    def see(self, seen: Seen) -> None:
        """Show a round to the laws."""
        for law in self._laws:
            self._keep(law.see(seen))

    def end(self, result: Result) -> None:
        """Show the result of the run to the laws."""
        for law in self._laws:
            self._keep(law.end(result))

    def _keep(self, findings: Iterator[Finding]) -> None:
        for finding in findings:
            self.findings.setdefault(finding.fault, finding)


def may_use_all(job: SeenJob, gpu_type: str) -> bool:
    """Return True: no quota limits the job on any GPU type."""
    return True


@dataclass
class IdleGpus(Law):
    """No GPU is idle that a job could use, unless the reason of the job is in `WAITING` or `RUNNING` and is true.

    It does not apply to elastic policies under an autoscaler: idle GPUs may be on a node that will be released.
    `may_use` returns whether the quotas of a policy ever allow a waiting job the GPUs that it needs of a type.
    """

    world: World
    may_use: Callable[[SeenJob, str], bool] = may_use_all
    # Whether the policy has given a job another number of GPUs than its user requests.
    _is_elastic: bool = False
    _speeds: dict[JobId, dict[int, float]] = field(default_factory=dict)  # of jobs with speeds, by GPUs
    # The last reason of each job. A policy that repeats its decision gives no new reasons.
    _reasons: dict[JobId, Reason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._speeds = {job.job_id: dict(job.speeds) for job in self.world.jobs if job.speeds}

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Yield a finding for each job that could use idle GPUs and has no true reason."""
        self._is_elastic |= any(
            not job.is_gang and seen.held[job.job_id] not in (0, job.num_replicas, gpus_of(job)) for job in seen.jobs
        )
        if self._is_elastic and self.world.is_scaled:
            return
        self._reasons |= {job.job_id: job.reason for job in seen.jobs if job.reason is not None}
        for job in (job._replace(reason=self._reasons.get(job.job_id)) for job in seen.jobs):
            if seen.waits(job) and (gpus := self._could_start(job, seen)):
                yield from _unless_true(WAITING, job, seen, f"{gpus} GPUs", f"waits for {job.num_replicas}")
            elif self._is_elastic and self._could_grow(job, seen):
                gpus, does = sum(seen.free.values()), f"holds {gpus_of(job)}, could use {job.max_replicas}"
                yield from _unless_true(RUNNING, job, seen, f"{gpus} GPUs", does)

    def _could_start(self, job: SeenJob, seen: Seen) -> int:
        """Return the idle GPUs of the fastest types for a waiting job, if the job fits on them."""
        needed = job.min_replicas if self._is_elastic and not job.is_gang else job.num_replicas
        speeds = {name: speed for name, speed in job.speeds.items() if self.may_use(job, name)}
        fastest = max(speeds.values(), default=0.0)
        best = [name for name, speed in speeds.items() if speed == fastest]
        return max((seen.free[name] for name in best if seen.free[name] >= needed), default=0)

    def _could_grow(self, job: SeenJob, seen: Seen) -> bool:
        """Return whether a running job that is not moved gains more from the idle GPUs than a restart costs."""
        held, speeds = seen.held[job.job_id], self._speeds.get(job.job_id, {})
        if held not in speeds or held != gpus_of(job):
            return False
        most = min(held + sum(seen.free.values()), job.max_replicas)
        fastest = max(speed for gpus, speed in speeds.items() if gpus <= most or gpus == held)
        gain = job.time_left * speeds.get(job.num_replicas, 0.0) * (1 / speeds[held] - 1 / fastest)
        return gain > job.delay + seen.round_interval


Test = Callable[["SeenJob", "Reason", "Seen"], bool]  # test of whether the reason of a job is true at a round


def _head_does_not_fit(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the job that the reason names waits for more GPUs than are idle on each of its types."""
    jobs = {other.job_id: other for other in seen.jobs}
    heads = [jobs[name] for name in reason.others if name in jobs and seen.waits(jobs[name])]
    return any(all(head.num_replicas > seen.free[name] for name in head.speeds) for head in heads)


def _is_behind_first_job(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the reason names the first job, and this job is not the first."""
    first = seen.jobs[0]
    return first is not job and reason.others == (first.job_id,)


def _another_does_not_fit(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether another job waits for more GPUs than are idle on each of its types."""
    others = [other for other in seen.jobs if other is not job and seen.waits(other)]
    return any(all(other.num_replicas > seen.free[name] for name in other.speeds) for other in others)


def _keeps_gpus(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether no node has enough idle GPUs, another job does not fit, or jobs keep some of the GPUs.

    AntMan lets a job wait on the node where it keeps GPUs, and keeps GPUs for several jobs.
    """
    keeps_some = 0 < reason.numbers.get("gpus", 0) < job.num_replicas
    whys = [other.reason for other in seen.jobs if other is not job and seen.waits(other)]
    kept = sum(why.numbers.get("gpus", 0) for why in whys if why is not None and why.kind == "keeps-gpus")
    has_too_few = job.num_replicas > min(seen.most_free, sum(seen.free.values()) - kept)
    return has_too_few or keeps_some or _another_does_not_fit(job, reason, seen)


def _waits_on_another_type(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the job can use several types, and another job waits for more GPUs than are idle."""
    return len(job.speeds) > 1 and _another_does_not_fit(job, reason, seen)


def _needs_a_power_of_two(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the smallest power of two of GPUs that the job can run on is more than the idle GPUs of a type."""
    fewest = 1 << (job.min_replicas - 1).bit_length()
    return all(fewest > seen.free[name] for name in job.speeds)


def _has_no_more_in_its_pool(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether a power of two does not fit, or, on several types, the request fits on the idle GPUs of no type.

    A job of a pool moves to another type only if its request fits there.
    """
    fits_nowhere = len(job.speeds) > 1 and all(job.num_replicas > seen.free[name] for name in job.speeds)
    return fits_nowhere or _needs_a_power_of_two(job, reason, seen)


def _has_reservation(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the job has a reservation in the future."""
    return reason.numbers.get("reserved_time", inf) > seen.time


def _is_priced_out(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether other jobs hold GPUs because the price of the first GPU is below the utility of each job."""
    return any(held > 0 for name, held in seen.held.items() if name != job.job_id)


def _was_preempted(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the job held GPUs before, and the job that the reason names gets GPUs."""
    return gpus_of(job) > 0 and any(seen.held.get(name, 0) > 0 for name in reason.others)


def _exceeds_quota(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the job exceeds the GPUs that its queue may get, and its quota, or other queues borrowed GPUs.

    Without reclaims, the quota of a queue may be lent while all idle GPUs are of queues that lend none.
    """
    used = sum(seen.held[other.job_id] for other in seen.jobs if other.queue == job.queue)
    numbers = reason.numbers
    exceeds_quota = used + job.num_replicas > numbers.get("quota", inf)
    others = [other.reason.numbers for other in seen.jobs if other.queue != job.queue and other.reason is not None]
    is_lent = any(other.get("queue_gpus", 0) > other.get("quota", inf) for other in others)
    return (exceeds_quota or is_lent) and job.num_replicas > numbers.get("gpus_available", inf)


def _has_largest_configuration(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether no larger configuration of Sia fits.

    A configuration is a power of two on one of the largest nodes, or whole nodes.
    """
    held = seen.held[job.job_id]
    for name in job.speeds:
        sizes = [gpus for gpus, gpu_type in zip(seen.gpus_per_node, seen.types, strict=True) if gpu_type == name]
        size = max(sizes)
        parts = [2**power for power in range(size.bit_length())]
        counts = [*parts, *(nodes * size for nodes in range(1, sizes.count(size) + 1))]
        if any(held < gpus <= min(held + seen.free[name], job.max_replicas) for gpus in counts):
            return False
    return True


def _restart_factor(job: SeenJob, seen: Seen) -> float:
    """Return the share of the worth of a configuration that a restart leaves."""
    age = seen.time - job.submit_time
    return max(age - job.num_restarts * job.delay, 0.0) / (age + job.delay)


def _worth(reason: Reason, role: str, default: float) -> float:
    """Return the worth of the configuration of Sia that a reason names in a role."""
    return next((worth for name, worth in reason.numbers.items() if name.startswith(f"{role} ")), default)


def _loses_by_restart(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the reason states the true restart factor, and it makes the best configuration worth less.

    If the best configuration does not fit, the best one on idle GPUs counts.
    """
    factor = _restart_factor(job, seen)
    is_true = abs(reason.numbers.get("restart_factor", inf) - factor) <= SLACK
    role = "best" if reason.kind == "restart-not-worth" else "idle"
    return is_true and _worth(reason, role, inf) * factor <= _worth(reason, "has", 0.0) * (1 + COST_ROUNDING)


def _gains_less_than_it_waits(job: SeenJob, reason: Reason, seen: Seen) -> bool:
    """Return whether the restart of a preempted job costs more than the idle GPUs are worth.

    What is left of the worth must be below 1, the worth of the slowest configuration, because the cost of waiting
    exceeds the cost of that configuration.
    """
    factor = _restart_factor(job, seen)
    is_true = gpus_of(job) > 0 and abs(reason.numbers.get("restart_factor", inf) - factor) <= SLACK
    role = "best" if reason.kind == "restart-not-worth" else "idle"
    return is_true and _worth(reason, role, inf) * factor < 1.0


WAITING: Mapping[str, Test] = {
    "behind-head-of-line": _head_does_not_fit,
    "behind-only-job": _is_behind_first_job,
    "would-delay": _head_does_not_fit,
    "starts-by": _has_reservation,
    "planned": _needs_a_power_of_two,
    "most-it-can-use": _has_no_more_in_its_pool,
    "share-waits": _another_does_not_fit,
    "keeps-gpus": _keeps_gpus,
    "reserved": _waits_on_another_type,
    "gang-does-not-fit": _waits_on_another_type,
    "no-room-beside": _keeps_gpus,
    "beyond-packs": _another_does_not_fit,
    "no-quota-left": _exceeds_quota,
    "not-worth-its-price": _is_priced_out,
    "passed-over": _is_priced_out,
    "reclaimed": _was_preempted,
    "preempted": _was_preempted,
    "preempted-on-type": _was_preempted,
    "lost-configuration": _gains_less_than_it_waits,
    "restart-not-worth": _gains_less_than_it_waits,
}
"""Reasons for which a job may wait beside idle GPUs, each with a test of its truth."""

RUNNING: Mapping[str, Test] = {
    "best-configuration": _has_largest_configuration,
    "lost-configuration": _loses_by_restart,
    "restart-not-worth": _loses_by_restart,
}
"""Reasons for which a job may have fewer GPUs than it could use."""


def _unless_true(reasons: Mapping[str, Test], job: SeenJob, seen: Seen, idle: str, does: str) -> Iterator[Finding]:
    """Yield the finding about idle GPUs, unless the reason of the job is in a list and true."""
    why = "without a reason"
    if (reason := job.reason) is not None:
        if reason.kind in reasons and reasons[reason.kind](job, reason, seen):
            return
        why = f"and {reason.kind!r} is no true reason for it"
    yield Finding(Fault.IDLE, f"{idle} are idle at {seen.time:g} s, job {job.job_id!r} {does} {why}")


@dataclass
class Reservations(Law):
    """A job starts no later than its first reservation, postponed by outages and by work that evicted jobs repeat.

    The law ends when a job runs longer than its limit, because reservations are void from then on. It does not apply to
    clusters of several GPU types, where jobs change their pools, nor to clusters whose number of nodes changes.
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
        self._is_over = bool(self.world.types or self.world.is_scaled or self.world.least_nodes or is_short)

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Yield a finding for each job that starts, or has not started, after its reservation."""
        self._take_note(seen)
        if self._is_over:
            return
        heads = [job for job in seen.jobs if job.reason is not None and job.reason.kind in ("reserved", "starts-by")]
        self._lapse(heads, seen)
        for job in seen.jobs:
            if (promise := self._promised.get(job.job_id)) is not None:
                due = promise[1] + self._postponed(promise[0], seen)
                if seen.time > due * (1 + SLACK) and gpus_of(job) == 0:
                    had = f"job {job.job_id!r} had a reservation for {promise[1]:g} s"
                    yield Finding(Fault.RESERVATION, f"{had} and has not started by {seen.time:g} s")
                if not seen.waits(job):
                    del self._promised[job.job_id]
        for job in heads:
            assert job.reason is not None
            if (reserved := job.reason.numbers.get("reserved_time")) is not None:
                self._promised.setdefault(job.job_id, (seen.time, reserved))
            elif job.num_replicas > (up := sum(seen.up.values())):  # no time is known until a node comes up
                wait = {other.job_id for other in seen.jobs if other.num_replicas > up}
                self._promised = {name: promise for name, promise in self._promised.items() if name not in wait}

    def _lapse(self, heads: list[SeenJob], seen: Seen) -> None:
        """Forget the reservation of a head that a job with a higher priority overtakes.

        In order of submission, only an evicted job can overtake the head. `_postponed` allows for this delay.
        """
        reserved = {job.job_id for job in heads if job.reason is not None and job.reason.kind == "reserved"}
        if not reserved:
            return
        ahead = {job.job_id for job in seen.jobs if _starts_ahead(job, seen)}
        if ahead - self._evicted:
            self._promised.clear()
        elif reserved - self._evicted:
            self._promised = {name: promise for name, promise in self._promised.items() if name in reserved}

    def _take_note(self, seen: Seen) -> None:
        """Note starts, limits and evictions, and end the law if a job exceeds its limit."""
        here = {job.job_id: job for job in seen.jobs}
        self._evicted |= seen.evicted
        for name in seen.evicted:
            if name in self._running:
                self._repeated.append((seen.time, seen.time - self._running.pop(name)[0]))
        self._running = {name: known for name, known in self._running.items() if name in here and gpus_of(here[name])}
        self._is_over |= any(seen.time >= limit * (1 - SLACK) for _, limit in self._running.values())
        for name, job in here.items():
            if seen.held[name] and name not in self._running:
                end = seen.time + (job.time_limit or job.time_left)
                if gpus_of(job) and job.time_limit:  # it runs since before a fork
                    end = seen.time + max(job.time_limit - job.service / job.num_replicas, 0.0)
                self._running[name] = seen.time, first_round(end, seen.round_interval) * seen.round_interval
            elif not seen.held[name]:
                self._running.pop(name, None)

    def _postponed(self, since: float, seen: Seen) -> float:
        """Return how long outages and evictions may postpone a reservation [s]."""
        rounds = 2 * seen.round_interval
        spans = [(start, duration) for _, start, duration, *_ in (*self.world.outages, *self.world.reclaims)]
        outages = [duration + rounds for start, duration in spans if since <= start + duration and start <= seen.time]
        repeated = [lost + rounds for time, lost in self._repeated if time >= since]
        return sum(outages) + sum(repeated)


def _starts_ahead(job: SeenJob, seen: Seen) -> bool:
    """Return whether a job starts because it is ahead of the job with the reservation."""
    starts = not gpus_of(job) and seen.held[job.job_id] > 0
    return starts and job.reason is not None and job.reason.kind == "gang-fits"


@dataclass
class Quotas(Law):
    """No job within the quota of its queue waits while GPUs outside quotas suffice for it."""

    quota_of: Callable[[str | None, str], int]

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Yield a finding for each job that waits although its queue's quota and the GPUs suffice."""
        used: dict[str | None, int] = {}
        for job in seen.jobs:
            used[job.queue] = used.get(job.queue, 0) + seen.held[job.job_id]
        within = sum(min(gpus, self.quota_of(queue, GPU_TYPE)) for queue, gpus in used.items())
        spare = sum(seen.up.values()) - within
        for job in seen.jobs:
            quota = self.quota_of(job.queue, GPU_TYPE)
            if seen.waits(job) and used[job.queue] + job.num_replicas <= quota and job.num_replicas <= spare:
                yield Finding(
                    Fault.QUOTA,
                    f"job {job.job_id!r} waits for {job.num_replicas} GPUs at {seen.time:g} s: its queue has "
                    f"{used[job.queue]} of {quota}, and {spare} GPUs are not held within quotas",
                )


@dataclass
class Admission(Law):
    """Interference and checkpoints may make an admitted job late, but only by their own cost.

    The law applies where only interference and checkpoints make jobs slower than the policy can know.
    """

    world: World
    _admitted: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # submission and deadline [s]

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Record the admitted jobs."""
        for job in seen.jobs:
            if job.reason is not None and job.reason.kind == "planned" and job.deadline is not None:
                self._admitted.setdefault(job.job_id, (job.submit_time, job.deadline))
        yield from ()

    def end(self, result: Result) -> Iterator[Finding]:
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
