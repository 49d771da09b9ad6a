"""Writes down what happens in a run, as records."""

from __future__ import annotations

from copy import copy
from math import inf
from typing import TYPE_CHECKING, Any

from polluxsim.columns import Records
from polluxsim.engine.tenure import Tenure
from polluxsim.records import (
    AllocationRecord,
    CheckpointRecord,
    HostRecord,
    JobRecord,
    ReasonRecord,
    RoundRecord,
    SharingRecord,
    Status,
    TimingRecord,
)
from polluxsim.types import BatchChoice, DividedBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.jobs import Jobs
    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.settings import EngineSettings
    from polluxsim.hosts import Hosted
    from polluxsim.policies.view import Decision, Reason
    from polluxsim.types import Gpus, JobId, Placement
    from polluxsim.workloads.workload import Job

NO_BATCH = BatchChoice(0, 0)

MATERIAL = 0.1
"""Share by which a number must change for a reason to be recorded again."""


class Recorder:
    """Collects the records of one run."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.jobs = Records(JobRecord)  # those that have ended, in this order; all others in order of time
        self.rounds = Records(RoundRecord)
        self.allocations = Records(AllocationRecord)
        self.timings = Records(TimingRecord)
        self.reasons = Records(ReasonRecord)
        self.checkpoints = Records(CheckpointRecord)
        self.sharing = Records(SharingRecord)
        self.hosts = Records(HostRecord)
        self.last_round: RoundRecord | None = None  # recorded or not
        self._kept: tuple[object, ...] = ()
        self._objective: tuple[float | None, float | None, float | None] = (None, None, None)
        self._last_reason: dict[JobId, ReasonRecord] = {}
        self._last: dict[JobId, tuple[Placement, BatchChoice | DividedBatch]] = {}
        self.shares: dict[JobId, tuple[Gpus, float]] = {}  # of who has GPUs by number: these, and speed over that alone
        self.hosted_now: Mapping[JobId, Hosted] = {}  # of jobs that hold GPUs, where the cluster says what nodes have

    def changed(self, now: float, job: ActiveJob) -> None:
        """Take note of a job's placement and batch size if they changed."""
        tenure, choice = job.tenure, NO_BATCH if job.pace is None else job.pace.choice
        if self._last.get(job.job_id) == (tenure.placement, choice):
            return
        self._last[job.job_id] = (tenure.placement, choice)
        batch_size = choice.batch_size(tenure.num_replicas)
        self.allocations.append(
            AllocationRecord(now, job.job_id, tenure.nodes, tenure.shape, batch_size, choice.accumulation_steps)
        )

    def shared(self, now: float, held: Mapping[JobId, Gpus], lost: Mapping[JobId, float]) -> None:
        """Take note of what changed of who is on which GPUs by number, and of the share of speed that each loses."""
        shares = {job_id: (gpus, 1 - lost.get(job_id, 0.0)) for job_id, gpus in held.items()}
        gone = {job_id: ((), 1.0) for job_id in self.shares if job_id not in shares}
        for job_id, share in (gone | shares).items():
            if self.shares.get(job_id) != share:
                nodes, numbers = zip(*share[0], strict=True) if share[0] else ((), ())
                self.sharing.append(SharingRecord(now, job_id, nodes, numbers, share[1]))
        self.shares = shares

    def hosted(self, now: float, hosts: Mapping[JobId, Hosted]) -> None:
        """Take note of what changed of the CPUs and memory of all jobs that hold GPUs, and of their speeds by these."""
        for job_id, each in hosts.items():
            if self.hosted_now.get(job_id) != each:
                self.hosts.append(HostRecord(now, job_id, *each.host, each.speed))
        self.hosted_now = hosts

    def saved(self, job: ActiveJob, start: float, end: float) -> None:
        """Take note of a checkpoint [s] that does not follow from an interval."""
        self.checkpoints.append(CheckpointRecord(start, end, job.job_id))

    def ended(self, job: ActiveJob, status: Status, now: float) -> None:
        """Take note of a job that has ended, of which no more than its record is kept."""
        self.jobs.append(job_record(job.job, job, status, now, self.settings))
        self._last.pop(job.job_id, None)
        self.shares.pop(job.job_id, None)
        self._last_reason.pop(job.job_id, None)

    def never_submitted(self, job: Job, now: float) -> None:
        """Take note of a job that was cancelled before it was submitted."""
        self.jobs.append(job_record(job, None, Status.CANCELLED, now, self.settings))

    def round(self, now: float, jobs: Jobs, nodes: Nodes, *, has_changed: bool) -> None:
        """Take note of the cluster after a round; it is kept where something happened or is not as it was."""
        active_jobs = len(jobs.active)
        held, goodput, weighted = jobs.totals.of(jobs.running)
        in_use = held - nodes.board.num_extra
        up, price = nodes.num_up(now), nodes.hourly_cost
        cost = nodes.cost(now) if price else 0.0
        efficiency = weighted / in_use if in_use else 0.0
        self.last_round = record = RoundRecord(
            now, active_jobs, in_use, goodput, efficiency, *self._objective, up, price, cost
        )
        if has_changed or record[1:-1] != self._kept:
            self._kept = record[1:-1]
            self.rounds.append(record)

    def passed_over(self, now: float, jobs: Jobs, nodes: Nodes) -> None:
        """Keep the round of this instant though nothing changed in it: jobs will end that were active in it."""
        if not self.rounds or self.rounds[-1].time < now:
            self.round(now, jobs, nodes, has_changed=True)

    def decided(self, decision: Decision) -> None:
        """Take note of what a policy says of its decision; it holds for all rounds until the next."""
        fitness, bound = decision.fitness, decision.upper_bound
        self._objective = (fitness, bound, None if fitness is None or bound is None else 1 - fitness / bound)

    def explained(self, now: float, job_id: JobId, reason: Reason, *, moved: bool) -> None:
        """Take note of what decided about a job, unless its placement and what was said of it last are as they were."""
        record = ReasonRecord(now, job_id, reason.kind, tuple(reason.numbers.items()), reason.others)
        last = self._last_reason.get(job_id)
        if moved or last is None or _says_more(record, last):
            self._last_reason[job_id] = record
            self.reasons.append(record)

    def time_spent(self, phase: str, seconds: float, time: float | None = None) -> None:
        """Take note of wall-clock time spent in a phase, of the round at `time` where there is one."""
        self.timings.append(TimingRecord(phase, time, seconds))

    def __deepcopy__(self, memo: dict[int, Any]) -> Recorder:
        new = copy(self)  # records never change
        for name, value in vars(self).items():
            if isinstance(value, Records | dict):
                setattr(new, name, copy(value))
        return new


