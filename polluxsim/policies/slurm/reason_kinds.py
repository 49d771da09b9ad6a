"""Kinds of the reasons that the policy `slurm` gives, with the reasons of squeue for jobs that wait."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.policies.slurm.values import LimitStop

_QUEUE = (
    "queue[queue_priority?, which goes by priority (this job {queue_priority:.0f}[queue_ahead?, and "
    "{queue_ahead:label}, just ahead of it, {queue_ahead:.0f}]), equal ones by submission]"
)

UNITS = {
    **dict.fromkeys(("gpus_needed", "gpus_left"), "GPUs"),
    **dict.fromkeys(("planned_start", "next_run", "planned_end", "first_plan"), "s"),
    "position": "",
}

_FREE = " After the starts of this round, [gpus_left=0?no GPU is|{gpus_left:GPU} [gpus_left=1?is|are]] free."
NUMBERS_OF_LIMIT = ("limit_held", "limit_most", "limit_needed")

PLANNED = "[planned_start? The backfill plans its start at {planned_start:clock}.]"
"""Sentence on the plan of the last cycle of the backfill."""


def waits_for_slurm(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether a scheduler runs later, the job has a plan for later, or another job waits.

    The plan or the place of another job may hold the idle GPUs. Under `bf_running_job_reserve`, running jobs hold whole
    nodes too.
    """
    if any(reason.numbers.get(name, seen.time) > seen.time for name in ("next_run", "planned_start")):
        return True
    return any(other.job_id != job.job_id and seen.waits(other) for other in seen.jobs)


def stays_within_limits(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether another job runs.

    What it holds counts for the limit. A limit on each job alone stops a job for ever.
    """
    return any(other.job_id != job.job_id and not seen.waits(other) for other in seen.jobs)


STARTED_IN_ORDER = ReasonKind(
    "slurm-main",
    f"The main scheduler starts jobs in the order of the queue. The job is number {{position}} of the {_QUEUE}. The "
    "{gpus_needed:GPU} that it needs [gpus_needed=1?is|are] free.",
    UNITS,
    "Slurm's main scheduler starts the job in the order of the queue.",
)
STARTED_BY_BACKFILL = ReasonKind(
    "slurm-backfill",
    f"The job is number {{position}} of the {_QUEUE}. The backfill starts it on {{gpus_needed:GPU}}, because it "
    "delays no plan of a job before it. By its time limit, it ends at {planned_end:clock}.[first_plan? Of the jobs "
    "before it, {first} has the earliest planned start, at {first_plan:clock}[planned_end>first_plan?, on GPUs that "
    "this job leaves free].| No job before it has a planned start.]",
    UNITS,
    "Slurm's backfill starts the job ahead of jobs with plans.",
)
RESOURCES = ReasonKind(
    "slurm-resources",
    f"Resources: the job is number {{position}} of the {_QUEUE}. It needs {{gpus_needed:GPU}}, and is the first one "
    f"that does "
    f"not fit, so that the main scheduler starts no job behind it.{_FREE}{PLANNED}",
    UNITS,
    "The first job that does not fit, with the reason Resources in squeue.",
    excuses_waiting=waits_for_slurm,
)
PRIORITY = ReasonKind(
    "slurm-priority",
    f"Priority: the job is number {{position}} of the {_QUEUE}. It needs {{gpus_needed:GPU}}, and waits behind "
    f"{{first}}, which "
    f"does not fit.{_FREE}{PLANNED}",
    UNITS,
    "A job behind the first one that does not fit, with the reason Priority in squeue.",
    excuses_waiting=waits_for_slurm,
)
NOT_LOOKED_AT = ReasonKind(
    "slurm-next-run",
    "No scheduler of Slurm has looked at the job in this round[; the next one runs at {next_run:clock}]. The job needs "
    f"{{gpus_needed:GPU}}[ and is number {{position}} of the queue].{_FREE}",
    UNITS,
    "The job waits for the next run of a scheduler.",
    excuses_waiting=waits_for_slurm,
)
ASSOCIATION_LIMIT = ReasonKind(
    "slurm-limit",
    "A limit of its account or its QOS stops the job: {limit_held} of {limit_most} are in use, and the job needs "
    "{limit_needed}. The job delays no other job.",
    dict.fromkeys(NUMBERS_OF_LIMIT, ""),
    "A limit of an account or a QOS stops the job, with reasons like QOSMaxJobsPerUserLimit in squeue.",
    excuses_waiting=stays_within_limits,
)
"""Kind of jobs that a limit stops. `reason_of_limit` makes one kind of it for each limit, whose sentence names it."""

RESOURCES_IN_WORDS = {"gpu": "GPUs", "cpu": "CPUs", "mem": "MB of memory", "node": "nodes", "jobs": "running jobs"}


def reason_of_limit(stop: LimitStop) -> Reason:
    """Return the reason of a job that a limit of an account or a QOS stops."""
    numbers = {"limit_held": stop.held, "limit_most": stop.most, "limit_needed": stop.needed}
    return Reason(_kind_of_limit(stop.name, stop.resource, stop.whose), numbers)


@cache
def _kind_of_limit(name: str, resource: str, whose: str) -> ReasonKind:
    """Return the kind of the reasons of one limit. `whose` is empty for a limit on each job."""
    # A name of a user or an account must not end a part of the sentence.
    whose = re.sub(r"[\[\]{}|]", "", whose)
    unit = RESOURCES_IN_WORDS[resource]
    limit = name if resource == "jobs" else f"{name} of {resource}"
    in_use = f"{whose} has {{limit_held}} of at most {{limit_most}} {unit}"
    if not whose:
        in_use = f"a job may have at most {{limit_most}} {unit}"
    return replace(
        ASSOCIATION_LIMIT,
        name=" ".join(filter(None, (ASSOCIATION_LIMIT.name, name, resource, whose))),
        sentence=f"The limit {limit} stops the job: {in_use}, and this job needs {{limit_needed}}. The job delays no "
        "other job.",
        units=dict.fromkeys(NUMBERS_OF_LIMIT, unit),
    )


BEGIN_TIME = ReasonKind(
    "slurm-begin-time",
    "BeginTime: the job has a begin time, or was preempted and requeued. It may start from {next_run:clock} on, and "
    "needs {gpus_needed:GPU}.",
    UNITS,
    "A job waits for its begin time, as a requeued job does, with the reason BeginTime in squeue.",
    excuses_waiting=waits_for_slurm,
)
PREEMPTED = ReasonKind(
    "slurm-preempted",
    "Preempted: {first} takes the GPUs of the job, because its partition or QOS may preempt that of this job.",
    UNITS,
    "A job of a higher partition or QOS preempts the job.",
)
CANCELLED = ReasonKind(
    "slurm-cancelled",
    "The job was preempted, and ends without being complete, because policy.preempt_mode is CANCEL.",
    UNITS,
    "A preempted job ends (PreemptMode CANCEL).",
)
SUSPENDED = ReasonKind(
    "slurm-suspended",
    "Suspended: the job was preempted, and waits until its nodes have room for the {gpus_needed:GPU} that it had. It "
    "keeps its progress.",
    UNITS,
    "A suspended job waits for its nodes (PreemptMode SUSPEND).",
    excuses_waiting=stays_within_limits,
)
RESUMED = ReasonKind(
    "slurm-resumed",
    "The job was suspended, and resumes with {gpus_needed:GPU} on its nodes, which have room for it again.",
    UNITS,
    "A suspended job resumes on its nodes.",
)
