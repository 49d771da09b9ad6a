"""How fast a job really trains: the true step time and efficiency of an application on any placement.

A policy and an agent see estimates; the engine moves jobs on by the values of this module. A `GroundTruth` stands for
one application on one GPU type, and gives a `TrainingSpeed` for each shape of placement and each batch size. The
progress of a job is counted in M0-steps: the optimiser steps that the same progress takes at the initial batch size.

    progress per second = gain(batch size, epoch) / step time(shape of the placement, batch size)

`gain` says how many M0-steps one step at this batch size is worth. It changes from epoch to epoch, because the noise of
the gradients does; the step time does not.

All values depend on the profile alone. They are therefore computed once, kept for the whole run, and shared by the
copies of a run: `GroundTruth.__deepcopy__` returns the object itself. Jobs whose applications have the same speed, and
differ in length only, share one cache of speeds.
"""

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

SpeedCache = dict[tuple[tuple[int, ...], BatchChoice], "TrainingSpeed"]  # by shape of placement and batch size
GainCache = dict[int, dict[int, float]]  # gains over the initial batch size, by batch size and epoch


class TrainingSpeed:
    """Speed of a job on one shape of placement (GPUs on each node) of one GPU type, at one batch size.

    Without `step`, the profile gives the step time. Speeds of one application can share `gains`, a cache. A profile
    that does not cover the placement or the batch size raises a `ProfileRangeError`.
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
        gains: GainCache | None = None,
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

    def in_epoch(self, epoch: int) -> tuple[float, float]:
        """Return the progress per second in an epoch [M0-steps/s], and the efficiency there, in (0, 1]."""
        speed = self._speeds.get(epoch)
        if speed is None:
            steps_worth = self._gain(epoch)
            speed = (steps_worth / self._step_time, efficiency_of_gain(steps_worth, self._scale))
            self._speeds[epoch] = speed
        return speed

    def with_batch_of(self, agent: Agent, truth: GroundTruth, epoch: int) -> TrainingSpeed:
        """Return the speed on this placement at the batch size that an agent chooses in an epoch.

        It is this very object if the agent keeps the batch size: callers compare by identity.
        """
        choice = agent.choose(len(self.shape), sum(self.shape), self.gpu_type, epoch)
        if choice == self.choice:
            return self
        return truth.for_gpu_type(self.gpu_type).speed_at(self.shape, choice)

    def observation(self, epoch: int) -> Observation:
        """Return what an agent observes during an interval in an epoch: the step time and the gradient statistics."""
        statistics = self._profile.gradient_statistics(self.batch_size, epoch)
        atomic_batch_size = self.choice.atomic_batch_size
        return Observation(
            len(self.shape), sum(self.shape), atomic_batch_size, self.step, statistics, self.gpu_type, epoch
        )

    def rates(self, start: int, end: int) -> list[float]:
        """Return the progress per second in the epochs `start` to `end` − 1 [M0-steps/s]."""
        # A job whose epochs end by events asks for one of them, which `in_epoch` caches.
        if end - start == 1:
            return [self.in_epoch(start)[0]]
        for epoch in range(len(self._rates), end):
            self._rates.append(self._gain(epoch) / self._step_time)
        return self._rates[start:end]

    def _gain(self, epoch: int) -> float:
        """Return the M0-steps that one step in an epoch is worth."""
        steps_worth = self._gains.get(epoch)
        if steps_worth is None:
            steps_worth = gain(self._profile.gradient_statistics(self.batch_size, epoch), self._scale)
            self._gains[epoch] = steps_worth
        return steps_worth


class MixedTrainingSpeed(TrainingSpeed):
    """Speed of a job on GPUs of several types. A step takes the time of the slowest type.

    The step time of a type comes from its profile, as if the whole placement were on this type, with the batch of its
    workers. `gpu_type` is the type of the first node of the placement.
    """

    __slots__ = ("_crew", "_workers")

    def __init__(
        self, truth: GroundTruth, shape: tuple[int, ...], crew: Crew, choice: DividedBatch, gpu_type: str
    ) -> None:
        steps = []
        workers = []
        for (type_name, num_gpus), (_, examples) in zip(crew, choice.parts, strict=True):
            step = truth.for_gpu_type(type_name).profile.step_time(shape, examples)
            steps.append(step)
            workers.append(Workers(type_name, num_gpus, examples, step.step_time))
        slowest = max(steps, key=lambda step: step.optimiser_step(choice.accumulation_steps))
        super().__init__(truth.profile, shape, choice, gpu_type, slowest, truth.gains)
        self._crew = crew
        self._workers = tuple(workers)

    def with_batch_of(self, agent: Agent, truth: GroundTruth, epoch: int) -> TrainingSpeed:
        """Return the speed on this placement with the batch as an agent divides it in an epoch.

        It is this very object if the agent keeps the batch: callers compare by identity.
        """
        # A job is on several types only if its agent can divide a batch (`decision.py` checks it).
        choice = cast("Divide", agent.divide)(self._crew, epoch)
        if choice == self.choice:
            return self
        return MixedTrainingSpeed(truth, self.shape, self._crew, choice, self.gpu_type)

    def observation(self, epoch: int) -> Observation:
        """Return what an agent observes during an interval in an epoch, with the step time of each type."""
        return super().observation(epoch)._replace(workers=self._workers)


class GroundTruth:
    """True behaviour of one application on one GPU type.

    Applications of equal speed can share `speeds`, a cache.
    """

    __slots__ = (
        "_last_drop", "_of_other_types", "_speeds", "_times_left", "application", "epoch_ends", "gains", "gpu_type",
        "init_batch_size", "losses", "profile",
    )  # fmt: skip

    def __init__(self, profile: Profile, speeds: SpeedCache | None = None, gpu_type: str = ANY.name) -> None:
        self.profile = profile
        self.gpu_type = gpu_type
        self.application = profile.application
        self.init_batch_size = self.application.init_batch_size
        # Progress at the end of each epoch [M0-steps].
        self.epoch_ends: Sequence[float] = [profile.epoch_end(epoch) for epoch in range(self.application.num_epochs)]
        self.losses = losses_of(profile)  # after each epoch; empty if they are unknown
        self.gains: GainCache = {}
        self._last_drop: float | None = None
        self._speeds: SpeedCache = {} if speeds is None else speeds
        self._times_left: dict[tuple[tuple[int, ...], BatchChoice], list[float]] = {}
        self._of_other_types: dict[str, GroundTruth] = {}

    @property
    def profiles_by_type(self) -> Mapping[str, Profile]:
        """Return the profiles by GPU type; empty if the profile does not distinguish types."""
        return by_type(self.profile)

    def for_gpu_type(self, gpu_type: str) -> GroundTruth:
        """Return the behaviour on a GPU type. Without profiles by type, all types are equal.

        Raises a `ProfileRangeError` if there are profiles by type, and none for this type.
        """
        if gpu_type == self.gpu_type:
            return self
        truth = self._of_other_types.get(gpu_type)
        if truth is not None:
            return truth
        profiles = self.profiles_by_type
        if not profiles:
            return self
        if gpu_type not in profiles:
            has = ", ".join(profiles)
            raise ProfileRangeError(f"{self.application.name} has no profile for {gpu_type}, but for {has}")
        # It does not share the cache of this type: the key of a cached speed does not name the GPU type.
        truth = GroundTruth(profiles[gpu_type], None, gpu_type)
        self._of_other_types[gpu_type] = truth
        return truth

    @property
    def speed_alone(self) -> float:
        """Return the speed of one GPU at the largest atomic batch size [examples/s]."""
        batch_size = self.application.max_atomic_batch_size
        return batch_size / self.profile.step_time((1,), batch_size).step_time

    def speed_at(self, shape: tuple[int, ...], choice: BatchChoice) -> TrainingSpeed:
        """Return the speed on a shape of placement at a batch size."""
        key = (shape, choice)
        speed = self._speeds.get(key)
        if speed is None:
            speed = TrainingSpeed(self.profile, shape, choice, self.gpu_type, gains=self.gains)
            self._speeds[key] = speed
        return speed

    def time_left(self, shape: tuple[int, ...], choice: BatchChoice, epoch: int, progress: float) -> float:
        """Return the time from `progress` in `epoch` to completion at a constant placement and batch size [s]."""
        key = (shape, choice)
        times = self._times_left.get(key)
        if times is None:
            times = self._times_from_epochs(self.speed_at(shape, choice))
            self._times_left[key] = times
        start = self._boundary(epoch - 1)
        end = self._boundary(epoch)
        length = end - start
        part_left = 0.0
        if length > 0:
            part_left = (end - progress) / length
        return part_left * (times[epoch] - times[epoch + 1]) + times[epoch + 1]

    @property
    def last_drop(self) -> float:
        """Return the decrease of the loss in an epoch at the end of training. The losses must be known."""
        if self._last_drop is None:
            self._last_drop = last_drop(self.losses)
        return self._last_drop

    def steps_in(self, epoch: int, batch_size: int) -> float:
        """Return the optimiser steps of an epoch at a batch size."""
        steps_worth = gain(self.profile.gradient_statistics(batch_size, epoch), batch_size / self.init_batch_size)
        return (self._boundary(epoch) - self._boundary(epoch - 1)) / steps_worth

    def optimiser_step_time(self, shape: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the time of one optimiser step on a shape of placement [s]."""
        return self.profile.step_time(shape, choice.atomic_batch_size).optimiser_step(choice.accumulation_steps)

    def _boundary(self, epoch: int) -> float:
        """Return the progress at the end of an epoch [M0-steps]; epoch −1 ends where the training starts."""
        return self.epoch_ends[epoch] if epoch >= 0 else 0.0

    def _times_from_epochs(self, speed: TrainingSpeed) -> list[float]:
        """Return the time from the start of each epoch to completion [s], and 0 for the end of the last epoch."""
        boundaries = list(pairwise([0.0, *self.epoch_ends]))
        rates = speed.rates(0, len(self.epoch_ends))
        times = [0.0]  # from the end of training back to its start
        for (start, end), rate in zip(reversed(boundaries), reversed(rates), strict=True):
            times.append(times[-1] + (end - start) / rate)
        times.reverse()
        return times

    def __deepcopy__(self, memo: dict[int, object]) -> GroundTruth:
        return self  # its values depend on the profile only
