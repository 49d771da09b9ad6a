"""Kinds of reasons that several policies give, and parts of sentences that several kinds contain.

The sentence of a kind is a template, which `polluxsim.common.templates.filled` explains. `{gpus_left:GPU}` is a number
with its unit, "1 GPU" or "2 GPUs". `[first|second]` becomes the first choice whose numbers a reason has, or nothing,
and a choice may begin with a condition: `[gpus_left=0?none is|{gpus_left:GPU} are] left` becomes "none is left" or "2
GPUs are left". In an f-string, doubled braces stand for single ones, and a name in capitals is a part from this module.

Parts of sentences come first, then the units of the numbers, the tests whether a reason is true, and the kinds.
"""

from __future__ import annotations

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen

PLACE = (
    "The job is number {position} [of_waiting?of the waiting jobs |]in the order of the policy"
    "[group_jobs>1? among the {group_jobs:job} that can use the same {group_gpus:GPU}]"
    "[queue_type? for type {queue_type:label}]"
    "[all_fit? (all jobs request no more GPUs than are up, so running jobs go first)|keeps_running? (running jobs go "
    "first)]"
    # The order of each policy in turn. Only one of these applies, because policies state different numbers.
    # Tiresias-L, then Tiresias.
    "[queues?, in queue {queue} of {queues}[queue_threshold? (up to {queue_threshold:hours} GPU-hours)], with "
    "{attained_service:hours} GPU-hours attained. In a queue, jobs with GPUs move ahead of waiting jobs"
    "[queue_entered?. Otherwise jobs stay in the order in which they entered it, this job at {queue_entered:clock}]"
    "|queue?, in queue {queue} of 2, with {attained_service:hours} GPU-hours attained (queue 1 ends at "
    "{queue_threshold:hours} GPU-hours). [queue=1?Queue 1 goes by submission|Queue 2 goes by the time at which jobs "
    "entered it]"
    # Least attained service in quanta, and the Gittins index, which another part below states.
    "|quanta?, [gittins_index?|the fewest whole quanta attained first, this job ]with {quanta} whole "
    "[quanta=1?quantum|quanta] of {quantum:hours} "
    "[quantum=3600?GPU-hour|GPU-hours] attained ({attained_service:hours} GPU-hours in all)[gittins_index?|. "
    "Jobs with equal quanta go by submission, then in the order of the list of jobs]"
    "|attained_service?, the fewest GPU-hours attained first, this job with "
    "{attained_service:hours}[submission_next?. Jobs with equal GPU-hours "
    "go by submission, then in the order of the list of jobs]]"
    # The Gittins index, by the number of ended jobs (services), and of those that needed more service.
    "[gittins_index?[services=0?. No job has ended yet, so the jobs are in order of submission"
    "|longer_services=0? and a Gittins index of 0, because [services=1?the only job that has ended did not need"
    "|none of the {services:job} that have ended needed] more than these quanta. The largest index goes first, equal "
    "ones by submission, "
    "then in the order of the list of jobs"
    "| and a Gittins index of {gittins_index:per hour} completions per GPU-hour, from "
    "[services=1?the only job that has ended. That job|longer_services=services?all {services:job} that have ended. "
    "They|{longer_services} of the {services:job} that have ended. [longer_services=1?That job|Those jobs]] needed "
    "more than these quanta. The largest index goes first, equal ones by submission, then in the order of "
    "the list of jobs]]"
    # Policies that compute a share of the time for each job. A time below half a second is not printed.
    "[shares_due?. It has no share of the time yet, because it arrived after the policy last computed shares. The "
    "policy computes them again at {shares_due:clock} or later. Until then, such jobs go after those with a share, by "
    "submission, then in the order of the list of jobs"
    "|time_share=0?. Its share of the time is 0 since the policy last computed shares. Such jobs go last, first those "
    "that lacked most time before ([time_lacked>0.5?this job {time_lacked:clock}"
    "|time_ahead>0.5?this job had {time_ahead:clock} too much|this job none]), then by submission, then in the order "
    "of the list of jobs"
    "|time_share?[equal_shares=1?, by the time that it has had, the least first, because all jobs have the same share. "
    "It has had {time_had:clock}"
    "|, by its due share of the time over the time that it has had, the largest first. Its share is {time_share:.3g} "
    "(shares count relative to those of the other jobs), and it has had {time_had:clock}] since shares were computed "
    "(half a round counts at the start, start-ups do not)"
    ". At equal [equal_shares=1?times|ratios], the job that lacked most time before goes first (this job "
    "[time_lacked>0.5?lacked {time_lacked:clock}|time_ahead>0.5?had {time_ahead:clock} too much|lacked none])"
    "[equal_shares=1?|, then the job with the larger share], then the first submitted, then the first in the list of "
    "jobs"
    # Policies that know the true durations, or expect them.
    "|remaining_time?, the least time left to run first, this job with {remaining_time:clock} on the GPUs that it "
    "requests. Jobs with equal times "
    "go by submission, then in the order of the list of jobs]"
    "[remaining_service?, the fewest GPU-hours left to run first, this job with {remaining_service:hours}"
    "[group_types>1? on the fastest type that it can use]. Jobs with equal GPU-hours go by submission, then in the "
    "order of the list of jobs]"
    "[expected_service?[learnt_jobs=0?. No job has completed yet, so all jobs count as equal and stay in order of "
    "submission, then of the list of jobs|, the fewest expected GPU-hours first, this job with "
    "{expected_service:hours}, by the jobs that have "
    "ended. "
    "Jobs with equal GPU-hours go by submission, then in the order of the list of jobs]]"
    # Deadlines, use by the queue, priorities and utilities.
    "[deadline?, the earliest deadline first, this job with {deadline:clock}, equal ones by submission, then in the "
    "order of the "
    "list of jobs"
    "|no_deadline?, without a deadline: such jobs come last, in order of submission, then of the list of jobs]"
    "[virtual_usage?, by the GPU time of the queues per unit of weight, the least first, then by submission, then in "
    "the order of the list of jobs. Its queue "
    "has used {virtual_usage:hours} GPU-hours per unit of weight[turn_usage>virtual_usage?, and counts "
    "{turn_usage:hours} at the turn of this job: "
    "each of its running and earlier jobs counts {lookahead:clock} more on its GPUs]]"
    "[multifactor?, by the multifactor priority, the highest first, this job with {multifactor:.5g}[fair_share_part?: "
    "{fair_share_part:.5g} by the "
    "fair share of its user, {priority_part:.5g} by its own priority, {age_part:.3g} by its waiting time and "
    "{size_part:.3g} by its size]. Equal priorities go by submission, then in the order of the "
    "list of jobs]"
    "[utility?, by the utility per GPU, the largest first[utility_per_gpu?, this job with {utility_per_gpu:per hour} "
    "per hour]]"
    "[priority?, with priority {priority}. [protected_until?It goes first until {protected_until:clock}, because it "
    "started less than {min_run_time:clock} before|Jobs that started less than {min_run_time:clock} ago go first, then "
    "the highest priority. Of equal ones, running jobs go first, then the first submitted, then the first in the list "
    "of jobs]]"
    # First in, first out.
    "[submitted?: running jobs first, then by submission, this job at {submitted:clock}, equal ones in the order of "
    "the list of jobs"
    "|arrived?, by submission, this job at {arrived:clock}, equal ones in the order of the list of jobs]."
)
"""Part of a sentence: the rank of a job in the order of its policy, and the numbers that decide the rank."""

