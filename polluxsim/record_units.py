"""The units of what a run leaves, by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple

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

    >>> from polluxsim.records import AllocationRecord, JobRecord, RoundRecord
    >>> unit_of(RoundRecord, "nodes"), unit_of(AllocationRecord, "nodes"), unit_of(JobRecord, "job")
    ('nodes', 'node numbers', None)
    """
    return UNITS.get(f"{record_type.__name__}.{name}", UNITS.get(name))
