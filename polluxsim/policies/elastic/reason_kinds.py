"""Kinds of reasons of elastic policies.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one.
"""

from __future__ import annotations

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.policies.tools.reason_kinds import ALL_TAKEN, ELASTIC_UNITS, MOST_ALLOWED

PROPORTIONAL_SHARE = ReasonKind(
    "proportional-share",
    "The policy divides {num_gpus:GPU} in proportion to the requests, which come to {demand:GPU} "
    "[num_jobs=1?for the only job|for the {num_jobs:job}] that [num_jobs=1?runs or waits|run or wait]. The request of "
    "this job for {gpus_needed:GPU} comes to {fair_share:.2f}. Each turn goes to the job with the smallest part of its "
    "request so far, of equal ones to the first submitted, then to the first in the list of jobs. In its turn, a job "
    "gets one GPU more, or at once all GPUs "
    "without which it cannot run. This job gets [gpus=0?none|{gpus}][left_at_end?. At its next turn, "
    "it needed {next_gpus} more, and [left_at_end=0?none was|left_at_end=1?1 was|{left_at_end} were] left"
    "|, the most that it may have now].[has_1? Of the other jobs, these have most GPUs: {has_1:label} {has_1}"
    "[has_2?, {has_2:label} {has_2}][has_3?, {has_3:label} {has_3}].]",
    {**ELASTIC_UNITS, **dict.fromkeys(("fair_share", "demand", "left_at_end", "has_1", "has_2", "has_3"), "GPUs")},
    "A job gets GPUs in proportion to its request.",
)
GAIN_TOO_SMALL = ReasonKind(
    "gain-too-small",
    "[others?The policy gives each next GPU to the job that saves most time by it, of equal ones to the first "
    "submitted. [steps_left?According to its log, about {steps_left:.0f} steps of this job remain. ]"
    "|The policy first gives jobs their fewest GPUs, in order of submission, then of the list of jobs. This job is "
    "number "
    "{position} of the {num_jobs} that run or wait now. It takes its fewest, {gpus:GPU}, "
    "[other_holders=0?which [num_gpus=1?is the only GPU that is up|are all {num_gpus:GPU} that are up]"
    "|and with those of {other_holders:other job} this takes all {num_gpus:GPU} that are up]. So none is left to give "
    "by the time that it saves. ]"
    "[last_gain?Its last GPU saves this job {last_gain:clock}, and one more would save it {next_gain:clock}."
    "|One GPU more would save this job {next_gain:clock}.]"
    "[weight<1? These times count {weight:.3g} times, because the job has logged too few losses.]"
    f"[others? {ALL_TAKEN}. The last free one went to [won_last=1?this job|{{first}}, which saves "
    f"{{winning_gain:clock}} by "
    "it].]",
    ELASTIC_UNITS,
    "Another job gains more from the last GPU.",
)
WON_AGAINST = ReasonKind(
    "won-against",
    "Of two jobs, the policy gives the next GPU to the one that ends sooner (at equal times, the later in the list of "
    "jobs), unless the other would save a larger share of its time by it than the first would gain in speed. "
    "[gpus=0?This job has won no GPU. On the fewest that it can use, {next_gpus}, it would end in "
    "{remaining_time:clock}|This job has won {gpus:GPU}, and would end in {remaining_time:clock}]"
    "[next_gpus?[gpus=0?|next_time>=remaining_time?; with {next_gpus} more, it would end no sooner"
    "|; with {next_gpus} more, in {next_time:clock}[speed_gain?, {speed_gain:%} faster|time_saved?, "
    "{time_saved:%} less]]|. It may not have more now]."
    "[next_gpus>gpus_left? [gpus_left=0?No GPU of {num_gpus} is|{gpus_left} of {num_gpus:GPU} [gpus_left=1?is|are]] "
    "left[gpus=0?, so it waits]."
    "[[next_gpus>left_before? The last [winner_gpus=1?one|{winner_gpus}]"
    "|left_at_end>0? Too few were left for this job from the turn on at which {winner_gpus:GPU} of {left_before}"
    "| The last [winner_gpus=1?one|{winner_gpus}]] went to {first}, which would end in {winner_time:clock} with "
    "[winner_gpus=1?it|them][ instead of {winner_before:clock}[winner_speed_gain?, {winner_speed_gain:%} faster"
    "|winner_time_saved?, {winner_time_saved:%} less]]."
    "[next_gpus>left_before? At that turn, only {left_before} [left_before=1?was|were] left for this job.]]]",
    {
        **ELASTIC_UNITS,
        **dict.fromkeys(("winner_time", "winner_before"), "s"),
        **dict.fromkeys(("winner_gpus", "left_before"), "GPUs"),
    },
    "The GPUs that a job won against the other jobs.",
)
LARGEST_SUM = ReasonKind(
    "largest-sum",
    "The policy first gives jobs their fewest GPUs, in order of submission. What is left of the {num_gpus:GPU} goes to "
    "these jobs so that the sum of their speedups, each over the fewest GPUs of the job, is largest. "
    "[most_gpus=fewest_gpus?This job has {gpus:GPU}, the fewest and the most that it may have now"
    "|gpus=fewest_gpus?This job has its fewest, {gpus:GPU}, so its speedup is 1"
    "|gpus=most_gpus?This job has {gpus:GPU}, the most that it may have now. On its fewest, {fewest_gpus}, it would be "
    "{speedup:.2f} times slower|This job has {gpus:GPU}. Its speedup over its fewest, {fewest_gpus}, is {speedup:.2f}]"
    "[gpus_left>0?[speedup_more?; with more, it would be no larger]"
    "|speedup_more<=speedup?; with one more, it would be no larger"
    "|speedup_more?; with one more, it would be {speedup_more:.2f}]."
    "[speedup_more?[gpus_left>0? No job that has GPUs would gain from more, so {gpus_left} of the {num_gpus:GPU} "
    "[gpus_left=1?stays|stay] idle"
    "|others? Of the other jobs, {first} would lose least by one GPU fewer: {loss_other:.2f} of its speedup"
    "| No GPU is left, and no other job could give one up].]",
    {**ELASTIC_UNITS, "most_gpus": "GPUs"},
    "The GPUs of a job for which the sum of all speedups is largest.",
)
LOSS_REDUCTION = ReasonKind(
    "loss-reduction",
    "After the fewest GPUs of each job, the policy gives each next GPU to the job whose loss it lowers most until "
    "the next decision. It measures the loss of a job in units: a unit is the largest fall of this loss in one epoch"
    "[assumed?. This job has logged too few losses, so the policy assumes that its loss falls from 1 to 0, fastest at "
    "first, and takes 1 as its unit]. "
    "[reduction?This job has {gpus:GPU}[gpus>=max_replicas?, the most that it may have now]. With [gpus=1?it|them], "
    "its loss is expected to fall by {reduction:.2g} units[gpus>=max_replicas?|reduction_more<=0?, and by no more "
    "with one GPU more|, and by {reduction_more:.2g} units more with one GPU more]."
    "|The speed of this job is not known yet, so it gets {gpus:GPU}, its fewest.]"
    f"[gpus_left=0? [others?{ALL_TAKEN}. The last one went to [won_last=1?this job|{{first}}], whose loss it lowers by "
    "{winning_gain:.2g} units"
    "|The fewest GPUs of the jobs, in order of submission, take [num_gpus=1?the only GPU that is up|all {num_gpus:GPU} "
    "that are up]]"
    "| Of {num_gpus:GPU}, {gpus_left} [gpus_left=1?stays|stay] idle, because a further GPU would lower the "
    "loss of no job that has GPUs].",
    dict.fromkeys(("gpus", "max_replicas", "gpus_left", "num_gpus"), "GPUs"),
    "The expected fall of the loss of a job on its GPUs.",
)