LEFT = (
    "[gpus_left=0?no GPU is|gpus_left=1?1 GPU is|{gpus_left:GPU} are] left"
    "[gpus_up?[gpus_up=0?, because no node[left_type? of any type that it can use|queue_type? of any type that it can "
    "use] is available now|gpus_up=1? of the only one that is available now| of the {gpus_up} that are available now]]"
    "[gpus_up=0?|queue_type?|left_type? [gpus_left=0?of any type that it can use and that has enough GPUs for it|of "
    "type {left_type:label}]]"
)
"""Part of a sentence: the GPUs that are left when the turn of a job comes, and on several types, their type."""

NOT_TOGETHER = (
    "[nodes_left>=nodes_needed?, but they are not spread over nodes as the job needs them"
    "|nodes_needed=1?, but no node has {node_gpus_needed} free (the most on one node is {node_gpus_left})"
    "|nodes_needed?, but only {nodes_left:node} [nodes_left=1?has|have] {node_gpus_needed} free, and {nodes_needed} "
    "are needed]"
)
"""Part of a sentence: why free GPUs are not on the nodes that a job needs; nothing if too few GPUs are free in all."""

QUOTA = "Its queue now holds {queue_gpus:GPU} and has a quota of {quota}."
"""Sentence on the quota of the queue of a job."""

