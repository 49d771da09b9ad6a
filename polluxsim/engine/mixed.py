"""Jobs on GPUs of several types at once: all in step with the slowest, each type with its part of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from polluxsim.agent.agent import Workers
from polluxsim.engine.truth import Pace

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent, Divide, Observation
    from polluxsim.engine.truth import Truth
    from polluxsim.types import Crew, DividedBatch


class MixedPace(Pace):
    """How a job trains on GPUs of several types: a step is over when that on the slowest of them would be.

    How long it would take on a type is what its profile says of as many GPUs, all of that type, at its part of the
    batch. The type that pace and observations are by is that of the placement's first node. It raises as `Pace` does,
    for any of the types.
    """

    __slots__ = ("_crew", "_workers")

    def __init__(self, truth: Truth, shape: tuple[int, ...], crew: Crew, choice: DividedBatch, gpu_type: str) -> None:
        sizes = [examples for _, examples in choice.parts]
        steps = [truth.on(name).profile.step_time(shape, size) for (name, _), size in zip(crew, sizes, strict=True)]
        slowest = max(steps, key=lambda step: step.optimiser_step(choice.accumulation_steps))
        super().__init__(truth.profile, shape, choice, gpu_type, slowest)
        self._crew = crew
        self._workers = tuple(
            Workers(name, gpus, size, step.step_time)
            for (name, gpus), size, step in zip(crew, sizes, steps, strict=True)
        )

    def chosen_by(self, agent: Agent, truth: Truth, epoch: int) -> Pace:
        """Return the pace at what an agent chooses here in an epoch: this one, if that is as it was."""
        choice = cast("Divide", agent.divide)(self._crew, epoch)  # who cannot divide a batch holds no such GPUs
        return self if choice == self.choice else MixedPace(truth, self.shape, self._crew, choice, self.gpu_type)

    def observation(self, epoch: int) -> Observation:
        """Return what an agent observes in an epoch: how long each type would take, too."""
        return super().observation(epoch)._replace(workers=self._workers)
