"""From the jobs, profiles and nodes of a run to what no schedule can beat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.instants import first_round
from polluxsim.engine.scenario import Scenario
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import JobId
from polluxsim.metrics.outcomes import number_of
from polluxsim.metrics.summary import counted
from polluxsim.models.efficiency import gain
from polluxsim.models.known_duration import BatchPlan, speed_at
from polluxsim.models.profile import Profile, ProfileRangeError, by_type
from polluxsim.records.results import OutageRecord, Result, Status
from polluxsim.statistics.bounds.measures import measures_of
from polluxsim.statistics.bounds.problem import Array, BoundProblem, Capacity, JobLimits, Measure
from polluxsim.statistics.bounds.speeds import SpeedBounds, highest_speeds
from polluxsim.workloads.workload import Job

ROUNDED = 0.5  # by how much an epoch may end early if epochs end at whole seconds [s]
SHORTEST = 1e-9  # shortest time of a job, so that each job takes some time [s]

ONLY_ALONE = "only the shortest time of each job alone bounds the metrics"


@dataclass(frozen=True)
class BoundedWorld:
    """What no schedule of a world can beat, and sentences on what the bounds do not cover."""

    problem: BoundProblem | None  # None if there is no bound
    sentences: tuple[str, ...] = ()


class Pool(NamedTuple):
    """GPUs of one type in one group of partitions."""

    gpu_type: str
    group: tuple[str, ...]  # names of the partitions; empty without partitions


def bounded_world(scenario: Scenario, result: Result, until: float | None = None) -> BoundedWorld:
    """Return what no schedule of the jobs in the metrics of a run can beat.

    From the time `until` on [s], by default the end of the run, all nodes count as up.
    """
    records = counted(result)
    if not records:
        return BoundedWorld(None, ("There is no bound, because no job is in the metrics.",))
    cut_off = sum(record.status is Status.CUT_OFF for record in records)
    if cut_off:
        verb = "was" if cut_off == 1 else "were"
        jobs_were = f"{number_of(cut_off, 'job')} {verb}"
        sentence = f"There is no bound, because {jobs_were} cut off, and the JCT of such a job is its age."
        return BoundedWorld(None, (sentence,))
    with_deadlines = {record.job for record in result.job_records if record.is_counted and record.deadline is not None}
    names = [record.job for record in records]
    # The deadlines of jobs that are in no mean, like cancelled ones, count too.
    names += sorted(with_deadlines - set(names))
    jobs = {job.job_id: job for job in scenario.workload.jobs}
    reasons = list(_reasons_for_alone_only(scenario, [jobs[name] for name in names]))
    limits = LimitsOfJobs(scenario, only_alone=bool(reasons))
    submissions = _Submissions(jobs, limits)
    of_jobs = [limits.of(jobs[name], submissions.of(name)) for name in names]
    if until is None:
        until = result.end_time
    capacity = capacity_of(scenario.cluster, result.outage_records, until)
    problem = BoundProblem(tuple(of_jobs[: len(records)]), capacity, tuple(of_jobs[len(records) :]))
    return BoundedWorld(problem, tuple(reasons))


def starting_at_rounds(problem: BoundProblem, interval: float) -> BoundProblem:
    """Return a problem whose jobs start at rounds only. Rounds are at the multiples of an interval [s]."""

    def later(job: JobLimits) -> JobLimits:
        return replace(job, ready=max(first_round(job.ready, interval) * interval, job.ready))

    return BoundProblem(tuple(map(later, problem.jobs)), problem.capacity, tuple(map(later, problem.others)))


def _reasons_for_alone_only(scenario: Scenario, jobs: Sequence[Job]) -> Iterator[str]:
    """Yield a sentence for each reason why only the shortest time of each job alone is a bound."""
    if scenario.settings.sharing is not None:
        yield f"Jobs may share GPUs, so that {ONLY_ALONE}."
    if any(job.after for job in jobs):
        yield f"Jobs wait for other jobs, so that their submissions depend on the schedule: {ONLY_ALONE}."
    if _may_mix_types(scenario):
        yield f"Jobs may use GPUs of several types at once, so that {ONLY_ALONE}."


def _may_mix_types(scenario: Scenario) -> bool:
    rule = scenario.batch_rule
    return rule is not None and rule.controller is not None and len(scenario.cluster.types) > 1


class _Submissions:
    """The earliest possible submissions of jobs, which may wait for other jobs."""

    def __init__(self, jobs: Mapping[JobId, Job], limits: LimitsOfJobs) -> None:
        self._jobs = jobs
        self._limits = limits
        self._times: dict[JobId, float] = {}

    def of(self, name: JobId) -> float:
        """Return the earliest submission of a job [s]."""
        # A stack in place of recursion, because a chain of jobs may be longer than Python's limit of calls.
        open_names = [name]
        while open_names:
            job = self._jobs[open_names[-1]]
            before = [other for other in job.after if other in self._jobs and other not in self._times]
            if before:
                open_names += before  # the job itself stays below them, and its turn comes again
                continue
            ends = [self._end(other) for other in job.after if other in self._jobs]
            self._times[open_names.pop()] = max([job.submit_time, *ends])
        return self._times[name]

    def _end(self, name: JobId) -> float:
        """Return the earliest end of a job, given its earliest submission [s]."""
        limits = self._limits.of(self._jobs[name], self._times[name])
        return limits.ready + limits.shortest


class LimitsOfJobs:
    """Compute what no schedule can beat for a job alone (`JobLimits`). Jobs of one application share its speeds.

    With `only_alone`, the limits contain the shortest time of a job and no measures.
    """

    def __init__(self, scenario: Scenario, *, only_alone: bool) -> None:
        self._scenario = scenario
        self._only_alone = only_alone
        self._pools = {pool: number for number, pool in enumerate(pools_of(scenario.cluster))}
        self._mixes = _may_mix_types(scenario)
        self._speeds: dict[tuple[str, Pool], tuple[int, SpeedBounds | None]] = {}
        self._measures: dict[object, tuple[Measure, ...]] = {}

    def of(self, job: Job, submit: float) -> JobLimits:
        """Return the limits of a job, given its earliest submission [s]."""
        measures = self._measures_of(job)
        shortest = measures[0].work
        if self._only_alone:
            measures = ()
        return JobLimits(submit, submit, shortest, measures, job.deadline)

    def _measures_of(self, job: Job) -> tuple[Measure, ...]:
        """Return the measures of a job, computed once for all jobs that have the same ones."""
        key: object = job.job_id
        if not job.is_rigid:
            # Everything about a job on which its measures depend.
            key = (job.application, self._most_gpus(job), job.gpu_types, self._group(job), job.sensitivity)
        if key not in self._measures:
            self._measures[key] = self._new_measures(job)
        return self._measures[key]

    def _new_measures(self, job: Job) -> tuple[Measure, ...]:
        """Return measures of the progress of a job, from its speeds on each pool."""
        profile = self._scenario.profile_of(job)
        ends = [0.0]  # work at the end of each epoch [M0-steps]
        for epoch in range(profile.application.num_epochs):
            ends.append(profile.epoch_end(epoch))
        works = np.diff(ends)
        factor = self._most_by_hosts(job)
        speeds: dict[int, SpeedBounds] = {}  # by number of the pool
        for pool, number in self._pools.items():
            speeds_on_pool = self._speeds_on(job, profile, pool)
            # Without any progress there, the pool is no way to run the job.
            if speeds_on_pool is not None and speeds_on_pool.rates.any():
                speeds[number] = speeds_on_pool._replace(rates=speeds_on_pool.rates * factor)
        if self._scenario.settings.whole_seconds:
            highest_by_pool = [speeds_on_pool.rates.max(axis=1) for speeds_on_pool in speeds.values()]
            fastest = np.max(highest_by_pool, axis=0)  # in each epoch [M0-steps/s]
            # Each epoch may end early by the rounding, at most at the highest speed.
            works = np.maximum(works - ROUNDED * fastest, SHORTEST * fastest)
        measures = measures_of(works, speeds)
        if job.plan is None or job.plan.most_time == inf:
            return measures
        # Only the first measure is a time, which the plan limits.
        return (_within(measures[0], job.plan.most_time),)

    def _most_by_hosts(self, job: Job) -> float:
        """Return the largest factor on the speed of a job by its CPUs and memory; 1 if they have no effect."""
        if not self._scenario.cluster.hosts:
            return 1.0
        sensitivity = self._scenario.sensitivity_of(job)
        if sensitivity is None:
            return 1.0
        return sensitivity.full

    def _speeds_on(self, job: Job, profile: Profile, pool: Pool) -> SpeedBounds | None:
        """Return the highest speeds of a job on a pool, None if it cannot run there."""
        cluster = self._scenario.cluster
        if self._group(job) != pool.group:
            return None
        if job.gpu_types and pool.gpu_type not in (ANY.name, *job.gpu_types):
            return None
        sizes = cluster.for_queue(job.queue).by_type.get(pool.gpu_type, ())
        profiles = by_type(profile)
        if pool.gpu_type != ANY.name and profiles:
            if pool.gpu_type not in profiles:
                return None
            profile = profiles[pool.gpu_type]
        if job.plan is not None:
            return _speeds_of_plan(job, job.plan, profile, sum(sizes))
        if job.is_rigid:
            return _speeds_of_known_duration(job, profile, sum(sizes), self._most_gpus(job))
        if self._mixes:
            # On GPUs of several types, a job is at most as fast as if all of them were of its fastest type.
            sizes = cluster.gpus_per_node
        return self._of_application(job, profile, pool, sizes)

    def _of_application(self, job: Job, profile: Profile, pool: Pool, sizes: Sequence[int]) -> SpeedBounds | None:
        """Return the highest speeds of the application of a job on a pool, up to the most GPUs of the job."""
        application = profile.application
        most = min(self._most_gpus(job), sum(sizes))
        key = (job.application, pool)
        up_to, speeds = self._speeds.get(key, (0, None))
        if up_to < most:
            # For the most GPUs of any job of the application, because the computation takes long and is shared.
            most_of_any_job = min(application.most_replicas(application.largest_batch), sum(sizes))
            up_to = max(most, most_of_any_job)
            speeds = highest_speeds(profile, sizes, up_to)
            self._speeds[key] = (up_to, speeds)
        if speeds is None:
            return None
        number = sum(count <= most for count in speeds.counts)
        return SpeedBounds(speeds.counts[:number], speeds.rates[:, :number])

    def _most_gpus(self, job: Job) -> int:
        """Return the most GPUs that any policy may give a job."""
        if not job.is_rigid:
            application = self._scenario.profiles[job.application].application
            # A user may request more GPUs than the largest batch has examples for.
            most = max(application.most_replicas(application.largest_batch), job.num_replicas)
        elif job.speeds:
            most = job.speeds[-1][0]
        else:
            most = job.num_replicas
        if job.max_replicas is None:
            return most
        return min(most, job.max_replicas)

    def _group(self, job: Job) -> tuple[str, ...]:
        """Return the names of the partitions that a job can use; empty without partitions."""
        cluster = self._scenario.cluster
        if not cluster.partitions:
            return ()
        return cluster.group_of_queue(job.queue).names


def _speeds_of_plan(job: Job, plan: BatchPlan, profile: Profile, most: int) -> SpeedBounds | None:
    """Return the speed of a job in each stretch of its plan, at the batch size of the stretch.

    The speed is 0 where the batch size does not fit in the memory. None if the job needs more than `most` GPUs.
    """
    if job.num_replicas > most:
        return None
    rates = []
    for epoch, (size, _) in enumerate(plan.stretches):
        batch_size = job.num_replicas * size
        worth = gain(profile.gradient_statistics(batch_size, epoch), size / plan.sizes[0])
        try:
            rates.append(worth / profile.step_time((job.num_replicas,), size).step_time)
        except ProfileRangeError:  # this size does not fit in the memory
            rates.append(0.0)
    return SpeedBounds((job.num_replicas,), np.array(rates)[:, None])


def _speeds_of_known_duration(job: Job, profile: Profile, on_pool: int, most: int) -> SpeedBounds | None:
    """Return the speeds of a job without a profile on its possible numbers of GPUs; None if it cannot run on a pool.

    The pool has `on_pool` GPUs, and the job may get `most`. The speed on the requested GPUs is 1, times the speed of
    the GPU type.
    """
    if not job.speeds:
        counts = [job.num_replicas]
    else:
        # Speeds are linear between the stated numbers, and a line has its highest values at its ends.
        last = min(most, on_pool)
        counts = [count for count, _ in job.speeds if count <= last]
        if counts and counts[-1] < last:
            counts.append(last)
    if not counts or counts[0] > on_pool:
        return None
    rates = []
    for count in counts:
        if job.speeds:
            rates.append(speed_at(job.speeds, count) / speed_at(job.speeds, job.num_replicas))
            continue
        try:
            rates.append(1 / profile.step_time((count,), 1).step_time)
        except ProfileRangeError:  # the job does not fit in the memory of this type
            return None
    return SpeedBounds(tuple(counts), np.array([rates]))


def _within(measure: Measure, most_time: float) -> Measure:
    """Return the measure of a job that counts as complete after a training time [s], if it is not complete before."""
    work = min(measure.work, most_time)
    # In every mode, the job is complete after this time, so no mode is slower.
    modes = [mode._replace(rate=max(mode.rate, work / most_time)) for mode in measure.modes]
    return Measure(work, tuple(modes))


def pools_of(cluster: Cluster) -> list[Pool]:
    """Return the pools of a cluster."""
    if not cluster.partitions:
        return [Pool(name, ()) for name in cluster.types]
    pools = []
    for group in cluster.partition_groups:
        pools += [Pool(name, group.names) for name in cluster.for_queue(group.names[0]).types]
    return pools


def capacity_of(cluster: Cluster, outages: Sequence[OutageRecord], until: float) -> Capacity:
    """Return the GPUs that are up, by pool. After a time [s], all are up.

    Where the policy chooses the number of nodes, all nodes that it may have count as up.
    """
    pools = {pool: number for number, pool in enumerate(pools_of(cluster))}
    pool_of_node: dict[int, int] = {}
    totals = np.zeros(len(pools))
    group_of_node: dict[int, tuple[str, ...]] = {}
    for group in cluster.partition_groups:
        group_of_node |= dict.fromkeys(group.nodes, group.names)
    for node, gpus in enumerate(cluster.gpus_per_node):
        if cluster.partitions and node not in group_of_node:
            continue  # no job can use the node
        gpu_type = cluster.node_types[node].name if cluster.node_types else ANY.name
        pool_of_node[node] = pools[Pool(gpu_type, group_of_node.get(node, ()))]
        totals[pool_of_node[node]] += gpus
    changes: dict[float, Array] = {}
    if not cluster.is_elastic:
        for outage in outages:
            begin = outage.time
            end = min(outage.until, until)
            pool = pool_of_node.get(outage.node)
            if pool is None or end <= begin:
                continue
            for time, sign in ((begin, -1), (end, 1)):
                changes.setdefault(time, np.zeros(len(pools)))[pool] += sign * outage.gpus
    times = sorted(changes)
    steps = [totals]
    for time in times:
        steps.append(steps[-1] + changes[time])
    return Capacity(np.array([-inf, *times]), np.maximum(np.array(steps).T, 0.0))
