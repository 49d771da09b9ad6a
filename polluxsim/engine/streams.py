"""Random numbers that depend on nothing but the run's seed and what they are for."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What is drawn; the policy's generator is the first child of the seed."""

    OUTAGES = 1
    CRASHES = 2


def uniforms(seed: int, key: tuple[int, ...], count: int) -> list[float]:
    """Return numbers in (0, 1) for a seed and a key, whose first part is a `Stream`."""
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(count, np.uint64)
    return [((int(word) >> 11) + 0.5) * 2.0**-53 for word in words]
