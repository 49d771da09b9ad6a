"""The jobs that run or wait on a cluster at one time, as a site's tools print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polluxsim.logs.formats.base import Place


class QueuedJob(NamedTuple):
    """A job that runs or waits at present."""

    place: Place
    name: str  # id, or namespace and name
    submitted: float  # [s since 1970-01-01 UTC]
    num_gpus: float  # GPUs, or what counts as GPUs
    started: float | None = None  # start of a running job [s since 1970-01-01 UTC]; None for a job that waits
    # GPUs of a running job by the name of the node. Empty if unknown.
    placement: tuple[tuple[str, int], ...] = ()
    user: str | None = None
    tenant: str | None = None  # account or namespace
    partitions: tuple[str, ...] = ()  # partitions, or queues of Kubernetes, in which the job may run
    job_name: str | None = None
    qos: str | None = None
    priority: float | None = None
    time_limit: float | None = None  # [s]
    num_nodes: int | None = None  # different nodes that the job requests; None if it does not say
    gpus_per_task: int | None = None  # GPUs that must be on one node; 1 if they may be anywhere
    gpu_type: str | None = None
    begin: float | None = None  # earliest start that the user asked for [s since 1970-01-01 UTC]
    after: tuple[str, ...] = ()  # names of jobs of the queue that must end before
    reason: str = ""  # why a waiting job waits, in the words of the scheduler
    kept_out: str = ""  # why a waiting job cannot start for now, whatever is free; "" if it can

    @property
    def is_running(self) -> bool:
        """Return whether the job runs."""
        return self.started is not None


class Queue(NamedTuple):
    """The jobs of a cluster at one time."""

    source: str  # name of the file
    time: float  # time of the state [s since 1970-01-01 UTC]
    time_from: str  # how the time is known
    jobs: tuple[QueuedJob, ...]
    left_out: Mapping[str, int] = Counter()  # rows that are no job with GPUs that runs or waits, by reason
    notes: Sequence[str] = ()  # sentences on assumptions about some jobs
