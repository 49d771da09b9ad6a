"""Kinds of reasons that several policies give, and parts of sentences that several kinds contain."""

from __future__ import annotations

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen

PLACE = (
    "The job is number {position} in the order of the policy"
    "[queues?, in queue {queue} of {queues}[queue_threshold? (up to {queue_threshold:hours} GPU-hours)], with "
    "{attained_service:hours} GPU-hours attained"
    "|queue?, in queue {queue} of 2, with {attained_service:hours} GPU-hours attained (queue 1 ends at "
    "{queue_threshold:hours})"
    "|attained_service?, with {attained_service:hours} GPU-hours attained]"
    "[gittins_index? and a Gittins index of {gittins_index:per hour} completions per GPU-hour]"
    "[time_share?, with a share of {time_share:.3g} of the time and {time_had:clock} counted since "
    "shares were computed (half a round counts at the start)"
    "|remaining_time?, with {remaining_time:clock} left to run on its GPUs]"
    "[remaining_service?, with {remaining_service:hours} GPU-hours left to run]"
    "[expected_service?, with {expected_service:hours} GPU-hours expected]"
    "[deadline?, with its deadline at {deadline:clock}]"
    "[virtual_usage?, by the usage of its queue: {virtual_usage:hours} GPU-hours per unit of weight]"
    "[multifactor?, with a multifactor priority of {multifactor:.5g}]"
    "[group_jobs?, among {group_jobs:job} that can use the same {group_gpus:GPU}]"
    "[priority?, with priority {priority}]."
)
"""Part of a sentence: the rank of a job in the order of its policy, and the numbers that decide the rank."""

LEFT = "[gpus_left=0?no GPU is|gpus_left=1?1 GPU is|{gpus_left:GPU} are] left"
"""Part of a sentence: the GPUs that are left when the turn of a job comes."""

NOT_TOGETHER = (
    "[nodes_left>=nodes_needed?, but they are not spread over nodes as the job needs them"
    "|nodes_needed=1?, but no node has {node_gpus_needed} free (the most on one node is {node_gpus_left})"
    "|nodes_needed?, but only {nodes_left:node} [nodes_left=1?has|have] {node_gpus_needed} free, and {nodes_needed} "
    "are needed]"
)
"""Part of a sentence: why free GPUs are not on the nodes that a job needs; nothing if too few GPUs are free in all."""

QUOTA = "Its queue now holds {queue_gpus:GPU} and has a quota of {quota}."
"""Sentence on the quota of the queue of a job."""

RESERVED_TIME = (
    "[reserved_time?By the planned ends of the running jobs, it starts at {reserved_time:clock} at the latest"
    "|The nodes that are up never have enough free GPUs for it]"
)
"""Sentence on the time for which GPUs are reserved, without its full stop."""

ORDER_UNITS = {
    **dict.fromkeys(("attained_service", "queue_threshold", "remaining_service", "expected_service"), "GPU s"),
    **dict.fromkeys(("remaining_time", "deadline", "time_had"), "s"),
    "gittins_index": "1/GPU s",
    "virtual_usage": "GPU s",
    "group_gpus": "GPUs",
}
"""Units of the numbers by which policies order jobs."""

GANG_UNITS = {
    **ORDER_UNITS,
    **dict.fromkeys(("gpus_needed", "gpus_left", "head_gpus_needed", "node_gpus_needed", "node_gpus_left"), "GPUs"),
    **dict.fromkeys(("nodes_needed", "nodes_left"), "nodes"),
}
"""Units of the numbers in reasons of whole jobs that wait for their turn."""

RESERVING_UNITS = {**GANG_UNITS, "reserved_time": "s"}
"""Units of the numbers in reasons of jobs with reservations."""

ELASTIC_UNITS = {
    **dict.fromkeys(("gpus", "gpus_before", "gpus_free", "gpus_left", "max_replicas", "application_limit"), "GPUs"),
    **dict.fromkeys(("last_gain", "next_gain", "winning_gain"), "s"),
    "num_gpus": "GPUs",
}
"""Units of the numbers in reasons of jobs whose number of GPUs the policy chooses."""


