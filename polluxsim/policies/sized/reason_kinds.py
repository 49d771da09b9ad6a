"""Kinds of reasons of Shockwave and of Themis.

The sentences are templates. `polluxsim.policies.contract.reasons` explains how to read one. Parts that several
sentences share are constants, which f-strings insert. Such an f-string doubles the braces of the other values.
"""

from __future__ import annotations

from polluxsim.policies.contract.view import ReasonKind

# The expected time of a job and its rank among the planned jobs.
_DUE = (
    "It is expected to train for another {remaining_time:clock}[rounds>rounds_needed?, or {rounds_needed:round}. The "
    "plan may give it more, because rounds beyond those that it needs count neither for nor against a "
    "plan][weight>1?. By its last plan, it ends at {lateness:.5g} "
    "times its fair time, so its utility counts [weight>=1000?{weight:.0f}|{weight:.3g}] times "
    "([weight>=1000000?the most possible|{lateness:.5g} to the power {power}])]. In this round, "
    "[needs_all=1?the job comes early, because its plan takes all {rounds_left:round} left of the window"
    "|jobs whose plans take all {rounds_left:round} left of the window come first. Then comes the largest weight over "
    "planned GPU rounds, [rank>=1000?{rank:.0f}|{rank:.3g}] for this job[ahead_rank?[ahead_needs_all=1?, after "
    "{first}, the nearest job ahead with GPUs, whose plan takes all these rounds"
    "|, and [ahead_rank>=1000?{ahead_rank:.0f}|{ahead_rank:.3g}] for {first}, the "
    "nearest job ahead with GPUs]]]. Of equal jobs, those with GPUs come first, "
    "then the first submitted"
)
# The GPUs that earlier jobs leave.
_LEFT = (
    "[gpus_left=0?no GPU is|gpus_left=1?1 GPU is|{gpus_left:GPU} are] left[left_type? of type {left_type:label}], and "
    "it needs {gpus_needed}"
)
_UNITS_OF_MARKETS = {"remaining_time": "s", **dict.fromkeys(("gpus_left", "left_type", "gpus_needed"), "GPUs")}

MARKET_PLANNED = ReasonKind(
    "market-planned",
    f"The plan for this window gives the job {{rounds:more round}}, and this round is one of them. {_DUE}. "
    f"At its turn, {_LEFT}.",
    _UNITS_OF_MARKETS,
    "A job runs in a round of the plan.",
)
MARKET_SPARE = ReasonKind(
    "market-spare",
    "The plan gives the job no more round in this window. The job takes GPUs that the planned jobs leave, after jobs "
    f"that are expected to train longer than {{remaining_time:clock}}. At its turn, {_LEFT}.",
    _UNITS_OF_MARKETS,
    "A job runs on GPUs that the plan leaves over.",
)
MARKET_LATER = ReasonKind(
    "market-later",
    f"[rounds=0?The plan gives the job no more round in this window, and too few GPUs are left in this round"
    "|The plan for this window gives the job {rounds:more round}, but in this round other jobs come first]. "
    f"[rounds>0?{_DUE}|Jobs without a planned round come last, first those that are expected to train longest, this "
    f"job for another {{remaining_time:clock}}]. At its turn, {_LEFT}.",
    _UNITS_OF_MARKETS,
    "A job waits for a later round of the plan.",
)

_UNITS_OF_AUCTIONS = {
    **dict.fromkeys(("gpus", "offer", "fewest_gpus", "auction_left"), "GPUs"),
    **dict.fromkeys(("lease_end", "first_end"), "s"),
    **dict.fromkeys(("bidders", "without_lease"), "jobs"),
}
# The auction of a round.
_AUCTION = (
    "[without_lease=1?The policy offers {offer:GPU} to this job, the only one[pool_gpus? of this type] without a "
    "lease, and it bids."
    "|The policy offers {offer:GPU} to the {without_lease:job}[pool_gpus? of this type] without a lease. First comes "
    "the "
    "job that would end latest, in multiples of its fair time, if it got GPUs only one lease later, of equal ones the "
    "first submitted. This job would end at {rho_later:.2f} times its fair time[worst?, and {worst:label}, the first, "
    "at {worst:.2f} times]: it is number {position}. [bidders=1?The first job bids"
    "|The first {bidders} jobs bid], and the others get what is left.]"
)

LEASED = ReasonKind(
    "leased",
    f"[rho?{_AUCTION} |]The policy leases {{gpus:GPU}} to the job until {{lease_end:clock}}[. With [gpus=1?this "
    "GPU|these GPUs], the job would end at {rho:.2f} times its fair time[without_lease=1?, and if it got its GPUs only "
    "one lease later, at {rho_later:.2f} times]].",
    _UNITS_OF_AUCTIONS,
    "A job holds GPUs on a lease.",
)
OUTBID = ReasonKind(
    "outbid",
    f"[offer=0?All GPUs are on leases, the first of which ends at {{first_end:clock}}. Then this job may bid|{_AUCTION}"
    "[ Jobs that get GPUs: {others}. After them, | Of these, ][auction_left=0?no GPU is|auction_left=1?1 GPU is"
    "|{auction_left:GPU} are] left[, and this job needs at least {fewest_gpus}]].",
    _UNITS_OF_AUCTIONS,
    meaning="Other jobs hold the GPUs on leases, or won them.",
)
