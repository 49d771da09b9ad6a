"""A toy application whose every number can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, StepTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class ToyProfile:
    """A batch of M examples is worth M/M0 steps, and a step takes `seconds` on one node.

    On K GPUs of one node with a batch of K·M0, a job makes K/seconds M0-steps a second: perfect scaling. A step takes
    `seconds` · (1 + spread · (N − 1)) on N nodes, and a GPU of a type divides it by the speed of the type.
    `type_speeds` are pairs (GPU type, speed); it is empty if types make no difference.
    """

    name: str = "toy"
    seconds: float = 1.0
    epochs: Sequence[float] = (100.0, 200.0)  # progress at the end of each [M0-steps]
    init_batch_size: int = 10
    max_atomic_batch_size: int = 640
    spread: float = 0.0
    type_speeds: tuple[tuple[str, float], ...] = ()

    @property
    def by_type(self) -> Mapping[str, ToyProfile]:
        """Return the profile on each GPU type, by name."""
        return {name: replace(self, seconds=self.seconds / speed, type_speeds=()) for name, speed in self.type_speeds}

    @property
    def application(self) -> Application:
        """Return the properties of the application."""
        return Application(
            self.name,
            init_batch_size=self.init_batch_size,
            max_batch_size=64 * self.init_batch_size,
            min_atomic_batch_size=1,
            max_atomic_batch_size=self.max_atomic_batch_size,
            num_epochs=len(self.epochs),
        )

    @property
    def losses(self) -> Sequence[float]:
        """Return losses of 1/2, 1/3, 1/4 and so on."""
        return [1.0 / (epoch + 2) for epoch in range(len(self.epochs))]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the smallest and the largest batch size [examples]."""
        return (self.init_batch_size, 64 * self.init_batch_size)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step [s]; half of it is synchronisation."""
        seconds = self.seconds * (1 + self.spread * (len(gpus_by_node) - 1))
        return StepTime(seconds, seconds / 2)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics under which large batches are as efficient as small ones."""
        return GradientStatistics(sqr=0.0, var=1.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of an epoch [M0-steps]."""
        return self.epochs[epoch]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training."""
        return self.epochs[-1] * self.init_batch_size / batch_size

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps after this epoch; 1 in the last epoch."""
        if epoch == len(self.epochs) - 1:
            return 1.0
        return (self.epochs[-1] - self.epochs[epoch]) * self.init_batch_size / batch_size


PROFILES = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}
"""Two applications; the second is eight times as slow."""

TYPE_SPEEDS = (("t4", 1.0), ("v100", 3.0))
"""Speeds of the toy applications on GPU types."""


def with_types(profiles: Mapping[str, ToyProfile]) -> dict[str, ToyProfile]:
    """Return the same applications with profiles of two GPU types."""
    return {name: replace(profile, type_speeds=TYPE_SPEEDS) for name, profile in profiles.items()}
