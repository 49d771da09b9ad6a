"""What policies see of the truth that are compared with full knowledge of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from polluxsim.engine.truth import Truth
    from polluxsim.models.profile import Application
    from polluxsim.types import BatchChoice


class JobOracle(NamedTuple):
    """The truth about one job now.

    Parameters
    ----------
    truth
        The truth about its application.
    epoch, progress
        How far the job is [1; M0-steps].
    """

    truth: Truth
    epoch: int
    progress: float

    @property
    def application(self) -> Application:
        """Return the properties of the job's application."""
        return self.truth.profile.application

    def optimiser_step_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the true time of one optimiser step on a placement [s]."""
        step = self.truth.profile.step_time(gpus_by_node, choice.atomic_batch_size)
        return step.optimiser_step(choice.accumulation_steps)

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps to completion at a fixed batch size, by whole epochs."""
        return self.truth.profile.remaining_iterations(batch_size, self.epoch)

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the true time to completion if this placement and batch choice were kept [s]."""
        return self.truth.time_left(gpus_by_node, choice, self.epoch, self.progress)
