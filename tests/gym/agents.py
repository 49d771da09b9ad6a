"""Agents of the tests."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from polluxsim.gym import AgentPolicy, Layout
from polluxsim.gym.policy import Observation


def fifo(seen: Observation, mask: NDArray[np.int8]) -> int:
    """Start the first job if it fits, else nothing."""
    return int(mask[1])


def whatever(seen: Observation, mask: NDArray[np.int8]) -> int:
    """Do anything that is allowed, by all that is seen."""
    allowed = np.flatnonzero(mask)
    return int(allowed[crc32(b"".join(seen[name].tobytes() for name in sorted(seen))) % len(allowed)])


class Whatever(AgentPolicy):
    """Starts jobs at random, on any number of GPUs."""

    def __init__(self) -> None:
        super().__init__(whatever, Layout(queue=3, running=2, gpus=(0, 1, 2, 3, 4, 6)))
