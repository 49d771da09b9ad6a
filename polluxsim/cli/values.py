"""Types of the values of options: times, prices, power and numbers of nodes."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeVar

from polluxsim.common.durations import from_clock

if TYPE_CHECKING:
    from polluxsim.common.dates import Date
    from polluxsim.hardware.costs import Price
    from polluxsim.hardware.power import Power

Value = TypeVar("Value")


def type_of(
    read: Callable[[str], Value | None], is_valid: Callable[[Value], bool], words: str
) -> Callable[[str], Value]:
    """Return a function that reads a text by `read`, and raises ArgumentTypeError unless the value is valid.

    The error states the allowed values in `words`. `read` returns None or raises ValueError for a text without a value.
    """

    def parse(word: str) -> Value:
        try:
            value = read(word)
        except ValueError:
            value = None
        if value is None or not is_valid(value):
            raise ArgumentTypeError(f"is {word}, must be {words}")
        return value

    return parse


def _time_or_date(word: str) -> float | Date | None:
    from polluxsim.common.dates import read_date

    return read_date(word) or from_clock(word)


def _is_time(value: float | Date) -> bool:
    """Return whether a value is a date, or a finite time of at least 0."""
    # Only a run tells whether a date is before its start.
    return not isinstance(value, float) or 0 <= value < inf


time: Callable[[str], float | Date] = type_of(
    _time_or_date, _is_time, "a time like 90min, 1.5h, H:MM:SS, or a number of seconds, or a date like 2026-03-04T14:00"
)
"""Type of a time on the clock of a run [s], or of a date, which `Run.seconds` converts."""


def price(word: str) -> Price:
    """Return the price of a node-hour, or of the GPUs of a type."""
    from polluxsim.hardware.costs import priced_types, read_price

    node_price = read_price(word)
    if node_price is None:
        types = ", ".join(priced_types())
        raise ArgumentTypeError(f"is {word}, must be a price of a node-hour above 0, or a type of {types}")
    return node_price


def power(word: str) -> tuple[str, Power]:
    """Return a GPU type, and its idle and peak power."""
    from polluxsim.hardware.power import read_power

    type_and_power = read_power(word)
    if type_and_power is None:
        raise ArgumentTypeError(f"is {word}, must be a GPU type with its idle and peak power [W], like h100=70:700")
    return type_and_power


pue = type_of(float, lambda value: 1 <= value <= 10, "a number from 1 to 10")


def indices(word: str) -> list[int]:
    """Return numbers of nodes, from 0 on, that commas separate, each once."""
    words = word.split(",")
    if not all(part.isascii() and part.isdecimal() for part in words):
        raise ArgumentTypeError(f"is {word!r}, must be numbers of nodes, like 3,4")
    return list(dict.fromkeys(map(int, words)))
