"""Sentences for the reasons of policies, by the kind of the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import inf

from polluxsim.common.instants import has_come
from polluxsim.look.why.phrases import PLACE, Sentence, Words
from polluxsim.records.results import REASON_UNITS, ReasonRecord


def _gain_too_small(words: Words) -> str:
    more = "one GPU more would save it {next_gain:clock}"
    if "last_gain" in words.numbers:
        more = f"its last GPU saves it {{last_gain:clock}}, {more}"
    if not words.others:
        return words.say(f"No GPU is left beyond the fewest of each job; {more}.")
    speed = "By its true speed"
    if "steps_left" in words.numbers:
        speed = "According to its log about {steps_left:.0f} steps remain,"
    return words.say(f"{speed} {more}; the last GPU went to {{first}}, which it saves {{winning_gain:clock}}.")


def _at_limit(words: Words) -> str:
    if "restart_factor" not in words.numbers:
        return words.say("It has {max_replicas:GPU}, the most that its batch size or its user allows.")
    most = words.numbers["max_replicas"]
    explored = most < words.numbers.get("application_limit", inf)
    why = "twice as many as it has ever run on" if explored and most > 1 else "as many as it can use"
    if "application_limit" not in words.numbers:
        why = "it has not been measured yet"
    return words.say(f"It may have {{max_replicas:GPU}} at most now: {why}. {{speed}}")


def _restart_penalty(words: Words) -> str:
    if not words.numbers["gpus"]:
        return words.say(
            "A GPU now would be worth nothing to it: its restart factor is {restart_factor:.2f}, as it is too young, "
            "or was restarted too often for its age."
        )
    return words.say(
        "{speed} A restart for one more is not worth it: the restart factor leaves {worth_more:.2f} of that."
    )


def _cluster_full(words: Words) -> str:
    full = "{speed} All GPUs are taken, by {jobs:job} in all"
    if not words.others:
        return words.say(f"{full}.")
    rises = words.numbers["fitness_exchange"] > words.numbers["fitness"]
    change, hindrance = ("raise", ": nodes or search did not allow for it") if rises else ("lower", "")
    return words.say(
        f"{full}; {{first}} would miss one of its GPUs least, and giving it to this job would {change} the fitness "
        f"from {{fitness:.5g}} to {{fitness_exchange:.5g}}{hindrance}."
    )


def _gpus_left(words: Words) -> str:
    are, them = ("is", "it") if words.numbers["gpus_free"] == 1 else ("are", "them")
    return words.say(
        f"{{speed}} One more would be worth {{worth_more:.2f}}, and {{gpus_free:GPU}} {are} free: the search left "
        f"{them}, or the rule of one job across nodes on each node did."
    )


def _use(words: Words) -> str:
    gets = "gets {gpus}, as many as it can use (at most {max_replicas})" if words.numbers["gpus"] else "can use none"
    return words.say(gets)


def _won(words: Words) -> str:
    if words.numbers["gpus"]:
        won = "It won {gpus:GPU} against the other jobs, with {remaining_time:clock} left on them"
    else:
        won = "It won no GPU against the other jobs; on the fewest that it can use it has {remaining_time:clock} left"
    return words.say(won + "[; the last GPU went to {first}, by what it gains and has left].")


def _not_admitted(words: Words) -> str:
    if "planned_end" not in words.numbers:
        why = "it needs more GPUs than are up."
    elif not has_come(words.numbers["planned_end"], words.numbers["deadline"]):
        why = "even alone it would be complete at {planned_end:clock} only, after its deadline at {deadline:clock}."
    else:
        together = "[, those of {others}, which are admitted only together with it,]"
        why = "no plan keeps its deadline at {deadline:clock}" + together + " and those of all jobs that are admitted."
    return words.say(f"It is not admitted: {why}")


def _configuration(role: str, template: str) -> Callable[[Words], str]:
    """Return the phrase about a configuration of Sia, from a template with its GPUs and its worth.

    A reason has the worth, relative to the slowest configuration, under the name "ROLE GPUS", like "best 4 t4".
    """

    def phrase(words: Words) -> str:
        for name, worth in words.numbers.items():
            if name.startswith(f"{role} "):
                return template.format(name.removeprefix(f"{role} "), worth)
        raise KeyError(role)

    return phrase


ELASTIC_PARTS: Mapping[str, Sentence] = {
    "speed": (
        "Its speedup over a fair share is {speedup:.2f}[, {speedup_more:.2f} with one GPU more]"
        "[, {speedup_fewer:.2f} with one fewer]; restart factor {restart_factor:.2f}."
    ),
    "use": _use,
    "has": _configuration("has", "It has {}, {:.3g} times its slowest configuration"),
    "best": _configuration("best", "{} would be worth {:.3g}"),
    "idle": _configuration("idle", "{} would fit on idle GPUs and be worth {:.3g}"),
}
"""Parts of the sentences of policies for elastic jobs. Under Pollux, a job has speedup 1 on a fair share."""

OF_ELASTIC: Mapping[str, Sentence] = {
    "proportional-share": (
        "It gets {gpus:GPU}: its user asked for {gpus_needed}, which comes to {fair_share:.2f} in proportion, and it "
        "can use {max_replicas}."
    ),
    "won-against": _won,
    "leased": (
        "It has {gpus:GPU} on lease until {lease_end:clock}"
        "[, with which it would end at {rho:.2f} times its fair time]."
    ),
    "outbid": (
        "Others who are worse off, or gain more, have the GPUs on lease"
        "[; a lease later it would end at {rho:.2f} times its fair time]."
    ),
    "largest-sum": (
        "It gets {gpus:GPU}, as all speedups add up to most so: its speedup over its least GPUs is {speedup:.2f}"
        "[, and {speedup_more:.2f} with one more]."
    ),
    "no-least-left": "It waits: those before it leave {gpus_left:GPU}, fewer than it needs at least.",
    "most-it-can-use": "{place}; of the {gpus_left:GPU} left when its turn came it {use}.",
    "planned": (
        "It was admitted [to meet its deadline at {deadline:clock}|without a deadline]"
        "[: by the plan it has {gpus:GPU} now and is complete at {planned_end:clock}|"
        ", and waits until GPUs are to spare]."
    ),
    "planned-late": (
        "It is slower than expected and will miss its deadline at {deadline:clock}: it has {gpus:GPU} that the other "
        "jobs leave."
    ),
    "not-admitted": _not_admitted,
    "no-gpu-left": (
        "Every job gets a first GPU in order of submission; it is number {position}, and there are {num_gpus:GPU}."
    ),
    "gain-too-small": _gain_too_small,
    "loss-reduction": (
        "It gets {gpus:GPU}: its loss is expected to fall by {reduction:.2g} of its largest fall in an epoch, and by "
        "{reduction_more:.2g} more with one more[; the last GPU went to {first}]."
    ),
    "at-limit": _at_limit,
    "no-gain": "[Another GPU would not make it faster. {speed}|Another GPU would not shorten it.]",
    "restart-penalty": _restart_penalty,
    "cluster-full": _cluster_full,
    "gpus-left": _gpus_left,
    "best-configuration": "{has}: none that it may have now is worth more.",
    "restart-not-worth": "[{has}|It has no GPUs]. {best}, and a restart would leave {restart_factor:.2f} of that.",
    "lost-configuration": (
        "[{has}|It has no GPUs]. {best}, {saving:.2f} less in the sum of costs, and lost: the other jobs together save "
        "more with GPUs of this type[, held by {others} among others]."
        "[ {idle}, but a restart would leave {restart_factor:.2f} of that, which saves no more.]"
    ),
    "no-configuration": "There is no configuration that it may have now.",
}
"""Sentences for the reasons of policies for elastic jobs, by kind."""


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
        "[it starts at {reserved_time:clock} at the latest|the nodes that are up never have enough]"
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
"""Parts of the sentences of policies for rigid jobs."""

OF_GANGS: Mapping[str, Sentence] = {
    "gang-fits": "{place}; it needs {gpus_needed:GPU}, and {gpus_left} were left when its turn came.",
    "gang-does-not-fit": (
        "{place}; it needs {gpus_needed:GPU} at once, and those ahead left {what_is_left}[: just ahead of it {others}]."
    ),
    "behind-head-of-line": (
        "{place}; {first}, ahead of it, needs {head_gpus_needed:GPU} where {gpus_left} are left, and no job may "
        "overtake it (this job needs {gpus_needed})."
    ),
    "runs-on": "It runs on, because [no job preempts it; {its_quota}|the policy preempts no job].",
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
    "passed-over": "{its_worth} It waits, because other jobs gain more from these GPUs.",
    "within-quota": "It needs {gpus_needed:GPU}, which were within the quota; {its_quota}.",
    "borrows": "It needs {gpus_needed:GPU}, and its queue borrows those beyond its quota; {its_quota}.",
    "reclaimed": (
        "Its GPUs were borrowed, and {first} takes them, whose queue is within its quota or, with fair sharing, "
        "borrows less; {its_quota}."
    ),
    "preempted": "{first}, of the same queue and with a higher priority, preempts it; {its_quota}.",
    "preempted-on-type": "{first} takes its GPUs. It may move to idle GPUs of another type at the next round.",
    "no-quota-left": "It needs {gpus_needed:GPU}, and {gpus_free} are idle; {its_quota}.",
    "in-pack": ("{place}; {gpus:GPU} for it[, which it shares with {others}: together they use resources most fully]."),
    "pack-waits": ("{place}; [in a pack with {others} it|it] needs {gpus_needed:GPU}, and those ahead left too few."),
    "beyond-packs": "{place}; the jobs ahead would fill the cluster even in packs of four.",
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
    "least-share": "It has {needs}, because no queue or user whose next job fits had a lower dominant share; {share}.",
    "behind-only-job": "The policy gives all nodes to one job at a time, now to {first}.",
    "never-fits": "It is not admitted: it needs {needs}, and the nodes that it can use never have as much for it.",
    "share-waits": (
        "It needs {needs}, and [waits behind {first}, of the same queue or user, for which too little is left|"
        "those before it left too little on the nodes]; {share}."
    ),
}
"""Sentences for the reasons of policies for rigid jobs, by kind."""


_SENTENCES = {**OF_GANGS, **OF_ELASTIC}  # by kind of the reason
_PARTS = {**PLACE, **GANG_PARTS, **ELASTIC_PARTS}  # parts of sentences, by name


def sentence(record: ReasonRecord) -> str:
    """Return a reason as a sentence. The sentence of an unknown kind contains its name and its numbers."""
    others = record.others and tuple("this job itself" if other == record.job else other for other in record.others)
    return _sentence(record.kind, record.numbers, others)


@lru_cache(2**16)
def _sentence(kind: str, numbers: tuple[tuple[str, float], ...], others: tuple[str, ...]) -> str:
    words = Words(dict(numbers), others, _PARTS)
    with suppress(KeyError):  # unknown kinds, and reasons of other policies that have the name of a shipped kind
        return words.say(_SENTENCES[kind]) + words.say("{with_host}")
    facts = [f"{name} = {value:g} {REASON_UNITS.get(name, '')}".rstrip() for name, value in numbers]
    if others:
        facts.append(f"jobs {', '.join(others)}")
    return f"the policy says: {kind}" + (f" ({'; '.join(facts)})" if facts else "") + "."
