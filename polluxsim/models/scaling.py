"""A job of which only its work and its speed at some GPU counts are known: it trains on any count in between."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.models.profile import ProfileRangeError, StepTime
from polluxsim.models.rigid import KnownDuration, rigid_application

if TYPE_CHECKING:
    from polluxsim.models.profile import Application

Speeds: TypeAlias = tuple[tuple[int, float], ...]
"""GPU counts, rising, each with the speed there, in any unit."""

ELASTIC = "elastic"
"""Name of the application of such jobs."""


@cache
def elastic_application(most: int) -> Application:
    """Return the application of elastic jobs on up to `most` GPUs: one epoch, and as many examples on fewer."""
    return replace(rigid_application(most), name=ELASTIC, max_atomic_batch_size=most, gang_size=None)


def speed_at(speeds: Speeds, num_replicas: int) -> float:
    """Return the speed on so many GPUs: as measured, and on a straight line between measured counts.

    >>> speed_at(((1, 1.0), (2, 1.8), (4, 3.0)), 3)
    2.4

    Raises
    ------
    ProfileRangeError
        If it is fewer than the least or more than the largest count.
    """
    place = bisect_left(speeds, (num_replicas,))
    if place < len(speeds) and speeds[place][0] == num_replicas:
        return speeds[place][1]
    if not 0 < place < len(speeds):
        raise ProfileRangeError(
            f"its speed on {num_replicas} GPUs is not known, allowed are {speeds[0][0]} to {speeds[-1][0]}"
        )
    (fewer, slow), (more, fast) = speeds[place - 1 : place + 1]
    return slow + (fast - slow) * (num_replicas - fewer) / (more - fewer)


@dataclass(frozen=True, slots=True)
class ScalingProfile(KnownDuration):
    """One elastic job as a `Profile`, by its speed on GPU counts within which are those asked for."""

    speeds: Speeds

    @property
    def application(self) -> Application:
        """Return what all elastic jobs of this size have in common."""
        return elastic_application(self.speeds[-1][0])

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return its only batch size."""
        return (self.speeds[-1][0],)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step by the number of GPUs, wherever they are."""
        speed = speed_at(self.speeds, sum(gpus_by_node))
        return StepTime(speed_at(self.speeds, self.num_replicas) / speed, 0.0)
