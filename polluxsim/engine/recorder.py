"""The records of a run. The recorder observes the transitions of `State`; it never changes a run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from copy import copy, deepcopy
from itertools import compress
from math import inf
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import PolicyError
from polluxsim.engine.fairness import finish_time_fairness
from polluxsim.engine.job import ActiveJob, Transition
from polluxsim.engine.policy_calls import Explained
from polluxsim.engine.progress import NO_LOSSES, Holding
from polluxsim.engine.state import Share, State
from polluxsim.hardware.hosts import Hosted
from polluxsim.hardware.placements import BatchChoice, DividedBatch, JobId, Placement
from polluxsim.policies.contract.view import Decision
from polluxsim.records.columns import Records, copy_containers
from polluxsim.records.results import (
    AllocationRecord,
    CheckpointRecord,
    ChooserRecord,
    GpuSeconds,
    HostRecord,
    JobRecord,
    ReasonRecord,
    ReasonText,
    Result,
    RoundRecord,
    SharingRecord,
    StartRecord,
    Status,
    TimingRecord,
    down_gpu_seconds,
)
from polluxsim.workloads.job import Job

NO_BATCH = BatchChoice(0, 0)

REQUESTED = (
    "num_replicas", "user", "queue", "priority", "deadline", "time_limit", "after", "gpu_types", "min_replicas",
    "max_replicas", "cancel_time",
)  # fmt: skip
"""Neighbouring columns of job records that have the values of the job's request."""

_requested = attrgetter(*REQUESTED)

MATERIAL = 0.1  # relative change of a number from which on a reason is recorded again


