"""What no scheduler of a real cluster can know of a job, for policies that say openly that they look at it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from polluxsim.engine.shutter import ReadOnly, set_field
from polluxsim.gpu_types import ANY

if TYPE_CHECKING:
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.shutter import Shutter
    from polluxsim.engine.truth import Truth
    from polluxsim.models.profile import Application
    from polluxsim.types import BatchChoice


class OracleWindow(ReadOnly):
    """An `Oracle` of one job of a run, on one GPU type: nothing of its progress is computed before it is asked for."""

    __slots__ = ("_active", "_gpu_type", "_shutter", "_truth", "application")

    _active: ActiveJob
    _gpu_type: str | None
    _shutter: Shutter
    _truth: Truth
    application: Application

    def __init__(self, active: ActiveJob, shutter: Shutter, gpu_type: str | None = None) -> None:
        truth = active.truth if gpu_type is None else active.truth.on(gpu_type)
        set_field(self, "_active", active)
        set_field(self, "_shutter", shutter)
        set_field(self, "_gpu_type", gpu_type)
        set_field(self, "_truth", truth)
        set_field(self, "application", truth.application)

    def __deepcopy__(self, memo: dict[int, Any]) -> OracleWindow:
        return OracleWindow(deepcopy(self._active, memo), deepcopy(self._shutter, memo), self._gpu_type)

    def on(self, gpu_type: str) -> OracleWindow:
        """Return the truth on GPUs of a type, where nothing else is said."""
        return OracleWindow(self._active, self._shutter, gpu_type)

    @property
    def epoch(self) -> int:
        """Return the epoch that the job is in, from 0."""
        self._shutter.look()
        return self._active.segment.epoch

    @property
    def batch_choice(self) -> BatchChoice:
        """Return how it would split its batch now on the GPUs that its user asked for."""
        asked = self._active.job.num_replicas
        return self._active.agent.choose(1, asked, self._gpu_type or ANY.name, self.epoch)

    @property
    def progress(self) -> float:
        """Return the work done [M0-steps]."""
        self._shutter.look()
        return self._active.segment.progress_at(self._shutter.time, self._shutter.rule)

    def optimiser_step_time(
        self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None
    ) -> float:
        """Return the true time of one optimiser step on a placement [s]."""
        return self._on(gpu_type).optimiser_step_time(gpus_by_node, choice)

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps to completion at a fixed batch size, by whole epochs."""
        return self._truth.profile.remaining_iterations(batch_size, self.epoch)

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice, gpu_type: str | None = None) -> float:
        """Return the true time to completion if this placement and batch choice were kept [s]."""
        return self._on(gpu_type).time_left(gpus_by_node, choice, self.epoch, self.progress)

    def _on(self, gpu_type: str | None) -> Truth:
        return self._truth if gpu_type is None else self._truth.on(gpu_type)
