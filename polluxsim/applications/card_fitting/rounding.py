"""Round the figures of a card to what is worth reading."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from polluxsim.applications.card import FitError
from polluxsim.applications.card_parts import Corrections, GradTimes, Losses, NoiseScales, SyncTimes

_PartT = TypeVar("_PartT", GradTimes, SyncTimes, Corrections, NoiseScales, Losses, FitError)

SIGNIFICANT_DIGITS = 4


def rounded_figure(x: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """Return a number with so many significant digits."""
    return float(f"{x:.{digits - 1}e}")


def rounded(part: _PartT) -> _PartT:
    """Return a part of a card with every figure rounded to four significant digits."""
    return replace(part, **{item.name: _rounded_value(getattr(part, item.name)) for item in fields(part)})


def _rounded_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_rounded_value, value))
    return rounded_figure(value) if isinstance(value, float) else value
