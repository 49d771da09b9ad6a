"""Records of a run and its result, with the unit of each column."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

REASON_UNITS = {
    **dict.fromkeys(("gpus", "gpus_before", "gpus_needed", "gpus_left", "gpus_free", "head_gpus_needed"), "GPUs"),
    **dict.fromkeys(("group_gpus", "num_gpus", "fair_share", "max_replicas", "application_limit"), "GPUs"),
    **dict.fromkeys(("attained_service", "queue_threshold"), "GPU s"),
    **dict.fromkeys(("remaining_time", "last_gain", "next_gain", "winning_gain", "age"), "s"),
    **dict.fromkeys(("remaining_service", "expected_service"), "GPU s"),
    "gittins_index": "1/GPU s",
    **dict.fromkeys(("deadline", "reserved_time", "planned_end", "lease_end"), "s"),
    **dict.fromkeys(("quota", "queue_gpus", "gpus_available"), "GPUs"),
    "virtual_usage": "GPU s",
    **dict.fromkeys(("time_had", "shares_due"), "s"),
}
"""Unit of the figures in reasons that have one, in the order in which tables name them; others are plain numbers."""

UNITS = {
    **dict.fromkeys(("time", "until", "submit_time", "start_time", "completion_time", "cancel_time", "end_time"), "s"),
    **dict.fromkeys(("deadline", "time_limit", "jct", "queueing_delay"), "s"),
    **dict.fromkeys(("run_time", "restart_time", "checkpoint_time", "lost_time"), "s"),
    **dict.fromkeys(("gpu_seconds", "restart_gpu_seconds", "checkpoint_gpu_seconds", "lost_gpu_seconds"), "GPU s"),
    **dict.fromkeys(("work", "lost_work"), "M0-steps"),
    "finish_time_fairness": "1, less is better",
    **dict.fromkeys(("gpus_in_use", "num_replicas", "min_replicas", "max_replicas", "OutageRecord.gpus"), "GPUs"),
    "gpus": "GPUs on each of nodes",
    "RoundRecord.nodes": "nodes",
    **dict.fromkeys(("AllocationRecord.nodes", "SharingRecord.nodes"), "node numbers"),
    "SharingRecord.gpus": "numbers of GPUs on nodes",
    "SharingRecord.speed": "1, of that alone",
    "HostRecord.cpus": "cores for each GPU",
    "HostRecord.memory": "GB for each GPU",
    "HostRecord.speed": "1, over that of its profile or duration",
    "goodput": "M0-equivalent examples/s",
    "efficiency": "1, weighted by GPUs",
    "batch_size": "examples",
    "accumulation_steps": "1",
    "seconds": "s of wall-clock time",
    "numbers": "by name: " + ", ".join(f"{name} {unit}" for name, unit in REASON_UNITS.items()) + "; others 1",
}
"""Unit of every column that has one, by name; of those whose name means two things, by record and name."""


def unit_of(record_type: type[NamedTuple], name: str) -> str | None:
    """Return the unit of a column, None if it has none.

    >>> from polluxsim.records.results import AllocationRecord, JobRecord, RoundRecord
    >>> unit_of(RoundRecord, "nodes"), unit_of(AllocationRecord, "nodes"), unit_of(JobRecord, "job")
    ('nodes', 'node numbers', None)
    """
    return UNITS.get(f"{record_type.__name__}.{name}", UNITS.get(name))


class Status(StrEnum):
    """How a job ended: it did all its work, its user or the cluster ended it, or the run was over before it."""

    COMPLETED = "completed"
    CUT_OFF = "cut off"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    TIMED_OUT = "timed out"
    FAILED = "failed"


class JobRecord(NamedTuple):
    """One job's history; times that never came, and what its user did not say, are None [s; GPU s].

    `run_time` is how long it held GPUs, `restart_time` how much of that went into starts and restarts, and
    `finish_time_fairness` its completion time over that alone on an equal share of the cluster, None if it did not
    complete or its profile says nothing about that share. `end_time` is when it ended for good, however it ended. A job
    that waited for others (`after`) was submitted when the last of them was complete.

    `num_failures` is how often a failure took its GPUs; `num_restarts` are those that the policy ordered.
    `checkpoint_time` went into checkpoints, and `lost_time` into training that was for nothing, `lost_work` of it;
    `work` is what was done in the end and not lost [M0-steps]. Columns in GPU seconds say such times times GPUs.
    """

    job: str
    application: str
    submit_time: float
    start_time: float | None
    completion_time: float | None
    jct: float | None
    queueing_delay: float | None
    num_restarts: int
    gpu_seconds: float
    status: Status
    run_time: float = 0.0
    restart_time: float = 0.0
    finish_time_fairness: float | None = None
    end_time: float | None = None
    num_replicas: int = 0
    user: str | None = None
    queue: str | None = None
    priority: float = 0.0
    deadline: float | None = None
    time_limit: float | None = None
    after: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    min_replicas: int | None = None
    max_replicas: int | None = None
    cancel_time: float | None = None
    num_failures: int = 0
    checkpoint_time: float = 0.0
    lost_time: float = 0.0
    restart_gpu_seconds: float = 0.0
    checkpoint_gpu_seconds: float = 0.0
    lost_gpu_seconds: float = 0.0
    lost_work: float = 0.0
    work: float = 0.0

    @property
    def left_at(self) -> float | None:
        """Return when it ended for good, also where only completions were recorded; None if the run ended before."""
        return self.end_time if self.completion_time is None else self.completion_time


class GpuSeconds(NamedTuple):
    """How the GPU time of a run was used [GPU s]."""

    all: float = 0.0  # of all requested nodes, also while they were down
    held: float = 0.0  # by jobs, with the next three
    checkpoint: float = 0.0
    restart: float = 0.0
    lost: float = 0.0  # training that was lost in failures
    down: float = 0.0  # of nodes that were down

    def with_job(self, job: JobRecord) -> GpuSeconds:
        """Return the sum with the GPU time of a job."""
        return self._replace(
            held=self.held + job.gpu_seconds,
            checkpoint=self.checkpoint + job.checkpoint_gpu_seconds,
            restart=self.restart + job.restart_gpu_seconds,
            lost=self.lost + job.lost_gpu_seconds,
        )


class RoundRecord(NamedTuple):
    """The cluster just after one scheduling round [s; 1; GPUs; M0-equivalent examples/s; 1], and the decision.

    Rounds that change nothing have no record: until the next one all is as it was, but for `cost`, which goes on at
    `hourly_cost`. `nodes` are up, `hourly_cost` is the price of all that are up or coming, `cost` what nodes have cost
    so far.

    `fitness` is the policy's objective, `upper_bound` what it cannot exceed, `gap` how far it is below that as a share
    of it; None where the policy does not say.
    """

    time: float
    active_jobs: int
    gpus_in_use: int
    goodput: float
    efficiency: float
    fitness: float | None = None
    upper_bound: float | None = None
    gap: float | None = None
    nodes: int = 0
    hourly_cost: float = 0.0
    cost: float = 0.0


class AllocationRecord(NamedTuple):
    """A change of one job's placement or batch size; no nodes mean that it holds no GPU from then on."""

    time: float
    job: str
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    batch_size: int
    accumulation_steps: int


