"""Records of a run and its result. The annotation of a field declares a column: its type and its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import pandas as pd


class Status(StrEnum):
    """State of a job at its end. `CUT_OFF` means that the run ended before the job."""

    COMPLETED = "completed"
    CUT_OFF = "cut off"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    TIMED_OUT = "timed out"
    FAILED = "failed"


class ColumnUnit(str):
    """Unit of a column, as metadata of the annotation of a field."""

    __slots__ = ()


Time: TypeAlias = Annotated[float, ColumnUnit("s")]
OptionalTime: TypeAlias = Annotated[float | None, ColumnUnit("s")]
GpuTime: TypeAlias = Annotated[float, ColumnUnit("GPU s")]
Work: TypeAlias = Annotated[float, ColumnUnit("M0-steps")]
NumGpus: TypeAlias = Annotated[int, ColumnUnit("GPUs")]
OptionalNumGpus: TypeAlias = Annotated[int | None, ColumnUnit("GPUs")]
NodeNumbers: TypeAlias = Annotated[tuple[int, ...], ColumnUnit("node numbers")]


class JobRecord(NamedTuple):
    """History of one job. Times that did not occur and values that the user did not state are None.

    A job that waits for other jobs (`after`) is submitted when the last of them is complete. The fields from `user` to
    `cancel_time`, `num_replicas`, `job_name` and `qos` are those of the user's request (`Job`).
    """

    job: str
    application: str
    submit_time: Time
    start_time: OptionalTime
    completion_time: OptionalTime
    jct: OptionalTime
    queueing_delay: OptionalTime
    num_restarts: int  # that the policy ordered
    gpu_seconds: GpuTime
    status: Status
    run_time: Time = 0.0  # during which the job held GPUs
    restart_time: Time = 0.0  # part of `run_time` for starts and restarts
    # JCT divided by the time alone on an equal share of the cluster; None if incomplete or unknown
    finish_time_fairness: Annotated[float | None, ColumnUnit("1, less is better")] = None
    end_time: OptionalTime = None  # with any status
    num_replicas: NumGpus = 0
    user: str | None = None
    queue: str | None = None
    priority: float = 0.0
    deadline: OptionalTime = None
    time_limit: OptionalTime = None
    after: tuple[str, ...] = ()
    gpu_types: tuple[str, ...] = ()
    min_replicas: OptionalNumGpus = None
    max_replicas: OptionalNumGpus = None
    cancel_time: OptionalTime = None
    num_failures: int = 0  # that took the GPUs of the job
    checkpoint_time: Time = 0.0
    lost_time: Time = 0.0  # training that failures undid
    restart_gpu_seconds: GpuTime = 0.0
    checkpoint_gpu_seconds: GpuTime = 0.0
    lost_gpu_seconds: GpuTime = 0.0
    lost_work: Work = 0.0
    work: Work = 0.0  # done and not lost
    job_name: str | None = None
    qos: str | None = None

    @property
    def is_counted(self) -> bool:
        """Return whether metrics count the job. They leave out jobs that were submitted before the start of the run."""
        return self.submit_time >= 0

    @property
    def left_at(self) -> float | None:
        """Return the end of the job, also from records with completions only; None if the run ended before [s]."""
        return self.end_time if self.completion_time is None else self.completion_time


class BeforeRun(NamedTuple):
    """Numbers of the jobs that were submitted before the start of a run, and of their GPUs. No metric counts them."""

    running: int = 0  # jobs that ran at the start, and hold their GPUs until they end or the policy takes them
    running_gpus: int = 0
    without_room: int = 0  # jobs that ran before, but did not fit on the cluster of the run, and wait for GPUs
    without_room_gpus: int = 0
    pending: int = 0  # jobs that waited at the start
    pending_gpus: int = 0

    @property
    def sentence(self) -> str:
        """Return the numbers as a sentence.

        >>> BeforeRun(running=1, running_gpus=8).sentence
        'no metric counts the jobs from before the start of the run: 1 job with 8 GPUs still running'
        """
        parts = []
        if self.running:
            parts.append(f"{_with_gpus(self.running, self.running_gpus)} still running")
        if self.without_room:
            jobs = _with_gpus(self.without_room, self.without_room_gpus)
            parts.append(f"{jobs} running before and waiting now, because the cluster has too few GPUs")
        if self.pending:
            parts.append(f"{_with_gpus(self.pending, self.pending_gpus)} waiting")
        return f"no metric counts the jobs from before the start of the run: {', '.join(parts)}"


def _with_gpus(jobs: int, gpus: int) -> str:
    """Return numbers of jobs and GPUs as text.

    >>> _with_gpus(1, 8), _with_gpus(2, 1)
    ('1 job with 8 GPUs', '2 jobs with 1 GPU')
    """
    return f"{jobs} job{'s' * (jobs != 1)} with {gpus} GPU{'s' * (gpus != 1)}"


class GpuSeconds(NamedTuple):
    """How the GPU time of a run was used [GPU s]."""

    all: float = 0.0  # of all requested nodes, also while they were down
    held: float = 0.0  # by jobs, including the next three
    checkpoint: float = 0.0  # in checkpoints
    restart: float = 0.0  # in starts and restarts
    lost: float = 0.0  # training that was lost in failures
    down: float = 0.0  # of nodes that were down

    def with_job(self, job: JobRecord) -> GpuSeconds:
        """Return the sums after adding those of a job."""
        return self._replace(
            held=self.held + job.gpu_seconds,
            checkpoint=self.checkpoint + job.checkpoint_gpu_seconds,
            restart=self.restart + job.restart_gpu_seconds,
            lost=self.lost + job.lost_gpu_seconds,
        )


class RoundRecord(NamedTuple):
    """The cluster after one scheduling round, and the objective of the decision.

    Rounds that change nothing have no record; until the next record only `cost` changes, by `hourly_cost`.
    """

    time: Time
    active_jobs: int
    gpus_in_use: NumGpus
    goodput: Annotated[float, ColumnUnit("M0-equivalent examples/s")]
    efficiency: Annotated[float, ColumnUnit("1, weighted by GPUs")]
    fitness: float | None = None  # objective of the policy; None if it states none
    upper_bound: float | None = None  # of the fitness
    gap: float | None = None  # relative distance of the fitness from its upper bound
    nodes: Annotated[int, ColumnUnit("nodes")] = 0  # up
    hourly_cost: float = 0.0  # price of all nodes that are up or starting [$/h]
    cost: float = 0.0  # of nodes so far [$]


class AllocationRecord(NamedTuple):
    """A change of the placement or the batch size of a job. Without nodes, the job holds no GPU from this time on."""

    time: Time
    job: str
    nodes: NodeNumbers
    gpus: Annotated[tuple[int, ...], ColumnUnit("GPUs on each of nodes")]
    batch_size: Annotated[int, ColumnUnit("examples")]
    accumulation_steps: Annotated[int, ColumnUnit("1")]


class OutageRecord(NamedTuple):
    """A time in which a node was down; `until` is ∞ for a permanent outage."""

    time: Time
    until: Time
    node: int
    gpus: NumGpus
    kind: str


class CheckpointRecord(NamedTuple):
    """A stop of a job for a checkpoint at the end of an epoch or before the loss of a node, not at an interval.

    `until` is the planned end, which the job does not reach if it loses its GPUs or moves before.
    """

    time: Time
    until: Time
    job: str


class SharingRecord(NamedTuple):
    """GPUs of a job that other jobs may share, and the speed of the job there; empty if the job shares no GPUs.

    It holds until the next record of the job, or until the job holds no GPU.
    """

    time: Time
    job: str
    nodes: NodeNumbers
    gpus: Annotated[tuple[int, ...], ColumnUnit("numbers of GPUs on nodes")]  # at the same places as `nodes`
    speed: Annotated[float, ColumnUnit("1, of that alone")]


class HostRecord(NamedTuple):
    """CPUs and memory per GPU of a job, and its speed with them, on clusters that state CPUs and memory.

    It holds until the next record of the job, or until the job holds no GPU.
    """

    time: Time
    job: str
    cpus: Annotated[float, ColumnUnit("cores for each GPU")]
    memory: Annotated[float, ColumnUnit("GB for each GPU")]
    speed: Annotated[float, ColumnUnit("1, over that of its profile or duration")]


class StartRecord(NamedTuple):
    """A start for which the policy named the restart delay, which replaces the delay of the settings."""

    time: Time
    job: str
    delay: Time


class ChooserRecord(NamedTuple):
    """Which side chooses the batch size of a job from this time on: the `policy`, or the `agent` of the job again.

    The record holds until the next record of the job. Before its first record, the agent chooses.
    """

    time: Time
    job: str
    chosen_by: str


class ReasonRecord(NamedTuple):
    """Reason of a decision about a job in a round: a kind, numbers by name, and other jobs.

    The record holds until the next one.
    """

    time: Time
    job: str
    kind: str
    numbers: Annotated[tuple[tuple[str, float], ...], ColumnUnit("by name, in run.json")]
    others: tuple[str, ...]


class ReasonText(NamedTuple):
    """How the reasons of a kind are printed. It is data, so a run can be explained without the code of its policy."""

    sentence: str  # template as in `polluxsim.common.templates`; empty to print the numbers by name
    units: Mapping[str, str]  # units of numbers, by name


class TimingRecord(NamedTuple):
    """Wall-clock time of a decision in the round at `time`, or of a phase of the run."""

    phase: str
    time: OptionalTime
    seconds: Annotated[float, ColumnUnit("s of wall-clock time")]


class RecordColumn(NamedTuple):
    """Declaration of a column of a table of records."""

    type: Any
    unit: str | None


@cache
def columns_of(record_type: type[NamedTuple]) -> Mapping[str, RecordColumn]:
    """Return the declarations of the columns of a type of record, by name."""
    columns = {}
    for name, hint in get_type_hints(record_type, include_extras=True).items():
        kind, unit = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        columns[name] = RecordColumn(kind, unit)
    return columns


def unit_of(record_type: type[NamedTuple], name: str) -> str | None:
    """Return the unit of a column, None if it has none.

    >>> unit_of(RoundRecord, "nodes"), unit_of(AllocationRecord, "nodes"), unit_of(JobRecord, "job")
    ('nodes', 'node numbers', None)
    """
    return columns_of(record_type)[name].unit


@dataclass(frozen=True)
class Result:
    """A finished run. Results are equal if all simulated values are equal; wall-clock times and reasons do not count.

    Attributes
    ----------
    job_records
        Records of all jobs, in order of submission.
    round_records
        Records of the scheduling rounds with changes, in order of time.
    allocation_records
        Records of the changes of jobs, in order of time.
    end_time
        End of the run: the end of the last job, the horizon, or a standstill [s].
    timing_records
        Wall-clock times.
    reason_records
        Reasons of the policy, in order of time.
    start_time
        Start of the run [s]: its first submission, or 0 with jobs from before the run or without jobs. Costs, GPU time
        and averages over time count from it.
    standstill
        Sentence about the reason of a standstill, in which no remaining job can progress; None for other runs.
    outage_records
        Records of the outages of nodes, in order of time.
    gpu_seconds
        GPU time of all nodes, also while they were down [GPU s]; None if unknown.
    checkpoint_records
        Records of checkpoints that do not follow from an interval, in order of time.
    sharing_records
        Records of the changes of jobs on shared GPUs, in order of time.
    host_records
        Records of the changes of CPUs and memory of jobs, in order of time.
    start_records
        Records of starts for which the policy named the restart delay, in order of time.
    reason_texts
        Sentences and units of the reasons, by kind.
    chooser_records
        Records of the changes between policy and agent as the side that chooses a batch size, in order of time.
    before_run
        Numbers of the jobs that were submitted before the start of the run; None if there are none.
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
    start_records: Sequence[StartRecord] = ()
    chooser_records: Sequence[ChooserRecord] = ()
    before_run: BeforeRun | None = field(default=None, compare=False, repr=False)
    reason_texts: Mapping[str, ReasonText] = field(default_factory=dict, compare=False, repr=False)

    @property
    def start_time(self) -> float:
        """Return the start of the run [s]: its first submission, or 0 with jobs from before the run or without jobs."""
        if not self.job_records:
            return 0.0
        # The first record has the first submission. Jobs from before the run have a negative one.
        return max(self.job_records[0].submit_time, 0.0)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Return the job records as a table."""
        return _frame(self.job_records, JobRecord._fields)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Return the round records as a table."""
        return _frame(self.round_records, RoundRecord._fields)

    @cached_property
    def allocations(self) -> pd.DataFrame:
        """Return the allocation records as a table."""
        return _frame(self.allocation_records, AllocationRecord._fields)


def down_gpu_seconds(outages: Iterable[OutageRecord], start: float, end: float) -> float:
    """Return the GPU time of nodes that were down, in the part of their outages from one time to another [GPU s]."""
    total = 0.0
    for outage in outages:
        seconds = min(outage.until, end) - max(outage.time, start)
        # Negative for an outage that is over before the start, or begins after the end.
        total += outage.gpus * max(seconds, 0.0)
    return total


def _frame(records: Sequence[NamedTuple], columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (slow to load, and not needed by a run)

    return pd.DataFrame.from_records(list(records), columns=list(columns))
