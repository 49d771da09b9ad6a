"""From a reason's kind and figures to a sentence."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from polluxsim.look.why.elastic_words import ELASTIC_PARTS, OF_ELASTIC
from polluxsim.look.why.gang_words import GANG_PARTS, OF_GANGS
from polluxsim.look.why.phrases import PLACE, Words
from polluxsim.record_units import REASON_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.records import ReasonRecord

_SENTENCES = {**OF_GANGS, **OF_ELASTIC}
_PARTS = {**PLACE, **GANG_PARTS, **ELASTIC_PARTS}


def sentence(record: ReasonRecord) -> str:
    """Return what a reason says, in a sentence; a kind that is not ours is said as it is."""
    others = record.others and tuple("this job itself" if other == record.job else other for other in record.others)
    return _said(record.kind, record.numbers, others)


@lru_cache(2**16)
def _said(kind: str, figures: tuple[tuple[str, float], ...], others: tuple[str, ...]) -> str:
    numbers, known = dict(figures), _SENTENCES.get(kind)
    if known is not None:
        words = Words(numbers, others, _PARTS)
        try:
            return words.say(known) + words.say("{with_host}")
        except KeyError:
            pass  # a guest's own reason, under a name that is one of ours
    return _as_it_is(kind, numbers, others)


def _as_it_is(kind: str, numbers: Mapping[str, float], others: Sequence[str]) -> str:
    said = [
        f"{name} = {value:g}{f' {REASON_UNITS[name]}' if name in REASON_UNITS else ''}"
        for name, value in numbers.items()
    ]
    if others:
        said.append(f"jobs {', '.join(others)}")
    return f"the policy says: {kind}" + (f" ({'; '.join(said)})" if said else "") + "."
