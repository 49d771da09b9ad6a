"""The truth about jobs, for policies that are compared with full knowledge of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.models.efficiency import gain

if TYPE_CHECKING:
    from polluxsim.models.profile import Application, Profile
    from polluxsim.types import BatchChoice


@dataclass(frozen=True)
class Truth:
    """One application's true speed, with what was computed of it once.

    Parameters
    ----------
    profile
        Where the truth comes from.
    """

    profile: Profile
    _times_left: dict[tuple[tuple[int, ...], BatchChoice], list[float]] = field(default_factory=dict, init=False)

    def time_left(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, epoch: int, progress: float) -> float:
        """Return the time from `progress` in `epoch` to completion at a constant placement and batch size [s]."""
        key = (gpus_by_node, choice)
        if (times := self._times_left.get(key)) is None:
            times = self._times_left[key] = self._epoch_times(gpus_by_node, choice)
        start = self._boundary(epoch - 1)
        length = self._boundary(epoch) - start
        left = (self._boundary(epoch) - progress) / length if length > 0 else 0.0
        return left * (times[epoch] - times[epoch + 1]) + times[epoch + 1]

    def _boundary(self, epoch: int) -> float:
        return self.profile.epoch_end(epoch) if epoch >= 0 else 0.0

    def _epoch_times(self, gpus_by_node: tuple[int, ...], choice: BatchChoice) -> list[float]:
        """Return the time from the start of each epoch to completion [s], 0 for the one after the last."""
        application = self.profile.application
        batch_size = choice.batch_size(sum(gpus_by_node))
        scale = batch_size / application.init_batch_size
        step = self.profile.step_time(gpus_by_node, choice.atomic_batch_size)
        step_time = step.optimiser_step(choice.accumulation_steps)
        boundaries = [self._boundary(epoch) for epoch in range(-1, application.num_epochs)]
        times = [0.0]
        for epoch, (start, end) in reversed(list(enumerate(pairwise(boundaries)))):
            rate = gain(self.profile.gradient_statistics(batch_size, epoch), scale) / step_time
            times.append(times[-1] + (end - start) / rate)
        return times[::-1]


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
