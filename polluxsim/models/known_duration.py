"""Jobs of known duration: rigid jobs, jobs with a speed for each number of GPUs, jobs with a plan of batch sizes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby
from math import ceil, inf
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


Speeds: TypeAlias = tuple[tuple[int, float], ...]
"""GPU counts, rising, each with the speed there, in any unit."""

ELASTIC = "elastic"
"""Name of the application of such jobs."""


@cache
def elastic_application(most: int) -> Application:
    """Return the application of elastic jobs on up to `most` GPUs: one epoch, and as many examples on fewer."""
    return replace(rigid_application(most), name=ELASTIC, max_atomic_batch_size=most, gang_size=None)


def speed_at(speeds: Speeds, num_replicas: int) -> float:
    """Return the speed on so many GPUs: as measured, and on a straight line between measured counts.

    >>> speed_at(((1, 1.0), (2, 1.8), (4, 3.0)), 3)
    2.4

    Raises
    ------
    ProfileRangeError
        If it is fewer than the least or more than the largest count.
    """
    place = bisect_left(speeds, (num_replicas,))
    if place < len(speeds) and speeds[place][0] == num_replicas:
        return speeds[place][1]
    if not 0 < place < len(speeds):
        raise ProfileRangeError(
            f"its speed on {num_replicas} GPUs is not known, allowed are {speeds[0][0]} to {speeds[-1][0]}"
        )
    (fewer, slow), (more, fast) = speeds[place - 1 : place + 1]
    return slow + (fast - slow) * (num_replicas - fewer) / (more - fewer)


@dataclass(frozen=True, slots=True)
class ScalingProfile(KnownDuration):
    """One elastic job as a `Profile`, by its speed on GPU counts within which are those asked for."""

    speeds: Speeds

    @property
    def application(self) -> Application:
        """Return what all elastic jobs of this size have in common."""
        return elastic_application(self.speeds[-1][0])

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return its only batch size."""
        return (self.speeds[-1][0],)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step by the number of GPUs, wherever they are."""
        speed = speed_at(self.speeds, sum(gpus_by_node))
        return StepTime(speed_at(self.speeds, self.num_replicas) / speed, 0.0)


@dataclass(frozen=True)
class BatchPlan:
    """What a job does at which batch size, and how fast.

    Parameters
    ----------
    sizes
        Batch size of each epoch [examples on each GPU].
    examples
        Examples of an epoch.
    total_steps
        Optimiser steps of the whole training at its first batch size.
    speeds
        Optimiser steps a second on its GPUs, by GPU type and batch size; what is absent does not fit in memory.
    gpu_type
        The type on which its user expects it to run.
    expected_sizes
        Batch size of each epoch as its user expects it, who does not know how training will go.
    lag
        Time of training until a change of size is carried out, which skips what is left of its epoch then [s].
    most_time
        Time of training after which it counts as complete [s].
    """

    sizes: tuple[int, ...]
    examples: int
    total_steps: int
    speeds: Mapping[tuple[str, int], float] = field(hash=False)
    gpu_type: str
    expected_sizes: tuple[int, ...] = ()
    lag: float = 0.0
    most_time: float = inf

    def steps(self, batch_size: int) -> int:
        """Return the optimiser steps of an epoch at a batch size."""
        return ceil(self.examples / batch_size)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which an epoch ends, in steps at the first batch size."""
        return float(min((epoch + 1) * self.steps(self.sizes[0]), self.total_steps))

    @property
    def type_speeds(self) -> tuple[tuple[str, float], ...]:
        """Return how fast it is at its first batch size on each type, over the one that its user expects."""
        first, here = self.sizes[0], self.speeds[self.gpu_type, self.sizes[0]]
        return tuple((name, speed / here) for (name, size), speed in self.speeds.items() if size == first)

    def expected_time(self, batch_size: int) -> float:
        """Return how long an epoch is expected to take at a batch size, without rounding it up to whole steps [s]."""
        return self.examples / batch_size / self.speeds[self.gpu_type, batch_size]

    def epoch_time(self, batch_size: int) -> float:
        """Return how long an epoch takes at a batch size on the type that its user expects [s]."""
        return self.steps(batch_size) / self.speeds[self.gpu_type, batch_size]

    @cached_property
    def stretches(self) -> tuple[tuple[int, float], ...]:
        """Return the batch sizes one after the other, each with the progress up to which it is trained at."""
        found: list[tuple[int, float]] = []
        start, skipped = 0.0, 0.0
        whole = self.steps(self.sizes[0])
        for size, epochs in groupby(enumerate(self.sizes), key=lambda each: each[1]):
            until = self.epoch_end([epoch for epoch, _ in epochs][-1])
            pace = self.epoch_time(size) / whole
            noticed = max(until + self.lag / pace, start + skipped) if until < self.total_steps else until
            end = max(min(noticed, self.total_steps) - skipped, start)
            found.append((size, end))
            if noticed >= self.total_steps:
                break
            start, skipped = end, skipped + ceil(noticed / whole) * whole - noticed
        return tuple(found)

    @property
    def time(self) -> float:
        """Return how long it takes on the type that its user expects [s]."""
        spans = zip(self.stretches, (0.0, *(end for _, end in self.stretches)), strict=False)
        return sum((end - start) * self.epoch_time(size) for (size, end), start in spans) / self.steps(self.sizes[0])