ALL_TAKEN = "[num_gpus=1?The only GPU that is up is|All {num_gpus:GPU} that are up are] taken"
"""Part of a sentence: no GPU is left."""

RESERVED_TIME = (
    "[reserved_time?By the planned ends of the running jobs, it starts at {reserved_time:clock} at the latest"
    "|The policy cannot reserve GPUs for it yet, because the nodes that are available now cannot hold it, even after "
    "all other jobs have ended]"
)
"""Sentence on the time for which GPUs are reserved, without its full stop."""

ORDER_UNITS = {
    **dict.fromkeys(("attained_service", "queue_threshold", "remaining_service", "expected_service"), "GPU s"),
    **dict.fromkeys(("remaining_time", "deadline", "time_had", "ahead_had", "submitted", "arrived"), "s"),
    "gittins_index": "1/GPU s",
    "utility_per_gpu": "1/s",
    **dict.fromkeys(("virtual_usage", "turn_usage", "quantum"), "GPU s"),
    **dict.fromkeys(("time_lacked", "time_ahead", "shares_due", "lookahead", "queue_entered"), "s"),
    **dict.fromkeys(("ahead_lacked", "ahead_too_much", "ahead_remaining_time", "ahead_deadline"), "s"),
    **dict.fromkeys(("ahead_remaining_service", "ahead_attained_service", "ahead_expected_service"), "GPU s"),
    **dict.fromkeys(("min_run_time", "protected_until"), "s"),
    **dict.fromkeys(("group_gpus", "queue_type"), "GPUs"),
}
"""Units of the numbers by which policies order jobs."""

GANG_UNITS = {
    **ORDER_UNITS,
    **dict.fromkeys(("gpus_needed", "gpus_left", "head_gpus_needed", "node_gpus_needed", "node_gpus_left"), "GPUs"),
    "gpus_up": "GPUs",
    **dict.fromkeys(("nodes_needed", "nodes_left"), "nodes"),
    "left_type": "GPUs",
}
"""Units of the numbers in reasons of whole jobs that wait for their turn."""

RESERVING_UNITS = {**GANG_UNITS, "reserved_time": "s", "planned_end": "s"}
"""Units of the numbers in reasons of jobs with reservations."""

ELASTIC_UNITS = {
    **dict.fromkeys(("gpus", "gpus_before", "gpus_free", "gpus_left", "max_replicas", "application_limit"), "GPUs"),
    **dict.fromkeys(("fewest_gpus", "user_limit", "next_gpus", "gpus_needed"), "GPUs"),
    **dict.fromkeys(("last_gain", "next_gain", "winning_gain", "remaining_time", "next_time"), "s"),
    "num_gpus": "GPUs",
    **dict.fromkeys(("age", "restart_delay"), "s"),
    "gpu_time": "GPU s",
}
"""Units of the numbers in reasons of jobs whose number of GPUs the policy chooses."""


