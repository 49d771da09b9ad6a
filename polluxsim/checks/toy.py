"""A toy application whose every number can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, StepTime

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class ToyProfile:
    """Every optimiser step takes `seconds`, whatever the placement, and a batch of M is worth M/M0 steps.

    So on K GPUs with a batch of K·M0 a job makes K/seconds M0-steps a second: perfect scaling.
    """

    name: str = "toy"
    seconds: float = 1.0
    epochs: Sequence[float] = (100.0, 200.0)  # progress at the end of each [M0-steps]
    init_batch_size: int = 10
    max_atomic_batch_size: int = 640

    @property
    def application(self) -> Application:
        """Return its properties."""
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
        """Return the smallest and the largest [examples]."""
        return (self.init_batch_size, 64 * self.init_batch_size)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, the same everywhere [s]."""
        return StepTime(self.seconds, self.seconds / 2)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics by which large batches lose nothing."""
        return GradientStatistics(sqr=0.0, var=1.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of an epoch [M0-steps]."""
        return self.epochs[epoch]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps in all."""
        return self.epochs[-1] * self.init_batch_size / batch_size

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps left, by whole epochs."""
        if epoch == len(self.epochs) - 1:
            return 1.0
        return (self.epochs[-1] - self.epochs[epoch]) * self.init_batch_size / batch_size


PROFILES = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}
"""Two applications, one of them eight times as slow."""