def job_record(job: Job, active: ActiveJob | None, status: Status, now: float, settings: EngineSettings) -> JobRecord:
    """Return the record of a job as of `now` [s], when it ended or the run did.

    `active` is its state, in the epoch that it is in now; None of one that was never submitted.
    """
    tenure, work, is_complete = Tenure(), 0.0, status is Status.COMPLETED
    losses = tenure.losses
    if active is not None:
        rule, all_work = settings.time_rule, active.truth.epoch_ends[-1]
        tenure, losses = active.tenure, active.losses_at(now, rule)
        work = all_work if is_complete else active.segment.progress_at(now, rule)
    submit_time = inf if active is None and job.after else job.submit_time
    start = tenure.start_time
    run_time, restart_time, restart_service = tenure.times(now)
    return JobRecord(
        job.job_id,
        job.application,
        submit_time,
        start,
        now if is_complete else None,
        now - submit_time if is_complete else None,
        None if start is None else start - submit_time,
        tenure.num_restarts,
        tenure.attained_service(now) - tenure.ceded_until(now),
        status,
        run_time,
        restart_time,
        None,
        None if status is Status.CUT_OFF else now,
        job.num_replicas,
        job.user,
        job.queue,
        job.priority,
        job.deadline,
        job.time_limit,
        job.after,
        job.gpu_types,
        job.min_replicas,
        job.max_replicas,
        job.cancel_time,
        losses.num_failures,
        losses.checkpoint_time,
        losses.lost_time,
        restart_service,
        losses.checkpoint_service,
        losses.lost_service,
        losses.lost_work,
        work,
    )


def _says_more(record: ReasonRecord, last: ReasonRecord) -> bool:
    """Return whether a reason differs from the last one, numbers by more than the share that matters."""
    if (record.kind, record.others) != (last.kind, last.others) or len(record.numbers) != len(last.numbers):
        return True
    pairs = zip(record.numbers, last.numbers, strict=True)
    return any(name != before or abs(now - then) > MATERIAL * abs(then) for (name, now), (before, then) in pairs)
