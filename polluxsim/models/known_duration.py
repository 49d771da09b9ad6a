"""Jobs of known duration: rigid jobs, jobs with a speed for each number of GPUs, jobs with a plan of batch sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby
from math import ceil, inf
from typing import TypeAlias

from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, DoesNotFitError, FixedReplicasError, ProfileRangeError, StepTime

TypeSpeeds: TypeAlias = tuple[tuple[str, float], ...]
"""Pairs (GPU type, speed). At speed 1 a job takes its duration; 0 means that the batch does not fit in memory."""

RIGID = "rigid"  # name of the application of jobs without a profile


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
    """A job without a profile, as a training of one step/s on the requested GPUs for its duration."""

    num_replicas: int  # requested GPUs
    duration: float  # on the requested GPUs [s]

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics with efficiency 1, because there is one batch size."""
        return GradientStatistics(sqr=1.0, var=0.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the duration as progress [steps]."""
        return self.duration

    def total_iterations(self, batch_size: int) -> float:
        """Return the duration as optimiser steps."""
        return self.duration

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return 0, because there is one epoch."""
        return 0.0


def _check_gang(gpus_by_node: tuple[int, ...], num_replicas: int) -> None:
    """Raise FixedReplicasError if a placement has another number of GPUs than requested."""
    if sum(gpus_by_node) != num_replicas:
        raise FixedReplicasError(f"a rigid job has {sum(gpus_by_node)} GPUs, must have {num_replicas}, as requested")


@dataclass(frozen=True, slots=True)
class RigidProfile(KnownDuration):
    """Profile of a rigid job, which runs on exactly its requested number of GPUs."""

    speed: float = 1.0  # [steps/s]
    type_speeds: TypeSpeeds = ()  # if given, the job runs only on these GPU types

    @property
    def by_type(self) -> Mapping[str, RigidProfile]:
        """Return the profile on each type with a known speed."""
        return {name: RigidProfile(self.num_replicas, self.duration, speed) for name, speed in self.type_speeds}

    @property
    def application(self) -> Application:
        """Return the application of rigid jobs of this size."""
        return rigid_application(self.num_replicas)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the only batch size, one example per GPU."""
        return (self.num_replicas,)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, which does not depend on the nodes.

        Raise FixedReplicasError for another number of GPUs, and DoesNotFitError if the speed is 0.
        """
        _check_gang(gpus_by_node, self.num_replicas)
        if not self.speed:
            raise DoesNotFitError("the job does not fit in memory on this GPU type")
        return StepTime(1.0 / self.speed, 0.0)


Speeds: TypeAlias = tuple[tuple[int, float], ...]  # pairs (GPUs, speed in any unit), with rising numbers of GPUs
ELASTIC = "elastic"  # name of the application of jobs with a speed for each number of GPUs


@cache
def elastic_application(most: int) -> Application:
    """Return the application of elastic jobs on up to `most` GPUs: one epoch, with `most` examples on any number."""
    return replace(rigid_application(most), name=ELASTIC, max_atomic_batch_size=most, gang_size=None)


def speed_at(speeds: Speeds, num_replicas: int) -> float:
    """Return the speed on a number of GPUs, linear between the measured numbers.

    >>> speed_at(((1, 1.0), (2, 1.8), (4, 3.0)), 3)
    2.4

    Raise ProfileRangeError outside the measured numbers.
    """
    index = bisect_left(speeds, (num_replicas,))
    if index < len(speeds) and speeds[index][0] == num_replicas:
        return speeds[index][1]
    if not 0 < index < len(speeds):
        raise ProfileRangeError(f"its speed is known on {speeds[0][0]} to {speeds[-1][0]} GPUs, not on {num_replicas}")
    (fewer, slow), (more, fast) = speeds[index - 1 : index + 1]
    return slow + (fast - slow) * (num_replicas - fewer) / (more - fewer)


@dataclass(frozen=True, slots=True)
class ScalingProfile(KnownDuration):
    """Profile of an elastic job, from its speeds on numbers of GPUs."""

    speeds: Speeds

    @property
    def application(self) -> Application:
        """Return the application of elastic jobs of this size."""
        return elastic_application(self.speeds[-1][0])

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the only batch size."""
        return (self.speeds[-1][0],)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, which depends only on the number of GPUs.

        Raise ProfileRangeError outside the measured numbers of GPUs.
        """
        speed = speed_at(self.speeds, sum(gpus_by_node))
        return StepTime(speed_at(self.speeds, self.num_replicas) / speed, 0.0)


@dataclass(frozen=True)
class BatchPlan:
    """The batch sizes of a job by epoch, and its speed at each."""

    sizes: tuple[int, ...]  # batch size of each epoch [examples per GPU]
    examples: int  # examples per GPU of an epoch
    total_steps: int  # optimiser steps of the training at the first batch size
    # Optimiser steps/s on its GPUs, by (GPU type, batch size). A missing batch size does not fit in memory.
    speeds: Mapping[tuple[str, int], float] = field(hash=False)
    gpu_type: str  # GPU type on which the user expects the job to run
    # Batch size of each epoch that the user expects at submission [examples per GPU].
    expected_sizes: tuple[int, ...] = ()
    lag: float = 0.0  # training time before a change of size takes effect; the change skips the rest of its epoch [s]
    most_time: float = inf  # training time after which the job counts as complete [s]

    def steps(self, batch_size: int) -> int:
        """Return the optimiser steps of an epoch at a batch size."""
        return ceil(self.examples / batch_size)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which an epoch ends, in steps at the first batch size."""
        return float(min((epoch + 1) * self.steps(self.sizes[0]), self.total_steps))

    @property
    def type_speeds(self) -> tuple[tuple[str, float], ...]:
        """Return the speed at the first batch size on each type, relative to the expected type."""
        first = self.sizes[0]
        expected = self.speeds[self.gpu_type, first]
        return tuple((name, speed / expected) for (name, size), speed in self.speeds.items() if size == first)

    def expected_time(self, batch_size: int) -> float:
        """Return the expected time of an epoch at a batch size, not rounded up to whole steps [s]."""
        return self.examples / batch_size / self.speeds[self.gpu_type, batch_size]

    def epoch_time(self, batch_size: int) -> float:
        """Return the time of an epoch at a batch size on the expected type [s]."""
        return self.steps(batch_size) / self.speeds[self.gpu_type, batch_size]

    @cached_property
    def stretches(self) -> tuple[tuple[int, float], ...]:
        """Return the batch sizes in order, each with the progress at which it ends, in steps at the first batch size.

        A change of the batch size takes effect late by `lag`, and skips the rest of its epoch.
        """
        stretches: list[tuple[int, float]] = []
        start = 0.0
        skipped = 0.0  # steps so far of the rests of epochs that changes skipped
        epoch_steps = self.steps(self.sizes[0])
        last_epoch = -1
        for size, equal_sizes in groupby(self.sizes):
            last_epoch += len(list(equal_sizes))
            # `until` counts the skipped steps, as the epochs of the plan do. `start` and `end` do not, as the progress.
            until = self.epoch_end(last_epoch)
            if until < self.total_steps:
                step_time = self.epoch_time(size) / epoch_steps
                # The lag of the change before may last longer than this stretch, which then has no steps.
                until = max(until + self.lag / step_time, start + skipped)
            end = max(min(until, self.total_steps) - skipped, start)
            stretches.append((size, end))
            if until >= self.total_steps:
                break
            start = end
            skipped = skipped + ceil(until / epoch_steps) * epoch_steps - until
        return tuple(stretches)

    @property
    def time(self) -> float:
        """Return the training time on the expected type [s], also if it is longer than `most_time`."""
        times = []
        start = 0.0
        for size, end in self.stretches:
            times.append((end - start) * self.epoch_time(size))
            start = end
        return sum(times) / self.steps(self.sizes[0])


@dataclass(frozen=True)
class PlannedProfile:
    """Profile of a gang with a plan of batch sizes. An epoch of the profile is a stretch of the plan.

    The job runs on GPUs of one type.
    """

    name: str  # name of the application
    num_replicas: int  # requested GPUs
    plan: BatchPlan
    gpu_type: str | None = None  # by default the type that the user expects

    @property
    def by_type(self) -> Mapping[str, PlannedProfile]:
        """Return the profile on each type with known speeds; empty for the profile on one of them."""
        if self.gpu_type is not None:
            return {}
        return {name: replace(self, gpu_type=name) for name, _ in self.plan.speeds}

    @property
    def application(self) -> Application:
        """Return the limits of GPUs and batch sizes."""
        first = self.plan.sizes[0]
        largest = max(self.plan.sizes)
        return replace(
            rigid_application(self.num_replicas),
            name=self.name,
            init_batch_size=self.num_replicas * first,
            max_batch_size=self.num_replicas * largest,
            max_atomic_batch_size=largest,
            num_epochs=len(self.plan.stretches),
            fixed_batch_size=self.num_replicas * first,
        )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the batch sizes of the plan, rising."""
        return tuple(self.num_replicas * size for size in sorted(set(self.plan.sizes)))

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, which does not depend on the nodes.

        Raise FixedReplicasError for another number of GPUs, and DoesNotFitError for a batch size without a speed.
        """
        _check_gang(gpus_by_node, self.num_replicas)
        speed = self.plan.speeds.get((self.gpu_type or self.plan.gpu_type, atomic_batch_size))
        if speed is None:
            raise DoesNotFitError(f"{self.name} with {atomic_batch_size} examples does not fit in memory")
        return StepTime(1 / speed, 0.0)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics with which an epoch makes equal progress at each batch size, from the first size on."""
        scale = batch_size / (self.num_replicas * self.plan.sizes[0])
        gain = self._steps_of_first_size(batch_size)
        if gain <= 1:  # the first batch size
            return GradientStatistics(1.0, 0.0)
        # With these statistics, (var + sqr) / (var / scale + sqr) is the gain.
        return GradientStatistics(sqr=1 - gain / scale, var=gain - 1)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of a stretch, in steps at the first batch size."""
        return self.plan.stretches[epoch][1]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of the whole training at a fixed batch size."""
        return self.plan.stretches[-1][1] / self._steps_of_first_size(batch_size)

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps after the end of an epoch at a fixed batch size."""
        return (self.plan.stretches[-1][1] - self.epoch_end(epoch)) / self._steps_of_first_size(batch_size)

    def _steps_of_first_size(self, batch_size: int) -> float:
        """Return the number of steps at the first batch size that equal one step at this size."""
        return self.plan.steps(self.plan.sizes[0]) / self.plan.steps(batch_size // self.num_replicas)
