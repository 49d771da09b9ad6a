"""Kinds of reasons of queues with quotas."""

from __future__ import annotations

from math import inf

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.policies.tools.reason_kinds import NOT_TOGETHER, QUOTA, was_preempted

_UNITS = {
    **dict.fromkeys(("gpus_needed", "quota", "queue_gpus", "gpus_free", "gpus_available"), "GPUs"),
    **dict.fromkeys(("node_gpus_needed", "node_gpus_left"), "GPUs"),
    **dict.fromkeys(("nodes_needed", "nodes_left"), "nodes"),
    "submitted": "s",
}


def exceeds_quota(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job needs more than its queue may get, and exceeds its quota or another queue borrows GPUs.

    Without reclaims, the quota of a queue may be lent while all idle GPUs are of queues that lend none.
    """
    used = sum(seen.held[other.job_id] for other in seen.jobs if other.queue == job.queue)
    is_beyond_quota = used + job.num_replicas > reason.numbers.get("quota", inf)
    other_queues = [
        other.reason.numbers for other in seen.jobs if other.queue != job.queue and other.reason is not None
    ]
    is_lent = any(numbers.get("queue_gpus", 0) > numbers.get("quota", inf) for numbers in other_queues)
    return (is_beyond_quota or is_lent) and job.num_replicas > reason.numbers.get("gpus_available", inf)


WITHIN_QUOTA = ReasonKind(
    "within-quota",
    "The job gets the {gpus_needed:GPU} that it needs, because [gpus_needed=1?it was|they were] within the quota of "
    "its queue at its turn. "
    f"{QUOTA}",
    _UNITS,
    "A job starts within the quota of its queue.",
)
BORROWS = ReasonKind(
    "borrows",
    f"The job gets the {{gpus_needed:GPU}} that it needs, and its queue borrows what exceeds its quota. {QUOTA}"
    "[ Of the next jobs of all queues, [fair_sharing=1?the one whose queue would exceed its quota least for its "
    "weight goes first, at equal shares|those within quotas go first, then those that borrow, in both cases] "
    "by priority, then by submission. This job has priority {priority}, and was submitted at {submitted:clock}.]",
    _UNITS,
    "A job starts, and its queue borrows GPUs.",
)
RECLAIMED = ReasonKind(
    "reclaimed",
    "{first} takes the GPUs of this job, which were borrowed: the queue of {first} is within its quota or, with fair "
    f"sharing, borrows less. {QUOTA}",
    _UNITS,
    "A job of another queue takes borrowed GPUs.",
    excuses_waiting=was_preempted,
)
PREEMPTED = ReasonKind(
    "preempted",
    f"{{first}}, a job of the same queue with a higher priority, preempts this job. {QUOTA}",
    _UNITS,
    "A job of the same queue takes the GPUs of a job.",
    excuses_waiting=was_preempted,
)
NO_QUOTA_LEFT = ReasonKind(
    "no-quota-left",
    "The job needs {gpus_needed:GPU}. [gpus_free=0?No GPU is|{gpus_free:GPU} [gpus_free=1?is|are]] idle"
    f"{NOT_TOGETHER}. Beyond the GPUs that it holds, its queue may take at most {{gpus_available}}. {QUOTA}",
    _UNITS,
    "The quotas or the idle GPUs do not suffice for a job.",
    excuses_waiting=exceeds_quota,
)
