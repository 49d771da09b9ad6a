"""The true speed and efficiency of an application on any placement. Each value is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from polluxsim.agent.agent import Agent, Divide, Observation, Workers
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import BatchChoice, Crew, DividedBatch
from polluxsim.models.convergence import last_drop
from polluxsim.models.efficiency import efficiency_of_gain, gain
from polluxsim.models.profile import Profile, ProfileRangeError, StepTime, by_type, losses_of

Paces = dict[tuple[tuple[int, ...], BatchChoice], "Pace"]
Gains = dict[int, dict[int, float]]  # by batch size and epoch


class Pace:
    """Speed of a job on one shape of placement (GPUs on each node) of one GPU type, at one batch size.

    Without `step`, the profile gives the step time. Paces of one application and batch size can share `gains`, a cache
    of the gains over the initial batch size by epoch. A profile that does not cover the placement or the batch size
    raises a `ProfileRangeError`.
    """

    __slots__ = (
        "_gains", "_profile", "_rates", "_scale", "_speeds", "_step_time", "batch_size", "choice", "gpu_type", "shape",
        "step",
    )  # fmt: skip

    def __init__(
        self,
        profile: Profile,
        shape: tuple[int, ...],
        choice: BatchChoice | DividedBatch,
        gpu_type: str,
        step: StepTime | None = None,
        gains: Gains | None = None,
    ) -> None:
        self._profile = profile
        self.gpu_type = gpu_type
        self.shape = shape
        self.choice = choice
        self.batch_size = choice.batch_size(sum(shape))
        self.step: StepTime = step or profile.step_time(shape, choice.atomic_batch_size)
        self._scale = self.batch_size / profile.application.init_batch_size
        self._step_time = self.step.optimiser_step(choice.accumulation_steps)
        self._gains: dict[int, float] = {} if gains is None else gains.setdefault(self.batch_size, {})
        self._speeds: dict[int, tuple[float, float]] = {}
        self._rates: list[float] = []

    def at(self, epoch: int) -> tuple[float, float]:
        """Return the progress per second in an epoch [M0-steps/s], and the efficiency there, in (0, 1]."""
        if (known := self._speeds.get(epoch)) is None:
            worth = self._gain(epoch)
            known = self._speeds[epoch] = (worth / self._step_time, efficiency_of_gain(worth, self._scale))
        return known

    def chosen_by(self, agent: Agent, truth: Truth, epoch: int) -> Pace:
        """Return the pace at the batch size that an agent chooses here in an epoch; this object if it is unchanged."""
        choice = agent.choose(len(self.shape), sum(self.shape), self.gpu_type, epoch)
        return self if choice == self.choice else truth.on(self.gpu_type).pace(self.shape, choice)

    def observation(self, epoch: int) -> Observation:
        """Return the observation of an agent in an epoch."""
        statistics = self._profile.gradient_statistics(self.batch_size, epoch)
        atomic = self.choice.atomic_batch_size
        return Observation(len(self.shape), sum(self.shape), atomic, self.step, statistics, self.gpu_type, epoch)

    def rates(self, start: int, end: int) -> list[float]:
        """Return the progress per second in the epochs `start` to `end` − 1 [M0-steps/s]."""
        if end - start == 1:
            return [self.at(start)[0]]
        self._rates += [self._gain(epoch) / self._step_time for epoch in range(len(self._rates), end)]
        return self._rates[start:end]

    def _gain(self, epoch: int) -> float:
        if (known := self._gains.get(epoch)) is None:
            known = gain(self._profile.gradient_statistics(self.batch_size, epoch), self._scale)
            self._gains[epoch] = known
        return known


class MixedPace(Pace):
    """Speed of a job on GPUs of several types. A step takes the time of the slowest type.

    The step time of a type comes from its profile: the whole placement is on this type, with its part of the batch.
    `gpu_type` is the type of the first node of the placement.
    """

    __slots__ = ("_crew", "_workers")

    def __init__(self, truth: Truth, shape: tuple[int, ...], crew: Crew, choice: DividedBatch, gpu_type: str) -> None:
        sizes = [examples for _, examples in choice.parts]
        steps = [truth.on(name).profile.step_time(shape, size) for (name, _), size in zip(crew, sizes, strict=True)]
        slowest = max(steps, key=lambda step: step.optimiser_step(choice.accumulation_steps))
        super().__init__(truth.profile, shape, choice, gpu_type, slowest, truth.gains)
        self._crew = crew
        self._workers = tuple(
            Workers(name, gpus, size, step.step_time)
            for (name, gpus), size, step in zip(crew, sizes, steps, strict=True)
        )

    def chosen_by(self, agent: Agent, truth: Truth, epoch: int) -> Pace:
        """Return the pace at the batch that an agent chooses here in an epoch; this object if it is unchanged."""
        choice = cast("Divide", agent.divide)(self._crew, epoch)
        return self if choice == self.choice else MixedPace(truth, self.shape, self._crew, choice, self.gpu_type)

    def observation(self, epoch: int) -> Observation:
        """Return the observation of an agent in an epoch, with the step time of each type."""
        return super().observation(epoch)._replace(workers=self._workers)


class Truth:
    """True behaviour of one application on one GPU type.

    Applications of equal speed can share `paces`, a cache of paces.
    """

    __slots__ = (
        "_last_drop", "_of_types", "_paces", "_times_left", "application", "epoch_ends", "gains", "gpu_type",
        "init_batch_size", "losses", "profile",
    )  # fmt: skip

    def __init__(self, profile: Profile, paces: Paces | None = None, gpu_type: str = ANY.name) -> None:
        self.profile = profile
        self.gpu_type = gpu_type
        self.application = profile.application
        self.init_batch_size = self.application.init_batch_size
        # Progress at the end of each epoch [M0-steps], and the loss after each epoch; empty if it is unknown.
        self.epoch_ends: Sequence[float] = [profile.epoch_end(e) for e in range(self.application.num_epochs)]
        self.losses = losses_of(profile)
        self._last_drop: float | None = None
        self._paces: Paces = {} if paces is None else paces
        self.gains: Gains = {}
        self._times_left: dict[tuple[tuple[int, ...], BatchChoice], list[float]] = {}
        self._of_types: dict[str, Truth] = {}  # on other GPU types

    @property
    def profiles_by_type(self) -> Mapping[str, Profile]:
        """Return the profiles by GPU type; empty if the profile does not distinguish types."""
        return by_type(self.profile)

    def on(self, gpu_type: str) -> Truth:
        """Return the behaviour on a GPU type. Without profiles by type, all types are equal."""
        if gpu_type == self.gpu_type:
            return self
        if (known := self._of_types.get(gpu_type)) is None:
            if not (profiles := self.profiles_by_type):
                return self
            if gpu_type not in profiles:
                has = ", ".join(profiles)
                raise ProfileRangeError(f"{self.application.name} has no profile for {gpu_type}, but for {has}")
            known = self._of_types[gpu_type] = Truth(profiles[gpu_type], None, gpu_type)
        return known

    @property
    def speed_alone(self) -> float:
        """Return the speed of one GPU at the largest atomic batch size [examples/s]."""
        most = self.application.max_atomic_batch_size
        return most / self.profile.step_time((1,), most).step_time

    def pace(self, shape: tuple[int, ...], choice: BatchChoice) -> Pace:
        """Return the pace on a shape of placement at a batch size."""
        key = (shape, choice)
        if (known := self._paces.get(key)) is None:
            known = self._paces[key] = Pace(self.profile, shape, choice, self.gpu_type, gains=self.gains)
        return known

    def time_left(self, shape: tuple[int, ...], choice: BatchChoice, epoch: int, progress: float) -> float:
        """Return the time from `progress` in `epoch` to completion at a constant placement and batch size [s]."""
        key = (shape, choice)
        if (times := self._times_left.get(key)) is None:
            times = self._times_left[key] = self._epoch_times(self.pace(shape, choice))
        start = self._boundary(epoch - 1)
        length = self._boundary(epoch) - start
        left = (self._boundary(epoch) - progress) / length if length > 0 else 0.0
        return left * (times[epoch] - times[epoch + 1]) + times[epoch + 1]

    @property
    def last_drop(self) -> float:
        """Return the decrease of the loss in an epoch at the end of training."""
        if self._last_drop is None:
            self._last_drop = last_drop(self.losses)
        return self._last_drop

    def steps_in(self, epoch: int, batch_size: int) -> float:
        """Return the optimiser steps of an epoch at a batch size."""
        worth = gain(self.profile.gradient_statistics(batch_size, epoch), batch_size / self.init_batch_size)
        return (self._boundary(epoch) - self._boundary(epoch - 1)) / worth

    def optimiser_step_time(self, shape: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the time of one optimiser step on a shape of placement [s]."""
        return self.profile.step_time(shape, choice.atomic_batch_size).optimiser_step(choice.accumulation_steps)

    def _boundary(self, epoch: int) -> float:
        return self.epoch_ends[epoch] if epoch >= 0 else 0.0

    def _epoch_times(self, pace: Pace) -> list[float]:
        """Return the time from the start of each epoch to completion [s]; 0 for the end of the last epoch."""
        times = [0.0]
        spans = zip(pairwise([0.0, *self.epoch_ends]), pace.rates(0, len(self.epoch_ends)), strict=True)
        for (start, end), rate in reversed(list(spans)):
            times.append(times[-1] + (end - start) / rate)
        return times[::-1]

    def __deepcopy__(self, memo: dict[int, object]) -> Truth:
        return self  # its values depend on the profile only