def is_behind_head(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether a job that the reason names waits for more GPUs than are idle on each of its types."""
    waiting = [other for other in seen.jobs if other.job_id in reason.others and seen.waits(other)]
    return any(not seen.fits_somewhere(head) for head in waiting)


def waits_on_another_type(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job can use several GPU types, and another job waits for more GPUs than are idle."""
    return len(job.speeds) > 1 and seen.another_does_not_fit(job)


def another_does_not_fit(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether another job waits for more GPUs than are idle."""
    return seen.another_does_not_fit(job)


def needs_a_power_of_two(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the smallest power of two of GPUs that the job can run on exceeds the idle GPUs of each type."""
    fewest = 1 << (job.min_replicas - 1).bit_length()
    return all(fewest > seen.free[name] for name in job.speeds)


def was_preempted(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job held GPUs before, and a job that the reason names gets GPUs."""
    return job.gpus_before > 0 and any(seen.held.get(name, 0) > 0 for name in reason.others)


GANG_FITS = ReasonKind(
    "gang-fits",
    f"{PLACE} When its turn comes, {LEFT}, and the job gets the {{gpus_needed}} that it needs.",
    GANG_UNITS,
    "The GPUs that are left suffice for the whole job.",
)
GANG_DOES_NOT_FIT = ReasonKind(
    "gang-does-not-fit",
    f"{PLACE} It needs {{gpus_needed:GPU}} at once. When its turn comes, {LEFT}{NOT_TOGETHER}"
    "[. The nearest jobs ahead of it that get GPUs: {others}].",
    GANG_UNITS,
    "The GPUs that are left do not suffice for the whole job.",
    excuses_waiting=waits_on_another_type,
)
BEHIND_HEAD_OF_LINE = ReasonKind(
    "behind-head-of-line",
    f"{PLACE} {{first}}, ahead of it, needs {{head_gpus_needed:GPU}}, and {LEFT}{NOT_TOGETHER}. The policy lets no "
    "job overtake, so this job waits too, for {gpus_needed:GPU}.",
    GANG_UNITS,
    "An earlier job does not fit, and no job may overtake it.",
    excuses_waiting=is_behind_head,
)
RUNS_ON = ReasonKind(
    "runs-on",
    f"The job keeps its GPUs, because [quota?no job preempts it. {QUOTA}|the policy preempts no job.]",
    dict.fromkeys(("gpus_needed", "gpus_free", "gpus_available", "quota", "queue_gpus"), "GPUs"),
    "A running job keeps its GPUs.",
)
SPEEDUPS = (
    "The speedup of the job over a fair share of the GPUs is {speedup:.2f}[; with the next larger number of GPUs it "
    "would be {speedup_more:.2f}][; with the next smaller, {speedup_fewer:.2f}]. Its restart factor is "
    "{restart_factor:.2f}."
)
"""Sentence on the speedups of a job under Pollux."""

AT_LIMIT = ReasonKind(
    "at-limit",
    "The job has {max_replicas:GPU}, "
    "[application_limit?[max_replicas>=application_limit?the most that its largest batch size allows."
    "|the most that it may have now: the least of all GPUs, the maximum of its user, and twice the largest number on "
    f"which it has run.] {SPEEDUPS}"
    f"|restart_factor?the most that it may have before its first measurement. {SPEEDUPS}"
    "|the most that its batch size or its user allows.]",
    ELASTIC_UNITS,
    "A job has the most GPUs that it may have.",
)
NO_GAIN = ReasonKind(
    "no-gain",
    f"Another GPU would not make the job faster.[speedup? {SPEEDUPS}]",
    ELASTIC_UNITS,
    "Another GPU makes a job no faster.",
)
NO_LEAST_LEFT = ReasonKind(
    "no-least-left",
    "[gpus_left=0?No GPU is left for the job|[gpus_left=1?Only 1 GPU is|Only {gpus_left:GPU} are] left for the job, "
    "fewer than the smallest number on which it can run], so it waits.",
    ELASTIC_UNITS,
    "The GPUs that are left are fewer than the smallest number on which the job runs.",
)
