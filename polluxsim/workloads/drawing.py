"""Values drawn in proportion to their shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ValueT = TypeVar("_ValueT")


def draw(values: Mapping[_ValueT, float], count: int, rng: np.random.Generator) -> Sequence[_ValueT]:
    """Return values drawn in proportion to their weights."""
    names, weights = list(values), np.array(list(values.values()), dtype=float)
    return [names[index] for index in rng.choice(len(names), count, p=weights / weights.sum()).tolist()]
