"""Kinds of reasons of queues with quotas, and of dominant-resource fairness.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one.
"""

from __future__ import annotations

from math import inf

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.policies.tools.reason_kinds import NOT_TOGETHER, QUOTA, another_does_not_fit, was_preempted

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
    used = 0  # GPUs of the queue of the job
    another_borrows = False
    for other in seen.jobs:
        if other.queue == job.queue:
            used += seen.held[other.job_id]
        elif other.reason is not None:
            numbers = other.reason.numbers
            another_borrows = another_borrows or numbers.get("queue_gpus", 0) > numbers.get("quota", inf)
    is_beyond_quota = used + job.num_replicas > reason.numbers.get("quota", inf)
    needs_too_much = job.num_replicas > reason.numbers.get("gpus_available", inf)
    return needs_too_much and (is_beyond_quota or another_borrows)


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
    f"{NOT_TOGETHER}. {QUOTA} By the quotas and limits of all queues, its queue may take at most {{gpus_available}} "
    "more (GPUs of nodes that are down count, too)[gpus_available<gpus_needed?. So its queue may not take enough"
    "|gpus_free<gpus_needed?. So its queue may take enough, but too few GPUs are idle].",
    _UNITS,
    "The quotas or the idle GPUs do not suffice for a job.",
    excuses_waiting=exceeds_quota,
)

_NEEDS = "{gpus_needed:GPU}[ with {cpus_needed:CPU} and {memory_part:%} of all memory]"
_OWNER = "its [by_user=1?user|queue]"
_UNITS_OF_SHARES = {
    **dict.fromkeys(("gpus_needed", "head_gpus", "gpus_left", "gpus_usable", "node_gpus_left"), "GPUs"),
    "cpus_needed": "CPUs",
}

LOWEST_SHARE = ReasonKind(
    "least-share",
    f"The job gets {_NEEDS}, because {_OWNER} had the lowest dominant share of those whose next job fits"
    "[share_before?, {share_before:%}]. Equal shares go by the priority, then by the submission, of the next job. With "
    "all starts of this round, this share is {dominant_share:%}.",
    _UNITS_OF_SHARES,
    "A job starts, because its queue or user has the lowest dominant share.",
)
NEVER_FITS = ReasonKind(
    "never-fits",
    f"The policy rejects the job: it needs {_NEEDS}, and the nodes that it can use never have as much for it.",
    _UNITS_OF_SHARES,
    "A job is rejected, because it fits on no nodes.",
)
SHARE_WAITS = ReasonKind(
    "share-waits",
    f"The job needs {_NEEDS}[others?, and waits behind {{first}}, the next job of the same [by_user=1?user|queue], "
    "which does not fit. {first} needs {head_gpus:GPU}]. After the starts of this round, [gpus_left=0?no GPU is"
    "|{gpus_left:GPU} [gpus_left=1?is|are]] free[gpus_left>0?[gpus_usable?, {gpus_usable} of them with enough CPUs and "
    "memory], at most {node_gpus_left} on one node]. The policy preempts no job, and the [by_user=1?user|queue] with "
    "the lowest "
    f"dominant share goes first; the share of {_OWNER} is {{dominant_share:%}}.",
    _UNITS_OF_SHARES,
    "A job waits, because it or an earlier job of its queue or user does not fit.",
    excuses_waiting=another_does_not_fit,
)
