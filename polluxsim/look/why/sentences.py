"""Sentences for the reasons of policies, from the templates that the run holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from polluxsim.common.templates import TemplateError, Values, filled
from polluxsim.records.results import ReasonRecord, ReasonText

NO_TEXT = ReasonText("", {})


def sentence(record: ReasonRecord, texts: Mapping[str, ReasonText]) -> str:
    """Return a reason as a sentence.

    Without a template for its kind, or with one that is malformed or names unknown values, the sentence contains the
    name of the kind and its numbers.

    Parameters
    ----------
    texts
        Templates and units by kind, as in `Result.reason_texts`.
    """
    others = tuple("this job itself" if other == record.job else other for other in record.others)
    template, units = texts.get(record.kind, NO_TEXT)
    if template:
        text = _filled(template, record.numbers, others)
        if text is not None:
            return text
    facts = []
    for name, value in record.numbers:
        facts.append(f"{name} = {value:g} {units.get(name, '')}".rstrip())
    if others:
        facts.append(f"jobs {', '.join(others)}")
    if not facts:
        return f"The policy gives the reason {record.kind}."
    return f"The policy gives the reason {record.kind} ({'; '.join(facts)})."


@lru_cache(2**16)
def _filled(template: str, numbers: Sequence[tuple[str, float]], others: Sequence[str]) -> str | None:
    """Return the text of a template, or None if there is none."""
    try:
        return filled(template, Values(dict(numbers), others))
    except (TemplateError, KeyError, OverflowError, ValueError):  # the folder may be foreign; a time may be infinite
        return None