def is_behind_first_job(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the reason names the first job of the view, and this is another job."""
    first = seen.jobs[0]
    return first is not job and reason.others == (first.job_id,)


BEHIND_ONLY_JOB = ReasonKind(
    "behind-only-job",
    "The policy runs one job at a time, the first submitted, of equal ones the first in the list of jobs. {first} "
    "comes first[submitted=first_submitted?: both were submitted at {submitted:clock}, and it is earlier in the list"
    "|: it was submitted at {first_submitted:clock}, and this job at {submitted:clock}]. "
    "[num_nodes?For {first}, the policy requests {num_nodes:node}. ]"
    "[gpus=0?{first} needs at least {fewest_gpus:GPU}, and cannot start on the {gpus_up:GPU} that [gpus_up=1?is|are] up"
    "|{first} runs on {gpus:GPU}, [gpus=gpus_up?[gpus_up=1?the only one that is|all that are] up"
    f"|{MOST_ALLOWED}]]. "
    "So this job waits[gpus_free>0?, although {gpus_free:GPU} [gpus_free=1?is|are] free].",
    {
        **dict.fromkeys(("gpus", "gpus_up", "gpus_free", "fewest_gpus"), "GPUs"),
        **dict.fromkeys(("submitted", "first_submitted"), "s"),
        "num_nodes": "nodes",
    },
    meaning="A job waits for the first job.",
    excuses_waiting=is_behind_first_job,
)
