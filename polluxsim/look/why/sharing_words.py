"""What decides about jobs that share GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import clock
from polluxsim.look.why.phrases import listed, number_of, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.why.phrases import Sentence


def _in_pack(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    share = "" if not others else f", which it shares with {listed(others)}: together they use resources most fully"
    return f"{place(numbers)}; {number_of(numbers['gpus'], 'GPU')} for it{share}."


def _pack_waits(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    pack = f"in a pack with {listed(others)} it" if others else "it"
    return f"{place(numbers)}; {pack} needs {number_of(numbers['gpus_needed'], 'GPU')}, and those ahead left too few."


def _beyond_packs(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"{place(numbers)}; those ahead would fill the cluster even in packs of four."


def _guaranteed(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    beside = f"; {listed(others)} had what it leaves idle there" if others else ""
    return f"It has a guarantee, and its {number_of(numbers['gpus'], 'GPU')} as if alone{beside}."


def _keeps_gpus(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    kept = "none" if not numbers["gpus"] else f"{numbers['gpus']:g}"
    return (
        f"It has a guarantee and needs {number_of(numbers['gpus_needed'], 'GPU')} without another guaranteed job on "
        f"them; {kept} of these are kept for it until there are enough."
    )


def _beside(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    hosts = f"what {listed(others)} leave{'s' * (len(others) == 1)} idle there" if others else "all of them, for now"
    return f"It has no guarantee: on the {number_of(numbers['gpus'], 'GPU')} with the least on them it has {hosts}."


def _no_room_beside(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"It has no guarantee and needs {number_of(numbers['gpus_needed'], 'GPU')} without another such job on them, "
        f"where it gets anything done; without one are {numbers['gpus_left']:g}."
    )


def _has_its_turn(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    pack = f", packed with {listed(others)}" if others else ""
    more = ""
    if "gpus_free" in numbers:
        more = f", and {number_of(numbers['gpus_free'], 'idle GPU')} of its node besides"
    return f"{place(numbers)} by time had ({clock(numbers['time_had'])}), and has its turn{pack}{more}."


def _awaits_its_turn(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"{place(numbers)} by time had ({clock(numbers['time_had'])}), and awaits its turn."


OF_SHARING: Mapping[str, Sentence] = {
    "in-pack": _in_pack,
    "pack-waits": _pack_waits,
    "beyond-packs": _beyond_packs,
    "guaranteed": _guaranteed,
    "keeps-gpus": _keeps_gpus,
    "beside-guaranteed": _beside,
    "no-room-beside": _no_room_beside,
    "has-its-turn": _has_its_turn,
    "awaits-its-turn": _awaits_its_turn,
}
