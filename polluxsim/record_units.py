"""The units of what a run leaves, by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple

REASON_UNITS = {
    "gpus": "GPUs",
    "gpus_before": "GPUs",
    "gpus_needed": "GPUs",
    "gpus_left": "GPUs",
    "gpus_free": "GPUs",
    "head_gpus_needed": "GPUs",
    "group_gpus": "GPUs",
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
    "remaining_service": "GPU s",
    "expected_service": "GPU s",
    "gittins_index": "1/GPU s",
    "deadline": "s",
    "reserved_time": "s",
    "planned_end": "s",
    "lease_end": "s",
    "quota": "GPUs",
    "queue_gpus": "GPUs",
    "virtual_usage": "GPU s",
    "time_had": "s",
    "shares_due": "s",
}
"""Unit of the figures in reasons that have one; the others are plain numbers."""

UNITS = {
    "submit_time": "s",
    "start_time": "s",
    "completion_time": "s",
    "jct": "s",
    "queueing_delay": "s",
    "gpu_seconds": "GPU s",
    "restart_gpu_seconds": "GPU s",
    "checkpoint_gpu_seconds": "GPU s",
    "lost_gpu_seconds": "GPU s",
    "run_time": "s",
    "restart_time": "s",
    "checkpoint_time": "s",
    "lost_time": "s",
    "until": "s",
    "lost_work": "M0-steps",
    "work": "M0-steps",
    "finish_time_fairness": "1, less is better",
    "time": "s",
    "gpus_in_use": "GPUs",
    "gpus": "GPUs on each of nodes",
    "num_replicas": "GPUs",
    "min_replicas": "GPUs",
    "max_replicas": "GPUs",
    "end_time": "s",
    "deadline": "s",
    "time_limit": "s",
    "cancel_time": "s",
    "RoundRecord.nodes": "nodes",
    "AllocationRecord.nodes": "node numbers",
    "OutageRecord.gpus": "GPUs",
    "SharingRecord.nodes": "node numbers",
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

    >>> from polluxsim.records import AllocationRecord, JobRecord, RoundRecord
    >>> unit_of(RoundRecord, "nodes"), unit_of(AllocationRecord, "nodes"), unit_of(JobRecord, "job")
    ('nodes', 'node numbers', None)
    """
    return UNITS.get(f"{record_type.__name__}.{name}", UNITS.get(name))