@dataclass(frozen=True)
class PlannedProfile:
    """One such job as a `Profile`: a gang that goes through its plan. What is an epoch here is a stretch of it.

    It runs on GPUs of a type; by default, of that on which its user expects it to run.
    """

    name: str
    num_replicas: int
    plan: BatchPlan
    gpu_type: str | None = None

    @property
    def by_type(self) -> Mapping[str, PlannedProfile]:
        """Return the same job on each type that it is known on."""
        if self.gpu_type is not None:
            return {}
        return {name: replace(self, gpu_type=name) for name, _ in self.plan.speeds}

    @property
    def application(self) -> Application:
        """Return its limits: its GPUs and its batch sizes."""
        return Application(
            name=self.name,
            init_batch_size=self.num_replicas * self.plan.sizes[0],
            max_batch_size=self.num_replicas * max(self.plan.sizes),
            min_atomic_batch_size=1,
            max_atomic_batch_size=max(self.plan.sizes),
            num_epochs=len(self.plan.stretches),
            fixed_batch_size=self.num_replicas * self.plan.sizes[0],
            max_replicas=self.num_replicas,
            gang_size=self.num_replicas,
        )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the batch sizes in its plan."""
        return tuple(self.num_replicas * size for size in sorted(set(self.plan.sizes)))

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step, wherever its GPUs are."""
        if sum(gpus_by_node) != self.num_replicas:
            raise ProfileRangeError(
                f"a rigid job was given {sum(gpus_by_node)} GPUs, allowed are the {self.num_replicas} it asks for"
            )
        if (speed := self.plan.speeds.get((self.gpu_type or self.plan.gpu_type, atomic_batch_size))) is None:
            raise DoesNotFitError(f"{self.name} with {atomic_batch_size} examples does not fit in memory")
        return StepTime(1 / speed, 0.0)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics by which an epoch is an epoch at any batch size."""
        scale = batch_size / (self.num_replicas * self.plan.sizes[0])
        worth = self._worth(batch_size)
        # The gain that they give is (var + sqr) / (var / scale + sqr).
        return GradientStatistics(sqr=1 - worth / scale, var=worth - 1) if worth > 1 else GradientStatistics(1.0, 0.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at which a stretch ends, in steps at the first batch size."""
        return self.plan.stretches[epoch][1]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of the whole training at a fixed batch size."""
        return self.plan.stretches[-1][1] / self._worth(batch_size)

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of an epoch on at a fixed batch size."""
        return (self.plan.stretches[-1][1] - self.epoch_end(epoch)) / self._worth(batch_size)

    def _worth(self, batch_size: int) -> float:
        """Return the steps at the first batch size that one at this size is worth."""
        return self.plan.steps(self.plan.sizes[0]) / self.plan.steps(batch_size // self.num_replicas)
