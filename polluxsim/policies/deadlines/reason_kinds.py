"""Kinds of reasons of the policies for deadlines.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one.
"""

from __future__ import annotations

from polluxsim.policies.contract.reasons import JobSeen, RoundSeen
from polluxsim.policies.contract.view import Reason, ReasonKind
from polluxsim.policies.tools.reason_kinds import ELASTIC_UNITS, PLACE, needs_a_power_of_two


def has_no_more_in_its_pool(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the idle GPUs of each of its types are too few for the job: for a power of two, or its request.

    The request counts on several types: a job moves to another type only if its request fits there.
    """
    has_pools = len(job.speeds) > 1
    fits_no_pool = all(job.num_replicas > seen.free[gpu_type] for gpu_type in job.speeds)
    return (has_pools and fits_no_pool) or needs_a_power_of_two(job, reason, seen)


_UNITS = {**ELASTIC_UNITS, "deadline": "s", "planned_end": "s", "beside_end": "s", "admitted": "jobs"}

MOST_IT_CAN_USE = ReasonKind(
    "most-it-can-use",
    f"{PLACE} Each job takes the largest power of two of GPUs that it can use and that are left (a job "
    "that can use no power of two, its largest number), so that later jobs may get none. When its turn comes, "
    "[gpus_left=0?no GPU is"
    "|{gpus_left:GPU} [gpus_left=1?is|are]] left, and it [gpus=0?needs at least {fewest_gpus}"
    "|is_power=0?gets {gpus}, because no power of two is among its possible numbers|gets {gpus} (its maximum now is "
    "{max_replicas})].[ahead? {ahead:label}, the nearest job ahead of it that gets GPUs, takes {ahead}.]",
    _UNITS,
    "A job gets as many of the GPUs that are left as it can use.",
    excuses_waiting=has_no_more_in_its_pool,
)
NOT_ADMITTED = ReasonKind(
    "not-admitted",
    "The policy rejects the job, because "
    "[planned_end>deadline?it would be complete at {planned_end:clock} even alone, after its deadline at "
    "{deadline:clock}."
    "|planned_end?no plan meets its deadline at {deadline:clock}[, those of {others}, which are admitted only together "
    "with it,] and the deadlines of all admitted jobs. Alone on the {num_gpus:GPU} that [num_gpus=1?is|are] up, it "
    "would be complete at {planned_end:clock}.[admitted? Beside the plans of the {admitted:admitted job} "
    "({admitted:label}), it [beside_end?would be complete at {beside_end:clock} at the "
    "earliest.|would never be complete.]]"
    "|it needs more GPUs than are up.]",
    _UNITS,
    "A job is rejected, because its deadline cannot be met.",
)
PLANNED = ReasonKind(
    "planned",
    "[deadline?The policy admitted the job to meet its deadline at {deadline:clock}[deadline_gpus?, for which it needs "
    "at least {deadline_gpus:GPU} from now on]|The job has no deadline]. The policy plans jobs in order of deadline, "
    "those without one last, equal ones in order of submission; this job is number {position} of {jobs}. Each gets the "
    "fewest GPUs that meet its deadline, or its fewest without one. GPUs that are left go in powers of two first to "
    "jobs without GPUs, then where they cost least extra GPU time. "
    "[planned_end?By its plan, the job [gpus=0?waits|has {gpus:GPU}] now and is complete at {planned_end:clock}."
    "|It waits until the plans of other jobs leave GPUs.][holds_1? By their plans, other jobs have these numbers of "
    "GPUs now: {holds_1:label} {holds_1}[holds_2?, {holds_2:label} {holds_2}][holds_3?, {holds_3:label} {holds_3}]"
    "[more_holders?, {more_holders:more job} {more_hold}].] Beside all plans, [gpus_left=0?no GPU|{gpus_left:GPU}] of "
    "{num_gpus} [gpus_left>1?are|is] free now[gpus=0?, and the job needs at least {fewest_gpus}"
    "|next_gpus>gpus_left?, and its next larger number would take {next_gpus}"
    "|next_gpus?. The job gets more when the policy plans again, if it then ends earlier"
    "|, and no larger number that it may have, of {num_gpus} at most, would make the job faster].",
    {**_UNITS, **dict.fromkeys(("deadline_gpus", "holds_1", "holds_2", "holds_3", "more_hold"), "GPUs")},
    "The plan of an admitted job.",
    excuses_waiting=needs_a_power_of_two,
    promises_deadline=True,
)
PLANNED_LATE = ReasonKind(
    "planned-late",
    "The job is slower than expected and will miss its deadline at {deadline:clock}. The plans of the other jobs leave "
    "it [gpus=0?no GPU|{gpus:GPU}] now[, and it is complete at {planned_end:clock} by its plan].",
    _UNITS,
    "An admitted job that will be late.",
)