class RunRecorder:
    """Collect the records of one run."""

    def __init__(self, state: State) -> None:
        self.jobs = Records(JobRecord)  # of ended jobs, in order of their ends
        self.last_round: RoundRecord | None = None  # also if `_rounds` does not keep it
        self._state = state
        self._rounds = Records(RoundRecord)
        self._allocations = Records(AllocationRecord)
        self._timings = Records(TimingRecord)
        self._reasons = Records(ReasonRecord)
        self._checkpoints = Records(CheckpointRecord)
        self._sharing = Records(SharingRecord)
        self._hosts = Records(HostRecord)
        self._starts = Records(StartRecord)
        self._choosers = Records(ChooserRecord)
        self._kept: tuple[object, ...] = ()  # last record in `_rounds`, without its time and cost
        # Fitness, upper bound and gap of the last decision.
        self._objective: tuple[float | None, float | None, float | None] = (None, None, None)
        self._last_reason: dict[JobId, ReasonRecord] = {}
        # Sentences and units by kind of the recorded reasons, and of all reasons of the present policy.
        self._texts: dict[str, ReasonText] = {}
        self._own_texts: dict[str, ReasonText] = {}
        # Placement and batch size in the last allocation record of each active job.
        self._last: dict[JobId, tuple[Placement, BatchChoice | DividedBatch]] = {}
        self._chosen_by_policy: set[JobId] = set()  # active jobs whose last chooser record names the policy
        self._reset_sums()

    @property
    def mean_jct(self) -> float | None:
        """Return the mean completion time of the complete jobs that metrics count [s]; None without such jobs."""
        self._sum_up()
        if not self._num_complete:
            return None
        return self._sum_of_jcts / self._num_complete

    def gpu_seconds(self) -> GpuSeconds:
        """Return how the GPU time so far was used."""
        self._sum_up()
        state = self._state
        now = self._state.clock.now
        # The sums themselves stay, because the records of active jobs are not final.
        spent = self._spent
        for active in state.jobs.active.values():
            spent = spent.with_job(job_record(active.job, active, Status.CUT_OFF, now))
        down = down_gpu_seconds(state.nodes.all_outages(), state.nodes.start, now)
        return spent._replace(all=state.nodes.gpu_seconds(now), down=down)

    def move(self, transition: Transition) -> None:
        """Record that a job gave up its GPUs, or the cost of its start if the policy named this cost.

        What it does on new GPUs follows when it starts there.
        """
        if not transition.job.placement:
            self.record_allocation(transition)
        elif transition.delay is not None:
            self._starts.append(StartRecord(transition.time, transition.job.job_id, transition.delay))

    def record_allocation(self, transition: Transition) -> None:
        """Record the placement and the batch size of a job if they changed, also if it has no GPUs any more."""
        job = transition.job
        # Without GPUs, the batch size is 0.
        holding = job.holding
        choice: BatchChoice | DividedBatch = NO_BATCH
        if job.training_speed is not None:
            choice = job.training_speed.choice
        if self._last.get(job.job_id) == (holding.placement, choice):
            return
        self._last[job.job_id] = (holding.placement, choice)
        batch_size = choice.batch_size(holding.num_replicas)
        self._allocations.append(
            AllocationRecord(
                transition.time, job.job_id, holding.nodes, holding.shape, batch_size, choice.accumulation_steps
            )
        )

    def record_chooser(self, transition: Transition) -> None:
        """Record which side chooses the batch size of a job, if it changed."""
        job = transition.job
        policy_chooses = job.batch is not None
        if policy_chooses == (job.job_id in self._chosen_by_policy):
            return
        if policy_chooses:
            chooser = "policy"
            self._chosen_by_policy.add(job.job_id)
        else:
            chooser = "agent"
            self._chosen_by_policy.remove(job.job_id)
        self._choosers.append(ChooserRecord(transition.time, job.job_id, chooser))

    def save(self, transition: Transition) -> None:
        """Record a checkpoint that does not follow from an interval."""
        if transition.checkpoint is not None:
            self._checkpoints.append(CheckpointRecord(*transition.checkpoint, transition.job.job_id))

    def end(self, transition: Transition) -> None:
        """Record a job that has ended."""
        self.record_allocation(transition)
        record = job_record(transition.job.job, transition.job, transition.status, transition.time)
        self.jobs.append(record)
        # A job that has ended has no further records, and long runs must not keep it.
        self._last.pop(record.job, None)
        self._last_reason.pop(record.job, None)
        self._chosen_by_policy.discard(record.job)

    def never_submitted(self, job: Job) -> None:
        """Record a job that was cancelled before it was submitted."""
        self.jobs.append(job_record(job, None, Status.CANCELLED, self._state.clock.now))

    def record_shares(self, before: Mapping[JobId, Share], after: Mapping[JobId, Share]) -> None:
        """Record the changes of the jobs on GPUs by number, and of their speeds there."""
        now = self._state.clock.now
        for job_id in before:
            if job_id not in after:
                self._sharing.append(SharingRecord(now, job_id, (), (), 1.0))
        for job_id, share in after.items():
            if before.get(job_id) != share:
                gpus, speed = share
                nodes = tuple(node for node, _ in gpus)
                numbers = tuple(number for _, number in gpus)
                self._sharing.append(SharingRecord(now, job_id, nodes, numbers, speed))

    def record_hosts(self, before: Mapping[JobId, Hosted], after: Mapping[JobId, Hosted]) -> None:
        """Record the changes of the CPUs and memory of jobs, and of their speeds with them."""
        for job_id, grant in after.items():
            if before.get(job_id) != grant:
                self._hosts.append(HostRecord(self._state.clock.now, job_id, *grant.host, grant.speed))

    def round(self, *, has_changed: bool) -> None:
        """Record the cluster after a round if something happened, or if the record differs from the last record."""
        jobs = self._state.jobs
        nodes = self._state.nodes
        now = self._state.clock.now
        # A GPU with several jobs counts once.
        held_gpus, goodput, weighted = jobs.totals.sum(jobs.running)
        in_use = held_gpus - nodes.shared.num_extra
        up = nodes.num_up(now)
        price = nodes.hourly_cost
        cost = 0.0
        if price:  # the costs so far take time to add up, and most clusters state no prices
            cost = nodes.cost(now)
        efficiency = 0.0
        if in_use:
            efficiency = weighted / in_use
        self.last_round = record = RoundRecord(
            now, len(jobs.active), in_use, goodput, efficiency, *self._objective, up, price, cost
        )
        if has_changed or record[1:-1] != self._kept:
            self._kept = record[1:-1]
            self._rounds.append(record)

    def pass_over(self, transition: Transition) -> None:
        """Record the round of this instant, unless it is recorded: an epoch of the interval after it ends now."""
        # After the end, the totals would no longer have the job as it was in the round.
        if not self._rounds or self._rounds[-1].time < transition.time:
            self.round(has_changed=True)

    def decide(self, decision: Decision) -> None:
        """Keep the objective of a decision for the records of all rounds until the next decision."""
        fitness = decision.fitness
        bound = decision.upper_bound
        gap = None
        if fitness is not None and bound is not None:
            gap = 1 - fitness / bound
        self._objective = (fitness, bound, gap)

    def begin_policy(self) -> None:
        """Forget the kinds of reasons of the last policy, because another policy takes over.

        The new policy may have other sentences for kinds with the same names, which then hold for the whole run.
        """
        self._own_texts.clear()

    def take_texts(self, reasons: Iterable[Explained]) -> None:
        """Keep the sentences and units of the reasons by kind.

        Raise a PolicyError if the policy has several kinds with one name.
        """
        for record, text in reasons:
            first_text = self._own_texts.setdefault(record.kind, text)
            if first_text != text:
                raise PolicyError(
                    f"the policy gave reasons of two different kinds with the name {record.kind!r}; use another name "
                    "for one of them"
                )

    def explain(self, reason: Explained, *, moved: bool) -> None:
        """Record the reason of a job, unless its placement is unchanged and its reason hardly differs from the last."""
        record = reason.record
        last = self._last_reason.get(record.job)
        if moved or last is None or _is_news(record, last):
            self._last_reason[record.job] = record
            self._reasons.append(record)
            self._texts[record.kind] = reason.text

    def time_spent(self, phase: str, seconds: float, time: float | None = None) -> None:
        """Record the wall-clock time of a phase [s], in the round at `time` [s] if there is one."""
        self._timings.append(TimingRecord(phase, time, seconds))

    def result(self, known: Mapping[JobId, Job], seconds: float, standstill: str | None, *, is_over: bool) -> Result:
        """Return the result of a run so far.

        `known` has all jobs of the run by name. `seconds` is its wall-clock time [s]. `standstill` is the reason why it
        was stopped, or None. If it `is_over`, the result shares the recorder's tables, and `jobs` is put in order of
        submission.
        """
        started = perf_counter()
        state = self._state
        now = self._state.clock.now
        jobs = self._all_jobs(known, is_over=is_over)
        jobs = jobs.with_column("finish_time_fairness", finish_time_fairness(state, known, jobs))
        # A copy, because the result can be taken again, with other times of these two phases.
        timings = copy(self._timings)
        timings.append(TimingRecord("simulate", None, seconds))
        timings.append(TimingRecord("fairness", None, perf_counter() - started))
        recorder = self
        if not is_over:
            recorder = copy_containers(self)  # the run goes on, and the result must not change with it
        return Result(
            job_records=jobs,
            round_records=recorder._rounds,
            allocation_records=recorder._allocations,
            end_time=now,
            timing_records=timings,
            reason_records=recorder._reasons,
            standstill=standstill,
            outage_records=state.nodes.all_outages(),
            gpu_seconds=state.nodes.gpu_seconds(now),
            checkpoint_records=recorder._checkpoints,
            sharing_records=recorder._sharing,
            host_records=recorder._hosts,
            start_records=recorder._starts,
            chooser_records=recorder._choosers,
            before_run=state.before_run,
            reason_texts=recorder._texts,
        )

    def _reset_sums(self) -> None:
        """Set the sums over the records of `jobs` to 0. `_sum_up` continues them."""
        self._num_summed = self._num_complete = 0
        self._sum_of_jcts = 0.0
        self._spent = GpuSeconds()

    def _sum_up(self) -> None:
        for record in self.jobs[self._num_summed :]:
            self._spent = self._spent.with_job(record)
            if record.jct is not None and record.is_counted:
                self._num_complete += 1
                self._sum_of_jcts += record.jct
        self._num_summed = len(self.jobs)

    def _all_jobs(self, known: Mapping[JobId, Job], *, is_over: bool) -> Records[JobRecord]:
        """Return the records of all jobs in order of submission."""
        has_all_jobs = len(self.jobs) == len(known)
        # A complete run needs no copy: the recorder makes no more records.
        records = self.jobs
        if not (is_over and has_all_jobs):
            records = copy(self.jobs)
        if not has_all_jobs:
            ended = set(records.column("job"))
            for record in self._unfinished(known, ended):
                records.append(record)
        if records is self.jobs:
            self._reset_sums()  # because their order changes
        records.put_in_order(array("q", _order_of_submission(records, known).tobytes()))
        return records

    def _unfinished(self, known: Mapping[JobId, Job], ended: set[JobId]) -> Iterator[JobRecord]:
        """Yield the records of the active jobs, then of the jobs that were not submitted."""
        active = self._state.jobs.active
        now = self._state.clock.now
        for job in active.values():
            yield job_record(job.job, job, Status.CUT_OFF, now)
        for name, request in known.items():
            if name not in ended and name not in active:
                yield job_record(request, None, Status.CUT_OFF, now)

    def __deepcopy__(self, memo: dict[int, Any]) -> RunRecorder:
        new = memo[id(self)] = copy_containers(self)
        new._state = deepcopy(self._state, memo)
        return new


