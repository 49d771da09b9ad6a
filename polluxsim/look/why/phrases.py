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
    """Return names as a phrase."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_UNITS: dict[str, Callable[[float], str]] = {
    "": lambda figure: f"{figure:g}",
    "clock": clock,
    "hours": lambda service: f"{service / HOUR:.3g}",
    "per hour": lambda index: f"{index * HOUR:.3g}",
    "%": lambda part: f"{100 * part:.3g} %",
    "CPUs": lambda cpus: number_of(float(f"{cpus:.3g}"), "CPU"),
}


class _Figure(float):
    def __format__(self, form: str) -> str:
        figure = float(self)
        if form in _UNITS:
            return _UNITS[form](figure)
        return format(figure, form) if form.startswith(".") else number_of(figure, form)


@dataclass(frozen=True)
class Words:
    """Values for the names in a template.

    `{gpus:GPU}` is a count of things, `{end:clock}` a time, `{service:hours}` GPU seconds in hours, and `{share:%}` or
    `{worth:.3g}` a number. `{others}` are the other jobs, and `{first}` is the first of them. A name may be a part of a
    sentence. `[this|that]` becomes the first choice with known values, or nothing.

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
        return _Figure(self.numbers[name])

    def say(self, sentence: Sentence) -> str:
        """Return a sentence."""
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


Sentence = str | Callable[[Words], str]


def _place(words: Words) -> str:
    said = [words.say(standing) for name, standing in _STANDING.items() if name in words.numbers]
    return ", ".join([words.say("It is number {position} in the order"), *filter(None, said)])


def _queue(words: Words) -> str:
    if "queues" in words.numbers:
        until = "{queue_threshold:hours} GPU-hours" if "queue_threshold" in words.numbers else "nowhere"
        return words.say("in queue {queue} of {queues}, which ends at " + until)
    queue = "first" if words.numbers["queue"] == 1 else "second"
    attained, most = (words.numbers[name] / HOUR for name in ("attained_service", "queue_threshold"))
    return f"in the {queue} queue with {attained:.1f} GPU-hours attained (the first queue ends at {most:g})"


def _attained(words: Words) -> str:
    told = "queue" in words.numbers and "queues" not in words.numbers
    return "" if told else words.say("with {attained_service:hours} GPU-hours attained")


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
"""Phrases about a job that waits for its turn, by the figure that a phrase contains."""

PLACE: dict[str, Sentence] = {"place": _place}  # rank of a job in the order, and the reason for this rank
