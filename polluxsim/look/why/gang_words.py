"""What decides about jobs that get all their GPUs or none: orders, reservations, quotas, shared GPUs and hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.why.phrases import Sentence, Words


def _left(words: Words) -> str:
    return words.say("only {gpus_left}" if words.numbers["gpus_left"] else "none")


def _due(words: Words) -> str:
    late = ", and is late: its utility counts {weight:.3g} times" if words.numbers["weight"] > 1 else ""
    return words.say("it is expected to train for another {remaining_time:clock}" + late)


def _keeps_gpus(words: Words) -> str:
    kept = "{gpus}" if words.numbers["gpus"] else "none"
    return words.say(
        "It has a guarantee and needs {gpus_needed:GPU} without another guaranteed job on them; "
        f"{kept} of these are kept for it until there are enough."
    )


def _beside(words: Words) -> str:
    leave = "leaves" if len(words.others) == 1 else "leave"
    hosts = f"what {{others}} {leave} idle there" if words.others else "all of them, for now"
    return words.say("It has no guarantee: on the {gpus:GPU} with the least on them it has " + hosts + ".")


GANG_PARTS: Mapping[str, Sentence] = {
    "what_is_left": _left,
    "until": (
        "by the time limits of those that run, "
        "[it starts at {reserved_time:clock} at the latest|there will never be enough]"
    ),
    "due": _due,
    "its_worth": "Its utility is {worth:.3g} times what its {gpus_needed:GPU} cost when its turn came.",
    "its_quota": "its queue now has {queue_gpus:GPU}, with a quota of {quota}",
    "with_host": (
        "[ With {cpus:CPUs} for each GPU and {memory_shares:.3g} times its GPUs' part of the memory it is "
        "{host_speed:.3g} times as fast as its profile says.]"
    ),
    "needs": "{gpus_needed:GPU}[ with {cpus_needed:CPUs} and {memory_part:%} of all memory]",
    "share": "the dominant share is now {dominant_share:%}",
}
OF_GANGS: Mapping[str, Sentence] = {
    "gang-fits": "{place}; it needs {gpus_needed:GPU}, and {gpus_left} were left when its turn came.",
    "gang-does-not-fit": (
        "{place}; it needs {gpus_needed:GPU} at once, and those ahead left {what_is_left}[: just ahead of it {others}]."
    ),
    "behind-head-of-line": (
        "{place}; {first}, ahead of it, needs {head_gpus_needed:GPU} where {gpus_left} are left, and nobody may pass "
        "it (this job needs {gpus_needed})."
    ),
    "runs-on": "It runs, and nobody is preempted.",
    "reserved": ("{place}; it needs {gpus_needed:GPU} where {gpus_left} are free, and is the first to wait: {until}."),
    "backfilled": (
        "{place}; of the {gpus_left:GPU} left it may have its {gpus_needed}, as that does not delay {first}."
    ),
    "would-delay": (
        "{place}; it needs {gpus_needed:GPU} where {gpus_left} are left, but by its time limit it would delay {first}"
        "[, which is to start at {reserved_time:clock}]."
    ),
    "starts-by": ("It has a reservation: it needs {gpus_needed:GPU} where {gpus_left} are free, and {until}."),
    "starts-now": "Its reservation of {gpus_needed:GPU} begins now.",
    "awaits-shares": "It came after shares were last computed, which they are again at {shares_due:clock} or later.",
    "market-planned": "The plan gives it {rounds:more round} of this window, this one among them; {due}.",
    "market-spare": "It is not in the plan for this round, and takes GPUs that the plan leaves over; {due}.",
    "market-later": "The plan gives it {rounds:more round} of this window, but not this one; {due}.",
    "worth-its-price": "{its_worth}",
    "not-worth-its-price": "{its_worth} It waits for lower prices.",
    "passed-over": "{its_worth} It is passed over, as others make more of what it leaves them.",
    "within-quota": "It needs {gpus_needed:GPU}, which were within the quota; {its_quota}.",
    "borrows": "It borrows {gpus_needed:GPU} that other queues leave idle; {its_quota}.",
    "reclaimed": "Its GPUs were borrowed, and {first}, within the quota of its own queue, takes them; {its_quota}.",
    "preempted": "{first}, of the same queue and with a higher priority, preempts it; {its_quota}.",
    "no-quota-left": "It needs {gpus_needed:GPU}, and {gpus_free} are idle; {its_quota}.",
    "in-pack": ("{place}; {gpus:GPU} for it[, which it shares with {others}: together they use resources most fully]."),
    "pack-waits": ("{place}; [in a pack with {others} it|it] needs {gpus_needed:GPU}, and those ahead left too few."),
    "beyond-packs": "{place}; those ahead would fill the cluster even in packs of four.",
    "guaranteed": ("It has a guarantee, and its {gpus:GPU} as if alone[; {others} had what it leaves idle there]."),
    "keeps-gpus": _keeps_gpus,
    "beside-guaranteed": _beside,
    "no-room-beside": (
        "It has no guarantee and needs {gpus_needed:GPU} without another such job on them, where it gets anything "
        "done; without one are {gpus_left}."
    ),
    "has-its-turn": (
        "{place} by time had ({time_had:clock}), and has its turn[, packed with {others}]"
        "[, and {gpus_free:idle GPU} of its node besides]."
    ),
    "awaits-its-turn": "{place} by time had ({time_had:clock}), and awaits its turn.",
    "least-share": "It has {needs}, as no other queue had less of what it uses most; {share}.",
    "behind-only-job": "The policy gives all nodes to one job at a time, now to {first}.",
    "share-waits": "It needs {needs}, and those before it left too little on the nodes; {share}.",
}
