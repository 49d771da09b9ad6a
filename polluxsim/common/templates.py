"""Templates of sentences: plain text with names of numbers in braces, and choices in brackets. They execute nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isclose

from polluxsim.common.durations import HOUR, clock
from polluxsim.common.phrases import listed, number_of

MOST_BRACKETS = 9  # largest number of brackets within each other


class TemplateError(ValueError):
    """A template is malformed. The message says where."""


@dataclass(frozen=True)
class Values:
    """The values that a template can name.

    Attributes
    ----------
    numbers
        Numbers by name. A name may carry a label after a space: `best 2 a100` is the number `best` with the label
        `2 a100`.
    others
        Names of jobs.
    """

    numbers: Mapping[str, float]
    others: Sequence[str] = ()

    def has(self, name: str) -> bool:
        """Return whether a value is known."""
        if name in _NAMES_OF_JOBS:
            return bool(self.others)
        return self._full_name(name) is not None

    def number(self, name: str) -> float:
        """Return a number. Raise KeyError if it is unknown."""
        full_name = self._full_name(name)
        if full_name is None:
            raise KeyError(name)
        return self.numbers[full_name]

    def label(self, name: str) -> str:
        """Return the label of a number, "" if it has none. Raise KeyError if the number is unknown."""
        full_name = self._full_name(name)
        if full_name is None:
            raise KeyError(name)
        return full_name[len(name) + 1 :]

    def _full_name(self, name: str) -> str | None:
        """Return the name with its label; None if the number is unknown."""
        if name in self.numbers:
            return name
        # With the space, because `best` is not the beginning of the name `best_gpus`.
        return next((full_name for full_name in self.numbers if full_name.startswith(f"{name} ")), None)


def filled(template: str, values: Values) -> str:
    """Return the text of a template.

    `{gpus}` is a number; `{gpus:GPU}` counts things, like "1 GPU" or "2 GPUs". `{end:clock}` is a time [s] as H:MM:SS,
    `{service:hours}` a GPU time or a time [s] in hours, `{rate:per hour}` a rate [1/s] per hour, `{share:%}` a share
    in per cent, and `{worth:.3g}` or `{worth:.2f}` a number with some digits. `{best:label}` is the label of a number.
    `{others}` lists the other jobs, and `{first}` is the first of them.

    `[this|that|…]` becomes the first choice whose values are all known, or nothing. A choice may begin with a condition
    and a question mark: `[gpus=0?none|{gpus:GPU}]`. A condition compares a number by =, <, >, <= or >= with a number or
    with the value of another name; equal but for rounding is equal. `[deadline?…]` holds if the value is known. Choices
    may contain choices.

    Raises
    ------
    TemplateError
        If the template is malformed.
    KeyError
        If a value outside all choices is unknown.

    >>> values = Values({"gpus": 1.0, "left": 5400.0, "best 2 t4": 3.0})
    >>> filled("It has {gpus:GPU}[ beside {others}][gpus<2?, and {left:hours} GPU-hours are left].", values)
    'It has 1 GPU, and 1.5 GPU-hours are left.'
    >>> filled("[gpus=0?none|{best:label} is worth {best}]", values)
    '2 t4 is worth 3'
    """
    return "".join(part(values) for part in _parts(template))


def check_template(template: str) -> None:
    """Raise a TemplateError if a template is malformed."""
    _parts(template)


_NAMES_OF_JOBS = ("others", "first")

_FORMS: Mapping[str, Callable[[float], str]] = {
    "": lambda number: f"{number:g}",
    "clock": clock,
    "hours": lambda service: f"{service / HOUR:.3g}",
    "per hour": lambda rate: f"{rate * HOUR:.3g}",
    "%": lambda share: f"{100 * share:.3g} %",
    "CPU": lambda cpus: number_of(float(f"{cpus:.3g}"), "CPU"),
}
"""Texts of numbers by the form after the colon. Other forms are digits like `.3g`, or the noun of a counted thing."""

_DIGITS = re.compile(r"\.\d[fg]")
_NOUN = re.compile(r"[A-Za-z][A-Za-z -]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::(?P<form>[^{}]*))?")
_CONDITION = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:(?P<comparison><=|>=|=|<|>)(?P<other>\w[\w.]*))?\?")
_SPECIAL = re.compile(r"[\[\]|{}]")

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "=": isclose,
    "<": lambda one, other: one < other and not isclose(one, other),
    ">": lambda one, other: one > other and not isclose(one, other),
    "<=": lambda one, other: one <= other or isclose(one, other),
    ">=": lambda one, other: one >= other or isclose(one, other),
}

Part = Callable[[Values], str]  # a part of a template: the text with some values; KeyError if a value is unknown
Condition = Callable[[Values], bool]


@lru_cache(1 << 12)  # a run has millions of reasons, and few templates
def _parts(template: str) -> tuple[Part, ...]:
    """Return the parts of a template. Raise a TemplateError if it is malformed."""
    reader = _Reader(template)
    parts = reader.parts("")
    # Reading stops at a mark that ends something, where nothing began.
    if reader.place < len(template):
        raise TemplateError(f"{template[reader.place]!r} at character {reader.place + 1} has no partner")
    return parts


class _Reader:
    """A template, read from its beginning to its end.

    Its methods read one part each from `place` on, move `place` behind it, and return a function of the values.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        self.place = 0
        self.depth = 0  # brackets that are open

    def parts(self, ends: str) -> tuple[Part, ...]:
        """Read parts until one of the characters `ends`, or until the end of the template."""
        parts: list[Part] = []
        while self.place < len(self.template):
            character = self.template[self.place]
            if character in ends:
                break
            if character == "[":
                parts.append(self._choices())
            elif character == "{":
                parts.append(self._value())
            elif character in "]}|":
                break
            else:
                parts.append(self._text())
        return tuple(parts)

    def _text(self) -> Part:
        """Read plain text, until the next special character."""
        special = _SPECIAL.search(self.template, self.place)
        end = len(self.template) if special is None else special.start()
        text = self.template[self.place : end]
        self.place = end
        return lambda values: text

    def _value(self) -> Part:
        """Read a value in braces."""
        start = self.place
        end = self.template.find("}", start)
        inside = self.template[start + 1 : end]
        value = _VALUE.fullmatch(inside)
        if end < 0 or value is None:
            raise TemplateError(f"'{{' at character {start + 1} does not begin a value like {{gpus}} or {{gpus:GPU}}")
        self.place = end + 1
        name = value["name"]
        form = value["form"] or ""
        if name in _NAMES_OF_JOBS:
            return lambda values: _jobs(name, values)
        if form == "label":
            return lambda values: values.label(name)
        text_of = _text_of(form)
        return lambda values: text_of(values.number(name))

    def _choices(self) -> Part:
        """Read choices in brackets."""
        start = self.place
        self.depth += 1
        # Each bracket is a call within the last one. A template of a user must not exceed Python's limit of calls.
        if self.depth > MOST_BRACKETS:
            raise TemplateError(f"'[' at character {start + 1} is within {MOST_BRACKETS} other brackets")
        choices: list[tuple[Condition, tuple[Part, ...]]] = []
        while self.place < len(self.template) and self.template[self.place] in "[|":
            self.place += 1
            condition = self._condition()
            choices.append((condition, self.parts("|]")))
        if self.place == len(self.template) or self.template[self.place] != "]":
            raise TemplateError(f"'[' at character {start + 1} has no ']'")
        self.place += 1
        self.depth -= 1
        return lambda values: _first_choice(choices, values)

    def _condition(self) -> Condition:
        """Read the condition at the beginning of a choice. A choice without a condition always holds."""
        condition = _CONDITION.match(self.template, self.place)
        if condition is None:
            return lambda values: True
        self.place = condition.end()
        name = condition["name"]
        comparison = condition["comparison"]
        other = condition["other"]
        if comparison is None:
            return lambda values: values.has(name)
        compare = _COMPARISONS[comparison]
        bound = _bound(other)
        return lambda values: compare(values.number(name), bound(values))