def _order_of_submission(records: Records[JobRecord], known: Mapping[JobId, Job]) -> NDArray[np.int64]:
    """Return the rows of the records by time of submission, then in the order of the known jobs, shape (J,)."""
    times = np.asarray(records.column("submit_time"))
    _, groups, sizes = np.unique(times, return_inverse=True, return_counts=True)
    is_tied = (sizes > 1)[groups]
    tied = set(compress(records.column("job"), is_tied))
    # Only jobs with equal times need a place in the order of the workload.
    places = {name: place for place, name in enumerate(known) if name in tied}
    ranks = np.fromiter((places.get(name, 0) for name in records.column("job")), np.int64, len(records))
    return np.lexsort((ranks, times))


def job_record(job: Job, active: ActiveJob | None, status: Status, now: float) -> JobRecord:
    """Return the record of a job at the end of the job or the run [s].

    `active` is None if the job was not submitted.
    """
    is_complete = status is Status.COMPLETED
    is_cut_off = status is Status.CUT_OFF
    if active is None:
        holding = Holding()
        losses = NO_LOSSES
        work = 0.0
    else:
        holding = active.holding
        losses = active.losses_at(now)
        # A complete job has done all work; its progress may differ from that by rounding.
        work = active.truth.epoch_ends[-1] if is_complete else active.progress_at(now)
    submit_time = job.submit_time
    waits_for_other_jobs = active is None and job.after and job.past is None
    if waits_for_other_jobs:
        submit_time = inf  # it is submitted when they are complete
    start = None
    wait = None
    if holding.start_time is not None:
        # A round precedes a submission at its instant by rounding, if at all.
        start = max(holding.start_time, submit_time)
        wait = start - submit_time
    run_time, restart_time, restart_service = holding.times(now)
    # In the order of the columns. Arguments by name take three times as long.
    columns = (
        job.job_id,
        job.application,
        submit_time,
        start,
        now if is_complete else None,
        now - submit_time if is_complete else None,
        wait,
        holding.num_restarts,
        holding.attained_service(now) - holding.ceded_until(now) - holding.past_service,
        status,
        run_time,
        restart_time,
        None,  # finish-time fairness, which follows at the end of the run
        None if is_cut_off else now,
        *_requested(job),
        losses.num_failures,
        losses.checkpoint_time,
        losses.lost_time,
        restart_service,
        losses.checkpoint_gpu_seconds,
        losses.lost_gpu_seconds,
        losses.lost_work,
        work,
        job.job_name,
        job.qos,
    )
    return JobRecord._make(columns)


def _is_news(record: ReasonRecord, last: ReasonRecord) -> bool:
    """Return whether a reason differs from the last one: in kind or jobs, or in a number by more than `MATERIAL`."""
    if (record.kind, record.others) != (last.kind, last.others) or len(record.numbers) != len(last.numbers):
        return True
    for (name, now), (before, then) in zip(record.numbers, last.numbers, strict=True):
        if name != before or abs(now - then) > MATERIAL * abs(then):
            return True
    return False
