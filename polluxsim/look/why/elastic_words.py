"""What decides about jobs whose number of GPUs is the policy's choice: gains, shares, leases and plans."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.why.phrases import Sentence, Words


def _gain_too_small(words: Words) -> str:
    more = "one GPU more would save it {next_gain:clock}"
    if "last_gain" in words.numbers:
        more = f"its last GPU saves it {{last_gain:clock}}, {more}"
    if not words.others:
        return words.say(f"Every job has one GPU and none is left; {more}.")
    speed = "By its true speed"
    if "steps_left" in words.numbers:
        speed = "By its own log, some {steps_left:.0f} steps to go,"
    return words.say(f"{speed} {more}; the last GPU went to {{first}}, which it saves {{winning_gain:clock}}.")


def _at_limit(words: Words) -> str:
    if "restart_factor" not in words.numbers:
        return words.say("It has the {max_replicas:GPU} that its batch size can be split over.")
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


def _not_admitted(words: Words) -> str:
    if words.numbers["planned_end"] > words.numbers["deadline"]:
        why = "even alone it would be complete at {planned_end:clock} only, after its deadline at {deadline:clock}."
    else:
        why = "no plan keeps its deadline at {deadline:clock} and those of all jobs that are admitted."
    return words.say(f"It is not admitted: {why}")


def _configurations(words: Words) -> dict[str, tuple[str, float]]:
    """Return the configurations that a reason of Sia's names, as GPUs of a type, each with its worth."""
    said = {name.partition(" "): worth for name, worth in words.numbers.items() if " " in name}
    return {role: (gpus, worth) for (role, _, gpus), worth in said.items()}


def _has(words: Words) -> str:
    gpus, worth = _configurations(words)["has"]
    return f"It has {gpus}, {worth:.3g} times its slowest configuration"


def _best(words: Words) -> str:
    gpus, worth = _configurations(words)["best"]
    return f"{gpus} would be worth {worth:.3g}"


ELASTIC_PARTS: Mapping[str, Sentence] = {
    "speed": (
        "Its speedup over a fair share is {speedup:.2f}[, {speedup_more:.2f} with one GPU more]"
        "[, {speedup_fewer:.2f} with one fewer]; restart factor {restart_factor:.2f}."
    ),
    "use": _use,
    "has": _has,
    "best": _best,
}
"""A Pollux job's speedup is 1 on a fair share of the cluster."""
OF_ELASTIC: Mapping[str, Sentence] = {
    "proportional-share": (
        "It gets {gpus:GPU}: its user asked for {gpus_needed}, which comes to {fair_share:.2f} in proportion, and it "
        "can use {max_replicas}."
    ),
    "won-against": (
        "It won {gpus:GPU} against the others, with {remaining_time:clock} left on them"
        "[; the last GPU went to {first}, by what it gains and has left]."
    ),
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
        "It is slower than believed and will miss its deadline at {deadline:clock}: it has {gpus:GPU} of what the "
        "others leave."
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
    "lost-configuration": (
        "[{has}|It has no GPUs]. {best}, {saving:.2f} less in the sum of costs, and lost: the other jobs together save "
        "more with GPUs of this type[, held by {others} among others]."
    ),
    "no-configuration": "There is no configuration that it may have now.",
}