def is_behind_head(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether a job that the reason names waits for more GPUs than are idle on each of its types."""
    for other in seen.jobs:
        is_waiting_head = other.job_id in reason.others and seen.waits(other)
        if is_waiting_head and not seen.fits_somewhere(other):
            return True
    return False


def waits_on_another_type(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job can use several GPU types, and another job waits for more GPUs than are idle."""
    return len(job.speeds) > 1 and seen.another_does_not_fit(job)


def another_does_not_fit(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether another job waits for more GPUs than are idle."""
    return seen.another_does_not_fit(job)


def needs_a_power_of_two(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job's fewest GPUs, rounded up to a power of two, exceed the idle GPUs of all its types."""
    fewest = 1 << (job.min_replicas - 1).bit_length()  # the minimum, rounded up to a power of two
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
    "[gpus_up=0?|queue_type?[other_types>0?, and its other types have too few left at its turns there]"
    "|left_type?[gpus_left>0?, and no more of any other type that it can use]]"
    "[gpus_up=0?|others?. The nearest jobs ahead of it that get GPUs: {others}"
    "[time_share>0?[ahead_share>0?. {first} has had {ahead_had:clock}[equal_shares=1?|, and its share is "
    "{ahead_share:.3g}][ahead_is_equal=1?, and [ahead_lacked>0.5?lacked {ahead_lacked:clock}"
    "|ahead_too_much>0.5?had {ahead_too_much:clock} too much|lacked none] before]]]"
    # The value of the nearest job ahead, of policies that state one.
    "[ahead_remaining_time?. {first} has {ahead_remaining_time:clock} left to run"
    "|ahead_remaining_service?. {first} has {ahead_remaining_service:hours} GPU-hours left to run"
    "|ahead_expected_service?. {first} has {ahead_expected_service:hours} GPU-hours expected"
    "|ahead_attained_service?. {first} has attained {ahead_attained_service:hours} GPU-hours"
    "|ahead_deadline?. The deadline of {first} is at {ahead_deadline:clock}]].",
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
    "would be {speedup_more:.2f}][; with the next smaller, {speedup_fewer:.2f}]. Its restart factor, the part "
    "of a speedup that counts after a restart, is {restart_factor:.2f}."
)
"""Sentence on the speedups of a job under Pollux."""

MOST_ALLOWED = (
    "[exceeds_agent=1?the fewest that its user allows; its agent, by the batch size or by the GPUs that it has tried, "
    "would allow no more"
    "|user_limits=0?the most that its agent allows now, by the batch size or by the GPUs that it has tried (its user "
    "states no limit)|the most that its user and its agent allow now]"
)
"""Part of a sentence: which limit the most GPUs of a job are, by `limit_numbers`."""

AT_LIMIT = ReasonKind(
    "at-limit",
    "The job has {max_replicas:GPU}, "
    "[application_limit?[max_replicas>=application_limit?the most that its largest batch size allows."
    "|max_replicas>=num_gpus?all GPUs of the cluster."
    "|doubled=1?the most that it may have now: twice the {gpus_before} that it had before."
    f"|the most that it may have now: the maximum of its user, or twice the largest number on which it ran.] {SPEEDUPS}"
    f"|restart_factor?the most that it may have before its first measurement. {SPEEDUPS}"
    f"|{MOST_ALLOWED}.]",
    ELASTIC_UNITS,
    "A job has the most GPUs that it may have.",
)
NO_GAIN = ReasonKind(
    "no-gain",
    "[next_time?The job has {gpus:GPU} and would end in {remaining_time:clock} with [gpus=1?it|them]. With one more, "
    "it would end [next_time>remaining_time?later|no earlier], in {next_time:clock}, so the policy gives it no more."
    f"|The job has {{gpus:GPU}}. With one more, it would not be faster.[speedup? {SPEEDUPS}]]",
    ELASTIC_UNITS,
    "Another GPU makes a job no faster.",
)
NO_LEAST_LEFT = ReasonKind(
    "no-least-left",
    "[gpus_left=0?No GPU is|gpus_left=1?Only 1 GPU is|Only {gpus_left:GPU} are] "
    "[gpus_left=num_gpus?available now. The job|left for the job. It] needs at least "
    "{fewest_gpus}, so it waits.[fitness?[ The search gave the other GPUs to {others}: this division has the "
    "largest fitness that it found, {fitness:.5g}.]|others? The policy first gives each job its fewest GPUs, in order "
    "of submission. The nearest jobs ahead that get theirs: {others}.]",
    ELASTIC_UNITS,
    "The GPUs that are left are fewer than the smallest number on which the job runs.",
)
