"""What decides about jobs that share GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.look.why.phrases import Sentence, Words


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


OF_SHARING: Mapping[str, Sentence] = {
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
}
