"""A job of which only its GPUs and its duration are known: it runs on that many GPUs, and nothing changes its speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, DoesNotFitError, ProfileRangeError, StepTime

if TYPE_CHECKING:
    from collections.abc import Mapping

TypeSpeeds: TypeAlias = tuple[tuple[str, float], ...]
"""GPU types, each with the speed on it over that at which a job lasts its duration; 0 where it does not fit."""

RIGID = "rigid"
"""Name of the application of jobs without a profile."""


@cache
def rigid_application(num_replicas: int) -> Application:
    """Return the application of rigid jobs on `num_replicas` GPUs: one epoch, one example on each GPU."""
    return Application(
        name=RIGID,
        init_batch_size=num_replicas,
        max_batch_size=num_replicas,
        min_atomic_batch_size=1,
        max_atomic_batch_size=1,
        num_epochs=1,
        fixed_batch_size=num_replicas,
        max_replicas=num_replicas,
        gang_size=num_replicas,
    )


@dataclass(frozen=True, slots=True)
class KnownDuration:
    """What is known of a job that has no profile: a step a second on the GPUs asked for, for its duration [s]."""

    num_replicas: int
    duration: float

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics by which a step is worth a step: nothing is known of other batch sizes."""
        return GradientStatistics(sqr=1.0, var=0.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the duration as progress, a step a second on the GPUs asked for."""
        return self.duration

    def total_iterations(self, batch_size: int) -> float:
        """Return the duration in steps."""
        return self.duration

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return none: there is one epoch."""
        return 0.0


@dataclass(frozen=True, slots=True)
class RigidProfile(KnownDuration):
    """One rigid job as a `Profile`: it runs on the GPUs it asks for, no more and no fewer.

    Its speed is in steps a second; where that differs by GPU type, it runs on no other types.
    """

    speed: float = 1.0
    type_speeds: TypeSpeeds = ()

    @property
    def by_type(self) -> Mapping[str, RigidProfile]:
        """Return the same job on each type that it is known on."""
        return {name: RigidProfile(self.num_replicas, self.duration, speed) for name, speed in self.type_speeds}

    @property
    def application(self) -> Application:
        """Return what all rigid jobs of this size have in common."""
        return rigid_application(self.num_replicas)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return its only batch size, an example a GPU."""
        return (self.num_replicas,)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, wherever its GPUs are."""
        if sum(gpus_by_node) != self.num_replicas:
            raise ProfileRangeError(
                f"a rigid job was given {sum(gpus_by_node)} GPUs, allowed are the {self.num_replicas} it asks for"
            )
        if not self.speed:
            raise DoesNotFitError("it does not fit in memory there")
        return StepTime(1.0 / self.speed, 0.0)
