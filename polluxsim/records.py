"""What a run leaves: frozen records of jobs, rounds, allocations and timings, and the result that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class Status(StrEnum):
    """How a job ended: it did all its work, or the run ended before it."""

    COMPLETED = "completed"
    CUT_OFF = "cut off"


class JobRecord(NamedTuple):
    """One job's history; times that never came are None [s; GPU s].

    `run_time` is how long it held GPUs, `restart_time` how much of that went into starts and restarts, and
    `finish_time_fairness` its completion time over that alone on an equal share of the cluster, None if it was cut off
    or its profile says nothing about that share.
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


class RoundRecord(NamedTuple):
    """The cluster just after one scheduling round [s; 1; GPUs; M0-equivalent examples/s; 1], and the decision.

    `nodes` are up, `hourly_cost` is the price of all that are up or coming, `cost` what nodes have cost so far.

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


REASON_UNITS = {
    "gpus": "GPUs",
    "gpus_before": "GPUs",
    "gpus_needed": "GPUs",
    "gpus_left": "GPUs",
    "gpus_free": "GPUs",
    "head_gpus_needed": "GPUs",
    "num_gpus": "GPUs",
    "fair_share": "GPUs",
    "max_replicas": "GPUs",
    "application_limit": "GPUs",
    "attained_service": "GPU s",
    "queue_threshold": "GPU s",
    "remaining_time": "s",
    "last_gain": "s",
    "next_gain": "s",
    "winning_gain": "s",
    "age": "s",
}
"""Unit of the figures in reasons that have one; the others are plain numbers."""

UNITS = {
    "submit_time": "s",
    "start_time": "s",
    "completion_time": "s",
    "jct": "s",
    "queueing_delay": "s",
    "gpu_seconds": "GPU s",
    "run_time": "s",
    "restart_time": "s",
    "finish_time_fairness": "1, less is better",
    "time": "s",
    "gpus_in_use": "GPUs",
    "gpus": "GPUs on each of nodes",
    "nodes": "node numbers",
    "goodput": "M0-equivalent examples/s",
    "efficiency": "1, weighted by GPUs",
    "batch_size": "examples",
    "accumulation_steps": "1",
    "seconds": "s of wall-clock time",
    "numbers": "by name: " + ", ".join(f"{name} {unit}" for name, unit in REASON_UNITS.items()) + "; others 1",
}
"""Unit of every column that has one, by name: a name has one unit everywhere."""


@dataclass(frozen=True)
class Result:
    """A finished run. Two results are equal if all that was simulated is; wall-clock times do not count.

    Attributes
    ----------
    job_records
        A record per job, in order of submission.
    round_records
        A record per scheduling round, in order of time.
    allocation_records
        A record per change of a job, in order of time.
    end_time
        When the run ended: at the last completion, or at its horizon [s].
    timing_records
        Wall-clock times.
    reason_records
        What decided about jobs, as far as the policy says, in order of time; not part of what was simulated either.
    """

    job_records: tuple[JobRecord, ...]
    round_records: tuple[RoundRecord, ...]
    allocation_records: tuple[AllocationRecord, ...]
    end_time: float
    timing_records: tuple[TimingRecord, ...] = field(default=(), compare=False, repr=False)
    reason_records: tuple[ReasonRecord, ...] = field(default=(), compare=False, repr=False)

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


def _frame(records: tuple[NamedTuple, ...], columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415  (slow to load, and a run needs none of it)

    return pd.DataFrame.from_records(list(records), columns=list(columns))
