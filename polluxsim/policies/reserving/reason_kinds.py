"""Kinds of reasons of policies that reserve GPUs for later times.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one. Parts that several
sentences share are constants, which f-strings insert. Such an f-string doubles the braces of the other values.
"""

from __future__ import annotations

from math import inf

from polluxsim.policies.contract.reasons import JobSeen, Reason, ReasonKind, RoundSeen
from polluxsim.policies.tools.reason_kinds import (
    GANG_FITS,
    LEFT,
    NOT_TOGETHER,
    PLACE,
    RESERVED_TIME,
    RESERVING_UNITS,
    is_behind_head,
    waits_on_another_type,
)

RESERVED = ReasonKind(
    "reserved",
    f"{PLACE} It needs {{gpus_needed:GPU}}, and {LEFT}{NOT_TOGETHER}. It is the first job that has to wait"
    f"[reserved_time?, so the policy reserves GPUs for it]. {RESERVED_TIME}.",
    RESERVING_UNITS,
    "The first job that does not fit, for which the policy reserves GPUs.",
    excuses_waiting=waits_on_another_type,
    promises_start="reserved_time",
    yields_to=(GANG_FITS,),
)
BACKFILLED = ReasonKind(
    "backfilled",
    f"{PLACE} {{first}}, ahead of it, waits[ and starts by {{reserved_time:clock}}]. The policy backfills this job "
    "with {gpus_needed} of the {gpus_left:GPU} left, because it does not delay {first}: "
    "[planned_end<=reserved_time?it is planned to end by {planned_end:clock}"
    "|reserved_time?it is planned to run until {planned_end:clock}, but on GPUs that {first} does not need"
    "|the nodes that are available now cannot hold {first}, even when all other jobs have ended].",
    RESERVING_UNITS,
    "A job starts before an earlier one that waits, and does not delay it.",
)
WOULD_DELAY = ReasonKind(
    "would-delay",
    f"{PLACE} It needs {{gpus_needed:GPU}}, and {LEFT}. The policy does not backfill it, because it would delay "
    "{first}[, which starts at {reserved_time:clock} at the latest][. It is planned to run until {planned_end:clock}, "
    "on GPUs that {first} needs].",
    RESERVING_UNITS,
    "A job fits, but would delay the first job that waits.",
    excuses_waiting=is_behind_head,
)


def has_reservation(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether the job has a reservation for a later time."""
    return reason.numbers.get("reserved_time", inf) > seen.time


_RESERVES = (
    "The policy reserves GPUs for each job in order of submission, at the earliest time that delays no reservation "
    "made "
    "before. If plans fail, it reserves anew, in the order of the old reservations."
)

STARTS_NOW = ReasonKind(
    "starts-now",
    f"{_RESERVES} Reservations that begin now start in order of submission: this job, submitted at "
    f"{{submitted:clock}}, "
    "is number {position} of {starters}. When its turn comes, {gpus_at_turn:GPU} [gpus_at_turn=1?is|are] free, and it "
    "gets the {gpus_needed} that it needs.",
    {**RESERVING_UNITS, "gpus_at_turn": "GPUs", "starters": "jobs"},
    "The reservation of a job begins.",
)
_NOT_NOW = (
    "[nodes_left>=nodes_needed?, but an earlier reservation needs them, or they are not spread over nodes as the job "
    f"needs them|nodes_needed?{NOT_TOGETHER}|gpus_left>=gpus_needed?, but an earlier reservation needs them]"
)

STARTS_BY = ReasonKind(
    "starts-by",
    f"{_RESERVES} This job, submitted at {{submitted:clock}}, needs {{gpus_needed:GPU}}, and {LEFT}{_NOT_NOW}. "
    f"[others?By plan, {{first}}[, whose reservation begins at "
    "{first_start:clock},] releases its GPUs at {reserved_time:clock}. Then enough GPUs are free, so this job "
    f"starts then at the latest|{RESERVED_TIME}].",
    {**RESERVING_UNITS, "first_start": "s"},
    "A job waits for its reservation.",
    excuses_waiting=has_reservation,
    promises_start="reserved_time",
)