class OutageRecord(NamedTuple):
    """A time in which a node was down, so that nobody could hold its GPUs; ∞ is for good."""

    time: float
    until: float
    node: int
    gpus: int
    kind: str


class CheckpointRecord(NamedTuple):
    """A stop of a job to save its work, at the end of an epoch or as its node was to go; those by interval have none.

    `until` is when it is finished, unless the job loses its GPUs or is moved before.
    """

    time: float
    until: float
    job: str


class SharingRecord(NamedTuple):
    """Which GPUs a job has that others may have, too, and how fast it is there; no GPUs mean that it has none such.

    It holds until the job's next record, or until the job holds no GPU any more. A GPU has its node, and its number
    there at the same place of `gpus`; `speed` is that beside those on the same GPUs over that alone.
    """

    time: float
    job: str
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    speed: float


class HostRecord(NamedTuple):
    """CPUs and memory for each GPU of a job, and how fast it is with them; only where the cluster says what nodes have.

    It holds until the job's next record, or until the job holds no GPU any more. `speed` is that over its profile's or
    duration's.
    """

    time: float
    job: str
    cpus: float
    memory: float
    speed: float


class ReasonRecord(NamedTuple):
    """What decided about one job at a round: a kind, figures by name, and the jobs it came down to.

    It holds until the job's next record.
    """

    time: float
    job: str
    kind: str
    numbers: tuple[tuple[str, float], ...]
    others: tuple[str, ...]


class TimingRecord(NamedTuple):
    """Wall-clock time that something took: a round's decision, or a phase of the run [s; s]."""

    phase: str
    time: float | None
    seconds: float


@dataclass(frozen=True)
class Result:
    """A finished run. Two results are equal if all that was simulated is; wall-clock times do not count.

    Attributes
    ----------
    job_records
        A record per job, in order of submission.
    round_records
        A record per scheduling round that changed something, in order of time.
    allocation_records
        A record per change of a job, in order of time.
    end_time
        When the run ended: with the last job, at its horizon, or when it stood still [s].
    timing_records
        Wall-clock times.
    reason_records
        What decided about jobs, as far as the policy says, in order of time; not part of what was simulated either.
    standstill
        Why the run was broken off, in a sentence, where jobs were left and nobody made progress; None of any other.
    outage_records
        A record per outage of a node, in order of time.
    gpu_seconds
        GPU time that there was, of nodes that were down too [GPU s]; None if it is not known.
    checkpoint_records
        A record per checkpoint that does not follow from an interval, in order of time.
    sharing_records
        A record per change of a job on GPUs that others may have, too, in order of time; none where nobody shares.
    host_records
        A record per change of a job's CPUs and memory, in order of time; none where the cluster does not say what nodes
        have.
    """

    job_records: Sequence[JobRecord]
    round_records: Sequence[RoundRecord]
    allocation_records: Sequence[AllocationRecord]
    end_time: float
    timing_records: Sequence[TimingRecord] = field(default=(), compare=False, repr=False)
    reason_records: Sequence[ReasonRecord] = field(default=(), compare=False, repr=False)
    standstill: str | None = field(default=None, compare=False)
    outage_records: Sequence[OutageRecord] = ()
    gpu_seconds: float | None = field(default=None, compare=False)
    checkpoint_records: Sequence[CheckpointRecord] = ()
    sharing_records: Sequence[SharingRecord] = ()
    host_records: Sequence[HostRecord] = ()

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Return the job records as a table, a row per job."""
        return _frame(self.job_records, JobRecord._fields)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Return the round records as a table, a row per round."""
        return _frame(self.round_records, RoundRecord._fields)

    @cached_property
    def allocations(self) -> pd.DataFrame:
        """Return the allocation records as a table, a row per change."""
        return _frame(self.allocation_records, AllocationRecord._fields)


def _frame(records: Sequence[NamedTuple], columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (slow to load, and a run needs none of it)

    return pd.DataFrame.from_records(list(records), columns=list(columns))