def _bound(text: str) -> Callable[[Values], float]:
    """Return the function that returns the right side of a condition: a constant, or the value of a name."""
    if _NAME.fullmatch(text):
        return lambda values: values.number(text)
    try:
        constant = float(text)
    except ValueError:
        raise TemplateError(f"a condition compares with {text!r}, must be a number or the name of one") from None
    return lambda values: constant


def _text_of(form: str) -> Callable[[float], str]:
    """Return the function that writes a number in a form. Raise a TemplateError if there is no such form."""
    if form in _FORMS:
        return _FORMS[form]
    if _DIGITS.fullmatch(form):
        return lambda number: format(number, form)
    if _NOUN.fullmatch(form):
        return lambda number: number_of(number, form)
    must_be = "clock, hours, per hour, %, digits like .3g, or a noun"
    raise TemplateError(f"a number has the form {form!r}, must be {must_be}")


def _jobs(name: str, values: Values) -> str:
    """Return the names of jobs, or the first of them. Raise KeyError if there are none."""
    if not values.others:
        raise KeyError(name)
    return values.others[0] if name == "first" else listed(values.others)


def _first_choice(choices: Sequence[tuple[Condition, Sequence[Part]]], values: Values) -> str:
    """Return the text of the first choice whose condition holds and whose values are all known, or nothing."""
    for condition, parts in choices:
        try:
            if condition(values):
                return "".join(part(values) for part in parts)
        except KeyError:  # a value of this choice is unknown
            continue
    return ""
