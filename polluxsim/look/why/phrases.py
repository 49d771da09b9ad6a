"""Templates for the sentences about reasons, and the values that templates can name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from polluxsim.common.durations import HOUR, clock


def number_of(count: float, thing: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "GPU"), number_of(12.0, "job")
    ('1 GPU', '12 jobs')
    """
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def count_range(counts: Sequence[int]) -> str:
    """Return the smallest and the largest of some counts.

    >>> count_range([6, 2]), count_range([1200, 1200])
    ('2 to 6', '1,200')
    """
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def percent(share: float) -> str:
    """Return a share in whole per cent.

    >>> percent(0.964)
    '96 %'
    """
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """Return names as a phrase, like "A, B and C"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_FORMS: dict[str, Callable[[float], str]] = {
    "": lambda number: f"{number:g}",
    "clock": clock,  # of a time [s]
    "hours": lambda service: f"{service / HOUR:.3g}",  # of GPU time [GPU s], or of a time [s]
    "per hour": lambda rate: f"{rate * HOUR:.3g}",  # of a rate [1/s]
    "%": lambda share: f"{100 * share:.3g} %",
    "CPUs": lambda cpus: number_of(float(f"{cpus:.3g}"), "CPU"),
}
"""Texts of numbers, by the form that a template states after the colon."""


class _Number(float):
    """A number in a template. Its form is a key of `_FORMS`, digits like `.3g`, or the noun of a counted thing."""

    def __format__(self, form: str) -> str:
        number = float(self)
        if form in _FORMS:
            return _FORMS[form](number)
        return format(number, form) if form.startswith(".") else number_of(number, form)


@dataclass(frozen=True)
class Words:
    """The values of the names in a template: numbers, the names of other jobs, and parts of sentences.

    `{gpus:GPU}` is a count of things, `{end:clock}` a time, `{service:hours}` GPU seconds in hours, and `{share:%}` or
    `{worth:.3g}` a number. `{others}` lists the other jobs, and `{first}` is the first of them. `[this|that]` becomes
    the first choice whose values are known, or nothing.

    >>> words = Words({"gpus": 1.0, "left": 5400.0}, (), {"lot": "It has {gpus:GPU}"})
    >>> words.say("{lot}[ beside {others}], with {left:hours} GPU-hours left.")
    'It has 1 GPU, with 1.5 GPU-hours left.'
    """

    numbers: Mapping[str, float]
    others: Sequence[str]
    parts: Mapping[str, Sentence]

    def __getitem__(self, name: str) -> str | float:
        if name in self.parts:
            return self.say(self.parts[name])
        if name in ("others", "first") and self.others:
            return self.others[0] if name == "first" else listed(self.others)
        return _Number(self.numbers[name])

    def say(self, sentence: Sentence) -> str:
        """Return the text of a template. Raise KeyError if a value outside brackets is unknown."""
        if callable(sentence):
            return sentence(self)
        return "".join(
            self._first_known(choices) if len(choices) > 1 else choices[0].format_map(self)
            for choices in _pieces(sentence)
        )

    def _first_known(self, choices: Sequence[str]) -> str:
        for choice in choices:
            with suppress(KeyError):
                return choice.format_map(self)
        return ""


@cache
def _pieces(sentence: str) -> list[list[str]]:
    """Return the pieces of a template, each a list of choices. Text outside brackets has one choice."""
    pieces = re.split(r"\[(.*?)\]", sentence)
    return [[*piece.split("|"), ""] if index % 2 else [piece] for index, piece in enumerate(pieces) if piece]


Sentence = str | Callable[[Words], str]  # a template, or a function that chooses one by the values


def _place(words: Words) -> str:
    """Return the rank of a waiting job in the order of the policy, and the numbers that decide the rank."""
    phrases = [words.say(phrase) for name, phrase in _STANDING.items() if name in words.numbers]
    return ", ".join([words.say("It is number {position} in the order"), *filter(None, phrases)])


def _queue(words: Words) -> str:
    """Return the queue of a job under a policy with queues by attained service."""
    if "queues" in words.numbers:
        until = "{queue_threshold:hours} GPU-hours" if "queue_threshold" in words.numbers else "nowhere"
        return words.say("in queue {queue} of {queues}, which ends at " + until)
    queue = "first" if words.numbers["queue"] == 1 else "second"
    attained, most = (words.numbers[name] / HOUR for name in ("attained_service", "queue_threshold"))
    return f"in the {queue} queue with {attained:.1f} GPU-hours attained (the first queue ends at {most:g})"


def _attained(words: Words) -> str:
    """Return the attained service, unless `_queue` states it."""
    is_stated = "queue" in words.numbers and "queues" not in words.numbers
    return "" if is_stated else words.say("with {attained_service:hours} GPU-hours attained")


_STANDING: dict[str, Sentence] = {
    "queue": _queue,
    "attained_service": _attained,
    "remaining_time": "with {remaining_time:clock} left to run on its GPUs",
    "remaining_service": "with {remaining_service:hours} GPU-hours left to run",
    "expected_service": "with {expected_service:hours} GPU-hours to expect of it",
    "gittins_index": "with a chance of {gittins_index:per hour} to end per GPU-hour, by the jobs before it",
    "deadline": "with its deadline at {deadline:clock}",
    "virtual_usage": "as its queue has had {virtual_usage:hours} GPU-hours for a weight of one",
    "multifactor": "with a multifactor priority of {multifactor:.5g}",
    "time_share": "with a share of {time_share:.3g} of the time, and {time_had:clock} of it had",
    "group_jobs": "among {group_jobs:job} that can use the same {group_gpus} GPUs",
    "priority": "with priority {priority}",
}
"""Phrases about a job that waits for its turn, by the number that a phrase contains."""

PLACE: dict[str, Sentence] = {"place": _place}
"""Part of sentences: the rank of a job in the order, and the reason for this rank."""
