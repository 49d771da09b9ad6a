"""Writes down what happens in a run, as records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.records import AllocationRecord, JobRecord, ReasonRecord, Result, RoundRecord, Status, TimingRecord
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.running import RunningJob
    from polluxsim.policies.view import Reason
    from polluxsim.types import Allocation, BatchChoice, JobId, Placement
    from polluxsim.workloads.workload import Job

MATERIAL = 0.1
"""Share by which a number must change for a reason to be another one."""


class Recorder:
    """Collects the records of one run."""

    def __init__(self) -> None:
        self._submitted: dict[JobId, RunningJob] = {}
        self._completed: dict[JobId, JobRecord] = {}
        self._rounds: list[RoundRecord] = []
        self._allocations: list[AllocationRecord] = []
        self._timings: list[TimingRecord] = []
        self._reasons: list[ReasonRecord] = []
        self._last_reason: dict[JobId, ReasonRecord] = {}
        self._last: dict[JobId, tuple[Placement, BatchChoice]] = {}

    def submitted(self, job: RunningJob) -> None:
        """Take note of an arrival."""
        self._submitted[job.job.job_id] = job

    def changed(self, now: float, job: RunningJob) -> None:
        """Take note of a job's placement and batch size if they are others than before."""
        placement = job.placement if job.num_replicas else ()
        state = (placement, job.choice)
        job_id = job.job.job_id
        if self._last.get(job_id) == state:
            return
        self._last[job_id] = state
        nodes = tuple(node for node, _ in placement)
        self._allocations.append(
            AllocationRecord(now, job_id, nodes, gpus_by_node(placement), job.batch_size, job.choice.accumulation_steps)
        )

    def completed(self, job: RunningJob) -> None:
        """Take note of a job that is complete, of which no more than its record is kept."""
        submitted = self._submitted.pop(job.job.job_id)
        self._completed[job.job.job_id] = _job_record(job.job, submitted, job.completion_time or 0.0)
        del self._last[job.job.job_id]
        self._last_reason.pop(job.job.job_id, None)

    def round(
        self, now: float, active_jobs: int, placed: Sequence[RunningJob], decision: Allocation, nodes: Nodes
    ) -> RoundRecord:
        """Take note of the cluster after a round, and of what the policy says of its decision."""
        in_use = sum(job.num_replicas for job in placed)
        weighted = sum(job.num_replicas * job.efficiency for job in placed)
        fitness, bound = getattr(decision, "fitness", None), getattr(decision, "upper_bound", None)
        record = RoundRecord(
            time=now,
            active_jobs=active_jobs,
            gpus_in_use=in_use,
            goodput=sum(job.goodput for job in placed),
            efficiency=weighted / in_use if in_use else 0.0,
            fitness=fitness,
            upper_bound=bound,
            gap=None if fitness is None or bound is None else 1 - fitness / bound,
            nodes=nodes.present(now).num_nodes,
            hourly_cost=nodes.hourly_cost,
            cost=nodes.cost(now),
        )
        self._rounds.append(record)
        return record

    def round_without_change(self, now: float, nodes: Nodes) -> None:
        """Take note of a round after which everything is as after the one before."""
        self._rounds.append(self._rounds[-1]._replace(time=now, cost=nodes.cost(now)))

    def explained(self, now: float, job_id: JobId, reason: Reason, *, moved: bool) -> None:
        """Take note of what decided about a job, unless its placement and what was said of it last are as they were."""
        record = ReasonRecord(now, job_id, reason.kind, tuple(reason.numbers.items()), reason.others)
        last = self._last_reason.get(job_id)
        if moved or last is None or _says_more(record, last):
            self._last_reason[job_id] = record
            self._reasons.append(record)

    def took(self, phase: str, seconds: float, time: float | None = None) -> None:
        """Take note of wall-clock time spent in a phase, of the round at `time` where there is one."""
        self._timings.append(TimingRecord(phase, time, seconds))

    @property
    def timings(self) -> tuple[TimingRecord, ...]:
        """Return the wall-clock times so far."""
        return tuple(self._timings)

    def result(self, jobs: Sequence[Job], now: float) -> Result:
        """Return all records; jobs that are not complete by `now` are cut off."""
        return Result(
            job_records=tuple(
                self._completed.get(job.job_id) or _job_record(job, self._submitted.get(job.job_id), now)
                for job in jobs
            ),
            round_records=tuple(self._rounds),
            allocation_records=tuple(self._allocations),
            end_time=now,
            timing_records=self.timings,
            reason_records=tuple(self._reasons),
        )


def _says_more(record: ReasonRecord, last: ReasonRecord) -> bool:
    """Return whether a reason differs from the last one, numbers by more than the share that matters."""
    if (record.kind, record.others) != (last.kind, last.others) or len(record.numbers) != len(last.numbers):
        return True
    pairs = zip(record.numbers, last.numbers, strict=True)
    return any(name != before or abs(now - then) > MATERIAL * abs(then) for (name, now), (before, then) in pairs)


def _job_record(job: Job, running: RunningJob | None, now: float) -> JobRecord:
    start = running.start_time if running else None
    completion = running.completion_time if running else None
    return JobRecord(
        job=job.job_id,
        application=job.application,
        submit_time=job.submit_time,
        start_time=start,
        completion_time=completion,
        jct=None if completion is None else completion - job.submit_time,
        queueing_delay=None if start is None else start - job.submit_time,
        num_restarts=running.num_restarts if running else 0,
        gpu_seconds=running.attained_service(now) if running else 0.0,
        status=Status.CUT_OFF if completion is None else Status.COMPLETED,
    )
