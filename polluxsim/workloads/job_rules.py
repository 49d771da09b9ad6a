"""What each field of a job may be, wherever the job comes from."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import ulp
from numbers import Integral, Real
from sys import float_info
from typing import TYPE_CHECKING

from polluxsim.hosts import UNLIMITED
from polluxsim.models.sensitivity import is_curve
from polluxsim.models.stages import Stages
from polluxsim.types import MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


def is_name(value: object) -> bool:
    """Return whether it is text that says something."""
    return isinstance(value, str) and bool(value.strip())


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(map(is_name, value)) and len(set(value)) == len(value)


def _is_within(least: float, most: float, value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) <= most


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and _is_within(1, MOST_COUNT, value)


def _are_speeds(value: object) -> bool:
    """Return whether it is pairs of GPUs and a speed, with rising counts."""
    if not isinstance(value, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return False
    is_known = all(_is_count(gpus) and _is_within(ulp(0.0), MOST_SPEED, speed) for gpus, speed in value)
    return is_known and all(fewer[0] < more[0] for fewer, more in pairwise(value))


def _are_type_speeds(value: object) -> bool:
    """Return whether it is pairs of a GPU type and a speed, each type once."""
    if not isinstance(value, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return False
    return _are_names(tuple(name for name, _ in value)) and all(
        _is_within(0.0, MOST_SPEED, speed) for _, speed in value
    )


def _are_stages(value: object) -> bool:
    """Return whether it is the times of a step, above 0, and of its stages, one of them above 0."""
    if not isinstance(value, tuple) or len(value) != len(Stages._fields):
        return False
    return bool(value[0]) and any(value[1:]) and all(_is_within(0.0, MOST_SECONDS, time) for time in value)


MOST_COUNT = 10**9
"""Most GPUs or examples of one job: more are slips of the hand, and would be too many to add up."""

MOST_SPEED = 1e12
"""Largest speed, in whatever unit."""

_NAME = (is_name, "a name")
_NAMES = (_are_names, "different names")
_TIME = (partial(_is_within, 0.0, MOST_SECONDS), f"a number of seconds from 0 to {MOST_SECONDS:g}")
_LENGTH = (partial(_is_within, ulp(0.0), MOST_SECONDS), f"a number of seconds above 0, up to {MOST_SECONDS:g}")
_COUNT = (_is_count, f"a whole number from 1 to {MOST_COUNT:g}")
_AMOUNT = (partial(_is_within, ulp(0.0), UNLIMITED), f"a number above 0, up to {UNLIMITED:g}")
_CURVE = (is_curve, "pairs of an amount, rising, and a speed, not falling, all above 0")
_NUMBER = (partial(_is_within, -float_info.max, float_info.max), "a finite number")

RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "job_id": _NAME,
    "submit_time": _TIME,
    "application": _NAME,
    "num_replicas": _COUNT,
    "batch_size": _COUNT,
    "duration": _LENGTH,
    "user": _NAME,
    "queue": _NAME,
    "priority": _NUMBER,
    "deadline": _TIME,
    "time_limit": _LENGTH,
    "after": _NAMES,
    "gpu_types": _NAMES,
    "min_replicas": _COUNT,
    "max_replicas": _COUNT,
    "cancel_time": _TIME,
    "speeds": (_are_speeds, "pairs of a GPU count, rising, and a speed above 0"),
    "type_speeds": (_are_type_speeds, "pairs of a GPU type and a speed of 0 or more, each type once"),
    "stages": (_are_stages, "the time of a step, above 0, and of its load, compute and network, one above 0 [s]"),
    "cpus": _AMOUNT,
    "memory": _AMOUNT,
    "cpu_speeds": _CURVE,
    "memory_speeds": _CURVE,
    "job_name": _NAME,
    "qos": _NAME,
}
"""By field: whether a value is allowed, and what is, in words."""
